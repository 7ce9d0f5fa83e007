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
from ploti.sync.targets._parts import quoted

FROM_VERSION: Final = "_ploti_valid_from_version"
TO_VERSION: Final = "_ploti_valid_to_version"
_FROM: Final = "_ploti_valid_from"
_TO: Final = "_ploti_valid_to"
_INSTANT: Final = "TIMESTAMP WITH TIME ZONE"
_ID: Final = quoted(RECORD_ID)
_OPEN: Final = f"h.{quoted(TO_VERSION)} IS NULL"


@dataclass(frozen=True)
class Past:
    """A column as the history keeps it: its type, that type in DDL, the cast to compare it by, whether it counts."""

    column: str
    sql: str
    declared: str
    exact: str = ""
    counts: bool = True


@dataclass(frozen=True)
class History:
    """A table and its history by their SQL names; `found` are the history's columns with types, None where none is."""

    table: str
    history: str
    found: Mapping[str, str] | None
    run: Callable[[str], object]

    def keep(self, columns: Sequence[Past], version: int, now: datetime) -> None:
        """Bring the history up to date with its table, which holds a version now."""
        self._bring_shape(columns, version)
        instant = f"{_INSTANT} '{now.isoformat()}'"
        same = "".join(
            f" AND t.{quoted(each.column)}{each.exact} IS NOT DISTINCT FROM h.{quoted(each.column)}{each.exact}"
            for each in columns
            if each.counts
        )
        self.run(
            f"UPDATE {self.history} AS h SET {quoted(TO_VERSION)} = {version}, {quoted(_TO)} = {instant} "
            f"WHERE {_OPEN} AND NOT EXISTS (SELECT 1 FROM {self.table} AS t WHERE t.{_ID} = h.{_ID}{same})"
        )
        names = ", ".join(quoted(each.column) for each in columns)
        brought = ", ".join(f"t.{quoted(each.column)}" for each in columns)
        self.run(
            f"INSERT INTO {self.history} ({names}, {quoted(FROM_VERSION)}, {quoted(_FROM)}) "
            f"SELECT {brought}, {version}, {instant} FROM {self.table} AS t "
            f"WHERE NOT EXISTS (SELECT 1 FROM {self.history} AS h WHERE {_OPEN} AND h.{_ID} = t.{_ID})"
        )

    def _bring_shape(self, columns: Sequence[Past], version: int) -> None:
        """Make the history or give it the columns it lacks; one that changed its type keeps its past apart."""
        if self.found is None:
            body = [f"{quoted(each.column)} {each.declared}" for each in columns]
            body += [f"{quoted(name)} BIGINT" for name in (FROM_VERSION, TO_VERSION)]
            body += [f"{quoted(name)} {_INSTANT}" for name in (_FROM, _TO)]
            self.run(f"CREATE TABLE {self.history} ({', '.join(body)})")
            return
        if FROM_VERSION not in self.found:
            raise StepBlocked(f"a table {self.history} that sync did not make is there already: rename or drop it")
        for each in columns:
            before = self.found.get(each.column)
            if before == each.sql:
                continue
            if before is not None:
                past = f"{each.column[:40]}_until_{version}"
                self.run(f"ALTER TABLE {self.history} RENAME COLUMN {quoted(each.column)} TO {quoted(past)}")
            self.run(f"ALTER TABLE {self.history} ADD COLUMN {quoted(each.column)} {each.declared}")


def counted(schema: Schema) -> frozenset[str]:
    """Name the columns of a schema that make a record's state another one when they change."""
    return frozenset(each["name"] for each in schema["columns"] if not each.get("volatile")) - ENVELOPE.keys()
