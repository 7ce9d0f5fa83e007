"""The built-in matching agent: weighs how records agree, by what that tells in their dataset (D4.8).

Deterministic, without network and without a model file. Each pair's columns get levels of agreement
(`rows/likeness.py`), levels get weights learnt from the dataset (`rows/weights.py`), and a pair's confidence is its
share of all odds around it: the other partners of its two records, records known to be others that resemble them as
much, and having no partner at all. Two partners that are nearly alike therefore leave both without.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ploti_server.domain.datasets import Dataset
from ploti_server.domain.evidence import Evidence, Values
from ploti_server.domain.similarity import Level
from ploti_server.ports import Judgement, Pair
from ploti_server.rows.likeness import Column, column_levels
from ploti_server.rows.weights import Asked, Floats, Known, LevelTable, Weights, learn

TOLD: Final = 4
"""Columns for a match, and against it, that an explanation names."""

WORTH_TELLING: Final = 0.3
DECIMALS: Final = 4
AMONG: Final = (0.02, 0.4)
"""Between what a pair's odds lie before anything is compared: one partner among a record's candidates."""

SHARES: Final = (0.2, 0.9)
SHARE_ROUNDS: Final = 5
SURE: Final = 2.0
"""Between what the share of records with a partner lies, and how many records with and without one it starts from."""

WORDS: Final = {
    Level.SAME_RARE: "same, rare",
    Level.SAME: "same",
    Level.SAME_COMMON: "same, common",
    Level.ALIKE: "alike",
    Level.CLOSE: "close",
    Level.DIGIT: "one character apart",
    Level.NEAR: "similar",
    Level.SOME: "somewhat similar",
    Level.NUMBER: "other number",
    Level.DIFFERENT: "different",
    Level.ONE_MISSING: "missing on one side",
    Level.BOTH_MISSING: "missing on both sides",
    Level.ALIKE_COMMON: "alike, common",
    Level.NEAR_COMMON: "similar, common",
}


class BuiltInJudge:
    """`MatchingAgent` that judges by weighed agreement."""

    def judges(self, dataset: Dataset) -> bool:  # noqa: ARG002  # the port's
        """Tell that every dataset's pairs are judged."""
        return True

    def judge(self, dataset: Dataset, pairs: Sequence[Pair], evidence: Evidence) -> tuple[Judgement, ...] | None:  # noqa: ARG002  # the port's
        """Judge every pair at once; where no column is compared, none."""
        if not pairs or not evidence.columns:
            return ()
        levels = _Levels(evidence)
        old, olds = _numbered(pair.old for pair in pairs)
        new, news = _numbered(pair.new for pair in pairs)
        asked = Asked(levels.of([(pair.old, pair.new) for pair in pairs]), old, new)
        known = Known(levels.of(evidence.apart), levels.of(evidence.same), levels.of(_themselves(pairs, evidence)))
        weights = learn(asked, known, list(evidence.columns.values()))
        rivals = _rivals(weights.score(known.apart), evidence, olds, news)
        chances = _chances(weights.score(asked.levels), asked, rivals)
        return _judgements(pairs, chances, weights, asked.levels, list(evidence.columns))


class _Levels:
    """Levels of pairs over all compared columns; each column remembers what it folded."""

    def __init__(self, evidence: Evidence) -> None:
        self._columns = {
            name: Column(type_, evidence.held.get(name, {}), evidence.rows) for name, type_ in evidence.columns.items()
        }

    def of(self, pairs: Sequence[tuple[Values, Values]]) -> LevelTable:
        records = {id(record): record for pair in pairs for record in pair}
        places = {own: place for place, own in enumerate(records)}
        old, new = (np.fromiter((places[id(pair[side])] for pair in pairs), np.int64, len(pairs)) for side in (0, 1))
        table = np.empty((len(pairs), len(self._columns)), dtype=np.int8)
        for place, (name, column) in enumerate(self._columns.items()):
            table[:, place] = column_levels(column, [record[name] for record in records.values()], old, new)
        return table


def _numbered(records: Iterable[Values]) -> tuple[npt.NDArray[np.int64], dict[int, int]]:
    """Number records in order of appearance; gives each its number, and the numbers by identity."""
    numbers: dict[int, int] = {}
    return np.fromiter((numbers.setdefault(id(r), len(numbers)) for r in records), np.int64), numbers


def _themselves(pairs: Sequence[Pair], evidence: Evidence) -> list[tuple[Values, Values]]:
    records = {id(record): record for record in (*(p.old for p in pairs), *(other for _, other in evidence.apart))}
    return [(record, record) for record in records.values()]


def _rivals(scores: Floats, evidence: Evidence, olds: dict[int, int], news: dict[int, int]) -> tuple[Floats, Floats]:
    """Give for each old and new record the odds of records known to be others."""
    odds = np.exp(np.clip(scores, -60, 60))
    of_old, of_new = np.zeros(len(olds)), np.zeros(len(news))
    for (record, _), rival in zip(evidence.apart, odds, strict=True):
        if (place := olds.get(id(record))) is not None:
            of_old[place] += rival
        elif (place := news.get(id(record))) is not None:
            of_new[place] += rival
    return of_old, of_new


def _chances(scores: Floats, asked: Asked, rivals: tuple[Floats, Floats]) -> Floats:
    """Give each pair's share of the odds around it.

    Before anything is compared, a pair's odds are one partner among the candidates of a record, by the share of
    records that have one; that share is told by the chances themselves, step by step.
    """
    odds = np.exp(np.clip(scores, -60, 60))
    of_old = (np.bincount(asked.old, odds) + rivals[0])[asked.old]
    of_new = (np.bincount(asked.new, odds) + rivals[1])[asked.new]
    records = min(len(rivals[0]), len(rivals[1]))
    among = np.clip(records / len(scores), *AMONG)
    share = 0.5
    for _ in range(SHARE_ROUNDS):
        none = (1 - share) / (share * among)
        chances = odds / (none + of_old + of_new - odds)
        share = float(np.clip((chances.sum() + SURE) / (records + 2 * SURE), *SHARES))
    return np.asarray(chances)


def _judgements(
    pairs: Sequence[Pair], chances: Floats, weights: Weights, levels: LevelTable, names: Sequence[str]
) -> tuple[Judgement, ...]:
    told = weights.by_column(levels)
    order = np.argsort(-told, axis=1, kind="stable").tolist()
    said = _sayings(weights, names)
    judged = []
    rows = zip(told.tolist(), levels.tolist(), order, strict=True)
    for pair, chance, (weighs, reached, first) in zip(pairs, chances.tolist(), rows, strict=True):
        same = chance >= 0.5
        confidence = round(chance if same else 1 - chance, DECIMALS)
        judged.append(Judgement(pair.pair_id, same, confidence, _explained(weighs, reached, first, said)))
    return tuple(judged)


def _sayings(weights: Weights, names: Sequence[str]) -> list[list[str]]:
    """Say for each column and level what agrees and how much that tells."""
    told = (weights.levels * weights.damping[:, None]).tolist()
    return [
        [_said(name, level, weight) for level, weight in enumerate(row)] for name, row in zip(names, told, strict=True)
    ]


def _explained(told: Sequence[float], levels: Sequence[int], order: Sequence[int], said: list[list[str]]) -> str:
    """Name the columns that speak most for one record and against it, with their weights."""
    for_it = [said[at][levels[at]] for at in order[:TOLD] if told[at] >= WORTH_TELLING]
    against = [said[at][levels[at]] for at in order[: -TOLD - 1 : -1] if told[at] <= -WORTH_TELLING]
    return f"for: {', '.join(for_it) or 'nothing'}; against: {', '.join(against) or 'nothing'}"


def _said(name: str, level: int, weight: float) -> str:
    return f"{name} {WORDS[Level(level)]} {weight:+.1f}"
