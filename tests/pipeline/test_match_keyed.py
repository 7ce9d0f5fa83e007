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
