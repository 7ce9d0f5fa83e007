"""Delivered shapes: lon/lat, 2D, repaired, Multi, in normal form, as little-endian WKB (D3)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from ploti_server.rows.hilbert import hilbert_keys
from ploti_server.rows.nearness import within_metres
from ploti_server.rows.plain_polygons import PlainPolygons, plain_polygons, plain_polygons_of_text
from ploti_server.rows.projection import UndeclaredCrs, UnknownCrs, place
from ploti_server.rows.raw import Array
from ploti_server.rows.shapes_equal import same_shapes
from ploti_server.rows.text import pc
from ploti_server.rows.wkb_bytes import binary_array, point_array

__all__ = [
    "MIXED",
    "Shapes",
    "UndeclaredCrs",
    "UnknownCrs",
    "geometry_type",
    "normalise_points",
    "normalise_shapes",
    "normalise_text",
    "promote",
    "same_shapes",
    "within_metres",
]

Geometries = npt.NDArray[np.object_]
"""Shapely geometries, None where there is none."""

MIXED: Final = "Geometry"
"""Kind of a column that mixes kinds, and of a shape that mixes dimensions."""

_POINT, _LINE, _POLYGON = 0, 1, 3
_COLLECTION: Final = 7
_KINDS: Final = {0: "Point", 4: "MultiPoint", 5: "MultiLineString", 6: "MultiPolygon", _COLLECTION: MIXED}
_DIMENSION: Final = np.array([-1, 0, 1, 1, 2, 0, 1, 2, 3])
"""Dimension by GEOS type id + 1; 3 for collections."""

NOT_FINITE: Final = "coordinates are not finite"
NOTHING_LEFT: Final = "nothing is left of the shape after repair"


@dataclass(frozen=True)
class Shapes:
    """A batch's shapes as delivered; `rejects` are index in the batch and reason (D5.7)."""

    wkb: "pa.Array[Any]"
    hilbert: "pa.Array[Any]"
    kinds: frozenset[str]
    repaired: int
    rejects: tuple[tuple[int, str], ...]


def normalise_points(x: "pa.Array[Any]", y: "pa.Array[Any]", crs: tuple[str, ...]) -> Shapes:
    """Deliver points from two number columns as `normalise_shapes` would; null where a coordinate is missing (D3.3)."""
    sides = [values.cast(pa.float64()).to_numpy(zero_copy_only=False) for values in (x, y)]
    coordinates = np.column_stack(sides)
    rows = np.flatnonzero(~np.isnan(coordinates).any(axis=1))
    return _placed_points(coordinates[rows], rows, len(coordinates), crs)


def normalise_shapes(geometries: Geometries, crs: tuple[str, ...], repair: bool = True) -> Shapes:
    """Turn a batch of a source's shapes into delivered ones (D3.1 to D3.3).

    `crs` are the declared CRS names, none for an undeclared one, several for a source that mixes them. Raises
    `UndeclaredCrs` or `UnknownCrs`.
    """
    shapes = np.array(geometries, dtype=object, copy=True)
    shapes[shapely.is_empty(shapes)] = None
    if np.isin(shapely.get_type_id(shapes), (-1, _POINT)).all():
        rows = np.flatnonzero(~shapely.is_missing(shapes))
        return _placed_points(shapely.get_coordinates(shapes), rows, len(shapes), crs)
    plain = plain_polygons(shapes, crs)
    if len(plain.rows) == len(shapes):
        return _all_plain(plain)
    shapes[plain.rows] = None
    return _joined(_normalise_others(shapes, crs, repair), plain)


def normalise_text(
    texts: Array, read: Callable[[Array], Geometries], crs: tuple[str, ...], repair: bool = True
) -> tuple[Shapes, Geometries]:
    """Turn well-known text into delivered shapes as `normalise_shapes` does; raises like it.

    Gives also the shapes as the source has them, as far as they were looked at one by one. `read` reads text, null for
    what has been read already.
    """
    plain = plain_polygons_of_text(texts, crs)
    taken = np.zeros(len(texts), dtype=np.bool_)
    taken[plain.rows] = True
    shapes = read(pc.if_else(pa.array(taken), pa.scalar(None, pa.string()), texts))
    if len(plain.rows) and taken.all():
        return _all_plain(plain), shapes
    return _joined(normalise_shapes(shapes, crs, repair), plain), shapes


def _normalise_others(shapes: Geometries, crs: tuple[str, ...], repair: bool) -> Shapes:
    """Take the long way, shape by shape where a shape needs it."""
    rejects: dict[int, str] = {}
    shapes[:] = shapely.force_2d(shapes)
    _project(shapes, crs, rejects)
    _flatten_collections(shapes)
    repaired = _repair(shapes, rejects) if repair else 0
    _make_multi(shapes)
    _normal_form(shapes, all_valid=repair)
    return Shapes(_wkb(shapes), _hilbert(shapes), _kinds(shapes), repaired, tuple(sorted(rejects.items())))


def _all_plain(plain: PlainPolygons) -> Shapes:
    return Shapes(plain.wkb, pa.array(plain.hilbert), frozenset({"MultiPolygon"}), 0, ())


def _joined(others: Shapes, plain: PlainPolygons) -> Shapes:
    """Put plain polygons into the rows that the others left null."""
    if not len(plain.rows):
        return others
    source = np.arange(len(others.wkb))
    source[plain.rows] = len(others.wkb) + np.arange(len(plain.rows))
    order = pa.array(source, type=pa.int64())
    wkb = pa.concat_arrays([others.wkb, plain.wkb]).take(order)
    hilbert = pa.concat_arrays([others.hilbert, pa.array(plain.hilbert)]).take(order)
    return replace(others, wkb=wkb, hilbert=hilbert, kinds=others.kinds | {"MultiPolygon"})


def geometry_type(kinds: Iterable[str], previous: str | None) -> str | None:
    """Name a column's kind from the kinds of its whole state and the kind that it had before (D3.1, D3.2).

    Points count as MultiPoint only beside multipoints in a first state, or where the column already is MultiPoint.
    """
    found = set(kinds)
    if not found or previous == MIXED:
        return previous
    if found <= {"Point", "MultiPoint"} and "MultiPoint" in found and previous is None:
        return "MultiPoint"
    if found <= {"Point", "MultiPoint"} and previous == "MultiPoint":
        return "MultiPoint"
    return found.pop() if len(found) == 1 else MIXED


def promote(wkb: "pa.Array[Any]", kind: str | None) -> "pa.Array[Any]":
    """Fit shapes to the kind that `geometry_type` gave: points become multipoints of one in a MultiPoint column."""
    if kind != "MultiPoint":
        return wkb
    shapes = shapely.from_wkb(wkb.to_numpy(zero_copy_only=False))
    single = shapely.get_type_id(shapes) == _POINT
    shapes[single] = shapely.multipoints(shapes[single], indices=np.arange(single.sum()))
    return _wkb(shapes)


def _placed_points(
    coordinates: npt.NDArray[np.float64], rows: npt.NDArray[np.intp], length: int, crs: tuple[str, ...]
) -> Shapes:
    """Take the short way of a batch of `length` that has nothing but points, in these of its rows."""
    finite = np.isfinite(coordinates).all(axis=1)
    placed = place(coordinates[finite], np.arange(finite.sum()), crs)
    kept = placed.coordinates[placed.fits] + 0.0
    there = np.zeros(length, dtype=np.bool_)
    there[rows[finite][placed.fits]] = True
    rejects = [(int(row), NOT_FINITE) for row in rows[~finite]]
    rejects += [(int(row), placed.misfit) for row in rows[finite][~placed.fits]]
    keys = np.zeros(length, dtype=np.int64)
    keys[there] = hilbert_keys(kept[:, 0], kept[:, 1])
    kinds = frozenset({"Point"} if there.any() else ())
    return Shapes(point_array(kept, there), pa.array(keys, mask=~there), kinds, 0, tuple(sorted(rejects)))


def _project(shapes: Geometries, crs: tuple[str, ...], rejects: dict[int, str]) -> None:
    """Move shapes to lon/lat in place; those without a place in the world become None."""
    _reject(shapes, ~_finite(shapes), NOT_FINITE, rejects)
    coordinates, owners = shapely.get_coordinates(shapes, return_index=True)
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    placed = place(coordinates, starts, crs)
    if placed.coordinates is not coordinates or (np.signbit(coordinates) & (coordinates == 0)).any():
        shapely.set_coordinates(shapes, np.where(np.isfinite(placed.coordinates), placed.coordinates, 0.0) + 0.0)
    outside = np.zeros(len(shapes), dtype=np.bool_)
    outside[owners[starts[~placed.fits]]] = True
    _reject(shapes, outside, placed.misfit, rejects)


def _finite(shapes: Geometries) -> npt.NDArray[np.bool_]:
    coordinates, owners = shapely.get_coordinates(shapes, return_index=True)
    finite = np.ones(len(shapes), dtype=np.bool_)
    finite[owners[~np.isfinite(coordinates).all(axis=1)]] = False
    return finite


def _reject(shapes: Geometries, which: npt.NDArray[np.bool_], reason: str, rejects: dict[int, str]) -> None:
    for index in np.flatnonzero(which):
        rejects[int(index)] = reason
    shapes[which] = None


def _flatten_collections(shapes: Geometries) -> None:
    """Take collections apart to the last single shape; one dimension left becomes a Multi (D3.1)."""
    for index in np.flatnonzero(shapely.get_type_id(shapes) == _COLLECTION):
        parts = _singles(shapes[index])
        dimensions = {int(_dimension(part)) for part in parts}
        shapes[index] = _gather(parts, dimensions.pop() if len(dimensions) == 1 else None)


def _singles(shape: Any) -> list[Any]:
    parts = np.array([shape], dtype=object)
    while (shapely.get_type_id(parts) >= 4).any():
        parts = shapely.get_parts(parts)
    return [part for part in parts if not part.is_empty]


def _gather(parts: list[Any], dimension: int | None) -> Any:
    makers = {0: shapely.multipoints, 1: shapely.multilinestrings, 2: shapely.multipolygons}
    make = shapely.geometrycollections if dimension is None else makers[dimension]
    return make(parts) if parts else None


def _dimension(shape: Any) -> Any:
    return _DIMENSION[shapely.get_type_id(shape) + 1]


def _repair(shapes: Geometries, rejects: dict[int, str]) -> int:
    """Repair invalid shapes within their dimension, in place, and count them (D3.2)."""
    invalid = np.flatnonzero(~shapely.is_valid(shapes) & ~shapely.is_missing(shapes))
    if not len(invalid):
        return 0
    before = shapes[invalid]
    shapes[invalid] = [_repaired(shape) for shape in before]
    lost = np.zeros(len(shapes), dtype=np.bool_)
    lost[invalid] = shapely.is_missing(shapes[invalid])
    _reject(shapes, lost, NOTHING_LEFT, rejects)
    return int(len(invalid) - lost.sum())


def _repaired(shape: Any) -> Any:
    """Mend one shape; `structure` joins what overlaps, where the default would cut a hole out of it."""
    if shapely.get_type_id(shape) == _COLLECTION:
        parts = [mended for part in _singles(shape) for mended in _parts_of(_repaired(part))]
        dimensions = {int(_dimension(part)) for part in parts}
        return _gather(parts, dimensions.pop() if len(dimensions) == 1 else None)
    dimension = int(_dimension(shape))
    mended = shapely.make_valid(shape, method="structure", keep_collapsed=False)
    parts = [part for part in _parts_of(mended) if _dimension(part) == dimension]
    return _gather(parts, dimension)


def _parts_of(shape: Any) -> list[Any]:
    return [] if shape is None else _singles(shape)


def _make_multi(shapes: Geometries) -> None:
    """Give lines and polygons their Multi form; empty parts of a Multi go (D3.1)."""
    kinds = shapely.get_type_id(shapes)
    for single, make in ((_LINE, shapely.multilinestrings), (_POLYGON, shapely.multipolygons)):
        found = kinds == single if single != _LINE else np.isin(kinds, (_LINE, 2))
        if found.any():
            shapes[found] = make(shapes[found], indices=np.arange(found.sum()))
    for index in np.flatnonzero(kinds >= 4):
        if shapely.is_empty(shapely.get_parts(shapes[index])).any():
            shapes[index] = _gather(_singles(shapes[index]), int(_dimension(shapes[index])))


def _normal_form(shapes: Geometries, all_valid: bool) -> None:
    """Order points and rings so that ring start, direction and part order change no byte; lines stay as drawn."""
    kinds = shapely.get_type_id(shapes)
    areas = kinds == 6
    if areas.any():
        shapes[areas] = _areas_in_normal_form(shapes[areas], all_valid)
    points = kinds == 4
    if points.any():
        shapes[points] = shapely.normalize(shapes[points])
    for index in np.flatnonzero(kinds == _COLLECTION):
        parts = shapely.get_parts(shapes[index])
        inner = shapely.get_type_id(parts) == _POLYGON
        parts[inner] = _areas_in_normal_form(parts[inner], all_valid)
        shapes[index] = shapely.geometrycollections(parts)


def _areas_in_normal_form(areas: Geometries, all_valid: bool) -> Any:
    """Order polygons; an invalid one keeps its repeated points, as it may have too few without them."""
    bare = np.array(areas, dtype=object)
    valid = np.ones(len(areas), dtype=np.bool_) if all_valid else shapely.is_valid(areas)
    bare[valid] = shapely.remove_repeated_points(bare[valid])
    return shapely.orient_polygons(shapely.normalize(bare), exterior_cw=False)


def _wkb(shapes: Geometries) -> "pa.Array[Any]":
    encoded = shapely.to_wkb(shapes, byte_order=1, output_dimension=2)
    there = ~shapely.is_missing(shapes)
    return binary_array(b"".join(encoded[there]), np.fromiter(map(len, encoded[there]), np.int64, there.sum()), there)


def _hilbert(shapes: Geometries) -> "pa.Array[Any]":
    """Place each shape by the centre of its box (D5.4)."""
    west, south, east, north = shapely.bounds(shapes).T
    missing = np.isnan(west)
    lon, lat = (np.where(missing, 0.0, centre) for centre in ((west + east) / 2, (south + north) / 2))
    return pa.array(hilbert_keys(lon, lat), mask=missing)


def _kinds(shapes: Geometries) -> frozenset[str]:
    return frozenset(_KINDS[int(kind)] for kind in np.unique(shapely.get_type_id(shapes)) if kind >= 0)
