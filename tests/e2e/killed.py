"""A publisher that can be killed: `python -m tests.e2e.killed` takes orders (`tests/e2e/forge.py`).

An order names `home`, `verb`, for some `dataset` and `file` of a state, and `trace`, a file for the steps that it
reached or the reason why it was refused. `step` and `hit` kill it with SIGKILL at that arrival at a named step.
"""

import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow.parquet
from tests.e2e import forge

from ploti_server.app import build_ports
from ploti_server.domain.settings import Settings
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.prune import prune
from ploti_server.pipeline.release import ReleaseRefused, release_held
from ploti_server.worker import new_owner, work_through

DAY = datetime(2024, 1, 1, tzinfo=UTC)
WARM = (duckdb, pyarrow.parquet)


def run(order):
    """Check a state, release a held version or prune, as ordered."""
    reached = []

    def reach(name):
        reached.append(name)
        if name == order.get("step") and reached.count(name) == order["hit"]:
            os.kill(os.getpid(), signal.SIGKILL)

    ports = build_ports(Settings.of(home=Path(order["home"])), reach=reach)
    try:
        if order["verb"] == "check":
            check = take_state(ports, order["dataset"], GivenState(Path(order["file"]), DAY))
            work_through(ports, new_owner(), check.id)
        elif order["verb"] == "release":
            release_held(ports, order["dataset"])
        else:
            prune(ports)
        told = "\n".join(reached)
    except ReleaseRefused as refused:
        told = str(refused)
    Path(order["trace"]).write_text(told)


if __name__ == "__main__":
    forge.main(run)
