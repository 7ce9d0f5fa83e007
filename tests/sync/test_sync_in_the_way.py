"""What users put in sync's way: it is named, nothing of theirs is dropped, and sync goes on once it is gone."""

import re
import sqlite3
from contextlib import closing

import duckdb
import psycopg
import pytest
from tests.sync.kits import GeoPackageKit
from tests.sync.test_sync_duckdb_stories import DuckKit
from tests.sync.test_sync_postgresql_stories import PostgresKit

from ploti import Client
from ploti.sync.loop import repair, verify
from ploti.sync.target import reach_nothing
from ploti.testing.feed import Feed, record_id
from ploti.testing.stories import PERMITS, A, permit, permits
from ploti.testing.targets import check_rows, sync_feed


class GeoPackage(GeoPackageKit):
    def execute(self, sql):
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            return db.execute(sql).fetchall()


class Duck(DuckKit):
    def execute(self, sql):
        with duckdb.connect(str(self.path)) as db:
            return db.execute(sql).fetchall()


class Postgres(PostgresKit):
    def execute(self, sql):
        with psycopg.connect(self.url) as db:
            db.execute("SET search_path = feeds")
            found = db.execute(sql.encode())
            return found.fetchall() if found.description else []


@pytest.fixture
def kit(request, tmp_path, monkeypatch):
    """A database of the kind that a parameter names, with a table of 20 rows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if request.param == "postgresql":
        return Postgres(request.getfixturevalue("postgres_database"))
    return {"duckdb": Duck, "geopackage": GeoPackage}[request.param](tmp_path)


def fed(kit):
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(20)))
    sync_feed(feed, kit)
    return feed


# triggers and rules

NOTHING = "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
DONE = "CREATE TRIGGER mine BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION nothing()"
IGNORED = "CREATE TRIGGER mine BEFORE {event} ON {table} BEGIN SELECT RAISE(IGNORE); END"
RULE = "CREATE RULE mine AS ON {event} TO {table} DO INSTEAD NOTHING"
WATCHED = [
    ("geopackage", (IGNORED,), "DROP TRIGGER mine"),
    ("postgresql", (NOTHING, DONE), "DROP TRIGGER mine ON {table}"),
    ("postgresql", (RULE,), "DROP RULE mine ON {table}"),
]
WATCHED_IDS = ["geopackage", "postgresql", "a rule"]


@pytest.mark.parametrize("event", ["DELETE", "INSERT"])
@pytest.mark.parametrize(("kit", "made", "dropped"), WATCHED, ids=WATCHED_IDS, indirect=["kit"])
def test_a_table_that_has_not_the_versions_rows_is_told_and_stays(kit, made, dropped, event):
    feed = fed(kit)
    for statement in made:
        kit.execute(statement.format(table=A, event=event))
    version = feed.reload(A, permits(*range(5), *range(30, 40)), "previous_unavailable")
    (held,) = sync_feed(feed, kit).behind
    found = {"DELETE": 30, "INSERT": 5}[event]
    assert f"the table {A} has {found} rows where version 2 has 15: look for triggers or rules" in held.held.reason
    check_rows(feed, kit, A, 1)
    version = feed.update(A, put=permits(50), drop=[record_id(1)])
    (held,) = sync_feed(feed, kit).behind
    assert re.search("look for triggers or rules|table that has INSERT or UPDATE rules", held.held.reason)
    check_rows(feed, kit, A, 1)
    kit.execute(dropped.format(table=A))
    assert not sync_feed(feed, kit).behind
    check_rows(feed, kit, A, version)


@pytest.mark.parametrize(("kit", "made", "dropped"), WATCHED, ids=WATCHED_IDS, indirect=["kit"])
def test_a_repair_that_is_undone_says_where_to_look(kit, made, dropped):
    feed = fed(kit)
    kit.execute(f"UPDATE {A} SET units = -1 WHERE _ploti_record_id = '{record_id(1)}'")
    for statement in made:
        kit.execute(statement.format(table=A, event="UPDATE"))
    with Client(**feed.api.client_options) as client:
        (done,) = repair(client, kit.open(reach_nothing))
        assert not done.after.equal
        assert "look for triggers or rules of yours on the table" in done.after.problem
        kit.execute(dropped.format(table=A))
        assert repair(client, kit.open(reach_nothing))[0].after.equal
    check_rows(feed, kit, A, 1)


def test_a_table_without_its_key_that_keeps_rows_is_told_by_its_rows(tmp_path, monkeypatch, postgres_database):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kit = Postgres(postgres_database)
    feed = fed(kit)
    for statement in (NOTHING, DONE, f"ALTER TABLE {A} DROP CONSTRAINT {A}_pkey"):
        kit.execute(statement.format(table=A, event="DELETE"))
    feed.reload(A, permits(*range(15)), "previous_unavailable")
    (held,) = sync_feed(feed, kit).behind
    assert f"the table {A} has 35 rows where version 2 has 15" in held.held.reason


# another thing in the table's place

PLACES = [
    ("a view", "CREATE VIEW {0} AS SELECT * FROM kept", "a view"),
    ("a table", "CREATE TABLE {0} AS SELECT 1 AS x", "a table"),
    ("an index", "CREATE INDEX {0} ON kept (number)", "an index"),
    ("a sequence", "CREATE SEQUENCE {0}", "a sequence"),
    ("a materialized view", "CREATE MATERIALIZED VIEW {0} AS SELECT * FROM kept", "a materialized view"),
]
KINDS = {"duckdb": 2, "geopackage": 3, "postgresql": 5}


@pytest.mark.parametrize(
    ("kit", "made", "what"),
    [(kit, *row[1:]) for kit, count in KINDS.items() for row in PLACES[:count]],
    ids=[f"{kit}-{row[0]}" for kit, count in KINDS.items() for row in PLACES[:count]],
    indirect=["kit"],
)
def test_what_has_the_tables_place_is_named_and_stays(kit, made, what):
    feed = fed(kit)
    kit.execute(f"ALTER TABLE {A} RENAME TO kept")
    kit.execute(made.format(A))
    told = f"{what} {A} that sync did not make is there already: rename or drop it"
    with Client(**feed.api.client_options) as client:
        assert verify(client, kit.open(reach_nothing))[0].problem == told
        assert repair(client, kit.open(reach_nothing))[0].after.problem == told
        feed.update(A, put={record_id(1): permit(1, 7.0)})
        assert [each.held.reason for each in sync_feed(feed, kit).behind] == [told]
        feed.reload(A, permits(1), "previous_unavailable")
        assert [each.held.reason for each in sync_feed(feed, kit).behind] == [told]
        with pytest.raises(Exception, match=re.escape(A)):  # it is still there, whatever its kind
            kit.execute(made.format(A))
        kit.execute(f"DROP {what.partition(' ')[2]} {A}")
        assert not sync_feed(feed, kit).behind
        check_rows(feed, kit, A, 3)
    assert kit.execute("SELECT count(*) FROM kept") == [(20,)]


def test_a_view_of_the_users_that_is_called_like_the_one_for_shapes_stays(tmp_path):
    kit = Duck(tmp_path)
    feed = fed(kit)
    kit.execute(f"CREATE VIEW {A}_geo AS SELECT number FROM {A}")
    feed.update(A, put=permits(30), columns={**PERMITS, "more": "string"})
    sync_feed(feed, kit)
    check_rows(feed, kit, A, 2)
    assert kit.execute(f"SELECT count(*) FROM {A}_geo") == [(21,)]
    feed.update(A, columns={**PERMITS, "more": "string", "geometry": "geometry"})
    (held,) = sync_feed(feed, kit).behind
    assert held.held.reason == f"a view {A}_geo that sync did not make is there already: rename or drop it"
    kit.execute(f"DROP VIEW {A}_geo")
    assert not sync_feed(feed, kit).behind
