"""Gathers evidence for the matching agent out of the version before and what other steps matched (D4.8)."""

from collections.abc import Mapping
from typing import Any, Final

from ploti.contract.files import GEOMETRY, RECORD_ID
from ploti_server.domain.evidence import Evidence, Values
from ploti_server.domain.matching import own_types
from ploti_server.pipeline.find import Found, Search
from ploti_server.rows import evidence

COLUMNS_AT_ONCE: Final = 16
"""Columns whose shared values one query weighs."""


def gather_evidence(search: Search, found: Found, olds: Mapping[int, Values], news: Mapping[int, Values]) -> Evidence:
    """Gather what the version before tells about the records in the table `ask_pairs`, given by their places.

    Columns go in byte order of name, so that a source's column order decides nothing (D4.1).
    """
    tables, columns = search.tables, _columns(search)
    types = own_types(search.new.schema)
    tables.keep("evidence_probes", evidence.probes(columns))
    held = {name: f"evidence_held_{place}" for place, name in enumerate(columns)}
    tables.keep("evidence_near", evidence.resembling(_weighed(search, found, held)))
    probed = {"old": olds, "new": news, "sample": _sampled(search)}
    return Evidence(
        columns={name: types[name] for name in columns},
        rows=search.old.rows if search.old else 0,
        left_old=found.old_count,
        left_new=found.new_count,
        held={name: _held(search, table) for name, table in held.items()},
        apart=(*_apart(search, probed), *(_near(search, probed) if search.plan.compares_shapes else ())),
        same=_same(search, found),
    )


def _weighed(search: Search, found: Found, held: Mapping[str, str]) -> list[str]:
    """Count values and weigh shared ones a few columns at a time; gives the tables of weights.

    A query's memory grows with its columns, and binding the files of the version before with all of theirs.
    """
    tables, weighed, names = search.tables, [], tuple(held)
    for first in range(0, len(names), COLUMNS_AT_ONCE):
        columns = names[first : first + COLUMNS_AT_ONCE]
        tables.keep("evidence_columns", evidence.some_columns(columns))
        for name in columns:
            tables.keep(held[name], evidence.held(name, "evidence_columns"))
        shared = evidence.shared_values({name: held[name] for name in columns}, "evidence_columns", found.left_old)
        weighed.append(f"evidence_weights_{first}")
        tables.keep(weighed[-1], shared)
        tables.drop("evidence_columns")
    return weighed


def _columns(search: Search) -> tuple[str, ...]:
    return tuple(sorted(search.plan.compared, key=str.encode))


def _held(search: Search, table: str) -> dict[Any, int]:
    read = search.tables.query(f"SELECT h._value, h._held FROM {table} h")
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
