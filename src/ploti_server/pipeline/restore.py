"""Makes lost files of current versions again: the same number, ids and bytes, under a new attempt (D5.10).

Until then the version answers `410`, and manifests say `rebuilding`. What cannot be made the same is left as it is.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from ploti_server.domain.attachments import Attached, Attachments, Copied, attachments_prefix
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.states import StateUnreadable
from ploti_server.domain.versions import ATTACHMENTS_FILE, StoredFile, Version, VersionStatus
from ploti_server.pipeline.ask import Judge
from ploti_server.pipeline.attach import attachments_of
from ploti_server.pipeline.begin import Gathered, free_attempt, gathered_for
from ploti_server.pipeline.build import fingerprint_of, match_gathered, read_gathered, to_write, workplace
from ploti_server.pipeline.follow import last_sent, sent_versions
from ploti_server.pipeline.ledger_parts import FOLDER, is_stored, ledger_parts, newly_lost, parts_of
from ploti_server.pipeline.match import Waiting
from ploti_server.pipeline.write import write_version
from ploti_server.ports import CopiesNothing, Judgement, Ports

LOG: Final = logging.getLogger(__name__)


class RestoreFailed(Exception):
    """A version whose lost files cannot be made again as they were; the message says why and what to do."""


@dataclass(frozen=True)
class Restored:
    """Versions that were made whole again, and why others could not be."""

    versions: tuple[Version, ...] = ()
    failed: tuple[str, ...] = ()


def restore_current(ports: Ports, *, deep: bool = False) -> Restored:
    """Make lost files of every dataset's current version again; one that cannot be is logged and stops no other.

    With `deep` each file is read and its checksum looked at.
    """
    with ports.store.read() as records:
        versions = [records.versions.current(dataset.id) for dataset in records.catalog.datasets()]
    return _restored(ports, versions, deep)


def restore_before_build(ports: Ports, dataset_id: str) -> Restored:
    """Make lost files again that the next version is matched with: the current version's, and every ledger part.

    A part that a version was released without is tried no more.
    """
    with ports.store.read() as records:
        current, base = records.versions.current(dataset_id), last_sent(records, dataset_id)
        sent = {version.number: version for version in sent_versions(records, dataset_id)}
    lost = newly_lost(ledger_parts(ports, tuple(sent.values())).lost, base)
    failed = []
    for number in lost:
        try:
            if current is None or number != current.number:
                _restore_ledger_of(ports, sent[number])
        except RestoreFailed as problem:
            LOG.error("%s", problem)
            failed.append(str(problem))
    whole = _restored(ports, [current], deep=False)
    return replace(whole, failed=(*failed, *whole.failed))


def _restored(ports: Ports, versions: Iterable[Version | None], deep: bool) -> Restored:
    restored: list[Version] = []
    failed: list[str] = []
    for version in versions:
        if version is None or not lost_files(ports, version, deep=deep):
            continue
        try:
            restored.append(restore(ports, version))
        except RestoreFailed as problem:
            LOG.error("%s", problem)
            failed.append(str(problem))
    return Restored(tuple(restored), tuple(failed))


def lost_files(ports: Ports, version: Version, *, deep: bool = False) -> tuple[str, ...]:
    """List the files of a version that are missing or have another size; with `deep`, or another checksum."""
    return tuple(file.path for file in (*version.files, *version.staff_files) if _is_lost(ports, version, file, deep))


def _is_lost(ports: Ports, version: Version, file: StoredFile, deep: bool) -> bool:
    path = f"{version.folder}/{file.path}"
    if not is_stored(ports, path, file):
        return True
    if not deep:
        return False
    digest = hashlib.sha256()
    for block in ports.files.read(path):
        digest.update(block)
    return digest.hexdigest() != file.sha256


def restore(ports: Ports, version: Version) -> Version:
    """Build a released version again and let its row point at the new files; gives it as it stands then.

    Raises `RestoreFailed`.
    """
    made = _made_again(ports, version, lambda _: True)
    return _put(ports, version, made)


def _restore_ledger_of(ports: Ports, version: Version) -> None:
    """Make a lost ledger part again: with the whole version, or to its old place where that is past retention.

    Raises `RestoreFailed`.
    """
    if version.status is VersionStatus.RELEASED and not version.expired:
        restore(ports, version)
        return
    made = _made_again(ports, version, lambda file: file.path.startswith(FOLDER))
    for path, file in parts_of(version):
        if not is_stored(ports, path, file):
            ports.files.remove(path)
            ports.files.put_bytes(path, b"".join(ports.files.read(f"{made.folder}/{file.path}")))
    _remove(ports, made)


def _made_again(ports: Ports, version: Version, is_wanted: Callable[[StoredFile], bool]) -> Version:
    """Build a version again under a free attempt; the wanted ones of its files have to be as they were."""
    named = f"version {version.number} of {version.dataset_id}"
    gathered, judge = _gathered(ports, version, named)
    attachments = _attachments(ports, version, gathered.dataset, named)
    with workplace(ports, gathered.check, gathered.version.attempt) as folder, ports.engine.work(folder) as tables:
        try:
            quiet = replace(ports, copier=CopiesNothing())
            state, _ = read_gathered(quiet, tables, gathered, attachments, folder)
            matched = match_gathered(ports, tables, gathered, state, judge)
        except (StateUnreadable, FileNotFoundError) as error:
            raise _failed(named, str(error)) from error
        if isinstance(matched, Waiting):
            raise _failed(named, "its judgements are not kept")
        if fingerprint_of(state, matched.digest, attachments) != version.fingerprint:
            known = gathered.is_base_kept
            raise _failed(
                named, f"{'its records come out otherwise' if known else 'the version before it is lost too'}"
            )
        built = to_write(gathered, gathered.version, state, matched, attachments)
        made = write_version(ports, tables, built, folder)
    ports.reach("restore.files_stored")
    before, now = (
        _promised(ports, version, filter(is_wanted, (*one.files, *one.staff_files))) for one in (version, made)
    )
    if before != now:
        _remove(ports, made)
        raise _failed(named, "its files come out otherwise than they were")
    return made


def _remove(ports: Ports, made: Version) -> None:
    for file in (*made.files, *made.staff_files):
        ports.files.remove(f"{made.folder}/{file.path}")


def _gathered(ports: Ports, version: Version, named: str) -> tuple[Gathered, Judge]:
    with ports.store.read() as records:
        check = records.checks.get(version.check_id)
        dataset = version.definition or records.catalog.dataset(version.dataset_id)
        ask = records.asks.get(version.check_id)
        if check is None or dataset is None:
            raise _failed(named, "its check is not kept")
        again = replace(version, attempt=free_attempt(ports, version))
        gathered = gathered_for(ports, records, check, again, dataset)
    given = [Judgement(g.pair_id, g.same, g.confidence, g.explanation) for g in ask.decided] if ask else []
    return gathered, lambda pairs, evidence: given  # noqa: ARG005  # what was judged then, whoever judges now


def _attachments(ports: Ports, version: Version, dataset: Dataset, named: str) -> Attachments:
    if not _list_is_lost(ports, version):
        return attachments_of(ports.files, version)
    try:
        manifest = json.loads(b"".join(ports.files.read(f"{version.folder}/manifest.json")))
    except FileNotFoundError:
        raise _failed(named, "the list of its attachments is lost too") from None
    listed = tuple(
        Attached(
            file=one["file"],
            filename=one["filename"],
            content_type=one["contentType"],
            size_bytes=one["sizeBytes"],
            sha256=one["sha256"],
            path=next(iter(sorted(ports.files.paths(f"{attachments_prefix(dataset.id)}{one['sha256']}/"))), ""),
        )
        for one in manifest["attachments"]
    )
    if not all(one.path for one in listed):
        raise _failed(named, "attachments and their list are lost too")
    by_name = {one.file: one.sha256 for one in listed}
    return Attachments(listed, {a.url: Copied(by_name[a.file]) for a in dataset.attachments if a.file in by_name})


def _list_is_lost(ports: Ports, version: Version) -> bool:
    path = f"{version.folder}/{ATTACHMENTS_FILE}"
    return any(f.path == ATTACHMENTS_FILE for f in version.staff_files) and ports.files.stat(path) is None


def _promised(ports: Ports, version: Version, files: Iterable[StoredFile]) -> list[StoredFile]:
    """Give the files that have to come out as they were: but for a lost list of attachments."""
    is_lost = _list_is_lost(ports, version)
    return [file for file in files if not (is_lost and file.path == ATTACHMENTS_FILE)]


def _put(ports: Ports, version: Version, made: Version) -> Version:
    """Let the row point at the new files, unless another worker was first or the version is current no more."""
    with ports.store.write() as records:
        records.catalog.lock([version.dataset_id])
        stored = records.versions.get(version.dataset_id, version.number)
        if stored is None or stored.attempt != version.attempt or stored.status is not VersionStatus.RELEASED:
            return stored or version
        restored = replace(stored, attempt=made.attempt, staff_files=made.staff_files, rebuilt_at=ports.clock.now())
        records.versions.put(restored)
        ports.reach("restore.before_commit")
    ports.reach("restore.committed")
    return restored


def _failed(named: str, why: str) -> RestoreFailed:
    return RestoreFailed(f"lost files of {named} cannot be made again: {why}. Release it again or check the source")
