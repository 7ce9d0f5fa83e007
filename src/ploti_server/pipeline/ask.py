"""Asks the matching agent about left-over records that may be one (D4.6 to D4.9)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ploti.contract.files import RECORD_ID
from ploti_server.domain.evidence import Evidence, Values
from ploti_server.domain.matching import Assignment, Side, assign, own_types
from ploti_server.domain.schema import Schema
from ploti_server.pipeline.find import Found, Search, take
from ploti_server.pipeline.gather import gather_evidence
from ploti_server.ports import Judgement, Pair
from ploti_server.rows import candidates, match
from ploti_server.rows.match import ROW
from ploti_server.rows.sql import columns_of, staged_schema

Judge = Callable[[Sequence[Pair], Evidence], Sequence[Judgement] | None]

ASSIGNED_SCHEMA = staged_schema({ROW: pa.int64(), RECORD_ID: pa.string(), "_score": pa.float64()})


@dataclass(frozen=True)
class Waiting:
    """The agent was asked about these pairs and answers later."""

    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class Candidate:
    """A pair with the record and row that it stands for; `content_hash` is the new row's, for ties."""

    pair: Pair
    old: str
    new: int
    content_hash: str


def ask(search: Search, found: Found, judge: Judge | None) -> Found | Waiting:
    """Pair what the agent holds for one record; `Waiting` where it answers later.

    Without a judge, or with nothing to ask about, no candidates are looked for.
    """
    limits = search.dataset.matching
    too_many = max(found.new_count, found.old_count) > limits.none_judged_above
    if judge is None or search.old is None or not (found.new_count and found.old_count) or too_many:
        return found
    _choose(search, search.old, found)
    olds, news = _asked_rows(search, "old", RECORD_ID), _asked_rows(search, "new", ROW)
    old_values = _values(olds, own_types(search.old.schema))
    new_values = _values(news, own_types(search.new.schema))
    asked = [_candidate(olds, news, old_values, new_values, entry) for entry in _chosen(search)]
    if not asked:
        return found
    pairs = tuple(candidate.pair for candidate in asked)
    judgements = judge(pairs, gather_evidence(search, found, old_values, new_values))
    if judgements is None:
        return Waiting(pairs)
    known = {candidate.pair.pair_id: (candidate.old, candidate.new, candidate.content_hash) for candidate in asked}
    assigned = assign(judgements, known, limits.min_confidence)
    search.tables.map_batches("by_agent", _assigned(assigned), ASSIGNED_SCHEMA)
    compared = f"SELECT p.{ROW}, p.{RECORD_ID}, 'agent' AS _match, p._score FROM by_agent p"
    return take(search, found, "agent", "by_agent", compared=compared)


def _assigned(assigned: Sequence[Assignment]) -> Iterator[pa.RecordBatch]:
    rows = [{ROW: a.new, RECORD_ID: a.old, "_score": a.score} for a in assigned]
    yield pa.RecordBatch.from_pylist(rows, ASSIGNED_SCHEMA)


def _choose(search: Search, old: Side, found: Found) -> None:
    """Leave the best pairs of left-overs: the table `ask_pairs`."""
    tables, limits, plan = search.tables, search.dataset.matching, search.plan
    labels = {"old": RECORD_ID, "new": ROW}
    left = {"old": found.left_old, "new": found.left_new}
    for side, label in labels.items():
        tables.keep(f"ask_{side}_rows", match.rows_of(f"left_{side}_rows", label, left[side]))
        _place(search, side, old.schema if side == "old" else search.new.schema, label)
        tables.keep(f"ask_values_{side}", candidates.values(f"ask_{side}_rows", label, plan.compared))
    sharing = candidates.sharing_pairs(("old", "new"), (RECORD_ID, ROW), limits.discriminating_at_most)
    tables.keep("ask_sharing", sharing)
    near: Iterator[pa.RecordBatch] = iter(())
    if plan.compares_shapes:
        shapes = [
            tables.query(candidates.placed_shapes(f"ask_{side}_rows", f"ask_places_{side}", label))
            for side, label in labels.items()
        ]
        near = candidates.near_pairs(shapes[0], shapes[1], limits)
    tables.map_batches("ask_near", near, candidates.PLACES_SCHEMA)
    tables.keep("ask_pairs", candidates.best_pairs("ask_sharing", "ask_near", limits))


def _place(search: Search, side: str, schema: Schema, label: str) -> None:
    """Leave the places of one side's left-overs in content-hash order, cut at the limit (D4.7)."""
    tables, rows = search.tables, f"ask_{side}_rows"
    own = own_types(schema, volatile=False)
    staged = candidates.hashes_schema(label, pa.string() if label == RECORD_ID else pa.int64())
    read = tables.query(f"SELECT {columns_of('t', (label, *own))} FROM {rows} t")
    tables.map_batches(f"ask_hashes_{side}", candidates.hashed_rows(read, own, staged), staged)
    volatile = tuple(column.name for column in schema.columns if column.volatile)
    first = search.dataset.matching.judged_from_first
    tables.keep(f"ask_places_{side}", candidates.places(f"ask_hashes_{side}", rows, label, volatile, first))


def _asked_rows(search: Search, side: str, label: str) -> dict[int, dict[str, Any]]:
    sql = candidates.chosen_rows(f"ask_{side}_rows", f"ask_places_{side}", label, f"_{side}")
    return {row["_ploti_place"]: row for batch in search.tables.query(sql) for row in batch.to_pylist()}


def _values(rows: Mapping[int, dict[str, Any]], own: Mapping[str, Any]) -> dict[int, Values]:
    return {place: {name: row[name] for name in own} for place, row in rows.items()}


def _chosen(search: Search) -> Iterator[tuple[int, int]]:
    order = "b._old ASC NULLS LAST, b._new ASC NULLS LAST"
    for batch in search.tables.query(f"SELECT b._old, b._new FROM ask_pairs b ORDER BY {order}"):
        yield from ((entry["_old"], entry["_new"]) for entry in batch.to_pylist())


def _candidate(
    olds: Mapping[int, dict[str, Any]],
    news: Mapping[int, dict[str, Any]],
    old_values: Mapping[int, Values],
    new_values: Mapping[int, Values],
    places: tuple[int, int],
) -> Candidate:
    """Give a pair its values and an id that any rebuild gives it again (D4.2)."""
    one, other = olds[places[0]], news[places[1]]
    hash_ = other["_ploti_hash"].hex()
    pair_id = f"{one[RECORD_ID]}-{hash_[:32]}-{other['_ploti_turn']}"
    pair = Pair(pair_id, old_values[places[0]], new_values[places[1]])
    return Candidate(pair, one[RECORD_ID], other[ROW], f"{hash_}-{other['_ploti_turn']:012d}")
