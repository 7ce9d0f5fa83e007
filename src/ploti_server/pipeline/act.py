"""Queues what staff do about versions that are out: replace record ids, release a version again (D4.12, D5.2).

Each ends a hold on a later version, whose state is built again after the act, so that versions are sent in order.
"""

from dataclasses import replace
from typing import Any

from ploti_server.domain.checks import Check, CheckKind, CheckStatus
from ploti_server.domain.replacements import Replacement, ReplacementRefused, require_named
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.pipeline.follow import is_kept, last_sent
from ploti_server.pipeline.release import ReleaseRefused, supersede_held
from ploti_server.pipeline.rename import require_columns
from ploti_server.pipeline.trace import standing_of_ids, work_tables
from ploti_server.ports import Ports, Records


def replace_ids(ports: Ports, dataset_id: str, replacement: Replacement, note: str | None = None) -> tuple[Check, ...]:
    """Queue a version of the records that subscribers have, under other ids; gives the checks that were queued.

    Raises `ReplacementRefused` where nothing was sent, a map does not fit the ledger, columns do not tell the records
    apart, or a held version replaces ids.
    """
    if replacement.named is not None:
        require_named(replacement.named, standing_of_ids(ports, dataset_id, replacement.named))
    if replacement.key:
        _require_key(ports, dataset_id, replacement.key)
    with ports.store.write() as records:
        records.catalog.lock([dataset_id])
        if last_sent(records, dataset_id) is None:
            raise ReplacementRefused(f"no version of {dataset_id} was released yet: there are no ids to replace")
        held = _held(records, dataset_id)
        if held is not None and held.record_ids_changed:
            raise ReplacementRefused(
                f"version {held.number} of {dataset_id} replaces ids already and is held: release or discard it first"
            )
        act = _queue(ports, records, dataset_id, CheckKind.REPLACE_IDS, replacement=replacement)
        queued = act, *_resume(ports, records, held, note or "ids were replaced")
        ports.reach("act.before_commit")
    ports.reach("act.queued")
    return queued


def _require_key(ports: Ports, dataset_id: str, key: tuple[str, ...]) -> None:
    """Refuse columns that make no ids of the records that subscribers have, while their files are there."""
    with ports.store.read() as records:
        sent = last_sent(records, dataset_id)
    if sent is not None and is_kept(ports, sent):
        with work_tables(ports) as tables:
            tables.add_files("sent", [ports.files.local(f"{sent.folder}/{f.path}") for f in sent.files_of("snapshot")])
            require_columns(tables, "sent", sent.schema, key)


def release_again(ports: Ports, dataset_id: str, number: int, note: str | None = None) -> tuple[Check, ...]:
    """Take a dataset's newest version back and queue its rebuild under a new number; gives the checks that were queued.

    A version that was sent answers `410` from now on. Raises `ReleaseRefused` for any version but the newest.
    """
    with ports.store.write() as records:
        records.catalog.lock([dataset_id])
        held = _held(records, dataset_id)
        version = _newest(records, dataset_id, number, held)
        was_held = version.status is VersionStatus.HELD
        read = records.checks.get(version.check_id)
        if was_held:
            supersede_held(records, dataset_id, note or "")
        records.versions.put(replace(version, status=VersionStatus.RELEASED_AGAIN, note=note))
        owed = read.replacement if was_held and read is not None else None
        act = _queue(
            ports, records, dataset_id, CheckKind.RELEASE_AGAIN, again=number, **_state_of(read) | {"replacement": owed}
        )
        note = f"version {number} was released again"
        queued = act, *(() if was_held else _resume(ports, records, held, note))
        ports.reach("act.before_commit")
    ports.reach("act.queued")
    return queued


def _newest(records: Records, dataset_id: str, number: int, held: Version | None) -> Version:
    """Find the version to release again: the last one that was sent, or the one that is held (D5.2)."""
    sent = last_sent(records, dataset_id)
    version = records.versions.get(dataset_id, number)
    if version is None:
        raise ReleaseRefused(f"{dataset_id} has no version {number}: see `ploti-server versions list {dataset_id}`")
    if version.status is VersionStatus.RELEASED_AGAIN:
        raise ReleaseRefused(f"version {number} of {dataset_id} was released again already")
    if number not in {one.number for one in (sent, held) if one is not None}:
        newest = held or sent
        told = f"version {newest.number} is" if newest else "none was built"
        raise ReleaseRefused(f"only the newest version of {dataset_id} can be released again: {told}")
    return version


def _held(records: Records, dataset_id: str) -> Version | None:
    held = records.versions.in_status(dataset_id, (VersionStatus.HELD,))
    return held[-1] if held else None


def _resume(ports: Ports, records: Records, held: Version | None, note: str) -> tuple[Check, ...]:
    """End a hold and queue the held state once more: it comes after the act, under a higher number (D5.2)."""
    read = records.checks.get(held.check_id) if held is not None else None
    if held is None or read is None:
        return ()
    supersede_held(records, held.dataset_id, f"{note}; its state comes again after that")
    return (_queue(ports, records, held.dataset_id, CheckKind.RESUME, **_state_of(read)),)


def _state_of(read: Check | None) -> dict[str, Any]:
    """Give what a check says of the state that it read, and of the ids that its version replaces."""
    names = ("state_sha256", "file_name", "source_url", "fetched_at", "replacement")
    return {name: getattr(read, name) for name in names} if read is not None else {}


def _queue(ports: Ports, records: Records, dataset_id: str, kind: CheckKind, **fields: Any) -> Check:
    now = ports.clock.now()
    check = Check(0, dataset_id, CheckStatus.QUEUED, fetched_at=now, created_at=now, kind=kind)
    return records.checks.add(replace(check, **fields))
