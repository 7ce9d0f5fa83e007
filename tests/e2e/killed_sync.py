"""Syncs that can be killed: `python -m tests.e2e.killed_sync` takes orders (`tests/e2e/forge.py`).

An order names `database` or the address of a `target`, `url`, `key`, `subscription` and a `trace` file that the sync
writes what it reaches to, one a line. `step` and `hit` kill it at a named step, `seconds` after so long; `linger` is
how long it stays at each step inside a transaction. One that gives up, is behind, or finds another sync there ends
with 1.
"""

import os
import signal
import time

import duckdb
from tests.e2e import forge

from ploti import Client, PlotiError, Retries
from ploti.sync.loop import sync
from ploti.sync.target import Progress
from ploti.sync.targets import duckdb as duckdb_target
from ploti.sync.targets import open_target

LINGERING = frozenset({"sync.rows_written", "sync.before_commit"})
WARM = (duckdb, duckdb_target)


def inside(trace):
    """Where a sync was when its trace ended: `download`, `transaction`, or None."""
    for line in reversed(trace):
        match line:
            case "began":
                return "download"
            case "sync.opened" | "sync.rows_written" | "sync.before_commit":
                return "transaction"
            case "sync.after_commit" | "ended" | "sync.manifest_read" | "sync.events_read" | "sync.cursor_stored":
                return None
    return None


class Traced(Progress):
    """Notes the start and end of each dataset's step."""

    def __init__(self, note):
        self.note = note

    def began(self, dataset_id, doing, total_bytes):
        self.note("began")

    def ended(self):
        self.note("ended")


def run(order):
    """Sync as ordered; ends the process."""
    file = os.open(order["trace"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    reached = []

    def note(name):
        os.write(file, f"{name}\n".encode())

    def reach(name):
        reached.append(name)
        note(name)
        if name == order.get("step") and reached.count(name) == order["hit"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if name in LINGERING:
            time.sleep(order.get("linger", 0.0))

    retries = Retries(first_wait=order.get("first_wait", Retries.first_wait))
    try:
        with Client(order["key"], order["url"], retries=retries) as client:
            target = open_target(order.get("target") or f"duckdb:///{order['database']}", reach=reach)
            progress = Traced(note)
            report = sync(client, order["subscription"], target, on_major="apply", progress=progress, reach=reach)
    except PlotiError as error:
        note(f"gave_up {type(error).__name__}")
        os._exit(1)
    os._exit(1 if report.behind else 0)


if __name__ == "__main__":
    Client("ploti_" + "k" * 32, "http://127.0.0.1:9").close()  # loads what a client needs
    forge.main(run)
