"""What reading a source's state tells: the delivered columns, and measured numbers about the rows (D2, D3, D5.7)."""

from dataclasses import dataclass, field

from ploti_server.domain.schema import KnownColumn, Schema


@dataclass(frozen=True)
class StateRead:
    """A state after typing and naming; its rows lie in the engine's table `new`.

    Table `new` has `_ploti_row` (int64, unique), `_ploti_hilbert` (int64, null without a shape; absent where the schema
    has no geometry) and the delivered columns of `schema` with their types. Table `rejects` has `row` (int64), `column`
    (string, null for a whole row), `reason` (string), `value` (string). `singles` maps a column that holds one value in
    every row (null counts as a value) to that value's canonical text. `missing_rows` could not be decoded. `misnamed`
    are names in the catalog that the state lacks (D2.9).
    """

    schema: Schema
    known_columns: tuple[KnownColumn, ...]
    rows: int
    nulls: dict[str, int] = field(default_factory=dict)
    singles: dict[str, str | None] = field(default_factory=dict)
    rejects: dict[str, int] = field(default_factory=dict)
    missing_rows: int = 0
    repaired_shapes: int = 0
    misnamed: tuple[str, ...] = ()
    encoding: str | None = None


class StateUnreadable(Exception):
    """A state that cannot be read whole; the message says what is wrong and what to do (D14.2)."""
