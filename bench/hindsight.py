"""What simple distances could tell of a history with its key hidden, if the keys chose their limit afterwards.

Left-over records are paired as a distance says: a pair has to be the only best of both its records, and neither record
may have an equal beside it, as nobody could tell those apart. Then the keys choose the distance up to which pairs are
right often enough. No agent has that knowledge; what it finds shows how much there was to find.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rapidfuzz import fuzz

Content = tuple[Any, ...]
Pair = tuple[Content, Content]


@dataclass(frozen=True)
class Left:
    """One state's left-overs: contents and keys by side, pairs to look at, contents and keys of the whole states."""

    old: Sequence[tuple[Content, Any]]
    new: Sequence[tuple[Content, Any]]
    pairs: Iterable[Pair]
    whole: tuple[Sequence[Content], Sequence[Content]]


@dataclass
class Hindsight:
    """Pairs of a history by each distance: how far apart, and whether the key calls them one record."""

    found: dict[str, list[tuple[float, bool]]] = field(default_factory=lambda: defaultdict(list))
    edited: int = 0
    equal_beside: int = 0

    def add(self, left: Left) -> None:
        """Add what a state left over."""
        held = [Counter(side) for side in left.whole]
        keys = [_by_content(side) for side in (left.old, left.new)]
        once = [_once(side) for side in (left.old, left.new)]
        true = {(once[0][key], once[1][key]) for key in once[0].keys() & once[1].keys()}
        self.edited += len(once[0].keys() & once[1].keys())
        single = {(old, new) for old, new in true if held[0][old] == 1 and held[1][new] == 1}
        self.equal_beside += sum(
            held[0][once[0][key]] > 1 or held[1][once[1][key]] > 1 for key in once[0].keys() & once[1].keys()
        )
        pairs = {pair for pair in left.pairs if held[0][pair[0]] == 1 and held[1][pair[1]] == 1} | single
        for name, distance in _distances(left.whole[0]).items():
            for pair, apart in _only_best({pair: distance(*pair) for pair in pairs}):
                self.found[name].append((apart, bool(keys[0][pair[0]] & keys[1][pair[1]])))

    def told(self, precision: float) -> dict[str, int]:
        """Count by distance the right pairs up to the best limit that leaves them so often right."""
        return {name: _best(sorted(pairs), precision) for name, pairs in self.found.items()}


def _by_content(side: Sequence[tuple[Content, Any]]) -> dict[Content, set[Any]]:
    found: dict[Content, set[Any]] = defaultdict(set)
    for content, key in side:
        found[content].add(key)
    return found


def _once(side: Sequence[tuple[Content, Any]]) -> dict[Any, Content]:
    counted = Counter(key for _, key in side)
    return {key: content for content, key in side if counted[key] == 1}


def _only_best(apart: dict[Pair, float]) -> Iterable[tuple[Pair, float]]:
    beside: list[dict[Content, list[float]]] = [defaultdict(list), defaultdict(list)]
    for pair, far in apart.items():
        for side in (0, 1):
            beside[side][pair[side]].append(far)
    for pair, far in apart.items():
        both = [beside[side][pair[side]] for side in (0, 1)]
        if all(min(others) == far and others.count(far) == 1 for others in both):
            yield pair, far


def _best(pairs: Sequence[tuple[float, bool]], precision: float) -> int:
    best = right = 0
    for place, (far, hit) in enumerate(pairs, 1):
        right += hit
        last = place == len(pairs) or pairs[place][0] != far
        if last and right / place >= precision:
            best = right
    return best


def _distances(rows: Sequence[Content]) -> dict[str, Callable[[Content, Content], float]]:
    """Three distances that anybody might take."""
    held = [Counter(column) for column in zip(*rows, strict=True)]

    def rare(place: int, value: Any) -> float:
        return math.log(len(rows) / max(1, held[place][value]))

    return {
        "columns that differ": lambda old, new: sum(a != b for a, b in zip(old, new, strict=True)),
        "letters that differ": lambda old, new: round(sum(map(_unlike, old, new)), 4),
        "rarity of what agrees": lambda old, new: (
            -round(
                sum(rare(n, a) for n, (a, b) in enumerate(zip(old, new, strict=True)) if a == b and a is not None), 4
            )
        ),
    }


def _unlike(old: Any, new: Any) -> float:
    if old == new:
        return 0.0
    if old is None or new is None:
        return 0.7
    return 1 - fuzz.ratio(str(old).casefold(), str(new).casefold()) / 100
