"""Datasets without a key: content as a multiset, ordinals, records that return (D4.2, D4.4, D4.5)."""

from itertools import pairwise

import pytest
from tests.pipeline.match_story import Story, check_chain

TYPES = {"a": "string", "n": "integer"}


@pytest.fixture
def story(tmp_path):
    return Story(tmp_path)


def rows(*texts):
    return [{"a": text[0], "n": int(text[1:])} for text in texts]


def test_content_keeps_ids_and_nothing_else_changes(story):
    first = story.next(rows("x1", "y2", "z3"), TYPES)
    second = story.next(rows("z3", "w4", "x1"), TYPES)
    assert second.counts == (1, 0, 1)
    assert second.matched.by == {"key": 0, "ledger": 0, "content": 2, "agent": 0}
    assert set(first.records()) & set(second.records()) == {id_ for (a, _), id_ in first.ids("a", "n") if a in "xz"}
    check_chain(first, second)


@pytest.mark.parametrize("row", [f"x{i}" for i in range(4)])
def test_doubles_come_and_go_one_to_one(story, row):
    """F034: the first id survives a doubled row."""
    first = story.next(rows(row, "y9"), TYPES)
    second = story.next(rows(row, row, "y9"), TYPES)
    third = story.next(rows(row, "y9"), TYPES)
    assert second.counts == (1, 0, 0)
    assert third.counts == (0, 0, 1)
    assert third.records() == first.records()
    check_chain(first, second)
    check_chain(second, third)


@pytest.mark.parametrize("key", [[], ["a"]], ids=["unkeyed", "keyed"])
def test_every_upsert_is_applied_by_record_id_in_keyed_and_unkeyed_datasets_alike(story, key):
    first = story.next(rows("x1", "y2", "z3"), TYPES, key=key)
    second = story.next(rows("x9", "y2", "w4"), TYPES, key=key)
    held = first.records()
    for change in second.changes:
        if change["_ploti_op"] == "upsert":
            held[change["_ploti_record_id"]] = {name: change[name] for name in TYPES}
        else:
            del held[change["_ploti_record_id"]]
    assert held == second.records()


@pytest.mark.parametrize("key", [[], ["a"]], ids=["unkeyed", "keyed"])
def test_rows_that_are_all_equal_stay_the_records_that_they_are(story, key):
    numbers = [("x1", "x1"), ("x1", "x1", "x1"), ("x1", "x1", "x1"), ("x1", "x1")]
    told = [story.next(rows(*texts), TYPES, key=key) for texts in numbers]
    assert [version.counts for version in told] == [(2, 0, 0), (1, 0, 0), (0, 0, 0), (0, 0, 1)]
    assert told[0].records() == told[3].records()
    for before, version in pairwise(told):
        check_chain(before, version)


def test_ordinals_go_on_where_ids_were_ever_carried(story):
    story.next(rows("x1", "x1", "y2"), TYPES)
    story.next(rows("x1", "y2", "y3"), TYPES)
    third = story.next(rows("x1", "x1", "x1", "y2"), TYPES)
    fourth = story.next(rows("x1", "x1", "x1", "x1", "y2"), TYPES)
    assert third.matched.by["ledger"] == 1
    assert len(fourth.records()) == 5
    assert sorted(e["ordinal"] for e in third.ledger if e["what"] == "current") == [1, 2]
    assert [e["ordinal"] for e in fourth.ledger] == [3]


def test_returning_content_takes_its_id_back(story):
    first = story.next(rows("x1", "y2", "z3"), TYPES)
    second = story.next(rows("y2", "z3"), TYPES)
    third = story.next(rows("x1", "y2", "z3"), TYPES)
    assert second.counts == (0, 0, 1)
    assert third.counts == (1, 0, 0)
    assert third.records() == first.records()
    (entry,) = third.ledger
    assert (entry["what"], entry["first_version"], entry["version"]) == ("current", 1, 3)


def test_changed_content_is_another_record(story):
    first = story.next(rows("x1", "y2"), TYPES)
    second = story.next(rows("x1", "y3"), TYPES)
    assert second.counts == (1, 0, 1)
    check_chain(first, second)


def test_nulls_count_as_values(story):
    story.next([{"a": "x", "n": None}, {"a": None, "n": 1}, {"a": "y", "n": 2}], TYPES)
    second = story.next([{"a": None, "n": 1}, {"a": "x", "n": 3}, {"a": "y", "n": 2}], TYPES)
    assert second.counts == (1, 0, 1)


def test_volatile_columns_are_not_compared_and_order_equal_rows(story):
    types = {"a": "string", "line": "integer"}
    first = story.next([{"a": "x", "line": 1}, {"a": "x", "line": 2}, {"a": "y", "line": 3}], types, volatile=["line"])
    second = story.next([{"a": "y", "line": 7}, {"a": "x", "line": 9}, {"a": "x", "line": 8}], types, volatile=["line"])
    assert second.counts == (0, 0, 0)
    assert not second.matched.state_changed
    assert second.matched.digest == first.matched.digest
    old = {line: id_ for (_, line), id_ in first.ids("a", "line")}
    new = {line: id_ for (_, line), id_ in second.ids("a", "line")}
    assert (new["8"], new["9"]) == (old["1"], old["2"])


def test_a_moved_constant_is_no_change_of_rows(story):
    types = {"a": "string", "read": "timestamp", "year": "integer"}
    first = story.next([{"a": a, "year": 2025} for a in "xyz"], types)
    second = story.next([{"a": a, "year": 2026} for a in "xyw"], types)
    assert second.counts == (1, 0, 1)
    assert second.matched.constants == {"year": 2026}
    check_chain(first, second)
    third = story.next([{"a": a, "year": 2027} for a in "xyw"], types)
    assert third.counts == (0, 0, 0)
    assert third.matched.state_changed
    check_chain(second, third)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_one_row_has_no_constants(story, before, after):
    types = {"a": "string", "year": "integer"}
    story.next([{"a": "xy"[i], "year": 2025} for i in range(before)], types)
    second = story.next([{"a": "xy"[i], "year": 2026} for i in range(after)], types)
    assert second.matched.constants == {}
    assert second.counts == (after, 0, before)


def test_nothing_matches_without_a_compared_value(story):
    types = {"a": "string", "year": "integer"}
    first = story.next([{"a": None, "year": 1}, {"a": None, "year": 2}], types)
    second = story.next([{"a": None, "year": None}, {"a": "x", "year": None}], types)
    assert second.matched.by["content"] == 0
    check_chain(first, second)


def test_an_empty_state_removes_everything_and_its_rows_return(story):
    first = story.next(rows("x1", "y2"), TYPES)
    empty = story.next([], TYPES)
    again = story.next(rows("x1", "y2"), TYPES)
    assert empty.counts == (0, 0, 2)
    assert again.counts == (2, 0, 0)
    assert again.records() == first.records()
    assert again.matched.digest == first.matched.digest
    check_chain(first, empty)
    check_chain(empty, again)


def test_a_first_version_may_be_empty(story):
    first = story.next([], TYPES)
    second = story.next(rows("x1"), TYPES)
    assert first.counts == (0, 0, 0)
    assert second.counts == (1, 0, 0)
    check_chain(first, second)


def test_another_epoch_gives_other_ids(tmp_path):
    one = Story(tmp_path / "0").next(rows("x1"), TYPES)
    other = Story(tmp_path / "1", epoch=1).next(rows("x1"), TYPES)
    assert set(one.records()).isdisjoint(other.records())
