"""A dataset's history told row by row, for tests of matching: each state goes through `match_records` on DuckDB.

What was delivered is read back and put together by pyarrow and plain Python alone, never by the code under test.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ploti.contract.digest import Digest, canonical_row, canonical_value, record_hash
from ploti_server.adapters.engine import DuckDBEngine
from ploti_server.domain.datasets import Dataset, MatchingLimits, SourceSpec
from ploti_server.domain.schema import Column, Schema
from ploti_server.domain.states import StateRead
from ploti_server.pipeline.match import Basis, Waiting, match_records

ARROW = {
    "string": pa.string(),
    "json": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "geometry": pa.binary(),
}


def columns(types, volatile=(), kind=None):
    """Make delivered columns from names and types."""
    return tuple(
        Column(name, type_, True, name, volatile=name in volatile, geometry_type=_kind(type_, kind))
        for name, type_ in types.items()
    )


def _kind(type_, kind):
    return (kind or "Point") if type_ == "geometry" else None


def nobody(pairs):
    return ()


@dataclass
class Story:
    """A dataset and its released versions so far."""

    folder: Path
    dataset_id: str = "ds_story"
    epoch: int = 0
    judge: object = nobody
    matching: MatchingLimits = MatchingLimits()
    threads: int = 1
    versions: list = field(default_factory=list)
    basis: Basis | None = None
    ledger: tuple = ()
    seed: int | None = None
    evidence: object = None

    def next(self, rows, types, key=(), volatile=(), kind=None, release=True, replacement=None):
        """Read a state from rows, match it and release it; gives the `Version` with its rows."""
        schema = Schema(columns(types, volatile, kind), tuple(key))
        dataset = Dataset(self.dataset_id, "Story", SourceSpec("file", "x"), matching=self.matching)
        return self.take(dataset, lambda tables: self._state(tables, rows, schema), release, replacement)

    def take(self, dataset, read_state, release=True, replacement=None):
        """Match what `read_state` leaves in the tables, and release it."""
        number = len(self.versions) + 1
        folder = self.folder / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        with DuckDBEngine(512, self.threads).work(folder) as tables:
            state = read_state(tables)
            matched = match_records(
                tables,
                dataset,
                self.epoch,
                state,
                self.basis,
                self.judge and self._ask,
                version=number,
                ledger=self.ledger,
                replacement=replacement,
            )
            if isinstance(matched, Waiting):
                return matched
            read = Version(number, state.schema, state, matched, *(_rows(tables, name) for name in DELIVERED))
            if replacement is not None:
                read.id_map = _id_map(_rows(tables, "id_map_rows"))
            if release:
                self._release(tables, read, folder)
        return read

    def _ask(self, pairs, evidence):
        self.evidence = evidence
        return self.judge(pairs)

    def _state(self, tables, rows, schema):
        rows = [dict(row) for row in rows]
        if self.seed is not None:
            random.Random(self.seed).shuffle(rows)
        shapes = schema.column("geometry") is not None
        arrow = pa.schema(
            [("_ploti_row", pa.int64()), *([("_ploti_hilbert", pa.int64())] if shapes else [])]
            + [(c.name, ARROW[c.type]) for c in schema.columns]
        )
        for place, row in enumerate(rows):
            row["_ploti_row"] = place
            row["_ploti_hilbert"] = None if row.get("geometry") is None else hash(row["geometry"]) % 1000
        table = pa.Table.from_pylist(rows, arrow)
        tables.map_batches("new", iter(table.to_batches(max_chunksize=7)), arrow)
        texts = {c.name: {canonical_value(row.get(c.name), c.type) for row in rows} for c in schema.columns}
        return StateRead(
            schema,
            (),
            len(rows),
            nulls={c.name: sum(row.get(c.name) is None for row in rows) for c in schema.columns},
            singles={name: next(iter(found)) for name, found in texts.items() if len(found) == 1},
        )

    def _release(self, tables, read, folder):
        snapshot = folder / "snapshot.parquet"
        table = pa.Table.from_batches(tables.query("SELECT * FROM snapshot_rows"), None) if read.snapshot else None
        if table is None:
            names = [("_ploti_record_id", pa.string()), *((c.name, ARROW[c.type]) for c in read.schema.columns)]
            table = pa.schema(names).empty_table()
        pq.write_table(table, snapshot)
        if read.ledger:
            part = folder / "ledger.parquet"
            pq.write_table(pa.Table.from_batches(tables.query("SELECT * FROM ledger_rows")), part)
            self.ledger = (*self.ledger, part)
        state = read.state
        self.basis = Basis(
            read.number, read.schema, state.rows, (snapshot,), state.singles, state.nulls, read.matched.digest
        )
        self.versions.append(read)


DELIVERED = ("snapshot_rows", "changes_rows", "backfill_rows", "ledger_rows")


def _rows(tables, name):
    return [row for batch in tables.query(f"SELECT * FROM {name}") for row in batch.to_pylist()]


def _id_map(rows):
    pairs = {row["_ploti_previous_record_id"]: row["_ploti_record_id"] for row in rows}
    assert len(pairs) == len(set(pairs.values())) == len(rows)
    return pairs


@dataclass
class Version:
    """What a version delivered."""

    number: int
    schema: Schema
    state: StateRead
    matched: object
    snapshot: list
    changes: list
    backfill: list
    ledger: list
    id_map: dict | None = None

    @property
    def firm(self):
        """Own non-volatile columns and their types."""
        return {c.name: c.type for c in self.schema.columns if not c.volatile}

    def records(self):
        """Rows by id over own non-volatile columns."""
        found = {row["_ploti_record_id"]: {n: row[n] for n in self.firm} for row in self.snapshot}
        assert len(found) == len(self.snapshot)
        return found

    def ids(self, *names):
        """Ids by the values of some columns, as a list of pairs in order."""
        return sorted((tuple(str(row[n]) for n in names), row["_ploti_record_id"]) for row in self.snapshot)

    def of(self, change):
        """Change rows of a kind."""
        return [row for row in self.changes if row["_ploti_change"] == change]

    @property
    def counts(self):
        c = self.matched.counts
        return (c.added, c.changed, c.removed)


def as_stored(value, type_):
    """Give a constant's value as the column holds it."""
    if value is None or type_ not in ("date", "timestamp"):
        return value
    return (
        pa.array([value.removesuffix("Z")])
        .cast(ARROW[type_] if type_ == "date" else pa.timestamp("us"))
        .cast(ARROW[type_])[0]
        .as_py()
    )


def applied(previous, version):
    """Apply changes, backfill and constants to the records of the version before (I3, D5.8)."""
    records = {id_: {n: row.get(n) for n in version.firm} for id_, row in previous.items()}
    for row in version.backfill:
        records[row["_ploti_record_id"]] |= {n: row[n] for n in version.matched.backfill_columns if n in version.firm}
    for name, value in version.matched.constants.items():
        for record in records.values():
            record[name] = as_stored(value, version.firm[name])
    seen = set()
    for row in version.changes:
        id_ = row["_ploti_record_id"]
        assert id_ not in seen
        seen.add(id_)
        if row["_ploti_op"] == "delete":
            del records[id_]
        else:
            assert (id_ in records) == (row["_ploti_change"] == "changed")
            records[id_] = {n: row[n] for n in version.firm}
    return records


def digest_by_definition(version):
    """Give a version's digest, record by record."""
    digest = Digest()
    for id_, record in version.records().items():
        digest.add(id_, record_hash(id_, canonical_row(record, version.firm)))
    return digest


def check_chain(previous, version):
    """Check what holds for every version that follows another (I3, I7)."""
    kinds = {"added": 0, "changed": 0, "removed": 0}
    for row in version.changes:
        kinds[row["_ploti_change"]] += 1
    assert (kinds["added"], kinds["changed"], kinds["removed"]) == version.counts
    assert version.matched.digest == digest_by_definition(version)
    if previous is None:
        return
    gone = {c.name for c in previous.schema.columns} - {c.name for c in version.schema.columns}
    retyped = any(
        (o := previous.schema.column(c.name)) and (o.type, o.geometry_type) != (c.type, c.geometry_type)
        for c in version.schema.columns
    )
    if not retyped and not gone:
        assert applied(previous.records(), version) == version.records()
