"""How alike two values are: what clerks and systems do to a value, row by row (D4.8)."""

import numpy as np
import pytest
from rapidfuzz import fuzz
from rapidfuzz.distance import OSA

from ploti_server.domain import similarity
from ploti_server.domain.similarity import Folded, Level


def level(old, new):
    one, other = Folded.of(old), Folded.of(new)
    letters = fuzz.ratio(one.whole, other.whole) / 100
    return similarity.text_level(one, other, letters, OSA.distance(one.whole, other.whole))


@pytest.mark.parametrize(
    ("what", "old", "new", "expected"),
    [
        ("case", "Oak Grill", "OAK GRILL", Level.ALIKE),
        ("punctuation", "O'Hara, Inc.", "O Hara Inc", Level.ALIKE),
        ("accents", "Café Zoë", "Cafe Zoe", Level.ALIKE),
        ("other order", "Nguyen, Kim A", "Kim A Nguyen", Level.ALIKE),
        ("short forms", "861 Sheppard Avenue West", "861 Sheppard Ave W", Level.ALIKE),
        ("leading zeros", "B-2025-007364", "b 2025 7364", Level.ALIKE),
        ("blanks moved", "6071 East Jefferson", "607 1East Jefferson", Level.ALIKE),
        ("a slip", "Jefferson Court", "Jeffersom Court", Level.CLOSE),
        ("a word more", "Interior remodel of kitchen", "Interior remodel of kitchen amended", Level.CLOSE),
        ("one digit", "100 Oak Street", "104 Oak Street", Level.DIGIT),
        ("digits swapped", "B-2025-007364", "B-2025-007346", Level.DIGIT),
        ("another number", "12 Oak Street", "9045 Oak Street", Level.NUMBER),
        ("a number more", "Oak Street Plaza", "Oak Street Plaza 77", Level.NEAR),
        ("nothing in common", "Golden Nails", "Pelican Tire", Level.DIFFERENT),
        ("other numbers alone", "407-555-0199", "321-867-4420", Level.DIFFERENT),
    ],
)
def test_what_happens_to_texts(what, old, new, expected):
    assert level(old, new) is expected, what
    assert level(new, old) is expected, what


@pytest.mark.parametrize(
    ("held", "rows", "expected"),
    [
        (1, 1000, Level.SAME_RARE),
        (2, 200, Level.SAME_RARE),
        (2, 199, Level.SAME),
        (3, 1000, Level.SAME),
        (50, 1000, Level.SAME),
        (51, 100_000, Level.SAME_COMMON),
        (5, 40, Level.SAME_COMMON),
        (0, 0, Level.SAME_COMMON),
        (1, 2, Level.SAME_COMMON),
    ],
)
def test_equality_tells_more_the_rarer_the_value_is_in_its_dataset(held, rows, expected):
    assert similarity.same_level(held, rows) is expected


@pytest.mark.parametrize(
    ("steps", "apart", "expected"),
    [
        (similarity.NUMBER_STEPS, [0.0005, 0.02, 0.1, 0.5, 0.6], "alike close near some different"),
        (similarity.DAY_STEPS, [1, 7, 45, 400, 401], "alike close near some different"),
        (similarity.METRE_STEPS, [3, 30, 150, 1000, 1001], "alike close near some different"),
        (similarity.OVERLAP_STEPS, [0.05, 0.25, 0.6, 0.9, 1.0], "alike close near some different"),
    ],
)
def test_distances_step_by_step(steps, apart, expected):
    found = similarity.steps(np.array(apart, dtype=float), steps)
    assert " ".join(Level(one).name.lower() for one in found) == expected


@pytest.mark.parametrize(
    ("short", "long", "expected"),
    [
        ("st", "street", True),
        ("blvd", "boulevard", True),
        ("st", "court", False),
        ("7", "77", False),
        ("a", "a", False),
    ],
)
def test_short_forms(short, long, expected):
    assert similarity.is_short_form(short, long) is expected


def test_every_likeness_but_the_best_is_bound_by_a_better_one():
    bounded = {lower for lower, _ in similarity.TELLS_AT_MOST}
    assert set(Level) - bounded == {Level.SAME_RARE, Level.DIFFERENT, Level.ONE_MISSING, Level.BOTH_MISSING}
