"""Gives every row its record id, and the ledger its new entries (D4.1 to D4.3)."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from ploti.contract.files import RECORD_ID
from ploti_server.domain.identity import record_id_of_hash
from ploti_server.domain.matching import own_types
from ploti_server.domain.schema import Schema
from ploti_server.pipeline.find import Found, Search
from ploti_server.ports import Tables
from ploti_server.rows import ledger, match
from ploti_server.rows.match import ROW
from ploti_server.rows.sql import staged_schema


@dataclass(frozen=True)
class Identified:
    """Numbers of rows in the tables `added` (new ids and returning ones) and `removed`."""

    added: int
    removed: int


def identify(search: Search, found: Found, epoch: int, version: int) -> Identified:
    """Leave the tables `row_ids`, `added`, `removed` and `ledger_rows`.

    Raises `ValueError` where rows and ids do not add up: a wrong version is never built.
    """
    tables = search.tables
    _make_fresh(search, found, epoch)
    fresh = search.count("fresh")
    ids = fresh + sum(found.by.values())
    if ids != search.new.rows:
        raise ValueError(f"{search.dataset.id}: {search.new.rows} rows, but {ids} ids: matching is at fault")
    returned = found.pairs.get("ledger", ())
    tables.define("returned", match.all_pairs(returned))
    tables.define("row_ids", match.all_pairs([*found.all_pairs, "fresh"]))
    tables.define("added", match.all_pairs(["fresh", *returned]))
    if search.old is None:
        tables.define("removed", match.all_pairs(()))
    else:
        tables.define("removed", f"SELECT l.{RECORD_ID} FROM {found.left_old} l")
    _make_entries(search, found, version)
    return Identified(fresh + found.by["ledger"], found.old_count)


def _make_fresh(search: Search, found: Found, epoch: int) -> None:
    """Give new ids to what is left over: the next ordinal where another record has ever carried the id (D4.1)."""
    tables, schema, dataset_id = search.tables, search.new.schema, search.dataset.id
    volatile = tuple(column.name for column in schema.columns if column.volatile)
    keyed = bool(schema.key_columns)
    tables.keep("numbered", ledger.numbered(found.left_new, keyed=keyed, volatile=volatile))
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


def _make_entries(search: Search, found: Found, version: int) -> None:
    """Leave `ledger_rows`: records that came, came back, changed their key, or went."""
    tables, keyed = search.tables, bool(search.new.schema.key_columns)
    rekeyed = (*found.pairs.get("content", ()), *found.pairs.get("agent", ())) if keyed else ()
    tables.define("rekeyed", match.all_pairs(rekeyed))
    gone = _gone(search, search.old.schema) if search.old and found.old_count else iter(())
    tables.map_batches("removed_identities", gone, ledger.REMOVED_SCHEMA)
    tables.keep("ledger_rows", ledger.entries(version))
    due = search.new.rows - sum(found.by.values()) + found.by["ledger"] + search.count("rekeyed") + found.old_count
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
