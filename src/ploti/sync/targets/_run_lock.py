"""The lock file of a run beside a target that is a file or a folder: a second sync is kept away (D11.9)."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ploti.sync.target import TargetBusy
from ploti.sync.targets._file_trouble import disk_trouble


@contextmanager
def run_lock(path: Path, target: Path) -> Iterator[None]:
    """Hold a target's lock file; raises TargetBusy naming the process that holds it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise disk_trouble(target, error.strerror or str(error)) from error
    try:
        _take(handle, target)
        yield
    finally:
        os.close(handle)


def _take(handle: int, target: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
        raise TargetBusy(f"Another sync (process {holder}) is writing to {target}: wait until it has ended.") from None
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise disk_trouble(target, error.strerror or str(error)) from error
