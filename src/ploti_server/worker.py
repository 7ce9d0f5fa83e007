"""Picks the next due check by stored status and builds it, under a lease (architecture: waiting is a status)."""

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from ploti_server.domain.checks import Check, CheckStatus, waits_for_agent
from ploti_server.pipeline.build import build
from ploti_server.pipeline.check import drop_unfinished
from ploti_server.pipeline.deliver import deliver_due
from ploti_server.pipeline.membership import bring_all_up_to_date
from ploti_server.pipeline.notice import notice_stale
from ploti_server.pipeline.prune import prune
from ploti_server.pipeline.release import LeaseLost, queue_owed_rebuild
from ploti_server.pipeline.restore import restore_before_build, restore_current
from ploti_server.pipeline.schedule import came_due, queue_due
from ploti_server.pipeline.tell import queue_notice, tell_operator
from ploti_server.ports import Ports

LOG: Final = logging.getLogger(__name__)
TRIES: Final = 3
RETRY_AFTER: Final = timedelta(minutes=5)
LEASE: Final = timedelta(seconds=30)
BEAT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 1.0
AWAIT_SECONDS: Final = 0.2
UPKEEP: Final[tuple[tuple[timedelta, Callable[[Ports], object]], ...]] = (
    (timedelta(seconds=30), queue_due),
    (timedelta(seconds=10), tell_operator),
    (timedelta(minutes=1), notice_stale),
    (timedelta(minutes=3), bring_all_up_to_date),
    (timedelta(minutes=2), restore_current),
    (timedelta(days=1), prune),
)
"""What is looked after now and then, and how often; a membership left as it was is asked again (D7.3).

What comes due in between is queued at once.
"""


def new_owner() -> str:
    """Name a worker: host, process and a random part."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def work_one(ports: Ports, owner: str, check_id: int | None = None) -> Check | None:
    """Build the oldest due check, or the one named; None where there is none to do."""
    _free_dead_leases(ports)
    now = ports.clock.now()
    with ports.store.write() as records:
        check = records.checks.claim(owner, now, now + LEASE, check_id)
    if check is None:
        return None
    try:
        with _beating(ports, check, owner):
            restore_before_build(ports, check.dataset_id)
            return build(ports, check)
    except LeaseLost:
        raise
    except Exception as error:
        _put_back(ports, check, error)
        raise


def _put_back(ports: Ports, check: Check, error: Exception) -> None:
    """Let a check whose build broke down be tried again later, or fail it after its last try (D7.9)."""
    now = ports.clock.now()
    attempts = check.attempts + 1
    reason = f"the build broke down with {type(error).__name__}: {error}"
    tried = replace(check, attempts=attempts, reason=reason, lease_owner=None, lease_until=None)
    if attempts < TRIES:
        tried = replace(tried, status=CheckStatus.QUEUED, due_at=now + RETRY_AFTER * 2**check.attempts)
    else:
        reason = f"the build broke down {TRIES} times, at last with {type(error).__name__}: {error}"
        tried = replace(tried, status=CheckStatus.FAILED, outcome="failed", reason=reason, finished_at=now)
    with ports.store.write() as records:
        stored = records.checks.get(check.id)
        if stored is not None and stored.lease_owner == check.lease_owner:
            records.checks.put(tried)
            if tried.status is CheckStatus.FAILED:
                drop_unfinished(records, check)
                queue_owed_rebuild(records, check.dataset_id, now)
                queue_notice(ports, records, tried)


def work_through(ports: Ports, owner: str, check_id: int) -> Check:
    """Build one check, and first those of its dataset that stand before it, like one that a crash left open.

    Where another worker has one of them, its end is awaited. A check that waits for its agent is left to wait, and so
    are those behind it (D4.9). Raises `LookupError` for an unknown check.
    """
    while True:
        with ports.store.read() as records:
            check = records.checks.get(check_id)
            waiting = records.checks.open_of(check.dataset_id) if check else ()
        if check is None:
            raise LookupError(f"there is no check {check_id}")
        if check_id not in {open_.id for open_ in waiting} or waits_for_agent(waiting[0], ports.clock.now()):
            return check
        try:
            built = work_one(ports, owner, waiting[0].id)
        except LeaseLost:  # another worker has gone on with it, as after a machine's sleep
            built = None
        if built is not None and built.id == check_id:
            return built
        if built is None:
            threading.Event().wait(AWAIT_SECONDS)


def run(ports: Ports, stop: threading.Event) -> None:
    """Work until told to stop: check what is due, build what is queued, send to webhooks.

    What breaks down is logged, and tried again later.
    """
    owner = new_owner()
    upkeep = Upkeep()
    with _delivering(ports, stop, owner):
        while not stop.is_set():
            upkeep.look_after(ports)
            try:
                done = work_one(ports, owner)
            except Exception:
                LOG.exception("a build broke down")
                done = None
            if done is None:
                stop.wait(IDLE_SECONDS)


@dataclass
class Upkeep:
    """When each piece of upkeep was last begun; one that breaks down is logged and holds up nothing else."""

    pieces: tuple[tuple[timedelta, Callable[[Ports], object]], ...] = UPKEEP
    begun: dict[Callable[[Ports], object], datetime] = field(default_factory=dict)

    def look_after(self, ports: Ports) -> None:
        for every, act in self.pieces:
            now = ports.clock.now()
            last = self.begun.get(act)
            try:
                if last is not None and last <= now < last + every and not (act is queue_due and came_due(ports, last)):
                    continue
                self.begun[act] = now
                act(ports)
            except Exception:
                LOG.exception("%s broke down", act.__name__)


@contextmanager
def _delivering(ports: Ports, stop: threading.Event, owner: str) -> Iterator[None]:
    """Send events to webhooks beside the builds until told to stop; what is in the air then is awaited."""

    def deliver() -> None:
        while not stop.is_set():
            try:
                deliver_due(ports, owner, stop)
            except Exception:
                LOG.exception("sending to webhooks broke down")
            stop.wait(IDLE_SECONDS)

    thread = threading.Thread(target=deliver, name="webhooks", daemon=True)
    if ports.hooks is not None:
        thread.start()
    try:
        yield
    finally:
        if ports.hooks is not None:
            thread.join()


@contextmanager
def _beating(ports: Ports, check: Check, owner: str) -> Iterator[None]:
    """Prolong the lease while the work goes on."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(BEAT_SECONDS):
            with ports.store.write() as records:
                records.checks.beat(check.id, owner, ports.clock.now() + LEASE)

    thread = threading.Thread(target=beat, name=f"lease of check {check.id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _free_dead_leases(ports: Ports) -> None:
    """Let go of leases of processes of this machine that are gone, so that a crash costs no waiting."""
    with ports.store.read() as records:
        stuck = [check for check in records.checks.leased() if _owner_is_dead(check.lease_owner)]
    if stuck:
        with ports.store.write() as records:
            for check in stuck:
                records.checks.beat(check.id, check.lease_owner or "", ports.clock.now() - LEASE)


def _owner_is_dead(owner: str | None) -> bool:
    host, _, rest = (owner or "").partition(":")
    process = rest.partition(":")[0]
    if host != socket.gethostname() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
