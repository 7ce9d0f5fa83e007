"""`--history` keeps each row's past: every version that was loaded can be had again (D11.5)."""

import json
import sqlite3
from contextlib import closing

import duckdb
import psycopg
import pyarrow.dataset
import pytest
from tests.sync.kits import GeoPackageKit, ParquetKit, value_of
from tests.sync.test_sync_duckdb_stories import DuckKit
from tests.sync.test_sync_postgresql_stories import PostgresKit

from ploti import Client
from ploti.sync.loop import resync, sync
from ploti.sync.target import reach_nothing
from ploti.sync.targets import open_target
from ploti.testing.feed import SUBSCRIPTION, Feed, record_id
from ploti.testing.stories import PERMITS, STORIES, A, permits
from ploti.testing.targets import sync_feed


class Duck(DuckKit):
    def open(self, reach):
        return open_target(f"duckdb:///{self.path}", reach=reach, history=True)

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

    def past(self, dataset_id):
        with psycopg.connect(self.url) as db:
            found = db.execute(f'SELECT * FROM {self.schema}."{dataset_id}_history"'.encode())
            return [dict(zip([column.name for column in found.description], row, strict=True)) for row in found]


class GeoPackage(GeoPackageKit):
    def open(self, reach):
        return open_target(f"sqlite:///{self.path}", reach=reach, history=True)

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


def test_a_table_in_its_place_pauses(tmp_path):
    kit, feed = Duck(tmp_path), Feed()
    feed.add(A, PERMITS, permits(1, 2))
    with duckdb.connect(str(kit.path)) as db:
        db.execute(f"CREATE TABLE {A}_history AS SELECT 1 AS x")
    report = sync_feed(feed, kit)
    assert [each.held.state for each in report.datasets] == ["paused"]
    assert "rename or drop it" in report.datasets[0].held.reason
