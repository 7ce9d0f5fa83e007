"""Versions of a dataset, their states and the places of their files (D5)."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Literal

from ploti.contract.events import HoldReason, ResyncReason
from ploti.contract.files import FileKind
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.schema import KnownColumn, Schema, SchemaChange

ExpiringKind = Literal["changes", "snapshot"]
"""What of a version goes past retention; backfill goes with the changes, attachments with the snapshot."""


_ALONE: Final = {"schema.json": "schema", "manifest.json": "manifest"}
"""Files that are the only one of their kind."""
ATTACHMENTS_FILE: Final = "attachments.json"
"""Which attachments a version has and where their bytes lie, beside the version's files; for the server alone."""


class VersionStatus(StrEnum):
    """Where a version stands; only `released` shows to subscribers."""

    BUILDING = "building"
    WAITING = "waiting"
    HELD = "held"
    RELEASED = "released"
    DISCARDED = "discarded"
    SUPERSEDED = "superseded"
    RELEASED_AGAIN = "released_again"


@dataclass(frozen=True)
class Counts:
    """Rows of the changes by kind."""

    added: int
    changed: int
    removed: int


@dataclass(frozen=True)
class StoredFile:
    """A file of a version; `path` is relative to the version's folder, like `snapshot/part-0000.parquet`."""

    path: str
    content_type: str
    size_bytes: int
    sha256: str
    rows: int | None = None

    @cached_property
    def filename(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Version:
    """A version from the start of its build on.

    `base` is the released version it was computed against, `previous_version` what subscribers see. `staff_files`
    (ledger entries, rejects) are never linked. `resync_reason` is None for a version to apply as changes. `fingerprint`
    tells whether two builds on one base would deliver the same (D5.1). `expired` is past retention since `expired_at`
    at the latest (D12). `rebuilt_at` is when lost files were last made again, with `definition`, what the dataset was
    at the build (D5.10). `agreeing_checks` counts the further checks that found the trouble that it is held for again
    (D6.3).
    """

    dataset_id: str
    number: int
    attempt: int
    status: VersionStatus
    check_id: int
    base: int | None = None
    previous_version: int | None = None
    schema_version: str = "1.0"
    schema: Schema = Schema(())
    schema_change: SchemaChange | None = None
    known_columns: tuple[KnownColumn, ...] = ()
    row_count: int = 0
    counts: Counts | None = None
    resync_reason: ResyncReason | None = None
    record_ids_changed: bool = False
    id_epoch: int = 0
    source_url: str | None = None
    place_id: str | None = None
    fetched_at: datetime | None = None
    built_at: datetime | None = None
    released_at: datetime | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    reasons: tuple[HoldReason, ...] = ()
    fingerprint: str = ""
    files: tuple[StoredFile, ...] = ()
    staff_files: tuple[StoredFile, ...] = ()
    note: str | None = None
    agreeing_checks: int = 0
    expired: tuple[ExpiringKind, ...] = ()
    expired_at: datetime | None = None
    rebuilt_at: datetime | None = None
    definition: Dataset | None = None

    @cached_property
    def folder(self) -> str:
        """Folder of the version's files in the file store (D5.3)."""
        return f"{versions_prefix(self.dataset_id)}{self.number}/{self.attempt}"

    def files_of(self, kind: FileKind) -> tuple[StoredFile, ...]:
        """The subscriber's files of one kind, in order of part number."""
        return self._by_kind.get(kind, ())

    @cached_property
    def _by_kind(self) -> dict[str, tuple[StoredFile, ...]]:
        found: dict[str, list[StoredFile]] = {}
        for file in self.files:
            folder, slash, _ = file.path.partition("/")
            found.setdefault(folder if slash else _ALONE.get(file.path, ""), []).append(file)
        return {kind: tuple(files) for kind, files in found.items()}


def versions_prefix(dataset_id: str) -> str:
    """Name the folder of a dataset's versions, with the slash that ends it; their attempts lie in it by number."""
    return f"{dataset_id}/versions/"


def state_path(dataset_id: str, sha256: str) -> str:
    """Name the stored raw state with this checksum."""
    return f"{dataset_id}/states/{sha256}/raw"
