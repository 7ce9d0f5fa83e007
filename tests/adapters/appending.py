"""A process that appends events for a while: every twentieth transaction is given up. See `test_store_gapless.py`."""

import random
import sys
from datetime import UTC, datetime

from ploti.contract import events as wire
from ploti_server.adapters.store import open_store
from ploti_server.domain.events import NewEvent


class GivenUp(Exception):
    """The abort that a transaction was chosen for."""


def append(store, seed, transactions):
    """Append to sub_1 and sub_2 in turn; gives the committed numbers of each, in the order of the commits."""
    chance = random.Random(seed)
    committed = {"sub_1": [], "sub_2": []}
    for turn in range(transactions):
        subscription = f"sub_{turn % 2 + 1}"
        events = [NewEvent(wire.ADDED, f"ds_{seed}", {"turn": turn}) for _ in range(chance.randint(1, 3))]
        try:
            with store.write() as records:
                logged = records.events.append(subscription, events, datetime.now(UTC))
                if chance.random() < 0.05:
                    raise GivenUp
        except GivenUp:
            continue
        committed[subscription] += [event.number for event in logged]
    return committed


if __name__ == "__main__":
    append(open_store(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
