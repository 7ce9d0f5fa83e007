"""Matches a new state's rows with the records of the version before it, and names what the version delivers (D4).

Gather: the tables `new` and `rejects`, the previous snapshot, the ledger. Left behind: the tables `snapshot_rows`,
`changes_rows`, `backfill_rows` and `ledger_rows`. The steps are in `pipeline/find.py` (who is who), `identify.py` (ids
and ledger) and `compare.py` (what changed).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ploti.contract.digest import Digest
from ploti.contract.files import RECORD_ID
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.matching import Side, first_plan, own_types, plan_matching
from ploti_server.domain.replacements import Replacement
from ploti_server.domain.schema import Schema
from ploti_server.domain.states import StateRead
from ploti_server.domain.versions import Counts
from ploti_server.pipeline.ask import Judge, Waiting, ask
from ploti_server.pipeline.compare import compare
from ploti_server.pipeline.find import Lost, Search, find
from ploti_server.pipeline.identify import identify
from ploti_server.ports import Tables
from ploti_server.rows.canonical import json_value
from ploti_server.rows.facts import REJECTED_ROWS, count_facts, state_facts
from ploti_server.rows.ledger import LEDGER_LEFT, LEDGER_SCHEMA, completed
from ploti_server.rows.sql import columns_of

__all__ = ["Basis", "Matched", "Waiting", "match_records"]


@dataclass(frozen=True)
class Basis:
    """The released version that a new one is computed against (D5.2)."""

    version: int
    schema: Schema
    rows: int
    snapshot: tuple[Path, ...]
    singles: dict[str, str | None]
    nulls: dict[str, int]
    digest: Digest


@dataclass(frozen=True)
class Matched:
    """What matching found. `constants` are JSON-ready values of single-valued columns that moved (D5.8).

    `by` counts records found again by `key`, `ledger`, `content` and `agent`. `state_changed` tells whether a row or a
    constant would be delivered otherwise; the schema is the caller's to compare (D5.1). `renamed` counts ids that were
    replaced; `comparable` tells whether there was a key or content to find the basis's records by.
    """

    counts: Counts
    by: dict[str, int]
    constants: dict[str, Any]
    backfill_columns: tuple[str, ...]
    backfill_rows: int
    facts: dict[str, Any]
    digest: Digest
    state_changed: bool
    renamed: int = 0
    comparable: bool = True


def match_records(  # noqa: PLR0917  # the two places that call it name what stands for what
    tables: Tables,
    dataset: Dataset,
    epoch: int,
    state: StateRead,
    basis: Basis | None,
    judge: Judge | None,
    *,
    version: int,
    ledger: tuple[Path, ...] = (),
    replacement: Replacement | None = None,
    lost: Lost | None = None,
    is_ledger_whole: bool = True,
) -> Matched | Waiting:
    """Match a state's rows in the table `new` with the basis; `ledger` are the ledger parts of all sent versions.

    Where the basis is `lost`, keyed records take their ids from the ledger. Of a ledger that is not whole, `ledger` are
    the parts after the last lost one; the basis then tells which ids are current.
    A `replacement` then changes the ids of found records and leaves the table `id_map_rows` (D4.12).

    Gives `Waiting` where the agent answers later; nothing is written down then.
    """
    new = Side(state.schema, state.rows, state.nulls, state.singles)
    old = Side(basis.schema, basis.rows, basis.nulls, basis.singles) if basis else None
    plan = plan_matching(old, new) if old else first_plan(new)
    _open(tables, basis, ledger, is_whole=is_ledger_whole)
    search = Search(tables, dataset, new, old, plan, lost)
    found = ask(search, find(search), judge)
    if isinstance(found, Waiting):
        return found
    identified = identify(search, found, epoch, version, replacement)
    compared = compare(search, found, identified, basis.digest if basis else None)
    rejected = tables.one(REJECTED_ROWS)["found"] if state.rejects else 0
    types = {column.name: column.type for column in state.schema.columns}
    constants = {name: json_value(state.singles[name], types[name]) for name in plan.moved}
    facts = count_facts(compared.counts, found.by) | state_facts(new, old, found.keys, rejected)
    return Matched(
        counts=compared.counts,
        by=found.by,
        constants=constants,
        backfill_columns=plan.added,
        backfill_rows=compared.backfill_rows,
        facts=facts,
        digest=compared.digest,
        renamed=identified.renamed,
        comparable=bool(plan.key) or plan.content,
        state_changed=any((compared.counts.added, compared.counts.changed, compared.counts.removed, constants)),
    )


def _open(tables: Tables, basis: Basis | None, ledger: tuple[Path, ...], *, is_whole: bool) -> None:
    if basis is not None:
        tables.add_files("old_files", basis.snapshot)
        tables.define("old", f"SELECT {columns_of('o', (RECORD_ID, *own_types(basis.schema)))} FROM old_files o")
    name = "ledger" if is_whole or basis is None else LEDGER_LEFT
    if ledger:
        tables.add_files(name, ledger)
    else:
        tables.map_batches(name, iter(()), LEDGER_SCHEMA)
    if basis is not None and not is_whole:
        tables.keep("ledger", completed(LEDGER_LEFT, "old", basis.version))
