"""What the matching agent is told about the version before, and what the built-in one makes of it (D4.8)."""

import pytest
import shapely
from tests.pipeline.match_story import Story, check_chain

from ploti_server.adapters.judge import BuiltInJudge
from ploti_server.domain.datasets import Dataset, SourceSpec

TYPES = {"k": "string", "name": "string", "house": "string", "fee": "integer", "seen": "integer", "city": "string",
         "geometry": "geometry"}  # fmt: skip
DATASET = Dataset("ds_story", "Story", SourceSpec("file", "x"))
FIRST = ["Ada", "Bea", "Cleo", "Dora", "Edna", "Flora", "Greta", "Hilde", "Ines", "Jutta"]


def flat(at, **other):
    """One of four flats of a house."""
    house = at // 4
    point = shapely.to_wkb(shapely.Point(house * 0.01, 0), byte_order=1)
    return {"k": f"{at:03d}", "name": f"{FIRST[at % 10]} {FIRST[at // 10 % 10]}son {at}",
            "house": f"{house} Oak Street",
            "fee": at % 3, "seen": at, "city": "Orlando", "geometry": point} | other  # fmt: skip


def told(folder, old, new, key=("k",), agent=True, seed=None):
    """Match two states; gives both versions and what the agent was asked and told."""
    asked = []

    def judge(pairs):
        asked.append(pairs)
        return BuiltInJudge().judge(DATASET, pairs, story.evidence) if agent else ()

    story = Story(folder, judge=judge, seed=seed)
    first = story.next(old, TYPES, key=key, volatile=("seen",))
    return first, story.next(new, TYPES, key=key, volatile=("seen",)), asked, story.evidence


@pytest.fixture
def some(tmp_path):
    """Of eighty flats, four are renumbered at another fee and 19 change their fee; one goes and one comes."""
    old = [flat(at) for at in range(80)]
    new = [flat(at, k=f"N{at}", fee=7) if at in (8, 20, 40, 60) else flat(at) for at in range(79)]
    new = [row | {"fee": 9} if at in range(30, 50) and at != 40 else row for at, row in enumerate(new)]
    return told(tmp_path, old, [*new, flat(300, k="X")], agent=False)


def test_only_compared_columns_are_told(some):
    _, _, _, evidence = some
    assert dict(evidence.columns) == {n: TYPES[n] for n in ("k", "name", "house", "fee", "geometry")}


def test_counts_are_those_of_the_version_before_and_its_left_overs(some):
    _, _, _, evidence = some
    assert (evidence.rows, evidence.left_old, evidence.left_new) == (80, 5, 5)


def test_values_are_counted_in_the_version_before(tmp_path):
    old = [flat(at) for at in range(40)]
    _, _, asked, evidence = told(tmp_path, old, [*old[1:], flat(0, k="N", fee=77)], agent=False)
    ((pair,),) = ([p for p in pairs if p.old["k"] == "000"] for pairs in asked)
    assert evidence.held["house"][pair.old["house"]] == 4
    assert evidence.held["name"][pair.old["name"]] == 1
    assert evidence.held["fee"][0] == 14
    assert 77 not in evidence.held["fee"]


def test_pairs_told_to_be_different_are_two_records_that_share_a_value_or_a_place(some):
    _, _, _, evidence = some
    assert len(evidence.apart) >= 100
    for one, other in evidence.apart:
        assert one["k"] != other["k"]
        assert any(one[n] == other[n] for n in evidence.columns)


def test_records_found_by_key_that_changed_are_told_as_the_same(some):
    _, _, _, evidence = some
    assert len(evidence.same) == 19
    assert all(old["k"] == new["k"] and new["fee"] == 9 for old, new in evidence.same)


def test_a_new_record_is_different_from_those_that_were_found_again(tmp_path):
    old = [flat(at) for at in range(40)]
    _, _, asked, evidence = told(tmp_path, old, [*old[1:], flat(0, k="N", fee=77)], agent=False)
    news = {id(pair.new) for pairs in asked for pair in pairs}
    beside = [other["k"] for one, other in evidence.apart if id(one) in news]
    assert sorted(beside) == ["001", "002", "003"]


def test_of_a_wide_dataset_the_pairs_told_to_be_different_share_most_over_all_columns(tmp_path):
    """Record 7 shares three values with record 6, far apart among 200 columns, and two with each of five others."""
    names = [f"c{at:03d}" for at in range(200)]
    nearest = dict.fromkeys(("c000", "c070", "c140"), 1)
    others = {f"c{20 + 2 * other + more:03d}": other for other in range(2, 7) for more in (0, 1)}

    def wide(at):
        shared = {name: f"both {min(at, at ^ other)}" for name, other in {**others, **nearest}.items()}
        return {"k": f"{at:02d}"} | {name: f"{at} {name}" for name in names} | shared

    story = Story(tmp_path, judge=lambda pairs: ())
    types = {"k": "string", **dict.fromkeys(names, "string")}
    old = [wide(at) for at in range(32)]
    story.next(old, types, key=("k",))
    story.next([*old[1:], old[0] | {"k": "N", "c199": "other"}], types, key=("k",))
    beside = {at: set() for at in range(32)}
    for one, other in story.evidence.apart:
        beside[int(one["k"].replace("N", "0"))].add(int(other["k"]))
    assert all(len(told) == 4 and at ^ 1 in told for at, told in beside.items() if at)


def test_neighbours_are_told_where_nothing_but_the_shape_is_compared(tmp_path):
    types = {"geometry": "geometry"}
    story = Story(tmp_path, judge=lambda pairs: BuiltInJudge().judge(DATASET, pairs, story.evidence))

    def cells(grown):
        areas = [shapely.box(at * 0.01, 0, (at + 1) * 0.01, 0.01 + grown * (1 + at) * 1e-5) for at in range(30)]
        return [{"geometry": shapely.to_wkb(shapely.MultiPolygon([area]), byte_order=1)} for area in areas]

    first = story.next(cells(0), types, kind="MultiPolygon")
    second = story.next(cells(1), types, kind="MultiPolygon")
    assert len(story.evidence.apart) >= 29
    assert second.matched.by["agent"] == 30
    assert {row["_ploti_record_id"] for row in first.snapshot} == {row["_ploti_record_id"] for row in second.snapshot}
    check_chain(first, second)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_publisher_who_renumbers_and_restyles_everything_keeps_every_id(tmp_path, seed):
    old = [flat(at) for at in range(80)]
    new = [flat(at, k=f"2026/{at * 7}", house=f"{at // 4} OAK ST", fee=at % 3 + 10) for at in range(80)]
    first, second, _, _ = told(tmp_path, old, new, seed=seed)
    before = {row["name"]: row["_ploti_record_id"] for row in first.snapshot}
    assert {row["name"]: row["_ploti_record_id"] for row in second.snapshot} == before
    assert second.matched.by["agent"] == 80
    check_chain(first, second)
