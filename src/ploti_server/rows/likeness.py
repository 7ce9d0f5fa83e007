"""Levels of agreement of whole columns of pairs (D4.8): each distinct pair of values is compared once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely
from rapidfuzz import fuzz
from rapidfuzz.distance import OSA
from rapidfuzz.process import cpdist

from ploti.contract.values import ColumnType
from ploti_server.domain import similarity
from ploti_server.domain.similarity import Folded, Level
from ploti_server.rows.nearness import metres_between

Levels = npt.NDArray[np.int8]
Places = npt.NDArray[np.int64]
_AMONG_COMMON = np.array([similarity.AMONG_COMMON.get(level, level) for level in Level], dtype=np.int8)
Compare = Callable[[Sequence[Any], Sequence[Any], dict[str, Folded]], Any]


@dataclass(frozen=True)
class Column:
    """A compared column: its type, how many records of the version before hold a value, and how many there are."""

    type: ColumnType
    held: Mapping[Any, int]
    rows: int
    folded: dict[str, Folded] = field(default_factory=dict)


def column_levels(column: Column, values: Sequence[Any], old: Places, new: Places) -> Levels:
    """Give the level of each pair of values of a column; pairs are given by places among the values."""
    numbers: dict[Any, int] = {}
    numbered = np.fromiter((numbers.setdefault(value, len(numbers)) for value in values), np.int64, len(values))
    distinct = list(numbers)
    pairs, which = np.unique(numbered[old] * len(distinct) + numbered[new], return_inverse=True)
    olds, news = np.divmod(pairs, max(1, len(distinct)))
    missing = np.array([value is None for value in distinct], dtype=np.bool_)
    equal = np.array([_equal_level(column, value) for value in distinct], dtype=np.int8)
    common = np.array([_is_common(column, value) for value in distinct], dtype=np.bool_)
    levels = np.where(missing[olds], Level.BOTH_MISSING, equal[olds]).astype(np.int8)
    levels[missing[olds] != missing[news]] = Level.ONE_MISSING
    differing = np.flatnonzero((olds != news) & ~missing[olds] & ~missing[news])
    if len(differing):
        compared: Compare = _COMPARED.get(column.type, _texts)
        one, other = ([distinct[number] for number in side[differing].tolist()] for side in (olds, news))
        found = np.asarray(compared(one, other, column.folded), dtype=np.int8)
        among = common[olds[differing]] | common[news[differing]]
        levels[differing] = np.where(among, _AMONG_COMMON[found], found)
    return np.asarray(levels[which])


def _equal_level(column: Column, value: Any) -> Level:
    return similarity.same_level(column.held.get(value, 0), column.rows)


def _is_common(column: Column, value: Any) -> bool:
    return column.held.get(value, 0) > 0 and _equal_level(column, value) is Level.SAME_COMMON


def _texts(old: Sequence[str], new: Sequence[str], kept: dict[str, Folded]) -> Levels:
    olds, news = ([_folded(text, kept) for text in side] for side in (old, new))
    wholes = [text.whole for text in olds], [text.whole for text in news]
    letters = cpdist(*wholes, scorer=fuzz.ratio, dtype=np.float32) / 100
    slips = cpdist(*wholes, scorer=OSA.distance, score_cutoff=1, dtype=np.int32)
    given = zip(olds, news, letters.tolist(), slips.tolist(), strict=True)
    return np.fromiter((similarity.text_level(*one) for one in given), np.int8, len(olds))


def _folded(text: str, kept: dict[str, Folded]) -> Folded:
    found = kept.get(text)
    if found is None:
        found = kept[text] = Folded.of(text)
    return found


def _numbers(old: Sequence[Any], new: Sequence[Any], _: Any) -> Levels:
    olds, news = np.array(old, dtype=np.float64), np.array(new, dtype=np.float64)
    larger = np.maximum(np.abs(olds), np.abs(news))
    apart = np.abs(olds - news)
    return similarity.steps(np.divide(apart, larger, out=apart, where=larger > 0), similarity.NUMBER_STEPS)


def _moments(old: Sequence[Any], new: Sequence[Any], _: Any) -> Levels:
    apart = np.array([(b - a).total_seconds() for a, b in zip(old, new, strict=True)]) / 86_400
    return similarity.steps(np.abs(apart), similarity.DAY_STEPS)


def _truths(old: Sequence[Any], _new: Any, _: Any) -> Levels:
    return np.full(len(old), Level.DIFFERENT, dtype=np.int8)


def _shapes(old: Sequence[bytes], new: Sequence[bytes], _: Any) -> Levels:
    """Points by distance, areas by overlap, lines by how far they are apart beside their length."""
    olds, news = shapely.from_wkb(list(old)), shapely.from_wkb(list(new))
    kinds = shapely.get_dimensions(olds), shapely.get_dimensions(news)
    levels = np.full(len(olds), Level.DIFFERENT, dtype=np.int8)
    points, lines, areas = ((kinds[0] == kind) & (kinds[1] == kind) for kind in (0, 1, 2))
    if points.any():
        metres = metres_between(olds[points], news[points])
        levels[points] = similarity.steps(metres, similarity.METRE_STEPS)
    levels[areas] = similarity.steps(1 - _overlap(olds[areas], news[areas]), similarity.OVERLAP_STEPS)
    levels[lines] = similarity.steps(1 - _along(olds[lines], news[lines]), similarity.OVERLAP_STEPS)
    return levels


def _overlap(olds: Any, news: Any) -> Any:
    """Give the share of two areas together that both cover; an area that cannot be cut counts by its box."""
    common = np.zeros(len(olds))
    meeting = shapely.intersects(shapely.envelope(olds), shapely.envelope(news))
    valid = shapely.is_valid(olds) & shapely.is_valid(news)
    one, other = np.where(valid, olds, shapely.envelope(olds)), np.where(valid, news, shapely.envelope(news))
    common[meeting] = shapely.area(shapely.intersection(one[meeting], other[meeting]))
    together = shapely.area(one) + shapely.area(other) - common
    return np.divide(common, together, out=np.zeros(len(olds)), where=together > 0)


def _along(olds: Any, news: Any) -> Any:
    """Give 1 for lines on each other, 0 where they are as far apart as they are long."""
    length = np.maximum(shapely.length(olds), shapely.length(news))
    apart = shapely.hausdorff_distance(olds, news)
    return np.clip(1 - np.divide(apart, length, out=np.ones(len(olds)), where=length > 0), 0, 1)


_COMPARED: dict[str, Compare] = {
    "number": _numbers,
    "integer": _numbers,
    "date": _moments,
    "timestamp": _moments,
    "boolean": _truths,
    "geometry": _shapes,
}
