"""The file store in a folder of the local disk.

`ROOT/<path>` is the file at that path. `ROOT/.incoming/` holds what is being written: a file there is locked by its
writer, and one without a lock was left by a crash (`sweep`). A name under `ROOT` appears only when the bytes are whole
and synced, by a hard link, which never replaces another file; then the folder is synced.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EXDEV
from functools import lru_cache, partial
from pathlib import Path
from secrets import token_hex
from stat import S_ISREG
from typing import BinaryIO

from ploti_server.ports import FileStat

_INCOMING = ".incoming"
_BLOCK = 1 << 18
_ATTEMPTS = 100


class Disk:
    """The calls that change the disk, in one place so that tests can make any of them fail."""

    def write(self, file: BinaryIO, block: bytes) -> None:
        """Write a block."""
        file.write(block)

    def sync(self, file: BinaryIO) -> None:
        """Force a file's bytes to the disk."""
        file.flush()
        os.fsync(file.fileno())

    def sync_folder(self, folder: Path) -> None:
        """Force a folder's names to the disk."""
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; raises `FileExistsError` where the name is taken."""
        os.link(source, target)

    def make_folder(self, folder: Path) -> None:
        """Make one folder; raises `FileExistsError` where it is there."""
        folder.mkdir()

    def unlink(self, file: Path) -> None:
        """Remove a name; nothing happens where it is gone."""
        file.unlink(missing_ok=True)


class LocalFiles:
    """`Files` in a folder. Threads and processes may share it."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self._root, self._name = root, str(root)
        self._disk = disk or Disk()
        for folder in (root, root / _INCOMING):
            folder.mkdir(parents=True, exist_ok=True)

    def put(self, path: str, local: Path) -> None:
        """Take over a finished local file; it is gone from its old place afterwards.

        Raises `FileExistsError` where other bytes are stored, `ValueError` for a path that cannot be stored.
        """
        target = self._file(path)
        with local.open("rb") as file:  # after a failed sync nobody knows what the disk holds: the file has to go
            self._or_undo(lambda: self._disk.sync(file), lambda: self._disk.unlink(local))
        try:
            self._publish(local, target)
        except OSError as error:
            if error.errno != EXDEV:
                raise
            self._put_blocks(target, _blocks(local.open("rb"), None))
        self._disk.unlink(local)

    def put_bytes(self, path: str, content: bytes) -> None:
        """Store bytes; raises as `put` does."""
        self._put_blocks(self._file(path), iter([content]))

    def stat(self, path: str) -> FileStat | None:
        """Tell a file's size; None where there is none."""
        try:
            segments(path)
            found = os.stat(f"{self._name}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStat(found.st_size) if S_ISREG(found.st_mode) else None

    def read(self, path: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Give a file's bytes in blocks; the file is opened at once, and stays readable when it is removed meanwhile.

        Raises `FileNotFoundError` where there is none, `ValueError` for a negative start or length.
        """
        if start < 0 or (length is not None and length < 0):
            raise ValueError("start and length cannot be negative")
        file = self.local(path).open("rb")
        file.seek(start)
        return _blocks(file, length)

    def local(self, path: str) -> Path:
        """Give the stored file itself; it must not be written to. Raises `FileNotFoundError` where there is none."""
        file = self._file(path)
        if not file.is_file():
            raise FileNotFoundError(f"no file is stored at {path}")
        return file

    def paths(self, prefix: str) -> Iterator[str]:
        """List stored paths that begin with a prefix, by code point."""
        top = self._root / prefix.rpartition("/")[0]
        if ".." in prefix.split("/") or prefix.startswith("/"):
            return iter(())
        found = (file.relative_to(self._root) for file in _files_below(top))
        visible = (inside.as_posix() for inside in found if inside.parts[0] != _INCOMING)
        return iter(sorted(path for path in visible if path.startswith(prefix)))

    def remove(self, path: str) -> None:
        """Delete a file, and folders that are empty then; nothing happens where there is none."""
        file = self._file(path)
        self._disk.unlink(file)
        for folder in file.parents:
            if folder == self._root or not _remove_empty(folder):
                return

    def presigned(self, path: str, filename: str, content_type: str, seconds: int) -> str | None:  # noqa: ARG002
        """Leave signing to the server: a folder has no address."""
        return None

    def sweep(self) -> int:
        """Remove what crashed writers left, and tell how many files; files being written stay."""
        return sum(self._remove_left(file) for file in (self._root / _INCOMING).iterdir())

    def _file(self, path: str) -> Path:
        return self._root.joinpath(*segments(path))

    def _put_blocks(self, target: Path, blocks: Iterator[bytes]) -> None:
        with self._temporary() as (file, name):
            for block in blocks:
                self._disk.write(file, block)
            self._disk.sync(file)
            self._publish(name, target)

    @contextmanager
    def _temporary(self) -> Iterator[tuple[BinaryIO, Path]]:
        name = self._root / _INCOMING / token_hex(16)
        with name.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield file, name
            finally:
                self._disk.unlink(name)

    def _publish(self, synced: Path, target: Path) -> None:
        """Make a synced file visible; when the last sync fails, the name goes again."""
        try:
            self._retry_link(synced, target)
        except FileExistsError:
            if not _same(synced, target):
                stored = target.relative_to(self._root).as_posix()
                raise FileExistsError(f"{stored} is stored with other bytes; a stored path never changes") from None
            with target.open("rb") as file:  # another writer may not have come to its syncs yet
                self._disk.sync(file)
            self._disk.sync_folder(target.parent)
            return
        self._or_undo(lambda: self._disk.sync_folder(target.parent), lambda: self._disk.unlink(target))

    def _retry_link(self, synced: Path, target: Path) -> None:
        """Link into the folder, made where missing; another thread's `remove` may take the empty folder away again."""
        for _ in range(_ATTEMPTS):
            self._make_folders(target.parent)
            try:
                self._disk.link(synced, target)
            except FileNotFoundError:
                continue
            return
        raise FileNotFoundError(f"{target.parent} does not stay; is another program removing folders there?")

    def _make_folders(self, folder: Path) -> None:
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        for new in reversed(missing):
            try:
                self._disk.make_folder(new)
                self._or_undo(partial(self._disk.sync_folder, new.parent), new.rmdir)
            except (FileExistsError, FileNotFoundError):
                continue  # others work in the same folders; the link tells whether it is there

    def _or_undo(self, do: Callable[[], None], undo: Callable[[], None]) -> None:
        try:
            do()
        except BaseException:
            undo()
            raise

    def _remove_left(self, name: Path) -> bool:
        try:
            with name.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._disk.unlink(name)
        except (BlockingIOError, FileNotFoundError):
            return False
        return True


@lru_cache(maxsize=16_384)
def segments(path: str) -> tuple[str, ...]:
    """Split a stored path; raises `ValueError` for one that could leave the store, hide, or not be named on a disk."""
    split = tuple(path.split("/"))
    for segment in split:
        hidden = not segment or segment.startswith(".")
        if hidden or "\\" in segment or not segment.isprintable() or len(segment.encode()) > 255:
            raise ValueError(f"{path!r} is not a path of the file store")
    return split


def _blocks(file: BinaryIO, length: int | None) -> Iterator[bytes]:
    with file:
        left = length
        while left is None or left > 0:
            block = file.read(_BLOCK if left is None else min(_BLOCK, left))
            if not block:
                return
            left = None if left is None else left - len(block)
            yield block


def _same(file: Path, stored: Path) -> bool:
    with file.open("rb") as new, stored.open("rb") as old:
        if os.fstat(new.fileno()).st_size != os.fstat(old.fileno()).st_size:
            return False
        return all(block == old.read(_BLOCK) for block in iter(lambda: new.read(_BLOCK), b""))


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def _remove_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
