"""What is kept and for how long (page 001 "Retention", D12). Nothing here removes anything.

A version first loses its mark of being offered (`Version.expired`), in its row; from then on nobody gets a link to
those files. Their bytes go once every link that was given before, and a download begun with it, has ended.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from ploti.contract.files import LINK_SECONDS
from ploti_server.domain.schema import SchemaVersion
from ploti_server.domain.versions import ATTACHMENTS_FILE, ExpiringKind, Version, VersionStatus

_VERSION_PATH: Final = re.compile(r"[^/]+/versions/([0-9]+)/([0-9]+)/(.+)")
_ATTACHMENT_PATH: Final = re.compile(r"[^/]+/attachments/[0-9a-f]{64}/([0-9]+)-([0-9]+)")
_UNFINISHED: Final = (VersionStatus.BUILDING, VersionStatus.WAITING)
_OPEN: Final = (*_UNFINISHED, VersionStatus.HELD)
EXPIRES_WITH: Final[dict[str, ExpiringKind]] = {
    "snapshot": "snapshot",
    "rejects": "snapshot",
    "changes": "changes",
    "backfill": "changes",
    ATTACHMENTS_FILE: "snapshot",
}
"""Folders of a version's files that go, and with what. Schemas, manifests, id maps and the ledger stay (D12.3)."""


@dataclass(frozen=True)
class RetentionLimits:
    """How long things are kept, and how long a download may take that began with a link's last moment (D12.2)."""

    days: int = field(default=90, metadata={"least": 1, "most": 36_500})
    longest_download_hours: int = field(default=24, metadata={"least": 1, "most": 720})

    def kept_since(self, at: datetime) -> datetime:
        """Give the moment up to which things are past retention: what is of that very moment is, too."""
        return at - timedelta(days=self.days)

    @property
    def grace(self) -> timedelta:
        """How long files stay after they could last be linked."""
        return timedelta(seconds=LINK_SECONDS, hours=self.longest_download_hours)


def offered(version: Version, *, is_current: bool) -> Version:
    """Give a version with only those of its files that may still be linked; the newest keeps all of them."""
    if is_current or not version.expired:
        return version
    files = tuple(file for file in version.files if EXPIRES_WITH.get(top_folder(file.path)) not in version.expired)
    return replace(version, files=files)


def newly_expired(versions: Sequence[Version], at: datetime, limits: RetentionLimits) -> tuple[Version, ...]:
    """Give the versions of a dataset of which more is past retention than their rows say, each as it is to be."""
    released = [v for v in versions if v.status is VersionStatus.RELEASED]
    current = max((v.number for v in released), default=0)
    last_of_major = {SchemaVersion.parse(v.schema_version).major: v.number for v in _by_number(released)}
    found: list[Version] = []
    for version in versions:
        over = version.built_at is not None and version.built_at <= limits.kept_since(at)
        if version.status in _OPEN or version.number == current or not over:
            continue
        kinds: set[ExpiringKind] = {"changes"} if version.files_of("changes") else set()
        if version.number not in last_of_major.values():
            kinds.add("snapshot")
        if not kinds.issubset(version.expired):
            found.append(replace(version, expired=tuple(sorted({*version.expired, *kinds}))))
    return tuple(found)


Listing = Mapping[str, Sequence[int]]
"""Numbers of the versions that list an attachment, by its stored path."""


def removable(
    paths: Iterable[str], versions: Sequence[Version], listing: Listing | None, now: datetime, limits: RetentionLimits
) -> Iterator[str]:
    """Choose the stored files of a dataset's versions that nothing lists any more and nobody can be downloading.

    `versions` are all of the dataset, read after `paths`, so that a build that began in between has no file among them.
    Without a `listing` all attachments stay.
    """
    sweep = _Sweep(versions, listing, now, limits.grace)
    return (path for path in paths if sweep.may_go(path))


def _by_number(versions: Iterable[Version]) -> list[Version]:
    return sorted(versions, key=lambda version: version.number)


def top_folder(path: str) -> str:
    """Give the first part of a file's path in its version, which tells its kind."""
    return path.partition("/")[0]


class _Sweep:
    """Tells what may go of one dataset at one moment."""

    def __init__(self, versions: Sequence[Version], listing: Listing | None, now: datetime, grace: timedelta) -> None:
        self._versions = {version.number: version for version in versions}
        self._listing = listing
        self._newest = max(self._versions, default=0)
        self._needed = _needed(versions)
        self._now, self._grace = now, grace
        self._released = [v for v in _by_number(versions) if v.status is VersionStatus.RELEASED]

    def may_go(self, path: str) -> bool:
        if found := _VERSION_PATH.fullmatch(path):
            return self._file_may_go(int(found[1]), int(found[2]), found[3])
        if (found := _ATTACHMENT_PATH.fullmatch(path)) and self._listing is not None:
            listed_by = [self._versions[number] for number in self._listing.get(path, ())]
            if listed_by:
                return all("snapshot" in v.expired and self._was_let_go(v) for v in listed_by)
            return self._file_may_go(int(found[1]), int(found[2]), None)
        return False

    def _file_may_go(self, number: int, attempt: int, path: str | None) -> bool:
        """Tell whether a file of an attempt may go; `path` None stands for a copy that no version lists."""
        version = self._versions.get(number)
        if version is None:
            return number < self._newest  # its number is never given again, and nobody ever saw it
        if version.status in _UNFINISHED:
            return False
        if attempt < version.attempt or path is None:
            return self._is_over(version.rebuilt_at or version.built_at)
        if attempt > version.attempt:  # it may be on its way to take the place of lost files
            return self._was_let_go(version)
        return self._own_may_go(version, path)

    def _own_may_go(self, version: Version, path: str) -> bool:
        kept_for_ever = version.released_at is not None and top_folder(path) not in EXPIRES_WITH
        gone = not kept_for_ever and EXPIRES_WITH.get(top_folder(path), "snapshot") in version.expired
        return gone and self._was_let_go(version)

    def _was_let_go(self, version: Version) -> bool:
        """Tell whether the last links to a version's files that are past retention have ended."""
        if version.number in self._needed or version.expired_at is None:
            return False
        followed = [v.released_at for v in self._released if v.number > version.number and v.released_at]
        return self._is_over(max([version.expired_at, *followed[:1]]))

    def _is_over(self, since: datetime | None) -> bool:
        return since is not None and self._now >= since + self._grace


def _needed(versions: Sequence[Version]) -> frozenset[int]:
    """Give the numbers whose files builds may still read.

    They are the versions that are open, current and newest sent, what each of these was computed against, and the
    version before `current`, which becomes current where that one is released again (D12.2).
    """
    released = [v for v in _by_number(versions) if v.status is VersionStatus.RELEASED]
    sent = [v for v in _by_number(versions) if v.released_at is not None]
    using = [v for v in versions if v.status in _OPEN] + released[-1:] + sent[-1:]
    bases = {v.base for v in using if v.base is not None}
    return frozenset({v.number for v in (*using, *released[-2:])} | bases)
