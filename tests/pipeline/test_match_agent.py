"""Left-over records and the matching agent (D4.6 to D4.10)."""

import random

import pytest
import shapely
from tests.pipeline.match_story import Story, check_chain

from ploti_server.domain.datasets import MatchingLimits
from ploti_server.pipeline.match import Waiting
from ploti_server.ports import Judgement

TYPES = {"k": "string", "name": "string", "street": "string", "geometry": "geometry"}


def point(x, y):
    return shapely.to_wkb(shapely.points(x, y), byte_order=1)


def row(k, name=None, street=None, at=None):
    return {"k": k, "name": name, "street": street, "geometry": at and point(*at)}


class Agent:
    """Holds pairs with one name, or all, for the same; remembers what it was asked."""

    def __init__(self, confidence=0.9, same=lambda pair: True):
        self.asked, self.confidence, self.same = [], confidence, same

    def __call__(self, pairs):
        self.asked.append([(pair.old["k"], pair.new["k"]) for pair in pairs])
        return [Judgement(p.pair_id, self.same(p), self.confidence) for p in pairs]


def two(tmp_path, old, new, key=("k",), judge=None, **matching):
    story = Story(tmp_path, judge=judge or Agent(), matching=MatchingLimits(**matching))
    first = story.next(old, TYPES, key=key)
    return story, first, story.next(new, TYPES, key=key)


def test_an_edited_and_renumbered_record_keeps_its_id(tmp_path):
    old = [row("1", "Oak Grill", "Oak St"), row("2", "Elm Bar", "Elm St")]
    new = [row("9", "Oak Grill", "Oak Street"), row("2", "Elm Bar", "Elm St")]
    _, first, second = two(tmp_path, old, new)
    (changed,) = second.changes
    assert changed["_ploti_change"] == "changed"
    assert (changed["_ploti_match"], changed["_ploti_match_score"]) == ("agent", 0.9)
    assert changed["_ploti_changed_columns"] == ["k", "street"]
    assert second.matched.by["agent"] == 1
    check_chain(first, second)


class Watched(Story):
    """Keeps the names of the tables that the last matching made."""

    def _release(self, tables, read, folder):
        names = tables.query("SELECT t.table_name FROM information_schema.tables t")
        self.names = {name for batch in names for name in batch["table_name"].to_pylist()}
        super()._release(tables, read, folder)


@pytest.mark.parametrize(("judge", "looked_for"), [(None, False), (Agent(), True)], ids=["nobody", "an agent"])
def test_where_nobody_judges_no_candidates_are_looked_for(tmp_path, judge, looked_for):
    story = Watched(tmp_path, judge=judge)
    story.next([row("1", "Oak Grill", "Oak St"), row("2")], TYPES, key=("k",))
    second = story.next([row("9", "Oak Grill", "Oak Street"), row("2")], TYPES, key=("k",))
    assert any(name.startswith("ask_") for name in story.names) is looked_for
    assert second.counts == ((0, 1, 0) if looked_for else (1, 0, 1))


def test_unkeyed_records_too(tmp_path):
    old = [row(None, "Oak Grill", "Oak St"), row(None, "Elm Bar", "Elm St")]
    new = [row(None, "Oak Grill", "Oak Street"), row(None, "Elm Bar", "Elm St")]
    _, first, second = two(tmp_path, old, new, key=())
    assert second.counts == (0, 1, 0)
    check_chain(first, second)


@pytest.mark.parametrize(
    ("old", "new", "asked"),
    [
        (row("1", "a", "s"), row("9", "a", "t"), True),
        (row("1", "a", "s"), row("9", "b", "t"), False),
        (row("1", "a", "s", (0, 0)), row("9", "b", "t", (0.0004, 0)), True),
        (row("1", "a", "s", (0, 0)), row("9", "b", "t", (0.0005, 0)), False),
        (row("1", "a", "s", (10, 80)), row("9", "b", "t", (10.0025, 80)), True),
        (row("1", "a", "s", (-179.9999, 0)), row("9", "b", "t", (179.9999, 0)), True),
        (row("1", None, "s"), row("9", None, "t"), False),
    ],
    ids=["a value", "nothing", "44 m", "55 m", "48 m far north", "over the date line", "nulls share nothing"],
)
def test_who_is_a_candidate(tmp_path, old, new, asked):
    agent = Agent()
    others = [row("z", "zz", "zz"), row("y", "yy", "yy")]
    two(tmp_path, [old, *others], [new, *others], judge=agent)
    assert agent.asked == ([[("1", "9")]] if asked else [])


def test_a_value_that_many_left_overs_hold_tells_nothing(tmp_path):
    agent = Agent()
    old = [row(f"o{i}", "same", f"s{i}") for i in range(51)]
    new = [row(f"n{i}", "same", f"t{i}") for i in range(51)]
    two(tmp_path, [*old, row("z", "zz", "s")], [*new, row("z", "zz", "s")], judge=agent)
    assert agent.asked == []
    two(tmp_path / "b", [*old[1:], row("z", "zz", "s")], [*new[1:], row("z", "zz", "s")], judge=agent)
    assert len(agent.asked) == 1


@pytest.mark.parametrize(
    ("confidence", "same", "matched"),
    [(0.85, True, 1), (0.849, True, 0), (1.0, True, 1), (1.01, True, 0), (0.99, False, 0)],
)
def test_only_same_at_enough_confidence_matches_and_the_row_tells_it(tmp_path, confidence, same, matched):
    agent = Agent(confidence, lambda pair: same)
    new = [row("9", "a", "t"), row("z", None, "edited")]
    _, _, second = two(tmp_path, [row("1", "a"), row("z")], new, judge=agent)
    assert second.matched.by["agent"] == matched
    assert second.counts == ((0, 2, 0) if matched else (1, 1, 1))
    scores = {row["k"]: row["_ploti_match_score"] for row in second.of("changed")}
    assert scores == {"z": None} | ({"9": confidence} if matched else {})


def test_a_record_that_the_agent_holds_for_another_is_deleted(tmp_path):
    other = Agent(same=lambda pair: False)
    _, first, second = two(tmp_path, [row("1", "a"), row("z")], [row("9", "a", "t"), row("z")], judge=other)
    assert other.asked == [[("1", "9")]]
    (removed,) = second.of("removed")
    assert removed["_ploti_record_id"] == dict(first.ids("k"))[("1",)]
    assert second.of("changed") == []


def test_an_edited_record_that_nobody_could_match_is_a_delete_and_an_added_row(tmp_path):
    old, new = [row("1", "a"), row("z")], [row("9", "a", "t"), row("z")]
    _, first, second = two(tmp_path, old, new, judge=lambda pairs: ())
    assert second.counts == (1, 0, 1)
    ((added,), (removed,)) = (second.of("added"), second.of("removed"))
    assert (added["k"], removed["k"]) == ("9", None)
    assert removed["_ploti_record_id"] == dict(first.ids("k"))[("1",)] != added["_ploti_record_id"]


def test_an_agent_that_answers_later_leaves_a_wait(tmp_path):
    old, new = [row("1", "a"), row("z")], [row("9", "a", "t"), row("z")]
    story, _, waiting = two(tmp_path, old, new, judge=lambda pairs: None)
    assert isinstance(waiting, Waiting)
    (pair,) = waiting.pairs
    assert (pair.old["k"], pair.new["k"], pair.new["street"]) == ("1", "9", "t")
    story.judge = lambda pairs: [Judgement(pair.pair_id, True, 0.95)]
    again = story.next(new[::-1], TYPES, key=["k"])
    assert again.counts == (0, 1, 0)


def test_what_is_beyond_the_limit_arrives_as_deletes_and_adds(tmp_path):
    old = [row(f"o{i}", f"name {i}", f"s{i}") for i in range(10)]
    new = [row(f"n{i}", f"name {i}", f"t{i}") for i in range(10)]
    _, _, second = two(tmp_path, old, new, max_judged=4)
    assert second.counts == (6, 4, 6)


def test_200_are_judged_chosen_among_the_first_20000_and_none_above_250000(tmp_path):
    limits = MatchingLimits()
    assert (limits.max_judged, limits.judged_from_first, limits.none_judged_above) == (200, 20_000, 250_000)
    old = [row(f"o{i}", f"n{i % 5}", f"s{i}") for i in range(30)]
    new = [row(f"n{i}", f"n{i % 5}", f"t{i}") for i in range(30)]
    pairs = {}
    for name, limits in {
        "open": {},
        "records": {"max_judged": 4},
        "best": {"candidates_per_record": 2},
        "first": {"judged_from_first": 10},
        "none": {"none_judged_above": 29},
    }.items():
        agent = Agent()
        two(tmp_path / name, old, new, judge=agent, **limits)
        pairs[name] = agent.asked[0] if agent.asked else []
    assert len(pairs["open"]) == 30 * 6
    assert len({o for o, _ in pairs["records"]}) == 4
    assert all(sum(o == one for o, _ in pairs["best"]) <= 2 for one, _ in pairs["best"])
    assert all(sum(n == one for _, n in pairs["best"]) <= 2 for _, one in pairs["best"])
    assert len({o for o, _ in pairs["first"]}) <= 10
    assert pairs["none"] == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pairs_and_ids_do_not_depend_on_row_order(tmp_path, seed):
    chance = random.Random(7)
    old = [row(f"o{i}", f"n{chance.randrange(9)}", f"s{i % 7}", (i * 1e-4, 0)) for i in range(40)]
    new = [row(f"n{i}", f"n{chance.randrange(9)}", f"s{i % 7}", (i * 1e-4, 1e-4)) for i in range(40)]

    def tell(folder, seed):
        agent = Agent(same=lambda pair: pair.old["name"] == pair.new["name"])
        story = Story(folder, judge=agent, seed=seed)
        story.next(old, TYPES, key=["k"])
        second = story.next(new, TYPES, key=["k"])
        return agent.asked, sorted(map(repr, second.changes))

    assert tell(tmp_path / "a", None) == tell(tmp_path / "b", seed)
