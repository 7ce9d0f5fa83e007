"""Traces what became of record ids, in the ledger of every version that was sent (D4.3)."""

import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ploti.contract.files import RECORD_ID
from ploti.contract.resources import RecordStatus
from ploti_server.domain.replacements import Standing
from ploti_server.domain.versions import Version
from ploti_server.pipeline.follow import sent_versions
from ploti_server.pipeline.ledger_parts import PUT_BACK, LedgerLost, ledger_parts, named_parts
from ploti_server.ports import Ports, Tables
from ploti_server.rows import ledger
from ploti_server.rows.sql import staged_schema


@dataclass(frozen=True)
class Entry:
    """What the ledger noted of an id with one version."""

    record_id: str
    version: int
    what: Standing
    replaced_by: str | None
    key_text: str | None
    first_version: int


@dataclass(frozen=True)
class Traced:
    """An id's record: since which version and up to which one it was carried, and the id that its record has now.

    `current_id` is None where the record is gone. `history` is oldest first.
    """

    record_id: str
    status: Standing
    first_version: int
    last_version: int
    replaced_by: str | None
    current_id: str | None
    history: tuple[Entry, ...]

    @property
    def wire_status(self) -> RecordStatus:
        """The status as subscribers and operators read it."""
        return "replaced" if self.status == "replaced_by" else self.status


def trace(ports: Ports, dataset_id: str, record_id: str) -> Traced | None:
    """Tell what became of an id; None where no record of a version that was sent ever carried it."""
    return trace_all(ports, dataset_id, [record_id]).get(record_id)


def trace_all(ports: Ports, dataset_id: str, ids: Collection[str]) -> dict[str, Traced]:
    """Tell what became of ids, by id; those that no record of a version that was sent ever carried are left out."""
    with ports.store.read() as records:
        sent = sent_versions(records, dataset_id)
    with open_ledger(ports, sent) as tables:
        found = _entries(tables, ids)
        now = _followed(tables, found)
    return {record_id: _traced(history, sent, now[record_id]) for record_id, history in found.items()}


def _traced(history: tuple[Entry, ...], sent: tuple[Version, ...], now: str | None) -> Traced:
    last = history[-1]
    return Traced(
        last.record_id, last.what, last.first_version, _last_version(last, sent), last.replaced_by, now, history
    )


def current_ids(tables: Tables, ids: Collection[str]) -> dict[str, str | None]:
    """Give the ids that records carry now by ids that they had, through every replacement; None for those gone."""
    return _followed(tables, _entries(tables, ids))


def _followed(tables: Tables, found: dict[str, tuple[Entry, ...]]) -> dict[str, str | None]:
    now = {record_id: record_id for record_id in found}
    last = {record_id: history[-1] for record_id, history in found.items()}
    while moved := {id_: entry.replaced_by for id_ in now if (entry := last[now[id_]]).replaced_by is not None}:
        now |= moved
        last |= {record_id: history[-1] for record_id, history in _entries(tables, set(moved.values())).items()}
    return {record_id: carried if last[carried].what == "current" else None for record_id, carried in now.items()}


def standing_of_ids(ports: Ports, dataset_id: str, named: dict[str, str | None]) -> dict[str, Standing]:
    """Tell how the ids of a map stand, those alone that some record ever carried."""
    with ports.store.read() as records:
        sent = sent_versions(records, dataset_id)
    with open_ledger(ports, sent) as tables:
        found = _entries(tables, {*named, *(new for new in named.values() if new is not None)})
    return {record_id: history[-1].what for record_id, history in found.items()}


def _last_version(entry: Entry, sent: tuple[Version, ...]) -> int:
    """Give the last version in which a record stood under its id."""
    if entry.what == "current":
        return sent[-1].number
    followed = [version.base for version in sent if version.number == entry.version]
    return followed[0] or entry.version


@contextmanager
def work_tables(ports: Ports) -> Iterator[Tables]:
    """Open the engine in a scratch folder of the home folder."""
    folder = ports.home / "work"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch, ports.engine.work(Path(scratch)) as tables:
        yield tables


@contextmanager
def open_ledger(ports: Ports, sent: tuple[Version, ...]) -> Iterator[Tables]:
    """Open the ledger parts of versions as a table; raises `LedgerLost` where one is missing."""
    standing = ledger_parts(ports, sent)
    if standing.lost:
        named = named_parts(sent[0].dataset_id, standing.lost)
        raise LedgerLost(
            f"{named}, so that nothing certain can be told. {PUT_BACK}, or let the next check make it again"
        )
    parts = [ports.files.local(path) for path in standing.paths]
    with work_tables(ports) as tables:
        if parts:
            tables.add_files("ledger", parts)
        else:
            tables.map_batches("ledger", iter(()), ledger.LEDGER_SCHEMA)
        yield tables


def _entries(tables: Tables, ids: Iterable[str]) -> dict[str, tuple[Entry, ...]]:
    """Give the entries of ids by id, oldest first."""
    schema = staged_schema({RECORD_ID: pa.string()})
    wanted = pa.RecordBatch.from_pylist([{RECORD_ID: id_} for id_ in sorted(ids)], schema)
    tables.map_batches("wanted", iter([wanted]), schema)
    found: dict[str, tuple[Entry, ...]] = {}
    for batch in tables.query(ledger.entries_of("wanted")):
        for row in batch.to_pylist():
            entry = _entry(row)
            found[entry.record_id] = (*found.get(entry.record_id, ()), entry)
    return found


def _entry(row: dict[str, Any]) -> Entry:
    return Entry(row[RECORD_ID], row["version"], row["what"], row["replaced_by"], row["key_text"], row["first_version"])
