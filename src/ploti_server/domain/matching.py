"""How the rows of a new state are matched with the records of the version before it (D4.4 to D4.8)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ploti.contract.files import GEOMETRY
from ploti.contract.values import ColumnType
from ploti_server.domain.schema import FIRST_SCHEMA_VERSION, Column, Schema, change_between


@dataclass(frozen=True)
class MatchPlan:
    """What is compared and how records are found again; column names are delivered ones.

    `key` are the columns to match by, empty where the two versions have no key that both can be matched by. `keyed`
    tells whether left-overs follow the rules of keyed datasets. `constants` hold one value in every row of both
    versions; `moved` are those of them whose value moved. `added` are delivered columns that the version before lacks,
    or had as volatile. `content` tells whether identical content may match at all.
    """

    keyed: bool
    key: tuple[str, ...]
    compared: tuple[str, ...]
    constants: tuple[str, ...]
    moved: tuple[str, ...]
    added: tuple[str, ...]
    retyped: tuple[str, ...]
    content: bool

    @property
    def compared_values(self) -> tuple[str, ...]:
        """Compared columns but for the geometry, which is compared with a tolerance (D3.4)."""
        return tuple(name for name in self.compared if name != GEOMETRY)

    @property
    def compares_shapes(self) -> bool:
        """Whether the geometry is compared."""
        return GEOMETRY in self.compared


@dataclass(frozen=True)
class Side:
    """One version as matching sees it: its schema, number of rows, nulls by column, columns with a single value."""

    schema: Schema
    rows: int
    nulls: Mapping[str, int]
    singles: Mapping[str, str | None]


@dataclass(frozen=True)
class KeyFacts:
    """Rows whose key has a null, and rows that share their key with another."""

    null: int = 0
    duplicate: int = 0


def plan_matching(old: Side, new: Side) -> MatchPlan:
    """Decide what a new state is compared by with the version before it (D4.4, D4.5).

    Where no other column could tell records, those that hold one value in all rows of both versions do, so that equal
    rows stay the records that they are.
    """
    before = {column.name: column for column in old.schema.columns}
    change = change_between(old.schema, new.schema, FIRST_SCHEMA_VERSION)
    retyped = tuple(retype.name for retype in change.retyped) if change else ()
    steady = [c.name for c in new.schema.columns if c.name in before and c.name not in retyped]
    firm = [name for name in steady if not _volatile(old, name) and not _volatile(new, name)]
    constants = tuple(name for name in firm if _constant(name, old, new))
    moved = tuple(name for name in constants if old.singles[name] != new.singles[name])
    compared = tuple(name for name in firm if name not in constants)
    content = any(_has_value(name, old) and _has_value(name, new) for name in compared)
    still = tuple(name for name in constants if name not in moved)
    if not content and still and (still == tuple(firm) or any(_has_value(name, new) for name in still)):
        compared, content = tuple(name for name in firm if name not in moved), True
    key = new.schema.key_columns
    return MatchPlan(
        keyed=bool(key),
        key=key if all(name in steady for name in key) else (),
        compared=compared,
        constants=constants,
        moved=moved,
        added=tuple(c.name for c in new.schema.columns if _newly_delivered(c, before)),
        retyped=retyped,
        content=content,
    )


def first_plan(new: Side) -> MatchPlan:
    """Plan for a first version: nothing to compare with."""
    return MatchPlan(bool(new.schema.key_columns), (), (), (), (), (), (), False)


def _volatile(side: Side, name: str) -> bool:
    column = side.schema.column(name)
    return column is not None and column.volatile


def _constant(name: str, old: Side, new: Side) -> bool:
    """One value in every row of both versions, where both have two rows or more; a shape never counts as one."""
    enough = old.rows >= 2 and new.rows >= 2
    return enough and name != GEOMETRY and name in old.singles and name in new.singles


def _newly_delivered(column: Column, before: Mapping[str, Column]) -> bool:
    return column.name not in before or (before[column.name].volatile and not column.volatile)


def _has_value(name: str, side: Side) -> bool:
    return side.nulls.get(name, 0) < side.rows


def own_types(schema: Schema, *, volatile: bool = True) -> dict[str, ColumnType]:
    """Give the delivered columns' types in delivery order, with the volatile ones or without."""
    return {column.name: column.type for column in schema.columns if volatile or not column.volatile}


class Judged(Protocol):
    """What an agent answers about a pair (`ports.Judgement`)."""

    @property
    def pair_id(self) -> str: ...
    @property
    def same(self) -> bool: ...
    @property
    def confidence(self) -> float: ...


@dataclass(frozen=True)
class Assignment:
    """An old and a new record that the agent holds for one."""

    old: str
    new: int
    score: float


def assign(
    judgements: Iterable[Judged], pairs: Mapping[str, tuple[str, int, str]], min_confidence: float
) -> tuple[Assignment, ...]:
    """Match one to one: best first, ties by old id, then by the new record's content hash (D4.8).

    `pairs` gives for a pair id the old record id, the new row and the new row's content hash. Answers about unknown
    pairs, and repeated ones after the first best, are left out.
    """
    known = [j for j in judgements if j.pair_id in pairs and j.same and min_confidence <= j.confidence <= 1]
    best = sorted(known, key=lambda j: (-j.confidence, pairs[j.pair_id][0], pairs[j.pair_id][2], pairs[j.pair_id][1]))
    old_taken: set[str] = set()
    new_taken: set[int] = set()
    assigned = []
    for judgement in best:
        old, new, _ = pairs[judgement.pair_id]
        if old not in old_taken and new not in new_taken:
            old_taken.add(old)
            new_taken.add(new)
            assigned.append(Assignment(old, new, judgement.confidence))
    return tuple(assigned)
