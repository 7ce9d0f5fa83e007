"""Any run of builds, answers, silences, troubles and crashes of one ask keeps to D4.2, D4.8 and D4.9."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.test_consult import NOW, PAIRS, Asking

from ploti_server.domain.asks import AnswerRefused
from ploti_server.pipeline.answer import answer
from ploti_server.ports import Judgement, Pair, Unanswered
from ploti_server.testing import FakeAgent

CROSS = tuple(
    Pair(f"rec_{old}-{new}-1", PAIRS[old - 1].old, PAIRS[new - 1].new) for old in (1, 2, 3) for new in (1, 2, 3)
)
TWO_DAYS = timedelta(hours=48)


class Moody(FakeAgent):
    """Answers, is silent, breaks down or talks nonsense, as its mood is; no pair may be asked about once judged."""

    mood, judged = "silent", frozenset()

    def judge(self, dataset, pairs, evidence):
        asked = {pair.pair_id for pair in pairs}
        assert not asked & self.judged
        sound = [Judgement(id_, n % 2 == 0, 0.5 + n / 20) for n, id_ in enumerate(sorted(asked))]
        nonsense = [Judgement("rec_9-9-1", True, 1.0), Judgement(min(asked), True, 2.0)]
        match self.mood:
            case "silent":
                return None
            case "answers":
                self.judged |= asked
                return tuple(sound + nonsense)
            case "half":
                self.judged |= {j.pair_id for j in sound[: len(sound) // 2]}
                raise Unanswered("half", sound[: len(sound) // 2] + nonsense)
        raise Unanswered("down")


STEPS = st.one_of(
    st.tuples(st.just("mood"), st.sampled_from(["silent", "answers", "half", "down"])),
    st.tuples(st.just("hours"), st.integers(1, 30)),
    st.tuples(st.just("crash"), st.none()),
    st.tuples(st.just("person"), st.tuples(st.integers(1, 9), st.booleans())),
)


class Crash(Exception):
    """A process that ends."""


def crash_at(step):
    if step == "consult.kept":
        raise Crash


def build(asking, words):
    """Build, and hold what came of it to the rules; gives when to go on, None where the build is done."""
    told = asking.build(pairs=CROSS)
    ask, agent = asking.last.ask, asking.agent
    assert ask.number <= 2
    assert ask.answers.keys() >= agent.judged
    said = {one.pair_id: one.same for one in ask.decided}
    assert said.items() >= words.items()
    matched = [pair for pair in ask.pairs if words.get(pair.pair_id)]
    assert len({pair.old for pair in matched}) == len({pair.new for pair in matched}) == len(matched)
    others = [p for p in ask.pairs if p.pair_id in said and p.pair_id not in words]
    assert not [p for p in others for m in matched if p.old == m.old or p.new == m.new]
    if told is not None:
        assert asking.last.is_silent is (bool(ask.open_pairs) and ask.due_at is not None)
        return None
    due = asking.last.look_again_at()
    assert asking.clock.now() < due <= NOW + TWO_DAYS
    return due


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_any_run_asks_twice_at_most_waits_48_hours_at_most_and_keeps_what_was_judged(steps):
    asking, words = Asking(Moody()), {}
    due = build(asking, words)
    for kind, what in steps:
        if due is None:
            return
        match kind:
            case "mood":
                asking.agent.mood = what
            case "person":
                pair, same = CROSS[what[0] - 1], what[1]
                try:
                    answer(asking.ports, "ds", pair.pair_id, same, None)
                except AnswerRefused:
                    assert same
                else:
                    words[pair.pair_id] = same
                    asking.agent.judged |= {pair.pair_id}
            case "crash":
                calm, asking.ports = asking.ports, replace(asking.ports, reach=crash_at)
                with pytest.raises(Crash):
                    asking.build(pairs=CROSS)
                asking.ports = calm
            case "hours":
                end = asking.clock.now() + timedelta(hours=what)
                while due is not None and due <= end:
                    asking.clock.set(due)
                    due = build(asking, words)
                asking.clock.set(end)
