"""A dataset's columns, schema versions, and what changed between two of them (D2)."""

from dataclasses import dataclass
from typing import Literal

from ploti.contract.values import ColumnType


@dataclass(frozen=True)
class Column:
    """A delivered column. `geometry_type` is `Point`, `MultiPolygon`, ..., or `Geometry` for mixed kinds (D3.2)."""

    name: str
    type: ColumnType
    nullable: bool
    source_name: str
    volatile: bool = False
    geometry_type: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class Schema:
    """Columns in delivery order and the key, by delivered names."""

    columns: tuple[Column, ...]
    key_columns: tuple[str, ...] = ()


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
