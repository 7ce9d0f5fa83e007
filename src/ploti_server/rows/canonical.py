"""Canonical rows and record hashes of Arrow batches, equal to `ploti.contract.digest` (D5.6)."""

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ploti.contract.values import ColumnType

SLICE_BYTES: Final = 64_000_000
"""Batches are worked on in slices of about this size, so that text and hex stay within memory."""

Texts = Any
"""A `pyarrow.LargeStringArray`; the stubs of pyarrow lose track of it in each call."""

_compute: Final[Any] = pyarrow.compute
_HEX_PAIRS: Final = np.array([int.from_bytes(f"{byte:02x}".encode(), "little") for byte in range(256)], dtype="<u2")


def canonical_rows(batch: pa.RecordBatch, columns: Mapping[str, ColumnType]) -> Texts:
    """Give each row's canonical text over `columns` as large strings; nulls contribute nothing."""
    parts = [pa.repeat(pa.scalar("", pa.large_string()), batch.num_rows)]
    for name in sorted(columns, key=str.encode):
        text = canonical_texts(batch.column(name), columns[name])
        parts.append(_compute.fill_null(joined(f"{name}:", _lengths(text), ":", text, ";"), ""))
    return joined(*parts)


def key_texts(batch: pa.RecordBatch, key: Mapping[str, ColumnType]) -> Texts:
    """Give each row's key text, `type:N:text;` for each key column in declared order; null where a part is (D4.1)."""
    parts: list[Any] = []
    for name, type_ in key.items():
        text = canonical_texts(batch.column(name), type_)
        parts.extend((f"{type_}:", _lengths(text), ":", text, ";"))
    return joined(*parts)


def joined(*parts: Any) -> Texts:
    """Join texts and arrays of large strings row by row; null where one is null."""
    scalars = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in (*parts, "")]
    return _compute.binary_join_element_wise(*scalars)


def record_hashes(ids: Texts, rows: Texts) -> list[bytes]:
    """Give the sha256 of each record: id, newline, canonical row."""
    return text_hashes(joined(ids.cast(pa.large_string()), "\n", rows))


def text_hashes(texts: Texts) -> list[bytes]:
    """Give the sha256 of each text in UTF-8."""
    return [sha256(text).digest() for text in texts.cast(pa.large_binary()).to_pylist()]


def slices(batch: pa.RecordBatch, limit: int = SLICE_BYTES) -> Iterator[pa.RecordBatch]:
    """Cut a batch into slices of about `limit` bytes or less, a single row at least."""
    rows = max(1, int(batch.num_rows * limit / max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def canonical_texts(values: Any, type_: ColumnType) -> Texts:
    """Give the canonical text of each value of a column as large strings; null for null."""
    return _TEXTS[type_](values)


def _lengths(texts: Texts) -> Texts:
    return _compute.utf8_length(texts).cast(pa.large_string())


def _number_texts(values: Any) -> Texts:
    numbers = _compute.fill_null(values.cast(pa.float64()), float("nan")).to_numpy(zero_copy_only=False)
    missing = ~np.isfinite(numbers)
    bits = np.where(missing, 0.0, numbers + 0.0).view(np.int64)
    return pa.array(bits, mask=missing).cast(pa.large_string())


def _boolean_texts(values: Any) -> Texts:
    return values.cast(pa.bool_()).cast(pa.int8()).cast(pa.large_string())


def _timestamp_texts(values: Any) -> Texts:
    return values.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).cast(pa.large_string())


def _geometry_texts(values: Any) -> Texts:
    """Write hex by a table over the bytes of the whole array; the text's offsets are twice the array's."""
    if not len(values):
        return pa.array([], pa.large_string())
    shapes = _compute.fill_null(values.cast(pa.large_binary()), b"")
    _, offset_buffer, data = shapes.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[shapes.offset : shapes.offset + len(shapes) + 1]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    text = _HEX_PAIRS[content[offsets[0] : offsets[-1]]]
    moved = (offsets - offsets[0]) * 2
    buffers: list[Any] = [None, pa.py_buffer(moved.tobytes()), pa.py_buffer(text.tobytes())]
    hexes = pa.Array.from_buffers(pa.large_string(), len(shapes), buffers)
    return _compute.if_else(values.is_null(), pa.scalar(None, pa.large_string()), hexes)


_TEXTS: Final[dict[ColumnType, Callable[[Any], Texts]]] = {
    "string": lambda values: values.cast(pa.large_string()),
    "json": lambda values: values.cast(pa.large_string()),
    "integer": lambda values: values.cast(pa.int64()).cast(pa.large_string()),
    "number": _number_texts,
    "boolean": _boolean_texts,
    "date": lambda values: values.cast(pa.date32()).cast(pa.int32()).cast(pa.large_string()),
    "timestamp": _timestamp_texts,
    "geometry": _geometry_texts,
}


def json_value(text: str | None, type_: ColumnType) -> Any:
    """Give a value for JSON from its canonical text: ISO 8601 dates and times in UTC, geometry in base64 (D5.8)."""
    if text is None:
        return None
    match type_:
        case "integer":
            return int(text)
        case "number":
            return struct.unpack(">d", struct.pack(">q", int(text)))[0]
        case "boolean":
            return text == "1"
        case "date":
            return (date(1970, 1, 1) + timedelta(days=int(text))).isoformat()
        case "timestamp":
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(text))
            return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case "geometry":
            return base64.b64encode(bytes.fromhex(text)).decode()
        case "string" | "json":
            return text
