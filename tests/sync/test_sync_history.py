"""`--history` keeps each row's past: every version that was loaded can be had again (D11.5)."""

import json
import sqlite3
import warnings
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import geopandas
import psycopg
import pyarrow.dataset
import pyarrow.parquet
import pytest
import shapely
from tests.sync.deliveries import D, Files, held, rows_of
from tests.sync.kits import GeoPackageKit, ParquetKit, value_of
from tests.sync.test_sync_duckdb_stories import DuckKit
from tests.sync.test_sync_postgresql_stories import PostgresKit

from ploti import Client
from ploti.sync.loop import resync, sync, verify
from ploti.sync.target import reach_nothing
from ploti.sync.targets import open_target
from ploti.sync.targets._folder_books import Folder
from ploti.sync.targets.geoparquet import ParquetTarget
from ploti.testing.fake_api import FakeApi
from ploti.testing.feed import SUBSCRIPTION, Feed, record_id
from ploti.testing.stories import PERMITS, STORIES, A, permit, permits
from ploti.testing.targets import sync_feed


class Duck(DuckKit):
    def open(self, reach):
        return open_target(f"duckdb:///{self.path}", reach=reach, history=True)

    def query(self, sql):
        with duckdb.connect(str(self.path)) as db:
            return db.execute(sql).fetchall()

    def past(self, dataset_id):
        with duckdb.connect(str(self.path)) as db:
            db.execute("SET TimeZone = 'UTC'")
            found = db.execute(f'SELECT * FROM "{dataset_id}_history"')
            return [
                dict(zip([column[0] for column in found.description], row, strict=True)) for row in found.fetchall()
            ]


class Postgres(PostgresKit):
    def open(self, reach):
        return open_target(f"{self.url}&schema={self.schema}", reach=reach, history=True)

    def query(self, sql):
        with psycopg.connect(self.url) as db:
            db.execute(f"SET search_path = {self.schema}".encode())
            return db.execute(sql.encode()).fetchall()

    def past(self, dataset_id):
        with psycopg.connect(self.url) as db:
            found = db.execute(f'SELECT * FROM {self.schema}."{dataset_id}_history"'.encode())
            return [dict(zip([column.name for column in found.description], row, strict=True)) for row in found]


class GeoPackage(GeoPackageKit):
    def open(self, reach):
        return open_target(f"sqlite:///{self.path}", reach=reach, history=True)

    def query(self, sql):
        with closing(sqlite3.connect(self.path)) as db:
            return db.execute(sql).fetchall()

    def past(self, dataset_id):
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            told = db.execute("SELECT schema FROM _ploti_datasets WHERE dataset_id = ?", [dataset_id]).fetchone()[0]
            types = {column["name"]: column["type"] for column in json.loads(told)["columns"]}
            types |= dict.fromkeys(("_ploti_valid_from", "_ploti_valid_to"), "timestamp")
            found = db.execute(f'SELECT * FROM "{dataset_id}_history"')
            names = [column[0] for column in found.description]
            return [
                {name: value_of(value, types.get(name)) for name, value in zip(names, row, strict=True)}
                for row in found
            ]


class Parquet(ParquetKit):
    def open(self, reach):
        return open_target(f"parquet:///{self.path}", reach=reach, history=True)

    def query(self, sql):
        with duckdb.connect(str(self.path / "views.duckdb"), read_only=True) as db:
            return db.execute(sql).fetchall()

    def past(self, dataset_id):
        return pyarrow.dataset.dataset(self.path / dataset_id / "current" / "_history").to_table().to_pylist()


KITS = {"duckdb": Duck, "geopackage": GeoPackage, "parquet": Parquet, "postgresql": Postgres}


@pytest.fixture(params=KITS)
def kit(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    at = request.getfixturevalue("postgres_database") if request.param == "postgresql" else tmp_path
    return KITS[request.param](at)


def as_of(past, version):
    """The table as it was at a version, by record id."""
    rows = {}
    for row in past:
        until = row["_ploti_valid_to_version"]
        if row["_ploti_valid_from_version"] <= version and (until is None or until > version):
            assert row["_ploti_record_id"] not in rows
            rows[row["_ploti_record_id"]] = row
    return rows


def check_past(feed, kit, dataset_id, versions):
    past = kit.past(dataset_id)
    for version in versions:
        wanted = feed.snapshots[dataset_id][version]
        names = [column["name"] for column in wanted.schema["columns"]]
        found = {id_: {name: row[name] for name in names} for id_, row in as_of(past, version).items()}
        assert found == {id_: {name: row.get(name) for name in names} for id_, row in wanted.rows.items()}, version


@pytest.mark.parametrize("name", ["changes", "new_column"])
def test_every_version_that_was_loaded_can_be_had_again(kit, name):
    feed, loaded = Feed(), {}
    for expected in STORIES[name](feed):
        sync_feed(feed, kit)
        for dataset_id, (version, _) in expected.items():
            loaded.setdefault(dataset_id, set()).add(version)
    for dataset_id, versions in loaded.items():
        check_past(feed, kit, dataset_id, versions)


def test_only_rows_that_changed_get_another_state_and_times_stand_beside(kit):
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(5)))
    sync_feed(feed, kit)
    feed.reload(A, {**permits(*range(4)), record_id(0): permits(9)[record_id(9)]}, "previous_unavailable")
    sync_feed(feed, kit)
    past = kit.past(A)
    assert len(past) == 6
    closed = [row for row in past if row["_ploti_valid_to_version"] == 2]
    assert {row["_ploti_record_id"] for row in closed} == {record_id(0), record_id(4)}
    assert all(row["_ploti_valid_from"] < row["_ploti_valid_to"] for row in closed)


def test_columns_that_go_or_change_type_keep_their_past(kit):
    feed = Feed()
    feed.add(A, PERMITS, permits(1, 2))
    sync_feed(feed, kit)
    narrower = {"number": "string", "value": "string"}
    feed.reload(A, {record_id(1): {"number": "P", "value": "ten"}}, "schema_changed", columns=narrower)
    sync_feed(feed, kit)
    with Client(**feed.api.client_options) as client:
        resync(client, kit.open(reach_nothing), A)
    past = kit.past(A)
    assert {id_: row["value_until_2"] for id_, row in as_of(past, 1).items()} == dict.fromkeys(permits(1, 2), 10.5)
    assert {row["units"] for row in as_of(past, 1).values()} == {1, 2}
    assert [(row["value"], row["units"]) for row in as_of(past, 2).values()] == [("ten", None)]


def test_a_history_once_begun_goes_on_and_one_of_the_users_own_is_left_alone(kit):
    feed = Feed()
    feed.add(A, PERMITS, permits(1, 2))
    plain = type(kit).__mro__[1].open
    with Client(**feed.api.client_options) as client:
        sync(client, SUBSCRIPTION, kit.open(reach_nothing))
        feed.update(A, put=permits(3))
        sync(client, SUBSCRIPTION, plain(kit, reach_nothing))
        check_past(feed, kit, A, [1, 2])


def test_a_table_in_its_place_blocks(tmp_path):
    kit, feed = Duck(tmp_path), Feed()
    feed.add(A, PERMITS, permits(1, 2))
    with duckdb.connect(str(kit.path)) as db:
        db.execute(f"CREATE TABLE {A}_history AS SELECT 1 AS x")
    report = sync_feed(feed, kit)
    assert [each.held.state for each in report.datasets] == ["blocked"]
    assert "rename or drop it" in report.datasets[0].held.reason


def told_queries():
    """The two queries over a history in docs/sync.md, as they stand there."""
    text = (Path(__file__).parents[2] / "docs" / "sync.md").read_text()
    block = text.partition("-- the table as it was at version 42\n")[2].partition("```")[0]
    return [query.split("\n", 1)[-1] if query.lstrip().startswith("--") else query for query in block.split(";\n")[:2]]


def test_the_documented_queries_answer_on_each_target(kit):
    feed = Feed()
    feed.add(A, PERMITS, permits(1, 2))
    sync_feed(feed, kit)
    feed.update(A, put=permits(3), drop=permits(1))
    sync_feed(feed, kit)
    as_it_was, changed = told_queries()
    assert len(kit.query(as_it_was.replace("42", "1"))) == 2
    assert len(kit.query(as_it_was)) == 2
    assert len(kit.query(changed)) == 3
    assert kit.query(changed.replace("2026-10-13", "2999-01-01")) == []


def test_shapes_of_another_kind_make_the_layer_of_a_geopackage_one_of_that_kind(tmp_path):
    path, files = tmp_path / "records.gpkg", Files(tmp_path)
    target = open_target(f"sqlite:///{path}", history=True)
    for version, kind, shape in ((1, "Point", shapely.Point(1, 2)), (2, "MultiPolygon", shapely.box(3, 4, 5, 6))):
        row = {"geometry": shapely.to_wkb(shape, byte_order=1)}
        delivery = files.snapshot(version, [(1, row)], {"geometry": "geometry"})
        delivery.schema["columns"][0]["geometryType"] = kind
        target.load(delivery, held(version), None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = geopandas.read_file(path, layer=f"{D}_history", where="_ploti_valid_to_version IS NULL")
    assert frame.total_bounds.tolist() == [3, 4, 5, 6]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute(f"SELECT minx, maxy FROM rtree_{D}_history_geometry").fetchall() == [(3, 6)]
        found = db.execute(
            f"SELECT geometry_until_2 IS NULL, geometry IS NULL FROM {D}_history ORDER BY fid"
        ).fetchall()
    assert found == [(0, 1), (1, 0)]


def test_times_that_become_finer_end_no_state_in_a_geopackage(tmp_path):
    path, files = tmp_path / "records.gpkg", Files(tmp_path)
    target = open_target(f"sqlite:///{path}", history=True)
    coarse, fine = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    for version, rows in ((1, [(1, {"at": coarse})]), (2, [(1, {"at": coarse}), (2, {"at": fine})])):
        target.load(files.snapshot(version, rows, {"at": "timestamp"}), held(version), None)
    with closing(sqlite3.connect(path)) as db:
        found = db.execute(
            f'SELECT "at", _ploti_valid_from_version, _ploti_valid_to_version FROM {D}_history'
        ).fetchall()
    assert found == [("2026-01-01T00:00:00.000000Z", 1, None), ("2026-01-01T00:00:00.000005Z", 2, None)]


def test_the_parts_of_a_history_stay_few_and_full_ones_stay_as_they_are(tmp_path):
    files, target = Files(tmp_path), ParquetTarget(Folder(tmp_path / "records"), small_rows=4, history=True)
    target.load(files.snapshot(1, rows_of(8)), held(1), None)
    place, ended = tmp_path / "records" / D / "current" / "_history", {}
    for version in range(2, 12):
        target.apply(files.changes(version, [(version % 3, {"name": f"z{version}"})], rows=8), held(version))
        here = {each.name: each.stat().st_ino for each in place.glob("past-*.parquet")}
        assert ended.items() <= here.items()
        ended = {name: node for name, node in here.items() if pyarrow.parquet.read_metadata(place / name).num_rows >= 4}
    assert pyarrow.dataset.dataset(place).count_rows() == 18
    assert len(list(place.iterdir())) <= 18 / 4 + 2


def test_times_never_go_back_whatever_the_clock_says(kit, tmp_path):
    files = Files(tmp_path)
    days = [datetime(2026, 1, day, 12, tzinfo=UTC) for day in (5, 3, 9, 4)]
    for version, day in enumerate(days, 1):
        target = replace(kit.open(reach_nothing), now=lambda day=day: day)
        target.load(files.snapshot(version, rows_of(4, f"v{version}-")[: 3 + version % 2]), held(version), None)
    past = kit.past(D)
    times = {(row["_ploti_valid_from_version"], row["_ploti_valid_from"].astimezone(UTC)) for row in past}
    assert sorted(times) == [(1, days[0]), (2, days[0]), (3, days[2]), (4, days[2])]
    times = {
        (each["_ploti_valid_to_version"], each["_ploti_valid_to"].astimezone(UTC))
        for each in past
        if each["_ploti_valid_to"]
    }
    assert sorted(times) == [(2, days[0]), (3, days[2]), (4, days[2])]


def test_a_publisher_that_went_on_from_a_backup_leaves_each_version_one_past(kit):
    """Versions that are no more are passed over; what the records were before them is told as it was."""
    lost, feed = Feed(), Feed(FakeApi(clock=lambda: datetime.now(UTC) + timedelta(days=1)))
    for each in (lost, feed):
        each.add(A, PERMITS, permits(*range(6)))
        each.update(A, put=permits(6))
    sync_feed(lost, kit)
    lost.update(A, put={record_id(0): permit(0, 1.0), **permits(7)})
    sync_feed(lost, kit)
    lost.update(A, put={record_id(1): permit(1, 1.0), **permits(8)}, drop=[record_id(2)])
    sync_feed(lost, kit)
    feed.update(A, put={**permits(8), record_id(3): permit(3, 1.0)})
    sync_feed(feed, kit)
    check_past(feed, kit, A, [2, 3])
    feed.update(A, put=permits(7), drop=[record_id(5)])
    feed.update(A, put={record_id(2): permit(2, 3.0)})
    sync_feed(feed, kit)
    check_past(feed, kit, A, [2, 3, 4, 5])


def test_a_table_of_a_thousand_columns_is_like_any_other(kit):
    columns = {f"c{at}": ["string", "integer", "number", "boolean"][at % 4] for at in range(1000)}
    feed = Feed()
    feed.add(A, columns, {record_id(1): {"c0": "a", "c1": 3}, record_id(2): {"c998": 0.5}})
    sync_feed(feed, kit)
    feed.update(A, put={record_id(1): {"c0": "b"}, record_id(3): {"c999": True}})
    sync_feed(feed, kit)
    feed.reload(A, {record_id(1): {"c0": "b"}, record_id(3): {"c996": "z"}}, "previous_unavailable")
    sync_feed(feed, kit)
    check_past(feed, kit, A, [1, 2, 3])
    with Client(**feed.api.client_options) as client:
        assert [each.equal for each in verify(client, kit.open(reach_nothing))] == [True]
