"""A version that waits for its agent, through the real builder: D4.2, D4.8 and D4.9."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.pipeline.publishing import DATASET, Publisher

from ploti_server.pipeline.answer import answer, finish
from ploti_server.ports import Judgement
from ploti_server.testing import FakeAgent
from ploti_server.worker import new_owner, work_one, work_through

ROWS = {number: f"name {number},street {number}" for number in range(5)}
HOUR = timedelta(hours=1)


def state(**edits):
    """Write the rows, some of them with another street, or with none at all."""
    rows = ROWS | {int(number.removeprefix("r")): text for number, text in edits.items()}
    return "name,street\n" + "".join(f"{text}\n" for text in rows.values() if text)


FIRST, EDITED = state(), state(r1="name 1,avenue 1", r2="name 2,avenue 2")


@pytest.fixture
def publisher(tmp_path):
    """A publisher of an unkeyed dataset whose first version is out, and whose agent answers later."""
    made = Publisher(tmp_path)
    made.agent = FakeAgent(lambda pair: Judgement(pair.pair_id, True, 0.9), silent=True)
    made.ports = replace(made.ports, agent=made.agent)
    assert made.outcome(FIRST) == ("released", 1)
    return made


def ask_of(publisher):
    with publisher.ports.store.read() as records:
        return records.asks.of_dataset(DATASET, 1)[0]


def go_on(publisher, **later):
    """Do what is due after a while; gives the outcomes."""
    publisher.clock.advance(**later)
    outcomes = []
    while (done := work_one(publisher.ports, new_owner())) is not None:
        outcomes.append((done.outcome, done.version))
    return outcomes


def test_an_agent_has_24_hours_and_24_more_then_the_version_is_held(publisher):
    subscription = publisher.subscribe()
    assert publisher.outcome(EDITED) == ("waiting", 2)
    assert go_on(publisher, hours=23) == []
    assert go_on(publisher, hours=1) == [("waiting", 2)]
    assert len(publisher.agent.asked) == 2
    assert go_on(publisher, hours=23) == []
    assert go_on(publisher, hours=1) == [("held", 2)]
    assert len(publisher.agent.asked) == 2
    held = publisher.version(2)
    assert held.reasons == ("processing",)
    assert (held.facts["asks"], held.facts["pairs"], held.facts["judged"], held.facts["added"]) == (2, 2, 0, 2)
    assert publisher.log(subscription, "reason")[-1] == ("delayed", "processing")
    answer(publisher.ports, DATASET, "1", True, None)
    publisher.clock.advance(hours=1)
    assert work_through(publisher.ports, new_owner(), finish(publisher.ports, DATASET).id).version == 3
    assert (publisher.version(2).status, publisher.version(3).counts.changed) == ("superseded", 1)
    assert publisher.log(subscription, "version", "previousVersion")[-1] == ("updated", 3, 1)
    (changed,) = [row for row in publisher.rows(3, "changes") if row["_ploti_change"] == "changed"]
    assert (changed["_ploti_match"], changed["_ploti_match_score"]) == ("agent", 1.0)


def test_a_version_waits_for_its_agent_up_to_24_hours_for_an_ask_before_it_is_released(publisher):
    assert publisher.outcome(EDITED) == ("waiting", 2)
    ask = ask_of(publisher)
    assert ask.due_at - ask.asked_at == timedelta(hours=24)
    assert go_on(publisher, hours=23, minutes=59) == []
    assert publisher.chain() == [(1, None)]
    publisher.agent.silent = False
    assert go_on(publisher, minutes=1) == [("released", 2)]


def test_while_a_version_waits_checks_move_the_refresh_and_only_the_newest_state_is_built_next(publisher):
    publisher.subscribe()
    publisher.outcome(EDITED)
    for street in ("lane", "road"):
        later = publisher.ports.clock.advance(hours=1)
        assert publisher.check(state(r3=f"name 3,{street} 3")) is None
        with publisher.ports.store.read() as records:
            assert records.catalog.refresh(DATASET).last_checked_at == later + HOUR
    assert ask_of(publisher).version == 2
    publisher.agent.silent = False
    assert go_on(publisher, hours=24) == [("released", 2), ("released", 3)]
    assert {row["street"] for row in publisher.rows(3)} >= {"road 3", "street 1"}
