import pytest
from tests.pipeline.match_story import Story, check_chain

TYPES = {"k": "string", "a": "string", "n": "number"}


@pytest.fixture
def story(tmp_path):
    return Story(tmp_path)


def row(k, a="x", n=1.5):
    return {"k": k, "a": a, "n": n}


def test_first_version_adds_every_row(story):
    first = story.next([row("1"), row("2"), row("3", None)], TYPES, key=["k"])
    assert first.counts == (3, 0, 0)
    assert first.matched.digest.records == 3
    assert all(r["_ploti_change"] == "added" for r in first.changes)
    check_chain(None, first)


def test_key_finds_records_again(story):
    first = story.next([row("1"), row("2"), row("3")], TYPES, key=["k"])
    second = story.next([row("4", "z"), row("3", "y"), row("1")], TYPES, key=["k"])
    assert second.counts == (1, 1, 1)
    (changed,) = second.of("changed")
    assert changed["_ploti_changed_columns"] == ["a"]
    assert (changed["_ploti_match"], changed["_ploti_match_score"]) == ("key", None)
    assert dict(first.ids("k"))[("3",)] == changed["_ploti_record_id"]
    check_chain(first, second)
    (removed,) = second.of("removed")
    assert removed["_ploti_delete_reason"] == "removed_at_source"
    assert [removed[name] for name in TYPES] == [None] * 3


def test_a_returning_key_takes_its_old_id_back(story):
    first = story.next([row("1", "x"), row("2", "y")], TYPES, key=["k"])
    story.next([row("2", "y"), row("3", "z")], TYPES, key=["k"])
    third = story.next([row("1", "other"), row("2", "y"), row("3", "z")], TYPES, key=["k"])
    assert third.counts == (1, 0, 0)
    assert third.matched.by["ledger"] == 1
    assert dict(third.ids("k"))[("1",)] == dict(first.ids("k"))[("1",)]
    (entry,) = third.ledger
    assert (entry["key_text"], entry["first_version"]) == ("string:1:1;", 1)


def test_renumbered_records_keep_ids_by_content_and_come_back(story):
    """F033: keys go from A to B and back."""
    first = story.next([row(f"A{i}", f"a{i}", i) for i in range(50)], TYPES, key=["k"])
    second = story.next([row(f"B{i}", f"a{i}", i) for i in range(50)], TYPES, key=["k"])
    third = story.next([row(f"A{i}", f"a{i}", i) for i in range(50)], TYPES, key=["k"])
    assert second.counts == third.counts == (0, 50, 0)
    assert all(r["_ploti_changed_columns"] == ["k"] and r["_ploti_match"] == "content" for r in second.changes)
    assert first.records() == third.records()
    check_chain(first, second)


def test_a_key_freed_by_renumbering_gets_an_id_that_nobody_carried(story):
    story.next([row("A", "a"), row("C", "c", 2)], TYPES, key=["k"])
    story.next([row("B", "a"), row("C", "c", 2)], TYPES, key=["k"])
    third = story.next([row("A", "new", 7), row("B", "a"), row("C", "c", 2)], TYPES, key=["k"])
    assert third.counts == (1, 0, 0)
    assert len(third.records()) == 3
    assert [e["ordinal"] for e in third.ledger] == [1]


def test_groups_of_equal_content_are_not_guessed(story):
    story.next([row("1"), row("2"), row("9", "y", 7)], TYPES, key=["k"])
    second = story.next([row("3"), row("4"), row("9", "y", 7)], TYPES, key=["k"])
    assert second.counts == (2, 0, 2)


def test_content_needs_a_discriminating_value(story):
    old = [row(str(i), "x", 1.0 + i % 2) for i in range(102)] + [row("a", "x", 5.0)]
    new = [row(f"n{i}", "x", 1.0 + i % 2) for i in range(102)] + [row("b", "x", 5.0), row("c", "y", 6.0)]
    story.next(old, TYPES, key=["k"])
    second = story.next(new, TYPES, key=["k"])
    assert [r["k"] for r in second.of("changed")] == ["b"]


@pytest.mark.parametrize("useless", [["k", "k"], [None, None], [None]])
def test_rows_with_useless_keys_get_ids_by_content_and_keep_them(story, useless):
    """F040 and D6.4."""
    rows = [row("1"), *(row(k, "same", 2) for k in useless)]
    first = story.next(rows, TYPES, key=["k"])
    facts = first.matched.facts
    assert (facts["duplicate_keys"], facts["null_keys"]) == (useless.count("k"), useless.count(None))
    second = story.next(rows, TYPES, key=["k"])
    assert second.counts == (0, 0, 0)
    assert second.records() == first.records()
    third = story.next([row("1"), row("k", "same", 2)], TYPES, key=["k"])
    check_chain(second, third)


def test_one_of_two_equal_keys_goes(story):
    first = story.next([row("k", "a"), row("k", "b"), row("z", "c")], TYPES, key=["k"])
    second = story.next([row("k", "a"), row("z", "c")], TYPES, key=["k"])
    assert second.counts == (0, 0, 1)
    check_chain(first, second)


@pytest.mark.parametrize("key", ["k", None])
@pytest.mark.parametrize(("before", "now"), [(2, 1), (1, 2), (3, 2), (2, 3)])
def test_of_equal_rows_some_come_or_go_and_the_others_stay(story, key, before, now):
    first = story.next([row("z", "c"), *[row(key, "a")] * before], TYPES, key=["k"])
    second = story.next([row("z", "c"), *[row(key, "a")] * now], TYPES, key=["k"])
    assert second.counts == (max(0, now - before), 0, max(0, before - now))
    assert len(first.records().keys() & second.records().keys()) == 1 + min(before, now)
    check_chain(first, second)


def test_types_of_keys_tell_records_apart(tmp_path):
    text = Story(tmp_path / "0").next([{"k": "1"}], {"k": "string"}, key=["k"])
    number = Story(tmp_path / "1").next([{"k": 1}], {"k": "integer"}, key=["k"])
    renamed = Story(tmp_path / "2").next([{"other": "1"}], {"other": "string"}, key=["other"])
    assert set(text.records()).isdisjoint(number.records())
    assert set(text.records()) == set(renamed.records())


def test_composite_keys_and_constant_key_columns(story):
    types = {"book": "string", "page": "integer", "a": "string"}
    rows = [{"book": "A", "page": p, "a": f"x{p}"} for p in range(3)]
    first = story.next(rows, types, key=["book", "page"])
    second = story.next([*rows[:2], {"book": "A", "page": 2, "a": "y"}], types, key=["book", "page"])
    assert second.counts == (0, 1, 0)
    assert [r["_ploti_changed_columns"] for r in second.changes] == [["a"]]
    check_chain(first, second)
