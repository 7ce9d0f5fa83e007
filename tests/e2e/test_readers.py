"""DuckDB, Polars, geopandas and the validator open what was published; counts and bounds are the raw source's own."""

import csv
import json
import subprocess
from pathlib import Path

import duckdb
import geopandas
import numpy as np
import polars
import pyarrow.parquet as pq
import pyproj
import pytest
import shapely
from tests.e2e.serving import Publisher, beside, states_of

CHOSEN = {
    "fl_airports": (11, 12), "fl_counties": (2, 3), "fl_courts": (3, 4), "fl_places": (1, 2),
    "sa_building_permits": (1, 2), "vt_rutland_zoning": (1, 2),
}  # fmt: skip
"""Two states each, so that the second version has changes too."""
WITH_BACKFILL = {"fl_counties"}
DEGREES = 1e-6
TEXAS = pyproj.CRS("EPSG:2278")
TO_DEGREES = pyproj.Transformer.from_crs(TEXAS, "EPSG:4326", always_xy=True)


@pytest.fixture(scope="module", params=CHOSEN)
def published(request, tmp_path_factory):
    """The newer version of a history, and the raw state that it was made of."""
    name = request.param
    publisher = Publisher(tmp_path_factory.mktemp(name) / "home", (name,))
    states = [states_of(name)[number - 1] for number in CHOSEN[name]]
    numbers = [publisher.publish(name, state) for state in states]
    version = publisher.published(name, numbers[-1])
    version.name, version.source = name, states[-1].file
    return version


def source_rows(file):
    """A state's records as the standard library reads them."""
    if file.suffix == ".csv":
        with file.open(encoding="utf-8-sig", newline="") as lines:
            return list(csv.DictReader(lines))
    document = json.loads(file.read_text(encoding="utf-8"))
    return document["features"] if isinstance(document, dict) else document


def source_shapes(name, file):
    """Corners of each record's shape in degrees as the raw source has them; None without one, or where it has to be
    left out."""
    rows = source_rows(file)
    match name:
        case "fl_airports" | "fl_places":
            return [np.array([[float(row.get("lon") or row["lng"]), float(row["lat"])]]) for row in rows]
        case "fl_counties" | "vt_rutland_zoning":
            return [np.array(list(_corners(row["geometry"]["coordinates"]))) for row in rows]
        case "sa_building_permits":
            return [_permit_place(row["X_COORD"], row["Y_COORD"]) for row in rows]
    return None


def _corners(coordinates):
    if isinstance(coordinates[0], int | float):
        yield coordinates[:2]
    else:
        for each in coordinates:
            yield from _corners(each)


def _permit_place(x, y):
    """Feet of the state's grid where they lie in Texas, else degrees where they can be."""
    if not x or not y:
        return None
    x, y = float(x), float(y)
    lon, lat = TO_DEGREES.transform(x, y)
    area = TEXAS.area_of_use
    if area.west <= lon <= area.east and area.south <= lat <= area.north:
        return np.array([[lon, lat]])
    return np.array([[x, y]]) if abs(x) <= 180 and abs(y) <= 90 else None


def bounds_of(shapes):
    corners = np.concatenate([shape for shape in shapes if shape is not None])
    return [*corners.min(axis=0), *corners.max(axis=0)]


def in_duckdb(paths):
    """Rows and shapes as DuckDB reads them."""
    with duckdb.connect() as db:
        parts = db.read_parquet([str(path) for path in paths])
        if "geometry" not in parts.columns:
            return parts.count("*").fetchall()[0][0], None
        shapes = parts.project("ST_AsWKB(geometry) AS wkb").fetchall()
        return len(shapes), [wkb for (wkb,) in shapes]


def in_polars(paths):
    frame = polars.concat([polars.read_parquet(path) for path in paths])
    return frame.height, frame["geometry"].to_list() if "geometry" in frame.columns else None


def in_geopandas(paths):
    if "geometry" not in pq.read_schema(paths[0]).names:
        return sum(len(polars.read_parquet(path)) for path in paths), None
    frames = [geopandas.read_parquet(path) for path in paths]
    assert all(frame.crs == "EPSG:4326" for frame in frames)
    return sum(map(len, frames)), [shape for frame in frames for shape in frame.geometry.to_wkb()]


@pytest.mark.parametrize("reader", [in_duckdb, in_polars, in_geopandas])
def test_a_reader_finds_the_rows_and_the_bounds_of_the_source(published, reader):
    rows, shapes = reader(published.paths("snapshot"))
    assert rows == len(source_rows(published.source))
    expected = source_shapes(published.name, published.source)
    if expected is None:
        assert shapes is None
        return
    assert sum(shape is None for shape in shapes) == sum(shape is None for shape in expected)
    bounds = shapely.total_bounds(shapely.from_wkb([shape for shape in shapes if shape is not None]))
    assert bounds == pytest.approx(bounds_of(expected), abs=DEGREES, rel=0)


@pytest.mark.parametrize("reader", [in_duckdb, in_polars, in_geopandas])
def test_a_reader_opens_the_changes_and_the_backfill(published, reader):
    counts = published.manifest["counts"]
    assert bool(published.paths("backfill")) == (published.name in WITH_BACKFILL)
    rows, _ = reader(published.paths("changes"))
    assert rows == sum(counts.values())
    if published.paths("backfill"):
        rows, _ = reader(published.paths("backfill"))
        due = [file["rows"] for file in published.manifest["files"] if file["path"].startswith("backfill/")]
        assert rows == sum(due) > 0


def test_the_boxes_of_rows_hold_their_shapes(published):
    """The covering that readers skip by is of the shapes, rounded outward to its precision."""
    for path in published.paths("snapshot"):
        frame = polars.read_parquet(path)
        if "geometry" not in frame.columns:
            assert "_ploti_bbox" not in frame.columns
            continue
        held = frame.filter(polars.col("geometry").is_not_null())
        assert held["_ploti_bbox"].null_count() == 0
        boxes = held["_ploti_bbox"].struct.unnest().select("xmin", "ymin", "xmax", "ymax").to_numpy()
        own = shapely.bounds(shapely.from_wkb(held["geometry"].to_list()))
        assert (boxes[:, :2] <= own[:, :2]).all()
        assert (boxes[:, 2:] >= own[:, 2:]).all()
        assert np.abs(boxes - own).max() < 1e-4


def test_the_validator_passes_every_part_with_a_geometry_column(published):
    checked = 0
    for path in [*published.paths("snapshot"), *published.paths("changes"), *published.paths("backfill")]:
        if "geometry" not in pq.read_schema(path).names:
            assert b"geo" not in (pq.read_schema(path).metadata or {})
            continue
        done = subprocess.run(
            [beside("geoparquet-validator"), "check", path], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, f"{Path(path).name}: {done.stdout}{done.stderr}"
        checked += 1
    assert checked == 0 if published.name == "fl_courts" else checked >= 2
