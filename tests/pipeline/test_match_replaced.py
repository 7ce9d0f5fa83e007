"""Ids that are replaced: the map, the ledger, and what later versions make of them (D4.12, page 001 "replaced")."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipeline.match_story import Story, digest_by_definition

from ploti_server.domain.replacements import Replacement, ReplacementRefused

TYPES = {"k": "string", "v": "string", "n": "integer"}
ALL = Replacement()


@pytest.fixture
def story(tmp_path):
    return Story(tmp_path)


def rows(*keys, v="x"):
    return [{"k": k, "v": f"{v}{k}", "n": n} for n, k in enumerate(keys)]


def ids_by(version, column="k"):
    return {row[column]: row["_ploti_record_id"] for row in version.snapshot}


def entries(version, what):
    return {row["_ploti_record_id"]: row for row in version.ledger if row["what"] == what}


@pytest.mark.parametrize("key", [("k",), ()], ids=["keyed", "unkeyed"])
def test_all_ids_are_replaced_in_a_new_epoch_and_the_map_has_every_record_carried(story, key):
    before = story.next(rows("a", "b", "c"), TYPES, key=key)
    story.epoch = 1
    after = story.next(rows("a", "b", "c"), TYPES, key=key, replacement=ALL)
    old, new = ids_by(before), ids_by(after)
    assert after.id_map == {old[k]: new[k] for k in "abc"}
    assert not set(old.values()) & set(new.values())
    assert after.matched.renamed == 3
    assert after.matched.digest == digest_by_definition(after)


def test_a_record_not_in_the_map_is_new_and_an_old_id_not_in_it_is_gone(story):
    before = story.next(rows("a", "b", "c"), TYPES, key=("k",))
    story.epoch = 1
    after = story.next(rows("b", "c", "d"), TYPES, key=("k",), replacement=ALL)
    old, new = ids_by(before), ids_by(after)
    assert after.id_map == {old[k]: new[k] for k in "bc"}
    assert entries(after, "removed").keys() == {old["a"]}
    assert new["d"] in entries(after, "current")


def test_the_ledger_names_what_replaced_an_id_and_since_when_the_record_is_known(story):
    before = story.next(rows("a", "b"), TYPES, key=("k",))
    story.epoch = 1
    after = story.next(rows("a", "b"), TYPES, key=("k",), replacement=ALL)
    replaced, current = entries(after, "replaced_by"), entries(after, "current")
    assert {id_: entry["replaced_by"] for id_, entry in replaced.items()} == after.id_map
    assert {entry["first_version"] for entry in replaced.values()} == {1}
    assert {(entry["first_version"], entry["version"]) for entry in current.values()} == {(2, 2)}
    assert {entry["key_text"] for entry in current.values()} == {
        entry["key_text"] for entry in entries(before, "current").values()
    }


def test_equal_rows_get_ids_of_their_own_and_keep_them(story):
    same = [{"k": "a", "v": "x", "n": 1}] * 3 + rows("b")
    story.next(same, TYPES)
    story.epoch = 1
    replaced = story.next(same, TYPES, replacement=ALL)
    assert len(replaced.id_map) == 4
    assert story.next(same[1:], TYPES).counts == (0, 0, 1)


def test_later_versions_go_on_from_the_new_ids_and_a_record_that_returns_takes_the_new_one_back(story):
    story.next(rows("a", "b", "c"), TYPES, key=("k",))
    story.epoch = 1
    replaced = ids_by(story.next(rows("a", "b", "c"), TYPES, key=("k",), replacement=ALL))
    assert story.next(rows("a", "b"), TYPES, key=("k",)).of("removed")[0]["_ploti_record_id"] == replaced["c"]
    assert ids_by(story.next(rows("a", "b", "c", "d"), TYPES, key=("k",)))["c"] == replaced["c"]


def test_a_record_gone_before_the_replacement_returns_under_the_id_that_it_had(story):
    first = ids_by(story.next(rows("a", "b"), TYPES, key=("k",)))
    story.next(rows("a"), TYPES, key=("k",))
    story.epoch = 1
    story.next(rows("a"), TYPES, key=("k",), replacement=ALL)
    assert ids_by(story.next(rows("a", "b"), TYPES, key=("k",)))["b"] == first["b"]


def test_named_ids_move_to_the_ones_named_or_to_new_ones_and_the_map_shows_the_rest_as_it_was(story):
    first = ids_by(story.next(rows("a", "b", "c"), TYPES, key=("k",)))
    second = ids_by(story.next([*rows("a", "b"), {"k": "C", "v": "other", "n": 9}], TYPES, key=("k",)))
    named = Replacement(named={second["C"]: first["c"], second["a"]: None})
    third = story.next([*rows("a", "b"), {"k": "C", "v": "other", "n": 9}], TYPES, key=("k",), replacement=named)
    ids = ids_by(third)
    assert third.id_map == {second["C"]: first["c"], second["a"]: ids["a"], second["b"]: second["b"]}
    assert ids["C"] == first["c"]
    assert ids["a"] not in {*first.values(), *second.values()}
    assert third.matched.renamed == 2
    assert third.matched.digest == digest_by_definition(third)
    back = entries(third, "current")[first["c"]]
    assert (back["first_version"], back["key_text"]) == (1, "string:1:C;")


def test_a_named_id_whose_record_went_meanwhile_is_passed_over(story):
    first = ids_by(story.next(rows("a", "b"), TYPES, key=("k",)))
    named = Replacement(named={first["b"]: None})
    second = story.next(rows("a"), TYPES, key=("k",), replacement=named)
    assert (second.matched.renamed, second.id_map) == (0, {first["a"]: first["a"]})


def test_an_id_that_a_record_took_back_meanwhile_is_given_to_no_other(story):
    first = ids_by(story.next(rows("a", "b"), TYPES, key=("k",)))
    second = ids_by(story.next(rows("a", "c"), TYPES, key=("k",)))
    story.next(rows("a", "b", "c"), TYPES, key=("k",))
    named = Replacement(named={second["c"]: first["b"]})
    with pytest.raises(ReplacementRefused, match="carried by two records"):
        story.next(rows("a", "b", "c"), TYPES, key=("k",), replacement=named)


def test_new_ids_are_made_from_the_columns_named_whatever_the_rest_of_a_row_holds(story, tmp_path):
    other = Story(tmp_path / "other", epoch=1)
    story.next(rows("a", "b"), TYPES)
    story.epoch = 1
    by_key = Replacement(key=("K",))
    ids = ids_by(story.next(rows("a", "b"), TYPES, replacement=replace(by_key, key=("k",))))
    assert ids == ids_by(other.next(rows("b", "a", v="y"), TYPES, key=("k",)))
    assert ids_by(story.next([*rows("a", "b"), *rows("c")], TYPES)).items() >= ids.items()


@pytest.mark.parametrize(
    ("key", "told"),
    [(("v",), "2 rows share a value and 1 have none"), (("nothing",), "no column nothing: the dataset has k, v, n")],
)
def test_columns_that_do_not_tell_records_apart_make_no_ids(story, key, told):
    same = [{"k": "a", "v": "x", "n": 1}, {"k": "b", "v": "x", "n": 2}, {"k": "c", "v": None, "n": 3}]
    story.next(same, TYPES)
    with pytest.raises(ReplacementRefused, match=told):
        story.next(same, TYPES, replacement=Replacement(key=key))


SAME, OTHER = {"k": "a", "v": "r", "n": 1}, {"k": "b", "v": None, "n": 2}
HISTORY = ([SAME, SAME, OTHER], [OTHER, SAME, {"k": None, "v": "s", "n": 2}], [SAME, SAME, OTHER])


@pytest.mark.parametrize("named", [False, True], ids=["all", "named"])
@pytest.mark.parametrize("key", [("k",), ()], ids=["keyed", "unkeyed"])
def test_the_map_covers_what_is_carried_and_row_order_decides_nothing(key, named):
    check_replaced(HISTORY, key, named, 3)


def check_replaced(states, key, named, seed):
    """Tell three states, ids replaced in the second, twice in another row order: the same map and ids (I7)."""
    told = [_tell(states, key, named, shuffled) for shuffled in (None, seed)]
    assert told[0] == told[1]


def _tell(states, key, named, seed):
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder), seed=seed)
        before = story.next(states[0], TYPES, key=key)
        plain = story.next(states[1], TYPES, key=key, release=False)
        carried = {r["_ploti_record_id"] for r in before.snapshot} - {
            r["_ploti_record_id"] for r in plain.of("removed")
        }
        wanted = Replacement(named=dict.fromkeys(sorted(carried)[::2])) if named else ALL
        story.epoch = 0 if named else 1
        after = story.next(states[1], TYPES, key=key, replacement=wanted)
        assert after.id_map.keys() == carried
        assert set(after.id_map.values()) <= after.records().keys()
        moved = {old for old, new in after.id_map.items() if old != new}
        assert moved == (set(wanted.named) if named else carried)
        assert after.matched.digest == digest_by_definition(after)
        last = story.next(states[2], TYPES, key=key)
        return [sorted(v.records()) for v in (after, last)], sorted(after.id_map.items())
