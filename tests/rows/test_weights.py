"""Weights of levels, learnt from one dataset's own pairs (D4.8)."""

import numpy as np
import pytest

from ploti_server.domain.similarity import TELLS_AT_MOST, Level
from ploti_server.rows.weights import Asked, Known, edited_at_random, learn, strangers_at_random

RARE, SAME, COMMON, OTHER = Level.SAME_RARE, Level.SAME, Level.SAME_COMMON, Level.DIFFERENT


def table(*rows):
    return np.array(rows, dtype=np.int8).reshape(len(rows), -1)


def known(apart, same=(), itself=((RARE, SAME),) * 50):
    width = len(itself[0])
    return Known(table(*apart) if apart else np.empty((0, width), np.int8),
                 table(*same) if same else np.empty((0, width), np.int8), table(*itself))  # fmt: skip


def asked(*rows):
    levels = table(*rows)
    return Asked(levels, np.arange(len(levels)), np.arange(len(levels)))


TYPES = ["string", "string"]


def test_a_column_in_which_different_records_agree_tells_less():
    neighbours = [(OTHER, SAME)] * 300
    weights = learn(asked((RARE, SAME)), known(neighbours), TYPES)
    name, street = weights.by_column(table((RARE, SAME)))[0]
    assert name > street + 1


def test_a_difference_speaks_against_and_never_for():
    usual = [(RARE, OTHER)] * 300
    weights = learn(asked((RARE, OTHER)), known([(OTHER, SAME)] * 300, same=usual), TYPES)
    assert weights.levels[1, OTHER] == 0
    assert weights.levels[0, OTHER] < -1


def test_less_likeness_never_tells_more():
    seen = [(RARE, SAME)] * 80 + [(SAME, SAME)] * 80 + [(COMMON, COMMON)] * 80
    weights = learn(asked((RARE, SAME)), known([(OTHER, SAME), (COMMON, OTHER)] * 80, itself=seen), TYPES)
    for lower, better in TELLS_AT_MOST[:5]:
        assert weights.levels[0, lower] <= weights.levels[0, better], (lower, better)


def test_pairs_that_stand_clear_teach():
    itself = ((RARE, SAME, SAME),) * 50
    apart = [(OTHER, SAME, OTHER)] * 300
    pairs = [(RARE, SAME, Level.ONE_MISSING)] * 100
    types = [*TYPES, "string"]
    alone = learn(asked(pairs[0]), known(apart, itself=itself), types).score(table(pairs[0]))[0]
    many = learn(asked(*pairs), known(apart, itself=itself), types).score(table(pairs[0]))[0]
    assert many > alone


def test_ties_are_never_best():
    levels = table((RARE, SAME), (RARE, SAME), (RARE, OTHER))
    both = Asked(levels, np.array([0, 0, 1]), np.array([0, 1, 2]))
    assert both.best(np.array([3.0, 3.0, 1.0])).tolist() == [False, False, True]


@pytest.mark.parametrize("make", [edited_at_random, strangers_at_random])
def test_what_is_made_at_random_is_always_the_same(make):
    itself = table(*[(RARE, COMMON, Level.BOTH_MISSING)] * 20)
    types = ["string", "date", "geometry"]
    assert np.array_equal(make(itself, types), make(itself, types))
    assert len(make(itself[:0], types)) == 0


def test_random_edits_keep_most_and_miss_what_was_missing():
    made = edited_at_random(table(*[(RARE, COMMON, Level.BOTH_MISSING)] * 20), ["string", "date", "geometry"])
    assert 0.6 < (made[:, 0] == RARE).mean() < 0.9
    assert set(made[:, 2].tolist()) == {Level.BOTH_MISSING, Level.ONE_MISSING}
    assert Level.CLOSE not in made[:, 1]


def test_scores_are_cut_to_what_every_machine_agrees_on():
    weights = learn(asked((RARE, SAME)), known([(OTHER, SAME)] * 30), TYPES)
    scores = weights.score(table((RARE, SAME), (OTHER, OTHER)))
    assert np.array_equal(scores, scores.round(4))
