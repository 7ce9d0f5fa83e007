"""Events before they are numbered, as the log keeps them, and one builder for each type (page 003)."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from ploti.contract import events as wire
from ploti.contract.events import EventType, RemovedReason
from ploti_server.domain.versions import Version
from ploti_server.domain.wire import wire_counts, wire_schema_change, wire_time


@dataclass(frozen=True)
class NewEvent:
    """An event to append. `data` has wire names; `links` in it hold paths, rendered with the public address when read
    (D7.7)."""

    type: EventType
    dataset_id: str
    data: dict[str, Any]


@dataclass(frozen=True)
class LoggedEvent:
    """An event of a subscription's log."""

    subscription_id: str
    number: int
    type: EventType
    dataset_id: str
    timestamp: datetime
    data: dict[str, Any]


@dataclass(frozen=True)
class StoredBodies:
    """Bodies of a log's consecutive events as they are stored, joined by commas; `last` is the last one's number."""

    text: str
    count: int
    last: int


_BASE: Final = "\x01"
"""Stands for the public address in a stored body. No JSON has this character by itself, so it is found for sure."""


def wire_event(event: LoggedEvent, base: str) -> wire.Event:
    """Write an event as the log and webhooks give it; paths in its links become addresses under `base` (D7.7)."""
    return _wire_event(event, lambda path: base + path)


def _wire_event(event: LoggedEvent, linked: Callable[[str], Any]) -> wire.Event:
    data = dict(event.data)
    if "links" in data:
        data["links"] = {name: linked(path) for name, path in data["links"].items()}
    return {
        "id": wire.event_id(event.number),
        "type": event.type,
        "timestamp": wire_time(event.timestamp),
        "subscriptionId": event.subscription_id,
        "data": data,
    }


def stored_body(event: LoggedEvent) -> str:
    """Write an event as it is stored: its JSON, with a mark before each path that a reader's address goes before."""

    def marked(path: str) -> msgspec.Raw:
        return msgspec.Raw(b'"' + _BASE.encode() + msgspec.json.encode(path)[1:])

    return msgspec.json.encode(_wire_event(event, marked)).decode()


def data_of(body: str) -> dict[str, Any]:
    """Read an event's data back from its stored body, its links as paths."""
    data: dict[str, Any] = msgspec.json.decode(body.replace(_BASE, ""))["data"]
    return data


def sent_body(stored: str, base: str) -> bytes:
    """Write stored bodies as they are sent, with addresses under `base`."""
    return stored.replace(_BASE, msgspec.json.encode(base)[1:-1].decode()).encode()


def _links(version: Version) -> dict[str, str]:
    base = f"/v1/feeds/datasets/{version.dataset_id}"
    return {"version": f"{base}/versions/{version.number}", "schema": f"{base}/schema?version={version.number}"}


def added(dataset_id: str, current: Version | None) -> NewEvent:
    """A dataset joins a subscription; `current` is its released version, None where there is none."""
    data: dict[str, Any] = {"datasetId": dataset_id, "version": None, "schemaVersion": None}
    if current is not None:
        data |= {"version": current.number, "schemaVersion": current.schema_version, "links": _links(current)}
    return NewEvent(wire.ADDED, dataset_id, data)


def removed(dataset_id: str, reason: RemovedReason) -> NewEvent:
    """A dataset leaves a subscription."""
    return NewEvent(wire.REMOVED, dataset_id, {"datasetId": dataset_id, "reason": reason})


def stale(dataset_id: str, last_checked_at: datetime | None) -> NewEvent:
    """A source is a day past its due check (D7.8)."""
    last = last_checked_at and wire_time(last_checked_at)
    return NewEvent(wire.STALE, dataset_id, {"datasetId": dataset_id, "reason": "check_overdue", "lastCheckedAt": last})


def delayed(held: Version, current: Version | None) -> NewEvent:
    """A version is held; `current` stays meanwhile, null where nothing was released yet (D7.6)."""
    if held.built_at is None or not held.reasons:
        raise ValueError(f"version {held.number} of {held.dataset_id} is not held")
    return NewEvent(
        wire.DELAYED,
        held.dataset_id,
        {
            "datasetId": held.dataset_id,
            "version": current and current.number,
            "reason": held.reasons[0],
            "since": wire_time(held.built_at),
        },
    )


def released(version: Version) -> tuple[NewEvent, ...]:
    """What a release sends: `schema_changed` first where the schema changed, then one event to load or apply (D1.3)."""
    dataset_id = version.dataset_id
    named = {"datasetId": dataset_id, "version": version.number, "schemaVersion": version.schema_version}
    sent: list[NewEvent] = []
    if version.schema_change is not None:
        change = wire_schema_change(version.schema_change)
        sent.append(NewEvent(wire.SCHEMA_CHANGED, dataset_id, named | {"schemaChange": change}))
    if version.resync_reason is not None:
        data = named | {"reason": version.resync_reason, "links": _links(version)}
        sent.append(NewEvent(wire.RESYNC_REQUIRED, dataset_id, data))
    else:
        if version.counts is None or version.previous_version is None:
            raise ValueError(f"version {version.number} of {dataset_id} has no changes to apply")
        data = {
            "datasetId": dataset_id,
            "version": version.number,
            "previousVersion": version.previous_version,
            "schemaVersion": version.schema_version,
            "counts": wire_counts(version.counts),
            "links": _links(version),
        }
        sent.append(NewEvent(wire.UPDATED, dataset_id, data))
    return tuple(sent)
