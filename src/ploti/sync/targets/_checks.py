"""What targets that are databases check of a dataset's table, in the same words (D11.3)."""

import re
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from ploti.contract.files import RECORD_ID
from ploti.sync.target import Delivery, RowsDiffer, StepBlocked, StepRefused, command
from ploti.sync.targets._parts import quoted

_NO_COLUMN: Final = re.compile(r'(?:a column named|Referenced column) "(.*)"|no such column: (.*)')
"""How DuckDB and SQLite say that a column is not there."""
_PLAIN: Final = re.compile(r"\w+")


class Place(Protocol):
    """What has a table's name."""

    @property
    def table(self) -> str:
        """The name."""

    @property
    def kind(self) -> str:
        """What it is, such as a view."""

    @property
    def columns(self) -> Collection[str]:
        """Its columns."""


def check_place(found: Place | None, *, made: bool) -> None:
    """Raise StepBlocked where what has a table's name is nothing that sync made: it is left as it is.

    `made` tells whether sync made a table of that name before.
    """
    if found is not None and not (made and found.kind == "table" and RECORD_ID in found.columns):
        article = "an" if found.kind[0] in "aeiou" else "a"
        raise StepBlocked(
            f"{article} {found.kind} {found.table} that sync did not make is there already: rename or drop it"
        )


def no_table(dataset_id: str) -> StepRefused:
    """Say that changes came for a table that is not there any more."""
    return StepRefused(f"the table is not there any more: run {command('resync', dataset_id)}")


def cannot_follow(what: str, table: str, why: str) -> StepBlocked:
    """Say that something of the user's, like an index, cannot be kept on the columns that arrive."""
    missing = _NO_COLUMN.search(why)
    told = f"no column {missing[1] or missing[2]}" if missing else why
    return StepBlocked(
        f"your {what} cannot follow the new columns of {table} ({told}): change or drop it, then run sync again"
    )


def named(kind: str, name: str) -> str:
    """Name something of the user's as it is to be written in SQL."""
    return f"{kind} {name}" if _PLAIN.fullmatch(name) else f"{kind} {quoted(name)}"


def speaking_of(table: str, views: Iterable[tuple[str, str]]) -> list[str]:
    """Choose the views, given by name and statement, that speak of a table or of a view that does."""
    told, found = [(name, sql.casefold()) for name, sql in views], [table]
    for known in found:
        found += [name for name, sql in told if name not in found and known.casefold() in sql]
    return found[1:]


def check_snapshot(found: int, delivery: Delivery) -> None:
    """Raise StepRefused for a snapshot that has not as many rows as are announced."""
    if found != delivery.row_count:
        raise StepRefused(f"the snapshot has {found} rows where {delivery.row_count} are announced")


def check_loaded(table: str, found: int, delivery: Delivery) -> None:
    """Raise StepBlocked for a table that has not the rows of a whole snapshot that was brought into it."""
    if found != delivery.row_count:
        raise StepBlocked(
            f"the table {table} has {found} rows where version {delivery.version} has {delivery.row_count}: "
            "look for triggers or rules of yours on it, then run sync again"
        )


def check_applied(found: int, delivery: Delivery) -> None:
    """Raise RowsDiffer for a table that has not the version's number of rows after its changes."""
    if found != delivery.row_count:
        raise RowsDiffer(f"after the changes the table has {found} rows where {delivery.row_count} are announced")
