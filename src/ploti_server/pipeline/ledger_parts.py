"""Tells which parts of a dataset's id ledger still stand, and what of it counts where others are lost (D4.3)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ploti_server.domain.versions import StoredFile, Version
from ploti_server.ports import Ports

FOLDER = "ledger/"
PUT_BACK = "Put its folder back from a backup"


class LedgerLost(FileNotFoundError):
    """What the ledger has to say cannot be told; the message says what is lost and what to do."""


@dataclass(frozen=True)
class LedgerParts:
    """Stored paths of the parts that count, oldest first, and the numbers of the versions whose part is lost.

    Nothing that was noted before a lost part counts: the lost one may have said otherwise.
    """

    paths: tuple[str, ...]
    lost: tuple[int, ...] = ()


def ledger_parts(ports: Ports, sent: Sequence[Version]) -> LedgerParts:
    """Look for the ledger parts of versions, given oldest first."""
    lost = tuple(version.number for version in sent if is_part_lost(ports, version))
    standing = [version for version in sent if not lost or version.number > lost[-1]]
    return LedgerParts(tuple(path for version in standing for path, _ in parts_of(version)), lost)


def parts_of(version: Version) -> Iterator[tuple[str, StoredFile]]:
    """Give the stored paths of a version's ledger parts, and what is known of them."""
    return ((f"{version.folder}/{file.path}", file) for file in version.staff_files if file.path.startswith(FOLDER))


def is_part_lost(ports: Ports, version: Version) -> bool:
    """Tell whether a part of the ledger that came with a version is gone, or has another size."""
    return any(not is_stored(ports, path, file) for path, file in parts_of(version))


def is_stored(ports: Ports, path: str, file: StoredFile) -> bool:
    """Tell whether a file is there in its size."""
    stat = ports.files.stat(path)
    return stat is not None and stat.size_bytes == file.size_bytes


def newly_lost(lost: Sequence[int], base: Version | None) -> tuple[int, ...]:
    """Give those of the versions with a lost part that the version to follow was not released in spite of."""
    told = base.facts.get("ledger_lost", ()) if base is not None else ()
    return tuple(number for number in lost if number not in told)


def named_parts(dataset_id: str, lost: Sequence[int]) -> str:
    """Name lost parts for a message."""
    versions = ", ".join(map(str, lost))
    return f"the id ledger of {dataset_id} lacks what version{'s' if len(lost) > 1 else ''} {versions} noted"
