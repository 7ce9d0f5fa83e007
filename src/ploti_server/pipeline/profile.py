"""Profiles a state for its catalog entry: types, keys, coordinates, without the catalog's own key (D13.2)."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ploti.contract.files import GEOMETRY
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.states import StateRead
from ploti_server.domain.suggestions import (
    ColumnFacts,
    KeySuggestion,
    PlaceSuggestion,
    likely_pairs,
    pairs_to_try,
    place_of,
    single_keys,
    volatile_of,
)
from ploti_server.domain.versions import state_path
from ploti_server.pipeline.check import own_state
from ploti_server.pipeline.read import read_state
from ploti_server.ports import Ports, Tables
from ploti_server.rows import spread

SAMPLED: Final = 20
_MEASURED: Final = ("integer", "number")


@dataclass(frozen=True)
class Profile:
    """What a state tells about itself; suggestions name delivered columns."""

    rows: int
    columns: tuple[ColumnFacts, ...]
    keys: tuple[KeySuggestion, ...]
    place: PlaceSuggestion | None
    has_shapes: bool
    volatile: tuple[str, ...]
    rejects: int


def profile_file(ports: Ports, file: Path) -> Profile:
    """Profile a file that no catalog names; raises `StateUnreadable`."""
    return _profile(ports, file, file.name, Dataset("profile", file.name, SourceSpec("file", str(file))))


def profile_dataset(ports: Ports, dataset: Dataset) -> Profile:
    """Profile the state of a dataset that was checked last, else what its source has now.

    Raises `StateUnreadable` or `CheckRefused`.
    """
    with ports.store.read() as records:
        last = records.checks.last_of(dataset.id)
    while last is not None and last.state_sha256 is None:
        with ports.store.read() as records:
            last = records.checks.last_of(dataset.id, before=last.id)
    plain = replace(dataset, key=())
    if last is not None and last.state_sha256 is not None:
        return _profile(ports, ports.files.local(state_path(dataset.id, last.state_sha256)), last.file_name, plain)
    file = own_state(ports, dataset.id, None).file
    return _profile(ports, file, file.name, plain)


def _profile(ports: Ports, file: Path, file_name: str | None, dataset: Dataset) -> Profile:
    place = ports.home / "work"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as folder, ports.engine.work(Path(folder)) as tables:
        state = read_state(ports.open_state(file, file_name, dataset), dataset, None, (), tables)
        columns = _measured(tables, state)
        return Profile(
            rows=state.rows,
            columns=columns,
            keys=(*single_keys(columns), *_paired_keys(tables, state.rows, columns)),
            place=None if state.schema.column(GEOMETRY) else place_of(columns),
            has_shapes=state.schema.column(GEOMETRY) is not None,
            volatile=volatile_of(columns),
            rejects=sum(state.rejects.values()) + state.missing_rows,
        )


def _measured(tables: Tables, state: StateRead) -> tuple[ColumnFacts, ...]:
    own = [column for column in state.schema.columns if column.name != GEOMETRY]
    numbers = [column.name for column in own if column.type in _MEASURED]
    distinct = tables.one(spread.distinct_values([column.name for column in own]))
    ends = tables.one(spread.bounds(numbers))
    place = {name: number for number, name in enumerate(numbers)}
    return tuple(
        ColumnFacts(
            column.name,
            column.source_name,
            column.type,
            state.rows,
            state.nulls.get(column.name, 0),
            distinct[f"n{number}"],
            ends[f"least{place[column.name]}"] if column.name in place else None,
            ends[f"most{place[column.name]}"] if column.name in place else None,
            _some(tables, column.name) if column.type == "string" else (),
        )
        for number, column in enumerate(own)
    )


def _some(tables: Tables, name: str) -> tuple[str, ...]:
    read = tables.query(spread.some_values(name, SAMPLED))
    return tuple(str(text) for batch in read for text in batch.column(0).to_pylist())


def _paired_keys(tables: Tables, rows: int, columns: Sequence[ColumnFacts]) -> list[KeySuggestion]:
    """Try pairs of columns where none alone is a key without doubt."""
    if any(key.doubt is None for key in single_keys(columns)):
        return []
    pairs = pairs_to_try(columns)
    unique = [pair for pair in pairs if tables.one(spread.distinct_pairs(*pair))["found"] == rows]
    return [KeySuggestion(pair) for pair in likely_pairs(unique)]
