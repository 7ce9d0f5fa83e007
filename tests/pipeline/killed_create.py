"""A process that is killed while it creates: `python -m tests.pipeline.killed_create URL HOME WORKSPACE STEP`.

With STEP `none` it creates and prints the subscription's id.
"""

import os
import signal
import sys
from pathlib import Path

from ploti_server.adapters.store import open_store
from ploti_server.domain.subscriptions import Selection
from ploti_server.pipeline.subscriptions import Once, create_once
from ploti_server.ports import Ports
from ploti_server.testing import FakeAgent, FakePlans, FixedClock, MemoryFiles

ONCE = Once("POST /x", "a-key", "hash", 201, lambda subscription: f'{{"id": "{subscription.id}"}}')
SELECTION = Selection("Mine", places=("fl-county-orange",))


def ports_of(url, home, reach=lambda _: None):
    """Ports over a database, as one process of several has them."""
    return Ports(
        store=open_store(url),
        files=MemoryFiles(),
        engine=None,
        open_state=None,
        agent=FakeAgent(),
        plans=FakePlans(),
        clock=FixedClock(),
        home=Path(home),
        reach=reach,
    )


def main(url, home, workspace, step):
    def reach(name):
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    ports = ports_of(url, home, reach)
    with ports.store.read() as records:
        owner = records.workspaces.named(workspace)
    made = create_once(ports, owner, SELECTION, ONCE)
    print(getattr(made, "id", None) or made.answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
