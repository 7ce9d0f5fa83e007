"""How far two shapes are apart on the ground (D4.6)."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyproj
import shapely

_GEOD: Final = pyproj.Geod(ellps="WGS84")


def within_metres(old: npt.NDArray[np.object_], new: npt.NDArray[np.object_], metres: float) -> npt.NDArray[np.bool_]:
    """Tell for each pair of lon/lat shapes whether their nearest points are at most so many metres apart.

    The distance is geodesic; a pair with a missing shape is not near (D4.6).
    """
    near = np.zeros(len(old), dtype=np.bool_)
    both = np.flatnonzero(~(shapely.is_missing(old) | shapely.is_missing(new)))
    if not len(both):
        return near
    near[both] = metres_between(old[both], new[both]) <= metres
    return near


def metres_between(old: npt.NDArray[np.object_], new: npt.NDArray[np.object_]) -> npt.NDArray[np.float64]:
    """Measure the geodesic distance between the nearest points of pairs of lon/lat shapes, none missing.

    A degree of longitude shrinks towards the poles, so nearest points are looked for on a plane scaled by the cosine
    of the pair's latitude, the second shape being moved around the world to the first one's side of the date line.
    """
    old_box, new_box = shapely.bounds(old), shapely.bounds(new)
    latitude = (old_box[:, 1] + old_box[:, 3] + new_box[:, 1] + new_box[:, 3]) / 4
    stretch = np.maximum(np.cos(np.radians(latitude)), 1e-6)
    apart = (old_box[:, 0] + old_box[:, 2] - new_box[:, 0] - new_box[:, 2]) / 2
    turns = np.round(apart / 360.0) * 360.0
    lines = shapely.shortest_line(_on_plane(old, 0.0 * turns, stretch), _on_plane(new, turns, stretch))
    ends = shapely.get_coordinates(lines).reshape(-1, 2, 2)
    lon = ends[:, :, 0] / stretch[:, None]
    lat = ends[:, :, 1]
    return np.asarray(_GEOD.inv(lon[:, 0], lat[:, 0], lon[:, 1], lat[:, 1])[2], dtype=np.float64)


def _on_plane(shapes: npt.NDArray[np.object_], shift: Any, stretch: Any) -> npt.NDArray[np.object_]:
    coordinates, owners = shapely.get_coordinates(shapes, return_index=True)
    coordinates[:, 0] = (coordinates[:, 0] + shift[owners]) * stretch[owners]
    return np.asarray(shapely.set_coordinates(np.array(shapes, dtype=object, copy=True), coordinates))
