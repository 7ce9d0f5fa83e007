"""Real shapes with known traps: mixed CRS, exchanged axes, invalid polygons, other projections (D3)."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import shapely

from ploti_server.rows.geometry import UndeclaredCrs, normalise_points, normalise_shapes, same_shapes

SHARED = Path(__file__).parents[2].parent / "shared"
MAIN, DEMO, AWKWARD = SHARED / "data" / "main", SHARED / "demo", SHARED / "data" / "awkward"


def geojson_shapes(path):
    features = json.loads(path.read_text("utf-8"))["features"]
    texts = [json.dumps(feature["geometry"]) if feature["geometry"] else None for feature in features]
    return np.array(shapely.from_geojson(texts), dtype=object)


def numbers(rows, column):
    return pa.array([float(row[column]) if row[column] not in ("", None) else None for row in rows], pa.float64())


@pytest.mark.parametrize(
    ("state", "rows", "points", "rejects"),
    [
        ("001-2023-01-16.csv", 3170, 2858, 0),
        ("002-2023-01-23.csv", 4664, 4211, 1),
        ("005-2023-02-13.csv", 9369, 8248, 1),
        ("009-2023-03-13.csv", 16287, 14375, 1),
    ],
)
def test_san_antonio_mixes_feet_and_degrees_and_has_one_broken_coordinate(state, rows, points, rejects):
    with (MAIN / "sa_building_permits" / state).open(newline="") as file:
        read = list(csv.DictReader(file))
    found = normalise_points(numbers(read, "X_COORD"), numbers(read, "Y_COORD"), ("EPSG:2278", "EPSG:4326"))
    assert (len(found.wkb), len(found.wkb) - found.wkb.null_count, len(found.rejects)) == (rows, points, rejects)
    west, south, east, north = shapely.total_bounds(shapely.from_wkb(found.wkb.to_numpy(zero_copy_only=False)))
    assert -98.9 < west < east < -98.2
    assert 29.2 < south < north < 29.8
    assert all(read[index]["X_COORD"] == "362" for index, _ in found.rejects)


def test_wildfires_with_exchanged_axes_are_rejects():
    read = json.loads((MAIN / "calfire_incidents" / "009-2021-06-20.json").read_text("utf-8"))["Incidents"]
    found = normalise_points(numbers(read, "Longitude"), numbers(read, "Latitude"), ("EPSG:4326",))
    assert len(found.rejects) == 2
    assert all(read[index]["Longitude"] > 0 > read[index]["Latitude"] for index, _ in found.rejects)
    assert found.wkb.null_count == 2 + sum(row["Longitude"] is None or row["Latitude"] is None for row in read)


@pytest.mark.parametrize(
    ("state", "features", "repaired", "nulls"),
    [
        ("001-2016-05-18.geojson", 70, 8, 3),
        ("002-2017-01-01.geojson", 67, 0, 0),
        ("003-2020-06-15.geojson", 67, 1, 0),
        ("004-2023-01-01.geojson", 67, 0, 0),
    ],
)
def test_invalid_counties_are_repaired_and_clockwise_rings_turned(state, features, repaired, nulls):
    given = geojson_shapes(DEMO / "fl_counties" / state)
    found = normalise_shapes(given, ("OGC:CRS84",))
    shapes = shapely.from_wkb(found.wkb.to_numpy(zero_copy_only=False))
    there = ~shapely.is_missing(shapes)
    assert (len(shapes), found.repaired, (~there).sum(), found.rejects) == (features, repaired, nulls, ())
    assert found.kinds == {"MultiPolygon"}
    assert shapely.is_valid(shapes[there]).all()
    assert shapely.is_ccw(shapely.get_exterior_ring(shapely.get_parts(shapes[there]))).all()
    healthy = there & shapely.is_valid(given)
    assert shapely.area(shapes[healthy]) == pytest.approx(shapely.area(given[healthy]))


def test_the_counties_step_has_as_many_equal_shapes_as_its_readme_counts():
    old, new = (
        normalise_shapes(geojson_shapes(DEMO / "fl_counties" / name), ("OGC:CRS84",)).wkb
        for name in ("002-2017-01-01.geojson", "003-2020-06-15.geojson")
    )
    ids = [
        [feature["id"] for feature in json.loads((DEMO / "fl_counties" / name).read_text())["features"]]
        for name in ("002-2017-01-01.geojson", "003-2020-06-15.geojson")
    ]
    order = pa.array([ids[1].index(id_) for id_ in ids[0]])
    assert sum(same_shapes(old, new.take(order)).to_pylist()) == 42


def test_vermont_names_crs84_and_keeps_its_degrees_to_the_last_bit():
    path = MAIN / "vt_rutland_zoning" / "010-2024-07-24.geojson"
    given = geojson_shapes(path)
    found = normalise_shapes(given, (json.loads(path.read_text("utf-8"))["crs"]["properties"]["name"],))
    assert (found.kinds, found.repaired, found.rejects, found.wkb.null_count) == ({"MultiPolygon"}, 0, (), 0)
    shapes = shapely.from_wkb(found.wkb.to_numpy(zero_copy_only=False))
    delivered, source = ({tuple(xy) for xy in shapely.get_coordinates(side).tolist()} for side in (shapes, given))
    assert delivered == source


def test_new_york_in_feet_comes_to_lie_in_new_york():
    given = geojson_shapes(AWKWARD / "derived" / "nybb_epsg2263_crs_member.geojson")
    found = normalise_shapes(given, ("urn:ogc:def:crs:EPSG::2263",))
    west, south, east, north = shapely.total_bounds(shapely.from_wkb(found.wkb.to_numpy(zero_copy_only=False)))
    assert -74.3 < west < east < -73.6
    assert 40.4 < south < north < 41.0
    with pytest.raises(UndeclaredCrs):
        normalise_shapes(given, ())


@pytest.mark.parametrize(
    ("file", "kinds", "nulls", "repaired"),
    [
        ("geopandas/null_geom.geojson", {"MultiLineString"}, 1, 0),
        ("fiona/rmnp.geojson", {"MultiPolygon"}, 0, 0),
        ("fiona/trio.geojson", {"Point", "MultiLineString", "MultiPolygon"}, 0, 0),
        ("mapshaper/geojson/six_counties_three_null.json", {"MultiPolygon"}, 3, 1),
        ("mapshaper/features/clean/ex22_three_ia_precincts.json", {"MultiPolygon"}, 0, 0),
        ("mapshaper/features/clean/ex23_three_ca_precincts.json", {"MultiPolygon"}, 0, 0),
        ("mapshaper/geojson/NZ.geojson", {"MultiPolygon"}, 0, 0),
    ],
)
def test_awkward_geojson_is_delivered_whole(file, kinds, nulls, repaired):
    found = normalise_shapes(geojson_shapes(AWKWARD / file), ("OGC:CRS84",))
    assert (found.kinds, found.wkb.null_count, found.repaired, found.rejects) == (kinds, nulls, repaired, ())
