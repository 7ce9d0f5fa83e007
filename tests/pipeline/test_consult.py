"""Asks and judgements of one check, build by build: D4.2 and D4.9."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ploti_server.domain.asks import FINISHED, AnswerRefused
from ploti_server.domain.checks import Check, CheckStatus
from ploti_server.domain.datasets import Dataset, MatchingLimits, SourceSpec
from ploti_server.domain.evidence import Evidence
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.pipeline.answer import answer, ask_now
from ploti_server.pipeline.check import drop_unfinished
from ploti_server.pipeline.consult import Consultation
from ploti_server.ports import Judgement, Pair, Ports, Unanswered
from ploti_server.testing import FakeAgent, FakePlans, FixedClock, MemoryFiles, MemoryStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAIRS = tuple(Pair(f"rec_{n}-{n}-1", {"name": f"n{n}", "at": n}, {"name": f"n{n}", "at": -n}) for n in (1, 2, 3))
EVIDENCE = Evidence({"name": "string", "at": "integer"})


class Asking:
    """A dataset whose version 2 is built again and again beside version 1."""

    def __init__(self, agent, name="chat"):
        self.agent, self.clock, self.store = agent, FixedClock(NOW), MemoryStore()
        self.dataset = Dataset("ds", "T", SourceSpec("file", "x"), matching=MatchingLimits(agent=name))
        self.ports = Ports(self.store, MemoryFiles(), None, agent, FakePlans(), self.clock, Path(), lambda *_: None)
        with self.store.write() as records:
            records.catalog.put_dataset(self.dataset)
        self.new_check()

    def new_check(self, **facts):
        with self.store.write() as records:
            self.now = records.checks.add(Check(0, "ds", CheckStatus.WAITING, NOW, NOW, facts=facts))

    def build(self, base=1, pairs=PAIRS, **later):
        """Consult after a while; gives the pairs judged the same, or None where the build has to wait."""
        self.clock.advance(**later)
        version = Version("ds", 2, 1, VersionStatus.BUILDING, self.now.id, base=base)
        self.last = Consultation(self.ports, self.dataset, version, self.now)
        told = self.last(pairs, EVIDENCE)
        return told if told is None else [j.pair_id[4] for j in told if j.same]

    @property
    def asked(self):
        return ["".join(pair.pair_id[4] for pair in pairs) for pairs in self.agent.asked]


def same(pair):
    return Judgement(pair.pair_id, True, 0.9)


class Halting(FakeAgent):
    """Judges one pair, nonsense beside it, then breaks down."""

    def judge(self, dataset, pairs, evidence):
        self.asked.append(pairs)
        nonsense = [Judgement("rec_9-9-1", True, 0.9), Judgement(pairs[-1].pair_id, True, 1.5)]
        raise Unanswered("the endpoint is down", [same(pairs[0]), *nonsense][: len(pairs) * 3])


def test_an_agent_is_asked_at_most_twice_for_24_hours_each_and_then_it_is_silent():
    asking = Asking(FakeAgent(silent=True))
    told = [asking.build(hours=hours) for hours in (0, 12, 12, 12, 12)]
    assert told == [None, None, None, None, []]
    assert (asking.last.is_silent, asking.last.facts) == (True, {"asks": 2, "pairs": 3, "judged": 0})
    assert asking.asked == ["123"] * 4
    with asking.store.read() as records:
        assert records.asks.get(1).asked_at == NOW


def test_an_answer_ends_the_wait_and_no_ask_is_silent_then():
    asking = Asking(FakeAgent(same, silent=True))
    assert asking.build() is None
    asking.agent.silent = False
    assert asking.build(hours=25) == ["1", "2", "3"]
    assert (asking.last.is_silent, asking.last.ask.due_at) == (False, None)


def test_pairs_that_an_answer_leaves_out_are_not_waited_for():
    asking = Asking(FakeAgent(lambda pair: same(pair) if pair.pair_id[4] == "2" else None))
    assert asking.build() == ["2"]


def test_what_is_judged_is_kept_and_not_asked_again_for_the_same_version():
    asking = Asking(FakeAgent(same), name="built-in")
    assert asking.build() == asking.build(hours=1) == ["1", "2", "3"]
    assert asking.asked == ["123"]
    assert asking.build(base=2) == ["1", "2", "3"]
    assert asking.asked == ["123", "123"]


@pytest.mark.parametrize(("name", "asked"), [("chat", ["123", "3"]), ("built-in", ["123", "23"])])
def test_another_state_beside_the_same_version_reuses_judgements_of_single_pairs(name, asked):
    asking = Asking(FakeAgent(lambda pair: same(pair) if pair.pair_id[4] == "2" else None), name=name)
    asking.build()
    with asking.store.write() as records:
        records.checks.put(replace(asking.now, status=CheckStatus.WAITING))
    answer(asking.ports, "ds", "1", False, None)
    asking.new_check()
    assert asking.build() == ["2"]
    assert asking.asked == asked


def test_an_agent_that_breaks_down_is_asked_about_the_rest_before_long():
    asking = Asking(Halting())
    assert asking.build() is None
    assert asking.last.facts == {"asks": 1, "pairs": 3, "judged": 1, "agent_trouble": "the endpoint is down"}
    assert (asking.last.look_again_at() - NOW).total_seconds() == 300
    assert asking.build(minutes=5) is None
    assert (asking.last.look_again_at() - asking.clock.now()).total_seconds() == 600
    assert asking.build(minutes=10) == ["1", "2", "3"]
    assert asking.asked == ["123", "23", "3"]


def test_by_a_person_s_order_the_build_goes_on_with_the_answers_that_there_are():
    asking = Asking(FakeAgent(silent=True), name="staff")
    assert asking.build() is None
    answer(asking.ports, "ds", "3", True, None)
    asking.now = replace(asking.now, facts={FINISHED: True})
    assert asking.build() == ["3"]
    assert not asking.last.is_silent


def test_a_person_s_answer_while_the_agent_is_asked_is_not_lost():
    asking = Asking(FakeAgent(silent=True))
    asking.build()

    def judge(pair):
        answer(asking.ports, "ds", pair.pair_id, False, None)
        return same(pair)

    asking.agent = FakeAgent(judge)
    asking.ports = replace(asking.ports, agent=asking.agent)
    assert asking.build() == []


def test_a_person_sees_both_records_and_what_differs():
    asking = Asking(FakeAgent(silent=True))
    asking.build()
    ask = asking.last.ask
    assert (ask.olds["rec_2"], ask.news["2-1"]) == ({"name": "n2", "at": 2}, {"name": "n2", "at": -2})
    assert [pair.differs for pair in ask.pairs] == [("at",)] * 3


def test_an_ask_ends_with_a_check_that_ends_without_a_version():
    asking = Asking(FakeAgent(silent=True))
    asking.build()
    with asking.store.write() as records:
        assert [ask.check_id for ask in records.asks.waiting()] == [1]
        drop_unfinished(records, asking.now)
        assert records.asks.waiting() == ()


def test_an_agent_may_be_asked_at_once_while_its_version_waits_and_not_when_it_is_held():
    asking = Asking(FakeAgent(silent=True))
    asking.build()
    assert ask_now(asking.ports, "ds").due_at == NOW
    with asking.store.write() as records:
        records.checks.put(replace(asking.now, status=CheckStatus.DONE))
        records.versions.put(Version("ds", 2, 1, VersionStatus.HELD, asking.now.id))
    with pytest.raises(AnswerRefused, match="version 2 of ds is held"):
        ask_now(asking.ports, "ds")
