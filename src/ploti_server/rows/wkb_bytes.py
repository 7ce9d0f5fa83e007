"""Columns of little-endian WKB made from numbers without a detour over single shapes."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_POINT_HEADER = np.frombuffer(b"\x01\x01\x00\x00\x00", dtype=np.uint8)
_RING_HEADER = np.frombuffer(
    b"\x01\x06\x00\x00\x00\x01\x00\x00\x00" + b"\x01\x03\x00\x00\x00\x01\x00\x00\x00" + bytes(4), dtype=np.uint8
)
"""A multipolygon of one polygon of one ring, up to the number of its vertices."""


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


def ring_array(vertices: npt.NDArray[np.float64], sizes: npt.NDArray[np.intp]) -> "pa.Array[Any]":
    """Make a column of multipolygons of one ring each; `vertices` are those of all closed rings in a row."""
    lengths = sizes.astype(np.int64) * 16 + 22
    begins = np.cumsum(lengths) - lengths
    content = np.empty(int(lengths.sum()), dtype=np.uint8)
    is_vertex = np.ones(len(content), dtype=np.bool_)
    for place in range(22):
        content[begins + place] = _RING_HEADER[place]
        is_vertex[begins + place] = False
    for byte in range(4):
        content[begins + 18 + byte] = sizes >> (8 * byte) & 255
    content[is_vertex] = np.ascontiguousarray(vertices, dtype="<f8").view(np.uint8).ravel()
    return binary_array(content, lengths, np.ones(len(lengths), dtype=np.bool_))
