"""Columns of little-endian WKB made from numbers without a detour over single shapes."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_POINT_HEADER = np.frombuffer(b"\x01\x01\x00\x00\x00", dtype=np.uint8)


def binary_array(content: Any, sizes: npt.NDArray[np.int64], there: npt.NDArray[np.bool_]) -> "pa.Array[Any]":
    """Make a binary column from its values' bytes in a row; `sizes` are those of the values that are there."""
    lengths = np.zeros(len(there), dtype=np.int64)
    lengths[there] = sizes
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"shapes of {offsets[-1]} bytes are too many for one batch; read smaller batches")
    validity = None if there.all() else _buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(there), [validity, _buffer(offsets.astype(np.int32)), _buffer(content)]
    )


def _buffer(content: Any) -> pa.Buffer:
    return pa.py_buffer(content)


def point_array(coordinates: npt.NDArray[np.float64], there: npt.NDArray[np.bool_]) -> "pa.Array[Any]":
    """Make a column of points; `coordinates` are x and y of those that are there."""
    content = np.empty((len(coordinates), 21), dtype=np.uint8)
    content[:, :5] = _POINT_HEADER
    content[:, 5:] = np.ascontiguousarray(coordinates, dtype="<f8").view(np.uint8).reshape(-1, 16)
    return binary_array(content, np.full(len(coordinates), 21, dtype=np.int64), there)
