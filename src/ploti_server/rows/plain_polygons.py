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
from ploti_server.rows.wkb_bytes import ring_array

_Vertices = npt.NDArray[np.float64]
_Rows = npt.NDArray[np.intp]

_CLEAR: Final = 1e-10
"""Share of its terms that a ring's area must have for its direction to be beyond doubt."""


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


def plain_polygons(shapes: npt.NDArray[np.object_], crs: tuple[str, ...]) -> PlainPolygons:
    """Deliver the polygons of a batch that have one ring and are valid, finite and in the world.

    Raises `UndeclaredCrs` or `UnknownCrs` like `place`.
    """
    rows = _placed_rows(shapes)
    drawn = shapes[rows]
    coordinates = shapely.get_coordinates(drawn)
    sizes = np.asarray(shapely.get_num_coordinates(drawn), dtype=np.intp)
    if len(rows):
        placed = place(coordinates, _begins(sizes), crs)
        if placed.coordinates is not coordinates:
            drawn = _redrawn(placed.coordinates, sizes, placed.fits)
        good = placed.fits & shapely.is_valid(drawn)
        rows, coordinates, sizes = rows[good], placed.coordinates[np.repeat(good, sizes)], sizes[good]
    rings = _open_rings(coordinates + 0.0, sizes)
    clear, drawn_rings = _in_normal_form(rings)
    wkb, hilbert = ring_array(drawn_rings.vertices, drawn_rings.sizes), _keys(drawn_rings)
    if not clear.all():
        rows, wkb, hilbert = rows[clear], wkb.filter(pa.array(clear)), hilbert[clear]
    return PlainPolygons(rows, wkb, hilbert)


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


def _redrawn(coordinates: _Vertices, sizes: _Rows, fits: npt.NDArray[np.bool_]) -> npt.NDArray[np.object_]:
    drawn = np.full(len(sizes), None, dtype=object)
    inside = np.repeat(fits, sizes)
    owners = np.repeat(np.arange(fits.sum()), sizes[fits])
    drawn[fits] = shapely.polygons(shapely.linearrings(coordinates[inside], indices=owners))
    return drawn


def _begins(sizes: _Rows) -> _Rows:
    return np.asarray(np.cumsum(sizes) - sizes, dtype=np.intp)


def _open_rings(closed: _Vertices, sizes: _Rows) -> _Rings:
    """Leave out each vertex that the next one repeats, and the last of each ring."""
    keep = np.ones(len(closed), dtype=np.bool_)
    keep[:-1] = (closed[:-1] != closed[1:]).any(axis=1)
    keep[_begins(sizes) + sizes - 1] = False
    kept = np.add.reduceat(keep, _begins(sizes), dtype=np.intp) if len(sizes) else sizes
    return _Rings(closed[keep], _begins(kept), kept)


def _in_normal_form(rings: _Rings) -> tuple[npt.NDArray[np.bool_], _Rings]:
    """Close rings again, from their lowest vertex and counter-clockwise; tell whose direction is beyond doubt."""
    if not len(rings.sizes):
        return np.empty(0, dtype=np.bool_), rings
    first = _lowest(rings)
    turned, clear = _turns(rings, first)
    sizes = rings.sizes + 1
    begins = _begins(sizes)
    step = np.arange(int(sizes.sum())) - np.repeat(begins, sizes)
    offset = np.repeat(first - rings.begins, sizes) + step * np.repeat(turned, sizes)
    source = np.repeat(rings.begins, sizes) + offset % np.repeat(rings.sizes, sizes)
    return clear, _Rings(rings.vertices[source], begins, sizes)


def _lowest(rings: _Rings) -> _Rows:
    """Find each ring's vertex with the smallest x, and of these the smallest y."""
    x, y = rings.vertices.T
    left = x == np.repeat(np.minimum.reduceat(x, rings.begins), rings.sizes)
    low = np.where(left, y, np.inf)
    lowest = np.flatnonzero(low == np.repeat(np.minimum.reduceat(low, rings.begins), rings.sizes))
    return lowest[np.searchsorted(lowest, rings.begins)]


def _turns(rings: _Rings, first: _Rows) -> tuple[_Rows, npt.NDArray[np.bool_]]:
    """Tell rings that run counter-clockwise (1) from the others (-1), by their area around the lowest vertex."""
    x, y = (rings.vertices - np.repeat(rings.vertices[first], rings.sizes, axis=0)).T
    following = np.arange(1, len(x) + 1)
    following[rings.begins + rings.sizes - 1] = rings.begins
    plus, minus = x * y[following], x[following] * y
    area = np.add.reduceat(plus - minus, rings.begins)
    terms = np.add.reduceat(np.abs(plus) + np.abs(minus), rings.begins)
    return np.where(area > 0, 1, -1), np.abs(area) > _CLEAR * terms


def _keys(rings: _Rings) -> npt.NDArray[np.int64]:
    if not len(rings.sizes):
        return np.empty(0, dtype=np.int64)
    x, y = rings.vertices.T
    centres = [
        (np.minimum.reduceat(side, rings.begins) + np.maximum.reduceat(side, rings.begins)) / 2 for side in (x, y)
    ]
    return hilbert_keys(*centres)
