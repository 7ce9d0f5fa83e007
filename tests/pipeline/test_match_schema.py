"""Matching over schema changes: added, retyped, pinned, dropped (D4.4, D4.5, D5.8)."""

from datetime import date

import pytest
from tests.pipeline.match_story import Story, check_chain

TYPES = {"k": "string", "a": "string"}
ROWS = [{"k": "1", "a": "x"}, {"k": "2", "a": "y"}, {"k": "3", "a": "z"}]


@pytest.fixture
def story(tmp_path):
    return Story(tmp_path)


def test_an_added_column_is_backfilled_not_compared(story):
    first = story.next(ROWS, TYPES, key=["k"])
    rows = [{**ROWS[0], "d": date(2026, 1, 1)}, {**ROWS[1], "a": "w", "d": date(2026, 1, 2)}, ROWS[2]]
    second = story.next(rows, {**TYPES, "d": "date"}, key=["k"])
    assert second.counts == (0, 1, 0)
    assert second.of("changed")[0]["_ploti_changed_columns"] == ["a"]
    assert second.matched.backfill_columns == ("d",)
    assert [(r["d"], set(r)) for r in second.backfill] == [(date(2026, 1, 1), {"_ploti_record_id", "d"})]
    assert second.matched.state_changed is True
    check_chain(first, second)


def test_changed_columns_are_told_of_the_columns_that_both_versions_have(story):
    story.next([{**row, "gone": f"g{i}"} for i, row in enumerate(ROWS)], {**TYPES, "gone": "string"}, key=["k"])
    rows = [{**row, "a": row["a"] + "!", "new": f"n{i}"} for i, row in enumerate(ROWS)]
    second = story.next(rows, {**TYPES, "new": "string"}, key=["k"])
    assert [row["_ploti_changed_columns"] for row in second.of("changed")] == [["a"]] * 3


def test_an_added_column_without_values_leaves_the_digest(story):
    first = story.next(ROWS, TYPES, key=["k"])
    second = story.next(ROWS, {**TYPES, "d": "date"}, key=["k"])
    assert second.matched.backfill_rows == 0
    assert second.matched.digest == first.matched.digest
    check_chain(first, second)


def test_a_retyped_column_is_not_compared(story):
    types = {"k": "string", "n": "integer", "a": "string"}
    story.next([{**row, "n": 1 + i} for i, row in enumerate(ROWS)], types, key=["k"])
    second = story.next([{**row, "n": str(9 + i)} for i, row in enumerate(ROWS)], {**types, "n": "string"}, key=["k"])
    assert second.counts == (0, 0, 0)
    check_chain(None, second)


def test_a_retyped_key_matches_no_old_key(story):
    story.next([{"k": 1, "a": "x"}, {"k": 2, "a": "y"}], {"k": "integer", "a": "string"}, key=["k"])
    second = story.next([{"k": "1", "a": "v"}, {"k": "2", "a": "w"}], TYPES, key=["k"])
    assert second.counts == (2, 0, 2)


def test_a_removed_column_is_not_compared(story):
    story.next(ROWS, TYPES, key=["k"])
    second = story.next([{"k": row["k"]} for row in ROWS], {"k": "string"}, key=["k"])
    assert second.counts == (0, 0, 0)
    check_chain(None, second)


def test_a_key_pinned_later_matches_by_its_columns(story):
    first = story.next(ROWS, TYPES)
    changed = [{**row, "a": row["a"] + "!"} for row in ROWS]
    second = story.next(changed, TYPES, key=["k"])
    assert second.counts == (0, 3, 0)
    assert second.matched.by["key"] == 3
    check_chain(first, second)
    third = story.next(changed[:2], TYPES, key=["k"])
    assert [e["key_text"] for e in third.ledger] == ["string:1:3;"]


def test_a_changed_key_matches_by_the_new_columns(story):
    types = {"k": "string", "j": "string", "a": "string"}
    rows = [{**row, "j": f"j{row['k']}"} for row in ROWS]
    first = story.next(rows, types, key=["k"])
    second = story.next([{**row, "k": row["k"] + "0"} for row in rows], types, key=["j"])
    assert second.counts == (0, 3, 0)
    assert {r["_ploti_match"] for r in second.changes} == {"key"}
    check_chain(first, second)


def test_a_dropped_key_matches_by_content(story):
    first = story.next(ROWS, TYPES, key=["k"])
    second = story.next([ROWS[2], ROWS[0], {"k": "2", "a": "w"}], TYPES)
    assert second.counts == (1, 0, 1)
    assert second.matched.by["content"] == 2
    check_chain(first, second)


def test_a_column_that_stops_being_volatile_is_shipped_to_all(story):
    rows = [{**row, "line": i} for i, row in enumerate(ROWS)]
    types = {**TYPES, "line": "integer"}
    first = story.next(rows, types, key=["k"], volatile=["line"])
    second = story.next([{**row, "a": row["a"] if i else "w"} for i, row in enumerate(rows)], types, key=["k"])
    assert second.counts == (0, 1, 0)
    assert len(second.backfill) == 2
    check_chain(first, second)


def test_constants_of_every_type_go_as_json(story):
    import json
    from datetime import UTC, datetime

    types = {"k": "string", "i": "integer", "n": "number", "b": "boolean", "d": "date", "t": "timestamp", "j": "json"}
    one = {"i": 1, "n": 0.1, "b": True, "d": date(1, 2, 3), "t": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "j": "[1]"}
    two = {"i": 2, "n": 1e22, "b": False, "d": date(9999, 1, 1), "t": datetime(1, 1, 1, tzinfo=UTC), "j": '{"a":1}'}
    states = (one, two, {}, one)
    previous = None
    for values in states:
        version = story.next([{"k": k, **values} for k in "12"], types, key=["k"])
        assert json.loads(json.dumps(version.matched.constants, allow_nan=False)) == version.matched.constants
        check_chain(previous, version)
        if previous is not None:
            assert version.counts == (0, 0, 0)
            assert version.matched.constants.keys() == types.keys() - {"k"}
        previous = version


def test_odd_names_are_quoted(story):
    types = {"group": "string", 'a"b': "string", "x'; drop table t": "integer"}
    rows = [{"group": str(i), 'a"b': str(i), "x'; drop table t": i} for i in range(3)]
    first = story.next(rows, types, key=["group"])
    rows[1]['a"b'] = "new"
    rows[2]["x'; drop table t"] = 9
    second = story.next(rows, types, key=["group"])
    assert sorted(r["_ploti_changed_columns"] for r in second.changes) == [['a"b'], ["x'; drop table t"]]
    check_chain(first, second)
