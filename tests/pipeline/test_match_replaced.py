"""Ids that are replaced: the map, the ledger, and what later versions make of them (D4.12, page 001 "replaced")."""

import tempfile
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


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A keyed history whose third version replaces all ids, gains `n` and loses `x`."""
    story = Story(tmp_path_factory.mktemp("story"))

    def take(*keys, **how):
        return story.next(rows(*keys), TYPES, key=("k",), **how)

    first, second = take("a", "b", "c", "g", "x"), take("a", "b", "c", "x")
    story.epoch = 1
    return [first, second, take("a", "b", "c", "n", replacement=ALL), take("a", "b", "n"), take(*"abcdgn")]


def test_all_ids_are_replaced_in_a_new_epoch_and_the_map_has_every_record_carried(told):
    _, before, after, *_ = told
    old, new = ids_by(before), ids_by(after)
    assert after.id_map == {old[k]: new[k] for k in "abc"}
    assert not set(old.values()) & set(new.values())
    assert after.matched.renamed == 3
    assert after.matched.digest == digest_by_definition(after)


def test_a_record_not_in_the_map_is_new(told):
    _, before, after, *_ = told
    unmapped = after.records().keys() - after.id_map.values()
    assert unmapped == {ids_by(after)["n"]}
    assert "n" not in ids_by(before)
    assert ids_by(after)["n"] in entries(after, "current")


def test_an_old_id_not_in_the_map_belongs_to_a_record_that_is_gone(told):
    _, before, after, *_ = told
    assert before.records().keys() - after.id_map.keys() == {ids_by(before)["x"]}
    assert entries(after, "removed").keys() == {ids_by(before)["x"]}
    assert "x" not in ids_by(after)


def test_the_ledger_names_what_replaced_an_id_and_since_when_the_record_is_known(told):
    first, _, after, *_ = told
    replaced, current = entries(after, "replaced_by"), entries(after, "current")
    assert {id_: entry["replaced_by"] for id_, entry in replaced.items()} == after.id_map
    assert {entry["first_version"] for entry in replaced.values()} == {1}
    assert {(entry["first_version"], entry["version"]) for entry in current.values()} == {(3, 3)}
    known = {entry["key_text"] for entry in entries(first, "current").values()}
    assert {current[id_]["key_text"] for id_ in after.id_map.values()} < known


def test_later_versions_go_on_from_the_new_ids_and_a_record_that_returns_takes_the_new_one_back(told):
    *_, replaced, later, last = told
    assert later.of("removed")[0]["_ploti_record_id"] == ids_by(replaced)["c"]
    assert ids_by(last)["c"] == ids_by(replaced)["c"]


def test_a_record_gone_before_the_replacement_returns_under_the_id_that_it_had(told):
    assert ids_by(told[-1])["g"] == ids_by(told[0])["g"]


def test_equal_rows_get_ids_of_their_own_and_keep_them(story):
    same = [{"k": "a", "v": "x", "n": 1}] * 3 + rows("b")
    story.next(same, TYPES)
    story.epoch = 1
    replaced = story.next(same, TYPES, replacement=ALL)
    assert len(replaced.id_map) == 4
    assert story.next(same[1:], TYPES).counts == (0, 0, 1)


OTHER_C = {"k": "C", "v": "other", "n": 9}


def test_named_ids_move_to_the_ones_named_or_to_new_ones_and_the_map_shows_the_rest_as_it_was(story):
    first = ids_by(story.next(rows("a", "b", "c"), TYPES, key=("k",)))
    second = ids_by(story.next([*rows("a", "b", "z"), OTHER_C], TYPES, key=("k",)))
    named = Replacement(named={second["C"]: first["c"], second["a"]: None, second["z"]: None})
    with pytest.raises(ReplacementRefused, match="1 ids would be carried by two records"):  # c took its id back
        story.next([*rows("a", "b", "c"), OTHER_C], TYPES, key=("k",), replacement=named)
    third = story.next([*rows("a", "b"), OTHER_C], TYPES, key=("k",), replacement=named)  # z went meanwhile
    ids = ids_by(third)
    assert third.id_map == {second["C"]: first["c"], second["a"]: ids["a"], second["b"]: second["b"]}
    assert ids["C"] == first["c"]
    assert ids["a"] not in {*first.values(), *second.values()}
    assert third.matched.renamed == 2
    assert third.matched.digest == digest_by_definition(third)
    back = entries(third, "current")[first["c"]]
    assert (back["first_version"], back["key_text"]) == (1, "string:1:C;")


def test_new_ids_are_made_from_the_columns_named_whatever_the_rest_of_a_row_holds(story, tmp_path):
    other = Story(tmp_path / "other", epoch=1)
    story.next([*rows("a", "b"), {"k": "c", "v": "xa", "n": None}], TYPES)
    story.epoch = 1
    for key, told in (
        ("v", "2 rows share a value and 0 have none"),
        ("n", "0 rows share a value and 1 have none"),
        ("nothing", "no column nothing: the dataset has k, v, n"),
    ):
        with pytest.raises(ReplacementRefused, match=told):
            story.next([*rows("a", "b"), {"k": "c", "v": "xa", "n": None}], TYPES, replacement=Replacement(key=(key,)))
    ids = ids_by(story.next(rows("a", "b"), TYPES, replacement=Replacement(key=("k",))))
    assert ids == ids_by(other.next(rows("b", "a", v="y"), TYPES, key=("k",)))


SAME, OTHER = {"k": "a", "v": "r", "n": 1}, {"k": "b", "v": None, "n": 2}
HISTORY = ([SAME, SAME, OTHER], [OTHER, SAME, {"k": None, "v": "s", "n": 2}])


def test_the_map_covers_what_is_carried_and_row_order_decides_nothing():
    check_replaced(HISTORY, (), False, 3)


def check_replaced(states, key, named, seed):
    """Tell states, ids replaced in the second, twice in another row order: the same map and ids (I7)."""
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
        carried = before.records().keys() - entries(after, "removed").keys()
        assert after.id_map.keys() == carried
        assert set(after.id_map.values()) <= after.records().keys()
        moved = {old for old, new in after.id_map.items() if old != new}
        assert moved == (carried & wanted.named.keys() if named else carried)
        assert after.matched.digest == digest_by_definition(after)
        later = [story.next(state, TYPES, key=key) for state in states[2:]]
        return [sorted(version.records()) for version in (after, *later)], sorted(after.id_map.items())
