"""The lock file of a run beside a target that is a file or a folder: a second sync is kept away (D11.9)."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ploti.sync.target import TargetBusy
from ploti.sync.targets._file_trouble import disk_trouble


@contextmanager
def run_lock(path: Path, target: Path) -> Iterator[None]:
    """Hold a target's lock file; raises TargetBusy naming the process that holds it.

    Where nothing is of the target in the end, or a first run fails, what was made for the lock goes again.
    """
    missing = [each for each in path.parents if not each.exists()]
    is_first = not path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _taken(path, target)
    except OSError as error:
        raise disk_trouble(target, error.strerror or str(error)) from error
    is_done = False
    try:
        yield
        is_done = True
    finally:
        if _is_nothing(target, path) or (is_first and not is_done):
            _clear(path, missing)
        os.close(handle)


def _taken(path: Path, target: Path) -> int:
    """Open and lock the file that has this name, not one that another run takes away at its end."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _take(handle, target)
            if _has_name(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _has_name(handle: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def _is_nothing(target: Path, lock: Path) -> bool:
    """Tell whether a target is not there, or a folder that has nothing but its lock."""
    with suppress(OSError):
        return not target.exists() or (target.is_dir() and [each.name for each in target.iterdir()] == [lock.name])
    return False


def _clear(path: Path, made: list[Path]) -> None:
    """Remove a lock, and the folders that were made for it as far as they are empty."""
    with suppress(OSError):
        path.unlink()
        for folder in made:
            folder.rmdir()


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
