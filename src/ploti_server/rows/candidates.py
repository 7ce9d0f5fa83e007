"""Candidates for the matching agent: left-over pairs that share a rare value or lie near each other (D4.6, D4.7).

Records and rows stand by their place in content-hash order, `_old` and `_new` from 1, so that no engine and no order
of rows decides. A pair weighs more the rarer its shared values are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from ploti.contract.files import GEOMETRY
from ploti.contract.values import ColumnType
from ploti_server.domain.datasets import MatchingLimits
from ploti_server.rows.canonical import slices
from ploti_server.rows.geometry import within_metres
from ploti_server.rows.ledger import content_hashes
from ploti_server.rows.match import ROW, columns_in_order
from ploti_server.rows.sql import quoted, row_hash, staged_schema, total_order

WEIGHTS: Final = ((1, 12), (4, 10), (16, 8), (64, 6), (256, 4))
"""Weight of a shared value by the number of pairs that share it, at most; any other weighs 2."""

NEAR_WEIGHT: Final = 6
PLACES_SCHEMA: Final = staged_schema({"_old": pa.int64(), "_new": pa.int64()})
_METRES_PER_DEGREE: Final = 110_000.0


def hashes_schema(label: str, type_: pa.DataType) -> pa.Schema:
    """Give the schema of a table of labels and content hashes."""
    return staged_schema({label: type_, "content_hash": pa.binary()})


def hashed_rows(
    batches: Iterable[pa.RecordBatch], own: Mapping[str, ColumnType], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Give the label, which is the first column, and content hash of each row."""
    for batch in batches:
        for part in slices(batch):
            hashes = pa.array(content_hashes(part, own), pa.binary())
            yield pa.RecordBatch.from_arrays([part.column(0), hashes], schema=schema)


def places(hashes: str, rows: str, label: str, volatile: Sequence[str], at_most: int) -> str:
    """Give the first rows in content-hash order: label, hash, `_place`, and `_turn` among rows of equal content."""
    order = [*columns_in_order("t", volatile), *([f"h.{label}"] if label != ROW else [])]
    place = f"row_number() OVER (ORDER BY {total_order(['h.content_hash', *order])})"
    turn = f"row_number() OVER (PARTITION BY h.content_hash ORDER BY {total_order(order)})"
    return (
        f"SELECT p.{label}, p.content_hash, p._place, p._turn FROM (SELECT h.{label}, h.content_hash,"
        f" {place} AS _place, {turn} AS _turn FROM {hashes} h JOIN {rows} t ON h.{label} = t.{label}) p"
        f" WHERE p._place <= {at_most}"
    )


def values(rows: str, label: str, columns: Sequence[str]) -> str:
    """Give one row per label and compared value that is not null: `_column` and the value's hash."""
    hashes = [f"CASE WHEN t.{quoted(n)} IS NULL THEN NULL ELSE {row_hash([f't.{quoted(n)}'])} END" for n in columns]
    entries = [f"{{'_column': {place}, '_value': {hash_}}}" for place, hash_ in enumerate(hashes)]
    return (
        f"SELECT u.{label}, u._entry._column AS _column, u._entry._value AS _value FROM"
        f" (SELECT t.{label}, unnest([{', '.join(entries)}]) AS _entry FROM {rows} t) u"
        " WHERE u._entry._value IS NOT NULL"
    )


def sharing_pairs(sides: tuple[str, str], labels: tuple[str, str], at_most: int) -> str:
    """Give the places of pairs that share a discriminating value, with the weight of all that they share.

    `sides` are the name endings of the tables `ask_values_*` and `ask_places_*`, old and new.
    """
    rare = "SELECT v._column, v._value, count(*) AS _held FROM ask_values_{} v GROUP BY v._column, v._value"
    rare += f" HAVING count(*) <= {at_most}"
    steps = " ".join(f"WHEN ro._held * rn._held <= {pairs} THEN {weight}" for pairs, weight in WEIGHTS)
    return (
        f"SELECT po._place AS _old, pn._place AS _new, CAST(SUM(CASE {steps} ELSE 2 END) AS BIGINT) AS _weight"
        f" FROM ask_values_{sides[0]} o JOIN ask_places_{sides[0]} po ON o.{labels[0]} = po.{labels[0]}"
        f" JOIN ({rare.format(sides[0])}) ro ON o._column = ro._column AND o._value = ro._value"
        f" JOIN ({rare.format(sides[1])}) rn ON o._column = rn._column AND o._value = rn._value"
        f" JOIN ask_values_{sides[1]} n ON o._column = n._column AND o._value = n._value"
        f" JOIN ask_places_{sides[1]} pn ON n.{labels[1]} = pn.{labels[1]} GROUP BY po._place, pn._place"
    )


def placed_shapes(rows: str, placed: str, label: str) -> str:
    """Give place and shape of the rows that have both."""
    return (
        f"SELECT p._place, t.{GEOMETRY} FROM {rows} t JOIN {placed} p ON t.{label} = p.{label}"
        f" WHERE t.{GEOMETRY} IS NOT NULL ORDER BY p._place ASC NULLS LAST"
    )


def near_pairs(
    old: Iterable[pa.RecordBatch], new: Iterable[pa.RecordBatch], limits: MatchingLimits
) -> Iterator[pa.RecordBatch]:
    """Give the places of pairs within so many metres; a spot that too many left-overs hold tells nothing."""
    old_places, old_shapes = _rare_shapes(old, limits.discriminating_at_most)
    new_places, new_shapes = _rare_shapes(new, limits.discriminating_at_most)
    if not len(old_shapes) or not len(new_shapes):
        return
    tree = shapely.STRtree(new_shapes)
    for start in range(0, len(old_shapes), 500):
        chunk = old_shapes[start : start + 500]
        rows, found = _box_hits(tree, chunk, limits.near_metres)
        near = within_metres(chunk[rows], new_shapes[found], limits.near_metres)
        pairs = [pa.array(old_places[start + rows[near]]), pa.array(new_places[found[near]])]
        yield pa.RecordBatch.from_arrays(pairs, schema=PLACES_SCHEMA)


def _rare_shapes(batches: Iterable[pa.RecordBatch], at_most: int) -> tuple[npt.NDArray[np.int64], Any]:
    found: list[tuple[int, bytes]] = []
    for batch in batches:
        found.extend((row["_place"], row[GEOMETRY]) for row in batch.to_pylist())
    held: dict[bytes, int] = {}
    for _, shape in found:
        held[shape] = held.get(shape, 0) + 1
    rare = [(place, shape) for place, shape in found if held[shape] <= at_most]
    shapes = np.empty(len(rare), dtype=object)
    shapes[:] = shapely.from_wkb([shape for _, shape in rare])
    return np.array([place for place, _ in rare], dtype=np.int64), shapes


def _box_hits(tree: shapely.STRtree, shapes: Any, metres: float) -> tuple[Any, Any]:
    """Find shapes whose boxes meet a box wide enough for the distance, also across the date line."""
    west, south, east, north = shapely.bounds(shapes).T
    tall = metres / _METRES_PER_DEGREE
    farthest = np.minimum(np.maximum(np.abs(south), np.abs(north)) + tall, 89.9)
    wide = tall / np.cos(np.radians(farthest))
    hits = []
    for turn in (-360.0, 0.0, 360.0):
        reach = (west - wide + turn <= 180.0) & (east + wide + turn >= -180.0)
        chosen = np.flatnonzero(reach)
        boxes = shapely.box(west - wide + turn, south - tall, east + wide + turn, north + tall)
        rows, found = tree.query(boxes[chosen])
        hits.append((chosen[rows], found))
    pairs = np.unique(np.concatenate([np.stack(hit) for hit in hits], axis=1), axis=1)
    return pairs[0], pairs[1]


def best_pairs(sharing: str, near: str, limits: MatchingLimits) -> str:
    """Give the best pairs of a record and of a row, for the old records whose best pair weighs most (D4.7)."""
    both = (
        f"SELECT a._old, a._new, a._weight FROM {sharing} a"
        f" UNION ALL SELECT b._old, b._new, CAST({NEAR_WEIGHT} AS BIGINT) FROM {near} b"
    )
    summed = f"SELECT c._old, c._new, CAST(SUM(c._weight) AS BIGINT) AS _weight FROM ({both}) c GROUP BY c._old, c._new"
    most = limits.candidates_per_record
    ranked = (
        f"SELECT s._old, s._new, s._weight, row_number() OVER (PARTITION BY s._old ORDER BY s._weight DESC NULLS LAST,"
        " s._new ASC NULLS LAST) AS _of_old, row_number() OVER (PARTITION BY s._new ORDER BY s._weight DESC NULLS LAST,"
        f" s._old ASC NULLS LAST) AS _of_new FROM ({summed}) s"
    )
    kept = f"SELECT r._old, r._new, r._weight FROM ({ranked}) r WHERE r._of_old <= {most} AND r._of_new <= {most}"
    judged = (
        "SELECT m._old, row_number() OVER (ORDER BY m._best DESC NULLS LAST, m._old ASC NULLS LAST) AS _turn FROM"
        f" (SELECT k._old, MAX(k._weight) AS _best FROM ({kept}) k GROUP BY k._old) m"
    )
    return (
        f"SELECT k._old, k._new FROM ({kept}) k JOIN ({judged}) j ON k._old = j._old"
        f" WHERE j._turn <= {limits.max_judged}"
    )


def chosen_rows(rows: str, placed: str, label: str, side: str) -> str:
    """Give the whole rows, place, turn and hash of one side of the best pairs."""
    return (
        "SELECT p._place AS _ploti_place, p._turn AS _ploti_turn, p.content_hash AS _ploti_hash, t.*"
        f" FROM {rows} t JOIN {placed} p ON t.{label} = p.{label}"
        f" JOIN (SELECT DISTINCT b.{side} FROM ask_pairs b) c ON p._place = c.{side}"
    )
