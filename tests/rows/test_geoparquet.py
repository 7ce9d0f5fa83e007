"""Parts of a version's files: readable everywhere, and the same bytes every time (D5.3, D5.4, F041, F042, F048)."""

import hashlib
import inspect
import json
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import geopandas
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from shapely import wkt

from ploti_server.domain.schema import Column, Schema
from ploti_server.rows import geoparquet
from ploti_server.rows.envelope import Envelope, arrow_schema, with_envelope
from ploti_server.rows.geometry import normalise_shapes
from ploti_server.rows.geoparquet import write_parts
from ploti_server.rows.wkb_bounds import boxes_and_kinds

VALIDATOR = Path(sys.executable).with_name("geoparquet-validator")
NO_STATISTICS = ["/conf/distribution/geospatial-statistics"]
METADATA = {"ploti:dataset_id": "ds_permits", "ploti:version": "7"}
OWN = (
    Column("name", "string", nullable=True, source_name="name"),
    Column("status", "string", nullable=True, source_name="status"),
    Column("units", "integer", nullable=True, source_name="units"),
    Column("issued", "date", nullable=True, source_name="issued"),
)
SHAPE = Column("geometry", "geometry", nullable=True, source_name="geometry", geometry_type="MultiPolygon")
PLAIN, SHAPED = Schema(OWN), Schema((*OWN, SHAPE))
ENVELOPE = Envelope("ds_permits", "fl-county-orange", 7, None, datetime(2026, 1, 2, tzinfo=UTC))


def squares(count, seed=0):
    places = np.random.default_rng(seed).uniform((-82, 25), (-80, 30), (count, 2))
    boxes = shapely.box(*places.T, *(places + 0.01).T)
    return normalise_shapes(np.array(boxes, dtype=object), ("EPSG:4326",)).wkb


def rows(count, kind="snapshot", schema=SHAPED, **own):
    columns = {
        "_ploti_record_id": pa.array([f"rec_{row:026d}" for row in range(count)]),
        "name": pa.array([f"{row} MAIN ST" for row in range(count)]),
        "status": pa.array([("open", "closed", None)[row % 3] for row in range(count)]),
        "units": pa.array(np.arange(count) * 7 % 1000),
    }
    if "geometry" in (column.name for column in schema.columns):
        columns["geometry"] = squares(count)
    table = pa.table(columns | own)
    target = arrow_schema(schema, kind)
    return pa.Table.from_batches(with_envelope(iter(table.to_batches()), ENVELOPE, target), schema=target)


def write(folder, table, kind="snapshot", batch_rows=20_000, **settings):
    settings = {"geometry_type": "MultiPolygon", "metadata": METADATA} | settings
    batches = iter(table.to_batches(max_chunksize=batch_rows))
    return write_parts(batches, kind=kind, schema=table.schema, folder=folder, **settings)


def geo(part):
    return json.loads(pq.read_metadata(part.local).metadata[b"geo"])


def outcomes(part):
    """Run the independent validator over one file; give the tests that it did not pass or skip."""
    answer = subprocess.run([VALIDATOR, "check", "--json", part.local], capture_output=True, text=True, check=False)
    failed = [test for test in json.loads(answer.stdout)["outcomes"] if test["status"] not in ("pass", "skip")]
    return answer.returncode, failed


def failures_without_shapes(part):
    """Name what the validator misses in a row group of null shapes only: there is no smallest and largest box."""
    return [test["id"] for test in outcomes(part)[1]]


def opened(paths):
    """Count the rows of files with each reader that users have."""
    files = [str(path) for path in paths]
    return {
        "pyarrow": pq.read_table(files).num_rows,
        "duckdb": duckdb.connect().execute("SELECT count(*) FROM read_parquet(?)", [files]).fetchone()[0],
        "polars": polars.read_parquet(files).height,
        "geopandas": sum(len(geopandas.read_parquet(file)) for file in files),
    }


def test_a_part_names_its_file_size_hash_and_rows(tmp_path):
    (part,) = write(tmp_path, rows(1000))
    content = part.local.read_bytes()
    assert (part.path, part.local, part.rows) == ("snapshot/part-0000.parquet", tmp_path / part.path, 1000)
    assert (part.size_bytes, part.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_rows_come_back_as_they_went_in_with_boxes_last(tmp_path):
    table = rows(1000)
    (part,) = write(tmp_path, table)
    read = pq.read_table(part.local)
    assert read.column_names == [*table.column_names, "_ploti_bbox"]
    assert read.drop_columns(["_ploti_bbox"]).cast(table.schema).equals(table)
    assert [read.schema.field(field.name).type for field in table.schema] == table.schema.types


def test_the_validator_passes_every_class_and_every_reader_opens_all_parts(tmp_path):
    parts = write(tmp_path, rows(50_500), part_bytes=1)
    assert [part.rows for part in parts] == [50_000, 500]
    assert [outcomes(part) for part in parts] == [(0, [])] * 2
    assert set(opened([part.local for part in parts]).values()) == {50_500}


def test_a_box_filter_reads_the_shapes_in_the_box(tmp_path):
    table = rows(5000)
    (part,) = write(tmp_path, table)
    window = (-81.5, 27, -81.25, 27.5)
    shapes = shapely.from_wkb(table.column("geometry").to_numpy())
    expected = shapely.intersects(shapes, shapely.box(*window)).sum()
    assert 0 < expected < 5000
    found = geopandas.read_parquet(part.local, bbox=window)
    assert shapely.intersects(found.geometry.values, shapely.box(*window)).sum() == expected
    assert len(found) < 1.2 * expected
    assert found.crs == "EPSG:4326"


def test_boxes_enclose_their_shapes_in_float32(tmp_path):
    table = rows(5000)
    (part,) = write(tmp_path, table)
    boxes = pq.read_table(part.local).column("_ploti_bbox").combine_chunks().flatten()
    exact = shapely.bounds(shapely.from_wkb(table.column("geometry").to_numpy()))
    assert all(side.type == pa.float32() for side in boxes)
    xmin, ymin, xmax, ymax = (np.asarray(side, dtype=np.float64) for side in boxes)
    assert (xmin <= exact[:, 0]).all()
    assert (ymin <= exact[:, 1]).all()
    assert (xmax >= exact[:, 2]).all()
    assert (ymax >= exact[:, 3]).all()
    assert np.abs(xmin - exact[:, 0]).max() < 1e-5


def test_geo_metadata_is_each_parts_own(tmp_path):
    shapes = pa.concat_arrays([squares(50_000), pa.nulls(50_000, pa.binary()), squares(1, seed=1)])
    parts = write(tmp_path, rows(100_001, geometry=shapes), part_bytes=1)
    columns = [geo(part)["columns"]["geometry"] for part in parts]
    assert [column["geometry_types"] for column in columns] == [["MultiPolygon"], [], ["MultiPolygon"]]
    exact = shapely.total_bounds(shapely.from_wkb(shapes.slice(0, 50_000).to_numpy(zero_copy_only=False)))
    assert columns[0]["bbox"] == exact.tolist()
    assert "bbox" not in columns[1]
    assert columns[2]["bbox"] == shapely.bounds(shapely.from_wkb(shapes[100_000].as_py())).tolist()
    assert [geo(part)["version"] for part in parts] == ["1.1.0"] * 3
    assert columns[0]["crs"]["id"] == {"authority": "EPSG", "code": 4326}
    assert columns[0]["covering"]["bbox"]["xmin"] == ["_ploti_bbox", "xmin"]
    assert [outcomes(part) for part in (parts[0], parts[2])] == [(0, [])] * 2
    assert failures_without_shapes(parts[1]) == NO_STATISTICS


def test_a_file_without_shapes_is_plain_parquet(tmp_path):
    (part,) = write(tmp_path, rows(10, schema=PLAIN), geometry_type=None)
    assert b"geo" not in pq.read_metadata(part.local).metadata
    assert "_ploti_bbox" not in pq.read_schema(part.local).names


def test_metadata_is_what_was_given_and_no_clock_host_or_path(tmp_path):
    (part,) = write(tmp_path, rows(10))
    stored = {key.decode() for key in pq.read_metadata(part.local).metadata}
    assert stored == {"ploti:dataset_id", "ploti:version", "geo", "ARROW:schema"}
    assert str(tmp_path).encode() not in part.local.read_bytes()


@pytest.mark.parametrize("kind", ["snapshot", "changes", "backfill"])
def test_no_rows_are_one_part_with_every_column_and_no_box(tmp_path, kind):
    """F048."""
    empty = arrow_schema(SHAPED, kind).empty_table()
    (part,) = write(tmp_path, empty, kind=kind)
    assert (part.path, part.rows) == (f"{kind}/part-0000.parquet", 0)
    assert pq.read_schema(part.local).names == [*empty.schema.names, "_ploti_bbox"]
    assert "bbox" not in geo(part)["columns"]["geometry"]
    assert set(opened([part.local]).values()) == {0}
    assert outcomes(part) == (0, [])


def test_an_id_map_is_plain_parquet(tmp_path):
    schema = arrow_schema(SHAPED, "id-map")
    table = pa.table([pa.array(["rec_a"]), pa.array(["rec_b"]), pa.array(["ds_permits"])], schema=schema)
    (part,) = write(tmp_path, table, kind="id-map", geometry_type=None)
    assert part.path == "id-map/part-0000.parquet"
    assert pq.read_table(part.local).to_pylist() == table.to_pylist()


def test_a_changes_file_of_deletes_only_opens_everywhere(tmp_path):
    """F048."""
    deletes = {
        "_ploti_record_id": ["rec_a", "rec_b"],
        "_ploti_op": ["delete"] * 2,
        "_ploti_change": ["removed"] * 2,
        "_ploti_delete_reason": ["removed_at_source"] * 2,
    }
    target = arrow_schema(SHAPED, "changes")
    table = pa.Table.from_batches(with_envelope(iter([pa.RecordBatch.from_pydict(deletes)]), ENVELOPE, target))
    (part,) = write(tmp_path, table, kind="changes")
    assert set(opened([part.local]).values()) == {2}
    assert failures_without_shapes(part) == NO_STATISTICS
    read = pq.read_table(part.local)
    assert read.column("_ploti_bbox").null_count == 2
    assert read.drop_columns(["_ploti_bbox"]).to_pylist() == table.to_pylist()


def test_a_list_of_changed_columns_comes_back(tmp_path):
    changed = [["name", "geometry"], None, []]
    change = {
        "_ploti_record_id": ["a", "b", "c"],
        "_ploti_op": ["upsert"] * 3,
        "_ploti_change": ["changed", "added", "changed"],
        "_ploti_changed_columns": pa.array(changed),
        "_ploti_match_score": [0.9, None, None],
    }
    target = arrow_schema(PLAIN, "changes")
    table = pa.Table.from_batches(with_envelope(iter([pa.RecordBatch.from_pydict(change)]), ENVELOPE, target))
    (part,) = write(tmp_path, table, kind="changes", geometry_type=None)
    lists = duckdb.connect().execute(f"SELECT _ploti_changed_columns FROM read_parquet('{part.local}')").fetchall()
    assert [value for (value,) in lists] == changed


def test_only_null_shapes_write_no_box(tmp_path):
    """F048."""
    (part,) = write(tmp_path, rows(5, geometry=pa.nulls(5, pa.binary())))
    assert "bbox" not in geo(part)["columns"]["geometry"]
    assert b"NaN" not in pq.read_metadata(part.local).metadata[b"geo"]
    assert pq.read_table(part.local).column("_ploti_bbox").null_count == 5
    assert set(opened([part.local]).values()) == {5}
    assert failures_without_shapes(part) == NO_STATISTICS


def test_a_column_that_is_all_null_in_one_part_keeps_its_type(tmp_path):
    """F041."""
    units = pa.concat_arrays([pa.nulls(50_000, pa.int64()), pa.array([35] * 10)])
    parts = write(tmp_path, rows(50_010, units=units), part_bytes=1)
    assert len({pq.read_schema(part.local).remove_metadata() for part in parts}) == 1
    assert pq.read_schema(parts[0].local).field("units").type == pa.int64()
    assert duckdb.connect().execute(
        "SELECT sum(units) FROM read_parquet(?)", [[str(part.local) for part in parts]]
    ).fetchone() == (350,)


@pytest.mark.parametrize("day", [date(9999, 12, 31), date(1, 1, 1), date(1600, 2, 29), date(723, 1, 1)])
def test_far_dates_survive(tmp_path, day):
    """F042."""
    (part,) = write(tmp_path, rows(2, issued=pa.array([day, None])))
    assert pq.read_table(part.local).column("issued").to_pylist() == [day, None]
    query = f"SELECT issued FROM read_parquet('{part.local}')"
    assert duckdb.connect().execute(query).fetchall() == [(day,), (None,)]
    assert polars.read_parquet(part.local)["issued"].to_list() == [day, None]


def test_a_null_where_the_schema_has_none_is_refused(tmp_path):
    table = rows(2)
    broken = table.set_column(0, table.schema.field(0), pa.array(["rec_a", None]))
    with pytest.raises(pa.ArrowInvalid):
        write(tmp_path, broken)


def test_a_batch_with_other_columns_is_refused(tmp_path):
    table = rows(2)
    with pytest.raises(ValueError, match="not those of the file"):
        write_parts(
            iter(table.drop_columns(["units"]).to_batches()),
            kind="snapshot",
            schema=table.schema,
            folder=tmp_path,
            geometry_type="MultiPolygon",
            metadata={},
        )


def test_a_shape_of_another_kind_than_the_schema_names_is_refused(tmp_path):
    with pytest.raises(ValueError, match="MultiPolygon in a column of Point"):
        write(tmp_path, rows(2), geometry_type="Point")


def test_a_mixed_column_holds_every_kind_and_names_them(tmp_path):
    texts = ["POINT (1 2)", "MULTIPOINT ((3 3))", "LINESTRING (0 0, 5 1)", "POLYGON ((7 7, 9 7, 9 9, 7 7))"]
    texts += ["GEOMETRYCOLLECTION (POINT (20 20), LINESTRING (0 0, 1 1))"]
    shapes = normalise_shapes(np.array([wkt.loads(text) for text in texts], dtype=object), ("EPSG:4326",)).wkb
    (part,) = write(tmp_path, rows(5, geometry=shapes), geometry_type="Geometry")
    column = geo(part)["columns"]["geometry"]
    kinds = ["GeometryCollection", "MultiLineString", "MultiPoint", "MultiPolygon", "Point"]
    assert (column["geometry_types"], column["bbox"]) == (kinds, [0, 0, 20, 20])
    assert outcomes(part) == (0, [])
    assert set(opened([part.local]).values()) == {5}


@pytest.fixture(scope="module")
def many():
    """Two row groups and a rest."""
    return rows(110_000)


@pytest.mark.parametrize("batch_rows", [977, 20_000, 50_000, 110_000])
def test_the_same_rows_give_the_same_bytes_whatever_the_batches(tmp_path, many, batch_rows):
    (once,) = write(tmp_path / "once", many, batch_rows=20_000)
    (again,) = write(tmp_path / "again", many, batch_rows=batch_rows)
    assert once.sha256 == again.sha256
    metadata = pq.read_metadata(again.local)
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [50_000, 50_000, 10_000]


def test_the_same_rows_give_the_same_bytes_with_any_number_of_threads(tmp_path, many):
    before = pa.cpu_count(), pa.io_thread_count()
    hashes = set()
    try:
        for threads in (1, 2, 7):
            pa.set_cpu_count(threads)
            pa.set_io_thread_count(threads)
            hashes.add(write(tmp_path / str(threads), many)[0].sha256)
    finally:
        pa.set_cpu_count(before[0])
        pa.set_io_thread_count(before[1])
    assert len(hashes) == 1


def test_sliced_and_chunked_columns_give_the_same_bytes(tmp_path, many):
    head = many.slice(0, 1000)
    spread = pa.concat_tables([many.slice(0, 300), many.slice(300, 700)])
    fresh = pa.Table.from_pylist(head.to_pylist(), schema=head.schema)
    assert len({write(tmp_path / str(n), table)[0].sha256 for n, table in enumerate((head, spread, fresh))}) == 1


def test_parts_stay_below_the_limit(tmp_path, many):
    limit = 6_000_000
    parts = write(tmp_path, many.append_column("noise", random_text(many.num_rows, 40)), part_bytes=limit)
    assert len(parts) > 1
    assert all(part.size_bytes <= limit for part in parts)
    assert [part.path for part in parts] == [f"snapshot/part-{number:04d}.parquet" for number in range(len(parts))]
    assert sum(part.rows for part in parts) == many.num_rows


@pytest.mark.parametrize("kind", ["snapshot", "changes"])
def test_snapshot_and_changes_are_geoparquet_parts_of_about_256_mb_at_most(tmp_path, kind):
    assert inspect.signature(write_parts).parameters["part_bytes"].default == 256_000_000
    operation = {"_ploti_op": pa.array(["upsert"] * 50_500), "_ploti_change": pa.array(["added"] * 50_500)}
    written = rows(50_500, kind, **(operation if kind == "changes" else {}))
    parts = write(tmp_path, written, kind, part_bytes=1)
    assert [part.path for part in parts] == [f"{kind}/part-0000.parquet", f"{kind}/part-0001.parquet"]
    assert {(geo(part)["version"], geo(part)["primary_column"]) for part in parts} == {("1.1.0", "geometry")}


def random_text(count, length):
    letters = np.random.default_rng(3).integers(33, 126, (count, length), dtype=np.uint8)
    return pa.array([row.tobytes().decode("ascii") for row in letters])


def test_large_rows_are_cut_into_smaller_groups_by_their_content_alone(tmp_path):
    """A group is held in memory and must fit into a part."""
    texts = pa.array(["x" * 1_000_000] * 140)
    table = rows(140, schema=PLAIN, name=texts)
    found = [write(tmp_path / str(size), table, batch_rows=size, geometry_type=None)[0] for size in (140, 7)]
    assert found[0].sha256 == found[1].sha256
    metadata = pq.read_metadata(found[0].local)
    groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    assert sum(groups) == 140
    assert max(groups) * 1_000_000 <= geoparquet.GROUP_BYTES


def test_wide_rows_are_cut_into_smaller_groups_too(tmp_path):
    columns, count = 200, 25_000
    wide = Schema(tuple(Column(f"n{at}", "integer", True, f"N{at}") for at in range(columns)))
    numbers = pa.array(range(count), pa.int64())
    table = rows(count, schema=wide, **{f"n{at}": numbers for at in range(columns)})
    found = [write(tmp_path / str(size), table, batch_rows=size, geometry_type=None)[0] for size in (count, 777)]
    assert found[0].sha256 == found[1].sha256
    metadata = pq.read_metadata(found[0].local)
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    assert sum(group.num_rows for group in groups) == count
    assert len(groups) == 2
    assert max(group.num_rows for group in groups) * 8 * columns <= geoparquet.GROUP_BYTES


def test_repeating_columns_have_a_dictionary_and_ids_shapes_and_boxes_none(tmp_path, many):
    (part,) = write(tmp_path, many)
    group = pq.read_metadata(part.local).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    with_dictionary = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert {"_ploti_dataset_id", "_ploti_version", "status", "units"} <= with_dictionary
    assert not with_dictionary & {"_ploti_record_id", "name", "geometry", "_ploti_bbox.xmin"}
    assert {column.compression for column in columns} == {"ZSTD"}
    assert {column.path_in_schema for column in columns if not column.is_stats_set} == {"geometry"}


@given(
    st.lists(
        st.sampled_from(
            [
                None,
                "POINT (1 2)",
                "MULTIPOINT ((1 2))",
                "MULTIPOINT ((1 2), (0 9))",
                "MULTILINESTRING ((0 0, 5 1, 3 8))",
                "MULTILINESTRING ((0 0, 5 1), (3 8, -4 2))",
                "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)))",
                "MULTIPOLYGON (((0 0, 9 0, 9 9, 0 0), (3 1, 3 2, 4 2, 3 1)))",
                "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",
                "GEOMETRYCOLLECTION (POINT (7 7), LINESTRING (0 0, 1 1))",
                "POLYGON ((0 0, 1 0, 1 1, 0 0))",
            ]
        ),
        max_size=12,
    ),
    st.integers(0, 3),
)
def test_boxes_read_from_bytes_are_those_of_the_shapes(texts, skipped):
    column = pa.array([None if text is None else wkt.loads(text).wkb for text in texts], pa.binary()).slice(skipped)
    shapes = shapely.from_wkb(column.to_numpy(zero_copy_only=False))
    boxes, kinds = boxes_and_kinds(column)
    assert np.array_equal(boxes, shapely.bounds(shapes).reshape(-1, 4), equal_nan=True)
    assert kinds == {shape.geom_type for shape in shapes if shape is not None}


@pytest.mark.parametrize("shape", [shapely.Point(1, 2, 3), shapely.Point(1, 2)])
def test_bytes_that_are_not_delivered_wkb_are_refused(tmp_path, shape):
    foreign = shapely.to_wkb(shape, byte_order=1 if shape.has_z else 0)
    with pytest.raises(KeyError):
        write(tmp_path, rows(1, geometry=pa.array([foreign])), geometry_type="Point")


def test_a_failed_write_leaves_no_open_file_and_tells_the_first_error(tmp_path):
    table = rows(10)

    def breaking():
        yield table.to_batches()[0]
        raise OSError("the engine stopped")

    with pytest.raises(OSError, match="the engine stopped"):
        write_parts(
            breaking(),
            kind="snapshot",
            schema=table.schema,
            folder=tmp_path,
            geometry_type="MultiPolygon",
            metadata=METADATA,
        )


def test_boxes_of_points_are_the_points(tmp_path):
    points = normalise_shapes(np.array(shapely.points([-81.5, 2.0], [28.5, 3.0]), dtype=object), ("EPSG:4326",)).wkb
    (part,) = write(tmp_path, rows(2, geometry=points), geometry_type="Point")
    assert geo(part)["columns"]["geometry"]["bbox"] == [-81.5, 3.0, 2.0, 28.5]
    assert pc.struct_field(pq.read_table(part.local).column("_ploti_bbox"), "xmin").to_pylist() == [-81.5, 2.0]
