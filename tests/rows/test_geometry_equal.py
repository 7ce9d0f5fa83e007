"""When two shapes are one shape drawn differently, and how far shapes are apart (D3.4, D4.6, F035)."""

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import assume, given
from hypothesis import strategies as st
from shapely import wkt

from ploti_server.rows.geometry import same_shapes, within_metres


def column(*texts):
    return pa.array([None if text is None else wkt.loads(text).wkb for text in texts], pa.binary())


def same(old, new, tolerance=1e-8):
    return same_shapes(column(old), column(new), tolerance).to_pylist()


SQUARE = "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1, 0 0)))"
TWO = "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))"
HOLES = "MULTIPOLYGON (((0 0, 9 0, 9 9, 0 9, 0 0), (1 1, 1 2, 2 2, 1 1), (5 5, 5 6, 6 6, 5 5)))"


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("ring started elsewhere", SQUARE, "MULTIPOLYGON (((1 1, 0 1, 0 0, 1 0, 1 1)))"),
        ("ring reversed", SQUARE, "MULTIPOLYGON (((0 0, 0 1, 1 1, 1 0, 0 0)))"),
        ("closing point repeated", SQUARE, "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1, 0 0, 0 0)))"),
        ("inner points repeated", SQUARE, "MULTIPOLYGON (((0 0, 1 0, 1 0, 1 0, 1 1, 0 1, 0 0)))"),
        ("parts in another order", TWO, "MULTIPOLYGON (((6 6, 5 5, 6 5, 6 6)), ((0 0, 1 0, 1 1, 0 0)))"),
        (
            "holes in another order",
            HOLES,
            "MULTIPOLYGON (((0 0, 9 0, 9 9, 0 9, 0 0), (6 6, 5 5, 5 6, 6 6), (2 2, 1 1, 1 2, 2 2)))",
        ),
        ("noise", SQUARE, "MULTIPOLYGON (((0 0, 1 1e-12, 1 1, 0 1.000000009, 0 0)))"),
        ("noise that moves the first vertex", SQUARE, "MULTIPOLYGON (((1e-12 0, 1 0, 1 1, 0 1, 1e-12 0)))"),
        (
            "noise that moves the first part",
            "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((0 5, 1 5, 1 6, 0 5)))",
            "MULTIPOLYGON (((1e-12 0, 1 0, 1 1, 1e-12 0)), ((0 5, 1 5, 1 6, 0 5)))",
        ),
        (
            "noise beside a repeated point",
            "MULTIPOLYGON (((0 0, 1 0, 1 0, 1 1, 0 1, 0 0)))",
            "MULTIPOLYGON (((0 0, 1 0, 1 1e-12, 1 1, 0 1, 0 0)))",
        ),
        ("repeated points on one side only, with noise", SQUARE, "MULTIPOLYGON (((0 0, 1 0, 1 1e-12, 1 1, 0 1, 0 0)))"),
        ("point with noise", "POINT (1 2)", "POINT (1 2.000000009)"),
        ("points in another order", "MULTIPOINT (1 1, 2 2)", "MULTIPOINT (2 2, 1.000000001 1)"),
        ("points repeated", "MULTIPOINT (1 1, 2 2)", "MULTIPOINT (2 2, 1 1, 1 1)"),
        ("line drawn backwards", "MULTILINESTRING ((0 0, 1 1, 2 0))", "MULTILINESTRING ((2 0, 1 1, 1e-12 0))"),
        (
            "lines in another order",
            "MULTILINESTRING ((0 0, 1 1), (0 5, 1 5))",
            "MULTILINESTRING ((0 5, 1 5), (0 0, 0 0, 1 1))",
        ),
        (
            "closed line started elsewhere",
            "MULTILINESTRING ((0 0, 1 0, 1 1, 0 0))",
            "MULTILINESTRING ((1 1, 1e-12 0, 1 0, 1 1))",
        ),
        (
            "parts of a collection",
            "GEOMETRYCOLLECTION (POINT (5 5), POLYGON ((0 0, 1 0, 1 1, 0 0)))",
            "GEOMETRYCOLLECTION (POLYGON ((1 1, 1e-12 0, 1 0, 1 1)), POINT (5 5))",
        ),
        ("nothing on both sides", None, None),
    ],
)
def test_these_are_one_shape(what, old, new):
    assert same(old, new) == [True]
    assert same(new, old) == [True]


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("a vertex moved further than the tolerance", SQUARE, "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1.00000002, 0 0)))"),
        (
            "a vertex moved inside the box",
            TWO,
            "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5.5 5.6, 5 5)))",
        ),
        (
            "the same vertices in another course",
            "MULTIPOLYGON (((0 0, 4 0, 4 4, 2 3, 2 1, 0 4, 0 0)))",
            "MULTIPOLYGON (((0 0, 4 0, 4 4, 2 1, 2 3, 0 4, 0 0)))",
        ),
        ("another point on an edge", SQUARE, "MULTIPOLYGON (((0 0, 0.5 0, 1 0, 1 1, 0 1, 0 0)))"),
        ("a part more", SQUARE, TWO),
        (
            "a part twice and another once",
            "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",
            "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)), ((5 5, 6 5, 6 6, 5 5)))",
        ),
        ("a hole less", HOLES, "MULTIPOLYGON (((0 0, 9 0, 9 9, 0 9, 0 0), (1 1, 1 2, 2 2, 1 1)))"),
        (
            "a hole moved",
            HOLES,
            "MULTIPOLYGON (((0 0, 9 0, 9 9, 0 9, 0 0), (1 1, 1 2, 2 2, 1 1), (5 5, 5 6, 6 6.1, 5 5)))",
        ),
        ("a point moved", "POINT (1 2)", "POINT (1 2.00000002)"),
        ("a point more", "MULTIPOINT (1 1, 9 9)", "MULTIPOINT (1 1, 5 5, 9 9)"),
        ("another kind", "POINT (1 2)", "MULTIPOINT (1 2)"),
        ("a line cut in two", "MULTILINESTRING ((0 0, 1 1, 2 2))", "MULTILINESTRING ((0 0, 1 1), (1 1, 2 2))"),
        ("nothing on one side", None, "POINT (1 2)"),
    ],
)
def test_these_are_two_shapes(what, old, new):
    assert same(old, new) == [False]
    assert same(new, old) == [False]


def test_many_pairs_are_told_at_once_and_none_is_null():
    old = column("POINT (1 1)", None, SQUARE, None, SQUARE, TWO)
    turned = "MULTIPOLYGON (((6 6, 5 5, 6 5, 6 6)), ((0 0, 1 0, 1 1, 0 0)))"
    new = column("POINT (1 1)", "POINT (1 1)", SQUARE, None, TWO, turned)
    assert same_shapes(old, new).to_pylist() == [True, False, True, True, False, True]
    assert same_shapes(old.slice(2), new.slice(2)).to_pylist() == [True, True, False, True]
    assert same_shapes(old.slice(0, 0), new.slice(0, 0)).to_pylist() == []


@given(st.integers(3, 30), st.integers(1, 5), st.randoms(use_true_random=False))
def test_noise_below_the_tolerance_and_any_redrawing_is_no_change(corners, parts, random):
    def ring(part):
        angles = [2 * np.pi * (corner + random.uniform(0, 0.5)) / corners for corner in range(corners)]
        return [(3 * part + np.cos(angle), np.sin(angle)) for angle in angles]

    def redrawn(points):
        start = random.randrange(len(points))
        noisy = [(x + random.uniform(-5e-9, 5e-9), y + random.uniform(-5e-9, 5e-9)) for x, y in points]
        turned = noisy[start:] + noisy[:start]
        return turned[::-1] if random.random() < 0.5 else turned

    rings = [ring(part) for part in range(parts)]
    others = [redrawn(points) for points in rings]
    random.shuffle(others)
    old, new = (shapely.MultiPolygon([shapely.Polygon(points) for points in side]) for side in (rings, others))
    assert same_shapes(pa.array([old.wkb]), pa.array([new.wkb])).to_pylist() == [True]


@given(st.integers(4, 30), st.data())
def test_a_vertex_that_moves_is_a_change(corners, data):
    angles = np.arange(corners) * 2 * np.pi / corners
    ring = np.column_stack((np.cos(angles), np.sin(angles)))
    moved = ring.copy()
    corner = data.draw(st.integers(0, corners - 1))
    step = data.draw(st.floats(2e-8, 1e-3))
    moved[corner] *= 1 - step
    assume(shapely.Polygon(moved).is_valid)
    sides = [pa.array([shapely.MultiPolygon([shapely.Polygon(points)]).wkb]) for points in (ring, np.roll(moved, 1, 0))]
    assert same_shapes(*sides).to_pylist() == [False]


def near(old, new, metres):
    sides = [np.array([None if text is None else wkt.loads(text)], dtype=object) for text in (old, new)]
    return within_metres(*sides, metres).tolist()


@pytest.mark.parametrize(
    ("old", "new", "metres"),
    [
        ("POINT (-81.38 28.54)", "POINT (-81.38 28.54)", 0.0),
        ("POINT (0 0)", "POINT (0 0.00045)", 49.76),
        ("POINT (0 0)", "POINT (0.00045 0)", 50.09),
        ("POINT (0 60)", "POINT (0.00089 60)", 49.66),
        ("POINT (179.9998 0)", "POINT (-179.9998 0)", 44.53),
        ("MULTIPOLYGON (((0 60, 1 60, 1 61, 0 60)))", "POINT (1.0009 60.5)", 49.60),
        ("MULTIPOLYGON (((0 0, 9 0, 9 9, 0 9, 0 0)))", "POINT (5 5)", 0.0),
        ("MULTILINESTRING ((0 0, 9 0))", "MULTILINESTRING ((4 0.0004, 5 0.0004))", 44.23),
    ],
)
def test_distance_is_on_the_ground_between_nearest_points(old, new, metres):
    assert near(old, new, metres + 0.2) == [True]
    assert near(new, old, metres + 0.2) == [True]
    assert near(old, new, metres - 0.2) == [False]


def test_the_nearest_points_are_nearest_on_the_ground_not_in_degrees():
    """At 80 degrees north a degree of longitude is a sixth of one of latitude."""
    assert near("MULTIPOINT (0.001 80, 0 80.0006)", "POINT (0 80)", 25) == [True]


def test_a_missing_shape_is_never_near():
    assert near(None, "POINT (0 0)", 50) == [False]
    assert near(None, None, 50) == [False]
    assert within_metres(np.array([], dtype=object), np.array([], dtype=object), 50).tolist() == []
