"""Levels of agreement of whole columns of pairs (D4.8): each distinct pair of values is compared once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
Pairs = Sequence[tuple[Any, Any]]
_AMONG_COMMON = np.array([similarity.AMONG_COMMON.get(level, level) for level in Level], dtype=np.int8)
Compare = Callable[[Pairs, dict[str, Folded]], Any]


@dataclass(frozen=True)
class Column:
    """A compared column: its type, how many records of the version before hold a value, and how many there are."""

    type: ColumnType
    held: Mapping[Any, int]
    rows: int
    folded: dict[str, Folded] = field(default_factory=dict)


def column_levels(column: Column, pairs: Iterable[tuple[Any, Any]]) -> Levels:
    """Give the level of each pair of values of a column."""
    distinct: dict[tuple[Any, Any], int] = {}
    which = np.fromiter((distinct.setdefault(pair, len(distinct)) for pair in pairs), np.int64)
    once = list(distinct)
    levels = np.full(len(once), Level.DIFFERENT, dtype=np.int8)
    differing = []
    for place, (old, new) in enumerate(once):
        if old is None or new is None:
            levels[place] = Level.BOTH_MISSING if old is new else Level.ONE_MISSING
        elif old == new:
            levels[place] = similarity.same_level(column.held.get(old, 0), column.rows)
        else:
            differing.append(place)
    if differing:
        compared: Compare = _COMPARED.get(column.type, _texts)
        levels[differing] = compared([once[place] for place in differing], column.folded)
        common = [place for place in differing if any(_is_common(column, value) for value in once[place])]
        levels[common] = _AMONG_COMMON[levels[common]]
    return np.asarray(levels[which])


def _is_common(column: Column, value: Any) -> bool:
    held = column.held.get(value, 0)
    return held > 0 and similarity.same_level(held, column.rows) is Level.SAME_COMMON


def _texts(pairs: Pairs, kept: dict[str, Folded]) -> Any:
    olds, news = ([_folded(pair[side], kept) for pair in pairs] for side in (0, 1))
    wholes = [text.whole for text in olds], [text.whole for text in news]
    letters = cpdist(*wholes, scorer=fuzz.ratio, dtype=np.float32) / 100
    slips = cpdist(*wholes, scorer=OSA.distance, score_cutoff=1, dtype=np.int32)
    return list(map(similarity.text_level, olds, news, letters.tolist(), slips.tolist()))


def _folded(text: str, kept: dict[str, Folded]) -> Folded:
    found = kept.get(text)
    if found is None:
        found = kept[text] = Folded.of(text)
    return found


def _numbers(pairs: Pairs, _: Any) -> Any:
    values = np.array(pairs, dtype=np.float64)
    larger = np.abs(values).max(axis=1)
    apart = np.abs(values[:, 0] - values[:, 1])
    return similarity.steps(np.divide(apart, larger, out=apart, where=larger > 0), similarity.NUMBER_STEPS)


def _moments(pairs: Pairs, _: Any) -> Any:
    apart = np.array([(new - old).total_seconds() for old, new in pairs]) / 86_400
    return similarity.steps(np.abs(apart), similarity.DAY_STEPS)


def _truths(pairs: Pairs, _: Any) -> Any:
    return np.full(len(pairs), Level.DIFFERENT, dtype=np.int8)


def _shapes(pairs: Pairs, _: Any) -> Any:
    """Points by distance, areas by overlap, lines by how far they are apart beside their length."""
    olds, news = (shapely.from_wkb([pair[side] for pair in pairs]) for side in (0, 1))
    kinds = shapely.get_dimensions(olds), shapely.get_dimensions(news)
    levels = np.full(len(pairs), Level.DIFFERENT, dtype=np.int8)
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
