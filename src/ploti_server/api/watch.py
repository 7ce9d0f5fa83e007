"""Looks at the logs of all requests that wait for events at once: one query a moment, however many wait."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final

from starlette.concurrency import run_in_threadpool

from ploti_server.ports import Store

LOG: Final = logging.getLogger(__name__)
LOOK_SECONDS: Final = 0.25


class Watch:
    """Wakes waiting requests of one process; they hold neither a thread nor a connection. Used on the event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[tuple[int, asyncio.Future[None]]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self.is_stopped = False

    async def newer(self, subscription_id: str, number: int, seconds: float) -> None:
        """Wait until a log has an event after `number` or is gone, for some seconds at most or until `stop`."""
        if self.is_stopped or seconds <= 0:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (number, woken)
        self._waiting.setdefault(subscription_id, []).append(place)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            await asyncio.wait([woken], timeout=seconds)
        finally:
            self._waiting[subscription_id].remove(place)
            if not self._waiting[subscription_id]:
                del self._waiting[subscription_id]

    def stop(self) -> None:
        """Wake all who wait, so that they answer with what there is; nobody waits any more."""
        self.is_stopped = True
        self._wake({}, tuple(self._waiting))

    async def _look(self) -> None:
        """Look while anyone waits; where the store does not answer, those who wait are told by their own next look."""
        while self._waiting:
            await asyncio.sleep(LOOK_SECONDS)
            looked = tuple(self._waiting)
            try:
                self._wake(await run_in_threadpool(self._newest, looked), looked)
            except Exception:  # whatever the store's trouble, looking goes on
                LOG.exception("the logs that are waited for cannot be read")
                self._wake({}, looked)

    def _newest(self, subscription_ids: Collection[str]) -> Mapping[str, int]:
        with self._store.read() as records:
            return records.events.newest_of(subscription_ids)

    def _wake(self, newest: Mapping[str, int], looked: Collection[str]) -> None:
        """Wake whoever waits for one of the logs that has moved, or of which nothing is known."""
        for subscription_id in looked:
            for number, woken in self._waiting.get(subscription_id, ()):
                if newest.get(subscription_id, number + 1) > number and not woken.done():
                    woken.set_result(None)
