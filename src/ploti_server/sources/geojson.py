"""Shapes of GeoJSON geometries, and the coordinate reference system that a collection names (RFC 7946, D3)."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import shapely

DEFAULT_CRS: Final = "OGC:CRS84"

BROKEN_SHAPE: Final = "shape cannot be read"

Shape = Any


def shapes_of(geometries: Sequence[Any]) -> tuple[npt.NDArray[np.object_], list[int]]:
    """Make shapes of GeoJSON geometries; gives them, None where there is none, and the places of broken ones."""
    shapes = np.full(len(geometries), None, dtype=object)
    points = [i for i, geometry in enumerate(geometries) if _is_plain_point(geometry)]
    if points:
        shapes[points] = shapely.points(np.array([geometries[i]["coordinates"][:2] for i in points], dtype=np.float64))
    broken = []
    for index in sorted(set(range(len(geometries))) - set(points)) if len(points) < len(geometries) else ():
        if geometries[index] is not None:
            try:
                shapes[index] = _shape(geometries[index])
            except (ValueError, TypeError, KeyError, IndexError, RecursionError, shapely.errors.GEOSException):
                broken.append(index)
    return shapes, broken


def crs_of(member: Any, *, given: bool) -> tuple[str, ...]:
    """Tell the CRS of a collection from its old `crs` member: none given is WGS 84, null or a link is undeclared."""
    if not given:
        return (DEFAULT_CRS,)
    properties = member.get("properties") if isinstance(member, dict) else None
    name = properties.get("name") if isinstance(properties, dict) else None
    return (name,) if isinstance(name, str) and name else ()


def _is_plain_point(geometry: Any) -> bool:
    if not isinstance(geometry, dict) or geometry.get("type") != "Point":
        return False
    place = geometry.get("coordinates")
    return isinstance(place, list) and len(place) >= 2 and type(place[0]) in _NUMBERS and type(place[1]) in _NUMBERS


_NUMBERS: Final = (int, float)
SHAPES: Final = frozenset(
    {"Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon", "GeometryCollection"}
)
"""What RFC 7946 calls geometries."""


def _shape(geometry: Any) -> Shape:
    """Make one shape; raises one of several errors where it is broken."""
    if geometry["type"] == "GeometryCollection":
        return shapely.geometrycollections([_shape(part) for part in geometry["geometries"]])
    return _SHAPES[geometry["type"]](geometry["coordinates"])


def _vertices(coordinates: Any) -> npt.NDArray[np.float64]:
    """Give x and y of a list of positions."""
    if not coordinates:
        return np.empty((0, 2))
    try:
        vertices = np.array(coordinates, dtype=np.float64)
    except ValueError:
        vertices = np.array([position[:2] for position in coordinates], dtype=np.float64)
    if vertices.ndim != 2 or vertices.shape[1] < 2:
        raise ValueError("positions need two numbers")
    return vertices[:, :2]


def _point(coordinates: Any) -> Shape:
    return shapely.points(_vertices([coordinates])[0]) if coordinates else shapely.from_wkt("POINT EMPTY")


def _line(coordinates: Any) -> Shape:
    return shapely.linestrings(_vertices(coordinates))


def _polygon(coordinates: Any) -> Shape:
    rings = [shapely.linearrings(_vertices(ring)) for ring in coordinates if ring]
    return shapely.polygons(rings[0], rings[1:] or None) if rings else shapely.from_wkt("POLYGON EMPTY")


_SHAPES: Final[dict[str, Callable[[Any], Shape]]] = {
    "Point": _point,
    "LineString": _line,
    "Polygon": _polygon,
    "MultiPoint": lambda parts: shapely.multipoints([_point(part) for part in parts]),
    "MultiLineString": lambda parts: shapely.multilinestrings([_line(part) for part in parts]),
    "MultiPolygon": lambda parts: shapely.multipolygons([_polygon(part) for part in parts]),
}
