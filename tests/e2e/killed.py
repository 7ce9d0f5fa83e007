"""A publisher that can be killed: `python -m tests.e2e.killed` takes orders (`tests/e2e/forge.py`).

An order names `home`, `verb`, for some `dataset` and `file` of a state, and `trace`, a file for the steps that it
reached or the reason why it was refused. `step` and `hit` kill it with SIGKILL at that arrival at a named step.
With `hours` the clock stands so many hours after `DAY`; with `agent` one is asked that is `silent` or finds all pairs
the `same`.
"""

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow.parquet
from tests.e2e import forge

from ploti_server.app import build_ports
from ploti_server.domain.replacements import Replacement
from ploti_server.domain.settings import Settings
from ploti_server.pipeline.act import release_again, replace_ids
from ploti_server.pipeline.answer import answer, finish
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.prune import prune
from ploti_server.pipeline.release import ReleaseRefused, release_held
from ploti_server.ports import Judgement
from ploti_server.testing import FakeAgent, FixedClock
from ploti_server.worker import new_owner, work_one, work_through

DAY = datetime(2024, 1, 1, tzinfo=UTC)
WARM = (duckdb, pyarrow.parquet)


ACTS = {
    "replace": lambda ports, dataset: replace_ids(ports, dataset, Replacement()),
    "again": lambda ports, dataset: release_again(ports, dataset, 1),
    "answer": lambda ports, dataset: answer(ports, dataset, "1", True, None),
    "finish": finish,
}


def _agent(order):
    judge = FakeAgent(lambda pair: Judgement(pair.pair_id, True, 0.9), silent=order.get("agent") == "silent")
    return judge if "agent" in order else None


def _work(ports):
    while work_one(ports, new_owner()) is not None:
        pass


def run(order):
    """Check a state, release a held version, act as staff, work or prune, as ordered."""
    reached = []

    def reach(name):
        reached.append(name)
        if name == order.get("step") and reached.count(name) == order["hit"]:
            os.kill(os.getpid(), signal.SIGKILL)

    clock = FixedClock(DAY + timedelta(hours=order["hours"])) if "hours" in order else None
    ports = build_ports(Settings.of(home=Path(order["home"])), clock=clock, agent=_agent(order), reach=reach)
    try:
        if order["verb"] == "check":
            read_at = None if clock else DAY
            check = take_state(ports, order["dataset"], GivenState(Path(order["file"]), read_at))
            work_through(ports, new_owner(), check.id)
        elif order["verb"] == "release":
            release_held(ports, order["dataset"])
        elif order["verb"] in ACTS:
            ACTS[order["verb"]](ports, order["dataset"])
            _work(ports)
        elif order["verb"] == "work":
            _work(ports)
        else:
            prune(ports)
        told = "\n".join(reached)
    except ReleaseRefused as refused:
        told = str(refused)
    Path(order["trace"]).write_text(told)


if __name__ == "__main__":
    forge.main(run)
