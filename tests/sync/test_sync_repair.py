"""`repair` finds changed, lost, extra and doubled rows on each target and puts them right alone (D11.5)."""

import sqlite3
from contextlib import closing, contextmanager

import duckdb
import psycopg
import pytest
from tests.sync.kits import GeoPackageKit
from tests.sync.test_sync_duckdb_stories import DuckKit
from tests.sync.test_sync_postgresql_stories import PostgresKit

from ploti import Client
from ploti.sync.loop import repair, verify
from ploti.sync.target import SyncError, reach_nothing
from ploti.testing.feed import Feed, record_id
from ploti.testing.stories import PERMITS, A, permits
from ploti.testing.targets import check_repaired, check_rows, sync_feed

ONE, OTHER, NEW = record_id(1), record_id(2), record_id(500)


class Duck(DuckKit):
    def execute(self, sql):
        with duckdb.connect(str(self.path)) as db:
            return db.execute(sql.format(schema="main")).fetchall()


class GeoPackage(GeoPackageKit):
    def execute(self, sql):
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            return db.execute(sql.format(schema="main")).fetchall()


class Postgres(PostgresKit):
    def execute(self, sql):
        with psycopg.connect(self.url) as db:
            found = db.execute(sql.format(schema=self.schema).encode())
            return found.fetchall() if found.description else []


@pytest.fixture(params=["duckdb", "geopackage", "postgresql"])
def kit(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if request.param == "duckdb":
        return Duck(tmp_path)
    if request.param == "geopackage":
        return GeoPackage(tmp_path)
    return Postgres(request.getfixturevalue("postgres_database"))


T = f"{{schema}}.{A}"
SPOILT = [
    ("a changed value", f"UPDATE {T} SET value = 11 WHERE _ploti_record_id = '{ONE}'", (0, 1, 0)),
    ("a value gone", f"UPDATE {T} SET number = NULL WHERE _ploti_record_id = '{ONE}'", (0, 1, 0)),
    ("a lost row", f"DELETE FROM {T} WHERE _ploti_record_id = '{ONE}'", (1, 0, 0)),
    ("an extra row", f"INSERT INTO {T} (_ploti_record_id, number) VALUES ('{NEW}', 'x')", (0, 0, 1)),
    ("a row with a foreign id", f"INSERT INTO {T} (_ploti_record_id, number) VALUES ('x', 'x')", (0, 0, 1)),
    ("every row", f"UPDATE {T} SET units = units + 1", (0, 61, 0)),
    ("no row left", f"DELETE FROM {T}", (61, 0, 0)),
    ("an id moved", f"UPDATE {T} SET _ploti_record_id = '{NEW}' WHERE _ploti_record_id = '{OTHER}'", (1, 0, 1)),
]


KITS = [(kit, *row) for kit in ("duckdb", "postgresql") for row in SPOILT]
KITS += [("geopackage", *row) for row in SPOILT if row[0] in {"a value gone", "a lost row", "every row", "an id moved"}]


@pytest.mark.parametrize(
    ("kit", "sql", "moved"),
    [(kit, *row) for kit, _, *row in KITS],
    ids=[f"{kit}-{name}" for kit, name, *_ in KITS],
    indirect=["kit"],
)
def test_what_was_spoilt_is_put_right_and_nothing_else_is_touched(kit, sql, moved):
    done = check_repaired(kit, lambda _: kit.execute(sql))
    assert (done.moved.added, done.moved.changed, done.moved.removed) == moved
    versions = kit.execute(f"SELECT _ploti_version, count(*) FROM {T} GROUP BY 1 ORDER BY 1")
    rewritten = moved[0] + moved[1]
    assert sum(count for _, count in versions) == 61
    assert dict(versions)[2] <= 1 + rewritten


DOUBLED = [
    ("a doubled row", f"INSERT INTO {T} SELECT * FROM {T} WHERE _ploti_record_id = '{ONE}'"),
    ("a row without an id", f"INSERT INTO {T} (number) VALUES ('x')"),
]


@pytest.mark.parametrize("sql", [row[1] for row in DOUBLED], ids=[row[0] for row in DOUBLED])
def test_rows_that_only_a_table_without_a_key_can_have_are_put_right(tmp_path, sql):
    kit = Duck(tmp_path)
    check_repaired(kit, lambda _: kit.execute(sql))


@contextmanager
def synced(kit):
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(30)))
    sync_feed(feed, kit)
    with Client(**feed.api.client_options) as client:
        yield feed, client


def test_a_snapshot_past_retention_is_told_and_the_rows_stay(kit):
    with synced(kit) as (feed, client):
        feed.update(A, put=permits(99))
        kit.execute(f"DELETE FROM {T} WHERE _ploti_record_id = '{ONE}'")
        feed.api.keep(A, 1, "released_again")
        found = repair(client, kit.open(reach_nothing))[0]
        assert found.moved is None
        assert found.after.problem
        assert kit.execute(f"SELECT count(*) FROM {T}") == [(29,)]


BROUGHT_BACK = [
    ("a column dropped", f"ALTER TABLE {T} DROP COLUMN units", "the column 'units' of ds_orange_permits is gone"),
    ("a table dropped", f"DROP TABLE {T}", "the table ds_orange_permits is gone"),
    (
        "a column retyped",
        f"ALTER TABLE {T} ALTER COLUMN units TYPE NUMERIC",
        "'units' of ds_orange_permits has the type",
    ),
]


@pytest.mark.parametrize(("sql", "why"), [row[1:] for row in BROUGHT_BACK], ids=[row[0] for row in BROUGHT_BACK])
def test_a_table_that_is_not_as_sync_made_it_is_told_and_loaded_again(kit, sql, why):
    if isinstance(kit, GeoPackage) and "TYPE" in sql:
        sql = f"ALTER TABLE {T} DROP COLUMN units; ALTER TABLE {T} ADD COLUMN units NUMERIC"
    with synced(kit) as (feed, client):
        for statement in sql.split(";"):
            kit.execute(statement)
        (found,) = verify(client, kit.open(reach_nothing))
        assert why in found.problem
        assert "ploti sync repair" in found.problem
        (done,) = repair(client, kit.open(reach_nothing))
        assert done.after.equal
        assert done.moved.rows == 30
        check_rows(feed, kit, A, 1)


@pytest.mark.parametrize("sql", [f"ALTER TABLE {T} DROP COLUMN units", f"DROP TABLE {T}"], ids=["column", "table"])
def test_the_next_changes_bring_back_a_table_or_a_column_that_is_gone(kit, sql):
    with synced(kit) as (feed, _):
        kit.execute(sql)
        feed.update(A, put=permits(99))
        assert not sync_feed(feed, kit).behind
        check_rows(feed, kit, A, 2)


def test_only_the_named_datasets_and_none_that_is_not_there(kit):
    with synced(kit) as (_, client):
        assert [each.after.dataset_id for each in repair(client, kit.open(reach_nothing), [A])] == [A]
        with pytest.raises(SyncError, match="ds_other has no rows here"):
            repair(client, kit.open(reach_nothing), ["ds_other"])


def test_a_repair_stopped_before_its_commit_leaves_the_rows_as_they_were(kit):
    class Stopped(Exception):
        pass

    def stop(step):
        if step == "sync.before_commit":
            raise Stopped

    with synced(kit) as (_, client):
        kit.execute(f"DELETE FROM {T} WHERE _ploti_record_id = '{ONE}'")
        with pytest.raises(Stopped):
            repair(client, kit.open(stop))
        assert kit.execute(f"SELECT count(*) FROM {T}") == [(29,)]
        assert repair(client, kit.open(reach_nothing))[0].after.equal
        assert all(each.equal for each in verify(client, kit.open(reach_nothing)))
