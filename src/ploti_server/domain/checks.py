"""Checks: one scheduled look at a source, and where its work stands."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from ploti_server.domain.datasets import CheckOutcome
from ploti_server.domain.replacements import Replacement

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


class CheckKind(StrEnum):
    """`look` brought a state; the others build a state again that lies here already.

    `replace_ids` and `release_again` are staff's acts and find out which state when their build begins; `resume` takes
    the state of a version that was held when staff acted, so that versions are sent in order (D5.2).
    """

    LOOK = "look"
    REPLACE_IDS = "replace_ids"
    RELEASE_AGAIN = "release_again"
    RESUME = "resume"


STAFF_ACTS: Final = (CheckKind.REPLACE_IDS, CheckKind.RELEASE_AGAIN)


@dataclass(frozen=True)
class Check:
    """One look at a source, or an act of staff; its raw state lies under the state's checksum.

    `again` is the version that is released again; `replacement` says which ids the version replaces.
    """

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
    kind: CheckKind = CheckKind.LOOK
    again: int | None = None
    replacement: Replacement | None = None


@dataclass(frozen=True)
class Refresh:
    """When a dataset's source was last read whole, and when it is due (D7.8). `stale_for` is the due time that a
    `feed.dataset.stale` was sent for."""

    last_checked_at: datetime | None = None
    next_check_by: datetime | None = None
    stale_for: datetime | None = None


def waits_for_agent(check: Check, now: datetime) -> bool:
    """Tell whether a check's build goes on later only, when its agent has answered or its ask has ended (D4.9)."""
    return check.status is CheckStatus.WAITING and check.due_at is not None and check.due_at > now


def newly_stale(refresh: Refresh, now: datetime) -> bool:
    """Tell whether a source has become a day overdue without having been reported for this due time (D7.8)."""
    due = refresh.next_check_by
    return due is not None and now >= due + STALE_AFTER and refresh.stale_for != due
