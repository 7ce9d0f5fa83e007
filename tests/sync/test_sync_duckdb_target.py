"""What only the DuckDB target promises (D11.9): locks, old readers, users' views and indexes, rows seen whole."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.golden import RECORDS

from ploti.contract.digest import Digest, canonical_row, record_hash
from ploti.contract.files import CHANGE, OP, RECORD_ID
from ploti.sync.plan import Held
from ploti.sync.target import (
    Delivery,
    StepBlocked,
    StepRefused,
    TargetBusy,
    TargetUnusable,
    check_columns,
)
from ploti.sync.targets import open_target
from ploti.sync.targets._duckdb_digest import digest_of
from ploti.sync.targets._duckdb_file import DuckFile
from ploti.sync.targets.duckdb import DuckTarget
from ploti.testing.feed import changes_part, parquet, record_id
from ploti.testing.stories import POINT

D = "ds_a"
COLUMNS = {"name": "string", "value": "number"}
ENVELOPE = {
    "_ploti_record_id": "string",
    "_ploti_dataset_id": "string",
    "_ploti_place_id": "string",
    "_ploti_version": "integer",
    "_ploti_source_url": "string",
    "_ploti_fetched_at": "timestamp",
}


def schema(columns=None, version="1.0"):
    listed = [{"name": name, "type": type_, "nullable": True} for name, type_ in (columns or COLUMNS).items()]
    return {"datasetId": D, "schemaVersion": version, "firstVersion": 1, "keyColumns": [], "columns": listed}


def held(version, **more):
    return Held(D, version, "1.0", 1, "ok", None, 0, version, **more)


class Files:
    """Makes deliveries out of rows."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def write(self, content):
        self.count += 1
        path = self.folder / f"part-{self.count}"
        path.write_bytes(content)
        return path

    def snapshot(self, version, rows, columns=None, announced=None):
        types = {**ENVELOPE, **(columns or COLUMNS)}
        lines = [{RECORD_ID: record_id(at), "_ploti_version": version, **row} for at, row in rows]
        count = len(rows) if announced is None else announced
        return Delivery(D, version, schema(columns), count, {}, snapshot=(self.write(parquet(types, lines)),))

    def changes(self, version, put, drop=(), rows=0, columns=None, constants=None):
        lines = [
            {RECORD_ID: record_id(at), "_ploti_version": version, OP: "upsert", CHANGE: "changed", **row}
            for at, row in put
        ]
        lines += [{RECORD_ID: record_id(at), "_ploti_version": version, OP: "delete", CHANGE: "removed"} for at in drop]
        part = self.write(changes_part(schema(columns), lines))
        return Delivery(D, version, schema(columns), rows, constants or {}, changes=(part,))


def rows_of(count, name="n"):
    return [(at, {"name": f"{name}{at}", "value": at / 3}) for at in range(count)]


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.duckdb"


@pytest.fixture
def target(path):
    return open_target(f"duckdb:///{path}")


def query(path, sql, **options):
    with duckdb.connect(str(path), **options) as db:
        return db.execute(sql).fetchall()


# the file


@pytest.mark.parametrize("url", ["postgres://h/d", "records.duckdb", "duckdb://host/file", "duckdb:///", "duckdb:"])
def test_an_address_that_is_none_is_refused_with_an_example(url):
    with pytest.raises(TargetUnusable, match="duckdb:///records"):
        open_target(url)


def test_files_are_made_for_duckdb_1_4(path, target):
    target.record("sub_a", "evt_000000000001", [])
    assert query(path, "SELECT tags['storage_version'] FROM duckdb_databases() WHERE path IS NOT NULL") == [
        ("v1.4.0+",)
    ]


def test_an_empty_target_holds_nothing_and_is_not_made_by_looking(path, target):
    state = target.state()
    assert (state.subscription_id, state.cursor, dict(state.datasets)) == (None, None, {})
    assert target.status() == []
    assert not path.exists()


def test_a_file_of_the_users_own_is_added_to(path, target, files):
    query(path, "CREATE TABLE mine AS SELECT 1 AS x")
    assert target.state().cursor is None
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    assert query(path, "SELECT (SELECT x FROM mine), count(*) FROM ds_a") == [(1, 3)]


def test_another_layout_is_refused(path, target):
    target.record("sub_a", "evt_000000000001", [])
    query(path, "UPDATE _ploti_sync SET layout = 99")
    with pytest.raises(TargetUnusable, match="layout 99"):
        target.state()


def hold_open(path, seconds):
    code = f"import duckdb, time; db = duckdb.connect({str(path)!r}); print('open', flush=True); time.sleep({seconds})"
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"open\n"
    return holder


def test_a_file_that_another_process_reads_is_waited_for(path, target, files):
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    said = []
    with hold_open(path, 0.5) as holder:
        moved = open_target(f"duckdb:///{path}", say=said.append).load(files.snapshot(2, rows_of(4)), held(2), None)
    assert moved.rows == 4
    assert len(said) == 1
    assert f"process {holder.pid}" in said[0]


def test_a_file_that_stays_locked_is_given_up_naming_who_holds_it(path, target):
    target.record("sub_a", None, [])
    now = [0.0]
    file = DuckFile(path, wait_seconds=60, clock=lambda: now[0], sleep=lambda pause: now.__setitem__(0, now[0] + pause))
    with hold_open(path, 30) as holder:
        with pytest.raises(TargetBusy, match=f"process {holder.pid}"):
            DuckTarget(file).record("sub_a", "evt_000000000001", [])
        holder.kill()
    assert 60 <= now[0] < 63


def test_a_second_sync_is_kept_away_with_a_clear_line(path, target):
    with (
        target.lock(),
        pytest.raises(TargetBusy, match=f"process {os.getpid()}"),
        open_target(f"duckdb:///{path}").lock(),
    ):
        pytest.fail("two syncs at once")
    with target.lock():
        pass


@pytest.mark.parametrize("name", ["t.duckdb", "memory.duckdb", "Temp.db", "a b.x.duckdb", "_ploti.duckdb"])
def test_file_is_free_between_two_pieces_of_a_run_and_has_one_name_for_all(tmp_path, files, name):
    path = tmp_path / name
    target = open_target(f"duckdb:///{path}".replace(" ", "%20"))
    with target.lock():
        target.load(files.snapshot(1, rows_of(5)), held(1), None)
        with duckdb.connect(str(path)) as db:
            ((database,),) = db.execute("SELECT current_database()").fetchall()
            db.execute(f'CREATE VIEW mine AS SELECT name FROM "{database}".main.ds_a')
        with pytest.raises(StepRefused):
            target.load(files.snapshot(2, rows_of(5), announced=9), held(2), None)
        assert query(path, "SELECT count(*) FROM mine") == [(5,)]
        target.load(files.snapshot(2, rows_of(6)), held(2), None)
        assert query(path, "SELECT count(*) FROM mine") == [(6,)]
        assert target.digest(D, ()).records == 6
    assert {each.name for each in tmp_path.iterdir() if not each.name.startswith("part-")} == {
        name,
        f"{name}.sync-lock",
    }


# rows


def test_books_and_rows_move_together(path, target, files):
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    assert query(path, "SELECT dataset_id, loaded_version, rows, state FROM _ploti_datasets") == [(D, 1, 3, "ok")]
    target.record("sub_a", "evt_000000000007", [Held(D, 1, "1.0", 1, "behind", "why", 3, 1)])
    assert query(path, "SELECT subscription_id, cursor FROM _ploti_sync") == [("sub_a", "evt_000000000007")]
    state = target.state()
    assert state.datasets[D] == Held(D, 1, "1.0", 1, "behind", "why", 3, 1)
    assert query(path, "SELECT count(*) FROM ds_a") == [(3,)]


BROKEN_SNAPSHOTS = [
    ("fewer rows than announced", lambda files: files.snapshot(2, rows_of(3), announced=4), "3 rows where 4"),
    ("a record twice", lambda files: files.snapshot(2, [*rows_of(3), (1, {})]), "2 times"),
    ("a column missing", lambda files: files.snapshot(2, [], {"name": "string"}), "lack the column 'value'"),
    (
        "no Parquet at all",
        lambda files: Delivery(D, 2, schema(), 1, {}, (files.write(b"PAR1nonsense"),)),
        "magic bytes",
    ),
]


@pytest.mark.parametrize(("make", "why"), [row[1:] for row in BROKEN_SNAPSHOTS], ids=[r[0] for r in BROKEN_SNAPSHOTS])
def test_a_broken_snapshot_is_refused_and_the_rows_stay(path, target, files, make, why):
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    delivery = make(files)
    broken = Delivery(D, 2, schema(), delivery.row_count, {}, delivery.snapshot)
    with pytest.raises(StepRefused, match=why):
        target.load(broken, held(2), None)
    assert query(path, "SELECT count(*), max(_ploti_version) FROM ds_a") == [(5, 1)]
    assert target.state().datasets[D].version == 1


BROKEN_CHANGES = [
    ("a record twice", [(1, {"name": "x"}), (1, {"name": "y"})], (), 5, "2 times: nothing of it was applied"),
    ("a record put and removed", [(1, {"name": "x"})], (1,), 5, "2 times"),
    ("another number of rows", [(9, {"name": "x"})], (), 5, "6 rows where 5"),
]


@pytest.mark.parametrize(
    ("put", "drop", "rows", "why"), [row[1:] for row in BROKEN_CHANGES], ids=[row[0] for row in BROKEN_CHANGES]
)
def test_broken_changes_are_refused_and_the_rows_stay(path, target, files, put, drop, rows, why):
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    with pytest.raises(StepRefused, match=why):
        target.apply(files.changes(2, put, drop, rows), held(2))
    assert query(path, "SELECT count(*), max(_ploti_version), count(*) FILTER (name = 'n1') FROM ds_a") == [(5, 1, 1)]
    assert target.state().datasets[D].version == 1


def test_the_version_of_a_row_is_the_one_in_which_it_last_arrived(path, target, files):
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    target.apply(files.changes(2, [(1, {"name": "new"})], rows=3), held(2))
    assert sorted(query(path, "SELECT _ploti_version FROM ds_a")) == [(1,), (1,), (2,)]


def test_readers_in_the_same_process_see_the_old_rows_or_the_new(path, target, files):
    target.load(files.snapshot(1, rows_of(50)), held(1), None)
    seen = []
    reader = duckdb.connect(str(path))
    watching = open_target(
        f"duckdb:///{path}",
        reach=lambda step: seen.append((step, reader.execute("SELECT count(*), max(name) FROM ds_a").fetchall()[0])),
    )
    watching.load(files.snapshot(2, rows_of(70, "z")), held(2), None)
    reader.close()
    assert [rows for step, rows in seen if step in {"sync.rows_written", "sync.before_commit"}] == [(50, "n9")] * 2
    assert seen[-1] == ("sync.after_commit", (70, "z9"))


def test_users_views_and_indexes_survive_a_reload(path, target, files):
    """F075, as far as DuckDB has grants and foreign rows."""
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE VIEW named AS SELECT name FROM ds_a WHERE value > 0")
        db.execute("CREATE UNIQUE INDEX by_name ON ds_a(name)")
    target.load(files.snapshot(2, rows_of(7)), held(2), None)
    target.apply(files.changes(3, [(1, {"name": "n2"}), (2, {"name": "n1"})], rows=7), held(3))
    assert query(path, "SELECT count(*) FROM named") == [(4,)]
    assert query(path, "SELECT index_name, is_unique FROM duckdb_indexes()") == [("by_name", True)]


def test_a_users_unique_index_that_new_rows_break_blocks(path, target, files):
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    query(path, "CREATE UNIQUE INDEX by_name ON ds_a(name)")
    with pytest.raises(StepBlocked, match="stands in the way"):
        target.load(files.snapshot(2, [(1, {"name": "same"}), (2, {"name": "same"})]), held(2), None)
    assert query(path, "SELECT count(*) FROM ds_a") == [(5,)]


def test_views_and_indexes_survive_columns_that_go_and_change_type(path, target, files):
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE VIEW everything AS SELECT * FROM ds_a")
        db.execute("CREATE INDEX by_name ON ds_a(name)")
        db.execute("ALTER TABLE ds_a ADD COLUMN my_note VARCHAR")
    other = {"name": "string", "value": "string", "more": "date"}
    rows = [(1, {"name": "a", "value": "ten", "more": date(2026, 1, 1)})]
    target.load(files.snapshot(2, rows, other), held(2), None)
    assert query(path, "SELECT name, value, more, my_note FROM everything") == [("a", "ten", date(2026, 1, 1), None)]
    assert query(path, "SELECT index_name FROM duckdb_indexes()") == [("by_name",)]


def test_a_view_that_cannot_follow_blocks_and_is_named(path, target, files):
    target.load(files.snapshot(1, rows_of(5)), held(1), None)
    query(path, "CREATE VIEW of_value AS SELECT value FROM ds_a")
    with pytest.raises(
        StepBlocked, match=r"your view of_value cannot follow the new columns of ds_a \(no column value\)"
    ):
        target.load(files.snapshot(2, [(1, {"name": "a"})], {"name": "string"}), held(2), None)
    assert query(path, "SELECT count(*) FROM of_value") == [(5,)]


def test_a_table_of_the_same_name_that_sync_did_not_make_is_left_alone(path, target, files):
    query(path, "CREATE TABLE ds_a AS SELECT 1 AS x")
    with pytest.raises(StepBlocked, match="rename or drop it"):
        target.load(files.snapshot(1, rows_of(5)), held(1), None)
    assert query(path, "FROM ds_a") == [(1,)]


def test_shapes_are_wkb_with_a_view_that_gives_geometry(path, target, files):
    columns = {"name": "string", "geometry": "geometry"}
    target.load(files.snapshot(1, [(1, {"name": "a", "geometry": POINT}), (2, {"name": "b"})], columns), held(1), None)
    assert query(path, "SELECT typeof(geometry), geometry FROM ds_a ORDER BY name") == [("BLOB", POINT), ("BLOB", None)]
    assert query(path, "SELECT typeof(geometry), ST_AsText(geometry) FROM ds_a_geo ORDER BY name") == [
        ("GEOMETRY", "POINT (1 2)"),
        ("GEOMETRY", None),
    ]
    target.load(files.snapshot(2, rows_of(1)), held(2), None)
    assert query(path, "SELECT count(*) FROM duckdb_views() WHERE view_name = 'ds_a_geo'") == [(0,)]


def test_columns_say_what_they_are(path, target, files):
    delivery = files.snapshot(1, rows_of(1))
    delivery.schema["columns"][0] |= {"description": "The owner's name.", "sourceName": "OWN_NM"}
    target.load(delivery, held(1), None)
    told = "SELECT comment FROM duckdb_columns() WHERE table_name = 'ds_a' AND column_name = 'name'"
    assert query(path, told) == [("The owner's name. Source column: OWN_NM",)]


@pytest.mark.parametrize("name", ["_ploti_op", "_PLOTI_VERSION", "", "a\0b", "geometry"])
def test_reserved_names_are_refused(name):
    with pytest.raises(StepRefused):
        check_columns(schema({name: "string"}))


def test_names_that_differ_by_case_alone_are_refused():
    with pytest.raises(StepRefused, match="twice"):
        check_columns(schema({"Name": "string", "name": "string"}))


# digest

VALUES = {
    "string": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    "json": st.sampled_from(['{"a":1}', "[]", '"é"']),
    "integer": st.integers(-(2**63), 2**63 - 1),
    "number": st.floats(allow_nan=True, allow_infinity=True),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "geometry": st.binary(max_size=12),
}
TYPES = {**{f"c_{type_}": type_ for type_ in VALUES if type_ != "geometry"}, "geometry": "geometry", "é'\"x": "string"}
ROW = st.fixed_dictionaries({name: st.none() | VALUES[type_] for name, type_ in TYPES.items()})
HARD = [
    {"c_number": number}
    for number in (0.1 + 0.2, 1e22, 1e-7, -0.0, float("nan"), float("inf"), 5e-324, 1.7976931348623157e308)
]
HARD += [{"c_integer": number} for number in (-(2**63), 2**63 - 1, 2**53 + 1)]
HARD += [{"c_string": text} for text in ("e\u0301", "é", "\U0001f926\U0001f3fc", "a\x1fb")]
HARD += [{"c_date": date(1, 1, 1)}, {"c_timestamp": datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=1)}]
HARD += [{"geometry": POINT}, {}]


def check_digest(rows):
    expected = Digest()
    for at, row in enumerate(rows):
        expected.add(record_id(at), record_hash(record_id(at), canonical_row(row, TYPES)))
    assert digest_in_duckdb(TYPES, [(record_id(at), row) for at, row in enumerate(rows)]) == expected


def digest_in_duckdb(types, records):
    columns = ", ".join(
        ['"_ploti_record_id" VARCHAR', *(f"{quote(name)} {DUCK[type_]}" for name, type_ in types.items())]
    )
    with duckdb.connect(config={"threads": 1}) as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute(f"CREATE TABLE ds_a ({columns})")
        marks = ", ".join("?" * (1 + len(types)))
        values = [[id_, *(row.get(name) for name in types)] for id_, row in records]
        db.executemany(f"INSERT INTO ds_a VALUES ({marks})", values)
        return digest_of(db, D, types)


def quote(name):
    return '"' + name.replace('"', '""') + '"'


DUCK = {
    "string": "VARCHAR",
    "json": "VARCHAR",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "geometry": "BLOB",
}


def test_the_digest_in_sql_is_the_contracts_for_hard_values():
    check_digest(HARD)


@pytest.mark.parametrize("golden", RECORDS, ids=lambda golden: golden.name)
def test_the_digest_in_sql_gives_the_golden_hash(golden):
    expected = Digest()
    expected.add(golden.record_id, golden.hash)
    assert digest_in_duckdb(golden.columns, [(golden.record_id, golden.values)]) == expected


@settings(max_examples=25, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=12))
def test_the_digest_in_sql_is_the_contracts(rows):
    check_digest(rows)


def test_volatile_columns_are_left_out_of_the_digest(target, files):
    target.load(files.snapshot(1, rows_of(3)), held(1), None)
    expected = Digest()
    for at, row in rows_of(3):
        expected.add(record_id(at), record_hash(record_id(at), canonical_row(row, {"value": "number"})))
    assert target.digest(D, ["name"]) == expected


def test_a_dataset_without_rows_has_no_digest(target):
    target.record("sub_a", None, [Held(D)])
    with pytest.raises(StepRefused, match="no rows"):
        target.digest(D, [])


# killed inside a transaction


def load_and_apply(url, snapshot, changes, started):
    target = open_target(url)
    started.set()
    target.load(snapshot, held(2), None)
    target.apply(changes, held(3))


def test_killed_at_random_moments_the_rows_are_those_of_the_loaded_version(tmp_path, files):
    first, second = files.snapshot(1, rows_of(200)), files.snapshot(2, rows_of(4_000, "s"))
    changes = files.changes(3, [(at, {"name": "t"}) for at in range(100)], rows=4_000)
    wanted = {1: (200, 0), 2: (4_000, 0), 3: (4_000, 100)}
    chance, seen = random.Random(7), set()
    context = multiprocessing.get_context("fork")
    for attempt in range(8):
        path = tmp_path / f"{attempt}.duckdb"
        target = open_target(f"duckdb:///{path}")
        target.load(first, held(1), None)
        started = context.Event()
        child = context.Process(target=load_and_apply, args=(f"duckdb:///{path}", second, changes, started))
        child.start()
        started.wait()
        time.sleep(chance.uniform(0, 0.3))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        version = target.state().datasets[D].version
        assert query(path, "SELECT count(*), count(*) FILTER (name = 't') FROM ds_a") == [wanted[version]]
        seen.add(version)
        if version == 1:
            target.load(second, held(2), None)
        if version < 3:
            target.apply(changes, held(3))
        assert query(path, "SELECT count(*), count(*) FILTER (name = 't') FROM ds_a") == [wanted[3]]
    assert seen <= {1, 2, 3}
