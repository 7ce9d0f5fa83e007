"""What only a folder of GeoParquet promises: states that readers keep, parts that stay, views, GeoParquet."""

import json
from dataclasses import replace

import duckdb
import geopandas
import pyarrow.dataset
import pyarrow.parquet
import pytest
import shapely
from tests.sync.deliveries import COLUMNS, D, Files, held, rows_of
from tests.sync.kits import ParquetKit

from ploti import Client
from ploti.contract.files import CHANGE, ENVELOPE, OP, RECORD_ID
from ploti.sync.loop import repair, verify
from ploti.sync.target import DatasetInfo, Delivery, StepBlocked, StepRefused, TargetBusy, TargetUnusable, reach_nothing
from ploti.sync.targets import open_target
from ploti.sync.targets._folder_books import Folder
from ploti.sync.targets.geoparquet import ParquetTarget
from ploti.testing.feed import Feed, parquet, record_id
from ploti.testing.stories import PERMITS, A, permits
from ploti.testing.targets import check_rows, sync_feed

INFO = DatasetInfo("Permits", "fl-county-orange", "Orange", None, "Clerk", None, "cc-by", None, None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records"


@pytest.fixture
def target(path):
    return open_target(f"parquet:///{path}")


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def read(path):
    return pyarrow.dataset.dataset(path).to_table()


def shaped_part(path, version, points, put=None):
    """A GeoParquet part as geopandas writes it, with the envelope ahead, and the marks of changes where asked for."""
    frame = geopandas.GeoDataFrame(
        {RECORD_ID: [record_id(at) for at in points]}
        | {name: [None] * len(points) for name in ENVELOPE if name not in {RECORD_ID, "_ploti_version"}}
        | {"_ploti_version": [version] * len(points)}
        | ({} if put is None else {OP: ["upsert"] * len(points), CHANGE: ["changed"] * len(points)}),
        geometry=[shapely.Point(at, at) for at in points],
        crs=4326,
    )
    schema = {"_ploti_fetched_at": "datetime64[us, UTC]"} | dict.fromkeys(
        ("_ploti_dataset_id", "_ploti_place_id", "_ploti_source_url"), "str"
    )
    frame.astype(schema).to_parquet(path)
    return path


def test_parts_stay_geoparquet_through_changes(tmp_path, path, target):
    schema = {"datasetId": D, "schemaVersion": "1.0", "firstVersion": 1, "keyColumns": [], "columns": [
        {"name": "geometry", "type": "geometry", "nullable": True}]}  # fmt: skip
    first = shaped_part(tmp_path / "a", 1, range(3))
    target.load(Delivery(D, 1, schema, 3, {}, snapshot=(first,)), held(1), INFO)
    assert len(geopandas.read_parquet(path / D / "current")) == 3
    put = shaped_part(tmp_path / "b", 2, [2, 7], put=True)
    target.apply(Delivery(D, 2, schema, 4, {}, changes=(put,)), held(2))
    frame = geopandas.read_parquet(path / D / "current")
    assert frame.crs.to_epsg() == 4326 or frame.crs.to_string() == "OGC:CRS84"
    assert sorted(frame.geometry.x) == [0, 1, 2, 7]
    with duckdb.connect(str(path / "views.duckdb"), read_only=True) as db:
        assert db.execute(f"SELECT typeof(geometry), count(*) FROM {D} GROUP BY 1").fetchall()[0][1] == 4


def test_a_reader_in_the_state_before_reads_on(path, target, files):
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    before = (path / D / "current").resolve()
    reader = pyarrow.dataset.dataset(before)
    target.apply(files.changes(2, [(1, {"name": "z"})], rows=3), held(2))
    assert sorted(reader.to_table()["name"].to_pylist()) == ["n0", "n1", "n2"]
    assert sorted(read(path / D / "current")["name"].to_pylist()) == ["n0", "n2", "z"]
    target.apply(files.changes(3, [(2, {"name": "y"})], rows=3), held(3))
    assert not before.exists()
    assert len([each for each in (path / D).iterdir() if not each.is_symlink()]) == 2


def test_parts_that_no_change_touches_stay_and_small_ones_come_together(path, files):
    target = ParquetTarget(Folder(path), small_rows=3)
    whole = files.snapshot(1, rows_of(9))
    parts = tuple(files.snapshot(1, rows_of(9)[at : at + 4]).snapshot[0] for at in (0, 4, 8))
    target.load(Delivery(D, 1, whole.schema, 9, {}, snapshot=parts), held(1), None)
    names = {each.name: each.stat().st_ino for each in (path / D / "current").glob("*.parquet")}
    assert len(names) == 3
    target.apply(files.changes(2, [(5, {"name": "z"}), (70, {"name": "new"})], rows=10), held(2))
    after = {each.name: each.stat().st_ino for each in (path / D / "current").glob("*.parquet")}
    assert len(after) == 3
    assert len(after.items() & names.items()) == 1
    counts = sorted(pyarrow.parquet.read_metadata(each).num_rows for each in (path / D / "current").glob("*.parquet"))
    assert counts == [3, 3, 4]


def test_views_and_a_table_say_what_is_there(path, target, files):
    target.load(files.snapshot(1, rows_of(3)), held(1), INFO)
    with target.lock():
        target.record("sub_a", "evt_000000000001", [held(1, "ds_b")])
    with duckdb.connect(str(path / "views.duckdb"), read_only=True) as db:
        assert db.execute(f"SELECT count(*) FROM {D}").fetchall() == [(3,)]
        told = "SELECT dataset_id, title, license_id, loaded_version, rows, state FROM _ploti_datasets ORDER BY 1"
        assert db.execute(told).fetchall() == [(D, "Permits", "cc-by", 1, 3, "ok"), ("ds_b", None, None, 1, 0, "ok")]
    target.note({D: DatasetInfo("Other", None, None, None, None, None, None, None, None)})
    assert {each.held.dataset_id: each.title for each in target.status()} == {D: "Other", "ds_b": None}


def test_views_are_made_few_times_in_a_run_and_never_name_a_state_that_is_gone(path, target, files):
    names = [f"ds_{letter}" for letter in "abcdef"]
    made, rows = set(), {}

    def load(name, version):
        target.load(replace(files.snapshot(version, rows_of(version)), dataset_id=name), held(version, name), None)
        made.add((path / "views.duckdb").stat().st_mtime_ns)
        rows[name] = {version, version - 1}
        for shown, count in read_views(path).items():
            assert count in rows[shown]

    with target.lock():
        for name in names:
            load(name, 1)
    assert len(made) == 3
    made.clear()
    with target.lock():
        for version in (2, 3, 4):
            for name in names[:2]:
                load(name, version)
    assert len(made) < 6
    with pytest.raises(KeyboardInterrupt), target.lock():  # noqa: PT012  # what the run did before it was stopped
        for name in names[2:4]:
            load(name, 2)
        raise KeyboardInterrupt
    assert read_views(path) == dict(zip(names, (4, 4, 2, 2, 1, 1), strict=True))


def read_views(path):
    with duckdb.connect(str(path / "views.duckdb"), read_only=True) as db:
        names = db.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for (name,) in names}


def _as_text(files):
    part = files.write(parquet({**ENVELOPE, "name": "string", "value": "string"}, []))
    return Delivery(D, 2, files.snapshot(2, []).schema, 0, {}, snapshot=(part,))


BROKEN = [
    ("fewer rows than announced", lambda files: files.snapshot(2, rows_of(3), announced=4), "3 rows where 4"),
    ("a record twice", lambda files: files.snapshot(2, [*rows_of(3), (1, {})]), "2 times"),
    ("another type", _as_text, "'value' as VARCHAR instead of DOUBLE"),
    ("no Parquet", lambda files: Delivery(D, 2, files.snapshot(2, []).schema, 1, {}, (files.write(b"PAR1no"),)), "."),
]


@pytest.mark.parametrize(("make", "why"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_snapshot_is_refused_and_the_rows_stay(path, target, files, make, why):
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    with pytest.raises(StepRefused, match=why):
        target.load(make(files), held(2), None)
    assert read(path / D / "current").num_rows == 5
    assert target.state().datasets[D].version == 1


def test_a_folder_of_the_users_own_is_left_alone(path, target, files):
    (path / D).mkdir(parents=True)
    (path / D / "mine.csv").write_text("x")
    with pytest.raises(StepBlocked, match=r"mine\.csv"):
        target.load(files.snapshot(1, rows_of(5)), held(1), None)


def test_a_dataset_without_rows_or_parts_is_a_table_all_the_same(path, target, files):
    target.load(Delivery(D, 1, files.snapshot(1, []).schema, 0, {}), held(1), None)
    assert read(path / D / "current").column_names == [*ENVELOPE, *COLUMNS]
    target.apply(files.changes(2, [(1, {"name": "z"})], rows=1), held(2))
    assert read(path / D / "current")["name"].to_pylist() == ["z"]


def test_another_layout_and_a_book_that_is_none_are_refused(path, target):
    target.record("sub_a", None, [])
    book = path / "_ploti_sync.json"
    for text in (json.dumps(json.loads(book.read_text()) | {"layout": 99}), "{", "[]"):
        book.write_text(text)
        with pytest.raises(TargetUnusable):
            target.state()


def test_a_second_sync_is_kept_away(path, target):
    with target.lock(), pytest.raises(TargetBusy, match="Another sync"), open_target(f"parquet:///{path}").lock():
        pytest.fail("two syncs at once")


SPOILT = [
    ("a changed value", lambda frame: frame.assign(units=frame.units + (frame.units == 3)), (0, 1, 0)),
    ("lost and doubled rows", lambda frame: frame.iloc[1:], (1, 0, 0)),
    ("a column gone", lambda frame: frame.drop(columns="units"), None),
]


@pytest.mark.parametrize(("spoil", "moved"), [row[1:] for row in SPOILT], ids=[row[0] for row in SPOILT])
def test_what_was_spoilt_is_found_and_put_right(tmp_path, spoil, moved):
    kit, feed = ParquetKit(tmp_path), Feed()
    feed.add(A, PERMITS, permits(*range(30)))
    sync_feed(feed, kit)
    (part,) = (kit.path / A / "current").glob("*.parquet")
    spoil(pyarrow.parquet.read_table(part).to_pandas()).to_parquet(part)
    with Client(**feed.api.client_options) as client:
        assert not verify(client, kit.open(reach_nothing))[0].equal
        (done,) = repair(client, kit.open(reach_nothing))
        assert done.after.equal
        assert moved is None or (done.moved.added, done.moved.changed, done.moved.removed) == moved
        check_rows(feed, kit, A, 1)
        for each in (kit.path / A / "current").glob("*.parquet"):
            each.unlink()
        assert "ploti sync repair" in verify(client, kit.open(reach_nothing))[0].problem
        assert repair(client, kit.open(reach_nothing))[0].after.equal
