"""What a source's shapes become when delivered: one row per sentence of D3.1 to D3.3."""

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import assume, given
from hypothesis import strategies as st
from shapely import wkt

from ploti_server.domain.states import StateUnreadable
from ploti_server.rows.geometry import (
    NOT_FINITE,
    NOTHING_LEFT,
    UndeclaredCrs,
    UnknownCrs,
    geometry_type,
    normalise_points,
    normalise_shapes,
    promote,
)

DEGREES = ("EPSG:4326",)


def shapes(*texts):
    return np.array([None if text is None else wkt.loads(text) for text in texts], dtype=object)


def delivered(*texts, crs=DEGREES, repair=True):
    return normalise_shapes(shapes(*texts), crs, repair)


def texts(column):
    return [None if wkb is None else shapely.from_wkb(wkb).wkt for wkb in column.to_pylist()]


@pytest.mark.parametrize(
    ("given_shape", "delivered_shape", "kind"),
    [
        ("POINT (1 2)", "POINT (1 2)", "Point"),
        ("POINT Z (1 2 3)", "POINT (1 2)", "Point"),
        ("POINT ZM (1 2 3 4)", "POINT (1 2)", "Point"),
        ("MULTIPOINT (1 2, 3 3)", "MULTIPOINT ((3 3), (1 2))", "MultiPoint"),
        ("LINESTRING (2 2, 1 1, 0 3)", "MULTILINESTRING ((2 2, 1 1, 0 3))", "MultiLineString"),
        ("LINESTRING Z (2 2 9, 1 1 9)", "MULTILINESTRING ((2 2, 1 1))", "MultiLineString"),
        ("POLYGON ((0 0, 1 0, 1 1, 0 1, 0 0))", "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1, 0 0)))", "MultiPolygon"),
        ("POLYGON ((1 1, 1 0, 0 0, 0 1, 1 1))", "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1, 0 0)))", "MultiPolygon"),
        ("POLYGON ((0 0, 0 0, 1 0, 1 1, 1 1, 0 1, 0 0))", "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1, 0 0)))", "MultiPolygon"),
        ("GEOMETRYCOLLECTION (POINT (1 2))", "MULTIPOINT ((1 2))", "MultiPoint"),
        (
            "GEOMETRYCOLLECTION (LINESTRING (0 0, 1 1), MULTILINESTRING ((5 5, 6 6)))",
            "MULTILINESTRING ((0 0, 1 1), (5 5, 6 6))",
            "MultiLineString",
        ),
        (
            "GEOMETRYCOLLECTION (GEOMETRYCOLLECTION (POLYGON ((0 0, 0 1, 1 1, 0 0))), POINT EMPTY)",
            "MULTIPOLYGON (((0 0, 1 1, 0 1, 0 0)))",
            "MultiPolygon",
        ),
        (
            "GEOMETRYCOLLECTION (POLYGON ((0 1, 1 1, 0 0, 0 1)), MULTIPOINT (5 5, 4 4))",
            "GEOMETRYCOLLECTION (POLYGON ((0 0, 1 1, 0 1, 0 0)), POINT (5 5), POINT (4 4))",
            "Geometry",
        ),
        ("POINT (-0.0 -0.0)", "POINT (0 0)", "Point"),
    ],
)
def test_a_shape_takes_its_delivered_form(given_shape, delivered_shape, kind):
    found = delivered(given_shape)
    assert texts(found.wkb) == [delivered_shape]
    assert (found.kinds, found.repaired, found.rejects) == ({kind}, 0, ())


@pytest.mark.parametrize(
    "empty", [None, "POINT EMPTY", "POLYGON EMPTY", "GEOMETRYCOLLECTION EMPTY", "MULTIPOINT EMPTY"]
)
def test_an_empty_shape_is_null_and_no_reject(empty):
    found = delivered(empty, "LINESTRING (0 0, 1 1)")
    assert texts(found.wkb)[0] is None
    assert found.hilbert.to_pylist()[0] is None
    assert (found.kinds, found.rejects) == ({"MultiLineString"}, ())


@pytest.mark.parametrize(
    ("broken", "mended", "area"),
    [
        ("a bow tie", "POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))", 2),
        ("two parts that overlap", "MULTIPOLYGON (((0 0, 2 0, 2 2, 0 2, 0 0)), ((1 1, 3 1, 3 3, 1 3, 1 1)))", 7),
        ("the same part twice", "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1, 0 0)), ((0 0, 1 0, 1 1, 0 1, 0 0)))", 1),
        ("a hole past the edge", "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 5 1, 5 2, 1 2, 1 1))", 13),
        ("a part without an area", "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1, 0 0)), ((5 5, 6 6, 5 5, 5 5)))", 1),
        ("a spike", "POLYGON ((0 0, 1 0, 1 1, 1 5, 1 1, 0 1, 0 0))", 1),
    ],
)
def test_an_invalid_shape_is_repaired_within_its_dimension_and_counted(broken, mended, area):
    found = delivered(mended)
    shape = shapely.from_wkb(found.wkb[0].as_py())
    assert (shape.is_valid, shape.geom_type, shape.area) == (True, "MultiPolygon", pytest.approx(area))
    assert all(shapely.is_ccw(part.exterior) for part in shape.geoms)
    assert (found.repaired, found.rejects) == (1, ())


def test_parts_of_a_mixed_collection_are_repaired_each_in_its_dimension():
    found = delivered("GEOMETRYCOLLECTION (POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0)), POINT (9 9))")
    assert [part.geom_type for part in shapely.from_wkb(found.wkb[0].as_py()).geoms] == ["Polygon", "Polygon", "Point"]
    assert found.repaired == 1


def test_repair_can_be_switched_off():
    found = delivered("POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))", repair=False)
    assert not shapely.from_wkb(found.wkb[0].as_py()).is_valid
    assert (found.repaired, found.rejects) == (0, ())


@pytest.mark.parametrize("nothing", ["POLYGON ((0 0, 1 1, 2 2, 0 0))", "LINESTRING (1 1, 1 1)"])
def test_a_shape_of_which_repair_leaves_nothing_is_a_reject(nothing):
    found = delivered("LINESTRING (0 0, 1 1)", nothing)
    assert texts(found.wkb)[1] is None
    assert (found.repaired, found.rejects) == (0, ((1, NOTHING_LEFT),))


@pytest.mark.parametrize("other", ["POINT (1 1)", "LINESTRING (0 0, 1 1)"])
def test_coordinates_that_are_not_finite_are_a_reject(other):
    broken = shapely.points(np.inf, 1.0)
    found = normalise_shapes(np.array([wkt.loads(other), broken, None], dtype=object), DEGREES)
    assert found.wkb.is_valid().to_pylist() == [True, False, False]
    assert found.rejects == ((1, NOT_FINITE),)


@pytest.mark.parametrize("beyond", ["POINT (180.1 0)", "POINT (38.5 -121.0)", "LINESTRING (0 0, 0 90.5)"])
def test_coordinates_outside_the_world_are_a_reject(beyond):
    found = delivered("POINT (-180 90)", beyond)
    assert found.wkb.is_valid().to_pylist() == [True, False]
    assert found.rejects == ((1, "coordinates lie outside the world"),)


@pytest.mark.parametrize(
    ("crs", "nowhere"),
    [
        ("EPSG:2278", "POINT (1e30 1e30)"),
        ("EPSG:32633", "POINT (1e30 1e30)"),
        ("EPSG:3857", "POINT (40000000 0)"),
        ("EPSG:4269", "POINT (262 30)"),
    ],
)
def test_a_place_that_the_projection_does_not_have_is_a_reject(crs, nowhere):
    found = delivered(nowhere, None, crs=(crs,))
    assert found.wkb.null_count == 2
    assert found.rejects == ((0, f"coordinates lie outside the world when read as {crs}"),)


def test_reprojected_coordinates_are_rounded_and_given_degrees_are_not():
    exact = "POINT (-81.123456789012345 28.123456789012345)"
    assert delivered(exact).wkb == delivered(exact, crs=("OGC:CRS84",)).wkb
    assert shapely.get_coordinates(shapely.from_wkb(delivered(exact).wkb[0].as_py())).tolist() == [
        [-81.123456789012345, 28.123456789012345]
    ]
    projected = shapely.get_coordinates(
        shapely.from_wkb(delivered("POINT (-9e6 3e6)", crs=("EPSG:3857",)).wkb[0].as_py())
    )
    assert projected.tolist() == np.round(projected, 9).tolist()


@pytest.mark.parametrize(
    "crs", ["EPSG:4326", "OGC:CRS84", "urn:ogc:def:crs:OGC:1.3:CRS84", "urn:ogc:def:crs:EPSG::4326", "EPSG:4979"]
)
def test_degrees_are_lon_before_lat_whatever_the_name_of_the_crs(crs):
    assert texts(delivered("POINT (-81.5 28.5)", crs=(crs,)).wkb) == ["POINT (-81.5 28.5)"]


def test_projected_axes_are_easting_before_northing():
    found = shapely.from_wkb(delivered("POINT (500000 4649776)", crs=("EPSG:32633",)).wkb[0].as_py())
    assert (round(found.x, 4), round(found.y, 4)) == (15.0, 42.0)


@pytest.mark.parametrize("shape", ["POINT (532000 1530000)", "LINESTRING (0 0, 0 91)"])
def test_an_undeclared_crs_is_refused_where_degrees_are_impossible(shape):
    with pytest.raises(UndeclaredCrs, match="declare `crs`"):
        delivered(shape, crs=())


def test_an_undeclared_crs_is_read_as_degrees_where_all_may_be():
    assert texts(delivered("POINT (1 2)", None, crs=()).wkb) == ["POINT (1 2)", None]
    assert delivered(None, "POINT EMPTY", crs=()).wkb.null_count == 2


@pytest.mark.parametrize("name", ["EPSG:999999", "state plane", 'LOCAL_CS["floor plan",UNIT["metre",1]]'])
def test_an_unknown_crs_is_refused_by_name(name):
    with pytest.raises(UnknownCrs, match="EPSG:2278") as caught:
        delivered("POINT (1 2)", crs=(name,))
    assert name[:10] in str(caught.value)


def test_both_refusals_are_unreadable_states():
    assert issubclass(UndeclaredCrs, StateUnreadable)
    assert issubclass(UnknownCrs, StateUnreadable)


@pytest.mark.parametrize(
    ("crs", "shape", "place"),
    [
        (("EPSG:2278", "EPSG:4326"), "POINT (2073082.4 13791282.7)", (-98.67, 29.67)),
        (("EPSG:2278", "EPSG:4326"), "POINT (-98.57 29.51)", (-98.57, 29.51)),
        (("EPSG:4326", "EPSG:2278"), "POINT (-98.57 29.51)", (-98.57, 29.51)),
        (("EPSG:4326", "EPSG:2278"), "POINT (2073082.4 13791282.7)", (-98.67, 29.67)),
        (("EPSG:32614", "EPSG:2278"), "POINT (550000 3260000)", (-98.48, 29.47)),
        (("EPSG:2278", "EPSG:4326"), "LINESTRING (2073082.4 13791282.7, 2073092.4 13791282.7)", (-98.67, 29.67)),
    ],
)
def test_a_row_takes_the_first_crs_in_whose_area_it_lies(crs, shape, place):
    found = delivered(shape, crs=crs)
    centre = shapely.from_wkb(found.wkb[0].as_py()).centroid
    assert (round(centre.x, 2), round(centre.y, 2)) == place
    assert found.rejects == ()


def test_a_row_that_lies_in_no_area_is_a_reject():
    found = delivered(
        "POINT (-98.57 29.51)", "POINT (362 13791282.7)", "LINESTRING (0 0, 1 1)", crs=("EPSG:2278", "EPSG:4326")
    )
    assert found.wkb.is_valid().to_pylist() == [True, False, True]
    assert found.rejects == ((1, "coordinates lie in the area of use of none of EPSG:2278, EPSG:4326"),)


def test_an_area_of_use_may_cross_the_date_line():
    found = delivered("POINT (172.9 52.9)", "POINT (-150 61)", "POINT (10 50)", crs=("EPSG:4269", "EPSG:3857"))
    assert [round(shapely.from_wkb(wkb).x, 4) for wkb in found.wkb.to_pylist()] == [172.9, -150.0, 0.0001]


@pytest.mark.parametrize(("x", "y"), [(None, 2.0), (1.0, None), (None, None), (float("nan"), 2.0)])
def test_a_missing_coordinate_is_a_null_shape_and_no_reject(x, y):
    found = normalise_points(pa.array([x, 5.0], pa.float64()), pa.array([y, 6], pa.float64()), DEGREES)
    assert texts(found.wkb) == [None, "POINT (5 6)"]
    assert found.rejects == ()


def test_points_come_from_whole_numbers_too():
    found = normalise_points(pa.array([1, None], pa.int64()), pa.array([2, 3], pa.int64()), DEGREES)
    assert texts(found.wkb) == ["POINT (1 2)", None]


@pytest.mark.parametrize(
    ("kinds", "previous", "kind"),
    [
        ([], None, None),
        ([], "Point", "Point"),
        (["Point"], None, "Point"),
        (["MultiPolygon"], None, "MultiPolygon"),
        (["Point", "MultiPoint"], None, "MultiPoint"),
        (["Point", "MultiPoint"], "MultiPoint", "MultiPoint"),
        (["Point"], "MultiPoint", "MultiPoint"),
        (["Point", "MultiPoint"], "Point", "Geometry"),
        (["Point", "MultiPolygon"], None, "Geometry"),
        (["Point"], "Geometry", "Geometry"),
        (["Geometry"], None, "Geometry"),
        (["MultiPolygon"], "Point", "MultiPolygon"),
        (["MultiPolygon", "MultiLineString"], "MultiPolygon", "Geometry"),
    ],
)
def test_a_column_has_one_kind_or_is_mixed_and_never_narrows(kinds, previous, kind):
    assert geometry_type(kinds, previous) == kind


def test_points_become_multipoints_in_a_multipoint_column_only():
    found = delivered("POINT (1 2)", None, "MULTIPOINT (1 1, 2 2)")
    assert texts(promote(found.wkb, "MultiPoint")) == ["MULTIPOINT ((1 2))", None, "MULTIPOINT ((2 2), (1 1))"]
    assert promote(found.wkb, "Geometry") is found.wkb
    alone = delivered("POINT (1 2)", None).wkb
    assert promote(alone, "Point") is alone
    assert promote(pa.array([None], pa.binary()), "MultiPoint").to_pylist() == [None]


@pytest.mark.parametrize(
    "same",
    [
        ["POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 1 2, 2 2, 2 1, 1 1), (3 3, 3 3.5, 3.5 3.5, 3 3))",
         "POLYGON ((4 4, 4 0, 0 0, 0 4, 4 4), (3 3, 3.5 3.5, 3 3.5, 3 3), (2 2, 2 1, 1 1, 1 2, 2 2))"],
        ["MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",
         "MULTIPOLYGON (((6 6, 6 5, 5 5, 6 6)), ((1 0, 1 1, 0 0, 0 0, 1 0)))"],
        ["MULTIPOINT (1 1, 2 2)", "MULTIPOINT (2 2, 1 1)"],
    ],
)  # fmt: skip
def test_ring_start_direction_and_part_order_change_no_byte(same):
    assert len(set(delivered(*same).wkb.to_pylist())) == 1


@pytest.mark.parametrize("ring", [[(1, 0), (1, 0), (1, 0)], [(0, 0), (1, 1), (0, 0)], [(0, 0), (2, 2), (2, 0), (0, 2)]])
def test_degenerate_rings_pass_where_repair_is_off(ring):
    found = normalise_shapes(np.array([shapely.Polygon(ring), None], dtype=object), DEGREES, repair=False)
    assert found.wkb.is_valid().to_pylist() == [True, False]


@given(st.integers(3, 40), st.integers(0, 100), st.booleans(), st.randoms(use_true_random=False))
def test_a_ring_gives_the_same_bytes_from_every_start_and_in_both_directions(corners, start, backwards, random):
    angles = [2 * np.pi * (corner + random.uniform(0, 0.5)) / corners for corner in range(corners)]
    ring = [(random.uniform(1, 2) * np.cos(angle), np.sin(angle)) for angle in angles]
    turned = ring[start % corners :] + ring[: start % corners]
    assume(shapely.Polygon(ring).is_valid)
    drawn = [shapely.Polygon(ring), shapely.Polygon(turned[::-1] if backwards else turned)]
    once, again = normalise_shapes(np.array(drawn, dtype=object), DEGREES).wkb.to_pylist()
    assert once == again


@given(st.integers(3, 40), st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_a_polygon_gets_the_same_bytes_and_key_alone_and_out_of_a_collection(corners, repeats, projected, random):
    """Plain polygons go another, shorter way through the code than collections."""
    angles = [2 * np.pi * (corner + random.uniform(0, 0.5)) / corners for corner in range(corners)]
    ring = [(-81 + random.uniform(1, 2) * np.cos(angle), 28 + np.sin(angle)) for angle in angles]
    ring = [point for point in ring for _ in range(random.randint(1, 3) if repeats else 1)]
    polygon = shapely.Polygon(ring[:: random.choice((1, -1))])
    ways = [polygon, shapely.MultiPolygon([polygon]), shapely.GeometryCollection([polygon]), None]
    crs = ("EPSG:3857",) if projected else DEGREES
    found = normalise_shapes(np.array(ways, dtype=object), crs)
    alone = normalise_shapes(np.array(ways[:2], dtype=object), crs)
    assert len(set(found.wkb.to_pylist()[:3] + alone.wkb.to_pylist())) == 1
    assert len(set(found.hilbert.to_pylist()[:3] + alone.hilbert.to_pylist())) == 1
    assert (found.wkb.null_count, found.kinds, alone.kinds) == (1, {"MultiPolygon"}, {"MultiPolygon"})


def test_points_get_the_same_bytes_and_keys_alone_and_beside_other_kinds():
    points = shapes("POINT (-81.38 28.54)", None, "POINT (500 0)", "POINT (2 3)")
    alone = normalise_shapes(points, DEGREES)
    beside = normalise_shapes(np.append(points, shapes("LINESTRING (0 0, 1 1)")), DEGREES)
    assert alone.wkb.to_pylist() == beside.wkb.to_pylist()[:4]
    assert alone.hilbert.to_pylist() == beside.hilbert.to_pylist()[:4]
    assert alone.rejects == beside.rejects
    assert alone.hilbert.type == pa.int64()


def test_no_rows_are_no_shapes():
    found = normalise_shapes(np.array([], dtype=object), DEGREES)
    assert (len(found.wkb), len(found.hilbert), found.kinds) == (0, 0, frozenset())


def test_the_given_array_stays_as_it_was():
    given_shapes = shapes("POLYGON ((1 1, 1 0, 0 0, 0 1, 1 1))", "POINT EMPTY")
    before = [shape.wkt for shape in given_shapes]
    normalise_shapes(given_shapes, ("EPSG:3857",))
    assert [shape.wkt for shape in given_shapes] == before
