"""A dataset's columns, schema versions, and what changed between two of them (D2)."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from ploti.contract.values import ColumnType


@dataclass(frozen=True)
class Column:
    """A delivered column. `geometry_type` is `Point`, `MultiPolygon`, ..., or `Geometry` for mixed kinds (D3.2).

    `optional` tells that some record of the state left the member out (D2.10); it never goes on the wire.
    """

    name: str
    type: ColumnType
    nullable: bool
    source_name: str
    volatile: bool = False
    geometry_type: str | None = None
    description: str | None = None
    optional: bool = False


@dataclass(frozen=True)
class Schema:
    """Columns in delivery order and the key, by delivered names."""

    columns: tuple[Column, ...]
    key_columns: tuple[str, ...] = ()

    def column(self, name: str) -> Column | None:
        """Find a column by its delivered name."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, order=True)
class SchemaVersion:
    """MAJOR.MINOR."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: str) -> "SchemaVersion":
        """Read `MAJOR.MINOR`."""
        major, minor = text.split(".")
        return cls(int(major), int(minor))


@dataclass(frozen=True)
class Retype:
    """A column's old and new type; a geometry kind reads like `geometry(Point)`."""

    name: str
    from_: str
    to: str


@dataclass(frozen=True)
class NullabilityChange:
    """A column that became nullable (nullability only widens, D2.7)."""

    name: str
    from_: bool
    to: bool


@dataclass(frozen=True)
class SchemaChange:
    """What one version changed, measured from the last released schema."""

    kind: Literal["additive", "breaking"]
    previous: SchemaVersion
    added: tuple[Column, ...] = ()
    removed: tuple[str, ...] = ()
    retyped: tuple[Retype, ...] = ()
    nullability: tuple[NullabilityChange, ...] = ()
    key_changed: bool = False


@dataclass(frozen=True)
class KnownColumn:
    """A column that some released version had: its name stays with its source column, its place with the dataset."""

    name: str
    source_name: str


FIRST_SCHEMA_VERSION: Final = SchemaVersion(1, 0)


def type_text(column: Column) -> str:
    """Write a column's type; a geometry says its kind, like `geometry(Point)` (D3.2)."""
    return column.type if column.geometry_type is None else f"{column.type}({column.geometry_type})"


def change_between(previous: Schema, new: Schema, previous_version: SchemaVersion) -> SchemaChange | None:
    """Tell what a schema changed since the last released one; None where it has the same shape.

    Order, source spelling, description, volatility and a column that stopped being null are not shape (D2.7, D2.8).
    """
    before = {column.name: column for column in previous.columns}
    after = {column.name: column for column in new.columns}
    kept = [(before[name], after[name]) for name in before if name in after]
    key_changed = previous.key_columns != new.key_columns
    change = SchemaChange(
        kind="additive",
        previous=previous_version,
        added=tuple(column for column in new.columns if column.name not in before),
        removed=tuple(name for name in before if name not in after),
        retyped=tuple(Retype(o.name, type_text(o), type_text(n)) for o, n in kept if _retyped(o, n)),
        nullability=tuple(NullabilityChange(o.name, False, True) for o, n in kept if n.nullable and not o.nullable),
        key_changed=key_changed,
    )
    first_pin = key_changed and not previous.key_columns
    if change.removed or change.retyped or (key_changed and not first_pin):
        return replace(change, kind="breaking")
    return change if change.added or change.nullability or key_changed else None


def next_version(previous: SchemaVersion | None, change: SchemaChange | None) -> SchemaVersion:
    """Give the schema version after a change: MAJOR resets MINOR, no change keeps it, the first is 1.0 (D2.7)."""
    if previous is None:
        return FIRST_SCHEMA_VERSION
    if change is None:
        return previous
    if change.kind == "breaking":
        return SchemaVersion(previous.major + 1, 0)
    return SchemaVersion(previous.major, previous.minor + 1)


def _retyped(old: Column, new: Column) -> bool:
    """Another type, or another kind of shape; a kind that is not known yet changes nothing (D3.1)."""
    if old.type != new.type:
        return True
    return None not in (old.geometry_type, new.geometry_type) and old.geometry_type != new.geometry_type
