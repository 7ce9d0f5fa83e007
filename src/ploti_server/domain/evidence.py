"""What the matching agent may know about a dataset beside the pairs that it is asked about (D4.8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ploti.contract.values import ColumnType

Values = Mapping[str, Any]
"""A record's values by delivered column name."""


@dataclass(frozen=True)
class Evidence:
    """How values are spread in the version before, and pairs of records whose answer is known.

    `columns` are the compared ones (D4.5) with their types. `rows` and `left_old` count the version before and its
    left-overs, `left_new` the new state's. `held` tells by column how many records of the version before hold a value
    of a record asked about; a value that is not there is held by none. `apart` are pairs of different records that
    share a value as candidates do, `same` pairs found again by other steps although something differs. Records asked
    about are the same objects here and in the pairs.
    """

    columns: Mapping[str, ColumnType]
    rows: int = 0
    left_old: int = 0
    left_new: int = 0
    held: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)
    apart: Sequence[tuple[Values, Values]] = ()
    same: Sequence[tuple[Values, Values]] = ()
