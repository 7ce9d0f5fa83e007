"""Hold rules, one row for each sentence of D6.1, at the limit and one past it."""

from dataclasses import replace

import pytest

from ploti_server.domain.datasets import ReviewLimits
from ploti_server.domain.holds import HOLD_RULES, Facts, agree, reasons, review

CALM = Facts(rows=100, previous_rows=100)
LIMITS = ReviewLimits()


def rules_of(facts, limits=LIMITS):
    return [hold.rule if hold.column is None else f"{hold.rule}:{hold.column}" for hold in review(facts, limits)]


@pytest.mark.parametrize(
    ("facts", "rules"),
    [
        (CALM, []),
        (Facts(rows=5), []),
        (replace(CALM, breaking=("removed a",)), ["breaking_schema"]),
        (Facts(rows=0, previous_rows=5, removed=5), ["zero_rows"]),
        (Facts(rows=0, previous_rows=0), []),
        (Facts(rows=0), []),
        (Facts(rows=80, previous_rows=100, removed=20), []),
        (Facts(rows=79, previous_rows=100, removed=21), ["row_drop"]),
        (Facts(rows=30, previous_rows=40, removed=10), []),
        (Facts(rows=29, previous_rows=40, removed=11), ["row_drop"]),
        (replace(CALM, added=50, removed=50), []),
        (replace(CALM, added=51, removed=51), ["turnover"]),
        (replace(CALM, added=50, removed=90), []),
        (Facts(rows=30, previous_rows=30, added=20, removed=20), []),
        (Facts(rows=30, previous_rows=30, added=21, removed=21), ["turnover"]),
        (replace(CALM, added=51, removed=51, ids_replaced=True), []),
        (replace(CALM, duplicate_keys=2), ["duplicate_key"]),
        (replace(CALM, null_keys=1), ["null_key"]),
        (replace(CALM, rejects=2), []),
        (replace(CALM, rejects=3), ["rejects"]),
        (Facts(rows=98, previous_rows=98, missing_rows=2, rejects=2), []),
        (Facts(rows=97, previous_rows=98, missing_rows=1, rejects=1, removed=1), ["missing_rows"]),
        (replace(CALM, nulls={"a": 30}, previous_nulls={"a": 0}), []),
        (replace(CALM, nulls={"a": 31}, previous_nulls={"a": 0}), ["null_rise:a"]),
        (replace(CALM, nulls={"a": 31}), []),
        (Facts(rows=19, previous_rows=100, nulls={"a": 19}, previous_nulls={"a": 0}), ["row_drop"]),
        (Facts(rows=20, previous_rows=20, nulls={"a": 20}, previous_nulls={"a": 0}), ["null_rise:a"]),
        (Facts(rows=20, previous_rows=19, nulls={"a": 20}, previous_nulls={"a": 0}), []),
        (replace(CALM, nulls={"geometry": 10}, previous_nulls={"geometry": 0}), []),
        (replace(CALM, nulls={"geometry": 11}, previous_nulls={"geometry": 0}), ["geometry_loss:geometry"]),
        (replace(CALM, none_compared=True), ["none_compared"]),
        (Facts(rows=9, previous_rows=0, none_compared=True), []),
        (Facts(rows=0, previous_rows=0, none_compared=True), []),
        (replace(CALM, agent_silent=True), ["agent_silent"]),
    ],
)
def test_each_rule_holds_past_its_limit_only(facts, rules):
    assert rules_of(facts) == rules


def test_the_first_reason_is_schema_review_then_data_check_then_processing():
    facts = Facts(rows=0, previous_rows=50, removed=50, breaking=("removed a",), agent_silent=True)
    assert reasons(review(facts, LIMITS)) == ("schema_review", "data_check", "processing")


def test_staff_see_every_rule_with_what_was_measured_and_the_limit():
    holds = review(Facts(rows=0, previous_rows=50, removed=50), LIMITS)
    assert [hold.to_json() for hold in holds] == [
        {"reason": "data_check", "rule": "zero_rows", "measured": 0, "limit": 1},
        {"reason": "data_check", "rule": "row_drop", "measured": 1.0, "limit": 0.2},
    ]


def test_the_catalog_can_move_each_threshold():
    strict = ReviewLimits(max_row_drop=0.0, min_rows_dropped=0)
    assert rules_of(Facts(rows=99, previous_rows=100, removed=1), strict) == ["row_drop"]


def test_every_rule_stands_in_the_table_once():
    assert len({rule.__name__ for rule in HOLD_RULES}) == len(HOLD_RULES)


DROP = replace(CALM, rows=50, removed=50)


@pytest.mark.parametrize(
    ("later", "agrees"),
    [
        (DROP, True),
        (replace(DROP, rows=60, removed=40), True),
        (replace(DROP, rows=45, removed=55), True),
        (replace(DROP, rows=44, removed=56), False),
        (replace(DROP, duplicate_keys=2), False),
        (replace(DROP, breaking=("removed a",)), False),
        (CALM, False),
    ],
    ids=["the same", "less of it", "a tenth more", "more of it", "another rule too", "another reason too", "none"],
)
def test_a_further_check_agrees_with_the_same_reasons_and_shape_of_facts(later, agrees):
    before, now = ([hold.to_json() for hold in review(facts, LIMITS)] for facts in (DROP, later))
    assert agree(before, now) is agrees


@pytest.mark.parametrize(("gone", "agrees"), [(("removed a",), True), (("removed b",), False)])
def test_a_schema_change_agrees_with_the_same_one_only(gone, agrees):
    before, now = ([h.to_json() for h in review(replace(CALM, breaking=b), LIMITS)] for b in (("removed a",), gone))
    assert agree(before, now) is agrees
