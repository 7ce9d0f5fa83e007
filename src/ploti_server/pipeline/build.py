"""Builds the next version of a dataset from a checked state: gather, compute, write files, then one row (D5.2).

A crash anywhere leaves a status to resume from: the check's lease runs out, the next worker builds the same number
under a new attempt.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ploti.contract.digest import Digest
from ploti_server.domain.checks import Check
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.holds import Facts, reasons, review
from ploti_server.domain.release import resync_reason
from ploti_server.domain.schema import SchemaChange, SchemaVersion, change_between, next_version
from ploti_server.domain.states import StateRead, StateUnreadable
from ploti_server.domain.versions import Version, VersionStatus, state_path
from ploti_server.pipeline.consult import Consultation
from ploti_server.pipeline.match import Basis, Matched, Waiting, match_records
from ploti_server.pipeline.read import read_state
from ploti_server.pipeline.release import Ended, end_check
from ploti_server.pipeline.write import Built, write_version
from ploti_server.ports import Ports, Records, Tables


@dataclass(frozen=True)
class Gathered:
    """What the store knows when a build starts."""

    dataset: Dataset
    version: Version
    current: Version | None
    schema_origin: Version | None
    ledger: tuple[str, ...]


def build(ports: Ports, check: Check) -> Check:
    """Turn a leased check into a version, or find that nothing changed; gives the check with its outcome.

    Built again at once where the released version moved meanwhile (D5.2).
    """
    while True:
        gathered = _begin(ports, check)
        ports.reach("build.begun")
        try:
            with _workplace(ports, check, gathered.version.attempt) as folder, ports.engine.work(folder) as tables:
                ended = _compute(ports, tables, gathered, check, folder)
        except StateUnreadable as error:
            ended = Ended(gathered.version, "failed", str(error))
        ports.reach("build.computed")
        finished = end_check(ports, check, ended)
        if finished is not None:
            ports.reach("build.ended")
            return finished


@contextmanager
def _workplace(ports: Ports, check: Check, attempt: int) -> Iterator[Path]:
    """Give an empty folder for one build; those of earlier attempts go: they were killed, or have lost their lease."""
    place = ports.home / "work"
    for left in place.glob(f"check-{check.id}-*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = place / f"check-{check.id}-{attempt}"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _begin(ports: Ports, check: Check) -> Gathered:
    """Give the version its number, once, or take up the one that an earlier attempt left (D5.2)."""
    with ports.store.write() as records:
        dataset = records.catalog.dataset(check.dataset_id)
        if dataset is None:
            raise LookupError(f"{check.dataset_id} left the catalog while its check {check.id} was open")
        current = records.versions.current(check.dataset_id)
        begun = _begun(records, check)
        begun = begun or Version(
            dataset.id, records.versions.newest_number(dataset.id) + 1, 0, VersionStatus.BUILDING, 0
        )
        version = replace(
            begun,
            attempt=_free_attempt(ports, begun),
            status=VersionStatus.BUILDING,
            check_id=check.id,
            base=current.number if current else None,
            previous_version=current.number if current else None,
            source_url=check.source_url,
            place_id=dataset.filed_place,
            fetched_at=check.fetched_at,
        )
        records.versions.put(version)
        released = all_released(records, dataset.id)
        same = (v for v in released if current and v.schema_version == current.schema_version)
        ledger = tuple(f"{v.folder}/{f.path}" for v in released for f in v.staff_files if f.path.startswith("ledger/"))
        return Gathered(dataset, version, current, next(same, None), ledger)


def _free_attempt(ports: Ports, begun: Version) -> int:
    """Give the next attempt whose folder is empty: an abandoned build of this number may have left files (D5.3)."""
    attempt = begun.attempt + 1
    while next(iter(ports.files.paths(f"{replace(begun, attempt=attempt).folder}/")), None) is not None:
        attempt += 1
    return attempt


def all_released(records: Records, dataset_id: str) -> tuple[Version, ...]:
    """Give every released version, oldest first, page by page."""
    released: tuple[Version, ...] = ()
    while page := records.versions.released(dataset_id, after=released[-1].number if released else 0):
        released += page
    return released


def _begun(records: Records, check: Check) -> Version | None:
    unfinished = (VersionStatus.BUILDING, VersionStatus.WAITING)
    found = records.versions.in_status(check.dataset_id, unfinished)
    return next((v for v in found if v.check_id == check.id), None)


def _compute(ports: Ports, tables: Tables, gathered: Gathered, check: Check, folder: Path) -> Ended:
    state = _read(ports, tables, gathered, check)
    ports.reach("build.state_read")
    consultation = Consultation(ports, gathered.dataset, gathered.version, check)
    matched = match_records(
        tables,
        gathered.dataset,
        gathered.version.id_epoch,
        state,
        _basis(ports, gathered.current),
        consultation if ports.agent.judges(gathered.dataset) else None,
        version=gathered.version.number,
        ledger=tuple(ports.files.local(path) for path in gathered.ledger),
    )
    ports.reach("build.matched")
    if isinstance(matched, Waiting):
        facts = consultation.facts
        return Ended(gathered.version, "waiting", facts.get("agent_trouble"), facts, consultation.look_again_at())
    change = _schema_change(gathered.current, state)
    holds = review(
        _facts(gathered.current, state, matched, change, silent=consultation.is_silent), gathered.dataset.review
    )
    shown = (
        matched.facts
        | consultation.facts
        | {
            "missing_rows": state.missing_rows,
            "holds": [hold.to_json() for hold in holds],
            "misnamed": list(state.misnamed),
        }
    )
    version = _described(gathered, state, matched, change, shown)
    version = replace(version, reasons=reasons(holds), built_at=ports.clock.now())
    if gathered.current is not None and change is None and not matched.state_changed:
        return Ended(version, "unchanged", None, shown)
    if (same := _same_as_waiting(ports, version)) is not None:
        return Ended(version, "unchanged", None, shown | {"open": same})
    built = Built(
        version,
        state,
        matched.digest,
        gathered.dataset.license,
        gathered.schema_origin if change is None else None,
        matched.constants,
        matched.backfill_columns,
        matched.backfill_rows,
    )
    written = write_version(ports, tables, built, folder)
    return Ended(written, "held" if holds else "released", None, shown)


def _read(ports: Ports, tables: Tables, gathered: Gathered, check: Check) -> StateRead:
    if check.state_sha256 is None:
        raise StateUnreadable("the check has no stored state: check the source again")
    raw_file = ports.files.local(state_path(check.dataset_id, check.state_sha256))
    raw = ports.open_state(raw_file, check.file_name, gathered.dataset)
    current = gathered.current
    return read_state(
        raw, gathered.dataset, current.schema if current else None, current.known_columns if current else (), tables
    )


def _basis(ports: Ports, current: Version | None) -> Basis | None:
    if current is None:
        return None
    manifest = json.loads(b"".join(ports.files.read(f"{current.folder}/manifest.json")))
    return Basis(
        version=current.number,
        schema=current.schema,
        rows=current.row_count,
        snapshot=tuple(ports.files.local(f"{current.folder}/{file.path}") for file in current.files_of("snapshot")),
        singles=current.facts["singles"],
        nulls=current.facts["nulls"],
        digest=Digest.from_wire(manifest["digest"]),
    )


def _schema_change(current: Version | None, state: StateRead) -> SchemaChange | None:
    if current is None:
        return None
    return change_between(current.schema, state.schema, SchemaVersion.parse(current.schema_version))


def _facts(
    current: Version | None, state: StateRead, matched: Matched, change: SchemaChange | None, *, silent: bool
) -> Facts:
    return Facts(
        rows=state.rows,
        previous_rows=current.row_count if current else None,
        added=matched.counts.added,
        changed=matched.counts.changed,
        removed=matched.counts.removed,
        breaking=_breaking(change),
        duplicate_keys=matched.facts["duplicate_keys"],
        null_keys=matched.facts["null_keys"],
        rejects=matched.facts["rejected_rows"] + state.missing_rows,
        missing_rows=state.missing_rows,
        nulls=state.nulls,
        previous_nulls=current.facts["nulls"] if current else {},
        agent_silent=silent,
    )


def _breaking(change: SchemaChange | None) -> tuple[str, ...]:
    if change is None or change.kind != "breaking":
        return ()
    told = [f"removed {name}" for name in change.removed]
    told += [f"retyped {r.name}: {r.from_} -> {r.to}" for r in change.retyped]
    return (*told, *(["key columns changed"] if change.key_changed else []))


def _described(
    gathered: Gathered, state: StateRead, matched: Matched, change: SchemaChange | None, facts: dict[str, Any]
) -> Version:
    current = gathered.current
    reason = resync_reason(first=current is None, change=change)
    version = SchemaVersion.parse(current.schema_version) if current else None
    numbered = next_version(version, change)
    return replace(
        gathered.version,
        schema=state.schema,
        schema_version=str(numbered),
        schema_change=change,
        known_columns=state.known_columns,
        row_count=state.rows,
        counts=None if reason else matched.counts,
        resync_reason=reason,
        facts=facts | {"nulls": state.nulls, "singles": state.singles},
        fingerprint=_fingerprint(state, matched.digest),
    )


def _fingerprint(state: StateRead, digest: Digest) -> str:
    """Tell what a version would deliver: two builds on one base with the same fingerprint deliver the same (D5.1)."""
    columns = [[c.name, c.type, c.nullable, c.source_name, c.volatile, c.geometry_type] for c in state.schema.columns]
    told = [columns, list(state.schema.key_columns), digest.to_wire()]
    return sha256(json.dumps(told, separators=(",", ":")).encode()).hexdigest()


def _same_as_waiting(ports: Ports, version: Version) -> dict[str, Any] | None:
    """Find a held or discarded version that this one would only repeat, for the same reasons (D5.1).

    The same rows without the trouble, as when a row that was undecodable is truly gone, are a version of their own.
    """
    with ports.store.read() as records:
        ended = records.versions.in_status(version.dataset_id, (VersionStatus.HELD, VersionStatus.DISCARDED))
    for other in ended:
        same = (other.base, other.fingerprint, other.reasons) == (version.base, version.fingerprint, version.reasons)
        if same:
            return {"version": other.number, "status": str(other.status), "reasons": list(other.reasons)}
    return None
