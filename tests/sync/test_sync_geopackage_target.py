"""What only the GeoPackage target promises (D11.9): read by GDAL, kept spatial index, users' objects, waiting."""

import sqlite3
import struct
import threading
from contextlib import closing
from datetime import UTC, date, datetime

import pyogrio
import pytest
import shapely
from tests.contract.golden import RECORDS
from tests.sync.deliveries import COLUMNS, D, Files, held, rows_of

from ploti.contract.digest import Digest
from ploti.sync.target import DatasetInfo, StepBlocked, StepRefused, TargetBusy, TargetUnusable
from ploti.sync.targets import open_target
from ploti.sync.targets._geopackage_file import GeoPackageFile
from ploti.sync.targets._geopackage_shapes import bounds_of, packed, register, wkb_of
from ploti.sync.targets.geopackage import GeoPackageTarget
from ploti.testing.feed import record_id

SHAPED = {"name": "string", "geometry": "geometry"}
INFO = DatasetInfo("Parcels", "fl-county-orange", "Orange", None, "Appraiser", None, "cc-by", "By the county", None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.gpkg"


@pytest.fixture
def target(path):
    return open_target(f"sqlite:///{path}")


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def query(path, sql, values=()):
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        register(db)
        return db.execute(sql, values).fetchall()


def square(west, south):
    return shapely.to_wkb(shapely.MultiPolygon([shapely.box(west, south, west + 1, south + 1)]), byte_order=1)


def point(x, y):
    return shapely.to_wkb(shapely.Point(x, y), byte_order=1)


def indexed(path):
    """The rows of the spatial index, by the number in their name."""
    sql = f'SELECT name, minx, miny FROM "rtree_{D}_geometry" JOIN {D} ON fid = id ORDER BY name'
    return [(name, round(x, 3), round(y, 3)) for name, x, y in query(path, sql)]


def test_gdal_reads_every_type_and_shape_as_a_layer(path, target, files):
    columns = {**SHAPED, "whole": "integer", "real": "number", "yes": "boolean", "day": "date", "at": "timestamp",
               "nested": "json"}  # fmt: skip
    moment = datetime(2026, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)
    row = {"name": "a", "whole": 2**53 + 1, "real": 0.5, "yes": True, "day": date(1600, 2, 29), "at": moment,
           "nested": '{"a":1}', "geometry": point(-81.25, 28.5)}  # fmt: skip
    delivery = files.snapshot(1, [(1, row), (2, {})], columns)
    delivery.schema["columns"][0] |= {"description": "The owner's name.", "sourceName": "OWN_NM"}
    delivery.schema["columns"][1]["geometryType"] = "Point"
    target.load(delivery, held(1), INFO)
    assert dict(pyogrio.list_layers(path).tolist()) == {D: "Point", "_ploti_datasets": None}
    told = pyogrio.read_info(path, layer=D)
    assert (told["crs"], told["fid_column"], told["features"]) == ("EPSG:4326", "fid", 2)
    assert told["total_bounds"] == pytest.approx((-81.25, 28.5, -81.25, 28.5), abs=1e-5)
    types = dict(zip(told["fields"], told["ogr_types"], strict=True))
    assert {name: types[name] for name in columns if name != "geometry"} == {
        "name": "OFTString", "whole": "OFTInteger64", "real": "OFTReal", "yes": "OFTInteger", "day": "OFTDate",
        "at": "OFTDateTime", "nested": "OFTString",
    }  # fmt: skip
    read = pyogrio.read_dataframe(path, layer=D, where="name = 'a'", datetime_as_string=True).iloc[0]
    assert (read.whole, read.real, read.yes, read.nested) == (2**53 + 1, 0.5, True, {"a": 1})
    assert read["at"].startswith("2026-05-06T07:08:09.123")
    assert shapely.to_wkb(read.geometry, byte_order=1) == row["geometry"]
    assert query(path, f"SELECT day FROM {D}") == [("1600-02-29",), (None,)]
    described = "SELECT description FROM gpkg_data_columns WHERE column_name = 'name'"
    assert query(path, described) == [("The owner's name. Source column: OWN_NM",)]
    assert query(path, "SELECT description FROM gpkg_contents WHERE table_name = ?", [D]) == [
        ("Parcels. Appraiser. By the county",)
    ]


def test_the_file_has_what_the_standard_asks_for(path, target, files):
    target.load(files.snapshot(1, [(1, {"geometry": point(1, 2)})], SHAPED), held(1), None)
    assert query(path, "PRAGMA application_id") == [(0x47504B47,)]
    assert query(path, "SELECT srs_id FROM gpkg_spatial_ref_sys ORDER BY 1") == [(-1,), (0,), (4326,)]
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    assert query(path, "PRAGMA foreign_key_check") == []
    listed = "SELECT table_name, column_name, geometry_type_name, srs_id, z, m FROM gpkg_geometry_columns"
    assert query(path, listed) == [(D, "geometry", "GEOMETRY", 4326, 0, 0)]
    named = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? ORDER BY name"
    assert [name.rpartition("_")[2] for (name,) in query(path, named, [D])] == [
        "delete", "insert", "update2", "update4", "update5", "update6", "update7"
    ]  # fmt: skip


def test_the_spatial_index_follows_changes_of_every_kind(path, target, files):
    rows = [(at, {"name": f"n{at}", "geometry": point(at, at)}) for at in range(1, 5)]
    target.load(files.snapshot(1, rows, SHAPED), held(1), None)
    put = [
        (1, {"name": "n1", "geometry": square(7, 8)}),
        (2, {"name": "n2"}),
        (9, {"name": "n9", "geometry": point(9, 9)}),
    ]
    target.apply(files.changes(2, put, drop=(3,), rows=4, columns=SHAPED), held(2))
    assert indexed(path) == [("n1", 7, 8), ("n4", 4, 4), ("n9", 9, 9)]
    found = pyogrio.read_dataframe(path, layer=D, bbox=(8.5, 8.5, 9.5, 9.5))
    assert sorted(found.name) == ["n9"]
    assert pyogrio.read_info(path, layer=D)["total_bounds"] == pytest.approx((1, 1, 9, 9))
    target.load(
        files.snapshot(3, [(2, {"name": "n2", "geometry": point(5, 5)}), (4, rows[3][1])], SHAPED), held(3), None
    )
    assert indexed(path) == [("n2", 5, 5), ("n4", 4, 4)]
    assert query(path, f"SELECT min_x, max_x FROM gpkg_contents WHERE table_name = '{D}'") == [(4, 5)]


@pytest.mark.parametrize("way", ["apply", "load"])
def test_a_spatial_index_whose_triggers_a_user_dropped_is_made_anew(path, target, files, way):
    """As those do whose SQLite has not the functions that the triggers call."""
    rows = [(at, {"name": f"n{at}", "geometry": point(at, at)}) for at in range(1, 4)]
    target.load(files.snapshot(1, rows, SHAPED), held(1), None)
    query(path, f"DROP TRIGGER rtree_{D}_geometry_update6")
    query(path, f"UPDATE {D} SET geometry = (SELECT geometry FROM {D} WHERE name = 'n3') WHERE name = 'n1'")
    put = (2, {"name": "n2", "geometry": point(7, 8)})
    if way == "apply":
        target.apply(files.changes(2, [put], rows=3, columns=SHAPED), held(2))
    else:
        target.load(files.snapshot(2, [rows[0], put, rows[2]], SHAPED), held(2), None)
    assert indexed(path) == [("n1", 3 if way == "apply" else 1, 3 if way == "apply" else 1), ("n2", 7, 8), ("n3", 3, 3)]


def test_a_shape_column_that_joins_later_makes_the_table_a_layer(path, target, files):
    target.load(files.snapshot(1, rows_of(2)), held(1), None)
    assert pyogrio.list_layers(path)[:, 1].tolist() == [None, None]
    wider = {**COLUMNS, "geometry": "geometry"}
    target.apply(files.changes(2, [(1, {"name": "n1", "geometry": point(1, 2)})], rows=2, columns=wider), held(2))
    assert indexed(path) == [("n1", 1, 2)]
    assert pyogrio.read_dataframe(path, layer=D).geometry.notna().sum() == 1


def test_a_record_keeps_its_fid_through_changes_reloads_and_other_columns(path, target, files):
    target.load(files.snapshot(1, rows_of(4)), held(1), None)
    fids = dict(query(path, f"SELECT _ploti_record_id, fid FROM {D}"))
    target.apply(files.changes(2, [(1, {"name": "z"})], drop=(3,), rows=3), held(2))
    target.load(files.snapshot(3, [*rows_of(3, "y"), (8, {})]), held(3), None)
    retyped = {"name": "integer", "value": "number"}
    target.load(files.snapshot(4, [(0, {"name": 1}), (1, {"name": 2}), (9, {"name": 3})], retyped), held(4), None)
    now = dict(query(path, f"SELECT _ploti_record_id, fid FROM {D}"))
    assert now == {record_id(0): fids[record_id(0)], record_id(1): fids[record_id(1)], record_id(9): 6}


def test_rows_that_agree_keep_the_version_in_which_they_arrived(path, target, files):
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    target.load(files.snapshot(2, [*rows_of(2), (2, {"name": "other"})]), held(2), None)
    assert query(path, f"SELECT _ploti_version FROM {D} ORDER BY fid") == [(1,), (1,), (2,)]


def test_what_users_built_survives_a_reload_and_other_columns(path, target, files):
    """F075."""
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    for sql in (
        f"CREATE VIEW named AS SELECT name FROM {D}",
        f"CREATE UNIQUE INDEX by_name ON {D}(name)",
        f"CREATE TABLE mine (id TEXT REFERENCES {D}(_ploti_record_id))",
        f"INSERT INTO mine VALUES ('{record_id(1)}')",
        f"ALTER TABLE {D} ADD COLUMN my_note TEXT",
        f"UPDATE {D} SET my_note = 'seen' WHERE name = 'n1'",
        "CREATE TABLE log (x TEXT)",
        f"CREATE TRIGGER told AFTER DELETE ON {D} BEGIN INSERT INTO log VALUES (OLD.name); END",
    ):
        query(path, sql)
    target.load(files.snapshot(2, [(1, {"name": "n2"}), (2, {"name": "n1"})]), held(2), None)
    retyped = {"name": "string", "value": "string"}
    target.load(files.snapshot(3, [(1, {"name": "n2", "value": "x"})], retyped), held(3), None)
    assert query(path, "SELECT * FROM named") == [("n2",)]
    assert query(path, f"SELECT value, my_note FROM {D}") == [("x", "seen")]
    objects = "SELECT name FROM sqlite_master WHERE name IN ('by_name', 'told') ORDER BY name"
    assert query(path, objects) == [("by_name",), ("told",)]
    assert ("n0",) in query(path, "SELECT x FROM log")
    with pytest.raises(StepBlocked, match="rows of your table mine"):
        target.load(
            files.snapshot(4, [(5, {"name": 1, "value": "x"})], {"name": "integer", "value": "string"}), held(4), None
        )
    with pytest.raises(StepBlocked, match="FOREIGN KEY"):
        target.load(files.snapshot(4, [(5, {"name": "a", "value": "x"})], retyped), held(4), None)
    assert query(path, f"SELECT value, my_note FROM {D}") == [("x", "seen")]


BUILT = [
    ("a view on a column that goes", f"CREATE VIEW of_value AS SELECT value FROM {D}", "of_value"),
    ("an index on a column that goes", f"CREATE INDEX by_value ON {D}(value)", "by_value"),
]


@pytest.mark.parametrize(("sql", "named"), [row[1:] for row in BUILT], ids=[row[0] for row in BUILT])
def test_what_cannot_follow_blocks_and_is_named(path, target, files, sql, named):
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    query(path, sql)
    with pytest.raises(StepBlocked, match=named):
        target.load(files.snapshot(2, [(1, {"name": "a"})], {"name": "string"}), held(2), None)
    assert query(path, f"SELECT count(*), max(_ploti_version) FROM {D}") == [(5, 1)]


def test_a_table_of_the_same_name_that_sync_did_not_make_is_left_alone(path, target, files):
    query(path, f"CREATE TABLE {D} AS SELECT 1 AS x")
    with pytest.raises(StepBlocked, match="rename or drop it"):
        target.load(files.snapshot(1, rows_of(5)), held(1), None)
    assert query(path, f"SELECT * FROM {D}") == [(1,)]


BROKEN = [
    ("fewer rows than announced", lambda files: files.snapshot(2, rows_of(3), announced=4), "3 rows where 4"),
    ("a record twice", lambda files: files.snapshot(2, [*rows_of(3), (1, {})]), "2 times"),
    ("a record without an id", lambda files: files.snapshot(2, [(1, {"_ploti_record_id": None})]), "without an id"),
    ("no shape", lambda files: files.snapshot(2, [(1, {"geometry": b"\x01\x03"})], SHAPED), "not the WKB"),
]


@pytest.mark.parametrize("loaded", [False, True], ids=["first", "reload"])
@pytest.mark.parametrize(("make", "why"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_snapshot_is_refused_and_the_rows_stay(path, target, files, make, why, loaded):
    if loaded:
        target.load(files.snapshot(1, rows_of(5)), held(1), None)
    with pytest.raises(StepRefused, match=why):
        target.load(make(files), held(2), None)
    if loaded:
        assert query(path, f"SELECT count(*), max(_ploti_version) FROM {D}") == [(5, 1)]
    else:
        assert query(path, "SELECT name FROM sqlite_master WHERE name = ?", [D]) == []


def test_a_source_column_called_fid_gets_a_mark(path, target, files):
    columns = {"FID": "integer", "fid_": "string", "rowid": "string"}
    target.load(files.snapshot(1, [(1, {"FID": 7, "fid_": "x", "rowid": "r"})], columns), held(1), None)
    assert query(path, f'SELECT fid, "FID__", fid_, "rowid" FROM {D}') == [(1, 7, "x", "r")]
    assert pyogrio.read_dataframe(path, layer=D, read_geometry=False, fid_as_index=True).index.tolist() == [1]


def test_times_too_fine_for_a_geopackage_are_text_in_their_column(path, target, files):
    columns, fine = {"at": "timestamp"}, datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    target.load(files.snapshot(1, [(1, {"at": fine.replace(microsecond=5000)})], columns), held(1), None)
    types = f"SELECT type FROM pragma_table_info('{D}') WHERE name = 'at'"
    assert query(path, types) == [("DATETIME",)]
    target.load(files.snapshot(2, [(1, {"at": fine})], columns), held(2), None)
    assert query(path, types) == [("TEXT",)]
    assert query(path, f"SELECT at FROM {D}") == [("2026-01-01T00:00:00.000005Z",)]


def test_readers_see_the_old_rows_or_the_new_and_never_wait(path, files):
    open_target(f"sqlite:///{path}").load(files.snapshot(1, rows_of(50)), held(1), None)
    seen = []

    def look(step):
        seen.append((step, query(path, f"SELECT count(*), max(name) FROM {D}")[0]))

    open_target(f"sqlite:///{path}", reach=look).load(files.snapshot(2, rows_of(70, "z")), held(2), None)
    assert [rows for step, rows in seen if step in {"sync.rows_written", "sync.before_commit"}] == [(50, "n9")] * 2
    assert seen[-1] == ("sync.after_commit", (70, "z9"))


def writing(path):
    """Take the file's write lock; gives what lets it go."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("BEGIN IMMEDIATE")
    return db.close


def test_another_writer_is_waited_for_and_told_of(path, target, files):
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    said = []
    file, release = GeoPackageFile(path, said.append, quiet_seconds=0), writing(path)
    threading.Timer(0.3, release).start()
    moved = GeoPackageTarget(file).load(files.snapshot(2, rows_of(4)), held(2), None)
    assert moved.rows == 4
    assert said == ["waiting for another program that is writing to records.gpkg"]


def test_a_read_that_turns_into_a_write_meets_no_lock_and_a_second_sync_is_refused(path, target, files):
    """F077: sync reads, then writes, while a reader keeps its transaction open and a second sync comes."""
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    with target.lock(), closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute(f"SELECT count(*) FROM {D}").fetchone() == (3,)
        target.apply(files.changes(2, [(1, {"name": "z"})], [2], rows=2), held(2))
        with pytest.raises(TargetBusy, match="process"), open_target(f"sqlite:///{path}").lock():
            pass
        assert reader.execute(f"SELECT count(*) FROM {D}").fetchone() == (3,)
        reader.execute("COMMIT")
        assert reader.execute(f"SELECT count(*) FROM {D}").fetchone() == (2,)


def test_a_file_that_stays_locked_is_given_up(path, target, files):
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    release = writing(path)
    with pytest.raises(TargetBusy, match="Another program is writing"):
        GeoPackageTarget(GeoPackageFile(path, wait_seconds=0.05)).record("sub_a", None, [])
    release()


def test_a_run_leaves_one_file_unless_others_have_it_open(path, target, files):
    with target.lock():
        target.load(files.snapshot(1, rows_of(3)), held(1), None)
        assert query(path, "PRAGMA journal_mode") == [("wal",)]
    assert query(path, "PRAGMA journal_mode") == [("delete",)]
    with target.lock(), closing(sqlite3.connect(path)) as reader:
        target.record("sub_a", None, [])
        reader.execute("BEGIN")
        assert reader.execute(f"SELECT count(*) FROM {D}").fetchone() == (3,)
    assert target.state().subscription_id == "sub_a"


def test_another_programs_file_is_refused(path, target):
    query(path, "PRAGMA application_id = 77")
    with pytest.raises(TargetUnusable, match="another program"):
        target.record("sub_a", None, [])


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://host/file", "sqlite:///a?b=c"])
def test_an_address_that_names_no_file_is_refused(url):
    with pytest.raises(TargetUnusable, match=r"sqlite:///records\.gpkg"):
        open_target(url)


def test_a_file_of_the_users_own_layers_is_added_to(path, target, files):
    frame = pyogrio.read_dataframe
    import geopandas

    geopandas.GeoDataFrame({"a": [1]}, geometry=[shapely.Point(1, 2)], crs=4326).to_file(path, layer="mine")
    target.load(files.snapshot(1, [(1, {"name": "x", "geometry": point(3, 4)})], SHAPED), held(1), None)
    assert frame(path, layer="mine").a.tolist() == [1]
    assert frame(path, layer=D).name.tolist() == ["x"]


# shapes and digest

SHAPES = [
    ("point", shapely.Point(1, 2), (1, 1, 2, 2)),
    ("line", shapely.MultiLineString([[(3, 1), (1, 4)], [(9, 9), (8, 8)]]), (1, 9, 1, 9)),
    ("hole", shapely.MultiPolygon([shapely.box(0, 0, 9, 9) - shapely.box(1, 1, 2, 2)]), (0, 9, 0, 9)),
    ("mixed", shapely.GeometryCollection([shapely.Point(-5, 1), shapely.LineString([(0, 7), (1, 1)])]), (-5, 1, 1, 7)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "bounds"), [row[1:] for row in SHAPES], ids=[row[0] for row in SHAPES])
def test_a_shape_carries_its_bounds_and_its_bytes(shape, bounds):
    wkb = shapely.to_wkb(shape, byte_order=1)
    assert bounds_of(packed(wkb)) == bounds
    assert wkb_of(packed(wkb)) == wkb
    bare = b"GP\x00\x01" + struct.pack("<i", 4326) + wkb
    assert bounds_of(bare) == bounds
    assert wkb_of(bare) == wkb


@pytest.mark.parametrize("wkb", [b"", b"\x01", b"\x00\x00\x00\x00\x01" + b"\0" * 16, b"\x01\x02\0\0\0\xff\xff\xff\xff"])
def test_bytes_that_are_no_shape_are_refused(wkb):
    with pytest.raises(StepRefused, match="WKB"):
        packed(wkb)
    assert bounds_of(b"GP\x00\x01" + struct.pack("<i", 4326) + wkb) is None


def test_the_digest_is_the_contracts_for_golden_values(target, files):
    tables = []
    for golden in RECORDS:
        fits = (columns for columns, _ in tables if all(columns.get(n, t) == t for n, t in golden.columns.items()))
        columns = next(fits, None)
        if columns is None:
            columns = {}
            tables.append((columns, []))
        columns |= golden.columns
        next(records for other, records in tables if other is columns).append(golden)
    assert len(tables) < 5
    for columns, records in tables:
        rows = [(0, {"_ploti_record_id": golden.record_id, **golden.values}) for golden in records]
        target.load(files.snapshot(1, rows, columns), held(1), None)
        expected = Digest()
        for golden in records:
            expected.add(golden.record_id, golden.hash)
        assert target.digest(D, []) == expected
