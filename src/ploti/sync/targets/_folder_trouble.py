"""Trouble with a folder's disk or a part in it, in words that tell what to do and as what the loop does next."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from ploti.sync.target import StepRefused, TargetUnusable
from ploti.sync.targets._file_trouble import disk_trouble

_EVERYWHERE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO})
"""What every other dataset would meet too."""
_CANNOT_WRITE: Final = (
    "No space left",
    "File too large",
    "quota exceeded",
    "Read-only",
    "Could not write",
    "Could not fsync",
)


@contextmanager
def on_disk(folder: Path) -> Iterator[None]:
    """Raise TargetUnusable for what the disk refuses."""
    try:
        yield
    except OSError as error:
        raise _told(error, folder) from error
    except duckdb.Error as error:
        raise disk_trouble(folder, _first_line(error)) from error


@contextmanager
def in_step(folder: Path, damaged: StepRefused | None = None) -> Iterator[None]:
    """Tell of trouble in one dataset's step: only a disk that is full or takes nothing ends the run (D11.4).

    Where files cannot be read, `damaged` is raised if it is given.
    """
    try:
        yield
    except OSError as error:
        trouble = _told(error, folder)
        raise (trouble if error.errno in _EVERYWHERE else StepRefused(trouble.message)) from error
    except (duckdb.Error, StepRefused) as error:
        cause = error.__cause__ if isinstance(error, StepRefused) else error
        if not isinstance(cause, duckdb.Error):
            raise
        told = _first_line(cause)
        if any(sign in told for sign in _CANNOT_WRITE):
            raise disk_trouble(folder, told) from cause
        if damaged is None or isinstance(cause, duckdb.OutOfMemoryException):
            raise
        raise damaged from cause


def _told(error: OSError, folder: Path) -> TargetUnusable:
    return disk_trouble(Path(str(error.filename2 or error.filename or folder)), error.strerror or str(error))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
