"""Whatever a user's own SQL can put into a table is found by `verify` and mended by `repair` (D5.6, D11.5)."""

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime

import duckdb
import psycopg
import pytest
from tests.sync.kits import GeoPackageKit
from tests.sync.test_sync_duckdb_stories import DuckKit
from tests.sync.test_sync_postgresql_stories import PostgresKit

from ploti import Client
from ploti.contract.digest import bucket_of
from ploti.sync.loop import repair, verify
from ploti.sync.target import reach_nothing
from ploti.testing.feed import Feed, record_id
from ploti.testing.stories import POINT, A
from ploti.testing.targets import check_rows, sync_feed

COLUMNS = {
    "text": "string",
    "real": "number",
    "whole": "integer",
    "yes": "boolean",
    "day": "date",
    "moment": "timestamp",
    "nested": "json",
    "geometry": "geometry",
}
SOUND = {
    "text": "P-1",
    "zone": "R-1",
    "real": 10.5,
    "whole": 1,
    "yes": True,
    "day": date(2026, 1, 2),
    "moment": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "nested": '{"a":1}',
    "geometry": POINT,
}
ROWS = {"full": SOUND, "no": {**SOUND, "yes": False}, "empty": dict.fromkeys(SOUND)}
ID = "_ploti_record_id"


def check_found_and_mended(kit, spoilt, columns=COLUMNS):
    """Write each spoilt value, a column and an SQL expression, into a record of its own; see all found and mended.

    Each is written into a full row, one with `false`, and one of nulls, unless it says which.
    """
    rows, ids = {}, iter(ids_of_many_buckets())
    written = []
    for column, value, *which in spoilt:
        for kind in which or ROWS:
            id_ = next(ids)
            rows[id_] = {name: ROWS[kind][name] for name in columns}
            written.append((id_, kind, column, value))
    feed = Feed()
    feed.add(A, columns, rows)
    sync_feed(feed, kit)
    kit.execute(f"UPDATE {kit.table} SET {name} = {value} WHERE {ID} = '{id_}'" for id_, _, name, value in written)
    with Client(**feed.api.client_options) as client:
        (found,) = verify(client, kit.open(reach_nothing))
        assert found.problem is None
        missed = [row for row in written if bucket_of(row[0]) not in found.buckets]
        assert missed == []
        (done,) = repair(client, kit.open(reach_nothing))
        assert done.after.equal, done.after
        check_rows(feed, kit, A, 1)


def ids_of_many_buckets():
    """Give record ids, each of a bucket of its own."""
    by_bucket = {}
    for number in range(2_000):
        by_bucket.setdefault(bucket_of(record_id(number)), record_id(number))
    return by_bucket.values()


class GeoPackage(GeoPackageKit):
    table = A

    def execute(self, statements):
        """Run statements as a program whose functions take anything: here the index does not follow them."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for statement in (*(f"DROP TRIGGER {name}" for name, _ in triggers), *statements):
                db.execute(statement)
            for _, sql in triggers:
                db.execute(sql)


class Duck(DuckKit):
    table = A

    def execute(self, statements):
        with duckdb.connect(str(self.path)) as db:
            for statement in statements:
                db.execute(statement)


class Postgres(PostgresKit):
    table = f"feeds.{A}"

    def execute(self, statements):
        with psycopg.connect(self.url) as db:
            for statement in statements:
                db.execute(statement.encode())


ANYTHING = (
    "'abc'", "''", "x'00ff'", "x'31'", "CAST('P-1' AS BLOB)", "1e300", "1.5", "2", "CAST(x'ff' AS TEXT)",
    "'a' || char(0) || 'b'", "'2026-13-45'", "'2026-01-02T03:04:05.000+05:00'", "'2026-02-30'",
    "'2026-02-30T00:00:00.000Z'", "'infinity'", "9223372036854775807", "2461042.5",
)  # fmt: skip
SQLITE = [(column, value) for column in COLUMNS if column != "geometry" for value in ANYTHING]
SQLITE += [(column, "NULL", "full") for column in COLUMNS if column != "geometry"]
SQLITE += [("real", f"{sign}9e999", "full") for sign in ("", "-")]
SQLITE += [("geometry", value) for value in ("'abc'", "''", "7", "CAST(x'ff' AS TEXT)", "x'00ff'", "x'47500001'")]
SQLITE += [("geometry", "CAST(x'4750000100000000' || substr(geometry, 41) AS BLOB)", "full")]
SQLITE += [(ID, value, "full") for value in ("'x'", f"CAST({ID} AS BLOB)", "x'00ff'", "CAST(x'ff' AS TEXT)", "7")]
SQLITE += [(ID, f"'rec_' || {wrong} || substr({ID}, 6)", "full") for wrong in ("'é'", "CAST(x'ff' AS TEXT)")]


def test_in_a_geopackage_any_value_in_any_column(tmp_path):
    check_found_and_mended(GeoPackage(tmp_path), SQLITE)


DUCK = [
    *(("text", value) for value in ("''", "chr(0)")),
    *(("real", value) for value in ("1e308", "'5e-324'::DOUBLE")),
    *(("real", f"'{value}'", "full") for value in ("NaN", "inf", "-inf")),
    *(("whole", value) for value in ("9223372036854775807", "-9223372036854775808")),
    *(("day", f"'{value}'") for value in ("infinity", "-infinity", "0044-03-15 (BC)", "10000-01-01", "5881580-07-10")),
    *(("moment", f"'{value}'") for value in ("infinity", "-infinity", "0044-03-15 (BC) 00:00:00+00")),
    *(("moment", f"'{value} 00:00:00+00'") for value in ("10000-01-01", "290309-12-22 (BC)", "294246-01-01")),
    *(("nested", value) for value in ("'not json'", "''", "'['")),
    *(("geometry", value) for value in ("''::BLOB", r"'\xFF'::BLOB")),
    *((column, "NULL", "full") for column in (*COLUMNS, ID)),
    *((ID, value, "full") for value in ("''", "'x'", "chr(0)", "'rec_''\"'")),
]


def test_in_duckdb_the_ends_of_every_type(tmp_path):
    check_found_and_mended(Duck(tmp_path), DUCK)


POSTGRES = [
    *(("text", value) for value in ("''", "U&'e\\0301'")),
    *(("real", value) for value in ("1e308", "5e-324")),
    *(("real", f"'{value}'", "full") for value in ("NaN", "Infinity", "-Infinity")),
    *(("whole", value) for value in ("9223372036854775807", "-9223372036854775808")),
    *(("day", f"'{value}'") for value in ("infinity", "-infinity", "4713-01-01 BC", "10000-01-01", "5874897-12-31")),
    *(("moment", f"'{value}'") for value in ("infinity", "-infinity", "4713-01-01 00:00:00+00 BC")),
    *(("moment", f"'{value} 00:00:00+00'") for value in ("10000-01-01", "294276-12-31")),
    *(("nested", f"'{value}'") for value in ("null", "1e400", "[1e5000]", "1")),
    *(("nested", f"({value})::jsonb") for value in ("repeat('[', 3000) || repeat(']', 3000)", "repeat('9', 10000)")),
    *(("geometry", value) for value in ("''", r"'\xff'")),
    *((column, "NULL", "full") for column in COLUMNS),
    *((ID, value, "full") for value in ("''", "'x'", "'rec_''\"%'")),
]


def test_in_postgresql_the_ends_of_every_type(tmp_path, monkeypatch, postgres_database):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check_found_and_mended(Postgres(postgres_database), POSTGRES)
    plain = {name: type_ for name, type_ in COLUMNS.items() if type_ != "json"}
    without_json = Postgres(postgres_database, "plain")
    without_json.table = f"plain.{A}"
    check_found_and_mended(without_json, [row for row in POSTGRES if row[0] != "nested"], plain)


@pytest.mark.parametrize("column", ["text", "real"])
def test_a_number_that_is_none_counts_as_null(tmp_path, column):
    """D5.6: the digest takes NaN and infinities for null, so only where there was a number are they found."""
    kit, feed = Duck(tmp_path), Feed()
    feed.add(A, COLUMNS, {record_id(1): ROWS["empty"]})
    sync_feed(feed, kit)
    kit.execute([f"UPDATE {A} SET {column} = 'NaN'"])
    with Client(**feed.api.client_options) as client:
        assert verify(client, kit.open(reach_nothing))[0].equal is (column == "real")
