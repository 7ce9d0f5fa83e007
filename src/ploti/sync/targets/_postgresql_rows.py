"""Rows of a dataset's table in PostgreSQL: staged by COPY, then merged in one transaction (D5.8, D11.3).

A table is never truncated, dropped or swapped: grants, views, indexes and foreign rows of the user's stay.
"""

import json
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from psycopg import errors

from ploti.contract.files import ENVELOPE, OP, RECORD_ID, SRID
from ploti.sync.target import IdsReplaced, Moved, StepRefused
from ploti.sync.targets._parts import (
    ID_LIKE,
    check_file_columns,
    id_pairs,
    no_column,
    reading,
)
from ploti.sync.targets._postgresql_copy import copy_parts
from ploti.sync.targets._postgresql_json import stored_json
from ploti.sync.targets._postgresql_session import Session, literal, quoted
from ploti.sync.targets._postgresql_shape import exact, fitted, index_shapes, make_table
from ploti.sync.targets._stored import Stored

_ID: Final = quoted(RECORD_ID)
_KEPT_BACK: Final = frozenset(ENVELOPE)
"""Columns that do not make a row differ: `_ploti_version` stays the version in which the row last arrived (D11.8)."""
_USUAL_STATISTICS, _LEAST_STATISTICS, _USUAL_COLUMNS = 100, 10, 30
"""PostgreSQL's own statistics target, the least for a wide table, and columns up to which none counts as wide."""


def staging_name(dataset_id: str, kind: str = "") -> str:
    """Name a dataset's staging table, the same in each run, so that what a killed one left is found."""
    return f"_ploti_staging_{sha256(dataset_id.encode()).hexdigest()[:12]}{kind}"


@contextmanager
def staged(
    session: Session,
    name: str,
    columns: Sequence[Stored],
    paths: Sequence[Path],
    *,
    logged: bool = False,
    buckets: Collection[str] | None = None,
) -> Iterator[str]:
    """Bring parts into a staging table of their own, and drop it afterwards unless it was renamed."""
    with reading(paths) as reader:
        check_file_columns(reader, paths, (each.name for each in columns))
        make_table(session, name, columns, logged=logged)
        try:
            copy_parts(reader, session, name, columns, paths, buckets=buckets)
            yield session.table(name)
        finally:
            if not session.db.closed:
                session.run(f"DROP TABLE IF EXISTS {session.table(name)}")


def finish_first(session: Session, staging: str, table: str, columns: Sequence[Stored]) -> None:
    """Make a whole table of a first load's staging table, with key and spatial index."""
    add_key(session, staging, table)
    if any(each.sql.startswith("geometry(") for each in columns):
        index_shapes(session, staging, table)


def add_key(session: Session, table: str, named_after: str) -> None:
    """Make the record id the primary key; raises StepRefused for one that is there twice."""
    name = fitted(named_after, "_pkey")
    taken = session.rows("SELECT to_regclass(%s)", [session.table(name)])[0][0] is not None
    constraint = "" if taken else f"CONSTRAINT {quoted(name)} "
    try:
        session.run(f"ALTER TABLE {session.table(table)} ADD {constraint}PRIMARY KEY ({_ID})")
    except (errors.UniqueViolation, errors.NotNullViolation) as error:
        raise StepRefused(f"the snapshot names a record more than once: {error.diag.message_detail}") from error


def analyze_new(session: Session, table: str, columns: int) -> None:
    """Tell the planner about a whole new table, from fewer rows where each of them is wide."""
    target = max(_LEAST_STATISTICS, min(_USUAL_STATISTICS, _USUAL_STATISTICS * _USUAL_COLUMNS // columns))
    session.run(f"SET default_statistics_target = {target}")
    session.run(f"ANALYZE {table}")
    session.run("RESET default_statistics_target")


def analyze_staged(session: Session, staging: str) -> None:
    """Tell the planner about staged rows, which are only joined by their ids."""
    session.run(f"ANALYZE {staging} ({_ID})")


def check_ids(session: Session, staging: str, where: str) -> None:
    """Refuse a staged record that is there twice (D5.5)."""
    found = session.rows(f"SELECT {_ID}, count(*) FROM {staging} GROUP BY 1 HAVING count(*) > 1 ORDER BY 1 LIMIT 1")
    if found:
        raise StepRefused(f"the {where} has record {found[0][0]} {found[0][1]} times: nothing of it was applied")


def count_rows(session: Session, table: str) -> int:
    """Count a table's rows."""
    return _count(session, session.table(table))


def _count(session: Session, name: str) -> int:
    return int(session.rows(f"SELECT count(*) FROM {name}")[0][0])


def merge(
    session: Session,
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
    name = session.table(table)
    within = "" if buckets is None else f"substr(t.{_ID}, 5, 2) IN ({', '.join(map(literal, buckets))}) AND "
    staged_too = f"EXISTS (SELECT FROM {staging} s WHERE s.{_ID} = t.{_ID})"
    removed = session.run(f"DELETE FROM {name} t WHERE {within}NOT {staged_too}")
    differing = f"FROM {staging} s WHERE s.{_ID} = t.{_ID} AND ({_differs(columns, compared)})"
    settings = ", ".join(f"{quoted(c.column)} = s.{quoted(c.column)}" for c in columns if c.name != RECORD_ID)
    cleared = f"UPDATE {name} t SET {_cleared(columns)} {differing}"
    changed = _rearranged(session, f"UPDATE {name} t SET {settings} {differing}", cleared)
    names = ", ".join(quoted(each.column) for each in columns)
    held = f"EXISTS (SELECT FROM {name} t WHERE t.{_ID} = s.{_ID})"
    added = session.run(f"INSERT INTO {name} ({names}) SELECT {names} FROM {staging} s WHERE NOT {held}")
    return Moved(_count(session, name), added, changed, removed)


def _differs(columns: Sequence[Stored], compared: Collection[str] | None) -> str:
    counted = [each for each in columns if each.name not in _KEPT_BACK and (compared is None or each.name in compared)]
    pairs = [
        f"t.{quoted(each.column)}{exact(each)} IS DISTINCT FROM s.{quoted(each.column)}{exact(each)}"
        for each in counted
    ]
    return " OR ".join(pairs) or "false"


def _cleared(columns: Sequence[Stored]) -> str:
    """Give the settings that empty a row's own columns."""
    own = [each for each in columns if each.name not in _KEPT_BACK]
    return ", ".join(f"{quoted(each.column)} = NULL" for each in own) or f"{_ID} = t.{_ID}"


def _rearranged(session: Session, statement: str, cleared: str) -> int:
    """Change rows; where records trade values that a unique index of the user's keeps apart, empty them first."""
    try:
        with session.transaction():
            return session.run(statement)
    except errors.UniqueViolation:
        session.run(cleared)
        return session.run(statement)


def replace_all(session: Session, table: str, staging: str, columns: Sequence[Stored]) -> Moved:
    """Replace the rows of a table that lost its primary key."""
    names = ", ".join(quoted(each.column) for each in columns)
    session.run(f"DELETE FROM {session.table(table)}")
    session.run(f"INSERT INTO {session.table(table)} ({names}) SELECT {names} FROM {staging}")
    return Moved(count_rows(session, table))


def rewrite_ids(session: Session, replaced: IdsReplaced) -> None:
    """Rewrite the ids in the user's columns by each id map in turn; keys to records may be broken until the end."""
    columns = _users_columns(session, replaced)
    session.run("SET CONSTRAINTS ALL DEFERRED")
    with reading(path for parts in replaced.maps for path in parts) as reader:
        for pairs in id_pairs(reader, replaced):
            session.run("CREATE TEMP TABLE _ploti_map (previous text, id text) ON COMMIT DROP")
            with session.db.cursor().copy("COPY _ploti_map FROM STDIN") as copy:
                for batch in pairs:
                    for pair in batch:
                        copy.write_row(pair)
            for name, held in columns:
                session.run(f"UPDATE {name} AS t SET {held} = m.id FROM _ploti_map m WHERE t.{held} = m.previous")
            session.run("DROP TABLE _ploti_map")


def kept_ids(session: Session, replaced: IdsReplaced) -> set[str]:
    """Give the record ids in the user's columns."""
    return {
        row[0]
        for name, held in _users_columns(session, replaced)
        for row in session.rows(f"SELECT DISTINCT {held}::text FROM {name} WHERE {held} LIKE %s ESCAPE '!'", [ID_LIKE])
    }


def _users_columns(session: Session, replaced: IdsReplaced) -> list[tuple[str, str]]:
    """Give table and column, quoted, in which ids are rewritten; raises StepBlocked for one that is not there."""
    columns = []
    for table, column in replaced.columns:
        name = ".".join(map(quoted, table.split(".")))
        found = session.rows(
            "SELECT 1 FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = to_regclass(%s) "
            "AND a.attname = %s AND a.attnum > 0 AND t.typcategory = 'S'",
            [name, column],
        )
        if not found:
            raise no_column(table, column)
        columns.append((name, quoted(column)))
    return columns


def move(session: Session, table: str, staging: str, columns: Sequence[Stored]) -> None:
    """Delete what staged changes remove and insert or replace what they put."""
    name, op = session.table(table), quoted(OP)
    names = ", ".join(quoted(each.column) for each in columns)
    settings = ", ".join(f"{quoted(c.column)} = excluded.{quoted(c.column)}" for c in columns if c.name != RECORD_ID)
    session.run(f"DELETE FROM {name} t USING {staging} s WHERE s.{_ID} = t.{_ID} AND s.{op} = 'delete'")
    put = f"FROM {staging} s WHERE s.{op} = 'upsert'"
    _rearranged(
        session,
        f"INSERT INTO {name} ({names}) SELECT {names} {put} ON CONFLICT ({_ID}) DO UPDATE SET {settings}",
        f"UPDATE {name} t SET {_cleared(columns)} {put} AND s.{_ID} = t.{_ID}",
    )


def fill(session: Session, table: str, staging: str, brought: Sequence[Stored]) -> None:
    """Set the columns that a staged backfill brings on the records that it names (D5.8)."""
    settings = ", ".join(f"{quoted(each.column)} = s.{quoted(each.column)}" for each in brought)
    session.run(f"UPDATE {session.table(table)} t SET {settings} FROM {staging} s WHERE s.{_ID} = t.{_ID}")


def set_constants(session: Session, table: str, columns: Sequence[Stored], constants: Mapping[str, Any]) -> None:
    """Give single-valued columns their new value, in rows that have another; shapes come in base64 (D5.8)."""
    by_name = {each.name: each for each in columns}
    for name, value in constants.items():
        if name not in by_name:
            raise StepRefused(f"the version gives a value for {name!r}, which is no column of it")
        column = by_name[name]
        new, held = _constant(session, column, value), quoted(column.column)
        session.run(
            f"UPDATE {session.table(table)} SET {held} = {new} "
            f"WHERE {held}{exact(column)} IS DISTINCT FROM ({new}){exact(column)}"
        )


def _constant(session: Session, column: Stored, value: Any) -> str:
    """Give a value of `manifest.json` as an SQL expression of the column's type."""
    if value is None:
        return f"NULL::{_cast(session, column)}"
    if column.type == "geometry":
        shape = literal(b64decode(value).hex())
        if column.sql == "bytea":
            return f"decode({shape}, 'hex')"
        return f"{session.postgis}.ST_SetSRID({shape}::{session.postgis}.geometry, {SRID})"
    if column.type == "json":
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return f"{literal(stored_json(text))}::jsonb"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{literal(text)}::{_cast(session, column)}"


def _cast(session: Session, column: Stored) -> str:
    return f"{session.postgis}.geometry" if column.sql.startswith("geometry(") else column.sql
