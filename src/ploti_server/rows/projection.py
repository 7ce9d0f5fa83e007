"""From a source's declared CRS to lon/lat degrees, shape by shape; nothing is ever guessed (D3.1 to D3.3)."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyproj
from pyproj.exceptions import CRSError, ProjError
from pyproj.network import set_network_enabled  # type: ignore[attr-defined]

from ploti_server.domain.states import StateUnreadable

Coordinates = npt.NDArray[np.float64]
"""Rows of x and y."""
Mask = npt.NDArray[np.bool_]

DECIMALS: Final = 9
"""Reprojected coordinates are rounded to so many decimals of a degree (D3.4)."""

WAY_BACK: Final = 1e-3
"""Share of its coordinates by which a place may differ after the way to lon/lat and back."""

_WGS84: Final = pyproj.CRS.from_epsg(4326)


class UndeclaredCrs(StateUnreadable):
    """The source names no CRS and its coordinates cannot be degrees (D3.3)."""


class UnknownCrs(StateUnreadable):
    """The declared CRS is not one that PROJ knows or can turn into lon/lat."""


@dataclass(frozen=True)
class Placed:
    """Coordinates in lon/lat degrees, and for each shape whether it lies in the world and why not."""

    coordinates: Coordinates
    fits: Mask
    misfit: str


@dataclass(frozen=True)
class _Reference:
    """A CRS that can be turned into lon/lat. `transformer` is None where it is lon/lat already."""

    transformer: Any
    area: tuple[float, float, float, float] | None


def place(coordinates: Coordinates, starts: npt.NDArray[np.intp], crs: tuple[str, ...]) -> Placed:
    """Turn finite coordinates into lon/lat; `starts` tells where each shape's coordinates begin (D3.3).

    With one CRS a shape only has to lie in the world; of several it takes the first in whose area of use its centre
    lies. Raises `UndeclaredCrs` where no CRS is named and a coordinate is beyond 180 or 90, `UnknownCrs` for a name
    that PROJ does not know.
    """
    if not crs:
        if len(starts) and not in_world(coordinates, starts).all():
            raise UndeclaredCrs(
                "the source names no CRS and its coordinates cannot be degrees; declare `crs` for it in the catalog"
            )
        return Placed(coordinates, np.ones(len(starts), dtype=np.bool_), "")
    if len(crs) == 1:
        return _place_all(coordinates, starts, crs[0])
    return _place_first(coordinates, starts, crs)


def in_world(coordinates: Coordinates, starts: npt.NDArray[np.intp]) -> Mask:
    """Tell for each shape whether all its coordinates are degrees within 180 and 90; not finite ones are not."""
    inside = (np.abs(coordinates[:, 0]) <= 180.0) & (np.abs(coordinates[:, 1]) <= 90.0)
    return np.logical_and.reduceat(inside, starts) if len(starts) else np.empty(0, dtype=np.bool_)


def _place_all(coordinates: Coordinates, starts: npt.NDArray[np.intp], name: str) -> Placed:
    reference = _reference(name)
    placed = _unproject(coordinates, reference)
    how = "outside the world" if reference.transformer is None else f"outside the world when read as {name}"
    return Placed(placed, in_world(placed, starts), f"coordinates lie {how}")


def _place_first(coordinates: Coordinates, starts: npt.NDArray[np.intp], crs: tuple[str, ...]) -> Placed:
    placed = coordinates.copy()
    fits = np.zeros(len(starts), dtype=np.bool_)
    sizes = np.diff(np.append(starts, len(coordinates)))
    for reference in [_reference(name) for name in crs]:
        pending = np.repeat(~fits, sizes)
        if not pending.any():
            break
        tried = _unproject(coordinates[pending], reference)
        begins = np.concatenate(([0], np.cumsum(sizes[~fits])[:-1])).astype(np.intp)
        taken = in_world(tried, begins) & _in_area(tried, begins, reference.area)
        newly = np.zeros(len(starts), dtype=np.bool_)
        newly[np.flatnonzero(~fits)[taken]] = True
        placed[np.repeat(newly, sizes)] = tried[np.repeat(taken, sizes[~fits])]
        fits |= newly
    return Placed(placed, fits, f"coordinates lie in the area of use of none of {', '.join(crs)}")


def _in_area(
    coordinates: Coordinates, starts: npt.NDArray[np.intp], area: tuple[float, float, float, float] | None
) -> Mask:
    if area is None:
        return np.ones(len(starts), dtype=np.bool_)
    low = np.minimum.reduceat(coordinates, starts, axis=0)
    high = np.maximum.reduceat(coordinates, starts, axis=0)
    lon, lat = ((low + high) / 2).T
    west, south, east, north = area
    across = (lon >= west) & (lon <= east) if west <= east else (lon >= west) | (lon <= east)
    return np.asarray(across & (lat >= south) & (lat <= north), dtype=np.bool_)


def _unproject(coordinates: Coordinates, reference: _Reference) -> Coordinates:
    """Give lon/lat, rounded where something was computed; infinite where the projection has no such place.

    PROJ wraps what lies beyond the edge of a projection around the world, or puts it on a pole; the way back shows it.
    """
    if reference.transformer is None:
        return coordinates
    lon, lat = reference.transformer.transform(*coordinates.T)
    back = np.column_stack(reference.transformer.transform(lon, lat, direction="INVERSE"))
    room = WAY_BACK * np.maximum(np.abs(coordinates).max(axis=1, initial=1.0), 1.0)
    away = ~(np.abs(back - coordinates).max(axis=1, initial=0.0) <= room)
    placed = np.round(np.column_stack((lon, lat)), DECIMALS)
    placed[away] = np.inf
    return placed


def knows_crs(name: str) -> bool:
    """Tell whether PROJ knows a CRS and can turn it into lon/lat."""
    try:
        _reference(name)
    except UnknownCrs:
        return False
    return True


@lru_cache(maxsize=64)
def _reference(name: str) -> _Reference:
    set_network_enabled(active=False)
    try:
        crs = pyproj.CRS.from_user_input(name).to_2d()
        same = crs.equals(_WGS84, ignore_axis_order=True)
        transformer = None if same else pyproj.Transformer.from_crs(crs, _WGS84, always_xy=True)
    except (CRSError, ProjError) as error:
        known = f"the CRS `{name[:80]}` is not known or has no way to lon/lat"
        raise UnknownCrs(f"{known}; name it in the catalog like `EPSG:2278`") from error
    area = crs.area_of_use
    return _Reference(transformer, None if area is None else area.bounds)
