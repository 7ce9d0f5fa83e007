"""The history of a table: a row for each state of a record, with the versions between which it held (D11.5).

Brought up to date inside the transaction that moves the rows, by comparing the table with the history's open rows, so
that it is right whatever moved them. Rows of volatile columns alone open nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ploti.contract.files import ENVELOPE, RECORD_ID
from ploti.contract.resources import Schema
from ploti.sync.target import StepBlocked
from ploti.sync.targets._parts import joined, quoted

FROM_VERSION: Final = "_ploti_valid_from_version"
TO_VERSION: Final = "_ploti_valid_to_version"
FROM: Final = "_ploti_valid_from"
TO: Final = "_ploti_valid_to"
_ID: Final = quoted(RECORD_ID)
_OPEN: Final = f"h.{quoted(TO_VERSION)} IS NULL"


@dataclass(frozen=True)
class Past:
    """A column as the history keeps it: its type, that type in DDL, the cast to compare it by, whether it counts.

    `taken` gives the value that it takes from the table's column.
    """

    column: str
    sql: str
    declared: str
    exact: str = ""
    counts: bool = True
    taken: str = "{}"

    @property
    def brought(self) -> str:
        """Give its value in the table's row."""
        return self.taken.format(f"t.{quoted(self.column)}")


@dataclass(frozen=True)
class Dialect:
    """How a database makes a history's own columns, tells that two values are the same, and writes a time."""

    key: str = ""
    whole: str = "BIGINT"
    instant: str = "TIMESTAMP WITH TIME ZONE"
    same: str = "IS NOT DISTINCT FROM"
    moment: Callable[[datetime], str] = lambda now: f"TIMESTAMP WITH TIME ZONE '{now.isoformat()}'"


@dataclass(frozen=True)
class History:
    """A table and its history by their SQL names; `found` are the history's columns with types, None where none is."""

    table: str
    history: str
    found: Mapping[str, str] | None
    run: Callable[[str], object]
    dialect: Dialect = Dialect()

    def keep(self, columns: Sequence[Past], version: int, now: datetime) -> None:
        """Bring the history up to date with its table, which holds a version now.

        Its times never go back, as a clock may. Where a publisher went on from a backup, what later versions said is
        taken back: they are no more.
        """
        self._bring_shape(columns, version)
        instant = self._instant(now)
        ending = f"UPDATE {self.history} AS h SET {quoted(TO_VERSION)} = {version}"
        self.run(f"{ending} WHERE h.{quoted(TO_VERSION)} > {version}")
        ending = f"{ending}, {quoted(TO)} = {instant} WHERE {_OPEN}"
        self.run(f"{ending} AND h.{quoted(FROM_VERSION)} > {version}")
        same = [f"t.{_ID} = h.{_ID}"]
        same += [
            f"{each.brought}{each.exact} {self.dialect.same} h.{quoted(each.column)}{each.exact}"
            for each in columns
            if each.counts
        ]
        self.run(f"{ending} AND NOT EXISTS (SELECT 1 FROM {self.table} AS t WHERE {joined(same, ' AND ')})")
        names = ", ".join(quoted(each.column) for each in columns)
        brought = ", ".join(each.brought for each in columns)
        self.run(
            f"INSERT INTO {self.history} ({names}, {quoted(FROM_VERSION)}, {quoted(FROM)}) "
            f"SELECT {brought}, {version}, {instant} FROM {self.table} AS t "
            f"WHERE NOT EXISTS (SELECT 1 FROM {self.history} AS h WHERE {_OPEN} AND h.{_ID} = t.{_ID})"
        )

    def _instant(self, now: datetime) -> str:
        """Give the time of this state as an SQL expression: now, or the latest in the history where that is later."""
        told = " UNION ALL ".join(f"SELECT max({quoted(name)}) FROM {self.history}" for name in (FROM, TO))
        return f"(SELECT max(moment) FROM (SELECT {self.dialect.moment(now)} AS moment UNION ALL {told}) AS times)"

    def _bring_shape(self, columns: Sequence[Past], version: int) -> None:
        """Make the history or give it the columns it lacks; one that changed its type keeps its past apart."""
        if self.found is None:
            body = [f"{quoted(each.column)} {each.declared}" for each in columns]
            body += [f"{quoted(name)} {self.dialect.whole}" for name in (FROM_VERSION, TO_VERSION)]
            body += [f"{quoted(name)} {self.dialect.instant}" for name in (FROM, TO)]
            self.run(f"CREATE TABLE {self.history} ({self.dialect.key}{', '.join(body)})")
            return
        check_own(self.history, self.found)
        for before, after in kept_apart(self.found, columns, version).items():
            self.run(f"ALTER TABLE {self.history} RENAME COLUMN {quoted(before)} TO {quoted(after)}")
        for each in columns:
            if self.found.get(each.column) != each.sql:
                self.run(f"ALTER TABLE {self.history} ADD COLUMN {quoted(each.column)} {each.declared}")


def check_own(history: str, found: Mapping[str, str]) -> None:
    """Raise StepBlocked for a table in a history's place that sync did not make."""
    if FROM_VERSION not in found:
        raise StepBlocked(f"a table {history} that sync did not make is there already: rename or drop it")


def kept_apart(found: Mapping[str, str], columns: Sequence[Past], version: int) -> dict[str, str]:
    """Give new names to a history's columns whose name, in any case, is now that of another or another type's."""
    here = {name.casefold(): name for name in found}
    renamed = {}
    for each in columns:
        before = here.get(each.column.casefold())
        if before is not None and (before, found[before]) != (each.column, each.sql):
            after = f"{before[:40]}_until_{version}"
            while after.casefold() in here:
                after += "_"
            renamed[before] = after
    return renamed


def counted(schema: Schema) -> frozenset[str]:
    """Name the columns of a schema that make a record's state another one when they change."""
    return frozenset(each["name"] for each in schema["columns"] if not each.get("volatile")) - ENVELOPE.keys()
