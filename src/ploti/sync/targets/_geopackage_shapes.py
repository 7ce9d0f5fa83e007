"""Shapes as GeoPackage stores them: a header with the envelope ahead of the WKB, and the functions over it."""

import sqlite3
import struct
from array import array
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from ploti.contract.files import SRID
from ploti.sync.target import StepRefused

_MAGIC: Final = b"GP\x00"
_HEADER: Final = _MAGIC + b"\x03" + struct.pack("<i", SRID)
"""Version 0, little-endian, an envelope of four numbers, not empty."""
_EMPTY_FLAG: Final = 0x10
_ENVELOPE_BYTES: Final = (0, 32, 48, 48, 64)
_POINT: Final = b"\x01\x01\x00\x00\x00"
_DIMENSIONS: Final = (2, 3, 3, 4)

Bounds = tuple[float, float, float, float]
"""West, east, south, north: the order in the header and in the R-tree."""


def packed(wkb: bytes) -> bytes:
    """Give a delivered shape as a GeoPackage blob; raises StepRefused for bytes that are no shape."""
    if len(wkb) == 21 and wkb[:5] == _POINT:
        x, y = wkb[5:13], wkb[13:]
        return b"".join((_HEADER, x, x, y, y, wkb))
    try:
        return _HEADER + struct.pack("<4d", *_bounds_of_wkb(wkb)) + wkb
    except (struct.error, ValueError) as error:
        raise StepRefused("a shape in the files is not the WKB that the feed promises") from error


def _bounds_of_wkb(wkb: bytes) -> Bounds:
    """Find the bounds of little-endian WKB; raises ValueError or struct.error for bytes that are none."""
    at, left = 0, 1
    found: list[Bounds] = []

    def coordinates(count: int, dimensions: int) -> None:
        nonlocal at
        size = 8 * dimensions * count
        numbers = array("d", wkb[at : at + size])
        if len(numbers) != dimensions * count:
            raise ValueError("the shape ends early")
        if struct.pack("=H", 1) != b"\x01\x00":
            numbers.byteswap()
        at += size
        if count:
            xs, ys = numbers[0::dimensions], numbers[1::dimensions]
            found.append((min(xs), max(xs), min(ys), max(ys)))

    while left:
        left -= 1
        order, code = struct.unpack_from("<BI", wkb, at)
        kind, beyond = code % 1000, code // 1000
        if order != 1 or not 1 <= kind <= 7 or beyond >= len(_DIMENSIONS):
            raise ValueError("another byte order or kind of shape")
        dimensions = _DIMENSIONS[beyond]
        at += 5
        if kind == 1:
            coordinates(1, dimensions)
            continue
        (count,) = struct.unpack_from("<I", wkb, at)
        at += 4
        if kind == 2:
            coordinates(count, dimensions)
        elif kind == 3:
            for _ in range(count):
                (points,) = struct.unpack_from("<I", wkb, at)
                at += 4
                coordinates(points, dimensions)
        else:
            left += count
    west, east, south, north = zip(*found, strict=True)
    return min(west), max(east), min(south), max(north)


@lru_cache(maxsize=4)
def bounds_of(blob: object) -> Bounds | None:
    """Give the bounds of a GeoPackage blob, whoever wrote it; None for an empty or broken one, or what is none.

    The last ones are kept, as a spatial index asks for each edge of a shape in turn.
    """
    if not isinstance(blob, bytes) or len(blob) < 8 or blob[:3] != _MAGIC or blob[3] & _EMPTY_FLAG:
        return None
    kind = (blob[3] >> 1) & 7
    try:
        if kind:
            west, east, south, north = struct.unpack_from("<4d" if blob[3] & 1 else ">4d", blob, 8)
            return west, east, south, north
        return _bounds_of_wkb(blob[8:])
    except (struct.error, ValueError):
        return None


def wkb_of(blob: bytes) -> bytes:
    """Give the WKB in a GeoPackage blob; the blob itself where it is none, or in another reference system."""
    if len(blob) < 8 or blob[:3] != _MAGIC:
        return blob
    kind = (blob[3] >> 1) & 7
    (system,) = struct.unpack_from("<i" if blob[3] & 1 else ">i", blob, 4)
    if kind >= len(_ENVELOPE_BYTES) or system != SRID:
        return blob
    return blob[8 + _ENVELOPE_BYTES[kind] :]


def register(db: sqlite3.Connection) -> None:
    """Give a connection the functions that the triggers of a spatial index call."""
    db.create_function("ST_IsEmpty", 1, _is_empty, deterministic=True)
    for at, name in enumerate(("ST_MinX", "ST_MaxX", "ST_MinY", "ST_MaxY")):
        db.create_function(name, 1, _bound(at), deterministic=True)


def _is_empty(blob: object) -> int | None:
    return None if blob is None else int(bounds_of(blob) is None)


def _bound(at: int) -> Callable[[object], float | None]:
    def bound(blob: object) -> float | None:
        bounds = bounds_of(blob)
        return None if bounds is None else bounds[at]

    return bound
