"""Measured facts of a version, for the hold rules and for staff (D6.1, D6.2)."""

from collections.abc import Mapping
from typing import Any

from ploti_server.domain.matching import KeyFacts, Side
from ploti_server.domain.versions import Counts
from ploti_server.rows.raw import SHORT_ROW
from ploti_server.rows.sql import literal

REJECTED_ROWS = (
    'SELECT count(*) AS found FROM (SELECT r."row" FROM rejects r WHERE r."column" IS NOT NULL'
    f' OR r.reason = {literal(SHORT_ROW)} GROUP BY r."row") t'
)
"""Counts rows that lost a cell or a shape, or were short of cells (D5.7)."""


def count_facts(counts: Counts, by: Mapping[str, int]) -> dict[str, Any]:
    """Give the numbers of changes, of records that came back from the ledger, and of matches by how."""
    return {
        "added": counts.added,
        "changed": counts.changed,
        "removed": counts.removed,
        "returned": by["ledger"],
        "matched": {how: found for how, found in by.items() if how != "ledger"},
    }


def state_facts(new: Side, old: Side | None, keys: KeyFacts, rejected: int) -> dict[str, Any]:
    """Give what was measured of the state itself; `rejected` counts rows that lost a cell or a shape."""
    return {
        "rows": new.rows,
        "previous_rows": old and old.rows,
        "null_keys": keys.null,
        "duplicate_keys": keys.duplicate,
        "rejected_rows": rejected,
        "previous_nulls": dict(old.nulls) if old else {},
    }
