"""Feed events: types, reasons, the shape of each type's `data`, and event ids (page 003, D1.1)."""

import re
from typing import Any, Final, Literal, NotRequired

from ploti.contract._typed import TypedDict
from ploti.contract.resources import Counts, SchemaChange

EventType = Literal[
    "feed.dataset.added",
    "feed.dataset.updated",
    "feed.dataset.schema_changed",
    "feed.dataset.resync_required",
    "feed.dataset.removed",
    "feed.dataset.stale",
    "feed.dataset.delayed",
]
ADDED: Final = "feed.dataset.added"
UPDATED: Final = "feed.dataset.updated"
SCHEMA_CHANGED: Final = "feed.dataset.schema_changed"
RESYNC_REQUIRED: Final = "feed.dataset.resync_required"
REMOVED: Final = "feed.dataset.removed"
STALE: Final = "feed.dataset.stale"
DELAYED: Final = "feed.dataset.delayed"
EVENT_TYPES: Final[tuple[EventType, ...]] = (ADDED, UPDATED, SCHEMA_CHANGED, RESYNC_REQUIRED, REMOVED, STALE, DELAYED)

ResyncReason = Literal[
    "record_ids_changed", "first_version", "previous_unavailable", "key_columns_changed", "schema_changed"
]
RESYNC_REASONS: Final[tuple[ResyncReason, ...]] = (
    "record_ids_changed",
    "first_version",
    "previous_unavailable",
    "key_columns_changed",
    "schema_changed",
)
"""In order of precedence: the first that applies is the reason."""

RemovedReason = Literal["no_longer_deliverable", "subscription_changed", "left_coverage", "plan_changed"]
REMOVED_REASONS: Final[tuple[RemovedReason, ...]] = (
    "no_longer_deliverable",
    "subscription_changed",
    "left_coverage",
    "plan_changed",
)
"""In order of precedence (D7.3)."""

HoldReason = Literal["schema_review", "data_check", "processing"]
HOLD_REASONS: Final[tuple[HoldReason, ...]] = ("schema_review", "data_check", "processing")
"""In order of precedence (D6.2)."""

EVENTS_PER_PAGE: Final = 100
EVENTS_PER_PAGE_MOST: Final = 500
EVENT_DAYS: Final = 90
WAIT_SECONDS_MOST: Final = 30
"""How long reading the log may wait for a next event."""

_EVENT_ID = re.compile(r"evt_([0-9]{12})")


def event_id(number: int) -> str:
    """Give the id, and cursor, of a subscription's event number; 0 stands before the first."""
    return f"evt_{number:012d}"


def event_number(text: str) -> int | None:
    """Read an event id or cursor; None where it is malformed."""
    found = _EVENT_ID.fullmatch(text)
    return int(found[1]) if found else None


class EventLinks(TypedDict):
    """API addresses of the version that an event names; to be called with the API key."""

    version: str
    schema: str


class AddedData(TypedDict):
    """A dataset joins; `version` is null while nothing was released yet."""

    datasetId: str
    version: int | None
    schemaVersion: str | None
    links: NotRequired[EventLinks]


class UpdatedData(TypedDict):
    """A version to apply as changes."""

    datasetId: str
    version: int
    previousVersion: int
    schemaVersion: str
    counts: Counts
    links: EventLinks


class SchemaChangedData(TypedDict):
    """A version changes the schema; sent before that version's own event."""

    datasetId: str
    version: int
    schemaVersion: str
    schemaChange: SchemaChange


class ResyncData(TypedDict):
    """A version to load from its snapshot."""

    datasetId: str
    version: int
    schemaVersion: str
    reason: ResyncReason
    links: EventLinks


class RemovedData(TypedDict):
    """A dataset leaves."""

    datasetId: str
    reason: RemovedReason


class StaleData(TypedDict):
    """A source is a day past its due check."""

    datasetId: str
    reason: Literal["check_overdue"]
    lastCheckedAt: str | None


class DelayedData(TypedDict):
    """The next version is held; `version` is the one that stays current, null where none is."""

    datasetId: str
    version: int | None
    reason: HoldReason
    since: str


EventData = AddedData | UpdatedData | SchemaChangedData | ResyncData | RemovedData | StaleData | DelayedData


class Event(TypedDict):
    """One message of a subscription's log."""

    id: str
    type: EventType
    timestamp: str
    subscriptionId: str
    data: dict[str, Any]


class EventPage(TypedDict):
    """Events after a cursor; store `nextCursor` only after applying them."""

    events: list[Event]
    nextCursor: str
