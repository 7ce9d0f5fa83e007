"""A publisher process that kills itself at a named step: `python -m tests.e2e.killed HOME STEP HIT VERB DATASET FILE`.

With STEP `none` it ends by itself and prints the steps it reached, one a line.
"""

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from ploti_server.app import build_ports
from ploti_server.domain.settings import Settings
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.prune import prune
from ploti_server.pipeline.release import discard_held, release_held
from ploti_server.worker import new_owner, work_through

DAY = datetime(2024, 1, 1, tzinfo=UTC)


def main(home, step, hit, verb, dataset_id, file):
    reached = []

    def reach(name):
        reached.append(name)
        if name == step and reached.count(name) == int(hit):
            os.kill(os.getpid(), signal.SIGKILL)

    ports = build_ports(Settings.of(home=Path(home)), reach=reach)
    if verb == "check":
        check = take_state(ports, dataset_id, GivenState(Path(file), DAY))
        work_through(ports, new_owner(), check.id)
    elif verb == "release":
        release_held(ports, dataset_id)
    elif verb == "prune":
        prune(ports)
    else:
        discard_held(ports, dataset_id)
    print("\n".join(reached))


if __name__ == "__main__":
    main(*sys.argv[1:])
