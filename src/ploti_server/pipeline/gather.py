"""Gathers evidence for the matching agent out of the version before and what other steps matched (D4.8)."""

from collections.abc import Mapping
from typing import Any

from ploti.contract.files import GEOMETRY, RECORD_ID
from ploti_server.domain.evidence import Evidence, Values
from ploti_server.domain.matching import own_types
from ploti_server.pipeline.find import Found, Search
from ploti_server.rows import evidence


def gather_evidence(search: Search, found: Found, olds: Mapping[int, Values], news: Mapping[int, Values]) -> Evidence:
    """Gather what the version before tells about the records in the table `ask_pairs`, given by their places.

    Columns go in byte order of name, so that a source's column order decides nothing (D4.1).
    """
    tables, columns = search.tables, _columns(search)
    types = own_types(search.new.schema)
    tables.keep("evidence_probes", evidence.probes(columns))
    for place, name in enumerate(columns):
        tables.keep(f"evidence_held_{place}", evidence.held(name))
    tables.keep("evidence_near", evidence.resembling(columns, found.left_old))
    probed = {"old": olds, "new": news, "sample": _sampled(search)}
    return Evidence(
        columns={name: types[name] for name in columns},
        rows=search.old.rows if search.old else 0,
        left_old=found.old_count,
        left_new=found.new_count,
        held={name: _held(search, place) for place, name in enumerate(columns)},
        apart=(*_apart(search, probed), *(_near(search, probed) if search.plan.compares_shapes else ())),
        same=_same(search, found),
    )


def _columns(search: Search) -> tuple[str, ...]:
    return tuple(sorted(search.plan.compared, key=str.encode))


def _held(search: Search, place: int) -> dict[Any, int]:
    read = search.tables.query(f"SELECT h._value, h._held FROM evidence_held_{place} h")
    return {row["_value"]: row["_held"] for batch in read for row in batch.to_pylist()}


def _sampled(search: Search) -> dict[int, Values]:
    read = search.tables.query(evidence.sampled_rows(_columns(search)))
    return {row["_place"]: row for batch in read for row in batch.to_pylist()}


def _apart(search: Search, probes: Mapping[str, Mapping[int, Values]]) -> tuple[tuple[Values, Values], ...]:
    read = search.tables.query(evidence.resembling_rows(_columns(search)))
    others = {row[RECORD_ID]: row for batch in read for row in batch.to_pylist()}
    pairs = []
    for batch in search.tables.query(evidence.resembling_pairs()):
        for row in batch.to_pylist():
            pairs.append((probes[row["_side"]][row["_place"]], others[row[RECORD_ID]]))
    return tuple(pairs)


def _near(search: Search, probes: Mapping[str, Mapping[int, Values]]) -> list[tuple[Values, Values]]:
    """Pair different records of the version before that lie near each other."""
    read = search.tables.query(evidence.probed_records())
    records = [probes[row["_side"]][row["_place"]] for batch in read for row in batch.to_pylist()]
    near = evidence.near_each_other([record[GEOMETRY] for record in records])
    return [(records[one], records[other]) for one, other in near]


def _same(search: Search, found: Found) -> tuple[tuple[Values, Values], ...]:
    if not found.compared:
        return ()
    columns = _columns(search)
    pairs = []
    for batch in search.tables.query(evidence.same_rows(found.compared, columns)):
        for row in batch.to_pylist():
            sides = [{name: row[f"{side}_{n}"] for n, name in enumerate(columns)} for side in ("old", "new")]
            pairs.append((sides[0], sides[1]))
    return tuple(pairs)
