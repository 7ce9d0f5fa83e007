"""Finds the version that a dataset's next one follows, and the versions that were ever sent (D5.2)."""

from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.ports import Ports, Records

SENT = (VersionStatus.RELEASED, VersionStatus.RELEASED_AGAIN)


def sent_versions(records: Records, dataset_id: str) -> tuple[Version, ...]:
    """Give every version that was ever sent, oldest first, those released again too: subscribers had them."""
    return tuple(v for v in records.versions.in_status(dataset_id, SENT) if v.released_at is not None)


def last_sent(records: Records, dataset_id: str) -> Version | None:
    """Give the version that the next one is computed against and names as its previous one.

    It is the current one, but for the time between a version's being released again and its rebuild.
    """
    again = records.versions.in_status(dataset_id, (VersionStatus.RELEASED_AGAIN,))
    current = records.versions.current(dataset_id)
    sent = [version for version in (current, *again) if version is not None and version.released_at is not None]
    return max(sent, key=lambda version: version.number, default=None)


def is_kept(ports: Ports, version: Version) -> bool:
    """Tell whether the files of a version that others are matched with are there."""
    needed = (*version.files_of("snapshot"), *version.files_of("manifest"))
    return all(ports.files.stat(f"{version.folder}/{file.path}") is not None for file in needed)
