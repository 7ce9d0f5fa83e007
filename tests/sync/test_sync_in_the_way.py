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
from ploti.sync.loop import repair, resync, sync, verify
from ploti.sync.target import reach_nothing
from ploti.testing.feed import SUBSCRIPTION, Feed, record_id
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


# what is built on columns that go or change their type

GONE = "(no column value)"
GOES = [
    ("an index", "CREATE INDEX mine ON {0} (value)", "index mine", "DROP INDEX mine"),
    ("one on two columns", "CREATE UNIQUE INDEX mine ON {0} (number, value)", "index mine", "DROP INDEX mine"),
    ("one by an expression", "CREATE INDEX mine ON {0} ((abs(value)))", "index mine", "DROP INDEX mine"),
    ("a view", "CREATE VIEW mine AS SELECT value FROM {0}", "view mine", "DROP VIEW mine"),
    ("one in quotes", 'CREATE INDEX "my own" ON {0} ("value")', 'index "my own"', 'DROP INDEX "my own"'),
]
PARTIAL = [("a partial one", "CREATE INDEX mine ON {0} (number) WHERE value > 1", "index mine", "DROP INDEX mine")]
OF_SQLITE = [
    ("a view in quotes", 'CREATE VIEW mine AS SELECT "value" FROM {0}', "view mine", "DROP VIEW mine"),
    ("a trigger", "CREATE TRIGGER mine AFTER UPDATE OF value ON {0} BEGIN SELECT 1; END", "trigger mine",
     "DROP TRIGGER mine"),
    ("a reference", "CREATE TABLE mine (v REFERENCES {0} (value))", "table mine", "DROP TABLE mine"),
]  # fmt: skip
NAMED = "ALTER TABLE {0} DROP CONSTRAINT mine"
OF_POSTGRESQL = [
    ("a constraint", "ALTER TABLE {0} ADD CONSTRAINT mine UNIQUE (number, value)", "constraint mine", NAMED),
    ("a check", "ALTER TABLE {0} ADD CONSTRAINT mine CHECK (value < 99 OR units > 0)", "constraint mine", NAMED),
    ("an index that includes", "CREATE INDEX mine ON {0} (number) INCLUDE (value)", "index mine", "DROP INDEX mine"),
    ("statistics", "CREATE STATISTICS mine ON units, value FROM {0}", "statistics object mine", "DROP STATISTICS mine"),
    ("a column made of it", "ALTER TABLE {0} ADD mine double precision GENERATED ALWAYS AS (value * 2) STORED",
     "generated column mine", "ALTER TABLE {0} DROP mine"),
    ("a materialized view", "CREATE MATERIALIZED VIEW mine AS SELECT value FROM {0}", "materialized view mine",
     "DROP MATERIALIZED VIEW mine"),
]  # fmt: skip
BUILT = {"duckdb": GOES, "geopackage": GOES + PARTIAL + OF_SQLITE, "postgresql": GOES + PARTIAL + OF_POSTGRESQL}


def apply_major(feed, kit, **choice):
    with Client(**feed.api.client_options) as client:
        return sync(client, SUBSCRIPTION, kit.open(reach_nothing), on_major="apply", **choice)


def narrowed(feed):
    """A version without the column `value`."""
    rows = {id_: {"number": row["number"], "units": row["units"]} for id_, row in permits(*range(9)).items()}
    return feed.reload(A, rows, "schema_changed", columns={"number": "string", "units": "integer"})


@pytest.mark.parametrize("chosen", [False, True], ids=["it goes", "it is not wanted"])
@pytest.mark.parametrize(
    ("kit", "made", "named", "dropped"),
    [(kit, *row[1:]) for kit, built in BUILT.items() for row in built],
    ids=[f"{kit}-{row[0]}" for kit, built in BUILT.items() for row in built],
    indirect=["kit"],
)
def test_what_is_built_on_a_column_that_goes_blocks_and_is_named(kit, made, named, dropped, chosen):
    feed = fed(kit)
    kit.execute(made.format(A))
    choice = {"without": [f"{A}=value"]} if chosen else {}
    version = 1 if chosen else narrowed(feed)
    (held,) = apply_major(feed, kit, **choice).behind
    told = f"your {named} cannot follow the new columns of {A} {GONE}: change or drop it, then run sync again"
    assert (held.held.state, held.held.reason) == ("blocked", told)
    check_rows(feed, kit, A, 1) if "mine double" not in made else None
    kit.execute(dropped.format(A))  # it is there still
    assert not apply_major(feed, kit, **choice).behind
    if not chosen:
        check_rows(feed, kit, A, version)
    assert "value" not in next(iter(kit.rows(A).values()))


STAYS = {
    "duckdb": (
        ["CREATE UNIQUE INDEX one ON {0} (number, units)", "CREATE INDEX two ON {0} ((lower(number)))"],
        "SELECT index_name, sql FROM duckdb_indexes() ORDER BY 1",
    ),
    "geopackage": (
        ["CREATE UNIQUE INDEX one ON {0} (number COLLATE NOCASE DESC, units) WHERE units >= 0",
         'CREATE INDEX two ON {0} (lower("number"))'],
        "SELECT name, sql FROM sqlite_master WHERE name IN ('one', 'two') ORDER BY 1",
    ),
    "postgresql": (
        ["CREATE UNIQUE INDEX one ON {0} (number DESC, units) INCLUDE (_ploti_version) WHERE units >= 0",
         "CREATE INDEX two ON {0} (lower(number) text_pattern_ops)",
         "ALTER TABLE {0} ADD CONSTRAINT three UNIQUE (units)"],
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = '{0}' ORDER BY 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kit", STAYS, indirect=True)
@pytest.mark.parametrize("way", ["apply", "resync", "without"])
def test_indexes_on_columns_that_stay_survive_as_they_are(request, kit, way):
    made, listed = STAYS[request.node.callspec.params["kit"]]
    feed = fed(kit)
    for statement in made:
        kit.execute(statement.format(A))
    before = kit.execute(listed.format(A))
    assert len(before) >= len(made)
    if way == "without":
        assert not apply_major(feed, kit, without=[f"{A}=value"]).behind
    elif way == "apply":
        narrowed(feed)
        assert not apply_major(feed, kit).behind
    else:
        narrowed(feed)
        with Client(**feed.api.client_options) as client:
            resync(client, kit.open(reach_nothing), A)
    assert "value" not in next(iter(kit.rows(A).values()))
    assert kit.execute(listed.format(A)) == before


@pytest.mark.parametrize("kit", ["duckdb", "postgresql"], indirect=True)
def test_an_index_that_cannot_take_a_columns_new_type_blocks_and_is_named(kit):
    feed = fed(kit)
    kit.execute(f"CREATE INDEX plain ON {A} (number, value)")
    kit.execute(f"CREATE INDEX mine ON {A} ((lower(number)))")
    retyped = {"number": "number", "value": "string", "units": "integer"}
    rows = {record_id(1): {"number": 1.0, "value": "x", "units": 1}}
    version = feed.reload(A, rows, "schema_changed", columns=retyped)
    (held,) = apply_major(feed, kit).behind
    assert held.held.state == "blocked"
    assert f"cannot follow the new columns of {A}" in held.held.reason
    assert "index mine" in held.held.reason
    check_rows(feed, kit, A, 1)
    kit.execute("DROP INDEX mine")
    assert not apply_major(feed, kit).behind
    check_rows(feed, kit, A, version)
    kit.execute("DROP INDEX plain")


@pytest.mark.parametrize("kit", ["duckdb", "geopackage", "postgresql"], indirect=True)
@pytest.mark.parametrize("way", ["changes", "reload", "another shape"])
def test_a_unique_index_that_new_rows_break_blocks_and_is_named(kit, way):
    feed = fed(kit)
    kit.execute(f"CREATE UNIQUE INDEX mine ON {A} (units, number)")
    kit.execute(f"CREATE INDEX plain ON {A} (number)")
    same = {record_id(number): permit(1) for number in range(5, 8)}
    if way == "changes":
        version = feed.update(A, put=same)
    elif way == "reload":
        version = feed.reload(A, same, "previous_unavailable")
    else:
        narrow = {id_: {"number": row["number"], "units": row["units"]} for id_, row in same.items()}
        version = feed.reload(A, narrow, "schema_changed", columns={"number": "string", "units": "integer"})
    (held,) = apply_major(feed, kit).behind
    assert held.held.state == "blocked"
    assert re.search(r"\bmine\b|units, .*number", held.held.reason)
    assert "plain" not in held.held.reason
    check_rows(feed, kit, A, 1)
    kit.execute("DROP INDEX mine")
    assert not apply_major(feed, kit).behind
    check_rows(feed, kit, A, version)


def test_a_primary_key_of_the_users_survives_in_duckdb(tmp_path):
    kit = Duck(tmp_path)
    feed = fed(kit)
    kit.execute(f"ALTER TABLE {A} ADD PRIMARY KEY (_ploti_record_id)")
    version = narrowed(feed)
    assert not apply_major(feed, kit).behind
    check_rows(feed, kit, A, version)
    told = f"SELECT constraint_text FROM duckdb_constraints() WHERE table_name = '{A}' AND constraint_type LIKE 'PRIM%'"
    assert kit.execute(told) == [("PRIMARY KEY(_ploti_record_id)",)]


@pytest.mark.parametrize("kit", ["duckdb", "geopackage", "postgresql"], indirect=True)
def test_a_view_of_a_view_on_a_column_that_goes_is_named(kit):
    feed = fed(kit)
    kit.execute(f"CREATE VIEW first AS SELECT * FROM {A}")
    kit.execute("CREATE VIEW mine AS SELECT value FROM first")
    narrowed(feed)
    (held,) = apply_major(feed, kit).behind
    named = "view first" if isinstance(kit, Postgres) else "view mine"  # PostgreSQL knows which columns `*` stood for
    assert f"your {named} cannot follow the new columns of {A} {GONE}" in held.held.reason


def test_a_broken_view_elsewhere_is_no_matter(tmp_path):
    kit = GeoPackage(tmp_path)
    feed = fed(kit)
    kit.execute("CREATE VIEW broken AS SELECT * FROM nothing_there")
    version = narrowed(feed)
    assert not apply_major(feed, kit).behind
    check_rows(feed, kit, A, version)
