"""Checks: one scheduled look at a source, and where its work stands."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from ploti_server.domain.datasets import CheckOutcome

STALE_AFTER: Final = timedelta(hours=24)
"""How long after its due check a source is stale."""


class CheckStatus(StrEnum):
    """`queued` waits for a worker, `building` is leased, `waiting` for the agent, the others have ended."""

    QUEUED = "queued"
    BUILDING = "building"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    REPLACED = "replaced"


@dataclass(frozen=True)
class Check:
    """One look at a source; its raw state lies under the state's checksum."""

    id: int
    dataset_id: str
    status: CheckStatus
    fetched_at: datetime
    created_at: datetime
    state_sha256: str | None = None
    file_name: str | None = None
    source_url: str | None = None
    outcome: CheckOutcome | None = None
    version: int | None = None
    reason: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    finished_at: datetime | None = None
    attempts: int = 0
    due_at: datetime | None = None
    lease_owner: str | None = None
    lease_until: datetime | None = None


@dataclass(frozen=True)
class Refresh:
    """When a dataset's source was last read whole, and when it is due (D7.8). `stale_for` is the due time that a
    `feed.dataset.stale` was sent for."""

    last_checked_at: datetime | None = None
    next_check_by: datetime | None = None
    stale_for: datetime | None = None


def newly_stale(refresh: Refresh, now: datetime) -> bool:
    """Tell whether a source has become a day overdue without having been reported for this due time (D7.8)."""
    due = refresh.next_check_by
    return due is not None and now >= due + STALE_AFTER and refresh.stale_for != due
