"""The history of a table in a GeoPackage: a layer or plain table of its own, which readers know (D11.5, D11.9).

It has the table's kind of shapes and a spatial index, so that QGIS draws the states of a version by a filter alone.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ploti.contract.files import GEOMETRY
from ploti.contract.resources import Schema
from ploti.sync.targets import _geopackage_layout as layout
from ploti.sync.targets._geopackage_file import rows_of
from ploti.sync.targets._geopackage_shape import FINE, KEY, KEY_RULE, key_rows, kind_of_shapes, shape_of
from ploti.sync.targets._history import Dialect, History, Past, check_own, counted, kept_apart
from ploti.sync.targets._parts import quoted
from ploti.sync.targets._stored import Stored

_COARSE: Final = "DATETIME"
_NO_LAYERS: Final = "BLOB"
"""Type of shapes whose kind is no longer the table's: readers take one column of shapes for each layer."""
_DIALECT: Final = Dialect(
    key=f"{KEY_RULE}, ", whole="INTEGER", instant=_COARSE, same="IS", moment=lambda now: f"'{layout.instant(now)}'"
)
_FINER: Final = "(substr({}, 1, 23) || '000Z')"
"""A time to the millisecond as one to the microsecond."""


@dataclass(frozen=True)
class LayerHistory:
    """The history of one table, whose columns and schema these are."""

    db: sqlite3.Connection
    table: str
    columns: Sequence[Stored]
    schema: Schema

    @property
    def name(self) -> str:
        """Name its table."""
        return f"{self.table}_history"

    def keep(self, version: int, now: datetime, *, begin: bool) -> None:
        """Bring it up to date with its table, which holds a version now; none is begun unless it is to `begin`."""
        found = self._found()
        if found is None and not begin:
            return
        kind, last = kind_of_shapes(self.columns), 0
        if found is not None:
            check_own(self.name, found)
            last, found = self._last(), self._refined(found)
        columns = [self._past(each, found or {}) for each in self.columns]
        apart = kept_apart(found or {}, columns, version)
        if found is None or GEOMETRY in apart:
            layout.drop_index(self.db, self.name)
        if found is not None and GEOMETRY in apart:
            self._move(GEOMETRY, apart[GEOMETRY], _NO_LAYERS)
            found = {name: sql for name, sql in found.items() if name != GEOMETRY}
        History(quoted(self.table), quoted(self.name), found, self.db.execute, _DIALECT).keep(columns, version, now)
        if found is None:
            key_rows(self.db, self.name, "INDEX")
        self._list(now)
        if kind is not None and (found is None or found.get(GEOMETRY) != kind):
            layout.make_index(self.db, self.name, KEY)
            layout.set_extent(self.db, self.name)
        elif kind is not None:
            layout.widen_extent(self.db, self.name, f"(SELECT * FROM {quoted(self.name)} WHERE {KEY} > {last})")

    def _found(self) -> Mapping[str, str] | None:
        shape = shape_of(self.db, self.name)
        return None if shape is None else shape.columns

    def _past(self, column: Stored, found: Mapping[str, str]) -> Past:
        """Give a column as it is kept; times stay to the microsecond where they were."""
        counts = column.name in counted(self.schema)
        if column.type == "timestamp" and column.sql == _COARSE and found.get(column.column) == FINE:
            return Past(column.column, FINE, FINE, counts=counts, taken=_FINER)
        return Past(column.column, column.sql, column.sql, counts=counts)

    def _refined(self, found: Mapping[str, str]) -> Mapping[str, str]:
        """Bring times to the microsecond where the table's have come to it: no record changed by that."""
        refined, old = dict(found), "_ploti_coarse"
        for each in self.columns:
            if each.type == "timestamp" and each.sql == FINE and found.get(each.column) == _COARSE:
                self.db.execute(f"ALTER TABLE {quoted(self.name)} RENAME COLUMN {quoted(each.column)} TO {old}")
                self._move(old, each.column, FINE, _FINER)
                refined[each.column] = FINE
        return refined

    def _move(self, column: str, to: str, sql: str, value: str = "{}") -> None:
        """Make a column one of another name and type."""
        table = quoted(self.name)
        self.db.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(to)} {sql}")
        self.db.execute(f"UPDATE {table} SET {quoted(to)} = {value.format(quoted(column))}")
        self.db.execute(f"ALTER TABLE {table} DROP COLUMN {quoted(column)}")

    def _last(self) -> int:
        return int(rows_of(self.db, f"SELECT coalesce(max({KEY}), 0) FROM {quoted(self.name)}")[0][0])

    def _list(self, now: datetime) -> None:
        """Have readers know it like its table; shapes that its table has no more are still there."""
        found = self._found() or {}
        layout.list_table(self.db, self.name, found.get(GEOMETRY), now)
        layout.describe(self.db, self.name, self.schema, [(each.name, each.column) for each in self.columns])
        layout.tell_like(self.db, self.name, self.table)
