"""Rows of a dataset's table in a GeoPackage: read by DuckDB, staged, merged in one transaction (D5.8, D11.9).

Staging tables are SQLite's temporary ones, which nobody else sees; rows keep their `fid` as long as their record lives.
"""

import json
import sqlite3
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import duckdb

from ploti.contract.files import ENVELOPE, GEOMETRY, OP, RECORD_ID
from ploti.contract.values import STORAGE_TYPES, ColumnType
from ploti.sync.target import Delivery, IdsReplaced, Moved, RowsDiffer, StepRefused
from ploti.sync.targets._geopackage_file import rows_of, run
from ploti.sync.targets._geopackage_shape import FINE, KEY, bucket_of_id
from ploti.sync.targets._geopackage_shapes import packed
from ploti.sync.targets._parts import (
    ID_LIKE,
    check_file_columns,
    file_columns,
    id_pairs,
    joined,
    literal,
    no_column,
    parts_source,
    quoted,
)
from ploti.sync.targets._stored import Stored

Reader = duckdb.DuckDBPyConnection
_BATCH_ROWS: Final = 5_000
_ID: Final = quoted(RECORD_ID)
_PAIRS: Final = "_ploti_pairs"
_OLD: Final = "_ploti_old"


def fine_columns(reader: Reader, delivery: Delivery, columns: Sequence[Stored]) -> frozenset[str]:
    """Name the timestamp columns that a delivery brings a value for with parts of a millisecond."""
    fine: set[str] = set()
    for paths in (delivery.snapshot, delivery.changes, delivery.backfill):
        here = file_columns(reader, paths) if paths else []
        times = [each for each in columns if each.type == "timestamp" and each.name in here]
        if not times:
            continue
        parts = ", ".join(f"coalesce(bool_or(epoch_us({quoted(each.name)}) % 1000 <> 0), false)" for each in times)
        found = reader.execute(f"SELECT {parts} FROM {parts_source(paths)}").fetchall()[0]
        fine.update(each.column for each, is_fine in zip(times, found, strict=True) if is_fine)
    return frozenset(fine)


def insert_parts(
    db: sqlite3.Connection,
    reader: Reader,
    table: str,
    columns: Sequence[Stored],
    paths: Sequence[Path],
    *,
    buckets: Collection[str] | None = None,
) -> None:
    """Put the rows of parts into a table, a batch at a time; with `buckets`, only the records of those (D5.6)."""
    if not paths:
        return
    listed = sorted(columns, key=lambda each: each.type == "geometry")
    names = ", ".join(quoted(each.column) for each in listed)
    statement = f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(listed))})"
    values = ", ".join(_READ[each.type].format(_cast(each), finest="f" if each.sql == FINE else "g") for each in listed)
    chosen = "" if buckets is None else f" WHERE substr({_ID}, 5, 2) IN ({', '.join(map(literal, buckets))})"
    check_file_columns(reader, paths, (each.name for each in listed))
    for batch in _batches(reader.execute(f"SELECT {values} FROM {parts_source(paths)}{chosen}")):
        shaped = batch if listed[-1].type != "geometry" else [(*row[:-1], _packed(row[-1])) for row in batch]
        db.executemany(statement, shaped)


_READ: Final[dict[ColumnType, str]] = {
    **dict.fromkeys(("string", "json", "integer", "number", "geometry"), "{0}"),
    "boolean": "CAST({0} AS TINYINT)",
    "date": "CAST({0} AS VARCHAR)",
    "timestamp": "strftime({0}, '%Y-%m-%dT%H:%M:%S.%{finest}Z')",
}
"""How DuckDB gives each type as SQLite stores it; `finest` is the format of a second's parts."""


def _cast(column: Stored) -> str:
    return f"CAST({quoted(column.name)} AS {STORAGE_TYPES[column.type].duckdb})"


def _batches(result: Reader) -> Iterator[list[tuple[Any, ...]]]:
    while batch := result.fetchmany(_BATCH_ROWS):
        yield batch


def _packed(wkb: bytes | None) -> bytes | None:
    return None if wkb is None else packed(wkb)


@contextmanager
def staged(
    db: sqlite3.Connection,
    reader: Reader,
    name: str,
    columns: Sequence[Stored],
    paths: Sequence[Path],
    *,
    buckets: Collection[str] | None = None,
) -> Iterator[str]:
    """Bring parts into a temporary table with an index on the record id, and drop it afterwards."""
    body = ", ".join(f"{quoted(each.column)} {each.sql}" for each in columns)
    db.execute(f"CREATE TEMP TABLE {name} ({body})")
    try:
        db.execute("BEGIN")
        insert_parts(db, reader, f"temp.{name}", columns, paths, buckets=buckets)
        db.execute(f"CREATE INDEX temp.{name}_by_id ON {name} ({_ID})")
        db.execute("COMMIT")
        check_ids(db, f"temp.{name}", "files")
        yield f"temp.{name}"
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
        db.execute(f"DROP TABLE IF EXISTS temp.{name}")


def check_ids(db: sqlite3.Connection, table: str, where: str) -> None:
    """Refuse record ids that are null or there twice (D5.5)."""
    found = rows_of(
        db, f"SELECT {_ID}, count(*) FROM {table} GROUP BY 1 HAVING count(*) > 1 OR {_ID} IS NULL ORDER BY 1 LIMIT 1"
    )
    if found:
        record_id, times = found[0]
        what = "a record without an id" if record_id is None else f"record {record_id} {times} times"
        raise StepRefused(f"the {where} have {what}: nothing of it was applied")


def count_rows(db: sqlite3.Connection, table: str) -> int:
    """Count a table's rows."""
    return int(rows_of(db, f"SELECT count(*) FROM {table}")[0][0])


def merge(
    db: sqlite3.Connection,
    table: str,
    staging: str,
    columns: Sequence[Stored],
    *,
    compared: Collection[str] | None = None,
    buckets: Collection[str] | None = None,
) -> Moved:
    """Make a table's rows the staged ones by difference; rows that agree are not touched.

    With `buckets` only the records of those. `compared` names the columns that count; all own ones unless given.
    """
    name = quoted(table)
    within = "" if buckets is None else f"{bucket_of_id()} IN ({', '.join(map(literal, buckets))}) AND "
    removed = run(db, f"DELETE FROM {name} WHERE {within}{_ID} NOT IN (SELECT {_ID} FROM {staging})")
    counted = [each for each in columns if each.name not in ENVELOPE and (compared is None or each.name in compared)]
    differs = joined([f"t.{quoted(each.column)} IS NOT s.{quoted(each.column)}" for each in counted], " OR ") or "0"
    changed = _change(db, name, columns, staging, differs)
    added = _add(db, name, columns, staging, "1")
    return Moved(count_rows(db, name), added, changed, removed)


def move(db: sqlite3.Connection, table: str, staging: str, columns: Sequence[Stored]) -> None:
    """Delete what staged changes remove and insert or replace what they put."""
    name, op = quoted(table), quoted(OP)
    db.execute(f"DELETE FROM {name} WHERE {_ID} IN (SELECT {_ID} FROM {staging} WHERE {op} = 'delete')")
    _change(db, name, columns, staging, f"s.{op} = 'upsert'")
    _add(db, name, columns, staging, f"{op} = 'upsert'")


def _add(db: sqlite3.Connection, name: str, columns: Sequence[Stored], staging: str, chosen: str) -> int:
    """Insert the staged rows that a table has not, in their order."""
    names = ", ".join(quoted(each.column) for each in columns)
    missing = f"NOT EXISTS (SELECT 1 FROM {name} AS t WHERE t.{_ID} = s.{_ID})"
    return run(
        db,
        f"INSERT INTO {name} ({names}) SELECT {names} FROM {staging} AS s WHERE {chosen} AND {missing} ORDER BY rowid",
    )


def _change(db: sqlite3.Connection, name: str, columns: Sequence[Stored], staging: str, which: str) -> int:
    """Give rows of a table their staged values; a shape that stays is not written, for its index's sake.

    Where records trade values that a unique index of the user's keeps apart, the rows are emptied first.
    """
    db.execute(
        f"CREATE TEMP TABLE {_PAIRS} AS SELECT t.{KEY} AS held, s.rowid AS brought "
        f"FROM {name} AS t JOIN {staging} AS s ON s.{_ID} = t.{_ID} WHERE {which}"
    )
    paired = f"FROM temp.{_PAIRS} AS p JOIN {staging} AS s ON s.rowid = p.brought WHERE t.{KEY} = p.held"
    own = [quoted(each.column) for each in columns if each.name not in (RECORD_ID, GEOMETRY)]
    plain = f"UPDATE {name} AS t SET {', '.join(f'{column} = s.{column}' for column in own)} {paired}"
    emptied = ", ".join(f"{quoted(each.column)} = NULL" for each in columns if each.name not in ENVELOPE)
    _rearranged(db, plain, f"UPDATE {name} AS t SET {emptied} FROM temp.{_PAIRS} AS p WHERE t.{KEY} = p.held")
    if any(each.name == GEOMETRY for each in columns):
        shape = quoted(GEOMETRY)
        db.execute(f"UPDATE {name} AS t SET {shape} = s.{shape} {paired} AND t.{shape} IS NOT s.{shape}")
    changed = count_rows(db, f"temp.{_PAIRS}")
    db.execute(f"DROP TABLE temp.{_PAIRS}")
    return changed


def _rearranged(db: sqlite3.Connection, statement: str, emptied: str) -> None:
    db.execute("SAVEPOINT rearranged")
    try:
        db.execute(statement)
    except sqlite3.IntegrityError:
        db.execute("ROLLBACK TO rearranged")
        db.execute(emptied)
        db.execute(statement)
    db.execute("RELEASE rearranged")


def keep_old(db: sqlite3.Connection, table: str, own: Iterable[str]) -> None:
    """Keep each record's `fid` and the user's own columns while its table is made anew."""
    kept = "".join(f", {quoted(name)}" for name in own)
    db.execute(
        f"CREATE TEMP TABLE {_OLD} AS SELECT min({KEY}) AS held, {_ID} AS id{kept} FROM {quoted(table)} GROUP BY {_ID}"
    )


def refill(db: sqlite3.Connection, table: str, staging: str, columns: Sequence[Stored], own: Iterable[str]) -> None:
    """Fill a table that was made anew: records that it had come back under their `fid`, no `fid` is used twice."""
    name, source = quoted(table), f"{staging} AS s"
    listed = ", ".join(quoted(each.column) for each in columns)
    brought = ", ".join(f"s.{quoted(each.column)}" for each in columns)
    kept, old = ("".join(f", {of}{quoted(each)}" for each in own) for of in ("", "o."))
    db.execute(f"CREATE INDEX temp.{_OLD}_by_id ON {_OLD} (id)")
    db.execute(
        f"INSERT INTO {name} ({KEY}, {listed}{kept}) SELECT o.held, {brought}{old} "
        f"FROM {source} JOIN temp.{_OLD} AS o ON o.id = s.{_ID}"
    )
    highest = f"(SELECT coalesce(max(held), 0) FROM temp.{_OLD})"
    db.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
    db.execute(f"INSERT INTO sqlite_sequence (name, seq) VALUES (?, {highest})", (table,))
    _add(db, name, columns, staging, "1")
    db.execute(f"DROP TABLE temp.{_OLD}")


def rewrite_ids(db: sqlite3.Connection, reader: Reader, replaced: IdsReplaced) -> None:
    """Rewrite the ids in the user's columns by each id map in turn, and by what was told of single ones."""
    columns = _users_columns(db, replaced)
    db.execute("PRAGMA defer_foreign_keys = 1")
    for pairs in id_pairs(reader, replaced):
        db.execute("CREATE TEMP TABLE _ploti_map (previous TEXT PRIMARY KEY, id TEXT)")
        for batch in pairs:
            db.executemany("INSERT INTO temp._ploti_map VALUES (?, ?)", batch)
        for table, column in columns:
            held = quoted(column)
            db.execute(
                f"UPDATE {quoted(table)} AS t SET {held} = m.id FROM temp._ploti_map AS m WHERE t.{held} = m.previous"
            )
        db.execute("DROP TABLE temp._ploti_map")


def kept_ids(db: sqlite3.Connection, replaced: IdsReplaced) -> set[str]:
    """Give the record ids in the user's columns."""
    return {
        row[0]
        for table, column in _users_columns(db, replaced)
        for row in rows_of(
            db,
            f"SELECT DISTINCT {quoted(column)} FROM {quoted(table)} WHERE {quoted(column)} LIKE ? ESCAPE '!'",
            (ID_LIKE,),
        )
    }


def _users_columns(db: sqlite3.Connection, replaced: IdsReplaced) -> tuple[tuple[str, str], ...]:
    """Give the columns in which ids are rewritten; raises StepBlocked for one that is not there."""
    for table, column in replaced.columns:
        if not rows_of(db, "SELECT 1 FROM pragma_table_info(?) WHERE name = ?", (table, column)):
            raise no_column(table, column)
    return replaced.columns


def fill(db: sqlite3.Connection, table: str, staging: str, brought: Sequence[Stored]) -> None:
    """Set the columns that a staged backfill brings on the records that it names (D5.8)."""
    settings = ", ".join(f"{quoted(each.column)} = s.{quoted(each.column)}" for each in brought)
    db.execute(f"UPDATE {quoted(table)} AS t SET {settings} FROM {staging} AS s WHERE s.{_ID} = t.{_ID}")


def set_constants(db: sqlite3.Connection, table: str, columns: Sequence[Stored], constants: Mapping[str, Any]) -> None:
    """Give single-valued columns their new value, in rows that have another; shapes come in base64 (D5.8)."""
    by_name = {each.name: each for each in columns}
    for name, value in constants.items():
        if name not in by_name:
            raise StepRefused(f"the version gives a value for {name!r}, which is no column of it")
        held, new = quoted(by_name[name].column), _constant(by_name[name], value)
        db.execute(f"UPDATE {quoted(table)} SET {held} = ?1 WHERE {held} IS NOT ?1", (new,))


def _constant(column: Stored, value: Any) -> Any:
    """Give a value of `manifest.json` as the table has it; raises RowsDiffer for a time too fine for its column."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    if value is None:
        return None
    if column.type == "geometry":
        return packed(b64decode(value))
    if column.type == "timestamp":
        moment = datetime.fromisoformat(value).astimezone(UTC)
        if column.sql != FINE and moment.microsecond % 1000:
            raise RowsDiffer("a time came that the table's column cannot hold")
        return stored_moment(moment, column.sql)
    return value


def stored_moment(moment: datetime, sql: str) -> str:
    """Give a UTC time as a column of this type has it."""
    fine = moment.replace(tzinfo=None).isoformat(timespec="microseconds" if sql == FINE else "milliseconds")
    return f"{fine}Z"
