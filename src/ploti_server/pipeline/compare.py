"""Compares found records by value, and names what the version delivers and its digest (D4.5, D5.6, D5.8)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ploti.contract.digest import Digest
from ploti.contract.files import GEOMETRY, RECORD_ID
from ploti_server.domain.matching import MatchPlan, own_types
from ploti_server.domain.schema import Schema
from ploti_server.domain.versions import Counts
from ploti_server.pipeline.find import PAIRS_SCHEMA, Found, Search
from ploti_server.pipeline.identify import Identified
from ploti_server.ports import Tables
from ploti_server.rows import changes, match
from ploti_server.rows.digest import digest_of
from ploti_server.rows.match import ROW
from ploti_server.rows.shape_pairs import same_pairs
from ploti_server.rows.sql import columns_of, null_of


@dataclass(frozen=True)
class Compared:
    """What is delivered."""

    counts: Counts
    backfill_rows: int
    digest: Digest


def compare(search: Search, found: Found, identified: Identified, digest: Digest | None) -> Compared:
    """Leave the tables `snapshot_rows`, `changes_rows` and `backfill_rows`; `digest` is the basis's."""
    tables, old, plan, schema = search.tables, search.old, search.plan, search.new.schema
    kept = _compare_pairs(search, found)
    changed = search.count("changed")
    tables.define("snapshot_rows", changes.snapshot(schema, kept=kept))
    tables.define("changes_rows", changes.changes(schema, kept=kept))
    tables.define("backfill_rows", changes.backfill(plan.added))
    backfilled = search.count("backfill_rows") if plan.added else 0
    counts = Counts(identified.added, changed, identified.removed)
    moves_on = old is not None and not identified.renamed and _carries(old.schema, schema, plan, backfilled)
    if old is None or digest is None or not moves_on:
        fresh = digest_of(_own_rows(tables, schema, "SELECT * FROM snapshot_rows"), own_types(schema, volatile=False))
        return Compared(counts, backfilled, fresh)
    return Compared(counts, backfilled, _moved_on(tables, digest, old.schema, schema, kept=kept))


def _compare_pairs(search: Search, found: Found) -> bool:
    """Leave `changed`, and `kept_shapes` for shapes that are still the same; tells whether there are any (D3.4)."""
    tables, plan = search.tables, search.plan
    tables.keep("compared_pairs", _compared(found.compared))
    if not search.count("compared_pairs"):
        tables.define("changed", _none_changed())
        return False
    tables.keep("compared_old", match.rows_of("touched_old", RECORD_ID, "compared_pairs"))
    tables.keep("compared_new", match.rows_of("touched_new", ROW, "compared_pairs"))
    kept = 0
    if plan.compares_shapes:
        shapes = tables.query(changes.moved_shapes("compared_pairs", "compared_old", "compared_new"))
        tables.map_batches("same_shapes", same_pairs(shapes, PAIRS_SCHEMA), PAIRS_SCHEMA)
        tables.keep(
            "kept_shapes",
            f"SELECT s.{ROW}, o.{GEOMETRY} FROM same_shapes s JOIN compared_old o ON s.{RECORD_ID} = o.{RECORD_ID}",
        )
        kept = search.count("kept_shapes")
    tables.keep("changed", changes.changed_pairs("compared_pairs", "compared_old", "compared_new", plan.compared))
    return kept > 0


def _compared(queries: Sequence[str]) -> str:
    if not queries:
        nothing = f"{null_of('string')} AS _match, {null_of('number')} AS _score"
        return f"SELECT p.{ROW}, p.{RECORD_ID}, {nothing} FROM ({match.all_pairs(())}) p"
    return " UNION ALL ".join(queries)


def _none_changed() -> str:
    return (
        f"SELECT p.{ROW}, p.{RECORD_ID}, p._match, p._score, CAST(NULL AS VARCHAR[]) AS _columns"
        " FROM compared_pairs p WHERE FALSE"
    )


def _carries(old: Schema, new: Schema, plan: MatchPlan, backfilled: int) -> bool:
    """Tell whether rows that did not change have the hash that they had, so that the digest can be moved on (D5.6)."""
    lost = own_types(old, volatile=False).keys() - own_types(new, volatile=False).keys()
    return not (lost or plan.retyped or plan.moved or backfilled)


def _moved_on(tables: Tables, digest: Digest, old: Schema, new: Schema, *, kept: bool) -> Digest:
    """Give old - removed - changed(old) + changed(new) + added."""
    total = Digest()
    total.merge(digest)
    for gone in ("removed", "changed"):
        rows = _own_rows(tables, old, changes.old_rows(gone))
        total.merge(digest_of(rows, own_types(old, volatile=False)), -1)
    for come in ("added", "changed"):
        rows = _own_rows(tables, new, changes.snapshot(new, kept=kept, chosen=come))
        total.merge(digest_of(rows, own_types(new, volatile=False)))
    return total


def _own_rows(tables: Tables, schema: Schema, sql: str) -> Iterator[pa.RecordBatch]:
    names = (RECORD_ID, *own_types(schema, volatile=False))
    return tables.query(f"SELECT {columns_of('d', names)} FROM ({sql}) d")
