"""How many calls a key may make, in windows of a minute that begin with its first call (D8.5)."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Final

WINDOW: Final = timedelta(minutes=1)
EVERY_CALL: Final = "calls"
STRICT: Final = "strict"


@dataclass(frozen=True)
class Limit:
    """At most so many calls a window; `name` is what the headers and the counter call it."""

    name: str
    most: int


@dataclass(frozen=True)
class Counted:
    """Calls of one key in the window that is open, this one too, and when the window ends."""

    name: str
    calls: int
    ends: datetime


@dataclass(frozen=True)
class Allowance:
    """What is left of each limit that applies to a call; both sequences are in the same order."""

    limits: tuple[Limit, ...]
    counted: tuple[Counted, ...]

    @property
    def exceeded(self) -> tuple[Counted, ...]:
        """The counters that this call went beyond."""
        return tuple(c for limit, c in zip(self.limits, self.counted, strict=True) if c.calls > limit.most)

    def headers(self, now: datetime) -> dict[str, str]:
        """Write `RateLimit-Policy` and `RateLimit`, and `Retry-After` for a call beyond a limit; whole seconds."""
        left = (
            f'"{limit.name}";r={max(limit.most - counted.calls, 0)};t={_seconds(counted.ends, now)}'
            for limit, counted in zip(self.limits, self.counted, strict=True)
        )
        sent = {"RateLimit-Policy": _policy(self.limits), "RateLimit": ", ".join(left)}
        if self.exceeded:
            sent["Retry-After"] = str(max(_seconds(one.ends, now) for one in self.exceeded))
        return sent


@cache
def _policy(limits: tuple[Limit, ...]) -> str:
    return ", ".join(f'"{limit.name}";q={limit.most};w={WINDOW // timedelta(seconds=1)}' for limit in limits)


def allowance_of(limits: Sequence[Limit], counted: Iterable[Counted]) -> Allowance:
    """Put limits and what was counted for them together."""
    by_name = {one.name: one for one in counted}
    return Allowance(tuple(limits), tuple(by_name[limit.name] for limit in limits))


def _seconds(ends: datetime, now: datetime) -> int:
    return max(1, math.ceil((ends - now).total_seconds()))
