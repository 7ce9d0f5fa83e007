"""What every sync target offers, and the values that go into it and come out (D11.2 to D11.9)."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Protocol

from ploti.contract.digest import Digest
from ploti.contract.files import GEOMETRY, RESERVED_PREFIX
from ploti.contract.resources import Column, Dataset, Schema
from ploti.errors import PlotiError
from ploti.sync.plan import Held

LAYOUT: Final = 3
"""Version of the tables `_ploti_sync` and `_ploti_datasets`; a target with another one is refused."""

Reach = Callable[[str], None]
"""Called with the name of each step as it is reached, for tests that stop a run there."""
Say = Callable[[str], None]
"""Takes one line for a person, such as who is being waited for."""

TO: Final = "--to ..."
"""Stands in a command in a message for the options that name the target."""


def reach_nothing(step: str) -> None:
    """Pass every named step."""


def say_nothing(line: str) -> None:
    """Keep every line quiet."""


class Progress:
    """Told of what goes on; this one keeps quiet. Subclass it to show a bar or lines."""

    def line(self, text: str) -> None:
        """Take a line that a person should see."""

    def began(self, dataset_id: str, doing: str, total_bytes: int) -> None:
        """Take the start of one dataset's step and how much there is to download."""

    def moved(self, count: int) -> None:
        """Take bytes that arrived."""

    def ended(self) -> None:
        """Take the end of a dataset's step."""


_DATASET: Final = "{dataset}"
_SCHEME: Final = re.compile(r"([a-z][a-z0-9_]{0,30})?\{dataset\}[a-z0-9_]{0,30}")
_NAMES_TAKEN: Final = ("sqlite_", "gpkg_", "rtree_")
_BESIDE: Final = re.compile(r"_(geo|history|record_id|pkey|geometry_idx)_*$")
"""How names of views, tables and indexes end that targets make beside a dataset's table."""


class SyncError(PlotiError):
    """Sync cannot go on; the message says what to do next."""

    code = "sync_refused"

    def __init__(self, message: str) -> None:
        super().__init__(message, code=self.code)

    def __str__(self) -> str:
        """Give the message alone: it has no request to look up."""
        return self.message


class TargetBusy(SyncError):
    """Another process uses the target for longer than sync waits."""

    code = "target_busy"


class TargetUnusable(SyncError):
    """The target is not one that this sync can write to."""

    code = "target_unusable"


class TargetAway(TargetUnusable):
    """The target's server does not answer or let in: it may come back by itself, where it was reached before."""

    code = "target_away"


class StepRefused(SyncError):
    """One dataset's step cannot be done; others go on and this one is marked `behind`."""

    code = "step_refused"


class StepBlocked(StepRefused):
    """Something of the user's own, named in the message, stands in the way; the dataset is blocked (D11.3)."""

    code = "step_blocked"


class TableSpoilt(StepRefused):
    """A table is not as sync made it: gone, or a column of it; loading the version that it holds puts it right."""

    code = "table_spoilt"


class RowsDiffer(StepRefused):
    """After the changes the table has not the rows that the version has; it needs a reload."""

    code = "rows_differ"


@dataclass(frozen=True)
class DatasetInfo:
    """What `_ploti_datasets` says of a dataset beside its position (D11.7)."""

    title: str | None
    place_id: str | None
    place_name: str | None
    topic: str | None
    publisher: str | None
    source_url: str | None
    license_id: str | None
    license_attribution: str | None
    license_url: str | None

    @classmethod
    def of(cls, dataset: Dataset) -> "DatasetInfo":
        """Take it from the API's dataset."""
        terms = dataset.get("license") or {"id": None, "attribution": None, "url": None}
        return cls(
            title=dataset["title"],
            place_id=dataset["place"]["id"],
            place_name=dataset["place"]["name"],
            topic=dataset["topic"],
            publisher=dataset["source"]["publisher"],
            source_url=dataset["source"]["url"],
            license_id=terms["id"],
            license_attribution=terms["attribution"],
            license_url=terms["url"],
        )


INFO_COLUMNS: Final = tuple(each.name for each in fields(DatasetInfo))
"""Columns of `_ploti_datasets` that say what the API says of a dataset."""


@dataclass(frozen=True)
class IdsReplaced:
    """Columns of the user's own tables that hold record ids, and the id maps on the way to a version, oldest first.

    `told` comes after them: what the API told of ids whose map is gone.
    """

    columns: tuple[tuple[str, str], ...]
    maps: tuple[tuple[Path, ...], ...]
    told: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Delivery:
    """A version's files on this machine, sizes and checksums already checked.

    `left_out` are columns of the files that the user does not want; the schema is without them. `table` is what its
    target calls the dataset's table.
    """

    dataset_id: str
    version: int
    schema: Schema
    row_count: int
    constants: Mapping[str, Any]
    snapshot: tuple[Path, ...] = ()
    changes: tuple[Path, ...] = ()
    backfill: tuple[Path, ...] = ()
    ids_replaced: IdsReplaced | None = None
    left_out: frozenset[str] = frozenset()
    table: str = ""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file of it."""
        maps = self.ids_replaced.maps if self.ids_replaced else ()
        return (*self.snapshot, *self.changes, *self.backfill, *(path for parts in maps for path in parts))


@dataclass(frozen=True)
class Moved:
    """Rows that one step brought into a table; a reload counts none but the table's new rows."""

    rows: int
    added: int = 0
    changed: int = 0
    removed: int = 0


@dataclass(frozen=True)
class TargetState:
    """What a target says of itself; `cursor` None until the first load is whole.

    `last_event` tells which event was the last one when the cursor was stored, None where that is not known. `lost` are
    the datasets whose table is not where sync left it, and what is gone.
    """

    subscription_id: str | None
    cursor: str | None
    datasets: Mapping[str, Held]
    last_event: str | None = None
    lost: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetStatus:
    """One row of `ploti sync status`."""

    held: Held
    title: str | None
    place_id: str | None
    loaded_at: str | None


class Target(Protocol):
    """A database that follows one subscription.

    Each of `load`, `apply` and `record` is one transaction: rows, loaded version and position move together or not at
    all, and no reader ever sees a part of it (D11.2, D11.3).
    """

    def lock(self) -> AbstractContextManager[None]:
        """Keep other syncs away for a whole run; raises TargetBusy naming the one that is running."""

    def state(self) -> TargetState:
        """Read subscription, cursor and what is held; an empty state where nothing was synced yet."""

    def load(self, delivery: Delivery, held: Held, info: DatasetInfo | None) -> Moved:
        """Replace a dataset's rows by the snapshot and store `held`, as one transaction.

        Where ids were replaced, the user's columns that hold them are rewritten in it too. Raises StepRefused for files
        that break the contract, StepBlocked for a user's view in the way.
        """

    def apply(self, delivery: Delivery, held: Held) -> Moved:
        """Apply changes, backfill and constants, bring new columns, and store `held`, as one transaction.

        Raises RowsDiffer where the result has not the version's number of rows, else as `load`.
        """

    def mend(self, delivery: Delivery, buckets: Collection[str], volatile: Collection[str]) -> Moved:
        """Make the records of these buckets those of the loaded version's snapshot, as one transaction (D11.5).

        Rows that agree, volatile columns aside, are not touched; the position stays. Gives what was added, changed and
        removed. Raises TableSpoilt where rows are not all that is wrong, else as `load`.
        """

    def lost_ids(self, delivery: Delivery) -> frozenset[str]:
        """Give the record ids in the user's columns that no record of the snapshot carries, rewritten as `load` would.

        Raises StepBlocked for a column that is not there.
        """

    def record(
        self, subscription_id: str, cursor: str | None, moved: Iterable[Held], last_event: str | None = None
    ) -> None:
        """Store the cursor together with the datasets whose state changed without rows, as one transaction."""

    def infos(self) -> Mapping[str, DatasetInfo]:
        """Give what is stored of what the API says, by dataset."""

    def note(self, infos: Mapping[str, DatasetInfo]) -> None:
        """Store what the API says of datasets that are in the target already."""

    def digest(self, dataset_id: str, volatile: Iterable[str]) -> Digest:
        """Compute the digest of a table without volatile columns (D5.6).

        Raises StepRefused where nothing was loaded, TableSpoilt where the table is not as sync made it.
        """

    def snapshot_digest(self, delivery: Delivery, volatile: Iterable[str]) -> Digest:
        """Compute the digest of a snapshot's own columns without volatile ones; those left out are not among them."""

    def status(self) -> list[DatasetStatus]:
        """List the datasets, followed ones and those that left, by id."""

    @property
    def downloads(self) -> Path:
        """Folder beside the target for files on their way into it."""


@dataclass(frozen=True)
class TableNames:
    """How a target names its tables: a text in which `{dataset}` stands for a dataset's id."""

    scheme: str = _DATASET

    def of(self, dataset_id: str) -> str:
        """Name a dataset's table; one more `_` keeps it apart from what lies beside another's, such as its history."""
        name = self.scheme.replace(_DATASET, dataset_id)
        return f"{name}_" if _BESIDE.search(name) else name

    @classmethod
    def kept(cls, stored: str | None, asked: str | None) -> "TableNames":
        """Give the names of a target that has some, or of a new one; raises TargetUnusable where others are asked for.

        A target keeps its scheme: tables of yours, views and queries know the names.
        """
        if stored is not None and asked is not None and asked != stored:
            raise TargetUnusable(f"This target names its tables {stored}: leave --table-name out, or use a new target.")
        scheme = next((each for each in (stored, asked) if each is not None), _DATASET)
        if not _SCHEME.fullmatch(scheme) or scheme.startswith(_NAMES_TAKEN):
            raise TargetUnusable(
                f"{scheme!r} names no tables: write it like county_{_DATASET}, in a to z, 0 to 9 and _."
            )
        return cls(scheme)


def user_column(name: str) -> tuple[str, str]:
    """Split `table.column` as a user writes it; raises SyncError for a name that is none."""
    table, _, column = name.rpartition(".")
    if not table or not column or table.startswith(RESERVED_PREFIX):
        raise SyncError(f"{name!r} names no column of a table of yours: write it like orders.permit_id.")
    return table, column


def check_whole(table: str, found: Mapping[str, str] | None, wanted: Mapping[str, str]) -> None:
    """Raise TableSpoilt for a table that is gone, or lacks a column or has it with another type than sync made."""
    wrong = None
    if found is None:
        wrong = gone(table)
    elif missing := [name for name in wanted if name not in found]:
        wrong = f"the column {missing[0]!r} of {table} is gone"
    elif retyped := [name for name in wanted if found[name] != wanted[name]]:
        wrong = f"the column {retyped[0]!r} of {table} has the type {found[retyped[0]]} instead of {wanted[retyped[0]]}"
    if wrong is not None:
        raise TableSpoilt(brought_back(wrong))


def gone(table: str) -> str:
    """Say that a table is not there any more."""
    return f"the table {table} is gone"


def command(*words: str) -> str:
    """Give a command of `ploti sync` as messages have it; who knows the target's address puts it in place of `TO`."""
    return f"`{' '.join(('ploti sync', *words, TO))}`"


def brought_back(wrong: str) -> str:
    """Add to what is wrong with a table what to do about it."""
    return f"{wrong}: {command('repair')} brings it back"


def as_found(held: Held, lost: str | None) -> Held:
    """Give what a person is told of a dataset: it is behind where its table was lost, unless it is followed no more."""
    if lost is None or not held.followed:
        return held
    return replace(held, state="behind", reason=brought_back(lost))


def column_comment(column: Column) -> str:
    """Give what a target says of a column: its description and the source's own name for it."""
    source = column.get("sourceName")
    told = [column.get("description", ""), f"Source column: {source}" if source else ""]
    return " ".join(part for part in told if part)


def check_columns(schema: Schema) -> None:
    """Refuse a schema that no table can have: reserved names, or names that differ by case alone (D2.1)."""
    seen: set[str] = set()
    for column in schema["columns"]:
        folded = column["name"].casefold()
        if folded.startswith(RESERVED_PREFIX) or not folded or "\0" in folded:
            raise StepRefused(f"Column name {column['name']!r} is reserved or empty: tell the publisher of the feed.")
        if (column["name"] == GEOMETRY) != (column["type"] == "geometry"):
            raise StepRefused(f"Column {column['name']!r} of type {column['type']} breaks the rule for shapes.")
        if folded in seen:
            raise StepRefused(f"Column {column['name']!r} is there twice: tell the publisher of the feed.")
        seen.add(folded)
