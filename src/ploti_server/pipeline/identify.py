"""Gives every row its record id, and the ledger its new entries (D4.1 to D4.3)."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa

from ploti.contract.files import RECORD_ID
from ploti_server.domain.identity import record_id_of_hash
from ploti_server.domain.matching import own_types
from ploti_server.domain.replacements import Replacement
from ploti_server.domain.schema import Schema
from ploti_server.pipeline.find import Found, Search
from ploti_server.pipeline.rename import prepare, rename
from ploti_server.ports import Tables
from ploti_server.rows import ledger, match
from ploti_server.rows.match import ROW
from ploti_server.rows.replacing import entries, not_renamed
from ploti_server.rows.sql import staged_schema


@dataclass(frozen=True)
class Identified:
    """Numbers of rows in the tables `added` (new ids and returning ones), `removed` and `renamed`."""

    added: int
    removed: int
    renamed: int = 0


def identify(search: Search, found: Found, epoch: int, version: int, replacement: Replacement | None) -> Identified:
    """Leave the tables `row_ids`, `added`, `removed`, `ledger_rows`, and with a replacement `id_map_rows`.

    Raises `ValueError` where rows and ids do not add up: a wrong version is never built.
    """
    tables, added, renamed = search.tables, "fresh", 0
    if replacement is None:
        _make_fresh(search, ledger.numbered(found.left_new, **_numbering(search)), epoch)
        tables.define("row_ids", match.all_pairs([*found.all_pairs, "fresh"]))
    else:
        prepare(search, found, replacement)
        again = ledger.numbered(
            "to_number", **_numbering(search), identities="identities_again", whole_rows="rows_again"
        )
        _make_fresh(search, again, epoch)
        added, renamed = "added_rows", rename(search, found)
    fresh = search.count(added)
    ids = fresh + sum(found.by.values())
    if ids != search.new.rows:
        raise ValueError(f"{search.dataset.id}: {search.new.rows} rows, but {ids} ids: matching is at fault")
    tables.define("added", match.all_pairs([added, *found.pairs.get("ledger", ())]))
    if search.old is None:
        tables.define("removed", match.all_pairs(()))
    else:
        tables.define("removed", f"SELECT l.{RECORD_ID} FROM {found.left_old} l")
    _make_entries(search, found, version, added, renamed)
    return Identified(fresh + found.by["ledger"], found.old_count, renamed)


def _numbering(search: Search) -> dict[str, Any]:
    schema = search.new.schema
    return {"keyed": bool(schema.key_columns), "volatile": tuple(c.name for c in schema.columns if c.volatile)}


def _make_fresh(search: Search, numbered: str, epoch: int) -> None:
    """Give new ids to numbered rows: the next ordinal where another record has ever carried the id (D4.1)."""
    tables, dataset_id = search.tables, search.dataset.id
    tables.keep("numbered", numbered)
    rows = tables.query("SELECT * FROM numbered")
    tables.map_batches("tried", ledger.fresh_ids(rows, dataset_id, epoch), ledger.FRESH_SCHEMA)
    tables.keep("taken", ledger.known_ids("tried"))
    if not search.count("taken"):
        tables.define("fresh", "SELECT * FROM tried")
        return
    tables.keep("contested", ledger.contested("tried", "taken"))
    tables.map_batches("settled", _settled(tables, dataset_id, epoch), ledger.FRESH_SCHEMA)
    tables.define(
        "fresh",
        f"SELECT t.{ROW}, t.{RECORD_ID}, t.ordinal FROM tried t LEFT JOIN contested c ON t.{ROW} = c.{ROW}"
        f" WHERE c.{ROW} IS NULL UNION ALL SELECT s.{ROW}, s.{RECORD_ID}, s.ordinal FROM settled s",
    )


def _settled(tables: Tables, dataset_id: str, epoch: int) -> Iterator[pa.RecordBatch]:
    """Walk up the ordinals of contested identities until every row has one that nobody ever carried."""
    waiting: dict[bytes, list[int]] = defaultdict(list)
    for batch in tables.query("SELECT * FROM contested ORDER BY identity ASC NULLS LAST, _turn ASC NULLS LAST"):
        for entry in batch.to_pylist():
            waiting[entry["identity"]].append(entry[ROW])
    start, width = 0, 16
    for attempt in count():
        if not waiting:
            return
        tries = [
            (identity, ordinal, record_id_of_hash(dataset_id, epoch, identity, ordinal))
            for identity, rows in waiting.items()
            for ordinal in range(start, start + width)
        ]
        known = _known(tables, [id_ for _, _, id_ in tries], attempt)
        given = []
        for identity, ordinal, id_ in tries:
            if id_ not in known and waiting[identity]:
                given.append((waiting[identity].pop(0), id_, ordinal))
        yield pa.RecordBatch.from_pylist(
            [{ROW: row, RECORD_ID: id_, "ordinal": ordinal} for row, id_, ordinal in given], ledger.FRESH_SCHEMA
        )
        waiting = {identity: rows for identity, rows in waiting.items() if rows}
        start, width = start + width, width * 2


def _known(tables: Tables, ids: list[str], attempt: int) -> set[str]:
    schema = staged_schema({RECORD_ID: pa.string()})
    batch = pa.RecordBatch.from_arrays([pa.array(ids, pa.string())], schema=schema)
    tables.map_batches(f"asked_{attempt}", iter([batch]), schema)
    answers = tables.query(ledger.known_ids(f"asked_{attempt}"))
    return {entry[RECORD_ID] for answer in answers for entry in answer.to_pylist()}


def _make_entries(search: Search, found: Found, version: int, added: str, renamed: int) -> None:
    """Leave `ledger_rows`: records that came, came back, changed their key or their id, or went."""
    tables, keyed = search.tables, bool(search.new.schema.key_columns)
    rekeyed = (*found.pairs.get("content", ()), *found.pairs.get("agent", ())) if keyed else ()
    carried = {"returned": found.pairs.get("ledger", ()), "rekeyed": rekeyed}
    kept = {}
    for name, pairs in carried.items():
        tables.define(f"all_{name}", match.all_pairs(pairs))
        tables.keep(f"{name}_entries", not_renamed(f"all_{name}") if renamed else f"SELECT * FROM all_{name}")
        kept[name] = search.count(f"{name}_entries")
    gone = _gone(search, search.old.schema) if search.old and found.old_count else iter(())
    if search.lost:
        gone = tables.query(ledger.lost_identities(match.all_pairs(found.all_pairs)))
    tables.map_batches("removed_identities", gone, ledger.REMOVED_SCHEMA)
    tables.define("fresh_entries", f"SELECT * FROM {added}")
    told = ledger.entries(version)
    tables.keep("ledger_rows", f"{told} UNION ALL {entries(version)}" if renamed else told)
    fresh = search.new.rows - sum(found.by.values())
    removed = search.count("removed_identities") if search.lost else found.old_count
    due = fresh + sum(kept.values()) + removed + 2 * renamed
    written = search.count("ledger_rows")
    if written != due:
        raise ValueError(f"{search.dataset.id}: {written} ledger entries, {due} are due: the ledger lacks records")


def _gone(search: Search, schema: Schema) -> Iterator[pa.RecordBatch]:
    types = own_types(schema)
    key = {name: types[name] for name in schema.key_columns}
    if key and tuple(key) == search.plan.key:
        search.tables.define("repeated_removed", "SELECT * FROM repeated_old")
    elif key:
        search.tables.define("repeated_removed", match.repeated_keys("old", tuple(key)))
    rows = search.tables.query(ledger.removed_rows("removed", tuple(types), tuple(key)))
    return ledger.removed_identities(rows, own_types(schema, volatile=False), key)
