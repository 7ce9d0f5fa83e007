"""One file on its way from a signed link to disk: resumed, checked, its link renewed (D11.6).

A file grows as `<name>.partial`, with the answer's ETag beside it as `<name>.etag`; only checked bytes get the name.
"""

import hashlib
import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from ploti._http import STALLED_BYTES, STALLED_SECONDS, Download, Http
from ploti.contract.resources import FileLink, SignedFile
from ploti.errors import BadAnswer, FixRequest, LinkExpired, PlotiError, ReadAgain, RetryLater

if sys.platform != "win32":
    import fcntl

_TRIES: Final = 6
_FIRST_PAUSE: Final = 0.5
_PAUSE_MOST: Final = 60.0
"""Who wants a longer pause is asked in a later call."""
_NAME_BYTES_MOST: Final = 150
_SHA256: Final = re.compile("[0-9a-f]{64}")
_UNSAFE: Final = re.compile(r'[<>:"/\\|?*]')
_DEVICES: Final = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)", re.IGNORECASE)


class GivenUp(Exception):
    """The bytes of a file cannot be had; `problem` says why and what to do next."""

    def __init__(self, problem: PlotiError) -> None:
        super().__init__(problem.message)
        self.problem = problem


def ignore_bytes(count: int) -> None:
    """Take note of no bytes."""


@dataclass(frozen=True)
class Fetch:
    """How one file is fetched: `link` gives its link now, `renew` asks for fresh ones, `moved` is told what arrives.

    `sleep` and `clock` are in seconds.
    """

    http: Http
    name: str
    size: int
    sha256: str
    link: Callable[[], str]
    renew: Callable[[], object]
    moved: Callable[[int], object] = ignore_bytes
    sleep: Callable[[float], object] = field(default=time.sleep)
    clock: Callable[[], float] = field(default=time.monotonic)

    def into(self, path: Path) -> bool:
        """Have the checked bytes at a path; tells whether any had to be fetched.

        Raises GivenUp once going on brings hardly any more bytes, and what `renew` raises.
        """
        if not (_SHA256.fullmatch(self.sha256) and self.size >= 0):
            raise self._bad(f"is announced with {self.size} bytes and sha256 {self.sha256!r}: refused")
        if self._is_whole(path):
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone_at(path):
            if self._is_whole(path):
                return False
            partial = path.with_name(f"{path.name}.partial")
            self._complete(partial)
            partial.replace(path)
        return True

    def _complete(self, partial: Path) -> None:
        """Download to the end, with pauses between tries that bring nothing."""
        idle, spoiled, renewed = 0, False, False
        problem: PlotiError
        while True:
            had, wait = _size(partial), 0.0
            try:
                if self._attempt(partial):
                    return
                if spoiled:
                    raise self._bad("does not have the checksum that is announced for it")
                spoiled = True
                continue
            except LinkExpired as expired:
                if renewed and _size(partial) <= had:
                    raise GivenUp(expired) from expired
                self.renew()
                renewed = True
                continue
            except (FixRequest, BadAnswer) as wrong:
                partial.unlink(missing_ok=True)
                idle, problem = idle + 1, wrong
            except RetryLater as later:
                if (later.retry_after or 0.0) > _PAUSE_MOST:
                    raise GivenUp(later) from later
                idle = 0 if _size(partial) - had >= STALLED_BYTES else idle + 1
                problem, wait = later, max(later.retry_after or 0.0, _FIRST_PAUSE * 2**idle)
            renewed = renewed and _size(partial) <= had
            if idle >= _TRIES:
                raise GivenUp(problem) from problem
            self.sleep(wait)

    def _attempt(self, partial: Path) -> bool:
        """Go on to the end; False where the bytes are not the announced ones, which are dropped then."""
        had, etag = _size(partial), partial.with_suffix(".etag")
        if had > self.size:
            partial.unlink()
            had = 0
        if had < self.size or had == 0:
            known = etag.read_text("ascii") if had and etag.exists() else None
            with self.http.stream(self.link(), had, known) as download:
                if download.etag is not None and download.etag.isascii():
                    etag.write_text(download.etag, "ascii")
                self._write(partial, download)
        whole = self._is_whole(partial)
        if not whole:
            partial.unlink()
        etag.unlink(missing_ok=True)
        return whole

    def _write(self, partial: Path, download: Download) -> None:
        if download.total is not None and download.total != self.size:
            raise BadAnswer("The file has another size than announced.", code="bad_answer")
        with partial.open("r+b" if download.start else "wb") as out:
            out.seek(download.start)
            out.truncate()
            self.pour(out, download)

    def pour(self, out: BinaryIO, download: Download) -> None:
        """Write what comes; raises RetryLater where it ends early or only drips, BadAnswer where it does not end."""
        written, mark, since = download.start, download.start, self.clock()
        for chunk in download.chunks:
            written += len(chunk)
            if written > self.size:
                raise BadAnswer("The file is longer than announced.", code="bad_answer")
            out.write(chunk)
            self.moved(len(chunk))
            if self.clock() - since >= STALLED_SECONDS:
                if written - mark < STALLED_BYTES:
                    raise RetryLater("The file arrives too slowly: try again.", code="no_answer")
                mark, since = written, self.clock()
        if written < self.size:
            raise RetryLater("The file ended early: try again.", code="no_answer")

    def _is_whole(self, path: Path) -> bool:
        return _size(path) == self.size and has_sha256(path, self.sha256)

    def _bad(self, told: str) -> GivenUp:
        return GivenUp(BadAnswer(f"{self.name} {told}", code="bad_answer"))


def download_file(
    http: Http,
    sign: Callable[[], SignedFile],
    link: FileLink | None,
    to: Path,
    progress: Callable[[int], object],
) -> Path:
    """Have a file at `to`, or in the folder `to` under its own name; `sign` gives a fresh link to it.

    Raises ReadAgain where the version was built again meanwhile, and what kept the bytes away.
    """
    held: FileLink | SignedFile = link if link is not None else sign()
    named = held["filename"]

    def renew() -> None:
        nonlocal held
        fresh = sign()
        if fresh["sha256"] != held["sha256"]:
            raise ReadAgain("The version was built again meanwhile: read it again.", code="build_changed")
        held = fresh

    target = _in_folder(to, named, held["sha256"]) if to.is_dir() else to
    fetch = Fetch(
        http,
        named,
        held["sizeBytes"],
        held["sha256"],
        link=lambda: held["url"],
        renew=renew,
        moved=progress,
    )
    try:
        fetch.into(target)
    except GivenUp as given_up:
        raise given_up.problem from None
    return target


def _in_folder(folder: Path, named: str, sha256: str) -> Path:
    """Name a file in a folder; one that has other bytes keeps the name, and this one gets a longer one (F079)."""
    name = folder / safe_name(named)
    if not name.exists() or has_sha256(name, sha256):
        return name
    return name.with_name(f"{name.stem}-{sha256[:12]}{name.suffix}")


def safe_name(text: str) -> str:
    """Give a file's name that stays in its folder on every system, from one that a server sent (F079)."""
    shown = "".join("_" if unicodedata.category(char)[0] == "C" else char for char in text)
    name = _UNSAFE.sub("_", shown).strip(" .") or "file"
    if _DEVICES.match(name):
        name = f"_{name}"
    stem, dot, ending = name.rpartition(".")
    if not dot or len(ending.encode()) > 20:
        stem, ending = name, ""
    kept = stem.encode()[: _NAME_BYTES_MOST - len(ending.encode()) - 1].decode(errors="ignore").rstrip(" .")
    return f"{kept}.{ending}" if ending else kept


@contextmanager
def _alone_at(path: Path) -> Iterator[None]:
    """Hold `<name>.lock` meanwhile, so that others who fetch the same file, here or in another process, wait.

    Windows, and a file system without locks, does without.
    """
    if sys.platform == "win32":
        yield
        return
    lock = path.with_name(f"{path.name}.lock")
    with _locked(lock):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _locked(lock: Path) -> BinaryIO:
    """Open a lock file and hold it; one that its holder removed meanwhile is none."""
    while True:
        held = lock.open("ab")
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(lock.stat(), os.fstat(held.fileno())):
                return held
        held.close()


def has_sha256(path: Path, sha256: str) -> bool:
    """Tell whether a path is a file with a checksum."""
    return path.is_file() and _sha256(path) == sha256


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
