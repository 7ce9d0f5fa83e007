"""Takes a source's state in: the raw bytes into the file store, then a row of work that points at them (D5.3, D4.9)."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO, Final

from ploti_server.domain.asks import closed
from ploti_server.domain.checks import Check, CheckKind, CheckStatus, Refresh
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.replacements import Replacement
from ploti_server.domain.versions import VersionStatus, state_path
from ploti_server.domain.wire import wire_time
from ploti_server.pipeline.tell import queue_notice
from ploti_server.ports import Ports, Records

BLOCK: Final = 1 << 20


class CheckRefused(Exception):
    """A check that cannot be taken; the message says what to do."""


class StateMissing(CheckRefused):
    """A state whose file cannot be read at all."""


@dataclass(frozen=True)
class GivenState:
    """A state handed over as a file; `fetched_at` is when it was read from its source."""

    file: Path
    fetched_at: datetime | None = None


def take_state(ports: Ports, dataset_id: str, state: GivenState) -> Check:
    """Store a state's bytes and queue the check; a newer state takes the place of one that no build has begun.

    While a version waits for its agent, a check moves the refresh as soon as it is taken (D4.9).

    Raises `CheckRefused` for an unknown dataset, an unreadable file, or a time before the last check's (D13.4).
    """
    with ports.store.read() as records:
        dataset = _known(records, dataset_id)
        _refuse_earlier(records, dataset_id, state.fetched_at)
    sha256 = _store_raw(ports, dataset_id, state.file)
    ports.reach("check.state_stored")
    now = ports.clock.now()
    with ports.store.write() as records:
        _refuse_earlier(records, dataset_id, state.fetched_at)
        owed: Replacement | None = None
        for waiting in records.checks.open_of(dataset_id):
            if waiting.status is CheckStatus.WAITING:
                read_at = state.fetched_at or now
                records.catalog.put_refresh(dataset_id, Refresh(read_at, now + dataset.check_every))
            if waiting.status is CheckStatus.QUEUED and waiting.kind is not CheckKind.REPLACE_IDS:
                records.checks.put(replace(waiting, status=CheckStatus.REPLACED, finished_at=now))
                drop_unfinished(records, waiting)
                owed = waiting.replacement or owed
        check = records.checks.add(
            Check(
                id=0,
                dataset_id=dataset_id,
                status=CheckStatus.QUEUED,
                fetched_at=state.fetched_at or now,
                created_at=now,
                state_sha256=sha256,
                file_name=os.fsencode(state.file.name).decode(errors="replace"),
                source_url=public_source(dataset),
                replacement=owed,
            )
        )
        ports.reach("check.before_commit")
    ports.reach("check.queued")
    return check


def drop_unfinished(records: Records, check: Check) -> None:
    """Forget the version that an ended check had begun, and what it was waiting for: its number is free again."""
    ask = records.asks.get(check.id)
    if ask is not None:
        records.asks.put(closed(ask, keeps_values=False))
    unfinished = (VersionStatus.BUILDING, VersionStatus.WAITING)
    for version in records.versions.in_status(check.dataset_id, unfinished):
        if version.check_id == check.id:
            records.versions.drop(check.dataset_id, version.number)


def fail_check(ports: Ports, dataset_id: str, reason: str) -> Check:
    """Record a check whose source could not be read at all; its dataset stays due (D14.2)."""
    now = ports.clock.now()
    with ports.store.write() as records:
        current = records.versions.current(dataset_id)
        failed = records.checks.add(
            Check(
                id=0,
                dataset_id=dataset_id,
                status=CheckStatus.FAILED,
                fetched_at=now,
                created_at=now,
                outcome="failed",
                version=current.number if current else None,
                reason=reason,
                finished_at=now,
            )
        )
        queue_notice(ports, records, failed)
    return failed


def take_own_state(ports: Ports, dataset_id: str, fetched_at: datetime | None) -> Check:
    """Take in the state that a dataset's own source has now; one that cannot be read is a failed check (D14.2)."""
    state = own_state(ports, dataset_id, fetched_at)
    try:
        return take_state(ports, dataset_id, state)
    except StateMissing as missing:
        return fail_check(ports, dataset_id, str(missing))


def own_state(ports: Ports, dataset_id: str, fetched_at: datetime | None) -> GivenState:
    """Give the state that a dataset's own source has now; raises `CheckRefused` where it is no readable file."""
    with ports.store.read() as records:
        dataset = _known(records, dataset_id)
    if public_source(dataset) is not None:
        kind = dataset.source.kind
        declared = "" if kind == "file" else f", and declare `kind: file`, for {kind!r} is not read yet"
        raise CheckRefused(
            f"{dataset_id} is read from an address: download it and give the file with --state{declared}"
        )
    return GivenState(Path(dataset.source.url), fetched_at)


def public_source(dataset: Dataset) -> str | None:
    """Give the source's address where it is http(s); a local path is never shown (D10.5)."""
    url = dataset.source.url
    return url if url.startswith(("http://", "https://")) else None


def _known(records: Records, dataset_id: str) -> Dataset:
    dataset = records.catalog.dataset(dataset_id)
    if dataset is None:
        raise CheckRefused(f"there is no dataset {dataset_id}: apply a catalog that has it, or see `datasets list`")
    if dataset.retired:
        raise CheckRefused(f"{dataset_id} is retired and no longer checked: take `retired` out of its catalog entry")
    return dataset


def _refuse_earlier(records: Records, dataset_id: str, fetched_at: datetime | None) -> None:
    last = records.catalog.refresh(dataset_id).last_checked_at
    if fetched_at is not None and last is not None and fetched_at < last:
        raise CheckRefused(f"{dataset_id} was last read at {wire_time(last)}: a state read before that is refused")


def _store_raw(ports: Ports, dataset_id: str, file: Path) -> str:
    """Copy a file under its checksum and give that; one that is written meanwhile is no whole state (D14.2)."""
    folder = ports.home / "work"
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        copy = Path(scratch) / "raw"
        with copy.open("wb") as target:
            for block in _blocks_of(ports, file):
                digest.update(block)
                target.write(block)
        path = state_path(dataset_id, digest.hexdigest())
        if ports.files.stat(path) is None:
            ports.files.put(path, copy)
    return digest.hexdigest()


def _blocks_of(ports: Ports, file: Path) -> Iterator[bytes]:
    """Read a file; raises `StateMissing` where it cannot be read to its end, or was written meanwhile."""
    try:
        kind = file.stat().st_mode
        if S_ISDIR(kind):
            raise StateMissing(f"the state {file} is a folder: name the file in it")
        if not S_ISREG(kind):
            raise StateMissing(f"the state {file} is no file that ends: save what it gives to a file first")
        with file.open("rb") as source:
            before = _last_written(source)
            while block := source.read(BLOCK):
                yield block
            ports.reach("check.state_copied")
            if _last_written(source) != before:
                raise StateMissing(f"the state {file} was written while it was read: check again when it is whole")
    except OSError as error:
        raise StateMissing(f"cannot read the state {file}: {error.strerror or error}") from error


def _last_written(source: BinaryIO) -> tuple[int, int]:
    found = os.fstat(source.fileno())
    return found.st_size, found.st_mtime_ns
