"""The id ledger: every id that a dataset ever had, as an append-only log in Parquet, a part per version (D4.3).

An entry has `record_id`, `version`, `what` (`current`, `removed`, `replaced_by`), `replaced_by`, `key_text` (canonical
text of a usable key), `content_hash` (sha256 of the content text; on removals the content at that time), `ordinal`
among equal identities, `first_version`. Of a record's entries the one of the highest version holds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from ploti.contract.files import RECORD_ID
from ploti.contract.values import ColumnType
from ploti_server.domain.identity import CONTENT_PREFIX, record_id_of_hash
from ploti_server.rows.canonical import canonical_rows, joined, key_texts, slices, text_hashes
from ploti_server.rows.match import ROW, columns_in_order
from ploti_server.rows.sql import all_equal, columns_of, quoted, staged_schema, total_order

_compute: Final[Any] = pyarrow.compute

LEDGER_SCHEMA: Final = staged_schema(
    {
        RECORD_ID: pa.string(),
        "version": pa.int64(),
        "what": pa.string(),
        "replaced_by": pa.string(),
        "key_text": pa.string(),
        "content_hash": pa.binary(),
        "ordinal": pa.int64(),
        "first_version": pa.int64(),
    }
)
IDENTITY_SCHEMA: Final = staged_schema({ROW: pa.int64(), "key_text": pa.string(), "identity": pa.binary()})
"""A left-over new row's key text, where its key is usable, and the hash of what would identify it."""

REMOVED_SCHEMA: Final = staged_schema({RECORD_ID: pa.string(), "key_text": pa.string(), "content_hash": pa.binary()})
FRESH_SCHEMA: Final = staged_schema({ROW: pa.int64(), RECORD_ID: pa.string(), "ordinal": pa.int64()})


LEDGER_LEFT: Final = "ledger_left"
"""What stands of a ledger of which a part is lost."""


def completed(left: str, current: str, version: int) -> str:
    """Give what is left of a ledger, and an entry for each record of the version before that it does not have so."""
    noted = latest(f"SELECT c.{RECORD_ID} FROM {current} c", left)
    return (
        f"SELECT * FROM {left} UNION ALL SELECT o.{RECORD_ID}, {_number(version)}, 'current', CAST(NULL AS VARCHAR),"
        f" CAST(NULL AS VARCHAR), CAST(NULL AS BLOB), CAST(0 AS BIGINT), {_number(version)} FROM {current} o"
        f" LEFT JOIN ({noted}) n ON o.{RECORD_ID} = n.{RECORD_ID} AND n.what = 'current' WHERE n.{RECORD_ID} IS NULL"
    )


def latest(ids: str, ledger: str = "ledger") -> str:
    """Give the entries that hold for the ids in a subquery."""
    return (
        f"SELECT e.* FROM (SELECT l.*, row_number() OVER (PARTITION BY l.{RECORD_ID}"
        f" ORDER BY l.version DESC NULLS LAST) AS _place FROM {ledger} l"
        f" JOIN ({ids}) w ON l.{RECORD_ID} = w.{RECORD_ID}) e WHERE e._place = 1"
    )


def entries_of(ids: str) -> str:
    """Give every entry of the ids in a table, oldest first."""
    return (
        f"SELECT l.* FROM ledger l JOIN {ids} w ON l.{RECORD_ID} = w.{RECORD_ID}"
        f" ORDER BY l.{RECORD_ID} ASC NULLS LAST, l.version ASC NULLS LAST"
    )


def pairs_by_ledger_key(left: str, identities: str, lost_since: int | None = None) -> str:
    """Pair left-over rows with removed records by key; of several the one removed last, then the lowest id.

    Where the records before are lost, current ones come first, and `lost_since` is the first version with this key.
    """
    fate = "e.what = 'removed'"
    if lost_since is not None:
        fate = f"e.what IN ('current', 'removed') AND e.version >= {_number(lost_since)}"
    wanted = f"SELECT DISTINCT l.{RECORD_ID} FROM ledger l JOIN {identities} k ON l.key_text = k.key_text"
    order = f"e.what ASC NULLS LAST, e.version DESC NULLS LAST, e.{RECORD_ID} ASC NULLS LAST"
    returning = (
        f"SELECT e.{RECORD_ID}, e.key_text, row_number() OVER (PARTITION BY e.key_text ORDER BY {order}) AS _turn"
        f" FROM ({latest(wanted)}) e WHERE {fate}"
    )
    return (
        f"SELECT k.{ROW}, e.{RECORD_ID} FROM {identities} k JOIN {left} f ON k.{ROW} = f.{ROW}"
        f" JOIN ({returning}) e ON k.key_text = e.key_text WHERE e._turn = 1"
    )


def lost_identities(pairs: str) -> str:
    """Give id, key text and content hash of the current records that no pair holds, where the records are lost."""
    every = latest(f"SELECT DISTINCT a.{RECORD_ID} FROM ledger a")
    return (
        f"SELECT e.{RECORD_ID}, e.key_text, e.content_hash FROM ({every}) e"
        f" LEFT JOIN ({pairs}) p ON e.{RECORD_ID} = p.{RECORD_ID} WHERE e.what = 'current' AND p.{RECORD_ID} IS NULL"
    )


def pairs_by_ledger_content(numbered: str) -> str:
    """Pair left-over rows with removed records of the same whole content, lowest ordinal first (D4.4).

    `numbered` has `_ploti_row`, `identity` and `_turn`, from 1 among rows of equal identity.
    """
    wanted = f"SELECT DISTINCT l.{RECORD_ID} FROM ledger l JOIN {numbered} k ON l.content_hash = k.identity"
    over = f"PARTITION BY e.content_hash ORDER BY e.ordinal ASC NULLS LAST, e.{RECORD_ID} ASC NULLS LAST"
    returning = (
        f"SELECT e.{RECORD_ID}, e.content_hash, row_number() OVER ({over}) AS _turn FROM ({latest(wanted)}) e"
        " WHERE e.what = 'removed'"
    )
    return (
        f"SELECT k.{ROW}, e.{RECORD_ID} FROM {numbered} k"
        f" JOIN ({returning}) e ON k.identity = e.content_hash AND k._turn = e._turn"
    )


def known_ids(tried: str) -> str:
    """Give the tried ids that some record has ever carried."""
    return f"SELECT DISTINCT t.{RECORD_ID} FROM {tried} t JOIN ledger l ON t.{RECORD_ID} = l.{RECORD_ID}"


def usable_rows(table: str, key: Sequence[str]) -> str:
    """Give `_ploti_row` and key of the rows of a table whose key is whole and unique in `new`."""
    whole = " AND ".join(f"t.{quoted(name)} IS NOT NULL" for name in key)
    return (
        f"SELECT t.{ROW}, {columns_of('t', key)} FROM {table} t"
        f" LEFT JOIN repeated_new r ON {all_equal('t', 'r', key)} WHERE r._ploti_rows IS NULL AND {whole}"
    )


def own_rows(table: str, own: Sequence[str], chosen: str | None) -> str:
    """Give `_ploti_row` and own columns of a table's rows, all or those that `chosen` holds."""
    only = f" JOIN {chosen} c ON t.{ROW} = c.{ROW}" if chosen else ""
    return f"SELECT {', '.join([f't.{ROW}', *(f't.{quoted(name)}' for name in own)])} FROM {table} t{only}"


def removed_rows(removed: str, own: Sequence[str], key: Sequence[str]) -> str:
    """Give id and own columns of removed rows; `_ploti_usable` tells whether the key was whole and unique in `old`."""
    usable, join = "FALSE", ""
    if key:
        usable = " AND ".join([*(f"o.{quoted(name)} IS NOT NULL" for name in key), "r._ploti_rows IS NULL"])
        join = f" LEFT JOIN repeated_removed r ON {all_equal('o', 'r', key)}"
    return (
        f"SELECT o.{RECORD_ID}, {usable} AS _ploti_usable, {columns_of('o', own)} FROM touched_old o"
        f" JOIN {removed} d ON o.{RECORD_ID} = d.{RECORD_ID}{join}"
    )


def numbered(
    left: str,
    *,
    keyed: bool,
    volatile: Sequence[str],
    identities: str = "identities",
    whole_rows: str = "left_new_rows",
) -> str:
    """Number left-over rows of equal identity from 1 in `_turn`, by their volatile columns (D4.2).

    A usable key is unique, so only rows identified by content need an order.
    """
    order = total_order(columns_in_order("t", volatile))
    over = f"PARTITION BY i.identity ORDER BY {order}"
    rows = f" JOIN {whole_rows} t ON i.{ROW} = t.{ROW}" if volatile else ""
    by_content = (
        f"SELECT i.{ROW}, i.identity, row_number() OVER ({over}) AS _turn FROM {identities} i"
        f" JOIN {left} f ON i.{ROW} = f.{ROW}{rows} WHERE i.key_text IS NULL"
    )
    by_key = (
        f"SELECT i.{ROW}, i.identity, CAST(1 AS BIGINT) AS _turn FROM {identities} i"
        f" JOIN {left} f ON i.{ROW} = f.{ROW} WHERE i.key_text IS NOT NULL"
    )
    return f"{by_key} UNION ALL {by_content}" if keyed else by_content


def contested(tried: str, taken: str) -> str:
    """Give all numbered rows of the identities of which some tried id is taken."""
    return (
        f"SELECT n.{ROW}, n.identity, n._turn FROM numbered n JOIN (SELECT DISTINCT m.identity FROM numbered m"
        f" JOIN {tried} t ON m.{ROW} = t.{ROW} JOIN {taken} k ON t.{RECORD_ID} = k.{RECORD_ID}) c"
        " ON n.identity = c.identity"
    )


def entries(version: int) -> str:
    """Give a version's new entries from `fresh_entries`, `returned_entries`, `rekeyed_entries`, `removed_identities`.

    The rows of the first three stand in `identities`.
    """
    fresh = (
        f"SELECT f.{RECORD_ID}, {_number(version)} AS version, 'current' AS what, CAST(NULL AS VARCHAR) AS replaced_by,"
        " i.key_text, CASE WHEN i.key_text IS NULL THEN i.identity END AS content_hash, f.ordinal,"
        f" {_number(version)} AS first_version FROM fresh_entries f JOIN identities i ON f.{ROW} = i.{ROW}"
    )
    carried = (
        f"SELECT p.{ROW}, p.{RECORD_ID} FROM returned_entries p"
        f" UNION ALL SELECT q.{ROW}, q.{RECORD_ID} FROM rekeyed_entries q"
    )
    wanted = f"SELECT c.{RECORD_ID} FROM ({carried}) c UNION ALL SELECT r.{RECORD_ID} FROM removed_identities r"
    held = latest(wanted)
    return (
        f"{fresh} UNION ALL SELECT c.{RECORD_ID}, {_number(version)}, 'current', CAST(NULL AS VARCHAR), i.key_text,"
        " CASE WHEN i.key_text IS NULL THEN i.identity END, h.ordinal, h.first_version"
        f" FROM ({carried}) c JOIN identities i ON c.{ROW} = i.{ROW} JOIN ({held}) h"
        f" ON c.{RECORD_ID} = h.{RECORD_ID}"
        f" UNION ALL SELECT r.{RECORD_ID}, {_number(version)}, 'removed', CAST(NULL AS VARCHAR), r.key_text,"
        f" r.content_hash, h.ordinal, h.first_version FROM removed_identities r JOIN ({held}) h"
        f" ON r.{RECORD_ID} = h.{RECORD_ID}"
    )


def key_identities(batches: Iterable[pa.RecordBatch], key: Mapping[str, ColumnType]) -> Iterator[pa.RecordBatch]:
    """Give `_ploti_row`, key text and its hash for rows with a usable key."""
    for batch in batches:
        texts = key_texts(batch, key)
        columns = [batch.column(ROW), texts.cast(pa.string()), pa.array(text_hashes(texts), pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=IDENTITY_SCHEMA)


def content_identities(batches: Iterable[pa.RecordBatch], own: Mapping[str, ColumnType]) -> Iterator[pa.RecordBatch]:
    """Give `_ploti_row` and the hash of the content text over own non-volatile columns, without a key text."""
    for batch in batches:
        for part in slices(batch):
            nothing = pa.nulls(part.num_rows, pa.string())
            columns = [part.column(ROW), nothing, pa.array(content_hashes(part, own), pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, schema=IDENTITY_SCHEMA)


def content_hashes(batch: pa.RecordBatch, own: Mapping[str, ColumnType]) -> list[bytes]:
    """Give the sha256 of each row's content text."""
    return text_hashes(joined(CONTENT_PREFIX, canonical_rows(batch, own)))


def removed_identities(
    batches: Iterable[pa.RecordBatch], own: Mapping[str, ColumnType], key: Mapping[str, ColumnType]
) -> Iterator[pa.RecordBatch]:
    """Give id, key text and content hash of removed rows; a key text where `_ploti_usable` says so."""
    for batch in batches:
        for part in slices(batch):
            nothing = pa.scalar(None, pa.large_string())
            texts = _compute.if_else(part.column("_ploti_usable"), key_texts(part, key), nothing) if key else None
            columns = [
                part.column(RECORD_ID),
                pa.nulls(part.num_rows, pa.string()) if texts is None else texts.cast(pa.string()),
                pa.array(content_hashes(part, own), pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=REMOVED_SCHEMA)


def fresh_ids(batches: Iterable[pa.RecordBatch], dataset_id: str, epoch: int) -> Iterator[pa.RecordBatch]:
    """Give ids for numbered rows: ordinals from 0, as turns from 1."""
    for batch in batches:
        turns: list[Any] = batch.column("_turn").to_pylist()
        identities: list[Any] = batch.column("identity").to_pylist()
        ids = [record_id_of_hash(dataset_id, epoch, i, turn - 1) for i, turn in zip(identities, turns, strict=True)]
        columns = [batch.column(ROW), pa.array(ids, pa.string()), pa.array([turn - 1 for turn in turns], pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, schema=FRESH_SCHEMA)


def _number(value: int) -> str:
    return f"CAST({value} AS BIGINT)"
