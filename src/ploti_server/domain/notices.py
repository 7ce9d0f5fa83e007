"""Notices to the operator: a version is held, a check failed, or a version waits for its matching agent."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from ploti_server.domain.checks import Check
from ploti_server.domain.wire import wire_time

NoticeKind = Literal["held", "failed", "waiting"]

TRIES: Final = 7
"""How often a notice is sent before it is given up, which takes a day."""

FIRST_AGAIN: Final = timedelta(minutes=1)
SENT_WITHIN: Final = timedelta(minutes=5)
"""How long a process may take to send what it claimed; then another one sends it too."""


@dataclass(frozen=True)
class Notify:
    """Where notices go: a command that gets each as JSON on its input, an address that gets it as a POST, or both."""

    command: str | None = None
    url: str | None = None


@dataclass(frozen=True)
class Notice:
    """Word to the operator that waits to be sent; `told` is its JSON."""

    id: int
    due_at: datetime
    told: dict[str, Any] = field(default_factory=dict)
    tries: int = 0


def notice_of(check: Check, before: Check | None, asked_before: int, now: datetime) -> Notice | None:
    """Give the notice that a check is worth, None where it is worth none.

    `before` is the dataset's check before it: a failure after a failure tells nothing new. `asked_before` counts the
    asks that were told already.
    """
    kind = _kind(check, before, asked_before)
    if kind is None:
        return None
    text, see = _TEXTS[kind], _SEES[kind].format(check.dataset_id)
    told = {
        "kind": kind,
        "dataset": check.dataset_id,
        "version": check.version,
        "reason": check.reason,
        "at": wire_time(now),
        "text": f"{check.dataset_id}: {text.format(check.version, check.reason or 'no answer yet')}; see `{see}`",
        "see": see,
    }
    return Notice(0, now, told)


def _kind(check: Check, before: Check | None, asked_before: int) -> NoticeKind | None:
    match check.outcome:
        case "held":
            return "held"
        case "failed":
            return None if before is not None and before.outcome == "failed" else "failed"
        case "waiting":
            return "waiting" if check.facts.get("asks", 0) > asked_before else None
        case _:
            return None


_TEXTS: Final[dict[NoticeKind, str]] = {
    "held": "version {0} is held ({1})",
    "failed": "the check failed: {1}",
    "waiting": "version {0} waits for its matching agent ({1})",
}
_SEES: Final[dict[NoticeKind, str]] = {
    "held": "ploti-server holds show {0}",
    "failed": "ploti-server status",
    "waiting": "ploti-server judge show {0}",
}


def again_at(notice: Notice, now: datetime) -> datetime | None:
    """Tell when a notice that could not be sent is tried again; None after the last try."""
    return None if notice.tries + 1 >= TRIES else now + FIRST_AGAIN * 4**notice.tries
