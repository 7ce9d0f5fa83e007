"""Well-known text is delivered as single shapes are, whichever way its polygons are read (D3)."""

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from ploti_server.rows.geometry import normalise_shapes, normalise_text
from ploti_server.rows.plain_polygons import plain_polygons, plain_polygons_of_text

DEGREES = ("EPSG:4326",)
SQUARE = "POLYGON ((0 0, 1 0, 1 1, 0 1, 0 0))"
WAYS = {
    "spaces": [SQUARE, "POLYGON ((2 2, 3 2, 3 3, 2 2))"],
    "no spaces": ["POLYGON((0 0,1 0,1 1,0 1,0 0))", "POLYGON((2 2,3 2,3 3,2 2))"],
    "multi": [
        "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1, 0 0)))",
        "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",
    ],
    "multi without spaces": ["MULTIPOLYGON(((0 0,1 0,1 1,0 0)))"],
    "with and without spaces": [SQUARE, "POLYGON ((0 0,1 0,1 1,0 1,0 0))"],
    "a hole": [SQUARE, "POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (1 1, 2 1, 2 2, 1 1))"],
    "three dimensions": [SQUARE, "POLYGON Z ((0 0 5, 1 0 5, 1 1 5, 0 0 5))", "POLYGON ((0 0 5, 1 0 5, 1 1 5, 0 0 5))"],
    "another kind": [SQUARE, "POINT (1 2)", "LINESTRING (0 0, 1 1)"],
    "nothing": [SQUARE, None, "POLYGON EMPTY"],
    "first is nothing": [None, SQUARE],
    "small letters": ["polygon ((0 0, 1 0, 1 1, 0 0))", SQUARE],
    "a reference system ahead": [SQUARE, "SRID=4326;POLYGON ((0 0, 1 0, 1 1, 0 0))"],
    "open ring": [SQUARE, "POLYGON ((0 0, 1 0, 1 1, 0 1))"],
    "too few corners": [SQUARE, "POLYGON ((0 0, 1 0, 0 0))", "POLYGON ((0 0, 0 0, 0 0, 0 0))"],
    "crosses itself": [SQUARE, "POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))"],
    "goes round twice": [SQUARE, "POLYGON ((3 0, 0 3, -3 0, 0 -3, 2 0, 0 2, -2 0, 0 -2, 3 0))"],
    "no finite number": [SQUARE, "POLYGON ((0 0, nan 0, 1 1, 0 0))", "POLYGON ((0 0, inf 0, 1 1, 0 0))"],
    "out of the world": [SQUARE, "POLYGON ((0 0, 500 0, 1 1, 0 0))"],
    "other spellings of numbers": [
        SQUARE,
        "POLYGON ((0 0, 1e0 0, 1. 1.0, -0.0 -0, 0 0))",
        "POLYGON ((0 0, +1 0, .5 1, 0 0))",
    ],
    "more white space": [
        SQUARE,
        "POLYGON ((0  0, 1 0,  1 1, 0 0))",
        "POLYGON ((0 0,\n 1 0, 1 1, 0 0))",
        "POLYGON ((0 0, 1\t0, 1 1, 0 0))",
    ],
    "no number": [
        SQUARE,
        "POLYGON ((0 0, x 0, 1 1, 0 0))",
        "POLYGON ((0 0, , 1 1, 0 0))",
        "POLYGON (())",
        "POLYGON ((0 0, 1 0, 1 1, 0 0)",
    ],
    "a pair too long": [SQUARE, "POLYGON ((0 0,7 1 0, 1 1, 0 0))"],
    "digits beyond a double": [
        "POLYGON ((0.1000000000000000055511151231257827 0, 1.00000000000000011102230246251565 0, 1 1, 0.1 0))"
    ],
    "no text at all": [None, None],
    "no row": [],
}


def read(texts):
    values = texts.to_numpy(zero_copy_only=False)
    stripped = [value and value.removeprefix("SRID=4326;") for value in values]
    return shapely.from_wkt(np.array(stripped, dtype=object), on_invalid="ignore")


def both_ways(texts, crs=DEGREES):
    column = pa.array(texts, pa.string())
    return normalise_shapes(read(column), crs), normalise_text(column, read, crs)[0]


@pytest.mark.parametrize("way", WAYS)
def test_text_is_delivered_as_the_shape_that_it_tells(way):
    shapes, text = both_ways(WAYS[way])
    assert text == shapes


@pytest.mark.parametrize("crs", [("EPSG:3857",), ("EPSG:2263", "EPSG:4326")])
def test_text_in_another_reference_system_is_delivered_as_its_shape(crs):
    shapes, text = both_ways([SQUARE, "POLYGON ((987000 191000, 988000 191000, 988000 192000, 987000 191000))"], crs)
    assert text == shapes


def test_most_rows_of_a_batch_are_read_in_one_go():
    """A hole, a gap and a broken text do not send the others the long way."""
    texts = [SQUARE, *WAYS["a hole"], None, "POLYGON ((0 0, 1 0, 1 1, 0 0", SQUARE]
    assert plain_polygons_of_text(pa.array(texts), DEGREES).rows.tolist() == [0, 1, 5]


def test_numbers_are_read_to_the_last_bit():
    chance = np.random.default_rng(7)
    corners = chance.uniform([-180, -90], [180, 90], (3000, 3, 2))
    rings = [[*corner, corner[0]] for corner in corners.tolist()]
    column = pa.array([f"POLYGON (({', '.join(f'{x!r} {y!r}' for x, y in ring)}))" for ring in rings])
    found = plain_polygons_of_text(column, DEGREES)
    assert len(found.rows) > 2900
    shapes = normalise_shapes(shapely.polygons(rings), DEGREES)
    assert found.wkb.to_pylist() == shapes.wkb.take(pa.array(found.rows)).to_pylist()


POINTS = st.tuples(st.integers(-4, 4), st.integers(-4, 4))


@given(st.lists(POINTS, min_size=3, max_size=9))
def test_only_valid_rings_go_the_short_way(points):
    """Whatever a ring's middle tells of it: a ring that meets itself is never taken for a plain one (D3.2)."""
    polygon = shapely.Polygon(points)
    short = plain_polygons(np.array([polygon], dtype=object), DEGREES)
    assert len(short.rows) == 0 or polygon.is_valid
    long = normalise_shapes(np.array([shapely.GeometryCollection([polygon])], dtype=object), DEGREES)
    if len(short.rows):
        assert short.wkb.to_pylist() == long.wkb.to_pylist()
