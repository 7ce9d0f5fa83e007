"""How alike two values are: the levels that a judge weighs, and what clerks and systems do to a text (D4.8)."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
from rapidfuzz.distance import OSA


class Level(IntEnum):
    """How two values of a column agree, from most to least."""

    SAME_RARE = 0
    SAME = 1
    SAME_COMMON = 2
    ALIKE = 3
    CLOSE = 4
    DIGIT = 5
    NEAR = 6
    SOME = 7
    NUMBER = 8
    DIFFERENT = 9
    ONE_MISSING = 10
    BOTH_MISSING = 11
    ALIKE_COMMON = 12
    NEAR_COMMON = 13


AMONG_COMMON: Final = {
    Level.ALIKE: Level.ALIKE_COMMON,
    Level.CLOSE: Level.NEAR_COMMON,
    Level.DIGIT: Level.NEAR_COMMON,
    Level.NEAR: Level.NEAR_COMMON,
    Level.SOME: Level.NEAR_COMMON,
}
"""What likeness to a common value is: it tells no more than being equal to one."""

TELLS_AT_MOST: Final = (
    (Level.SAME, Level.SAME_RARE),
    (Level.SAME_COMMON, Level.SAME),
    (Level.ALIKE_COMMON, Level.SAME_COMMON),
    (Level.NEAR_COMMON, Level.ALIKE_COMMON),
    (Level.ALIKE, Level.SAME_RARE),
    (Level.CLOSE, Level.ALIKE),
    (Level.DIGIT, Level.CLOSE),
    (Level.NEAR, Level.CLOSE),
    (Level.SOME, Level.NEAR),
    (Level.NUMBER, Level.NEAR),
)
"""Levels beside those that tell at least as much for one record, in the order in which that is made so."""


RARE_AT_MOST: Final = 2
RARE_SHARE: Final = 0.01
COMMON_ABOVE: Final = 50
COMMON_SHARE: Final = 0.1
WORTH_A_LOOK: Final = 0.4
"""Texts with fewer letters in common order are not compared word by word."""

_SEPARATORS: Final = re.compile(r"[^\w]+|_+")
_DIGITS: Final = re.compile(r"\d+")


def same_level(held: int, rows: int) -> Level:
    """Give the level of two equal values that so many of the rows of the version before hold; common if unknown."""
    if 0 < held <= min(RARE_AT_MOST, RARE_SHARE * rows):
        return Level.SAME_RARE
    return Level.SAME if 0 < held <= min(COMMON_ABOVE, COMMON_SHARE * rows) else Level.SAME_COMMON


@dataclass(frozen=True)
class Folded:
    """A text without case, accents and punctuation: its words, numbers without leading zeros.

    `whole` are the words in a row, `ordered` the same sorted, `numbers` all runs of digits sorted, `digits` all digits.
    """

    words: tuple[str, ...]
    whole: str
    ordered: str
    numbers: tuple[str, ...]
    digits: str

    @classmethod
    def of(cls, text: str) -> "Folded":
        """Fold a text."""
        plain = text if text.isascii() else _without_accents(text)
        words = tuple(word.lstrip("0") or "0" for word in _SEPARATORS.split(plain.casefold()) if word)
        whole = "".join(words)
        numbers = _DIGITS.findall(" ".join(words))
        return cls(words, whole, " ".join(sorted(words)), tuple(sorted(numbers)), "".join(_DIGITS.findall(whole)))


def _without_accents(text: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))


def text_level(old: Folded, new: Folded, letters: float, slips: float) -> Level:
    """Tell how two texts agree that are not equal as written.

    `letters` is the share of letters in common order, `slips` counts letters typed otherwise, swapped, lost or doubled.
    """
    if old.whole == new.whole or old.ordered == new.ordered:
        return Level.ALIKE
    if old.numbers != new.numbers and old.digits != new.digits:
        return _numbers_differ(old, new, letters, slips)
    if letters < WORTH_A_LOOK:
        return Level.DIFFERENT
    likeness = max(letters, words_agree(old.words, new.words))
    for level, least in ((Level.ALIKE, 0.985), (Level.CLOSE, 0.8), (Level.NEAR, 0.6), (Level.SOME, 0.4)):
        if likeness >= least:
            return level
    return Level.DIFFERENT


def _numbers_differ(old: Folded, new: Folded, letters: float, slips: float) -> Level:
    """One slip of the finger, a number more or less, or other numbers beside much the same words."""
    if letters < 0.5:
        return Level.DIFFERENT
    if slips <= 1 and len(old.whole) >= 4:
        return Level.DIGIT
    if letters < 0.6 or len(new.numbers) == len(old.numbers):
        return Level.NUMBER
    more, fewer = Counter(new.numbers), Counter(old.numbers)
    if not (more - fewer and fewer - more):
        return Level.NEAR if letters >= 0.75 else Level.SOME
    return Level.NUMBER


def words_agree(old: Sequence[str], new: Sequence[str]) -> float:
    """Give the share of letters in words that have a partner: equal, a short form of it, or a slip away."""
    left_old, left_new = Counter(old), Counter(new)
    shared = left_old & left_new
    agreed = 2.0 * sum(len(word) * count for word, count in shared.items())
    rest_old, rest_new = list((left_old - shared).elements()), list((left_new - shared).elements())
    for word in rest_old:
        best, at = 0.0, -1
        for place, other in enumerate(rest_new):
            likeness = word_likeness(word, other)
            if likeness > best:
                best, at = likeness, place
        if at >= 0:
            agreed += best * (len(word) + len(rest_new.pop(at)))
    return agreed / max(1, sum(map(len, old)) + sum(map(len, new)))


@lru_cache(maxsize=100_000)
def word_likeness(one: str, other: str) -> float:
    """Give 0.97 for a short form of the other word, the share of equal letters for a slip, else 0."""
    short, long = sorted((one, other), key=len)
    if short[0] == long[0] and is_short_form(short, long):
        return 0.97
    if len(long) < 3 or short.isdigit() or long.isdigit():
        return 0.0
    return float(OSA.normalized_similarity(one, other, score_cutoff=0.65))


def is_short_form(short: str, long: str) -> bool:
    """Tell whether a word's letters stand in another word in order, the first one first."""
    if len(short) >= len(long) or not short.isalpha():
        return False
    letters = iter(long)
    return all(letter in letters for letter in short)


NUMBER_STEPS: Final = (0.001, 0.03, 0.15, 0.55)
"""Difference of two numbers beside the larger one, up to which they are alike, close, near, somewhat near."""

DAY_STEPS: Final = (1.0, 7.0, 45.0, 400.0)
METRE_STEPS: Final = (3.0, 30.0, 150.0, 1_000.0)
OVERLAP_STEPS: Final = (0.05, 0.25, 0.6, 0.9)
"""Share of two areas together that only one of them covers."""

_STEP_LEVELS: Final = np.array([Level.ALIKE, Level.CLOSE, Level.NEAR, Level.SOME, Level.DIFFERENT], dtype=np.int8)


def steps(apart: npt.NDArray[np.float64], up_to: Sequence[float]) -> npt.NDArray[np.int8]:
    """Give the level of each distance by the steps that it stays within."""
    return _STEP_LEVELS[np.searchsorted(up_to, apart)]
