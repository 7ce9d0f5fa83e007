"""Columns and changes of a dataset's table as PostgreSQL and GeoPackage have them alike (D5.8, D11.3)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from ploti.contract.files import CHANGE, ENVELOPE, OP, RECORD_ID
from ploti.contract.resources import Schema
from ploti.contract.values import ColumnType
from ploti.sync.target import StepRefused
from ploti.sync.targets._parts import file_columns, quoted

_ANY_KIND: Final = "Geometry"
_KINDS: Final = frozenset({"Point", "MultiPoint", "MultiLineString", "MultiPolygon", "GeometryCollection"})


@dataclass(frozen=True)
class Stored:
    """A column as the table has it: the feed's name and type, the table's name and the database's type."""

    name: str
    type: ColumnType
    column: str
    sql: str


MARKS: Final = (Stored(OP, "string", OP, "text"), Stored(CHANGE, "string", CHANGE, "text"))
"""Columns of a changes part that say what to do with a row."""


@dataclass(frozen=True)
class Shape:
    """A table as it is: its columns with the database's types, in order; a user may have added some.

    `kind` is another word than `table` where something else has its name.
    """

    table: str
    columns: Mapping[str, str]
    keyed: bool
    kind: str = "table"

    def widens_to(self, wanted: Sequence[Stored], delivered: Collection[str]) -> bool:
        """Tell whether adding columns is all that a new schema asks for; `delivered` are the columns sent before."""
        kept = all(self.columns.get(each.column, each.sql) == each.sql for each in wanted)
        here = all(each.column in self.columns for each in wanted if each.column in delivered)
        return kept and here and set(delivered) <= {each.column for each in wanted}


@dataclass(frozen=True)
class Staged:
    """What a version's changes and backfill bring: staging tables, filled columns, and added, changed, removed."""

    changes: str | None
    filling: str | None
    brought: Sequence[Stored]
    counts: tuple[int, int, int]


def stored_columns(
    schema: Schema, reserved: Collection[str], sql_of: Callable[[str, ColumnType, str], str]
) -> tuple[Stored, ...]:
    """Give the columns of a dataset's table: the envelope, then the dataset's own.

    A name that is `reserved` for the database's own columns gets a `_` after it; `sql_of` gives the database's type by
    the name in the table, the feed's type, and the kind of shapes.
    """
    listed: list[tuple[str, ColumnType, str]] = [(name, type_, _ANY_KIND) for name, type_ in ENVELOPE.items()]
    listed += [(each["name"], each["type"], each.get("geometryType") or _ANY_KIND) for each in schema["columns"]]
    names = {name.casefold() for name, _, _ in listed}
    columns = []
    for name, type_, kind in listed:
        column = _stored_name(name, names, reserved)
        columns.append(Stored(name, type_, column, sql_of(column, type_, kind if kind in _KINDS else _ANY_KIND)))
    return tuple(columns)


def _stored_name(name: str, names: Collection[str], reserved: Collection[str]) -> str:
    if name.casefold() not in reserved:
        return name
    while name.casefold() in names:
        name += "_"
    return name


def backfill_columns(
    reader: duckdb.DuckDBPyConnection, paths: Sequence[Path], columns: Sequence[Stored]
) -> list[Stored]:
    """Give the record id and the columns that a backfill brings; nothing where it brings none."""
    if not paths:
        return []
    names = file_columns(reader, paths)
    brought = [each for each in columns if each.name in names and each.name not in ENVELOPE]
    return [next(each for each in columns if each.name == RECORD_ID), *brought] if brought else []


def count_marks(rows_of: Callable[[str], Sequence[tuple[Any, ...]]], staging: str) -> tuple[int, int, int]:
    """Check what staged changes say of their rows; gives added, changed and removed."""
    op, change = quoted(OP), quoted(CHANGE)
    unknown, added, changed, removed = rows_of(
        f"SELECT count(*) FILTER (WHERE {op} IS NULL OR {op} NOT IN ('upsert', 'delete')), "
        f"count(*) FILTER (WHERE {change} = 'added'), count(*) FILTER (WHERE {change} = 'changed'), "
        f"count(*) FILTER (WHERE {op} = 'delete') FROM {staging}"
    )[0]
    if unknown:
        raise StepRefused(f"the changes file has {unknown} rows that are neither upsert nor delete")
    return added, changed, removed
