"""Asks of the matching agent and their judgements, a row for each sentence of D4.2 and D4.9."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ploti_server.domain.asks import (
    AnswerRefused,
    Ask,
    AskedPair,
    Given,
    answered,
    asked_again,
    carried_over,
    closed,
    is_over,
    look_again_at,
    pairs_named,
    tried,
    with_given,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY, HOUR, MINUTE = timedelta(hours=24), timedelta(hours=1), timedelta(minutes=1)
PAIRS = tuple(AskedPair(f"{old}-{new}", old, new) for old, new in ("ax", "ay", "by", "cz"))
ASK = Ask(7, "ds", 1, 2, "chat", NOW, pairs=PAIRS)


def given(pair, same=True, by="chat", confidence=0.9):
    return Given(pair, same, confidence, by, NOW)


def open_of(ask):
    return [pair.pair_id for pair in ask.open_pairs]


@pytest.mark.parametrize(
    ("judged", "left_open", "count"),
    [
        ([], ["a-x", "a-y", "b-y", "c-z"], []),
        ([given("a-x")], ["a-y", "b-y", "c-z"], ["a-x"]),
        ([given("a-x", by="staff")], ["b-y", "c-z"], ["a-x"]),
        ([given("a-y", by="staff")], ["c-z"], ["a-y"]),
        ([given("a-x", same=False, by="staff")], ["a-y", "b-y", "c-z"], ["a-x"]),
        ([given("a-y", by="staff"), given("a-x"), given("c-z")], [], ["a-y", "c-z"]),
        ([given("a-x"), given("a-x", same=False, by="staff"), given("a-x")], ["a-y", "b-y", "c-z"], ["a-x"]),
    ],
    ids=[
        "nothing",
        "an agent settles its pair",
        "a person's match settles the old record",
        "and the new one",
        "a person's `different` settles its pair only",
        "an agent's match of a record that a person matched does not count",
        "a person's word stays",
    ],
)
def test_what_is_settled_and_what_counts(judged, left_open, count):
    ask = with_given(ASK, judged)
    assert open_of(ask) == left_open
    assert [g.pair_id for g in ask.decided] == count
    assert all(g.by == "staff" for g in ask.decided if g.pair_id == "a-x" and len(judged) != 1)


def test_an_ask_has_24_hours_then_a_second_one_then_it_is_over():
    first = asked_again(ASK, NOW)
    assert (first.number, first.due_at) == (1, NOW + DAY)
    assert asked_again(first, NOW + DAY - MINUTE) == first
    assert not is_over(first, NOW + DAY)
    second = asked_again(tried(first, "no"), NOW + DAY)
    assert (second.number, second.due_at, second.tries) == (2, NOW + 2 * DAY, 0)
    assert not is_over(second, NOW + 2 * DAY - MINUTE)
    assert is_over(second, NOW + 2 * DAY)


@pytest.mark.parametrize(
    ("tries", "after"),
    [(0, DAY), (1, 5 * MINUTE), (2, 10 * MINUTE), (6, 160 * MINUTE), (7, 4 * HOUR), (40, 4 * HOUR)],
)
def test_an_agent_that_answers_by_itself_is_tried_again_within_its_ask(tries, after):
    ask = replace(asked_again(ASK, NOW), tries=tries)
    assert look_again_at(ask, NOW) == NOW + after
    assert look_again_at(ask, NOW + DAY - MINUTE) == min(NOW + DAY, NOW + DAY - MINUTE + after)


@pytest.mark.parametrize(
    ("judged", "base", "check_id", "carried"),
    [
        (given("a-x", by="staff"), 1, 5, True),
        (given("a-x", by="chat"), 1, 5, True),
        (given("a-x", by="built-in"), 1, 5, False),
        (given("a-x", by="staff"), 0, 5, False),
        (given("d-w", by="staff"), 1, 5, False),
        (given("a-x", by="staff"), 1, 7, False),
    ],
    ids=["staff", "chat", "built-in weighs a pair among others", "other version before", "other pair", "itself"],
)
def test_judgements_are_reused_beside_the_same_version(judged, base, check_id, carried):
    other = replace(with_given(ASK, [judged]), base=base, check_id=check_id)
    assert (carried_over(ASK, [other]).given == (judged,)) is carried


def test_a_person_names_a_pair_by_number_or_id():
    assert pairs_named(ASK, "2") == pairs_named(ASK, "a-y") == (PAIRS[1],)
    assert pairs_named(ASK, "4,1-2,a-x") == (PAIRS[3], PAIRS[0], PAIRS[1])
    for wrong in ("0", "5", "a-z", "²", "", "1,", "3-5", "1-99999999999", "1-2-3"):
        with pytest.raises(AnswerRefused, match="pairs 1 to 4"):
            pairs_named(ASK, wrong)


def test_a_person_s_judgement_is_whole_and_matches_each_record_once():
    ask = answered(ASK, [PAIRS[0]], True, NOW, "same owner")
    assert ask.given == (Given("a-x", True, 1.0, "staff", NOW, "same owner"),)
    for several in ([PAIRS[1]], [PAIRS[3], PAIRS[1]]):
        with pytest.raises(AnswerRefused, match="by pair 1"):
            answered(ask, several, True, NOW, None)
    with pytest.raises(AnswerRefused, match="by pair 2"):
        answered(ASK, [PAIRS[1], PAIRS[2]], True, NOW, None)
    changed = answered(answered(ask, [PAIRS[0]], False, NOW, None), [PAIRS[1]], True, NOW, None)
    assert [g.pair_id for g in changed.decided if g.same] == ["a-y"]


def test_values_go_with_the_release_and_judgements_stay():
    ask = replace(with_given(asked_again(ASK, NOW), [given("a-x")]), olds={"a": {"n": 1}}, news={"x": {"n": 2}})
    ask = with_given(
        ask, [replace(given("b-y", same=False), explanation="against"), replace(given("c-z"), explanation="for")]
    )
    kept = closed(ask, keeps_values=True)
    assert (kept.due_at, kept.olds, kept.given) == (None, ask.olds, ask.given)
    let_go = closed(ask, keeps_values=False)
    assert (let_go.pairs, let_go.olds, let_go.news) == ((), {}, {})
    assert [(g.pair_id, g.same, g.explanation) for g in let_go.given] == [
        ("a-x", True, None),
        ("b-y", False, None),
        ("c-z", True, "for"),
    ]
    assert [g.pair_id for g in let_go.decided] == ["a-x", "b-y", "c-z"]
    overruled = closed(with_given(ask, [given("a-y", by="staff")]), keeps_values=False)
    assert [g.pair_id for g in overruled.decided] == ["a-y", "c-z"]
