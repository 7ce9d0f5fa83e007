"""Lets go of what is past retention: in the database first, then the files that nothing lists any more (D12).

Killed anywhere, it leaves at most files that the next prune removes. `at` is the moment that limits are counted to;
links that were given have their time by the clock, whatever `at` says.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ploti_server.domain.attachments import attachments_prefix
from ploti_server.domain.retention import EXPIRES_WITH, Listing, newly_expired, removable, top_folder
from ploti_server.domain.versions import ATTACHMENTS_FILE, ExpiringKind, Version, VersionStatus, versions_prefix
from ploti_server.pipeline.attach import attachments_of
from ploti_server.ports import Ports, Records

_EVENTS_AT_ONCE: Final = 10_000
_ALL: Final = tuple(VersionStatus)


@dataclass(frozen=True)
class PastRetention:
    """What a version no longer offers, and the bytes of it that go once the last links have ended."""

    dataset_id: str
    version: int
    kinds: tuple[ExpiringKind, ...]
    size_bytes: int


@dataclass(frozen=True)
class Pruned:
    """What one prune let go, or would: events, parts of versions, and files whose links have ended."""

    events: int
    versions: tuple[PastRetention, ...]
    files: int
    size_bytes: int


def prune(ports: Ports, at: datetime | None = None, *, dry_run: bool = False) -> Pruned:
    """Let go of everything that is past retention at a moment, now by default; with `dry_run` only tell it."""
    moment = at or ports.clock.now()
    with ports.store.read() as records:
        subscriptions = [subscription.id for subscription in records.subscriptions.all()]
        datasets = [dataset.id for dataset in records.catalog.datasets()]
    events = sum(_prune_events(ports, subscription, moment, dry_run=dry_run) for subscription in subscriptions)
    versions: list[PastRetention] = []
    files = size_bytes = 0
    for dataset_id in datasets:
        versions += _expire(ports, dataset_id, moment, dry_run=dry_run)
        for size in _remove_files(ports, dataset_id, dry_run=dry_run):
            files, size_bytes = files + 1, size_bytes + size
    if not dry_run:
        ports.files.sweep()
    ports.reach("prune.ended")
    return Pruned(events, tuple(versions), files, size_bytes)


def _prune_events(ports: Ports, subscription_id: str, moment: datetime, *, dry_run: bool) -> int:
    """Drop a log's oldest events, some at a time so that no release waits for long; gives how many."""
    before = ports.retention.kept_since(moment)
    with ports.store.read() as records:
        oldest, last = records.events.oldest(subscription_id), records.events.sent_by(subscription_id, before)
    if oldest is None or last is None:
        return 0
    for through in [*range(oldest + _EVENTS_AT_ONCE - 1, last, _EVENTS_AT_ONCE), last]:
        if not dry_run:
            with ports.store.write() as records:
                records.events.drop_through(subscription_id, through)
            ports.reach("prune.events_dropped")
    return last - oldest + 1


def _expire(ports: Ports, dataset_id: str, moment: datetime, *, dry_run: bool) -> list[PastRetention]:
    """Write down which parts of a dataset's versions are past retention: nobody gets a link to them from then on."""
    with ports.store.read() as records:
        found = _changed(ports, records, dataset_id, moment)
    if not found or dry_run:
        return [_told(before, after) for before, after in found]
    with ports.store.write() as records:
        records.catalog.lock([dataset_id])
        found = _changed(ports, records, dataset_id, moment)
        for _, after in found:
            records.versions.put(replace(after, expired_at=ports.clock.now()))
        ports.reach("prune.before_commit")
    ports.reach("prune.marked")
    return [_told(before, after) for before, after in found]


def _changed(ports: Ports, records: Records, dataset_id: str, moment: datetime) -> list[tuple[Version, Version]]:
    versions = {version.number: version for version in records.versions.in_status(dataset_id, _ALL)}
    expired = newly_expired(tuple(versions.values()), moment, ports.retention)
    return [(versions[version.number], version) for version in expired]


def _told(before: Version, after: Version) -> PastRetention:
    kinds = tuple(kind for kind in after.expired if kind not in before.expired)
    files = [f for f in (*after.files, *after.staff_files) if EXPIRES_WITH.get(top_folder(f.path)) in kinds]
    return PastRetention(after.dataset_id, after.number, kinds, sum(file.size_bytes for file in files))


def _listing(ports: Ports, versions: Sequence[Version]) -> Listing | None:
    """Tell which versions list each attachment; None where the list of one that is kept has been lost."""
    found: dict[str, list[int]] = {}
    for version in versions:
        if all(file.path != ATTACHMENTS_FILE for file in version.staff_files):
            continue
        is_there = ports.files.stat(f"{version.folder}/{ATTACHMENTS_FILE}") is not None
        if not is_there and "snapshot" not in version.expired:
            return None
        for one in attachments_of(ports.files, version).listed:
            found.setdefault(one.path, []).append(version.number)
    return found


def _remove_files(ports: Ports, dataset_id: str, *, dry_run: bool) -> list[int]:
    """Remove the files of a dataset that may go; gives their sizes."""
    prefixes = (attachments_prefix(dataset_id), versions_prefix(dataset_id))
    paths = [path for prefix in prefixes for path in ports.files.paths(prefix)]
    with ports.store.read() as records:
        versions = records.versions.in_status(dataset_id, _ALL)
    listing = _listing(ports, versions)
    sizes: list[int] = []
    for path in removable(paths, versions, listing, ports.clock.now(), ports.retention):
        stat = ports.files.stat(path)
        sizes.append(stat.size_bytes if stat else 0)
        if not dry_run:
            ports.files.remove(path)
            ports.reach("prune.file_removed")
    return sizes
