"""Whether two delivered shapes are one shape drawn differently: vertex by vertex, within a tolerance (D3.4)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

TOLERANCE: Final = 1e-8
"""Degrees by which vertices of equal shapes may differ."""

_Vertices = npt.NDArray[np.float64]
_Part = TypeVar("_Part")


def same_shapes(old: "pa.Array[Any]", new: "pa.Array[Any]", tolerance: float = TOLERANCE) -> pa.BooleanArray:
    """Compare two columns of WKB pair by pair, never giving null; two missing shapes are the same (D3.4).

    Ring start, direction, the order of parts and repeated points make no difference.
    """
    equal: Any = pc.equal(old, new)
    same = np.array(equal.fill_null(False))
    old_there, new_there = (np.asarray(side.is_valid()) for side in (old, new))
    same |= ~old_there & ~new_there
    open_ = np.flatnonzero(~same & old_there & new_there)
    if len(open_):
        same[open_] = _compare(_shapes(old, open_), _shapes(new, open_), tolerance)
    return pa.array(same, type=pa.bool_())


def _shapes(column: "pa.Array[Any]", rows: npt.NDArray[np.intp]) -> npt.NDArray[np.object_]:
    return np.asarray(shapely.from_wkb(column.take(pa.array(rows, type=pa.int64())).to_numpy(zero_copy_only=False)))


def _compare(old: npt.NDArray[np.object_], new: npt.NDArray[np.object_], tolerance: float) -> npt.NDArray[np.bool_]:
    """Settle most pairs at once: by normal form, or by kind and box; walk the vertices of the rest."""
    same = np.asarray(shapely.equals_exact(_plain(old), _plain(new), tolerance))
    alike = shapely.get_type_id(old) == shapely.get_type_id(new)
    boxes = (np.abs(shapely.bounds(old) - shapely.bounds(new)) <= tolerance).all(axis=1)
    for row in np.flatnonzero(~same & alike & boxes):
        same[row] = _equal(old[row], new[row], tolerance)
    return same


def _plain(shapes: npt.NDArray[np.object_]) -> Any:
    return shapely.normalize(shapely.remove_repeated_points(shapes))


def _equal(old: Any, new: Any, tolerance: float) -> bool:
    """Compare two single shapes, or the parts of two shapes in any order."""
    if shapely.get_type_id(old) != shapely.get_type_id(new):
        return False
    match int(shapely.get_type_id(old)):
        case 0:
            return _close(shapely.get_coordinates(old), shapely.get_coordinates(new), tolerance)
        case 1 | 2:
            return _lines_equal(shapely.get_coordinates(old), shapely.get_coordinates(new), tolerance)
        case 3:
            return _polygons_equal(old, new, tolerance)
        case 4:
            return _points_equal(shapely.get_coordinates(old), shapely.get_coordinates(new), tolerance)
        case _:
            equal = partial(_equal, tolerance=tolerance)
            return _matched(shapely.get_parts(old), shapely.get_parts(new), equal, tolerance)


def _polygons_equal(old: Any, new: Any, tolerance: float) -> bool:
    equal = partial(_drawn_rings_equal, tolerance=tolerance)
    old_rings, new_rings = shapely.get_rings(old), shapely.get_rings(new)
    return equal(old_rings[0], new_rings[0]) and _matched(old_rings[1:], new_rings[1:], equal, tolerance)


def _drawn_rings_equal(old: Any, new: Any, tolerance: float) -> bool:
    return _rings_equal(shapely.get_coordinates(old), shapely.get_coordinates(new), tolerance)


def _points_equal(old: _Vertices, new: _Vertices, tolerance: float) -> bool:
    """Compare two sets of points: each has a counterpart on the other side, however often it is repeated."""
    trees = shapely.STRtree(shapely.points(old)), shapely.STRtree(shapely.points(new))
    for tree, others in ((trees[0], new), (trees[1], old)):
        found, _ = tree.query(shapely.points(others), predicate="dwithin", distance=tolerance)
        if len(np.unique(found)) != len(others):
            return False
    return True


def _matched(
    old: Sequence[_Part], new: Sequence[_Part], equal: Callable[[_Part, _Part], bool], tolerance: float
) -> bool:
    """Pair parts one to one, whatever their order; only parts whose boxes agree are compared."""
    if len(old) != len(new):
        return False
    old_boxes, new_boxes = shapely.bounds(old), shapely.bounds(new)
    order = np.argsort(new_boxes[:, 0], kind="stable") if len(new) else np.empty(0, dtype=np.intp)
    lefts = new_boxes[order, 0] if len(new) else np.empty(0)
    free = np.ones(len(new), dtype=np.bool_)
    for part, box in zip(old, old_boxes, strict=True):
        low, high = np.searchsorted(lefts, (box[0] - tolerance, box[0] + tolerance), side="left")
        near = order[low : high + 1]
        fits = free[near] & (np.abs(new_boxes[near] - box) <= tolerance).all(axis=1)
        partner = next((index for index in near[fits] if equal(part, new[index])), None)
        if partner is None:
            return False
        free[partner] = False
    return True


def _lines_equal(old: _Vertices, new: _Vertices, tolerance: float) -> bool:
    """Compare two lines drawn either way; closed ones may also start elsewhere."""
    if all(_close(line[:1], line[-1:], tolerance) for line in (old, new)):
        return _rings_equal(old, new, tolerance)
    old, new = _without_repeats(old, tolerance), _without_repeats(new, tolerance)
    return _close(old, new, tolerance) or _close(old, new[::-1], tolerance)


def _rings_equal(old: _Vertices, new: _Vertices, tolerance: float) -> bool:
    """Compare two closed rings from every start and in both directions."""
    old, new = _open_ring(old, tolerance), _open_ring(new, tolerance)
    if len(old) != len(new):
        return False
    starts = np.flatnonzero(np.hypot(*(new - old[0]).T) <= tolerance)
    ways = (turned for start in starts for turned in _both_ways(new, int(start)))
    return any(_close(old, turned, tolerance) for turned in ways)


def _both_ways(ring: _Vertices, start: int) -> tuple[_Vertices, _Vertices]:
    forward = np.roll(ring, -start, axis=0)
    return forward, np.roll(forward[::-1], 1, axis=0)


def _open_ring(ring: _Vertices, tolerance: float) -> _Vertices:
    """Drop the closing vertex and repeated ones, the seam between end and start included."""
    kept = _without_repeats(ring, tolerance)
    while len(kept) > 1 and _close(kept[:1], kept[-1:], tolerance):
        kept = kept[:-1]
    return kept


def _without_repeats(line: _Vertices, tolerance: float) -> _Vertices:
    steps = np.hypot(*np.diff(line, axis=0).T)
    return np.asarray(line[np.concatenate(([True], steps > tolerance))])


def _close(old: _Vertices, new: _Vertices, tolerance: float) -> bool:
    return len(old) == len(new) and bool((np.hypot(*(old - new).T) <= tolerance).all())
