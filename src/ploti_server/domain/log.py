"""Reading a subscription's log from a cursor, and what a subscription held as of an event (page 003, D7.4, D7.5)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ploti.contract import events as wire
from ploti.contract.events import EVENT_TYPES, event_number
from ploti_server.domain.access import Refused
from ploti_server.domain.events import LoggedEvent, StoredBodies

_VERSION_EVENTS: Final = (wire.UPDATED, wire.RESYNC_REQUIRED)
HOLDING_EVENTS: Final = (wire.ADDED, wire.REMOVED, *_VERSION_EVENTS)
"""Types that say whether a subscription holds a dataset and at which version."""


@dataclass(frozen=True)
class LogEnds:
    """Numbers of the newest event ever (0: none) and of the oldest kept one (None: none is kept)."""

    newest: int
    oldest: int | None

    def keeps_all_after(self, number: int) -> bool:
        """Tell whether every event with a higher number is still there."""
        return number >= self.newest or (self.oldest is not None and self.oldest <= number + 1)


@dataclass(frozen=True)
class LogPage:
    """A page of a subscription's log as of one moment, with whose the log is."""

    workspace_id: str
    ends: LogEnds
    bodies: StoredBodies


def read_event_cursor(text: str, field: str = "cursor") -> int:
    """Read an event's number out of a cursor; raises `Refused` `invalid_input`."""
    number = event_number(text)
    if number is None:
        message = f"'{text[:40]}' is no event cursor: use a nextCursor or eventCursor as it was given."
        raise Refused("invalid_input", message, field)
    return number


def start_of(cursor: str | None, ends: LogEnds) -> int:
    """Give the number after which to read; raises `Refused` for a cursor that was never given or has aged out."""
    number = 0 if cursor is None else read_event_cursor(cursor)
    if number > ends.newest:
        message = "This cursor is past the subscription's newest event: use one that this subscription gave."
        raise Refused("invalid_input", message, "cursor")
    if not ends.keeps_all_after(number):
        message = "Events after this cursor have aged out: load the subscription's manifest and read on from it."
        raise Refused("expired", message, "cursor")
    return number


def as_of_number(text: str, ends: LogEnds) -> int:
    """Read the event that a manifest is asked for as of; raises `Refused` where the log cannot tell any more (D7.4).

    Once event 1 was pruned, no event can be gone back to.
    """
    number = read_event_cursor(text, "asOf")
    if number > ends.newest:
        message = "This asOf is past the subscription's newest event: use an eventCursor that its manifest gave."
        raise Refused("invalid_input", message, "asOf")
    if ends.newest > 0 and ends.oldest != 1:
        raise expired_as_of("The subscription's first events have aged out, so that no asOf can be answered any more")
    return number


def expired_as_of(why: str) -> Refused:
    """Refuse to go back to an event."""
    return Refused("expired", f"{why}: ask for the manifest without asOf.", "asOf")


def held_as_of(last: Iterable[LoggedEvent]) -> dict[str, int | None]:
    """Give what was held and at which version (None: none yet), from each dataset's last event of `HOLDING_EVENTS`."""
    return {event.dataset_id: event.data["version"] for event in last if event.type != wire.REMOVED}


def read_types(text: str | None) -> tuple[str, ...] | None:
    """Read a comma-separated list of event types; raises `Refused` `invalid_input` for an unknown one."""
    if text is None:
        return None
    types = tuple(dict.fromkeys(text.split(",")))
    for one in types:
        if one not in EVENT_TYPES:
            message = f"'{one[:60]}' is no event type: use {', '.join(EVENT_TYPES)}, joined by commas."
            raise Refused("invalid_input", message, "types")
    return types


@dataclass(frozen=True)
class Later:
    """What happened to a dataset after an event: whether it was held then, and the first version sent since."""

    was_held: bool
    first_version: int | None


def later_events(events: Iterable[LoggedEvent]) -> dict[str, Later]:
    """Look back from now over the events that follow one: what each dataset that moved was at that time."""
    found: dict[str, Later] = {}
    for event in events:
        first = event.type in _VERSION_EVENTS
        known = found.get(event.dataset_id)
        if known is None:
            found[event.dataset_id] = Later(event.type != wire.ADDED, event.data["version"] if first else None)
        elif first and known.first_version is None:
            found[event.dataset_id] = Later(known.was_held, event.data["version"])
    return found
