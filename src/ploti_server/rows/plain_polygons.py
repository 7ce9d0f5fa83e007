"""The short way of polygons with one healthy ring, the many: whole batches of vertices instead of single shapes (D3).

It gives the same bytes as the long way in `geometry`, which takes all that is not plain.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from ploti_server.rows.hilbert import hilbert_keys
from ploti_server.rows.projection import place
from ploti_server.rows.raw import Array
from ploti_server.rows.wkb_bytes import ring_array
from ploti_server.rows.wkt_rings import rings_of_text

_Vertices = npt.NDArray[np.float64]
_Rows = npt.NDArray[np.intp]

_CLEAR: Final = 1e-10
"""Share of its terms that a ring's area must have for its direction to be beyond doubt."""

_SURE: Final = 1e-12
"""The same for the area between one side of a ring and its middle: far above what rounding changes."""


@dataclass(frozen=True)
class PlainPolygons:
    """Shapes that went the short way: their rows in the batch, WKB and Hilbert keys."""

    rows: _Rows
    wkb: "pa.Array[Any]"
    hilbert: npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Rings:
    """Vertices of open rings in a row, without repeats, and where each ring begins."""

    vertices: _Vertices
    begins: _Rows
    sizes: _Rows


_NONE: Final = PlainPolygons(np.empty(0, dtype=np.intp), pa.array([], pa.binary()), np.empty(0, dtype=np.int64))


def plain_polygons(shapes: npt.NDArray[np.object_], crs: tuple[str, ...]) -> PlainPolygons:
    """Deliver the polygons of a batch that have one ring and are valid, finite and in the world.

    Raises `UndeclaredCrs` or `UnknownCrs` like `place`.
    """
    rows = _placed_rows(shapes)
    drawn = shapes[rows]
    sizes = np.asarray(shapely.get_num_coordinates(drawn), dtype=np.intp)
    return _delivered(rows, shapely.get_coordinates(drawn), sizes, crs, drawn)


def plain_polygons_of_text(texts: Array, crs: tuple[str, ...]) -> PlainPolygons:
    """Deliver such polygons out of well-known text; raises like `plain_polygons`."""
    rings = rings_of_text(texts)
    return _delivered(rings.rows, rings.vertices, rings.sizes, crs, None)


def _delivered(
    rows: _Rows, coordinates: _Vertices, sizes: _Rows, crs: tuple[str, ...], drawn: npt.NDArray[np.object_] | None
) -> PlainPolygons:
    """Deliver closed rings; `drawn` are the shapes that they were taken from, if any."""
    if not len(rows):
        return _NONE
    placed = place(coordinates, _begins(sizes), crs)
    if placed.coordinates is not coordinates:
        drawn = None
    if not placed.fits.any():
        return _NONE
    if not placed.fits.all():
        return _formed(*_only(placed.fits, rows, placed.coordinates, sizes, drawn))
    return _formed(rows, placed.coordinates, sizes, drawn)


def _formed(rows: _Rows, coordinates: _Vertices, sizes: _Rows, drawn: npt.NDArray[np.object_] | None) -> PlainPolygons:
    """Bring placed rings into normal form; those that are not valid are left out."""
    rings = _open_rings(coordinates + 0.0, sizes)
    areas = rings.sizes >= 3
    if not areas.all():
        return _formed(*_only(areas, rows, coordinates, sizes, drawn)) if areas.any() else _NONE
    turns = _turns(rings)
    good, doubtful = turns.clear, np.flatnonzero(~turns.once_round)
    good[doubtful] &= shapely.is_valid(_drawn(coordinates, sizes, doubtful) if drawn is None else drawn[doubtful])
    normal = _in_normal_form(rings, turns.direction)
    wkb, hilbert = ring_array(normal.vertices, normal.sizes), _keys(normal)
    if not good.all():
        rows, wkb, hilbert = rows[good], wkb.filter(pa.array(good)), hilbert[good]
    return PlainPolygons(rows, wkb, hilbert)


def _only(
    chosen: npt.NDArray[np.bool_],
    rows: _Rows,
    coordinates: _Vertices,
    sizes: _Rows,
    drawn: npt.NDArray[np.object_] | None,
) -> tuple[_Rows, _Vertices, _Rows, npt.NDArray[np.object_] | None]:
    kept = None if drawn is None else drawn[chosen]
    return rows[chosen], coordinates[np.repeat(chosen, sizes)], sizes[chosen], kept


def _placed_rows(shapes: npt.NDArray[np.object_]) -> _Rows:
    """Find polygons of one part and one ring whose coordinates are finite."""
    kinds = shapely.get_type_id(shapes)
    plain = (kinds == 3) & (shapely.get_num_interior_rings(shapes) == 0)
    single = np.flatnonzero((kinds == 6) & (shapely.get_num_geometries(shapes) == 1))
    plain[single] = shapely.get_num_interior_rings(shapely.get_geometry(shapes[single], 0)) == 0
    rows = np.flatnonzero(plain)
    finite: _Rows = rows[_all_finite(shapes[rows])]
    return finite


def _all_finite(shapes: npt.NDArray[np.object_]) -> npt.NDArray[np.bool_]:
    coordinates, owners = shapely.get_coordinates(shapes, return_index=True)
    finite = np.ones(len(shapes), dtype=np.bool_)
    finite[owners[~np.isfinite(coordinates).all(axis=1)]] = False
    return finite


def _drawn(coordinates: _Vertices, sizes: _Rows, chosen: _Rows) -> npt.NDArray[np.object_]:
    """Draw some of the rings."""
    inside = np.zeros(len(sizes), dtype=np.bool_)
    inside[chosen] = True
    owners = np.repeat(np.arange(len(chosen)), sizes[chosen])
    rings = shapely.linearrings(coordinates[np.repeat(inside, sizes)], indices=owners)
    return np.asarray(shapely.polygons(rings), dtype=object)


def _begins(sizes: _Rows) -> _Rows:
    return np.asarray(np.cumsum(sizes) - sizes, dtype=np.intp)


def _open_rings(closed: _Vertices, sizes: _Rows) -> _Rings:
    """Leave out each vertex that the next one repeats, and the last of each ring."""
    x, y = closed.T
    keep = np.ones(len(closed), dtype=np.bool_)
    keep[:-1] = (x[:-1] != x[1:]) | (y[:-1] != y[1:])
    keep[_begins(sizes) + sizes - 1] = False
    kept = np.add.reduceat(keep, _begins(sizes), dtype=np.intp) if len(sizes) else sizes
    return _Rings(closed[keep], _begins(kept), kept)


def _in_normal_form(rings: _Rings, direction: _Rows) -> _Rings:
    """Close rings again, from their lowest vertex and counter-clockwise."""
    first = _lowest(rings)
    sizes = rings.sizes + 1
    begins = _begins(sizes)
    step = np.arange(int(sizes.sum())) - np.repeat(begins, sizes)
    offset = np.repeat(first - rings.begins, sizes) + step * np.repeat(direction, sizes)
    source = np.repeat(rings.begins, sizes) + offset % np.repeat(rings.sizes, sizes)
    return _Rings(rings.vertices[source], begins, sizes)


def _lowest(rings: _Rings) -> _Rows:
    """Find each ring's vertex with the smallest x, and of these the smallest y."""
    x, y = rings.vertices.T
    left = x == np.repeat(np.minimum.reduceat(x, rings.begins), rings.sizes)
    low = np.where(left, y, np.inf)
    lowest = np.flatnonzero(low == np.repeat(np.minimum.reduceat(low, rings.begins), rings.sizes))
    return lowest[np.searchsorted(lowest, rings.begins)]


@dataclass(frozen=True)
class _Turns:
    """How each ring turns: 1 counter-clockwise or -1, whether that is beyond doubt, and whether it is surely simple.

    A ring that goes once round a point, always the same way, meets itself nowhere.
    """

    direction: _Rows
    clear: npt.NDArray[np.bool_]
    once_round: npt.NDArray[np.bool_]


def _turns(rings: _Rings) -> _Turns:
    """Look at each ring from the middle of its vertices."""
    begins, sizes = rings.begins, rings.sizes
    middles = np.add.reduceat(rings.vertices, begins) / sizes[:, None]
    x, y = (rings.vertices - np.repeat(middles, sizes, axis=0)).T
    following = np.arange(1, len(x) + 1)
    following[begins + sizes - 1] = begins
    next_y = y[following]
    plus, minus = x * next_y, x[following] * y
    swept, terms = plus - minus, np.abs(plus) + np.abs(minus)
    area = np.add.reduceat(swept, begins)
    direction = np.where(area > 0, 1, -1)
    sure = swept * np.repeat(direction, sizes) > _SURE * terms
    rounds = np.add.reduceat((y < 0) & (next_y >= 0), begins, dtype=np.intp)
    clear = np.abs(area) > _CLEAR * np.add.reduceat(terms, begins)
    return _Turns(direction, clear, np.logical_and.reduceat(sure, begins) & (rounds == 1))


def _keys(rings: _Rings) -> npt.NDArray[np.int64]:
    x, y = rings.vertices.T
    centres = [
        (np.minimum.reduceat(side, rings.begins) + np.maximum.reduceat(side, rings.begins)) / 2 for side in (x, y)
    ]
    return hilbert_keys(*centres)
