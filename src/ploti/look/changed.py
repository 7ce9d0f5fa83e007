"""What changed since a moment in all datasets of a subscription, from the envelope columns alone (page 001)."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, Literal

from ploti._client import Client
from ploti._download import ignore_bytes
from ploti.contract.files import CHANGE, CHANGED_COLUMNS, RECORD_ID, RESERVED_PREFIX, VERSION
from ploti.contract.resources import Dataset, Schema, Version
from ploti.contract.values import STORAGE_TYPES, ColumnType
from ploti.errors import FixRequest, Reload
from ploti.look.diff import Diff
from ploti.look.view import Look, Record, as_text, looking, quoted, readable

_AGO: Final = re.compile(r"([0-9]{1,5})\s*(m|h|d|w)")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TYPES: Final[dict[str, ColumnType]] = {
    stored.duckdb: type_ for type_, stored in STORAGE_TYPES.items() if type_ in {"geometry", "date", "timestamp"}
}
"""Stored types whose values are not shown as they are."""
_ID: Final = quoted(RECORD_ID)
_LAST: Final = f"FROM before QUALIFY row_number() OVER (PARTITION BY {_ID} ORDER BY {quoted(VERSION)} DESC) = 1"

Kind = Literal["added", "changed", "removed", "first", "reloaded", "ids_replaced", "schema_changed"]


@dataclass(frozen=True)
class Changed:
    """One record that a version changed, or what it did to many: `first`, `reloaded`, `ids_replaced`, `schema_changed`.

    `record` has the values as of the version, those that it had last for a removed one, None where these cannot be
    had; `rows` counts what `first` and `reloaded` hold, and the records that go on under another id. `schema` is the
    one that a version began.
    """

    dataset: Dataset
    version: Version
    change: Kind
    record_id: str | None = None
    previous_id: str | None = None
    columns: Sequence[str] = ()
    record: Record | None = None
    rows: int | None = None
    schema: Schema | None = None

    @property
    def label(self) -> str | None:
        """Name the record for people: its key's values, else its id."""
        return key_values(self.record or {}, self.dataset["keyColumns"]) or self.record_id


@dataclass(frozen=True)
class Released:
    """A version that was released since, with the schemas that it brought: its own, and of versions taken back."""

    dataset: Dataset
    version: Version
    began: Sequence[Schema] = ()


@dataclass(frozen=True)
class Changes:
    """What changed since a moment, to be gone over once; `released` are the versions, the first released first."""

    look: Look
    released: Sequence[Released]
    last: bool

    def __iter__(self) -> Iterator[Changed]:
        return _changes(self.look, self.released, self.last)

    @property
    def newest(self) -> Iterable[tuple[Dataset, Version]]:
        """Give each dataset that has a new version, with the version that it is at now."""
        return {each.dataset["id"]: (each.dataset, each.version) for each in self.released}.values()


def key_values(record: Record, keys: Sequence[str]) -> str:
    """Give the values of a record's key for people; empty where it has none."""
    return " ".join(str(record[name]) for name in keys if record.get(name) is not None)


@contextmanager
def changes_since(
    client: Client,
    subscription: str,
    since: datetime,
    *,
    place: str | None = None,
    topic: str | None = None,
    last: bool = True,
    progress: Callable[[int], object] = ignore_bytes,
) -> Iterator[Changes]:
    """Open the changes of all versions released since a moment, in the order of their release.

    A version that is to be reloaded is compared with the one before it while that is kept. Changes files have only the
    ids of removed records: with `last`, what these held is looked up, which costs a snapshot of each dataset that lost
    some.
    """
    with looking(client, progress) as look:
        yield Changes(look, _released(client, subscription, since, place, topic), last)


def since_when(text: str, now: datetime) -> datetime:
    """Read a date (its beginning in the user's time zone), a time, or how long ago, like `7d` or `24h`."""
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except ValueError:
        told = f"{text!r} is no moment: give a date, a time or how long ago, like 2026-10-18, 2026-10-18T06:00Z or 7d."
        raise FixRequest(told, code="invalid_input", field="since") from None


def _released(
    client: Client, subscription: str, since: datetime, place: str | None, topic: str | None
) -> list[Released]:
    """List the versions released since, the first released first."""
    datasets = client.feeds.datasets.iter(subscription=subscription, updated_since=since, place=place, topic=topic)
    found = [each for dataset in datasets for each in _versions(client, dataset, since)]
    return sorted(found, key=lambda each: (each.version["publishedAt"], each.dataset["id"], each.version["version"]))


def _versions(client: Client, dataset: Dataset, since: datetime) -> Iterator[Released]:
    """Give a dataset's versions released since; its schemas are read only where one of these began one."""
    schemas: list[Schema] = []
    newest_first = client.feeds.datasets.versions.iter(dataset["id"], order="desc")
    for version, before in pairwise(chain(newest_first, (None,))):
        if version is None or datetime.fromisoformat(version["publishedAt"]) < since:
            return
        if before is None or version["schemaVersion"] == before["schemaVersion"]:
            yield Released(dataset, version)
            continue
        schemas = schemas or client.feeds.datasets.schemas(dataset["id"])["schemas"]
        passed, own = _ordered(before["schemaVersion"]), _ordered(version["schemaVersion"])
        began = [schema for schema in schemas if passed < _ordered(schema["schemaVersion"]) <= own]
        yield Released(dataset, version, began)


def _ordered(schema_version: str) -> list[int]:
    return [int(part) for part in schema_version.split(".")]


def _changes(look: Look, released: Sequence[Released], last: bool) -> Iterator[Changed]:
    before: dict[str, _Before] = {}
    for each in released:
        dataset, version = each.dataset, each.version
        for schema in each.began:
            yield Changed(dataset, version, "schema_changed", schema=schema)
        if version["previousVersion"] is None:
            yield Changed(dataset, version, "first", rows=version["rowCount"])
        elif version["resyncRequired"]:
            before.pop(dataset["id"], None)
            yield from _compared(look, dataset, version, version["previousVersion"])
        else:
            yield from _listed(look, dataset, version, before.setdefault(dataset["id"], _Before()) if last else None)


@dataclass
class _Before:
    """Files that have every record of a dataset as it was last: a snapshot, and the changes of versions since."""

    paths: list[Path] = field(default_factory=list)

    def ready(self, look: Look, dataset: str, version: Version) -> bool:
        """Make the view `before` where a version removes records; False where it does not, or the files are gone."""
        previous, counts = version["previousVersion"], version["counts"]
        if previous is None or counts is None or not counts["removed"]:
            return False
        if not self.paths:
            try:
                self.paths += look.parts(dataset, previous)
            except Reload:
                return False
        look.view("before", self.paths)
        return bool(self.paths)

    def go_on(self, paths: Sequence[Path]) -> None:
        """Take a version's changes along, where a snapshot to build on is there."""
        if self.paths:
            self.paths += paths


def _listed(look: Look, dataset: Dataset, version: Version, before: "_Before | None") -> Iterator[Changed]:
    """Read a version's changes files."""
    try:
        paths = look.parts(dataset["id"], version["version"], "changes")
    except Reload:
        yield Changed(dataset, version, "reloaded", rows=version["rowCount"])
        return
    if not paths:
        return
    look.view("changes", paths)
    told = ", ".join(f"c.{quoted(name)}" for name in (RECORD_ID, CHANGE, CHANGED_COLUMNS))
    own = _own(look, "changes")
    values, source = readable(own, "c."), "changes c"
    known = before is not None and before.ready(look, dataset["id"], version)
    if known:
        held = _own(look, "before")
        values = ", ".join(_either(name, type_, name in held) for name, type_ in own.items())
        source += f" LEFT JOIN ({_LAST}) b ON b.{_ID} = c.{_ID}"
    for row in look.records(f"SELECT {told}{', ' if own else ''}{values} FROM {source} ORDER BY c.{_ID}"):
        is_known = known or row[CHANGE] != "removed"
        record = {name: row[name] for name in own} if is_known else None
        yield Changed(dataset, version, row[CHANGE], row[RECORD_ID], None, row[CHANGED_COLUMNS] or (), record)
    if before is not None:
        before.go_on(paths)


def _own(look: Look, view: str) -> dict[str, ColumnType]:
    """Give the own columns of files with their types."""
    stored = {name: kind for name, kind, *_ in look.db.execute(f"DESCRIBE {view}").fetchall()}
    return {name: _TYPES.get(kind, "string") for name, kind in stored.items() if not name.startswith(RESERVED_PREFIX)}


def _either(name: str, type_: ColumnType, is_held: bool) -> str:
    """Select a value of a record as it is, or as it was before it was removed."""
    was = as_text(f"b.{quoted(name)}", type_) if is_held else "NULL"
    now = as_text(f"c.{quoted(name)}", type_)
    return f"CASE WHEN c.{quoted(CHANGE)} = 'removed' THEN {was} ELSE {now} END AS {quoted(name)}"


def _compared(look: Look, dataset: Dataset, version: Version, previous: int) -> Iterator[Changed]:
    """Compare a version that is to be reloaded with the one before; where that is gone, tell of it whole."""
    try:
        diff = Diff(look, dataset["id"], previous, version["version"])
    except Reload:
        yield Changed(dataset, version, "reloaded", rows=version["rowCount"])
        return
    if replaced := diff.replaced():
        yield Changed(dataset, version, "ids_replaced", rows=replaced)
    for each in diff.differences():
        columns = list(each.values) if each.change == "changed" else []
        yield Changed(dataset, version, each.change, each.record_id, each.previous_id, columns, each.record)
