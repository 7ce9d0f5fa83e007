"""The built-in agent: who is one record, who is not, and that it never guesses between equals (D4.8)."""

import itertools
import random
import subprocess
import sys
from datetime import date

import pytest
import shapely

from ploti_server.adapters.agents import AgentsByName, NobodyJudges
from ploti_server.adapters.judge import BuiltInJudge
from ploti_server.domain.datasets import Dataset, MatchingLimits, SourceSpec
from ploti_server.domain.evidence import Evidence
from ploti_server.ports import Pair

TYPES = {"number": "string", "name": "string", "street": "string", "kind": "string", "opened": "date",
         "fee": "number", "geometry": "geometry"}  # fmt: skip
NAMES = ["Oak", "Elm", "Lake", "Bay", "Hill", "Park", "Mill", "Sun", "Star", "Moon", "Reef", "Cove"]
SHOPS = ["Grill", "Bar", "Bakery", "Salon", "Market", "Tire", "Books", "Dental"]
SHOP = Dataset("ds_shops", "Shops", SourceSpec("file", "x"))


def shops(count=240):
    """Shops, four to a building, all of one opening day and kind."""
    chance = random.Random(5)
    names = [f"{a} {b} {c}" for a, b, c in itertools.product(NAMES, NAMES, SHOPS)]
    chance.shuffle(names)
    made = []
    for place in range(count):
        house = place // 4
        made.append(
            {
                "number": f"L-{place:05d}", "name": names[place],
                "street": f"{100 + 7 * house} {NAMES[house % 12]} Street",
                "kind": "Retail" if house % 2 else "Food", "opened": date(2020, 1 + house % 12, 1 + house % 28),
                "fee": float(25 * (1 + place % 3)), "geometry": shapely.to_wkb(shapely.Point(-81 + house * 0.01, 28)),
            }
        )  # fmt: skip
    return made


def evidence(rows, same=(), types=TYPES):
    """What the version before tells: neighbours of one building are known to be different."""
    held = {name: {} for name in types}
    for row in rows:
        for name in types:
            held[name][row[name]] = held[name].get(row[name], 0) + 1
    apart = [(rows[at], rows[at - at % 4 + turn]) for at in range(len(rows)) for turn in range(4) if turn != at % 4]
    return Evidence(types, len(rows), 1, 1, held, apart, same)


def judged(pairs, known):
    named = [Pair(str(place), old, new) for place, (old, new) in enumerate(pairs)]
    answers = {one.pair_id: one for one in BuiltInJudge().judge(SHOP, named, known)}
    return [answers[pair.pair_id] for pair in named]


def matches(judgement):
    return judgement.same and judgement.confidence >= MatchingLimits().min_confidence


@pytest.mark.parametrize(
    ("what", "edit", "expected"),
    [
        ("renumbered", {"number": "2026/881"}, True),
        ("another fee and day", {"fee": 300.0, "opened": date(2021, 6, 1)}, True),
        ("name in capitals", {"name": str.upper}, True),
        ("street shortened, renumbered", {"street": lambda t: t.replace("Street", "St"), "number": "N9"}, True),
        ("moved, renumbered", {"geometry": shapely.to_wkb(shapely.Point(-80.99995, 28)), "number": "9"}, True),
        ("the shop next door", {"number": "L-90000", "name": "Zebra Vape", "fee": 300.0}, False),
        ("a branch far away", {"number": "L-90000", "street": "9 Far Road", "opened": date(2026, 1, 1), "kind": "Bar",
                               "geometry": None, "fee": 300.0}, False),
    ],
)  # fmt: skip
def test_edits_of_one_record_and_records_that_only_resemble_it(what, edit, expected):
    rows = shops()
    old = rows[4]
    new = old | {name: value(old[name]) if callable(value) else value for name, value in edit.items()}
    (found,) = judged([(old, new)], evidence(rows))
    assert matches(found) is expected, (what, found)


def lot(at, grown=0.0):
    """A lot of a street, drawn a little taller where asked."""
    area = shapely.box(at * 0.001, 0, at * 0.001 + 0.0008, 0.0008 + grown)
    return shapely.to_wkb(shapely.MultiPolygon([area]), byte_order=1)


@pytest.mark.parametrize(
    ("what", "edit", "said"),
    [
        ("a letter lost", {"name": lambda t: t.replace(t[1], "", 1)}, "name alike"),
        ("two letters swapped", {"name": lambda t: t[1] + t[0] + t[2:]}, "name close"),
        ("shortened", {"street": lambda t: t.replace("Street", "St")}, "street alike"),
        ("words in another order", {"name": lambda t: f"{t.split()[-1]}, {' '.join(t.split()[:-1])}"}, "name alike"),
        ("capitals", {"name": str.upper}, "name alike"),
        ("punctuation", {"name": lambda t: t.replace(" ", " - ") + "."}, "name alike"),
        ("accents", {"name": lambda t: t.replace("a", "á").replace("o", "ó")}, "name alike"),
        ("a word more", {"name": lambda t: f"{t} Co"}, "name"),
        ("one digit of the number", {"number": "L-00904"}, "name same, rare"),
        ("another number", {"number": "2026/881"}, "name same, rare"),
        ("moved 20 m", {"at": shapely.to_wkb(shapely.Point(-80.98980, 28))}, "at close"),
        ("moved 120 m", {"at": shapely.to_wkb(shapely.Point(-80.98878, 28))}, "name same, rare"),
        ("redrawn", {"geometry": lot(4, 0.00005)}, "geometry close"),
        ("a strip added", {"geometry": lot(4, 0.0003)}, "geometry"),
        ("a day later", {"opened": date(2020, 2, 3)}, "name same, rare"),
        ("a year later", {"opened": date(2021, 2, 2)}, "name same, rare"),
        ("a higher fee", {"fee": 51.0}, "name same, rare"),
        ("a value lost", {"street": None}, "name same, rare"),
    ],
)  # fmt: skip
def test_each_edit_is_seen_through_and_told(what, edit, said):
    types = TYPES | {"at": "geometry"}
    rows = [row | {"at": row["geometry"], "geometry": lot(place)} for place, row in enumerate(shops())]
    old = rows[4]
    new = old | {name: value(old[name]) if callable(value) else value for name, value in edit.items()}
    assert new != old
    (found,) = judged([(old, new)], evidence(rows, types=types))
    assert matches(found), (what, found)
    assert said in found.explanation, (what, found)


def test_of_two_partners_that_are_nearly_alike_neither_is_taken():
    rows = shops()
    old = rows[4]
    one, other = old | {"number": "X1"}, old | {"number": "X2"}
    assert matches(judged([(old, one)], evidence(rows))[0])
    assert [matches(found) for found in judged([(old, one), (old, other)], evidence(rows))] == [False, False]


def test_a_twin_that_stays_leaves_its_brother_without_a_partner():
    rows = shops()
    old = rows[4]
    rows[5] = old | {"number": "L-00005"}
    (found,) = judged([(old, old | {"number": "X1"})], evidence(rows))
    assert not matches(found)


def test_what_the_publisher_does_to_every_row_is_learnt_from_records_found_by_key():
    rows = shops()
    pair = (rows[4], rows[4] | {"fee": 900.0, "number": "X1"})
    usual = [(row, row | {"fee": 900.0 + place}) for place, row in enumerate(rows)]
    before = judged([pair], evidence(rows))[0]
    after = judged([pair], evidence(rows, same=usual))[0]
    assert "fee different" in before.explanation.split("against")[1]
    assert "fee different" not in after.explanation.split("against")[1]


def test_a_judgement_says_which_columns_agree_and_by_how_much():
    rows = shops()
    (found,) = judged([(rows[4], rows[4] | {"name": rows[4]["name"].upper(), "fee": 900.0})], evidence(rows))
    assert found.explanation.startswith("for: number same")
    assert "name alike +" in found.explanation
    assert "against: fee different -" in found.explanation


def test_order_of_pairs_decides_nothing():
    rows = shops()
    pairs = [(rows[at], rows[at] | {"number": f"X{at}", "fee": 900.0}) for at in range(40)]
    pairs += [(rows[at], rows[at + 1] | {"number": f"X{at}"}) for at in range(0, 40, 2)]
    there = judged(pairs, evidence(rows))
    back = judged(pairs[::-1], evidence(rows))[::-1]
    assert [(a.same, a.confidence) for a in there] == [(b.same, b.confidence) for b in back]


def test_another_process_with_other_hash_seed_and_threads_judges_alike():
    script = (
        "from tests.adapters.test_judge import *\n"
        "rows = shops()\n"
        "pairs = [(rows[at], rows[at] | {'number': f'X{at}', 'name': rows[at]['name'].upper()}) for at in range(40)]\n"
        "print([(j.same, j.confidence, j.explanation) for j in judged(pairs, evidence(rows))])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "OPENBLAS_NUM_THREADS": threads, "PYTHONPATH": path},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed, threads, path in (("1", "1", ":".join(sys.path)), ("77", "2", ":".join(sys.path)))
    }  # fmt: skip
    assert len(told) == 1


@pytest.mark.parametrize("known", [Evidence({}), Evidence(TYPES)], ids=["nothing compared", "nothing known"])
def test_little_evidence_is_no_ground_for_a_match(known):
    rows = shops(8)
    found = BuiltInJudge().judge(SHOP, [Pair("1", rows[0], rows[1])], known)
    assert not any(matches(one) for one in found)


def test_no_pairs_no_judgements():
    assert BuiltInJudge().judge(SHOP, [], Evidence(TYPES)) == ()


@pytest.mark.parametrize(("agent", "answered"), [("built-in", 1), ("nobody", 0)])
def test_the_dataset_names_its_agent(agent, answered):
    rows = shops()
    agents = AgentsByName({"built-in": BuiltInJudge(), "nobody": NobodyJudges()})
    dataset = Dataset("ds_a", "A", SourceSpec("file", "x"), matching=MatchingLimits(agent=agent))
    assert len(agents.judge(dataset, [Pair("1", rows[0], rows[0])], evidence(rows))) == answered
