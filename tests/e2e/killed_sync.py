"""Syncs that can be killed: `python -m tests.e2e.killed_sync` takes one JSON order a line and answers with one.

Every order is a sync in a process of its own, forked from this one, which has all modules loaded, no other thread and
no database open. An order names `database`, `url`, `key`, `subscription` and a `trace` file that the sync writes what
it reaches to, one a line. `step` and `hit` kill it at a named step, `seconds` after so long; `linger` is how long it
stays at each step inside a transaction. The answer is the wait status, or null where it ended by itself as it should.
"""

import json
import os
import signal
import sys
import threading
import time

import duckdb

from ploti import Client, PlotiError
from ploti.sync.loop import sync
from ploti.sync.target import Progress
from ploti.sync.targets import duckdb as duckdb_target
from ploti.sync.targets import open_target

LINGERING = frozenset({"sync.rows_written", "sync.before_commit"})
WARM = (duckdb, duckdb_target)
TIMEOUT_SECONDS = 60.0


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

    with Client(order["key"], order["url"]) as client:
        target = open_target(f"duckdb:///{order['database']}", reach=reach)
        report = sync(client, order["subscription"], target, on_major="apply", progress=Traced(note), reach=reach)
    os._exit(1 if report.behind else 0)


def wait_for(child, seconds):
    """Wait for a child, or kill it after so many seconds; gives its wait status, None where it ended well."""
    until = time.monotonic() + (TIMEOUT_SECONDS if seconds is None else seconds)
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status or None
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1] or None


def main():
    for line in sys.stdin:
        order = json.loads(line)
        assert threading.active_count() == 1, "a fork is safe only from a process with one thread"
        child = os.fork()
        if child == 0:
            try:
                run(order)
            except (PlotiError, OSError, duckdb.Error) as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(1)
        print(json.dumps(wait_for(child, order.get("seconds"))), flush=True)


if __name__ == "__main__":
    main()
