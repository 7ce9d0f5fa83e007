"""Infers the type of each column from all its values (D2.3, D2.4)."""

from dataclasses import dataclass, field
from typing import Final

from ploti.contract.values import ColumnType
from ploti_server.rows.raw import Kind, RawColumn
from ploti_server.rows.text import clean
from ploti_server.rows.types import hold

TEXT_TYPES: Final[tuple[ColumnType, ...]] = ("integer", "number", "boolean", "date", "timestamp")
"""What untyped text can turn out to be, the first that every value fits; else `string`."""


@dataclass
class ColumnProfile:
    """What has been seen of one column; `pinned` is the type that it has in the last released schema."""

    zone: str
    pinned: ColumnType | None = None
    holds_pinned: bool = True
    kinds: set[Kind] = field(default_factory=set)
    possible: list[ColumnType] = field(default_factory=lambda: list(TEXT_TYPES))
    proven: set[ColumnType] = field(default_factory=set)
    valued: bool = False

    def see(self, column: RawColumn) -> None:
        """Take a batch's values in."""
        self.kinds |= column.kinds - {Kind.NULL}
        if self.pinned is not None and self.holds_pinned:
            self.holds_pinned = hold(column, self.pinned, self.zone).whole
        if Kind.TEXT in column.kinds:
            self._see_text(RawColumn(clean(column.text), column.kinds))
        else:
            self.valued = self.valued or column.text.null_count < len(column.text)

    def _see_text(self, column: RawColumn) -> None:
        if column.text.null_count == len(column.text):
            return
        self.possible = [type_ for type_ in self.possible if self._can_be(column, type_)]
        self.valued = True

    def _can_be(self, column: RawColumn, type_: ColumnType) -> bool:
        """Tell whether every text fits a type; for `integer` each has to be one, not only stand for no value."""
        held = hold(column, type_, self.zone)
        if held.values.null_count < len(held.values):
            self.proven.add(type_)
        return held.whole and (type_ != "integer" or held.values.null_count == column.text.null_count)

    @property
    def inferred(self) -> ColumnType:
        """The type of the column by its values alone; `string` where there is none."""
        if Kind.TEXT in self.kinds:
            return next((type_ for type_ in self.possible if type_ in self.proven), "string")
        return type_of_kinds(frozenset(self.kinds))


def type_of_kinds(kinds: frozenset[Kind]) -> ColumnType:
    """Give the type of a column of JSON values: nested beside anything is `json`, mixed scalars are `string` (D2.2)."""
    if Kind.NESTED in kinds:
        return "json"
    if kinds == {Kind.INTEGER}:
        return "integer"
    if kinds and kinds <= {Kind.INTEGER, Kind.NUMBER}:
        return "number"
    return "boolean" if kinds == {Kind.BOOLEAN} else "string"
