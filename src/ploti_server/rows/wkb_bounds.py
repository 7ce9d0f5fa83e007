"""Boxes and kinds of delivered shapes, read from the bytes of their WKB where these are plain (D5.4)."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

KINDS: Final = {
    1: "Point",
    2: "LineString",
    3: "Polygon",
    4: "MultiPoint",
    5: "MultiLineString",
    6: "MultiPolygon",
    7: "GeometryCollection",
}
"""Names by WKB type."""

_FAR: Final = 2**31 - 1
"""Beyond the end of any value (without an end, binary_slice of Arrow 26 fails on short values)."""

_Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Layout:
    """Where the coordinates of a plain shape begin: one part, one ring, nothing after the last coordinate.

    `ones` are the places of counts that must be 1 for the shape to be plain, `points` that of the number of points.
    """

    start: int
    ones: tuple[int, ...]
    points: int | None


_LAYOUTS: Final = {
    1: _Layout(5, (), None),
    4: _Layout(14, (5,), None),
    5: _Layout(18, (5,), 14),
    6: _Layout(22, (5, 14), 18),
}


def boxes_and_kinds(wkb: "pa.Array[Any]") -> tuple[npt.NDArray[np.float64], frozenset[str]]:
    """Give xmin, ymin, xmax, ymax of each little-endian WKB shape, NaN where there is none, and the kinds found.

    Raises `KeyError` for bytes that are no such shape.
    """
    boxes = np.full((len(wkb), 4), np.nan)
    codes = _type_codes(wkb)
    found = [int(code) for code in np.unique(codes) if code >= 0]
    for code in found:
        rows = np.flatnonzero(codes == code)
        whole = len(rows) == len(wkb)
        boxes[rows] = _bounds_of_kind(wkb if whole else wkb.take(pa.array(rows, type=pa.int64())), code)
    return boxes, frozenset(KINDS[code] for code in found)


def _buffers(wkb: "pa.Array[Any]") -> tuple[_Offsets, npt.NDArray[np.uint8]]:
    """Give the offsets of a binary column's values, and the bytes that they point into."""
    offsets: Any
    values: Any
    _, offsets, values = wkb.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[wkb.offset : wkb.offset + len(wkb) + 1].astype(np.int64)
    return ends, np.frombuffer(values, dtype=np.uint8) if values is not None else np.empty(0, dtype=np.uint8)


def _type_codes(wkb: "pa.Array[Any]") -> npt.NDArray[np.int64]:
    """Read each shape's WKB type, -1 where there is no shape."""
    codes = np.full(len(wkb), -1, dtype=np.int64)
    there = np.asarray(wkb.is_valid())
    if there.any():
        ends, values = _buffers(wkb)
        codes[there] = _number(values, ends[:-1][there] + 1)
    return codes


def _number(values: npt.NDArray[np.uint8], at: _Offsets) -> npt.NDArray[np.int64]:
    """Read little-endian 32-bit numbers at any positions."""
    return sum(
        (values[at + byte].astype(np.int64) << (8 * byte) for byte in range(4)), start=np.zeros(len(at), dtype=np.int64)
    )


def _bounds_of_kind(wkb: "pa.Array[Any]", code: int) -> npt.NDArray[np.float64]:
    layout = _LAYOUTS.get(code)
    if layout is None:
        return _decoded_bounds(wkb)
    plain = _is_plain(wkb, layout)
    if plain.all():
        return _plain_bounds(wkb, layout)
    boxes = np.empty((len(wkb), 4))
    boxes[~plain] = _decoded_bounds(wkb.filter(pa.array(~plain)))
    if plain.any():
        boxes[plain] = _plain_bounds(wkb.filter(pa.array(plain)), layout)
    return boxes


def _is_plain(wkb: "pa.Array[Any]", layout: _Layout) -> npt.NDArray[np.bool_]:
    ends, values = _buffers(wkb)
    begins, sizes = ends[:-1], np.diff(ends)
    plain = sizes >= layout.start + 16
    for place in layout.ones:
        plain[plain] = _number(values, begins[plain] + place) == 1
    points = np.ones(len(wkb), dtype=np.int64)
    if layout.points is not None:
        points[plain] = _number(values, begins[plain] + layout.points)
    return np.asarray(plain & (sizes == layout.start + 16 * points))


def _plain_bounds(wkb: "pa.Array[Any]", layout: _Layout) -> npt.NDArray[np.float64]:
    """Cut the headers off and read what is left as one run of coordinates."""
    ends, values = _buffers(pc.binary_slice(wkb, layout.start, _FAR))
    coordinates = np.frombuffer(values.data, dtype="<f8", count=int(ends[-1] - ends[0]) // 8, offset=int(ends[0]))
    x, y = coordinates[0::2], coordinates[1::2]
    if layout.points is None:
        return np.column_stack((x, y, x, y))
    starts = (ends[:-1] - ends[0]) // 16
    low, high = np.minimum.reduceat, np.maximum.reduceat
    return np.column_stack((low(x, starts), low(y, starts), high(x, starts), high(y, starts)))


def _decoded_bounds(wkb: "pa.Array[Any]") -> npt.NDArray[np.float64]:
    return np.asarray(shapely.bounds(shapely.from_wkb(wkb.to_numpy(zero_copy_only=False))))
