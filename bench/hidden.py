"""Real histories with their keys hidden: the key is told to nobody, and afterwards says who was who."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import shapely

from bench.hindsight import Hindsight, Left
from bench.matched import UNLIMITED, Asked, Chain, Matched
from bench.measure import judge_least
from ploti.contract.files import RECORD_ID
from ploti_server.domain.catalog import parse_catalog
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.states import StateUnreadable
from ploti_server.pipeline.read import read_state
from ploti_server.ports import MatchingAgent
from ploti_server.sources import open_state

SHARED = Path(__file__).parents[2] / "shared"

HIDDEN = {
    "ds_sa_building_permits": ("PERMIT #",),
    "ds_toronto_short_term_rentals": ("operator_registration_number",),
    "ds_vt_rutland_zoning": ("Full District Name",),
    "ds_calfire_incidents": ("UniqueId",),
    "ds_fl_airports": ("icao",),
    "ds_fl_counties": ("id",),
    "ds_fl_courts": ("id",),
}
"""What is hidden of each key: what names a record. Columns that a record of its own would have too stay."""


PRECISION = 0.995
ENOUGH = 200
"""Goal for precision, and how many judgements it takes to speak of it."""


@dataclass
class Tally:
    """How matching did over a history. `surviving` counts records whose key both states have, once each.

    `edited` are those that content alone left over on both sides, who are found by judging alone; `hindsight` tells
    how many of them anybody could tell.
    """

    states: int = 0
    surviving: int = 0
    kept: int = 0
    judged_right: int = 0
    wrong: list[dict[str, Any]] = field(default_factory=list)
    content_swapped: int = 0
    hindsight: Hindsight = field(default_factory=Hindsight)


def follow(dataset_id: str, agent: MatchingAgent, folder: Path) -> Tally:
    """Follow a history without its key, every state against the one before."""
    source = next(s for s in (SHARED / "demo", SHARED / "data" / "main") if _dataset(s, dataset_id))
    dataset = _dataset(source, dataset_id)
    hidden = replace(dataset, key=(), volatile=(*dataset.volatile, *HIDDEN[dataset_id]), matching=UNLIMITED)
    chain, before, tally = Chain(folder, hidden, agent), None, Tally()
    for state in sorted((source / dataset_id.removeprefix("ds_")).glob("[0-9]*")):
        try:
            now = chain.next(_reader(state, hidden, chain))
        except StateUnreadable:
            continue
        key = [c.name for name in dataset.key for c in chain.state.schema.columns if c.source_name == name]
        if before and len(key) == len(dataset.key) and all(name in row for row in _some(before) for name in key):
            _count(tally, state.name, key, before, now)
        before, tally.states = now, tally.states + 1
    return tally


def _some(version: Matched) -> list[dict[str, Any]]:
    return list(version.rows.values())[:1]


def _dataset(source: Path, dataset_id: str) -> Dataset | None:
    file = source / "catalog.yaml"
    return next((d for d in parse_catalog(file.read_text(), file).datasets if d.id == dataset_id), None)


def _reader(state: Path, dataset: Dataset, chain: Chain):
    def read(engine):
        schema = chain.basis.schema if chain.basis else None
        known = chain.state.known_columns if chain.state else ()
        return read_state(open_state(state, state.name, dataset), dataset, schema, known, engine)

    return read


def _count(tally: Tally, state: str, key: Sequence[str], before: Matched, now: Matched) -> None:
    old = {record: _key(row, key) for record, row in before.rows.items()}
    new = {record: _key(row, key) for record, row in now.rows.items()}
    once_old, once_new = _once(old), _once(new)
    by_agent = {row[RECORD_ID]: row for row in now.changes if row["_ploti_match"] == "agent"}
    for record in sorted(once_old.keys() & once_new.keys()):
        tally.surviving += 1
        tally.kept += once_old[record] == once_new[record]
    for record, row in by_agent.items():
        right = old[record] == new[record]
        tally.judged_right += right
        if not right:
            tally.wrong.append(_shown(state, record, row, before, key, set(old.values()), set(new.values())))
    content = {record for record in old.keys() & new.keys() if record not in by_agent}
    tally.content_swapped += sum(old[record] != new[record] for record in content)
    if now.asked.evidence is not None:
        tally.hindsight.add(_left(now.asked, (before.rows, old, now.rows.keys() - by_agent.keys()),
                                  (now.rows, new, before.rows.keys() - by_agent.keys())))  # fmt: skip


def _left(asked: Asked, *sides: tuple[dict[str, dict[str, Any]], dict[str, tuple[str, ...]], Set[str]]) -> Left:
    """Give the left-overs of both sides; a side is its rows, its keys, and the records that the other side has too."""
    names = list(asked.evidence.columns) if asked.evidence else []
    contents = [{record: _content(row, names) for record, row in rows.items()} for rows, _, _ in sides]
    old, new = (
        [(content, keys[record]) for record, content in held.items() if record not in found]
        for held, (_, keys, found) in zip(contents, sides, strict=True)
    )
    pairs = [(_content(pair.old, names), _content(pair.new, names)) for pair in asked.pairs]
    return Left(old, new, pairs, (list(contents[0].values()), list(contents[1].values())))


def _content(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _key(row: dict[str, Any], key: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in key)


def _once(keys: dict[str, tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    counted = Counter(keys.values())
    return {key: record for record, key in keys.items() if counted[key] == 1}


def _shown(state, record, row, before: Matched, key, olds, news) -> dict[str, Any]:
    """Give a wrong match as a person wants to see it: both keys, whether they live on, what differs, both rows."""
    old = before.rows[record]
    names = [name for name in row if not name.startswith("_ploti_")]
    return {
        "state": state,
        "old_key": _key(old, key),
        "new_key": _key(row, key),
        "old_key_lives_on": _key(old, key) in news,
        "new_key_is_new": _key(row, key) not in olds,
        "score": row["_ploti_match_score"],
        "differs": [name for name in names if name in old and old[name] != row[name] and name not in key],
        "old": {name: _said(old[name]) for name in names if name in old},
        "new": {name: _said(row[name]) for name in names},
    }


def _said(value: Any) -> Any:
    if isinstance(value, bytes):
        return shapely.to_wkt(shapely.from_wkb(value))
    return value if value is None or isinstance(value, int | float) else str(value)


def told(dataset_id: str, tally: Tally) -> Iterator[dict[str, Any]]:
    """Give the figures of a history as one line, each match of two keys as a line, and the goal where there is truth.

    A match of two keys counts as wrong in `precision`. Where the old key went and the new one came in that very state,
    no key says that the publisher did not renumber one record: a person has to look, and `precision_by_living_keys`
    leaves these matches out. Where a key lives on, it is wrong for sure.
    """
    judged, seen = tally.judged_right + len(tally.wrong), tally.hindsight
    lives_on = sum(w["old_key_lives_on"] or not w["new_key_is_new"] for w in tally.wrong)
    line = {
        "job": "matching, key hidden",
        "dataset": dataset_id,
        "states": tally.states,
        "surviving": tally.surviving,
        "edited": seen.edited,
        "equal_beside": seen.equal_beside,
        "told_with_hindsight": seen.told(PRECISION),
        "judged_same": judged,
        "judged_right": tally.judged_right,
        "other_key": len(tally.wrong),
        "other_key_that_lives_on": lives_on,
        "precision": round(tally.judged_right / judged, 4) if judged else None,
        "precision_by_living_keys": round(tally.judged_right / (tally.judged_right + lives_on), 4) if judged else None,
        "recall": round(tally.judged_right / seen.edited, 4) if seen.edited else None,
        "ids_that_churn": round(1 - tally.kept / max(1, tally.surviving), 4),
        "equal_rows_swapped": tally.content_swapped,
    }
    yield line
    yield from ({"wrong_match_of": dataset_id, **wrong} for wrong in tally.wrong)
    if judged >= ENOUGH:
        told = {"dataset": dataset_id, "judged_same": judged, "every_other_key_wrong": line["precision"]}
        judge_least("matching, precision with the key hidden", told, line["precision_by_living_keys"], PRECISION)
