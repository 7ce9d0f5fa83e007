"""Writes a record's values for a person who judges it: short, in JSON's types, a shape by its kind, size and place."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final

import shapely

LONGEST: Final = 500
"""Characters of a text that are shown."""


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give a record's values as they are shown."""
    return {name: _shown(value) for name, value in values.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return _shape(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and len(value) > LONGEST:
        return value[:LONGEST] + "…"
    return value


def _shape(wkb: bytes) -> str:
    shape = shapely.from_wkb(wkb)
    if shape.geom_type == "Point":
        return f"Point {shape.x:.6f} {shape.y:.6f}"
    place = shapely.centroid(shape)
    parts, points = shapely.get_num_geometries(shape), shapely.get_num_coordinates(shape)
    return f"{shape.geom_type} of {parts} part(s), {points} points, about {place.x:.6f} {place.y:.6f}"
