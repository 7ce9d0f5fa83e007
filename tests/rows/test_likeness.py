"""Levels of agreement of whole columns (D4.8)."""

from datetime import UTC, date, datetime

import pytest
import shapely

from ploti_server.domain.similarity import Level
from ploti_server.rows.likeness import Column, column_levels


def point(x, y):
    return shapely.to_wkb(shapely.Point(x, y))


def box(west, east):
    return shapely.to_wkb(shapely.MultiPolygon([shapely.box(west, 0, east, 1)]))


def line(y):
    return shapely.to_wkb(shapely.MultiLineString([[(0, y), (1, y)]]))


@pytest.mark.parametrize(
    ("type_", "old", "new", "expected"),
    [
        ("integer", 100, 101, Level.CLOSE),
        ("integer", 0, 0, Level.SAME),
        ("number", -5.0, 5.0, Level.DIFFERENT),
        ("date", date(2026, 1, 1), date(2026, 1, 5), Level.CLOSE),
        ("timestamp", datetime(2026, 1, 1, tzinfo=UTC), datetime(2025, 12, 1, tzinfo=UTC), Level.NEAR),
        ("boolean", True, False, Level.DIFFERENT),
        ("json", '{"a":1}', '{"a":2}', Level.NUMBER),
        ("geometry", point(-81, 28), point(-81.0001, 28), Level.CLOSE),
        ("geometry", point(-179.99999, 0), point(179.99999, 0), Level.ALIKE),
        ("geometry", box(0, 1), box(0, 1.1), Level.CLOSE),
        ("geometry", box(0, 1), box(1, 2), Level.DIFFERENT),
        ("geometry", box(0, 1), box(0.5, 1.5), Level.SOME),
        ("geometry", line(0), line(0.01), Level.ALIKE),
        ("geometry", line(0), line(5), Level.DIFFERENT),
        ("geometry", point(0.5, 0.5), box(0, 1), Level.DIFFERENT),
        ("string", None, "x", Level.ONE_MISSING),
        ("string", None, None, Level.BOTH_MISSING),
    ],
)
def test_values_of_each_type(type_, old, new, expected):
    column = Column(type_, {0: 5}, 1000)
    assert Level(column_levels(column, [(old, new)])[0]) is expected


def test_likeness_to_a_common_value_is_a_level_of_its_own():
    column = Column("string", {"Basement": 60, "Suite 100": 1}, 1000)
    pairs = [("Basement", "BASEMENT"), ("Basement", "Basment"), ("Suite 100", "suite 100"), ("Basement", "PH 7")]
    found = [Level(one) for one in column_levels(column, pairs)]
    assert found == [Level.ALIKE_COMMON, Level.NEAR_COMMON, Level.ALIKE, Level.DIFFERENT]


def test_a_broken_area_counts_by_its_box():
    bow_tie = shapely.to_wkb(shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]))
    column = Column("geometry", {}, 1000)
    assert Level(column_levels(column, [(bow_tie, box(0, 1))])[0]) is Level.ALIKE
