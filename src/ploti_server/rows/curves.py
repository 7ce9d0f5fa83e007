"""Shapes out of WKB and WKT, with curves, triangles and surfaces made linear; shapely reads none of these (D3.1)."""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import shapely

Geometries = npt.NDArray[np.object_]
_Vertices = npt.NDArray[np.float64]

ARC_STEP: Final = np.radians(4.0)
"""The angle at most between two vertices of a curve made linear."""

ARC_DECIMALS: Final = 9
"""Vertices made on a curve are rounded, so that no machine's sine shows in them."""

_NAMES: Final = (
    "",
    "POINT",
    "LINESTRING",
    "POLYGON",
    "MULTIPOINT",
    "MULTILINESTRING",
    "MULTIPOLYGON",
    "GEOMETRYCOLLECTION",
    "CIRCULARSTRING",
    "COMPOUNDCURVE",
    "CURVEPOLYGON",
    "MULTICURVE",
    "MULTISURFACE",
    "CURVE",
    "SURFACE",
    "POLYHEDRALSURFACE",
    "TIN",
    "TRIANGLE",
)
"""Kinds by WKB type."""

_OF_VERTICES: Final = {"POINT", "LINESTRING", "CIRCULARSTRING"}
_OF_RINGS: Final = {"POLYGON", "TRIANGLE"}
_BARE: Final = {
    "COMPOUNDCURVE": "LINESTRING",
    "CURVEPOLYGON": "LINESTRING",
    "POLYGON": "LINESTRING",
    "TRIANGLE": "LINESTRING",
    "MULTIPOINT": "POINT",
    "MULTICURVE": "LINESTRING",
    "MULTILINESTRING": "LINESTRING",
    "MULTISURFACE": "POLYGON",
    "MULTIPOLYGON": "POLYGON",
    "POLYHEDRALSURFACE": "POLYGON",
    "TIN": "TRIANGLE",
}
"""What a part without a name of its own is in WKT."""

_UNREADABLE: Final = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    struct.error,
    RecursionError,
    NotImplementedError,
    shapely.errors.ShapelyError,
)


@dataclass(frozen=True)
class _Drawn:
    """A shape as written: its kind, and either vertices or parts."""

    kind: str
    vertices: _Vertices | None = None
    parts: tuple["_Drawn", ...] = ()


def shapes_from_wkb(values: npt.NDArray[np.object_]) -> tuple[Geometries, list[int]]:
    """Read WKB of any kind, byte order and dimension; gives shapes, None where there is none, and broken places."""
    return _read_all(values, shapely.from_wkb, lambda value: _from_wkb(bytes(value)))


def shapes_from_wkt(values: npt.NDArray[np.object_]) -> tuple[Geometries, list[int]]:
    """Read WKT of any kind; gives shapes, None where there is none, and the places of broken ones."""
    return _read_all(values, shapely.from_wkt, _from_wkt)


def _read_all(
    values: npt.NDArray[np.object_], read: Callable[[Any], Any], read_curve: Callable[[Any], _Drawn]
) -> tuple[Geometries, list[int]]:
    """Read a column at once, or value by value where one of them is not plain."""
    try:
        return np.asarray(read(values), dtype=object), []
    except _UNREADABLE:
        pass
    shapes = np.full(len(values), None, dtype=object)
    broken = []
    for place, value in enumerate(values):
        if value is not None:
            shapes[place] = _read_one(value, read, read_curve)
            if shapes[place] is None:
                broken.append(place)
    return shapes, broken


def _read_one(value: Any, read: Callable[[Any], Any], read_curve: Callable[[Any], _Drawn]) -> Any:
    try:
        return read(value)
    except _UNREADABLE:
        pass
    try:
        return _linear(read_curve(value))
    except _UNREADABLE:
        return None


def _linear(drawn: _Drawn) -> Any:
    match drawn.kind:
        case "POINT":
            return shapely.points(_course(drawn)[0]) if len(_course(drawn)) else shapely.Point()
        case "LINESTRING" | "CIRCULARSTRING" | "COMPOUNDCURVE":
            return shapely.linestrings(_course(drawn)) if len(_course(drawn)) else shapely.LineString()
        case "POLYGON" | "TRIANGLE" | "CURVEPOLYGON":
            rings = [shapely.linearrings(_course(ring)) for ring in drawn.parts if len(_course(ring))]
            return shapely.polygons(rings[0], rings[1:] or None) if rings else shapely.Polygon()
        case "MULTIPOINT":
            return shapely.multipoints(_linear_parts(drawn))
        case "MULTILINESTRING" | "MULTICURVE":
            return shapely.multilinestrings(_linear_parts(drawn))
        case "MULTIPOLYGON" | "MULTISURFACE" | "POLYHEDRALSURFACE" | "TIN":
            return shapely.multipolygons(_linear_parts(drawn))
        case "GEOMETRYCOLLECTION":
            return shapely.geometrycollections(_linear_parts(drawn))
        case other:
            raise ValueError(f"{other} is no kind of shape")


def _linear_parts(drawn: _Drawn) -> Geometries:
    return np.array([_linear(part) for part in drawn.parts], dtype=object)


def _course(drawn: _Drawn) -> _Vertices:
    """Give the vertices of a line, an arc or the joined parts of a compound curve."""
    if drawn.kind == "COMPOUNDCURVE":
        courses = [_course(part) for part in drawn.parts]
        return np.concatenate([*[course[:-1] for course in courses[:-1]], courses[-1]]) if courses else np.empty((0, 2))
    if drawn.vertices is None:
        raise ValueError(f"{drawn.kind} is no line")
    return _arcs(drawn.vertices) if drawn.kind == "CIRCULARSTRING" else drawn.vertices


def _arcs(vertices: _Vertices) -> _Vertices:
    """Make a string of arcs linear; each goes from an odd vertex through the next to the one after it."""
    if len(vertices) == 0:
        return vertices
    if len(vertices) < 3 or len(vertices) % 2 == 0:
        raise ValueError("a circular string has an odd number of vertices")
    arcs = [_arc(*vertices[start : start + 3])[:-1] for start in range(0, len(vertices) - 2, 2)]
    return np.concatenate([*arcs, vertices[-1:]])


def _arc(begin: _Vertices, middle: _Vertices, end: _Vertices) -> _Vertices:
    """Draw one arc, vertices at most `ARC_STEP` apart, the given ones among them; a circle ends where it begins."""
    if (begin == end).all():
        centre, sweep = (begin + middle) / 2, 2 * np.pi
    else:
        (ax, ay), (bx, by) = middle - begin, end - begin
        twice = 2 * (ax * by - ay * bx)
        if abs(twice) <= 1e-12 * (abs(ax * by) + abs(ay * bx)):
            return np.array([begin, middle, end])
        a, b = ax * ax + ay * ay, bx * bx + by * by
        centre = begin + np.array([by * a - ay * b, ax * b - bx * a]) / twice
        to_end = _angle(end - centre) - _angle(begin - centre)
        sweep = to_end % (2 * np.pi) if twice > 0 else -((-to_end) % (2 * np.pi))
    to_middle = (_angle(middle - centre) - _angle(begin - centre)) % (2 * np.pi)
    first = to_middle if sweep > 0 else to_middle - 2 * np.pi
    return np.concatenate(
        [_swept(begin, centre, first)[:-1], [middle], _swept(middle, centre, sweep - first)[1:-1], [end]]
    )


def _angle(arm: _Vertices) -> float:
    return float(np.arctan2(arm[1], arm[0]))


def _swept(begin: _Vertices, centre: _Vertices, sweep: float) -> _Vertices:
    """Turn a point around a centre in even steps; the last is where the sweep ends."""
    steps = max(int(np.ceil(round(abs(sweep) / ARC_STEP, 6))), 1)
    angles = np.arange(steps + 1) * (sweep / steps)
    x, y = begin - centre
    turned = np.column_stack((x * np.cos(angles) - y * np.sin(angles), x * np.sin(angles) + y * np.cos(angles)))
    vertices = np.round(turned + centre, ARC_DECIMALS)
    vertices[0] = begin
    return vertices


def _from_wkb(content: bytes) -> _Drawn:
    drawn, _ = _wkb_shape(content, 0)
    return drawn


def _wkb_shape(content: bytes, at: int) -> tuple[_Drawn, int]:
    order = "<" if content[at] else ">"
    (code,) = struct.unpack_from(order + "I", content, at + 1)
    at += 9 if code & 0x20000000 else 5
    dimensions = 2 + _extra_dimensions(code)
    kind = _NAMES[(code & 0x0FFFFFFF) % 1000]
    if kind == "POINT":
        return _Drawn(kind, _wkb_vertices(content, at, 1, dimensions, order)), at + 8 * dimensions
    (count,) = struct.unpack_from(order + "I", content, at)
    at += 4
    if kind in _OF_VERTICES:
        return _Drawn(kind, _wkb_vertices(content, at, count, dimensions, order)), at + 8 * dimensions * count
    parts = []
    for _ in range(count):
        if kind in _OF_RINGS:
            (size,) = struct.unpack_from(order + "I", content, at)
            parts.append(_Drawn("LINESTRING", _wkb_vertices(content, at + 4, size, dimensions, order)))
            at += 4 + 8 * dimensions * size
        else:
            part, at = _wkb_shape(content, at)
            parts.append(part)
    return _Drawn(kind, parts=tuple(parts)), at


def _extra_dimensions(code: int) -> int:
    """Count Z and M, written as a flag each or as thousands of the type."""
    thousands = (code & 0x0FFFFFFF) // 1000
    return bool(code & 0x80000000) + bool(code & 0x40000000) + (0, 1, 1, 2)[thousands]


def _wkb_vertices(content: bytes, at: int, count: int, dimensions: int, order: str) -> _Vertices:
    numbers = np.frombuffer(content, dtype=order + "f8", count=count * dimensions, offset=at)
    vertices = numbers.reshape(count, dimensions)[:, :2].astype(np.float64)
    return vertices[~np.isnan(vertices).all(axis=1)]


END: Final = ""
"""The word after the last one of a text, however often it is asked for."""

_WORD: Final = re.compile(r"\s*([A-Za-z]+|[(),]|[-+0-9.eE]+)")


def _from_wkt(text: str) -> _Drawn:
    words = _words(text.rpartition(";")[2])
    drawn = _wkt_shape(next(words), words)
    if next(words) != END:
        raise ValueError("text goes on after the shape")
    return drawn


def _words(text: str) -> Iterator[str]:
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:
            raise ValueError(f"no part of a shape: {text[at : at + 20]}")
        yield match[1].upper()
        at = match.end()
    while True:
        yield END


def _wkt_shape(name: str, words: Iterator[str]) -> _Drawn:
    """Read a named shape; the dimension may stand apart or at the end of the name."""
    kind = name if name in _NAMES else re.sub("(Z|M|ZM)$", "", name)
    word = next(words)
    while word in ("Z", "M", "ZM"):
        word = next(words)
    return _wkt_body(kind, word, words)


def _wkt_body(kind: str, word: str, words: Iterator[str]) -> _Drawn:
    if word == "EMPTY":
        return _Drawn(kind, np.empty((0, 2)) if kind in _OF_VERTICES else None)
    if word != "(":
        raise ValueError(f"{kind} without a bracket")
    if kind in _OF_VERTICES:
        return _Drawn(kind, _wkt_vertices(words))
    parts = []
    while True:
        word = next(words)
        if word.isalpha() and word != "EMPTY":
            parts.append(_wkt_shape(word, words))
        else:
            parts.append(_wkt_body(_BARE[kind], word, words))
        word = next(words)
        if word == ")":
            return _Drawn(kind, parts=tuple(parts))
        if word != ",":
            raise ValueError(f"{word} where a comma belongs")


def _wkt_vertices(words: Iterator[str]) -> _Vertices:
    vertices: list[list[float]] = [[]]
    for word in words:
        if word == ")":
            return np.array([vertex[:2] for vertex in vertices], dtype=np.float64).reshape(-1, 2)
        if word == ",":
            vertices.append([])
        else:
            vertices[-1].append(float(word))
    raise ValueError("a bracket that never closes")
