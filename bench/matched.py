"""Sends states through the publisher's own matching, version by version, and tells who was found again as whom."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.edits import Tables
from ploti.contract.digest import canonical_value
from ploti.contract.files import RECORD_ID
from ploti_server.adapters.engine import DuckDBEngine
from ploti_server.domain.datasets import Dataset, MatchingLimits, SourceSpec
from ploti_server.domain.evidence import Evidence
from ploti_server.domain.schema import Column, Schema
from ploti_server.domain.states import StateRead
from ploti_server.pipeline.match import Basis, match_records
from ploti_server.ports import Judgement, MatchingAgent, Pair
from ploti_server.rows.match import ROW
from ploti_server.rows.normalise import HILBERT

PLACE = "place_in_table"
"""A volatile column that carries the truth through matching: it is never compared, and no agent weighs it."""

UNLIMITED = MatchingLimits(max_judged=20_000)
ARROW = {
    "string": pa.string(), "json": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", tz="UTC"), "geometry": pa.binary(),
}  # fmt: skip


@dataclass
class Asked:
    """An agent in between that remembers what was asked and answered, and what it cost."""

    agent: MatchingAgent
    pairs: Sequence[Pair] = ()
    evidence: Evidence | None = None
    judgements: dict[str, Judgement] = field(default_factory=dict)
    cpu: float = 0.0
    wall: float = 0.0

    def judges(self, dataset: Dataset) -> bool:
        """Ask the agent whether it judges at all."""
        return self.agent.judges(dataset)

    def judge(self, dataset: Dataset, pairs: Sequence[Pair], evidence: Evidence):
        """Ask the agent."""
        cpu, wall = time.process_time(), time.perf_counter()
        answer = self.agent.judge(dataset, pairs, evidence)
        self.cpu, self.wall = time.process_time() - cpu, time.perf_counter() - wall
        self.pairs, self.evidence = pairs, evidence
        self.judgements = {judgement.pair_id: judgement for judgement in answer}
        return answer


@dataclass(frozen=True)
class Matched:
    """A version: its rows by record id, how each step found records again, what the agent was asked, what it cost."""

    rows: dict[str, dict[str, Any]]
    changes: list[dict[str, Any]]
    by: dict[str, int]
    asked: Asked
    cpu: float
    wall: float


@dataclass
class Chain:
    """The versions of a dataset so far."""

    folder: Path
    dataset: Dataset
    agent: MatchingAgent
    columns: Sequence[str] | None = None
    basis: Basis | None = None
    state: StateRead | None = None
    ledger: tuple[Path, ...] = ()

    def next(self, read: Callable[[Any], StateRead]) -> Matched:
        """Match the state that `read` puts into the engine's tables, and release it."""
        asked, number = Asked(self.agent), (self.basis.version if self.basis else 0) + 1
        folder = self.folder / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        with DuckDBEngine(2048, 2).work(folder) as engine:
            state = read(engine)
            cpu, wall = time.process_time(), time.perf_counter()
            found = match_records(
                engine,
                self.dataset,
                0,
                state,
                self.basis,
                lambda pairs, evidence: asked.judge(self.dataset, pairs, evidence),
                version=number,
                ledger=self.ledger,
            )
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            columns = ", ".join(f't."{name}"' for name in self.columns) if self.columns else "t.*"
            rows = _read(engine, f"SELECT t.{RECORD_ID}, {columns} FROM snapshot_rows t")
            changes = _read(engine, "SELECT * FROM changes_rows")
            self._release(engine, state, found, folder)
        return Matched({row[RECORD_ID]: row for row in rows}, changes, found.by, asked, cpu, wall)

    def _release(self, engine, state, found, folder: Path) -> None:
        snapshot, ledger = folder / "snapshot.parquet", folder / "ledger.parquet"
        if not _write(engine, "snapshot_rows", snapshot):
            own = [(RECORD_ID, pa.string()), *((column.name, ARROW[column.type]) for column in state.schema.columns)]
            pq.write_table(pa.schema(own).empty_table(), snapshot)
        self.ledger = (*self.ledger, ledger) if _write(engine, "ledger_rows", ledger) else self.ledger
        number = (self.basis.version if self.basis else 0) + 1
        self.basis = Basis(number, state.schema, state.rows, (snapshot,), state.singles, state.nulls, found.digest)
        self.state = state


def _read(engine, sql: str) -> list[dict[str, Any]]:
    return [row for batch in engine.query(sql) for row in batch.to_pylist()]


def _write(engine, table: str, path: Path) -> bool:
    batches = list(engine.query(f"SELECT * FROM {table}"))
    if batches:
        pq.write_table(pa.Table.from_batches(batches), path)
    return bool(batches)


@dataclass(frozen=True)
class Outcome:
    """Who was found again: places of old rows to places of new ones, and what it cost."""

    found: dict[int, int]
    matched: Matched


def match(tables: Tables, agent: MatchingAgent, folder: Path, key: Sequence[str] = (), limits=UNLIMITED) -> Outcome:
    """Match the new table with the old one as two versions of one dataset."""
    dataset = Dataset(f"ds_{tables.kind}", tables.kind, SourceSpec("file", "x"), key=tuple(key), matching=limits)
    chain = Chain(folder, dataset, agent, columns=(PLACE,))
    before = chain.next(lambda engine: _state(engine, tables.old, tables.types, key))
    after = chain.next(lambda engine: _state(engine, tables.new, tables.types, key))
    kept = {record: row[PLACE] for record, row in after.rows.items() if record in before.rows}
    return Outcome({before.rows[record][PLACE]: place for record, place in kept.items()}, after)


def _state(engine, rows: list[dict[str, Any]], types: dict[str, str], key) -> StateRead:
    kind = "MultiPolygon" if any(len(r.get("geometry") or b"") > 21 for r in rows[:100]) else "Point"
    columns = [Column(n, t, True, n, geometry_type=kind if t == "geometry" else None) for n, t in types.items()]
    columns.append(Column(PLACE, "integer", True, PLACE, volatile=True))
    extra = [(ROW, pa.int64()), *([(HILBERT, pa.int64())] if "geometry" in types else [])]
    arrow = pa.schema([*extra, *((column.name, ARROW[column.type]) for column in columns)])
    data: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in types}
    data |= {ROW: list(range(len(rows))), HILBERT: [0] * len(rows), PLACE: list(range(len(rows)))}
    table = pa.table({name: pa.array(data[name], arrow.field(name).type) for name in arrow.names}, schema=arrow)
    engine.map_batches("new", iter(table.to_batches(max_chunksize=20_000)), arrow)
    return StateRead(
        Schema(tuple(columns), tuple(key)),
        (),
        len(rows),
        nulls={name: sum(value is None for value in data[name]) for name in (*types, PLACE)},
        singles={n: canonical_value(data[n][0], t) for n, t in types.items() if len(set(data[n])) == 1},
    )


def without(tables: Tables, *columns: str) -> Tables:
    """Give the tables without some columns: a publisher whose key nobody sees."""
    types = {name: type_ for name, type_ in tables.types.items() if name not in columns}
    old, new = ([{name: row[name] for name in types} for row in rows] for rows in (tables.old, tables.new))
    edited = frozenset(place for place, there in tables.truth.items() if old[place] != new[there])
    return replace(tables, types=types, old=old, new=new, edited=edited)
