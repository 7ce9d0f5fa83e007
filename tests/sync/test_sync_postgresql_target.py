"""What only the PostgreSQL target promises (D11.3): users' objects survive, DDL gives way, runs exclude each other."""

import multiprocessing
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import time
from datetime import date

import psycopg
import pytest
from tests.sync.deliveries import D, Files, held, rows_of, schema

from ploti.contract.digest import Digest, canonical_row, record_hash
from ploti.sync.plan import Held
from ploti.sync.target import Delivery, RowsDiffer, StepBlocked, StepRefused, TargetAway, TargetBusy, TargetUnusable
from ploti.sync.targets import open_target
from ploti.sync.targets._postgresql_session import Server
from ploti.sync.targets.postgresql import PostgresTarget
from ploti.testing.feed import record_id


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


@pytest.fixture
def url(postgres_database):
    return postgres_database


@pytest.fixture
def target(url):
    return open_target(url)


def query(url, *statements):
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            found = db.execute(statement)
        return found.fetchall() if found.description else []


# the address and the server


@pytest.mark.parametrize(
    "url", ["postgresql://h/d?schema=", "postgresql://h/d?schema=a&schema=b", "postgresql://h/d?schema=" + "x" * 64]
)
def test_an_address_with_a_schema_that_cannot_be_is_refused_with_an_example(url):
    with pytest.raises(TargetUnusable, match=r"schema=feeds"):
        open_target(url)


@pytest.mark.parametrize(
    ("url", "conninfo", "schema"),
    [
        ("postgresql:///county", "postgresql:///county", None),
        ("postgresql://me:a%2Bb@h/d?schema=x%20y", "postgresql://me:a%2Bb@h/d", "x y"),
        (
            "postgresql://h/d?options=-c%20a%3Db&schema=x&sslmode=require",
            "postgresql://h/d?options=-c%20a%3Db&sslmode=require",
            "x",
        ),
    ],
)
def test_all_of_an_address_but_the_schema_is_left_to_libpq(url, conninfo, schema):
    server = open_target(url).server
    assert (server.conninfo, server.schema) == (conninfo, schema)


def test_a_server_that_is_not_there_is_told(tmp_path):
    with pytest.raises(TargetUnusable, match="Cannot connect"):
        open_target(f"postgresql://nobody@/x?host={tmp_path}").state()


def test_without_its_packages_the_target_says_what_to_install():
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from ploti.sync.targets import open_target\n"
        "open_target('postgresql://h/d')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'pip install "ploti[postgres]"' in ended.stderr.splitlines()[-1]


def test_no_arrow_package_is_needed(url, files):
    code = (
        "import sys; sys.modules['pyarrow'] = sys.modules['pandas'] = sys.modules['numpy'] = None\n"
        "import pickle; from ploti.sync.targets import open_target\n"
        "delivery, held = pickle.load(sys.stdin.buffer)\n"
        "print(open_target(sys.argv[1]).load(delivery, held, None).rows)"
    )
    given = pickle.dumps((files.snapshot(1, rows_of(3)), held(1)))
    ended = subprocess.run([sys.executable, "-c", code, url], input=given, capture_output=True, check=False)
    assert (ended.stdout, ended.stderr) == (b"3\n", b"")


def test_an_empty_target_holds_nothing_and_is_not_made_by_looking(url, target):
    state = target.state()
    assert (state.subscription_id, state.cursor, dict(state.datasets)) == (None, None, {})
    assert target.status() == []
    assert query(url, "SELECT count(*) FROM pg_class WHERE relname LIKE '\\_ploti%'") == [(0,)]


def test_a_schema_is_made_where_it_is_missing(url, files):
    open_target(f"{url}&schema=County%20Feeds").load(files.snapshot(1, rows_of(2)), held(1), None)
    assert query(url, 'SELECT count(*) FROM "County Feeds".ds_a') == [(2,)]


def test_a_user_who_may_make_no_tables_is_told_what_is_missing(url):
    query(url, "CREATE ROLE reader LOGIN")
    try:
        with pytest.raises(TargetUnusable, match="let this user make tables in schema"):
            open_target(url.replace("postgresql://postgres", "postgresql://reader") + "&schema=x").record(
                "sub_a", None, []
            )
    finally:
        query(url, "DROP ROLE reader")


def test_another_layout_is_refused(url, target):
    target.record("sub_a", "evt_000000000001", [])
    query(url, "UPDATE _ploti_sync SET layout = 99")
    with pytest.raises(TargetUnusable, match="layout 99"):
        target.state()


def test_a_second_sync_is_kept_away_and_told_who_is_at_it(url):
    first = PostgresTarget(Server(url, None))
    second = PostgresTarget(Server(url, None, lock_wait_seconds=0))
    other = PostgresTarget(Server(url, "elsewhere", lock_wait_seconds=0))
    with first.lock():
        with pytest.raises(TargetBusy, match=f"process {os.getpid()} on"), second.lock():
            pytest.fail("two syncs at once")
        with other.lock():
            pass
    with second.lock():
        pass


def test_a_run_whose_session_ended_stops(url, files):
    target = open_target(url)
    with target.lock():
        ours = "application_name LIKE 'ploti sync%'"
        query(url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
        with pytest.raises(TargetAway, match="run sync again"):
            target.load(files.snapshot(1, rows_of(2)), held(1), None)


def test_a_session_that_ends_after_its_last_step_is_told_like_one_that_ended_in_it(url):
    target, ours = open_target(url), "application_name LIKE 'ploti sync%'"
    with pytest.raises(TargetAway, match="run sync again"), target.lock():
        query(url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")


def test_a_server_that_is_not_there_is_away(url):
    with pytest.raises(TargetAway, match="Cannot connect to PostgreSQL"):
        open_target("postgresql://x@/y?host=/nowhere").state()


@pytest.mark.parametrize("table", ["_ploti_sync", "_ploti_datasets"])
def test_books_that_a_session_keeps_locked_make_the_target_busy_and_the_session_is_named(url, files, table):
    target = open_target(url)
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    target.record("sub_a", "evt_000000000001", [])
    with psycopg.connect(url, application_name="a report") as other, target.lock():
        other.execute(f"LOCK TABLE {table}")
        who = f"session {other.info.backend_pid} of postgres (a report) keeps {table} locked"
        target._held.run("SET lock_timeout = '100ms'")
        for step in (
            lambda: target.record("sub_a", "evt_000000000002", [held(1)]),
            lambda: target.load(files.snapshot(2, rows_of(4)), held(2), None),
        ):
            with pytest.raises(TargetBusy, match=re.escape(who)):
                step()
        other.rollback()
        target.load(files.snapshot(2, rows_of(4)), held(2), None)


# rows


def test_books_and_rows_move_together(url, target, files):
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    told = "SELECT dataset_id, table_name, loaded_version, rows, state FROM _ploti_datasets"
    assert query(url, told) == [(D, D, 1, 3, "ok")]
    target.record("sub_a", "evt_000000000007", [Held(D, 1, "1.0", 1, "behind", "why", 3, 1)])
    assert query(url, "SELECT subscription_id, cursor FROM _ploti_sync") == [("sub_a", "evt_000000000007")]
    assert target.state().datasets[D] == Held(D, 1, "1.0", 1, "behind", "why", 3, 1)
    assert [(each.held.dataset_id, each.held.version) for each in target.status()] == [(D, 1)]


@pytest.mark.parametrize(("columns", "bounds"), [(3, 101), (300, 11)])
def test_the_planner_knows_a_new_table_from_fewer_rows_the_wider_it_is(target, url, files, columns, bounds):
    types = {f"c{at}": "integer" for at in range(columns)}
    target.load(files.snapshot(1, [(at, dict.fromkeys(types, at % 7)) for at in range(500)], types), held(1), None)
    known = dict(query(url, "SELECT attname, histogram_bounds::text::text[] FROM pg_stats WHERE tablename = 'ds_a'"))
    assert types.keys() <= known.keys()
    assert len(known["_ploti_record_id"]) == bounds


BROKEN_SNAPSHOTS = [
    ("fewer rows than announced", lambda files: files.snapshot(2, rows_of(3), announced=4), "3 rows where 4"),
    ("a known record twice", lambda files: files.snapshot(2, [*rows_of(3), (1, {})]), "2 times"),
    ("a new record twice", lambda files: files.snapshot(2, [*rows_of(3), (9, {}), (9, {})]), "more than once"),
    ("a column missing", lambda files: files.snapshot(2, [], {"name": "string"}), "lack the column 'value'"),
    ("a NUL", lambda files: files.snapshot(2, [(1, {"name": "a\0b"})]), "0x00"),
    (
        "no Parquet at all",
        lambda files: Delivery(D, 2, schema(), 1, {}, (files.write(b"PAR1nonsense"),)),
        "magic bytes",
    ),
]


@pytest.mark.parametrize(("make", "why"), [row[1:] for row in BROKEN_SNAPSHOTS], ids=[r[0] for r in BROKEN_SNAPSHOTS])
def test_a_broken_snapshot_is_refused_and_the_rows_stay(url, target, files, make, why):
    delivery = make(files)
    broken = Delivery(D, 2, schema(), delivery.row_count, {}, delivery.snapshot)
    with pytest.raises(StepRefused):
        target.load(broken, held(2), None)
    assert query(url, "SELECT to_regclass('ds_a')") == [(None,)]
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    with pytest.raises(StepRefused, match=why):
        target.load(broken, held(2), None)
    assert query(url, "SELECT count(*), max(_ploti_version) FROM ds_a") == [(5, 1)]
    assert target.state().datasets[D].version == 1
    assert leftovers(url) == []


def leftovers(url):
    return query(url, "SELECT relname FROM pg_class WHERE relname LIKE '\\_ploti\\_staging%'")


BROKEN_CHANGES = [
    ("a record twice", [(1, {"name": "x"}), (1, {"name": "y"})], (), 5, "2 times: nothing of it was applied"),
    ("a record put and removed", [(1, {"name": "x"})], (1,), 5, "2 times"),
    ("another number of rows", [(9, {"name": "x"})], (), 5, "6 rows where 5"),
]


@pytest.mark.parametrize(
    ("put", "drop", "rows", "why"), [row[1:] for row in BROKEN_CHANGES], ids=[row[0] for row in BROKEN_CHANGES]
)
def test_broken_changes_are_refused_and_the_rows_stay(url, target, files, put, drop, rows, why):
    """F072: refused once with a reason, nothing of it applied."""
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    with pytest.raises(StepRefused, match=why):
        target.apply(files.changes(2, put, drop, rows), held(2))
    assert query(url, "SELECT count(*), max(_ploti_version), count(*) FILTER (WHERE name = 'n1') FROM ds_a") == [
        (5, 1, 1)
    ]
    assert target.state().datasets[D].version == 1
    assert leftovers(url) == []


def test_changes_applied_twice_change_nothing(url, target, files):
    """I6."""
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    for _ in range(2):
        moved = target.apply(files.changes(2, [(1, {"name": "x"}), (7, {"name": "y"})], [2], rows=5), held(2))
        assert moved.rows == 5
    assert query(url, "SELECT name, value FROM ds_a WHERE _ploti_version = 2 ORDER BY 1") == [("x", None), ("y", None)]


def test_a_reload_touches_only_the_rows_that_differ(url, target, files):
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    before = dict(query(url, "SELECT name, ctid::text FROM ds_a"))
    changed = [*rows_of(4), (4, {"name": "n4", "value": -1.0}), (5, {"name": "n5", "value": None})]
    assert target.load(files.snapshot(2, changed[1:]), held(2), None).rows == 5
    after = dict(query(url, "SELECT name, ctid::text FROM ds_a"))
    assert {name for name in after if before.get(name) == after[name]} == {"n1", "n2", "n3"}
    assert sorted(query(url, "SELECT name FROM ds_a WHERE _ploti_version = 2")) == [("n4",), ("n5",)]


def test_readers_see_the_old_rows_or_the_new_and_never_none(url, files):
    seen = []
    reader = psycopg.connect(url, autocommit=True)
    counted = "SELECT count(*), min(left(name, 1)) FROM ds_a"
    target = open_target(url, reach=lambda step: seen.append((step, reader.execute(counted).fetchall()[0])))
    open_target(url).load(files.snapshot(1, rows_of(50)), held(1), None)
    target.load(files.snapshot(2, rows_of(70, "z")), held(2), None)
    target.apply(files.changes(3, [(1, {"name": "a"})], [2], rows=69), held(3))
    reader.close()
    assert [rows for step, rows in seen if step != "sync.after_commit"] == [(50, "n")] * 4 + [(70, "z")] * 4
    assert [rows for step, rows in seen if step == "sync.after_commit"] == [(70, "z"), (69, "a")]


def test_what_a_killed_run_left_behind_is_dropped(url, target, files):
    class Stopped(BaseException):
        pass

    def stop(step):
        if step == "sync.staged":
            os.kill(os.getpid(), signal.SIGKILL)

    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    second = files.snapshot(2, rows_of(6))
    child = multiprocessing.get_context("fork").Process(
        target=lambda: open_target(url, reach=stop).load(second, held(2), None)
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert len(leftovers(url)) == 1
    target.load(second, held(2), None)
    assert leftovers(url) == []


# what users built on a table (F075)


def test_grants_views_indexes_and_foreign_rows_survive_reloads_and_changes(url, target, files):
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    query(
        url,
        "CREATE ROLE analyst",
        "GRANT SELECT ON ds_a TO analyst",
        "CREATE VIEW named AS SELECT name FROM ds_a WHERE value > 0",
        "CREATE MATERIALIZED VIEW frozen AS SELECT * FROM ds_a",
        "CREATE UNIQUE INDEX by_name ON ds_a (name)",
        "ALTER TABLE ds_a ADD COLUMN my_note text",
        "UPDATE ds_a SET my_note = 'mine' WHERE name = 'n1'",
        "CREATE TABLE mine (record text REFERENCES ds_a, note text)",
        f"INSERT INTO mine VALUES ('{record_id(1)}', 'look at this')",
    )
    try:
        table = query(url, "SELECT 'ds_a'::regclass::oid")
        target.load(files.snapshot(2, rows_of(7)), held(2), None)
        target.apply(files.changes(3, [(1, {"name": "other", "value": 3.0})], [2], rows=6), held(3))
        wider = {"name": "string", "value": "number", "more": "date"}
        target.load(files.snapshot(4, [(1, {"name": "last", "more": date(2026, 1, 1)})], wider), held(4), None)
        assert query(url, "SET ROLE analyst", "SELECT name, more, my_note FROM ds_a") == [
            ("last", date(2026, 1, 1), "mine")
        ]
        assert query(url, "SELECT count(*) FROM named") == [(0,)]
        assert query(url, "SELECT note FROM mine JOIN ds_a ON record = _ploti_record_id") == [("look at this",)]
        assert query(url, "SELECT 'ds_a'::regclass::oid") == table
        indexes = query(url, "SELECT indexname FROM pg_indexes WHERE tablename = 'ds_a' ORDER BY 1")
        assert indexes == [("by_name",), ("ds_a_pkey",)]
    finally:
        query(url, "DROP OWNED BY analyst", "DROP ROLE analyst")


def test_records_that_trade_values_which_a_unique_index_keeps_apart(url, target, files):
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    query(url, "CREATE UNIQUE INDEX by_name ON ds_a (name)")
    query(url, "CREATE TABLE mine (r text REFERENCES ds_a)", "INSERT INTO mine SELECT _ploti_record_id FROM ds_a")
    target.apply(files.changes(2, [(1, {"name": "n2"}), (2, {"name": "n1"})], rows=5), held(2))
    named = "SELECT name FROM ds_a ORDER BY _ploti_record_id = '{}', _ploti_record_id = '{}'"
    assert query(url, named.format(record_id(1), record_id(2)))[3:] == [("n1",), ("n2",)]
    turned = [(at, {"name": f"n{(at + 1) % 5}", "value": 1.0}) for at in range(5)]
    target.load(files.snapshot(3, turned), held(3), None)
    assert dict(query(url, "SELECT _ploti_record_id, name FROM ds_a")) == {
        record_id(at): row["name"] for at, row in turned
    }


IN_THE_WAY = [
    ("a row of another table", "CREATE TABLE mine (r text REFERENCES ds_a); INSERT INTO mine SELECT _ploti_record_id "
     "FROM ds_a WHERE name = 'n4'", "mine_r_fkey"),
    ("a unique index", "CREATE UNIQUE INDEX one_value ON ds_a ((value IS NULL))", "one_value"),
    ("a check", "ALTER TABLE ds_a ADD CONSTRAINT short CHECK (length(name) < 9)", "short"),
    ("a trigger that raises", "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
     "'BEGIN RAISE ''keep % out'', NEW.name; END'; "
     "CREATE TRIGGER mine BEFORE UPDATE ON ds_a FOR EACH ROW EXECUTE FUNCTION refuse()", "keep much too long out"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "named"), [row[1:] for row in IN_THE_WAY], ids=[row[0] for row in IN_THE_WAY])
def test_a_rule_of_the_users_that_new_rows_break_blocks_and_is_named(url, target, files, sql, named):
    target.load(files.snapshot(1, rows_of(1 if "UNIQUE" in sql else 5)), held(1), None)
    query(url, sql)
    before = query(url, "SELECT count(*) FROM ds_a")
    rows = [(1, {"name": "much too long", "value": 1.0}), (2, {"name": "b", "value": 2.0})]
    with pytest.raises(StepBlocked, match=named):
        target.load(files.snapshot(2, rows), held(2), None)
    assert query(url, "SELECT count(*) FROM ds_a") == before


NARROWER = {"name": "string"}
RETYPED = {"name": "string", "value": "string"}


@pytest.mark.parametrize("columns", [NARROWER, RETYPED], ids=["a column goes", "a column changes its type"])
def test_a_view_that_cannot_follow_blocks_and_is_named(url, target, files, columns):
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    query(url, "CREATE VIEW of_value AS SELECT value FROM ds_a")
    second = files.snapshot(2, [(1, dict.fromkeys(columns, "x"))], columns)
    with pytest.raises(StepBlocked, match="of_value"):
        target.load(second, held(2), None)
    assert query(url, "SELECT count(*) FROM of_value") == [(5,)]
    query(url, "DROP VIEW of_value")
    assert target.load(second, held(2), None).rows == 1


def test_columns_that_go_come_and_change_type_keep_what_else_there_is(url, target, files):
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    query(url, "ALTER TABLE ds_a ADD COLUMN my_note text", "CREATE INDEX by_name ON ds_a (name)")
    other = {"name": "string", "value": "json", "more": "timestamp"}
    target.load(files.snapshot(2, [(1, {"name": "a", "value": '{"a":1}'})], other), held(2), None)
    assert query(url, "SELECT name, value, more, my_note FROM ds_a") == [("a", {"a": 1}, None, None)]
    assert query(url, "SELECT count(*) FROM pg_indexes WHERE indexname = 'by_name'") == [(1,)]
    target.load(files.snapshot(3, rows_of(2)), held(3), None)
    assert query(url, "SELECT name, value FROM ds_a ORDER BY 1") == [("n0", 0.0), ("n1", 1 / 3)]


def test_a_table_of_the_same_name_that_sync_did_not_make_is_left_alone(url, target, files):
    query(url, "CREATE TABLE ds_a AS SELECT 1 AS x")
    with pytest.raises(StepBlocked, match="rename or drop it"):
        target.load(files.snapshot(1, rows_of(5)), held(1), None)
    assert query(url, "SELECT x FROM ds_a") == [(1,)]


def test_a_column_of_the_users_with_the_name_of_one_that_arrives_blocks(url, target, files):
    target.load(files.snapshot(1, rows_of(2)), held(1), None)
    query(url, "ALTER TABLE ds_a ADD COLUMN more integer")
    with pytest.raises(StepBlocked, match="'more' of yours"):
        target.load(files.snapshot(2, rows_of(2), {**schema_types(), "more": "date"}), held(2), None)


def schema_types():
    return {"name": "string", "value": "number"}


def test_a_lost_primary_key_is_noticed_and_made_again_by_a_reload(url, target, files):
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    query(url, "ALTER TABLE ds_a DROP CONSTRAINT ds_a_pkey", "INSERT INTO ds_a SELECT * FROM ds_a")
    with pytest.raises(RowsDiffer):
        target.apply(files.changes(2, [(1, {"name": "x"})], rows=3), held(2))
    assert target.load(files.snapshot(2, rows_of(3)), held(2), None).rows == 3
    assert query(url, "SELECT count(*) FROM pg_indexes WHERE indexname = 'ds_a_pkey'") == [(1,)]


def test_a_dropped_table_comes_back_with_the_reload(url, target, files):
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    query(url, "DROP TABLE ds_a")
    with pytest.raises(RowsDiffer):
        target.apply(files.changes(2, [(1, {"name": "x"})], rows=3), held(2))
    assert target.load(files.snapshot(2, rows_of(4)), held(2), None).rows == 4


# DDL gives way

WIDER = {"name": "string", "value": "number", "more": "integer"}


def test_a_reader_that_keeps_a_table_in_use_is_waited_for_and_named(url, files):
    said, now = [], [0.0]
    reader = psycopg.connect(url, application_name="a report")
    who = f"session {reader.info.backend_pid} of postgres (a report)"

    def sleep(pause):
        now[0] += pause
        if now[0] > 0.1:
            reader.rollback()

    target = PostgresTarget(Server(url, None, said.append, clock=lambda: now[0], sleep=sleep))
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    reader.execute("SELECT count(*) FROM ds_a")
    changes = files.changes(2, [(1, {"name": "x", "more": 1})], rows=3, columns=WIDER)
    assert target.apply(changes, held(2)).rows == 3
    reader.close()
    assert said == [f"waiting for {who}, which uses ds_a"]


def test_a_table_that_does_not_come_free_leaves_its_dataset_behind(url, files):
    now = [0.0]
    server = Server(url, None, clock=lambda: now[0], sleep=lambda _: now.__setitem__(0, 100.0))
    target = PostgresTarget(server)
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    with psycopg.connect(url, application_name="a report") as reader:
        reader.execute("SELECT count(*) FROM ds_a")
        with pytest.raises(StepRefused, match=r"\(a report\) keeps ds_a in use"):
            target.apply(files.changes(2, [(1, {"name": "x"})], rows=3, columns=WIDER), held(2))
    assert query(url, "SELECT count(*) FROM ds_a WHERE name = 'n1'") == [(1,)]


def test_a_row_that_a_session_keeps_locked_leaves_the_dataset_behind(url, files):
    target = open_target(url)
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    with psycopg.connect(url, application_name="a form") as writer, target.lock():
        writer.execute("UPDATE ds_a SET name = 'mine' WHERE name = 'n1'")
        target._held.run("SET lock_timeout = '100ms'")
        with pytest.raises(StepRefused, match=r"session \d+ of postgres \(a form\) keeps ds_a in use"):
            target.apply(files.changes(2, [(1, {"name": "x"})], rows=3), held(2))
        writer.execute("LOCK TABLE ds_a")
        with pytest.raises(StepRefused, match=r"session \d+ of postgres \(a form\) keeps ds_a in use"):
            target.digest(D, ())
        writer.rollback()
        target.apply(files.changes(2, [(1, {"name": "x"})], rows=3), held(2))


def test_two_records_may_have_the_same_number_with_an_exponent_in_their_json(url, target, files):
    rows = [(at, {"told": text}) for at, text in enumerate(["1e+16", "1e+16", '{"a":-0.0}', '{"a":-0.0}'])]
    assert target.load(files.snapshot(1, rows, {"told": "json"}), held(1), None).rows == 4
    assert query(url, "SELECT count(DISTINCT told::text) FROM ds_a") == [(2,)]


# names


def test_names_that_postgresql_keeps_for_itself_get_an_underscore(url, target, files):
    columns = {"xmin": "number", "ctid": "string", "user": "string"}
    target.load(files.snapshot(1, [(1, {"xmin": 1.5, "ctid": "c", "user": "u"})], columns), held(1), None)
    target.apply(files.changes(2, [(2, {"xmin": 2.5})], rows=2, columns=columns, constants={"ctid": "d"}), held(2))
    assert query(url, 'SELECT xmin_, ctid_, "user" FROM ds_a ORDER BY 1') == [(1.5, "d", "u"), (2.5, "d", None)]
    expected = Digest()
    for at, row in ((1, {"xmin": 1.5, "ctid": "d", "user": "u"}), (2, {"xmin": 2.5, "ctid": "d"})):
        expected.add(record_id(at), record_hash(record_id(at), canonical_row(row, columns)))
    assert target.digest(D, []) == expected


def test_a_name_as_long_as_can_be_and_one_that_is_too_long(url, target, files):
    longest = {"é" * 31: "string", "x" * 63: "integer"}
    target.load(files.snapshot(1, [(1, {"é" * 31: "a", "x" * 63: 7})], longest), held(1), None)
    assert query(url, f"SELECT {'é' * 31}, {'x' * 63} FROM ds_a") == [("a", 7)]
    with pytest.raises(StepRefused, match="longer than"):
        target.load(files.snapshot(2, [], {"é" * 32: "string"}), held(2), None)


def test_long_dataset_ids_get_tables_of_their_own(url, target, files):
    for ending in ("a", "b"):
        name = "ds_" + "county" * 12 + ending
        target.load(files.snapshot(1, rows_of(2), dataset_id=name), held(1, name), None)
    found = query(url, "SELECT dataset_id, table_name FROM _ploti_datasets ORDER BY 1")
    assert len({table for _, table in found}) == 2
    for _, table in found:
        assert query(url, f"SELECT count(*) FROM {table}") == [(2,)]


def test_columns_say_what_they_are(url, target, files):
    delivery = files.snapshot(1, rows_of(1))
    delivery.schema["columns"][0] |= {"description": "The owner's 100 % name.", "sourceName": "OWN_NM"}
    target.load(delivery, held(1), None)
    told = "SELECT col_description('ds_a'::regclass, attnum) FROM pg_attribute WHERE attname = 'name' AND attrelid = "
    assert query(url, told + "'ds_a'::regclass") == [("The owner's 100 % name. Source column: OWN_NM",)]


# killed inside a transaction


def load_and_apply(url, snapshot, changes, started):
    target = open_target(url)
    started.set()
    target.load(snapshot, held(2), None)
    target.apply(changes, held(3))


def test_killed_at_random_moments_the_rows_are_those_of_the_loaded_version(url, files):
    first, second = files.snapshot(1, rows_of(200)), files.snapshot(2, rows_of(2_000, "s"))
    changes = files.changes(3, [(at, {"name": "t"}) for at in range(100)], rows=2_000)
    wanted = {1: (200, 0), 2: (2_000, 0), 3: (2_000, 100)}
    chance, seen = random.Random(11), set()
    context = multiprocessing.get_context("fork")
    for attempt in range(6):
        where = f"{url}&schema=try{attempt}"
        target = open_target(where)
        target.load(first, held(1), None)
        started = context.Event()
        child = context.Process(target=load_and_apply, args=(where, second, changes, started))
        child.start()
        started.wait()
        time.sleep(chance.uniform(0, 0.4))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        counted = f"SELECT count(*), count(*) FILTER (WHERE name = 't') FROM try{attempt}.ds_a"
        with target.lock():
            version = target.state().datasets[D].version
            assert query(url, counted) == [wanted[version]]
            seen.add(version)
            if version == 1:
                target.load(second, held(2), None)
            if version < 3:
                target.apply(changes, held(3))
        assert query(url, counted) == [wanted[3]]
    assert seen <= {1, 2, 3}
