"""The shape of a dataset's table in a GeoPackage, and how it follows the schema (D11.3, D11.9).

Each table has `fid`, which its readers want, and a unique index on the record id.
"""

import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from ploti.contract.files import GEOMETRY, RECORD_ID
from ploti.contract.resources import Schema
from ploti.contract.values import STORAGE_TYPES, ColumnType
from ploti.sync.target import StepBlocked
from ploti.sync.targets._checks import cannot_follow, named, speaking_of
from ploti.sync.targets._geopackage_file import rows_of
from ploti.sync.targets._geopackage_layout import index_of
from ploti.sync.targets._parts import quoted
from ploti.sync.targets._stored import Shape, Stored, stored_columns

KEY: Final = "fid"
KEY_RULE: Final = f"{KEY} INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL"
_GOING: Final = "_ploti_going"
FINE: Final = "TEXT"
"""Type of a timestamp column with parts of a millisecond, which a GeoPackage's DATETIME cannot have (D11.9)."""


def columns_of(schema: Schema, shape: Shape | None = None, fine: Collection[str] = ()) -> tuple[Stored, ...]:
    """Give the columns of a dataset's table; timestamp columns in `fine`, or stored so already, are text."""

    def sql_of(column: str, type_: ColumnType, kind: str) -> str:
        if type_ == "geometry":
            return kind.upper()
        if type_ == "timestamp" and (column in fine or (shape is not None and shape.columns.get(column) == FINE)):
            return FINE
        return STORAGE_TYPES[type_].sqlite

    return stored_columns(schema, {KEY}, sql_of)


def shape_of(db: sqlite3.Connection, table: str) -> Shape | None:
    """Read the shape of a table, or of what has its name; None where nothing has."""
    known = "SELECT type FROM sqlite_master WHERE lower(name) = lower(?) AND type <> 'trigger'"
    kinds = rows_of(db, known, (table,))
    if not kinds:
        return None
    columns = rows_of(db, "SELECT name, type FROM pragma_table_info(?)", (table,))
    keyed = rows_of(
        db,
        'SELECT 1 FROM pragma_index_list(?) AS i WHERE i."unique" AND NOT i.partial '
        "AND (SELECT group_concat(name) FROM pragma_index_info(i.name)) = ?",
        (table, RECORD_ID),
    )
    return Shape(table, {name: type_.upper() for name, type_ in columns}, bool(keyed), kinds[0][0])


def bucket_of_id() -> str:
    """Give the bucket of a row's id as an SQL expression; nothing for what no record's id can be."""
    name = quoted(RECORD_ID)
    bucket = f"substr({name}, 5, 2)"
    return f"CASE WHEN typeof({name}) = 'text' AND {bucket} NOT GLOB '*[^0-9a-zA-Z]*' THEN {bucket} ELSE '' END"


def create_table(db: sqlite3.Connection, table: str, columns: Sequence[Stored], own: Mapping[str, str]) -> None:
    """Make a table; `own` are the columns that a user added, with their types."""
    body = [KEY_RULE]
    body += [f"{quoted(each.column)} {each.sql}{_rule(each)}" for each in columns]
    body += [f"{quoted(name)} {type_}" for name, type_ in own.items()]
    db.execute(f"CREATE TABLE {quoted(table)} ({', '.join(body)})")


def _rule(column: Stored) -> str:
    return " NOT NULL" if column.name == RECORD_ID else ""


def add_columns(db: sqlite3.Connection, shape: Shape, columns: Sequence[Stored], delivered: Collection[str]) -> None:
    """Add the columns that a table lacks; raises StepBlocked where one of the user's has the name of one of them."""
    here = {name.casefold() for name in shape.columns}
    for each in columns:
        if each.column in shape.columns:
            continue
        if each.column.casefold() in here:
            raise StepBlocked(f"{shape.table} has a column {each.column!r} of yours, and one of that name arrives")
        db.execute(f"ALTER TABLE {quoted(shape.table)} ADD COLUMN {quoted(each.column)} {each.sql}")
    for each in columns:
        if each.column in shape.columns and each.column not in delivered and shape.columns[each.column] != each.sql:
            raise StepBlocked(f"{shape.table} has a column {each.column!r} of yours, and one of that name arrives")


def key_rows(db: sqlite3.Connection, table: str, kind: str = "UNIQUE INDEX") -> None:
    """Make the index on the record id, under another name where a table that was renamed has kept it."""
    name = f"{table}_record_id"
    while rows_of(db, "SELECT 1 FROM sqlite_master WHERE lower(name) = lower(?)", (name,)):
        name += "_"
    db.execute(f"CREATE {kind} {quoted(name)} ON {quoted(table)} ({quoted(RECORD_ID)})")


def kind_of_shapes(columns: Sequence[Stored]) -> str | None:
    """Give the kind of a table's shapes; None where it has none."""
    return next((each.sql for each in columns if each.name == GEOMETRY), None)


def users_objects(db: sqlite3.Connection, table: str) -> list[tuple[str, str, str]]:
    """Give kind, name and statement of the indexes and triggers that the user made on a table."""
    own = re.compile(re.escape(index_of(table)) + "_(insert|update[0-9]|delete)")
    found = rows_of(
        db,
        "SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND tbl_name = ? "
        "AND sql IS NOT NULL ORDER BY type, name",
        (table,),
    )
    return [each for each in found if not own.fullmatch(each[1]) and each[1].rstrip("_") != f"{table}_record_id"]


def check_built(db: sqlite3.Connection, table: str, going: Iterable[str]) -> None:
    """Raise StepBlocked for something of the user's that needs a column which goes.

    SQLite itself finds it, as it renames the column everywhere, which is undone: later it would take a name in double
    quotes for a text, and views would not fail. What is broken elsewhere is left alone. Only columns that something
    may speak of are looked for, as each takes a while.
    """
    told = "\n".join(
        sql
        for (sql,) in rows_of(
            db,
            "SELECT sql FROM sqlite_master WHERE name <> ? AND sql <> '' "
            "AND (type <> 'table' OR instr(upper(sql), 'REFERENCES'))",
            (table,),
        )
    )
    told = told.replace('""', '"').casefold()
    for column in (each for each in going if each.casefold() in told):
        db.execute("PRAGMA writable_schema = 1")
        db.execute(f"SAVEPOINT {_GOING}")
        try:
            db.execute(f"ALTER TABLE {quoted(table)} RENAME COLUMN {quoted(column)} TO {_GOING}")
            built = "SELECT type, name FROM sqlite_master WHERE name <> ? AND instr(sql, ?) ORDER BY type, name"
            found = rows_of(db, built, (table, _GOING))
        finally:
            db.execute(f"ROLLBACK TO {_GOING}")
            db.execute(f"RELEASE {_GOING}")
            db.execute("PRAGMA writable_schema = 0")
        for kind, name in found:
            raise cannot_follow(named(kind, name), table, f"no column {column}")


def bring_back(db: sqlite3.Connection, table: str, objects: Sequence[tuple[str, str, str]]) -> None:
    """Make the user's indexes and triggers again on a table that was made anew, and see that views and references hold.

    Raises StepBlocked for what cannot be.
    """
    for kind, name, statement in objects:
        with _following(named(kind, name), table):
            db.execute(statement)
    views = rows_of(db, "SELECT name, sql FROM sqlite_master WHERE type = 'view' ORDER BY name")
    for view in speaking_of(table, views):
        with _following(named("view", view), table):
            db.execute(f"SELECT * FROM {quoted(view)} LIMIT 0")
    referring = rows_of(
        db,
        "SELECT DISTINCT m.name FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f "
        "WHERE m.type = 'table' AND lower(f.\"table\") = lower(?)",
        (table,),
    )
    for (name,) in referring:
        lost = rows_of(db, 'SELECT 1 FROM pragma_foreign_key_check(?) WHERE lower("parent") = lower(?)', (name, table))
        if lost:
            raise StepBlocked(f"rows of your table {name} refer to records of {table} that are gone: change them first")


@contextmanager
def _following(what: str, table: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise cannot_follow(what, table, str(error)) from error
