"""Levels of agreement of whole columns (D4.8)."""

from datetime import UTC, date, datetime

import numpy as np
import pytest
import shapely

from ploti_server.domain.similarity import Level
from ploti_server.rows.likeness import Column, column_levels


def levels(column, pairs):
    """Give the level of each pair of values."""
    old = np.arange(len(pairs))
    found = column_levels(column, [pair[side] for side in (0, 1) for pair in pairs], old, old + len(pairs))
    return [Level(one) for one in found]


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
    assert levels(column, [(old, new)]) == [expected]


def test_likeness_to_a_common_value_is_a_level_of_its_own():
    column = Column("string", {"Basement": 60, "Suite 100": 1}, 1000)
    pairs = [("Basement", "BASEMENT"), ("Basement", "Basment"), ("Suite 100", "suite 100"), ("Basement", "PH 7")]
    assert levels(column, pairs) == [Level.ALIKE_COMMON, Level.NEAR_COMMON, Level.ALIKE, Level.DIFFERENT]


def test_a_broken_area_counts_by_its_box():
    bow_tie = shapely.to_wkb(shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]))
    column = Column("geometry", {}, 1000)
    assert levels(column, [(bow_tie, box(0, 1))]) == [Level.ALIKE]


def test_values_that_several_pairs_share_are_compared_once_and_each_pair_gets_its_level():
    values = ["Oak Grill", "OAK GRILL", None, "Oak Grill", "Pelican Tire"]
    old, new = np.array([0, 3, 0, 2, 4, 4]), np.array([1, 1, 3, 2, 2, 0])
    found = column_levels(Column("string", {"Oak Grill": 2}, 1000), values, old, new)
    assert [Level(one).name for one in found] == [
        "ALIKE", "ALIKE", "SAME_RARE", "BOTH_MISSING", "ONE_MISSING", "DIFFERENT",
    ]  # fmt: skip
    assert column_levels(Column("string", {}, 0), [], old[:0], new[:0]).tolist() == []
