"""A file that is a database: whether anything is in it, and what is wrong with it, in words that tell what to do."""

from pathlib import Path
from typing import Final

from ploti.sync.target import TargetUnusable

AGAIN: Final = "then run sync again"
_DAMAGED: Final = (
    f"it is damaged ({{told}}): put a copy of it back, or delete it and what lies beside it under its name, {AGAIN}: "
    "it loads everything anew"
)
_MEANT: Final = (
    (
        ("No space left", "is full", "File too large", "quota exceeded"),
        f"no room is left on its disk, or for temporary files: make some, {AGAIN}",
    ),
    (
        ("not a valid DuckDB", "not a database", "WAL does not match"),
        f"it is no database of this kind ({{told}}): name another file, or delete this one, {AGAIN}",
    ),
    (("malformed", "Corrupt", "not read", "checksum", "deserialize", "INTERNAL"), _DAMAGED),
    (
        (
            "readonly",
            "ead-only",
            "Permission denied",
            "nable to open",
            "annot open",
            "not write",
            "not fsync",
            "disk I/O",
        ),
        f"{{told}}: see that this user may read and write it and what is beside it, {AGAIN}",
    ),
)


def is_empty(path: Path) -> bool:
    """Tell whether there is no file, or one of no bytes: both are filled alike."""
    return not path.exists() or (path.is_file() and not path.stat().st_size)


def file_trouble(path: Path, told: str) -> TargetUnusable | None:
    """Say what is wrong with a file that a database cannot use; None where the error is about something else."""
    for signs, what in _MEANT:
        if any(sign in told for sign in signs):
            return TargetUnusable(f"Cannot use {path}: {what.format(told=told)}.")
    return None


def disk_trouble(path: Path, told: str) -> TargetUnusable:
    """Say what is wrong with a file or folder that cannot be read or written."""
    return file_trouble(path, told) or TargetUnusable(f"Cannot use {path}: {told}: see to it, {AGAIN}.")


def damaged(path: Path, told: str) -> TargetUnusable:
    """Say that a file is not whole."""
    return TargetUnusable(f"Cannot use {path}: {_DAMAGED.format(told=told)}.")
