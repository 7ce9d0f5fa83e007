"""Sync without end: a run, then waiting at the log for the next event, then the next run (D11.1)."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from ploti._client import Client
from ploti._resources import WISHED_SECONDS_MOST
from ploti.contract.events import WAIT_SECONDS_MOST
from ploti.errors import FixRequest, Reload, RetryLater
from ploti.sync.loop import SyncReport
from ploti.sync.target import TargetAway, TargetBusy

_POLL_SECONDS: Final = 10.0
_PAUSE_MOST: Final = 60.0
_BEHIND_SECONDS: Final = 120.0
"""How long something may be behind before it is tried again, where no event comes."""


def follow(
    client: Client,
    subscription_id: str,
    run: Callable[[], SyncReport],
    *,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[SyncReport]:
    """Run sync now and whenever the log goes on, and give each run's report, without end.

    An API that is away, a target that others use and one that is away after it was reached are waited for, and `say` is
    told. What waiting does not mend is raised: PlotiError, and SyncError for a target that cannot be used. `sleep` and
    `clock` are in seconds.
    """
    pause, reached = _POLL_SECONDS, False
    waiting = _Waiting(client, subscription_id, sleep, clock)
    while True:
        try:
            report = run()
            pause, reached = _POLL_SECONDS, True
            yield report
            waiting.for_more(report.cursor, _BEHIND_SECONDS if report.behind else None)
        except (RetryLater, TargetBusy, TargetAway) as problem:
            if isinstance(problem, TargetAway) and not reached:
                raise
            say(f"waiting: {problem.message}")
            sleep(min(max(getattr(problem, "retry_after", None) or 0.0, pause), WISHED_SECONDS_MOST))
            pause = min(2 * pause, _PAUSE_MOST)


class _Waiting:
    """Waits at the log; where the server cannot, by asking every few seconds."""

    def __init__(
        self, client: Client, subscription_id: str, sleep: Callable[[float], None], clock: Callable[[], float]
    ) -> None:
        self._events, self._subscription_id = client.feeds.subscriptions.events, subscription_id
        self._sleep, self._clock = sleep, clock
        self._wait: int | None = WAIT_SECONDS_MOST

    def for_more(self, cursor: str, seconds: float | None) -> None:
        """Come back once the log has an event after a cursor, or after some seconds where given."""
        began = self._clock()
        while seconds is None or self._clock() - began < seconds:
            asked = self._clock()
            try:
                page = self._events(self._subscription_id, cursor=cursor, limit=1, wait=self._wait)
            except Reload:
                return
            except FixRequest as problem:
                if problem.field == "cursor":
                    return
                if self._wait is None or problem.field != "wait":
                    raise
                self._wait = None
                continue
            if page["nextCursor"] != cursor:
                return
            if self._clock() - asked < 1:
                self._sleep(_POLL_SECONDS)
