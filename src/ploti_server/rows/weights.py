"""How much each column's agreement tells in one dataset, learnt from pairs whose answer is known (D4.8).

After Fellegi and Sunter: the weight of a level is the logarithm of how much more often one record's two versions agree
so than two different records do. Different records are pairs of one version that share values as candidates do, so that
an address tells little where houses have many permits. What one record's two versions look like is told by pairs that
other steps found again, by records of this dataset edited at random, and, round by round, by pairs asked about that
stand clear of every pair known to be different. Columns that tell the same thing twice are damped by a logistic fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ploti.contract.values import ColumnType
from ploti_server.domain.similarity import AMONG_COMMON, TELLS_AT_MOST, Level

Floats = npt.NDArray[np.float64]
LevelTable = npt.NDArray[np.int8]
"""A row for each pair and a column for each compared column."""

LEVELS: Final = len(Level)
UNSURE: Final = 0.005
UNSURE_PAIRS: Final = 2.0
"""What is added to both kinds of pairs as seen in either: a share of them, at least so many pairs of the fewer kind.
So a level that was hardly seen tells nothing, and none tells more than the pairs known can show."""

MADE: Final = 2_000
MADE_COUNT_FOR: Final = 300.0
"""Records edited at random, and how many real pairs they count for together."""

STRANGERS_COUNT_FOR: Final = 40.0
STRANGERS_SHARE: Final = 0.1
"""How many pairs of different records made-up ones count for together, and what share of the real ones on top."""

TOUCHED: Final = (0.08, 0.15, 0.3, 0.45)
"""Shares of columns that random editing touches, each for a quarter of the records."""

FALSE_AT_MOST: Final = 0.01
DOUBT: Final = 0.3
"""Share of wrong pairs at most among those that are taken for known, judged by the pairs known to be different as high
up, and by how many of a pair that share is always raised."""

START: Final = 0.5
FIRM: Final = 10.0
"""The damping from which the fit starts, and how firmly it stays there."""

DECIMALS: Final = 4
"""What another machine's arithmetic could change beyond these is cut off, so that every machine judges alike (D4.1)."""

ROUNDS: Final = 6
FIT_ROUNDS: Final = 8
HALVINGS: Final = 12
MOST: Final = 1.2
PIECE: Final = 512
"""Rows that are multiplied at a time: so few that the arithmetic library starts no threads, which cost more than they
save and would add in an order of their own."""

_TEXT_EDITS: Final = {
    Level.ALIKE: 40, Level.CLOSE: 25, Level.NEAR: 10, Level.SOME: 5, Level.DIGIT: 3, Level.NUMBER: 5,
    Level.DIFFERENT: 8, Level.ONE_MISSING: 4,
}  # fmt: skip
_STEP_EDITS: Final = {
    Level.ALIKE: 5, Level.CLOSE: 20, Level.NEAR: 25, Level.SOME: 25, Level.DIFFERENT: 20, Level.ONE_MISSING: 5,
}  # fmt: skip
_STRANGERS: Final = {
    Level.ALIKE: 1, Level.CLOSE: 3, Level.DIGIT: 5, Level.NEAR: 7, Level.SOME: 17, Level.NUMBER: 15,
    Level.DIFFERENT: 45, Level.ONE_MISSING: 7,
}  # fmt: skip
_STRANGERS_PLACES: Final = {
    Level.ALIKE: 1, Level.CLOSE: 4, Level.NEAR: 15, Level.SOME: 15, Level.DIFFERENT: 60, Level.ONE_MISSING: 5,
}  # fmt: skip
_STRANGERS_AGREE: Final = {Level.SAME_RARE: 0.03, Level.SAME: 0.12, Level.SAME_COMMON: 0.35, Level.BOTH_MISSING: 0.6}
"""How often two different records agree in a value of that rarity."""

_AGAINST: Final = [Level.NUMBER, Level.DIFFERENT, Level.ONE_MISSING]
_AMONG_COMMON: Final = np.array([AMONG_COMMON.get(level, level) for level in Level], dtype=np.int8)
_EDITS: Final[dict[str, dict[Level, int]]] = {
    "number": _STEP_EDITS,
    "integer": _STEP_EDITS,
    "date": _STEP_EDITS,
    "timestamp": _STEP_EDITS,
    "boolean": {Level.DIFFERENT: 90, Level.ONE_MISSING: 10},
    "geometry": {
        Level.ALIKE: 30, Level.CLOSE: 38, Level.NEAR: 20, Level.SOME: 5, Level.DIFFERENT: 3, Level.ONE_MISSING: 4,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Weights:
    """Weight by column and level, damping by column, and the offset for a pair of which nothing is known."""

    levels: Floats
    damping: Floats
    offset: float

    def by_column(self, table: LevelTable) -> Floats:
        """Give what each column of each pair adds to its score."""
        return np.asarray(_weighed(self.levels, table) * self.damping)

    def score(self, table: LevelTable) -> Floats:
        """Give each pair's score: the logarithm of the odds that it is one record."""
        return np.asarray((self.by_column(table).sum(axis=1) + self.offset).round(DECIMALS))


@dataclass(frozen=True)
class Asked:
    """The pairs asked about: their levels, and numbers of their old and new records from 0."""

    levels: LevelTable
    old: npt.NDArray[np.int64]
    new: npt.NDArray[np.int64]

    def best(self, scores: Floats) -> npt.NDArray[np.bool_]:
        """Tell which pairs score higher than any other pair of their old and of their new record."""
        return np.asarray(_best_of(self.old, scores) & _best_of(self.new, scores))


@dataclass(frozen=True)
class Known:
    """Pairs whose answer is known: levels of different records, of the same, and of records with themselves."""

    apart: LevelTable
    same: LevelTable
    itself: LevelTable


def learn(asked: Asked, known: Known, types: Sequence[ColumnType]) -> Weights:
    """Learn weights from the pairs known and, round by round, from those asked about that become clear."""
    made, strangers = edited_at_random(known.itself, types), strangers_at_random(known.itself, types)
    right = _Pile([(made, MADE_COUNT_FOR), (known.same, len(known.same))])
    strange = STRANGERS_COUNT_FOR + STRANGERS_SHARE * len(known.apart)
    wrong = _Pile([(strangers, strange), (known.apart, len(known.apart))])
    weights = Weights(np.zeros((len(types), LEVELS)), np.full(len(types), START), 0.0)
    for turn in range(ROUNDS):
        weights = _fit(_levels(right.counted(), wrong.counted()), weights, right, wrong)
        if turn + 1 < ROUNDS:
            clear, beaten = _clear_pairs(weights, asked, known.apart)
            right, wrong = right.but_last(clear, keep=2), wrong.but_last(beaten, keep=2)
    return weights


def _clear_pairs(weights: Weights, asked: Asked, apart: LevelTable) -> tuple[LevelTable, LevelTable]:
    """Give the pairs that stand clear of those known to be different, and those that another pair beats."""
    scores = weights.score(asked.levels)
    best = asked.best(scores)
    clear = best & (scores >= _clear_from(scores[best], weights.score(apart)))
    return asked.levels[clear], asked.levels[~best]


@dataclass(frozen=True)
class _Pile:
    """Tables of pairs with one answer, each with the number of pairs that it counts for."""

    tables: Sequence[tuple[LevelTable, float]]

    def but_last(self, table: LevelTable, keep: int) -> "_Pile":
        return _Pile([*self.tables[:keep], (table, len(table))])

    def counted(self) -> Floats:
        return np.asarray(sum(_counted(table) * _each(table, count) for table, count in self.tables))

    def stacked(self) -> tuple[LevelTable, Floats]:
        rows = np.concatenate([table for table, _ in self.tables])
        return rows, np.concatenate([np.full(len(table), _each(table, count)) for table, count in self.tables])


def _each(table: LevelTable, count: float) -> float:
    return count / max(1, len(table))


def edited_at_random(itself: LevelTable, types: Sequence[ColumnType]) -> LevelTable:
    """Give the levels of records with themselves after random editing; always the same for the same records."""
    chance = np.random.default_rng(0)
    if not len(itself):
        return itself
    made = itself[chance.integers(0, len(itself), MADE)]
    touched = chance.random(made.shape) < np.resize(TOUCHED, MADE)[:, None]
    missing = made == Level.BOTH_MISSING
    _draw_again(made, touched, [_EDITS.get(type_, _TEXT_EDITS) for type_ in types], chance)
    made[touched & missing] = Level.ONE_MISSING
    return made


def strangers_at_random(itself: LevelTable, types: Sequence[ColumnType]) -> LevelTable:
    """Give the levels of pairs of different records as they are anywhere; always the same for the same records."""
    chance = np.random.default_rng(1)
    if not len(itself):
        return itself
    made = itself[chance.integers(0, len(itself), MADE)]
    share = np.array([_STRANGERS_AGREE.get(level, 0.0) for level in Level])
    differ = chance.random(made.shape) >= share[made]
    kinds = [_STRANGERS_PLACES if type_ == "geometry" else _STRANGERS for type_ in types]
    _draw_again(made, differ, kinds, chance)
    return made


def _draw_again(
    made: LevelTable, which: npt.NDArray[np.bool_], kinds: Sequence[dict[Level, int]], chance: np.random.Generator
) -> None:
    """Put other levels into the chosen cells, by the shares of their column."""
    for column, shares in enumerate(kinds):
        weights = np.array(list(shares.values())) / sum(shares.values())
        drawn = chance.choice(np.array(list(shares), dtype=np.int8), len(made), p=weights)
        common = made[:, column] == Level.SAME_COMMON
        drawn[common] = _AMONG_COMMON[drawn[common]]
        made[which[:, column], column] = drawn[which[:, column]]


def _best_of(records: npt.NDArray[np.int64], scores: Floats) -> npt.NDArray[np.bool_]:
    """Tell which pairs score highest of their record's; of equal ones none."""
    order = np.lexsort((-scores, records))
    ordered, held = records[order], scores[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    tied = np.zeros(len(order), dtype=np.bool_)
    tied[:-1] = (ordered[1:] == ordered[:-1]) & (held[1:] == held[:-1])
    best = np.zeros(len(order), dtype=np.bool_)
    best[order] = first & ~tied
    return best


def _clear_from(best: Floats, apart: Floats) -> float:
    """Give the least score above which hardly a pair known to be different lies beside the pairs that score best."""
    rising = np.sort(best)
    above = np.arange(len(rising), 0, -1)
    wrong = len(apart) - np.searchsorted(np.sort(apart), rising) + DOUBT
    enough = np.flatnonzero(wrong <= FALSE_AT_MOST * above)
    return float(rising[enough[0]]) if len(enough) else np.inf


def _counted(table: LevelTable) -> Floats:
    return np.stack([np.bincount(column, minlength=LEVELS) for column in table.T]).astype(np.float64)


def _levels(sames: Floats, aparts: Floats) -> Floats:
    """Give each level's weight.

    Likeness to a common value, or less likeness, never tells more than its better; a difference never speaks for one
    record, however usual it is.
    """
    same, apart = _shares(sames), _shares(aparts)
    either = (same + apart) / 2
    pairs = max(1.0, min(sames.sum(axis=1).max(), aparts.sum(axis=1).max()))
    unsure = max(UNSURE, UNSURE_PAIRS / pairs) * np.maximum(either, 1e-9)
    weights = np.log((same + unsure) / (apart + unsure))
    for level, better in TELLS_AT_MOST:
        known = either[:, better] > 0
        weights[known, level] = np.minimum(weights[known, level], weights[known, better])
    weights[:, _AGAINST] = np.minimum(weights[:, _AGAINST], 0.0)
    return np.asarray(weights.round(DECIMALS))


def _shares(counts: Floats) -> Floats:
    return np.asarray(counts / np.maximum(1.0, counts.sum(axis=1, keepdims=True)))


def _weighed(levels: Floats, table: LevelTable) -> Floats:
    return np.asarray(levels[np.arange(levels.shape[0]), table])


def _fit(levels: Floats, before: Weights, right: _Pile, wrong: _Pile) -> Weights:
    """Fit damping and offset so that scores are odds, as if there were as many right pairs as wrong ones."""
    (rights, heavy), (wrongs, light) = right.stacked(), wrong.stacked()
    told = _weighed(levels, np.concatenate([rights, wrongs]))
    told = np.column_stack([told, np.ones(len(told))])
    heavy = np.concatenate([heavy, light * (heavy.sum() / max(1.0, light.sum()))])
    wanted = (np.arange(len(told)) < len(rights)).astype(np.float64)
    pieces = _pieces(told), _pieces(wanted), _pieces(heavy)
    fitted = _fitted(*pieces, np.append(before.damping, before.offset))
    return Weights(levels, fitted[:-1].round(DECIMALS), round(float(fitted[-1]), DECIMALS))


def _pieces(rows: Floats) -> Floats:
    """Cut rows into pieces, the last one filled up with zeros, which count for nothing."""
    filled = np.concatenate([rows, np.zeros((-len(rows) % PIECE, *rows.shape[1:]))])
    return filled.reshape(-1, PIECE, *rows.shape[1:])


def _fitted(told: Floats, wanted: Floats, heavy: Floats, fitted: Floats) -> Floats:
    """Go down to the least loss by Newton steps, halved while they overshoot; no column tells the opposite."""
    start = np.append(np.full(len(fitted) - 1, START), 0.0)
    across = told.transpose(0, 2, 1)
    loss = _loss(told, wanted, heavy, fitted - start, fitted)
    for _ in range(FIT_ROUNDS):
        likely = 1 / (1 + np.exp(-np.clip(np.matmul(told, fitted), -40, 40)))
        missed = np.matmul(across, (heavy * (wanted - likely))[:, :, None]).sum(axis=0)[:, 0]
        slope = missed - FIRM * (fitted - start)
        bent = told * (heavy * likely * (1 - likely))[:, :, None]
        curve = np.matmul(across, bent).sum(axis=0) + FIRM * np.eye(len(fitted))
        step = np.linalg.solve(curve, slope)
        for _ in range(HALVINGS):
            tried = fitted + step
            tried[:-1] = np.clip(tried[:-1], 0, MOST)
            after = _loss(told, wanted, heavy, tried - start, tried)
            if after < loss:
                fitted, loss = tried, after
                break
            step = step / 2
        else:
            break
    return fitted


def _loss(told: Floats, wanted: Floats, heavy: Floats, moved: Floats, fitted: Floats) -> float:
    scores = np.matmul(told, fitted)
    surprise = np.maximum(scores, 0) + np.log1p(np.exp(-np.abs(scores))) - wanted * scores
    return float((heavy * surprise).sum() + FIRM / 2 * (moved**2).sum())
