"""Rows and columns of a dataset's table in DuckDB: reload, changes, backfill, constants (D5.8, D11.3, D11.9).

Runs inside the transaction of its caller. Every name that comes from outside is quoted, every value bound.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb

from ploti.contract.files import CHANGE, ENVELOPE, OP, RECORD_ID
from ploti.contract.resources import Schema
from ploti.contract.values import STORAGE_TYPES, ColumnType
from ploti.sync.target import Delivery, IdsReplaced, Moved, RowsDiffer, StepRefused, check_whole
from ploti.sync.targets._checks import check_applied, check_place, check_snapshot
from ploti.sync.targets._duckdb_file import literal, quoted
from ploti.sync.targets._duckdb_shape import bring_back, bring_shape, rebuild_shape, shape_of
from ploti.sync.targets._parts import ID_LIKE, PAIR, no_column

_CHANGES: Final = "_ploti_changes"
_WRONG: Final = "_ploti_wrong"


def wanted_columns(schema: Schema) -> dict[str, ColumnType]:
    """Give the columns of a dataset's table: the envelope, then the dataset's own."""
    return {**ENVELOPE, **{column["name"]: column["type"] for column in schema["columns"]}}


def replace_rows(db: duckdb.DuckDBPyConnection, delivery: Delivery, known: Schema | None) -> Moved:
    """Replace a table's rows by a snapshot; raises StepRefused where the files are not what the version says."""
    table, columns = delivery.table, wanted_columns(delivery.schema)
    _check_file_columns(db, delivery.snapshot, columns)
    shape = shape_of(db, table)
    check_place(shape, made=known is not None)
    built: Sequence[tuple[str, str]] = ()
    if shape is not None and known is not None and not shape.widens_to(columns, wanted_columns(known)):
        built = rebuild_shape(db, delivery.schema, shape, columns, wanted_columns(known))
    else:
        bring_shape(db, table, delivery.schema, shape, columns, known=known)
        db.execute(f"DELETE FROM {quoted(table)}")
    if delivery.snapshot:
        db.execute(_insert(table, columns, delivery.snapshot))
    bring_back(db, table, built)
    rows = _count(db, table)
    check_snapshot(rows, delivery)
    _check_ids(db, f"SELECT {quoted(RECORD_ID)} AS id FROM {quoted(table)}", rows, "snapshot")
    return Moved(rows)


def apply_changes(db: duckdb.DuckDBPyConnection, delivery: Delivery, known: Schema) -> Moved:
    """Apply a version's changes, backfill and constants; raises RowsDiffer where a reload is the way on."""
    table, columns = delivery.table, wanted_columns(delivery.schema)
    shape = shape_of(db, table)
    delivered = wanted_columns(known)
    check_place(shape, made=True)
    if shape is None or not shape.widens_to(columns, delivered) or not delivered.keys() <= shape.columns.keys():
        raise RowsDiffer("the table's columns are not those of the version before")
    bring_shape(db, table, delivery.schema, shape, columns, known=known)
    moved = (0, 0, 0)
    if delivery.changes:
        _check_file_columns(db, delivery.changes, {**columns, OP: "string", CHANGE: "string"})
        moved = _move(db, table, columns, delivery.changes)
    if delivery.backfill:
        _fill(db, table, columns, delivery.backfill)
    _set_constants(db, table, columns, delivery.constants)
    rows = _count(db, table)
    check_applied(rows, delivery)
    return Moved(rows, *moved)


def mend_rows(
    db: duckdb.DuckDBPyConnection, delivery: Delivery, buckets: Collection[str], volatile: Collection[str]
) -> Moved:
    """Make the records of these buckets those of the snapshot; rows that agree are not touched (D11.5)."""
    table, columns = delivery.table, wanted_columns(delivery.schema)
    shape = shape_of(db, table)
    check_place(shape, made=True)
    stored = {name: STORAGE_TYPES[type_].duckdb for name, type_ in columns.items()}
    check_whole(table, None if shape is None else shape.columns, stored)
    _check_file_columns(db, delivery.snapshot, columns)
    id_, names, times = quoted(RECORD_ID), ", ".join(quoted(name) for name in columns), "_ploti_times"
    chosen = f"coalesce(substr({id_}, 5, 2), '') IN ({', '.join(literal(bucket) for bucket in buckets)})"
    values = ", ".join(f"{_cast(quoted(name), type_)} AS {quoted(name)}" for name, type_ in columns.items())
    source = f"SELECT {values} FROM {_parquet(delivery.snapshot)} WHERE {chosen}"
    if not delivery.snapshot:
        source = f"SELECT {names} FROM {quoted(table)} LIMIT 0"
    db.execute(f"CREATE OR REPLACE TEMP TABLE {_CHANGES} AS {source}")
    _check_ids(db, f"SELECT {id_} AS id FROM temp.{_CHANGES}", _count(db, _CHANGES), "snapshot")
    compared = [quoted(name) for name in columns if name not in ENVELOPE and name not in volatile]
    differs = " OR ".join(f"held.{name} IS DISTINCT FROM new.{name}" for name in compared) or "false"
    db.execute(
        f"CREATE OR REPLACE TEMP TABLE {_WRONG} AS "
        f"WITH held AS (SELECT *, count(*) OVER (PARTITION BY {id_}) AS {times} FROM {quoted(table)} WHERE {chosen}) "
        f"SELECT DISTINCT coalesce(held.{id_}, new.{id_}) AS id, held.{times} IS NULL AS lost, "
        f"new.{id_} IS NULL AS extra FROM held FULL JOIN temp.{_CHANGES} AS new ON held.{id_} = new.{id_} "
        f"WHERE held.{times} IS NULL OR new.{id_} IS NULL OR held.{times} > 1 OR {differs}"
    )
    counts = "count(*) FILTER (lost), count(*) FILTER (NOT lost AND NOT extra), count(*) FILTER (extra)"
    added, changed, removed = db.execute(f"SELECT {counts} FROM temp.{_WRONG}").fetchall()[0]
    wrong = f"SELECT id FROM temp.{_WRONG}"
    db.execute(f"DELETE FROM {quoted(table)} WHERE {id_} IN ({wrong}) OR ({id_} IS NULL AND {chosen})")
    db.execute(f"INSERT INTO {quoted(table)} ({names}) SELECT {names} FROM temp.{_CHANGES} WHERE {id_} IN ({wrong})")
    db.execute(f"DROP TABLE temp.{_CHANGES}")
    db.execute(f"DROP TABLE temp.{_WRONG}")
    return Moved(_count(db, table), added, changed, removed)


def rewrite_ids(db: duckdb.DuckDBPyConnection, replaced: IdsReplaced) -> None:
    """Rewrite the ids in the user's columns by each id map in turn, and by what was told of single ones."""
    told = "SELECT unnest($was::VARCHAR[]), unnest($now::VARCHAR[])"
    was, now = list(replaced.told.keys()), list(replaced.told.values())
    for table, column in _users_columns(db, replaced):
        held = quoted(column)
        for pairs in (*(f"SELECT {PAIR} FROM {_parquet(parts)}" for parts in replaced.maps), told):
            db.execute(
                f"UPDATE {quoted(table)} AS held SET {held} = map.id "
                f"FROM ({pairs}) AS map (previous, id) WHERE held.{held} = map.previous",
                {"was": was, "now": now} if pairs is told else {},
            )


def kept_ids(db: duckdb.DuckDBPyConnection, replaced: IdsReplaced) -> set[str]:
    """Give the record ids in the user's columns."""
    return {
        row[0]
        for table, column in _users_columns(db, replaced)
        for row in db.execute(
            f"SELECT DISTINCT {quoted(column)} FROM {quoted(table)} WHERE {quoted(column)} LIKE ? ESCAPE '!'", [ID_LIKE]
        ).fetchall()
    }


def _users_columns(db: duckdb.DuckDBPyConnection, replaced: IdsReplaced) -> tuple[tuple[str, str], ...]:
    """Give the columns in which ids are rewritten; raises StepBlocked for one that is not there."""
    for table, column in replaced.columns:
        held = shape_of(db, table)
        if held is None or held.columns.get(column) != "VARCHAR":
            raise no_column(table, column)
    return replaced.columns


def _move(
    db: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, ColumnType], paths: Sequence[Path]
) -> tuple[int, int, int]:
    """Delete every id that the changes name and insert the upserts; gives added, changed and removed."""
    db.execute(
        f"CREATE OR REPLACE TEMP TABLE {_CHANGES} AS SELECT {quoted(RECORD_ID)} AS id, {quoted(OP)} AS op, "
        f"{quoted(CHANGE)} AS change FROM {_parquet(paths)}"
    )
    named = db.execute(
        f"SELECT count(*), count(*) FILTER (op NOT IN ('upsert', 'delete') OR op IS NULL), "
        f"count(*) FILTER (change = 'added'), count(*) FILTER (change = 'changed'), count(*) FILTER (op = 'delete') "
        f"FROM temp.{_CHANGES}"
    ).fetchall()
    total, unknown, added, changed, removed = named[0]
    if unknown:
        raise StepRefused(f"the changes file has {unknown} rows that are neither upsert nor delete")
    _check_ids(db, f"SELECT id FROM temp.{_CHANGES}", total, "changes file")
    if total:
        db.execute(f"DELETE FROM {quoted(table)} WHERE {quoted(RECORD_ID)} IN (SELECT id FROM temp.{_CHANGES})")
        db.execute(f"{_insert(table, columns, paths)} WHERE {quoted(OP)} = 'upsert'")
    db.execute(f"DROP TABLE temp.{_CHANGES}")
    return added, changed, removed


def _fill(db: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, ColumnType], paths: Sequence[Path]) -> None:
    """Set the columns that a backfill brings on the records that it names (D5.8)."""
    brought = [name for name in _file_columns(db, paths) if name in columns and name not in ENVELOPE]
    if not brought:
        return
    repeated = db.execute(f"SELECT count(*) - count(DISTINCT {quoted(RECORD_ID)}) FROM {_parquet(paths)}").fetchall()
    if repeated[0][0]:
        raise StepRefused("the backfill names a record more than once")
    settings = ", ".join(f"{quoted(name)} = {_cast('filled.' + quoted(name), columns[name])}" for name in brought)
    db.execute(
        f"UPDATE {quoted(table)} AS held SET {settings} FROM {_parquet(paths)} AS filled "
        f"WHERE held.{quoted(RECORD_ID)} = filled.{quoted(RECORD_ID)}"
    )


def _set_constants(
    db: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, ColumnType], constants: Mapping[str, Any]
) -> None:
    """Give single-valued columns their new value, in rows that have another; shapes come in base64 (D5.8)."""
    for name, value in constants.items():
        if name not in columns:
            raise StepRefused(f"the version gives a value for {name!r}, which is no column of it")
        new = _cast("$value", columns[name]) if columns[name] != "geometry" else "from_base64($value::VARCHAR)"
        db.execute(
            f"UPDATE {quoted(table)} SET {quoted(name)} = {new} WHERE {quoted(name)} IS DISTINCT FROM {new}",
            {"value": _bindable(value)},
        )


def _bindable(value: Any) -> Any:
    """Give a JSON value as one that DuckDB casts to the column: nested ones as canonical text (D2.2)."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return value


def _insert(table: str, columns: Mapping[str, ColumnType], paths: Sequence[Path]) -> str:
    names = ", ".join(quoted(name) for name in columns)
    values = ", ".join(_cast(quoted(name), type_) for name, type_ in columns.items())
    return f"INSERT INTO {quoted(table)} ({names}) SELECT {values} FROM {_parquet(paths)}"


def _cast(expression: str, type_: ColumnType) -> str:
    return f"CAST({expression} AS {STORAGE_TYPES[type_].duckdb})"


def _parquet(paths: Iterable[Path]) -> str:
    return f"read_parquet([{', '.join(literal(str(path)) for path in paths)}])"


def _file_columns(db: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> list[str]:
    return [row[0] for row in db.execute(f"DESCRIBE SELECT * FROM {_parquet(paths)}").fetchall()]


def _check_file_columns(
    db: duckdb.DuckDBPyConnection,
    paths: Sequence[Path],
    columns: Iterable[str],
) -> None:
    """Refuse parts that lack a column of the schema; others, such as a bounding box, are left out."""
    if not paths:
        return
    missing = set(columns) - set(_file_columns(db, paths))
    if missing:
        raise StepRefused(f"the files lack the column {min(missing)!r} of their schema")


def _count(db: duckdb.DuckDBPyConnection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {quoted(table)}").fetchall()[0][0])


def _check_ids(db: duckdb.DuckDBPyConnection, ids: str, rows: int, where: str) -> None:
    """Refuse record ids that are null or there twice (D5.5)."""
    distinct = db.execute(f"SELECT count(DISTINCT id) FROM ({ids})").fetchall()[0][0]
    if distinct == rows:
        return
    worst = db.execute(f"SELECT id, count(*) FROM ({ids}) GROUP BY id ORDER BY count(*) DESC, id LIMIT 1").fetchall()
    record_id, times = worst[0]
    what = "a record without an id" if record_id is None else f"record {record_id} {times} times"
    raise StepRefused(f"the {where} has {what}: nothing of it was applied")
