"""What is compared, and who is matched by the agent: tables of the rules (D4.4, D4.5, D4.8)."""

from dataclasses import dataclass

import pytest

from ploti_server.domain.matching import Assignment, Side, assign, first_plan, own_types, plan_matching
from ploti_server.domain.schema import Column, Schema


def schema(text, key=()):
    """Read columns like `a:string b:integer* geometry:geometry(Point)`; a star marks a volatile one."""
    columns = []
    for part in text.split():
        name, type_ = part.rstrip("*").split(":")
        kind = type_.removesuffix(")").partition("(")[2] or None
        columns.append(Column(name, type_.partition("(")[0], True, name, part.endswith("*"), kind))
    return Schema(tuple(columns), tuple(key))


def side(text, key=(), rows=5, nulls=None, **singles):
    return Side(schema(text, key), rows, nulls or {}, singles)


PLANS = {
    "columns of both": (side("a:string b:string"), side("b:string c:string"), {"compared": ("b",), "added": ("c",)}),
    "in the new order": (side("a:string b:string"), side("b:string a:string"), {"compared": ("b", "a")}),
    "volatile now": (side("a:string b:string"), side("a:string b:string*"), {"compared": ("a",), "added": ()}),
    "volatile before": (side("a:string b:string*"), side("a:string b:string"), {"compared": ("a",), "added": ("b",)}),
    "retyped": (
        side("a:integer b:string"),
        side("a:string b:string"),
        {"compared": ("b",), "retyped": ("a",), "added": ()},
    ),
    "another kind of shape": (
        side("geometry:geometry(Point) b:string"),
        side("geometry:geometry(MultiPolygon) b:string"),
        {"compared": ("b",), "compares_shapes": False},
    ),
    "shapes": (
        side("geometry:geometry(Point) b:string"),
        side("geometry:geometry(Point) b:string"),
        {"compared_values": ("b",), "compares_shapes": True},
    ),
    "constant in both": (
        side("a:string b:string", b="x"),
        side("a:string b:string", b="x"),
        {"compared": ("a",), "constants": ("b",), "moved": ()},
    ),
    "constant that moved": (side("a:string b:string", b="x"), side("a:string b:string", b=None), {"moved": ("b",)}),
    "constant in one": (side("a:string b:string", b="x"), side("a:string b:string"), {"compared": ("a", "b")}),
    "one row before": (side("a:string", rows=1, a="x"), side("a:string", a="y"), {"compared": ("a",), "moved": ()}),
    "one row now": (side("a:string", a="x"), side("a:string", rows=1, a="y"), {"compared": ("a",), "moved": ()}),
    "a shape is never a constant": (
        side("geometry:geometry(Point)", geometry="00"),
        side("geometry:geometry(Point)", geometry="01"),
        {"compares_shapes": True, "constants": ()},
    ),
    "same key": (side("a:string b:string", ["a"]), side("a:string b:string", ["a"]), {"key": ("a",), "keyed": True}),
    "constant key": (
        side("a:string b:string", ["a"], a="x"),
        side("a:string b:string", ["a"], a="x"),
        {"key": ("a",), "compared": ("b",)},
    ),
    "all rows equal": (
        side("a:string b:string", a="x", b=None),
        side("a:string b:string", a="x", b=None),
        {"content": True, "compared": ("a", "b"), "moved": ()},
    ),
    "all rows equal but a constant that moved": (
        side("a:string b:string", a="x", b="1"),
        side("a:string b:string", a="x", b="2"),
        {"content": True, "compared": ("a",), "moved": ("b",)},
    ),
    "all rows empty": (
        side("a:string", nulls={"a": 5}, a=None),
        side("a:string", nulls={"a": 5}, a=None),
        {"content": True, "compared": ("a",)},
    ),
    "a constant where no other column has a value": (
        side("a:string b:string", nulls={"b": 5}, a="x", b=None),
        side("a:string b:string", nulls={"b": 4}, a="x"),
        {"content": True, "compared": ("a", "b")},
    ),
    "key pinned": (side("a:string b:string"), side("a:string b:string", ["a"]), {"key": ("a",), "keyed": True}),
    "key changed": (side("a:string b:string", ["a"]), side("a:string b:string", ["b"]), {"key": ("b",)}),
    "key dropped": (side("a:string b:string", ["a"]), side("a:string b:string"), {"key": (), "keyed": False}),
    "key retyped": (side("a:integer", ["a"]), side("a:string", ["a"]), {"key": (), "keyed": True}),
    "key of a new column": (side("b:string", ["b"]), side("a:string b:string", ["a"]), {"key": (), "keyed": True}),
    "a value in both": (side("a:string", nulls={"a": 4}), side("a:string"), {"content": True}),
    "no value before": (side("a:string", nulls={"a": 5}), side("a:string"), {"content": False}),
    "nothing compared": (side("a:string"), side("b:string"), {"content": False, "compared": ()}),
}


@pytest.mark.parametrize(("old", "new", "expected"), PLANS.values(), ids=PLANS)
def test_plan(old, new, expected):
    plan = plan_matching(old, new)
    assert {name: getattr(plan, name) for name in expected} == expected


def test_first_plan_compares_nothing():
    plan = first_plan(side("a:string", ["a"]))
    assert (plan.keyed, plan.key, plan.compared, plan.added) == (True, (), (), ())


def test_own_types():
    assert own_types(schema("a:string b:integer*")) == {"a": "string", "b": "integer"}
    assert own_types(schema("a:string b:integer*"), volatile=False) == {"a": "string"}


@dataclass(frozen=True)
class Answer:
    pair_id: str
    same: bool
    confidence: float


PAIRS = {"p1": ("rec_a", 1, "h1"), "p2": ("rec_a", 2, "h2"), "p3": ("rec_b", 1, "h1"), "p4": ("rec_b", 2, "h2")}
ANSWERS = {
    "best first": ({"p1": 0.9, "p2": 0.95, "p3": 0.86}, [("rec_a", 2, 0.95), ("rec_b", 1, 0.86)]),
    "one to one": ({"p1": 0.99, "p2": 0.98, "p3": 0.97}, [("rec_a", 1, 0.99)]),
    "ties by old id, then by content": (
        {"p1": 0.9, "p2": 0.9, "p3": 0.9, "p4": 0.9},
        [("rec_a", 1, 0.9), ("rec_b", 2, 0.9)],
    ),
    "just enough": ({"p1": 0.85}, [("rec_a", 1, 0.85)]),
    "not enough": ({"p1": 0.8499}, []),
    "beyond one": ({"p1": 1.5}, []),
    "not a number": ({"p1": float("nan")}, []),
    "unknown pair": ({"p9": 0.9}, []),
}


@pytest.mark.parametrize(("answers", "expected"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("turn", [1, -1])
def test_assign(answers, expected, turn):
    judged = [Answer(pair, True, confidence) for pair, confidence in answers.items()][::turn]
    assert assign(judged, PAIRS, 0.85) == tuple(Assignment(*one) for one in expected)


def test_different_is_no_match():
    assert assign([Answer("p1", False, 1.0)], PAIRS, 0.85) == ()
