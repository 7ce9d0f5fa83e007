"""A warmed-up process that forks one for each order, so that killing one costs no new interpreter.

The module of that process gives `main` what to run; a test orders by `with forging("tests.e2e.module") as ordered`.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

REPO = Path(__file__).parents[2]
TIMEOUT_SECONDS = 60.0


@contextmanager
def forging(module):
    """Start the process; gives a call that takes an order and gives the wait status, None where it ended well."""
    environment = os.environ | {"PYTHONPATH": f"{REPO / 'src'}{os.pathsep}{REPO}"}
    with subprocess.Popen(
        [sys.executable, "-m", module], cwd=REPO, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip

        def ordered(order):
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ordered
        process.stdin.close()
        assert process.wait(timeout=30) == 0


def main(run):
    """Read orders, one JSON a line, and run each in a process forked from this one; an error ends only that one."""
    for line in sys.stdin:
        order = json.loads(line)
        assert threading.active_count() == 1, "a fork is safe only from a process with one thread"
        child = os.fork()
        if child == 0:
            run(order)
            os._exit(0)
        print(json.dumps(_wait_for(child, order.get("seconds"))), flush=True)


def _wait_for(child, seconds):
    """Wait for a child, or kill it after so many seconds; gives its wait status, None where it ended well."""
    until = time.monotonic() + (TIMEOUT_SECONDS if seconds is None else seconds)
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status or None
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1] or None
