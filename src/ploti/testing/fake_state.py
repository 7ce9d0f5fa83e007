"""What the fake API knows: datasets, versions with files, subscriptions with logs, and their wire shapes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, cast

from ploti.contract.events import ADDED, REMOVED, RESYNC_REQUIRED, UPDATED, Event, event_number
from ploti.contract.files import JSON_TYPE, PARQUET_TYPE
from ploti.contract.resources import (
    Counts,
    CurrentVersion,
    Dataset,
    DatasetPlace,
    DatasetStatus,
    GeometryInfo,
    License,
    Place,
    RecordTrace,
    Schema,
    SourceInfo,
    Subscription,
    Topic,
    Version,
    VersionManifest,
)


def wire_time(moment: datetime) -> str:
    """Give a moment as the wire has it: UTC, milliseconds, `Z` (D1.4)."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class StoredFile:
    """One file of a version; an attachment's `path` is its `file` name."""

    path: str
    content: bytes
    filename: str
    content_type: str

    @property
    def sha256(self) -> str:
        """Checksum of the bytes."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def facts(self) -> dict[str, Any]:
        """What every listing of the file says of it."""
        return {
            "filename": self.filename,
            "contentType": self.content_type,
            "sizeBytes": len(self.content),
            "sha256": self.sha256,
        }


def stored(path: str, content: bytes) -> StoredFile:
    """Give a file of a version, its type told by its name."""
    type_ = JSON_TYPE if path.endswith(".json") else PARQUET_TYPE
    return StoredFile(path, content, path.rpartition("/")[2], type_)


Kept = Literal["kept", "pruned", "rebuilding", "released_again"]


@dataclass(frozen=True)
class FakeVersion:
    """A released version; `kept` tells whether its files can still be had."""

    dataset_id: str
    number: int
    previous: int | None
    schema: Schema
    published_at: datetime
    row_count: int
    counts: Counts | None
    record_ids_changed: bool
    files: Mapping[str, StoredFile]
    attachments: Mapping[str, StoredFile]
    kept: Kept = "kept"
    attempt: int = 1

    @property
    def resync_required(self) -> bool:
        """Whether there are no changes to apply."""
        return self.counts is None

    def wire(self) -> Version:
        """Give the version without its files."""
        return {
            "datasetId": self.dataset_id,
            "version": self.number,
            "previousVersion": self.previous,
            "schemaVersion": self.schema["schemaVersion"],
            "publishedAt": wire_time(self.published_at),
            "sourceUrl": f"https://records.example/{self.dataset_id}",
            "fetchedAt": wire_time(self.published_at),
            "rowCount": self.row_count,
            "counts": self.counts,
            "resyncRequired": self.resync_required,
            "recordIdsChanged": self.record_ids_changed,
        }

    def named(self, name: str) -> StoredFile | None:
        """Give the file of a path, or the attachment of a name; pruned versions have none."""
        return None if self.kept != "kept" else self.files.get(name) or self.attachments.get(name)


def manifest_of(version: FakeVersion, extra: Mapping[str, Any]) -> VersionManifest:
    """Give what stands in `manifest.json`, with `extra` members such as `digest` and `constants` laid over it."""
    wire = version.wire()
    listed = [{"path": file.path, **file.facts} for file in version.files.values()]
    attachments = [{"file": name, **file.facts} for name, file in version.attachments.items()]
    shown = {name: value for name, value in wire.items() if name != "publishedAt"}
    rest = {"constants": {}, "volatileColumns": [], "repairedShapes": 0, "rejects": {}, "digest": {}, "license": None}
    return cast(VersionManifest, {**shown, "files": listed, "attachments": attachments, **rest, **extra})


def with_documents(version: FakeVersion, extra: Mapping[str, Any]) -> FakeVersion:
    """Give the version with `schema.json` and `manifest.json`, made here where the script did not bring them."""
    files = dict(version.files)
    files.setdefault("schema.json", stored("schema.json", json.dumps(version.schema).encode()))
    version = replace(version, files=files)
    files.setdefault("manifest.json", stored("manifest.json", json.dumps(manifest_of(version, extra)).encode()))
    return replace(version, files=files)


@dataclass
class FakeDataset:
    """A dataset of the fake catalog with its released versions."""

    id: str
    title: str
    place: DatasetPlace
    topic: str | None
    source: SourceInfo
    license: License | None
    key_columns: list[str]
    geometry: GeometryInfo | None
    waiting_status: DatasetStatus
    last_checked_at: datetime
    next_check_by: datetime
    covered: bool = True
    deliverable: bool = True
    versions: dict[int, FakeVersion] = field(default_factory=dict)
    records: dict[str, RecordTrace] = field(default_factory=dict)

    @property
    def current(self) -> FakeVersion | None:
        """The newest version that was not released again."""
        shown = [version for version in self.versions.values() if version.kept != "released_again"]
        return max(shown, key=lambda version: version.number, default=None)

    def wire(self) -> Dataset:
        """Give the dataset as the API shows it."""
        current = self.current
        key = current.schema["keyColumns"] if current is not None else []
        return {
            "id": self.id,
            "dataAtlasId": None,
            "title": self.title,
            "description": None,
            "place": self.place,
            "topic": self.topic,
            "source": self.source,
            "license": self.license,
            "keyed": bool(key),
            "keyColumns": key,
            "geometry": self.geometry if current is not None else None,
            "current": _current(current),
            "status": self.waiting_status if current is None else "available",
            "refresh": {
                "lastCheckedAt": wire_time(self.last_checked_at),
                "nextCheckBy": wire_time(self.next_check_by),
            },
        }


def _current(version: FakeVersion | None) -> CurrentVersion | None:
    if version is None:
        return None
    return {
        "version": version.number,
        "schemaVersion": version.schema["schemaVersion"],
        "publishedAt": wire_time(version.published_at),
        "rowCount": version.row_count,
    }


@dataclass
class FakeSubscription:
    """A subscription with its whole log; events up to `pruned` are no longer shown."""

    id: str
    name: str
    places: list[str]
    topics: list[str]
    dataset_ids: list[str]
    created_at: datetime
    revision: int = 1
    updated_at: datetime | None = None
    events: list[Event] = field(default_factory=list)
    pruned: int = 0

    @property
    def newest(self) -> int:
        """Number of the newest event; 0 for an empty log."""
        return len(self.events)

    def wire(self) -> Subscription:
        """Give the subscription as the API shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "places": self.places,
            "topics": self.topics,
            "datasetIds": self.dataset_ids,
            "revision": self.revision,
            "createdAt": wire_time(self.created_at),
            "updatedAt": wire_time(self.updated_at or self.created_at),
        }

    def members(self, as_of: int | None = None) -> dict[str, int | None]:
        """Give the datasets delivered as of an event and the version of each, read from the log."""
        held: dict[str, int | None] = {}
        for event in self.events:
            if as_of is not None and (event_number(event["id"]) or 0) > as_of:
                break
            if event["type"] == REMOVED:
                held.pop(event["data"]["datasetId"], None)
            elif event["type"] in {ADDED, UPDATED, RESYNC_REQUIRED}:
                held[event["data"]["datasetId"]] = event["data"]["version"]
        return held

    def wants(self, dataset: FakeDataset) -> bool:
        """Tell whether its places, topics and datasets include a dataset."""
        return bool(self.matched_by(dataset))

    def matched_by(self, dataset: FakeDataset) -> list[Literal["places", "datasets"]]:
        """Tell what names a dataset that can be delivered."""
        if not (dataset.covered and dataset.deliverable):
            return []
        by: list[Literal["places", "datasets"]] = []
        if dataset.place["id"] in self.places and (not self.topics or dataset.topic in self.topics):
            by.append("places")
        return [*by, "datasets"] if dataset.id in self.dataset_ids else by


@dataclass(frozen=True)
class FakeKey:
    """An API key and what it may do."""

    permissions: frozenset[str] = frozenset({"feeds", "webhooks"})
    admin: bool = True


@dataclass
class FakeState:
    """Everything that the fake API answers from."""

    base_url: str
    keys: dict[str, FakeKey]
    places: dict[str, Place] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    datasets: dict[str, FakeDataset] = field(default_factory=dict)
    subscriptions: dict[str, FakeSubscription] = field(default_factory=dict)
    replays: dict[str, tuple[bytes, Subscription]] = field(default_factory=dict)

    def delivered(self, dataset_id: str) -> bool:
        """Tell whether any subscription delivers a dataset."""
        return any(dataset_id in subscription.members() for subscription in self.subscriptions.values())
