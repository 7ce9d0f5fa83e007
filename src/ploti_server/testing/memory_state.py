"""What a store in memory holds, and how it keeps values as a database would."""

from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from ploti_server.domain.asks import Ask
from ploti_server.domain.checks import Check, Refresh
from ploti_server.domain.datasets import Dataset, Topic
from ploti_server.domain.deliveries import Delivery
from ploti_server.domain.events import LoggedEvent
from ploti_server.domain.idempotency import Remembered
from ploti_server.domain.notices import Notice
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.versions import Version
from ploti_server.domain.webhooks import Webhook
from ploti_server.domain.workspaces import ApiKey, Member, Workspace

T = TypeVar("T")


@dataclass
class State:
    """Everything that a `MemoryStore` holds. A committed state never changes; a transaction works on a copy."""

    topics: list[Topic] = field(default_factory=list)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    refreshes: dict[str, Refresh] = field(default_factory=dict)
    checks: dict[int, Check] = field(default_factory=dict)
    asks: dict[int, Ask] = field(default_factory=dict)
    versions: dict[tuple[str, int], Version] = field(default_factory=dict)
    workspaces: dict[str, Workspace] = field(default_factory=dict)
    members: dict[tuple[str, str], Member] = field(default_factory=dict)
    keys: dict[str, ApiKey] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    joined: dict[str, frozenset[str]] = field(default_factory=dict)
    events: dict[str, tuple[LoggedEvent, ...]] = field(default_factory=dict)
    webhooks: dict[str, Webhook] = field(default_factory=dict)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    remembered: dict[tuple[str, str, str], Remembered] = field(default_factory=dict)
    notices: dict[int, Notice] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    locked_elsewhere: frozenset[str] = frozenset()
    writable: bool = False

    def copy(self) -> "State":
        """Give a copy to write in."""
        copied = {f.name: getattr(self, f.name) for f in fields(self)}
        copied = {name: value.copy() if isinstance(value, (list, dict)) else value for name, value in copied.items()}
        return State(**copied | {"writable": True})

    def changing(self) -> "State":
        """Give itself where it may be changed; raises `RuntimeError` in a transaction opened for reading."""
        if not self.writable:
            raise RuntimeError("this transaction was opened for reading; open it with store.write() to change or lock")
        return self


def kept(value: T) -> T:
    """Give a value as a database gives it back: JSON inside `Any`, moments aware and in UTC."""
    moments = {name: moment for name, moment in vars(value).items() if isinstance(moment, datetime)}
    for moment in moments.values():
        if moment.tzinfo is None:
            raise ValueError(f"{moment.isoformat()} has no time zone")
    in_utc: Any = replace(value, **{name: moment.astimezone(UTC) for name, moment in moments.items()})  # type: ignore[type-var]
    return msgspec.json.decode(msgspec.json.encode(in_utc), type=type(value))


def known(ids: dict[str, Any], name: str, what: str) -> None:
    """Raise `LookupError` for an id that is not there."""
    if name not in ids:
        raise LookupError(f"there is no {what} {name}")
