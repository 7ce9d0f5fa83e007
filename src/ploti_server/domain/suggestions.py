"""What a state's columns suggest for its catalog entry: keys, coordinates, columns not to compare (D2.9, D4.4)."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from ploti.contract.values import ColumnType

KEY_TYPES: Final[tuple[ColumnType, ...]] = ("string", "integer", "date", "timestamp")
ALONE: Final[tuple[ColumnType, ...]] = ("string", "integer")
"""Types of a column that can be a key alone."""

PAIRED_FROM: Final = 8
"""Of how many columns, those with the most values, pairs are tried."""

_NAMES_A_THING: Final = re.compile(
    r"(^|_)(id|ids|no|num|nbr|number|key|code|permit|license|licence|parcel|apn|ident)($|_)"
)
_NUMBERS_ROWS: Final = re.compile(
    r"^(objectid|object_id|fid|ogc_fid|gid|oid|row|row_?num(ber)?|row_?id|index|_?id)\d*$"
)
_TELLS_READING: Final = re.compile(r"(exported|extracted|downloaded|retrieved|refreshed|loaded|generated|as_of)")
_X: Final = re.compile(r"^(x|lon|long|longitude|lng|x_?coord(inate)?|point_x|easting|.*_(lon|long|longitude|lng|x))$")
_Y: Final = re.compile(r"^(y|lat|latitude|y_?coord(inate)?|point_y|northing|.*_(lat|latitude|y))$")
_NUMBER: Final = re.compile(r"^[+-]?\d{1,9}(\.\d+)?$")
_WKT: Final = re.compile(r"^\s*(SRID=\d+;)?\s*(MULTI)?(POINT|LINESTRING|POLYGON)\s*Z?M?\s*\(", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnFacts:
    """What was measured of a column; `least` and `most` of numbers only, `some` are a few texts."""

    name: str
    source_name: str
    type: ColumnType
    rows: int
    nulls: int
    distinct: int | None = None
    least: float | None = None
    most: float | None = None
    some: tuple[str, ...] = ()

    @property
    def is_unique(self) -> bool:
        """Whether every row has a value of its own."""
        return self.nulls == 0 and self.distinct == self.rows and self.rows > 1

    @property
    def numbers_rows(self) -> bool:
        """Whether the column may only count rows, so that the next state numbers others so."""
        counts = self.is_unique and self.type == "integer" and self.least in (0, 1) and self.most is not None
        in_step = (
            counts and self.most is not None and self.least is not None and self.most - self.least == self.rows - 1
        )
        return in_step or (self.is_unique and _NUMBERS_ROWS.match(self.name) is not None)


@dataclass(frozen=True)
class KeySuggestion:
    """Columns that tell every row apart, by delivered name; `doubt` says what to look at first."""

    columns: tuple[str, ...]
    doubt: str | None = None


@dataclass(frozen=True)
class PlaceSuggestion:
    """Columns that give a shape; `crs` where the numbers can only be degrees."""

    x: str | None = None
    y: str | None = None
    wkt: str | None = None
    crs: str | None = None


def single_keys(columns: Iterable[ColumnFacts]) -> tuple[KeySuggestion, ...]:
    """Give the columns that are unique and never null: those whose name names a thing first, row numbers last."""
    found = [column for column in columns if column.is_unique and column.type in ALONE]
    ordered = sorted(found, key=lambda c: (c.numbers_rows, _NAMES_A_THING.search(c.name) is None))
    doubt = "it may only count the rows of this state"
    return tuple(KeySuggestion((column.name,), doubt if column.numbers_rows else None) for column in ordered)


def pairs_to_try(columns: Sequence[ColumnFacts]) -> tuple[tuple[str, str], ...]:
    """Give pairs of columns that may be unique together, where neither is alone: at most 28."""
    fit = [
        column
        for column in columns
        if column.type in KEY_TYPES and column.nulls == 0 and not column.is_unique and (column.distinct or 0) > 1
    ]
    most = sorted(fit, key=lambda c: -(c.distinct or 0))[:PAIRED_FROM]
    chosen = [column for column in fit if column in most]
    return tuple(
        (one.name, other.name)
        for one, other in combinations(chosen, 2)
        if (one.distinct or 0) * (other.distinct or 0) >= one.rows
    )


def likely_pairs(unique: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Keep of unique pairs those with a column whose name names a thing, where there are any: others may be chance."""
    named = tuple(pair for pair in unique if any(_NAMES_A_THING.search(name) for name in pair))
    return named or tuple(unique)


def place_of(columns: Sequence[ColumnFacts]) -> PlaceSuggestion | None:
    """Find the columns that give points or shapes."""
    for column in columns:
        if column.type == "string" and column.some and all(_WKT.match(text) for text in column.some):
            return PlaceSuggestion(wkt=column.name)
    x = next((column for column in columns if _X.match(column.name) and _ends(column)), None)
    y = next((column for column in columns if _Y.match(column.name) and _ends(column)), None)
    if x is None or y is None:
        return None
    degrees = _within(x, 180) and _within(y, 90)
    return PlaceSuggestion(x=x.name, y=y.name, crs="EPSG:4326" if degrees else None)


def volatile_of(columns: Sequence[ColumnFacts]) -> tuple[str, ...]:
    """Name the columns that change without the record changing: row numbers, times of reading (D2.9)."""
    return tuple(column.name for column in columns if column.numbers_rows or _TELLS_READING.search(column.name))


def _ends(column: ColumnFacts) -> tuple[float, float] | None:
    """Give the least and the most of a column of numbers; of texts that are numbers, as in JSON, of the few known."""
    if column.type == "string" and column.some and all(_NUMBER.match(text) for text in column.some):
        numbers = [float(text) for text in column.some]
        return min(numbers), max(numbers)
    return None if column.least is None or column.most is None else (column.least, column.most)


def _within(column: ColumnFacts, most: float) -> bool:
    ends = _ends(column)
    return ends is not None and -most <= ends[0] and ends[1] <= most
