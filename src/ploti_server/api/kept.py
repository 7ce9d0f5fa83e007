"""Which of a version's files are still there, as the file store has them (page 001 "Retention").

Files are looked at outside the store's transactions.
"""

from ploti_server.domain.access import Refused
from ploti_server.domain.versions import StoredFile, Version
from ploti_server.ports import Files


def is_stored(files: Files, version: Version, file: StoredFile) -> bool:
    """Tell whether one of a version's files is there whole."""
    stat = files.stat(f"{version.folder}/{file.path}")
    return stat is not None and stat.size_bytes == file.size_bytes


def keeps_snapshot(files: Files, version: Version) -> bool:
    """Tell whether a version's whole snapshot is there."""
    parts = version.files_of("snapshot")
    return bool(parts) and all(is_stored(files, version, part) for part in parts)


def require_kept(files: Files, version: Version, *, is_current: bool) -> None:
    """Refuse a version that lacks one of its files: past retention, or being rebuilt where it is the current one."""
    changes_gone = version.resync_reason is None and not version.files_of("changes")
    if keeps_snapshot(files, version) and not changes_gone and all(is_stored(files, version, f) for f in version.files):
        return
    named = f"version {version.number} of {version.dataset_id}"
    if is_current:
        raise Refused("expired", f"The files of {named} are being rebuilt: try again in a few minutes.")
    raise Refused("expired", f"{named.capitalize()} is past retention: load the dataset's current version instead.")
