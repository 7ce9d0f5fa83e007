"""Hold rules: from a version's measured facts to the reasons why a person should look first (D6.1, D6.2).

A new rule is one function in `HOLD_RULES` and its rows in `tests/domain/test_holds.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ploti.contract.events import HOLD_REASONS, HoldReason
from ploti.contract.files import GEOMETRY
from ploti_server.domain.datasets import ReviewLimits

GROWTH: Final = 0.1
"""By what share a hold's numbers may grow until a further check no longer agrees with it."""


@dataclass(frozen=True)
class Facts:
    """What was measured of a new version and of the released one it is compared with.

    `previous_rows` is None for a first version. `nulls` count null cells by column, geometry among them. `rejects`
    count rows that lost a cell or shape or could not be decoded, `missing_rows` the latter alone. `ledger_lost` are the
    versions whose part of the id ledger is lost.
    """

    rows: int
    previous_rows: int | None = None
    added: int = 0
    changed: int = 0
    removed: int = 0
    breaking: tuple[str, ...] = ()
    duplicate_keys: int = 0
    null_keys: int = 0
    rejects: int = 0
    missing_rows: int = 0
    nulls: dict[str, int] = field(default_factory=dict)
    previous_nulls: dict[str, int] = field(default_factory=dict)
    ids_replaced: bool = False
    none_compared: bool = False
    ledger_lost: tuple[int, ...] = ()
    agent_silent: bool = False


@dataclass(frozen=True)
class Hold:
    """One rule that applied: what was measured and the limit it passed; `column` where one column is meant."""

    reason: HoldReason
    rule: str
    measured: float | str
    limit: float | None = None
    column: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the form that is stored with the version's facts and shown to staff."""
        shown = {"reason": self.reason, "rule": self.rule, "measured": self.measured, "limit": self.limit}
        return shown if self.column is None else shown | {"column": self.column}


HoldRule = Callable[[Facts, ReviewLimits], Iterator[Hold]]


def breaking_schema(facts: Facts, _: ReviewLimits) -> Iterator[Hold]:
    """A column removed or retyped, or the key changed or dropped."""
    if facts.breaking:
        yield Hold("schema_review", "breaking_schema", ", ".join(facts.breaking))


def zero_rows(facts: Facts, _: ReviewLimits) -> Iterator[Hold]:
    """No rows where there were some."""
    if facts.rows == 0 and facts.previous_rows:
        yield Hold("data_check", "zero_rows", 0, 1)


def row_drop(facts: Facts, limits: ReviewLimits) -> Iterator[Hold]:
    """Rows down by more than a share and more than a number."""
    previous = facts.previous_rows or 0
    dropped = previous - facts.rows
    if dropped > limits.min_rows_dropped and dropped > limits.max_row_drop * previous:
        yield Hold("data_check", "row_drop", dropped / previous, limits.max_row_drop)


def turnover(facts: Facts, limits: ReviewLimits) -> Iterator[Hold]:
    """The smaller of removed and added ids over a share of the previous rows; ids replaced by staff aside."""
    previous = facts.previous_rows or 0
    turned = min(facts.added, facts.removed)
    if turned > limits.min_turnover and turned > limits.max_turnover * previous and not facts.ids_replaced:
        yield Hold("data_check", "turnover", turned / previous, limits.max_turnover)


def duplicate_key(facts: Facts, _: ReviewLimits) -> Iterator[Hold]:
    """Any row that shares its key with another."""
    if facts.duplicate_keys:
        yield Hold("data_check", "duplicate_key", facts.duplicate_keys, 0)


def null_key(facts: Facts, _: ReviewLimits) -> Iterator[Hold]:
    """Any row with a null in its key."""
    if facts.null_keys:
        yield Hold("data_check", "null_key", facts.null_keys, 0)


def rejects(facts: Facts, limits: ReviewLimits) -> Iterator[Hold]:
    """Too many rows with a broken cell or shape, or that could not be decoded."""
    read = facts.rows + facts.missing_rows
    if read and facts.rejects > limits.max_rejects * read:
        yield Hold("data_check", "rejects", facts.rejects / read, limits.max_rejects)


def missing_rows(facts: Facts, _: ReviewLimits) -> Iterator[Hold]:
    """A row that could not be decoded could be a record that would now be removed (D5.7)."""
    if facts.missing_rows and facts.removed:
        yield Hold("data_check", "missing_rows", facts.missing_rows, 0)


def null_rise(facts: Facts, limits: ReviewLimits) -> Iterator[Hold]:
    """A column's share of nulls up by too many points; geometry has its own rule."""
    yield from _risen(facts, limits, "null_rise", limits.max_null_rise, geometry=False)


def geometry_loss(facts: Facts, limits: ReviewLimits) -> Iterator[Hold]:
    """The share of rows without a shape up by too many points."""
    yield from _risen(facts, limits, "geometry_loss", limits.max_geometry_loss, geometry=True)


def _risen(facts: Facts, limits: ReviewLimits, rule: str, limit: float, *, geometry: bool) -> Iterator[Hold]:
    previous_rows = facts.previous_rows or 0
    if min(facts.rows, previous_rows) < limits.min_rows_for_shares:
        return
    for column, nulls in facts.nulls.items():
        if (column == GEOMETRY) is geometry and column in facts.previous_nulls:
            rise = nulls / facts.rows - facts.previous_nulls[column] / previous_rows
            if rise > limit:
                yield Hold("data_check", rule, rise, limit, column)


def none_compared(facts: Facts, _: ReviewLimits) -> Iterator[Hold]:
    """A version was released again, or is not kept, and none of its records could be compared (page 001)."""
    if facts.none_compared and facts.rows and facts.previous_rows:
        yield Hold("processing", "none_compared", facts.previous_rows, 0)


def ledger_lost(facts: Facts, _: ReviewLimits) -> Iterator[Hold]:
    """A part of the id ledger is lost: a record that returns would not get its old id back (D4.3)."""
    if facts.ledger_lost:
        yield Hold("processing", "ledger_lost", ", ".join(map(str, facts.ledger_lost)))


def agent_silent(facts: Facts, _: ReviewLimits) -> Iterator[Hold]:
    """The matching agent was asked twice and did not answer (D4.9)."""
    if facts.agent_silent:
        yield Hold("processing", "agent_silent", 2, 2)


HOLD_RULES: Final[tuple[HoldRule, ...]] = (
    breaking_schema,
    zero_rows,
    row_drop,
    turnover,
    duplicate_key,
    null_key,
    rejects,
    missing_rows,
    null_rise,
    geometry_loss,
    none_compared,
    ledger_lost,
    agent_silent,
)


def review(facts: Facts, limits: ReviewLimits) -> tuple[Hold, ...]:
    """Apply every rule; holds come in the order of `HOLD_REASONS`, so that the first gives the reason."""
    holds = [hold for rule in HOLD_RULES for hold in rule(facts, limits)]
    return tuple(sorted(holds, key=lambda hold: HOLD_REASONS.index(hold.reason)))


def reasons(holds: tuple[Hold, ...]) -> tuple[HoldReason, ...]:
    """Name the reasons that apply, each once, the hold's own first."""
    return tuple(dict.fromkeys(hold.reason for hold in holds))


def agree(earlier: Sequence[Mapping[str, Any]], later: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a further check found the trouble of a hold again (D6.3); holds are in their stored form.

    The same rules about the same columns, the same schema change, and no number more than a tenth higher: trouble that
    grows is another one.
    """
    before = {(hold["rule"], hold.get("column")): hold["measured"] for hold in earlier}
    now = {(hold["rule"], hold.get("column")): hold["measured"] for hold in later}
    return before.keys() == now.keys() and all(_no_worse(before[rule], now[rule]) for rule in now)


def _no_worse(before: float | str, now: float | str) -> bool:
    if isinstance(before, str) or isinstance(now, str):
        return before == now
    return now <= before * (1 + GROWTH)
