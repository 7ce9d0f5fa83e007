"""Builds the next version of a dataset from a checked state: gather, compute, write files, then one row (D5.2).

A crash anywhere leaves a status to resume from: the check's lease runs out, the next worker builds the same number
under a new attempt.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ploti.contract.digest import Digest
from ploti_server.domain.attachments import Attachments, have_changed, told_of
from ploti_server.domain.checks import Check
from ploti_server.domain.holds import Facts, reasons, review
from ploti_server.domain.release import resync_reason
from ploti_server.domain.replacements import ReplacementRefused
from ploti_server.domain.schema import SchemaChange, SchemaVersion, change_between, next_version
from ploti_server.domain.states import StateRead, StateUnreadable
from ploti_server.domain.versions import Version, VersionStatus, state_path
from ploti_server.pipeline.ask import Judge
from ploti_server.pipeline.attach import attach, attachments_of
from ploti_server.pipeline.begin import Gathered, begin
from ploti_server.pipeline.consult import Consultation
from ploti_server.pipeline.match import Basis, Matched, Waiting, match_records
from ploti_server.pipeline.read import read_state
from ploti_server.pipeline.release import Ended, end_check
from ploti_server.pipeline.write import Built, write_version
from ploti_server.ports import Ports, Tables


def build(ports: Ports, check: Check) -> Check:
    """Turn a leased check into a version, or find that nothing changed; gives the check with its outcome.

    Built again at once where the released version moved meanwhile (D5.2).
    """
    while True:
        gathered = begin(ports, check)
        ports.reach("build.begun")
        moot = gathered.moot
        ended = _built(ports, gathered) if moot is None else Ended(gathered.version, "unchanged", moot)
        ports.reach("build.computed")
        finished = end_check(ports, gathered.check, ended)
        if finished is not None:
            ports.reach("build.ended")
            return finished


def _built(ports: Ports, gathered: Gathered) -> Ended:
    check = gathered.check
    try:
        with workplace(ports, check, gathered.version.attempt) as folder, ports.engine.work(folder) as tables:
            return _compute(ports, tables, gathered, check, folder)
    except (StateUnreadable, ReplacementRefused) as error:
        return Ended(gathered.version, "failed", str(error))


@contextmanager
def workplace(ports: Ports, check: Check, attempt: int) -> Iterator[Path]:
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


def _compute(ports: Ports, tables: Tables, gathered: Gathered, check: Check, folder: Path) -> Ended:
    before = attachments_of(ports.files, gathered.base)
    state, attachments = read_gathered(ports, tables, gathered, before, folder)
    ports.reach("build.state_read")
    consultation = Consultation(ports, gathered.dataset, gathered.version, check)
    matched = match_gathered(
        ports, tables, gathered, state, consultation if ports.agent.judges(gathered.dataset) else None
    )
    ports.reach("build.matched")
    if isinstance(matched, Waiting):
        facts = consultation.facts
        return Ended(gathered.version, "waiting", facts.get("agent_trouble"), facts, consultation.look_again_at())
    change = _schema_change(gathered.base, state)
    holds = review(_facts(gathered, state, matched, change, silent=consultation.is_silent), gathered.dataset.review)
    shown = (
        matched.facts
        | consultation.facts
        | {
            "missing_rows": state.missing_rows,
            "ledger_lost": list(gathered.ledger.lost),
            "holds": [hold.to_json() for hold in holds],
            "misnamed": list(state.misnamed),
            **told_of(attachments),
        }
        | ({"replaced": matched.renamed} if check.replacement else {})
    )
    version = _described(gathered, state, matched, change, shown)
    fingerprint = fingerprint_of(state, matched.digest, attachments)
    version = replace(version, reasons=reasons(holds), built_at=ports.clock.now(), fingerprint=fingerprint)
    must_be_sent = gathered.is_base_gone or matched.renamed > 0 or have_changed(before, attachments)
    if gathered.base is not None and change is None and not (matched.state_changed or must_be_sent):
        return Ended(version, "unchanged", None, shown)
    if not gathered.is_asked_for and (same := _same_as_waiting(ports, version)) is not None:
        return Ended(version, "unchanged", None, shown | {"open": same})
    written = write_version(ports, tables, to_write(gathered, version, state, matched, attachments), folder)
    return Ended(written, "held" if holds else "released", None, shown)


def match_gathered(
    ports: Ports, tables: Tables, gathered: Gathered, state: StateRead, judge: Judge | None
) -> Matched | Waiting:
    """Match the state in the table `new` with the version that is followed."""
    return match_records(
        tables,
        gathered.dataset,
        gathered.version.id_epoch,
        state,
        _basis(ports, gathered),
        judge,
        version=gathered.version.number,
        ledger=tuple(ports.files.local(path) for path in gathered.ledger.paths),
        replacement=gathered.check.replacement,
        lost=gathered.lost,
        is_ledger_whole=not gathered.ledger.lost,
    )


def to_write(
    gathered: Gathered, version: Version, state: StateRead, matched: Matched, attachments: Attachments
) -> Built:
    """Give what a version's files are written from."""
    return Built(
        version,
        state,
        matched.digest,
        gathered.dataset.license,
        gathered.schema_origin if version.schema_change is None else None,
        matched.constants,
        matched.backfill_columns,
        matched.backfill_rows,
        attachments,
    )


def read_gathered(
    ports: Ports, tables: Tables, gathered: Gathered, before: Attachments, folder: Path
) -> tuple[StateRead, Attachments]:
    """Read a check's state into the tables `new` and `rejects`, and copy its attachments; raises `StateUnreadable`.

    `before` is what the version has that is followed.
    """
    check = gathered.check
    if check.state_sha256 is None:
        raise StateUnreadable("the check has no stored state: check the source again")
    path = state_path(check.dataset_id, check.state_sha256)
    if ports.files.stat(path) is None:
        raise StateUnreadable("the state to build from is not kept any more: check the source again")
    raw_file = ports.files.local(path)
    raw = ports.open_state(raw_file, check.file_name, gathered.dataset)
    raw, attachments = attach(ports, gathered.dataset, gathered.version, before, raw, folder=folder)
    base = gathered.base
    schema, known = (base.schema, base.known_columns) if base else (None, ())
    return read_state(raw, gathered.dataset, schema, known, tables), attachments


def _basis(ports: Ports, gathered: Gathered) -> Basis | None:
    """Give what is kept of the version to follow; None where there is none, or nothing of it is left."""
    base = gathered.base
    if base is None or not gathered.is_base_kept:
        return None
    manifest = json.loads(b"".join(ports.files.read(f"{base.folder}/manifest.json")))
    return Basis(
        version=base.number,
        schema=base.schema,
        rows=base.row_count,
        snapshot=tuple(ports.files.local(f"{base.folder}/{file.path}") for file in base.files_of("snapshot")),
        singles=base.facts["singles"],
        nulls=base.facts["nulls"],
        digest=Digest.from_wire(manifest["digest"]),
    )


def _schema_change(base: Version | None, state: StateRead) -> SchemaChange | None:
    if base is None:
        return None
    return change_between(base.schema, state.schema, SchemaVersion.parse(base.schema_version))


def _facts(
    gathered: Gathered, state: StateRead, matched: Matched, change: SchemaChange | None, *, silent: bool
) -> Facts:
    base = gathered.base
    return Facts(
        rows=state.rows,
        previous_rows=base.row_count if base else None,
        added=matched.counts.added,
        changed=matched.counts.changed,
        removed=matched.counts.removed,
        breaking=_breaking(change),
        duplicate_keys=matched.facts["duplicate_keys"],
        null_keys=matched.facts["null_keys"],
        rejects=matched.facts["rejected_rows"] + state.missing_rows,
        missing_rows=state.missing_rows,
        nulls=state.nulls,
        previous_nulls=base.facts["nulls"] if base else {},
        ids_replaced=gathered.check.replacement is not None,
        ledger_lost=gathered.ledger_newly_lost,
        none_compared=gathered.is_base_gone and not matched.comparable,
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
    base = gathered.base
    reason = resync_reason(
        first=base is None,
        change=change,
        previous_unavailable=gathered.is_base_gone,
        ids_changed=matched.renamed > 0,
    )
    version = SchemaVersion.parse(base.schema_version) if base else None
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
        record_ids_changed=matched.renamed > 0,
        facts=facts | {"nulls": state.nulls, "singles": state.singles},
    )


def fingerprint_of(state: StateRead, digest: Digest, attachments: Attachments) -> str:
    """Tell what a version would deliver: two builds on one base with the same fingerprint deliver the same (D5.1)."""
    columns = [[c.name, c.type, c.nullable, c.source_name, c.volatile, c.geometry_type] for c in state.schema.columns]
    told = [columns, list(state.schema.key_columns), digest.to_wire()]
    told += [[one.file, one.sha256] for one in attachments.listed]
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
