"""A source's state before typing: text and kind of every value, in batches (D2.3, D2.4)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ploti_server.domain.columns import SourceColumn

Array: TypeAlias = "pa.Array[Any]"
"""An Arrow array of any type; the quotes are there because Arrow's own class takes no parameter at run time."""


class Kind(IntEnum):
    """What the source itself says of a value. `TEXT` is untyped, as in CSV; the others are JSON's."""

    NULL = 0
    TEXT = 1
    STRING = 2
    INTEGER = 3
    NUMBER = 4
    BOOLEAN = 5
    NESTED = 6


@dataclass(frozen=True)
class RawColumn:
    """One column of a batch: the text of each value (null where there is none) and the kinds that occur.

    Text of a JSON value: the string itself, digits of an integer, shortest form of a number, `true` or `false`, and
    canonical JSON of what is nested. `kind_of` holds the kind of each value where several kinds occur.
    """

    text: Array
    kinds: frozenset[Kind]
    kind_of: npt.NDArray[np.int8] | None = None


SHORT_ROW: Final = "row is shorter than the header: filled with nulls"
"""Why a row is listed whose cells are all delivered, and which counts as a reject."""


@dataclass(frozen=True)
class Reject:
    """A row or cell that is not delivered as the source has it (D5.7); `column` is a source column's id, or a name."""

    row: int
    column: str | None
    reason: str
    value: str | None


@dataclass(frozen=True)
class RawBatch:
    """Some records of a state.

    `numbers` are their places in the source, from 1. `columns` go by source column id; one that is not there is null in
    every row. `shapes` are shapely geometries, None where absent. `missing` counts rejects that could not be decoded.
    """

    numbers: npt.NDArray[np.int64]
    columns: dict[str, RawColumn]
    shapes: npt.NDArray[np.object_] | None = None
    rejects: tuple[Reject, ...] = ()
    missing: int = 0

    def column(self, id_: str) -> RawColumn:
        """Give a column, all null where no record of the batch has it."""
        found = self.columns.get(id_)
        return found or RawColumn(pa.nulls(len(self.numbers), pa.string()), frozenset())


class RawRecords(Protocol):
    """Reads the records of a state, from the start each time it is called."""

    def __call__(self) -> Iterator[RawBatch]:
        """Give batches of some 20,000 records; raises `StateUnreadable` where the state breaks off."""


@dataclass(frozen=True)
class RawState:
    """An opened state, read as often as needed.

    `has_records` is False for a state that says nothing about its columns, `by_member` True where columns are the
    members that records have (D2.10). `crs` is what the source itself declares. `encoding` names how its text was read.
    """

    columns: tuple[SourceColumn, ...]
    batches: RawRecords
    has_shapes: bool = False
    has_records: bool = True
    by_member: bool = False
    crs: tuple[str, ...] = ()
    encoding: str | None = None
    format: str = field(default="", compare=False)
