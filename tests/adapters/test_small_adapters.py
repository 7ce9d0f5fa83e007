"""The clock, the plan and the agent that judges nothing, with their fakes."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.adapters.store_rows import NOW, WORKSPACE, dataset, subscription

from ploti_server.adapters.agents import NobodyJudges
from ploti_server.adapters.clock import SystemClock
from ploti_server.adapters.plans import StoredPlans
from ploti_server.domain.evidence import Evidence
from ploti_server.ports import Judgement, Pair, PlanUnavailable
from ploti_server.testing import FakeAgent, FakePlans, FixedClock, MemoryStore

PAIRS = (Pair("1", {"a": 1}, {"a": 2}), Pair("2", {"a": 3}, {"a": 4}))


def test_clock_tells_utc_in_whole_milliseconds():
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    for _ in range(50):
        now = SystemClock().now()
        assert now.utcoffset() == timedelta(0)
        assert now.microsecond % 1000 == 0
        assert before <= now <= datetime.now(UTC)


def test_fixed_clock_stands_until_it_is_moved():
    clock = FixedClock(datetime(2026, 3, 1, 1, 0, 0, 123_456, tzinfo=UTC))
    assert clock.now() == clock.now() == datetime(2026, 3, 1, 1, 0, 0, 123_000, tzinfo=UTC)
    assert clock.advance(timedelta(hours=1)) == clock.now() == datetime(2026, 3, 1, 2, 0, 0, 123_000, tzinfo=UTC)
    assert clock.advance(days=1, seconds=2).day == 2
    clock.set(NOW)
    assert clock.now() == NOW


@pytest.mark.parametrize("plans", [StoredPlans(), FakePlans()])
@pytest.mark.parametrize("topics", [None, (), ("zoning", "air")])
def test_plan_opens_the_topics_of_the_workspace(plans, topics):
    workspace = WORKSPACE.__class__(**{**vars(WORKSPACE), "topics": topics})
    assert plans.topics(workspace) == topics


def test_fake_plan_may_be_unavailable():
    plans = FakePlans()
    plans.available = False
    with pytest.raises(PlanUnavailable):
        plans.topics(WORKSPACE)


def test_nobody_judges_at_once():
    assert not NobodyJudges().judges(dataset("ds_a"))
    assert NobodyJudges().judge(dataset("ds_a"), PAIRS, Evidence({})) == ()


def test_fake_agent_judges_some_pairs_or_answers_later():
    same = Judgement("2", True, 0.9)
    agent = FakeAgent(lambda pair: same if pair.pair_id == "2" else None)
    assert agent.judge(dataset("ds_a"), PAIRS, Evidence({})) == (same,)
    agent.silent = True
    assert agent.judge(dataset("ds_a"), PAIRS[:1], Evidence({})) is None
    assert agent.asked == [PAIRS, PAIRS[:1]]


def test_fake_store_can_be_told_that_another_has_a_lock():
    store = MemoryStore()
    with store.write() as records:
        records.workspaces.put(WORKSPACE)
        records.subscriptions.put(subscription("sub_1"))
    with store.busy("sub_1"), store.write() as records:
        assert not records.subscriptions.try_lock("sub_1")
    with store.write() as records:
        assert records.subscriptions.try_lock("sub_1")


def test_fake_store_refuses_to_wait_for_itself():
    store = MemoryStore()

    def write_inside():
        with store.write():
            pass

    with store.write(), pytest.raises(RuntimeError, match="open in this thread"):
        write_inside()
