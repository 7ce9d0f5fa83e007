"""Opening a GeoPackage that others read too: write-ahead log, one writer that is waited for (D11.9)."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ploti.sync.target import Say, StepBlocked, StepRefused, TargetBusy, say_nothing
from ploti.sync.targets._file_trouble import damaged, file_trouble
from ploti.sync.targets._geopackage_shapes import register
from ploti.sync.targets._run_lock import run_lock

_WAIT_SECONDS: Final = 60.0
_QUIET_SECONDS: Final = 1.0
_CACHE_KIB: Final = 64 * 1024
_OWN_RULE: Final = ("constraint failed", "error in view", "error in trigger", "no such table")


@dataclass(frozen=True)
class GeoPackageFile:
    """A GeoPackage by path, and how long to wait for another writer in it."""

    path: Path
    say: Say = say_nothing
    wait_seconds: float = _WAIT_SECONDS
    quiet_seconds: float = _QUIET_SECONDS

    def beside(self, suffix: str) -> Path:
        """Give the path of a companion of the file."""
        return self.path.with_name(self.path.name + suffix)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run's lock file; in the end the file is one file again, unless others have it open."""
        with run_lock(self.beside(".sync-lock"), self.path):
            yield
            if self.path.exists():
                self._make_one_file()

    def _make_one_file(self) -> None:
        """Bring the log into the file and do without one from now on; where that cannot be, as by others, it stays."""
        with suppress(sqlite3.DatabaseError), closing(self._connect("rw")) as db:
            db.execute("PRAGMA busy_timeout = 0")
            db.execute("PRAGMA journal_mode = DELETE")

    @contextmanager
    def opened(self, *, read_only: bool = False) -> Iterator[sqlite3.Connection]:
        """Open the file for one piece of work; raises TargetUnusable for one that is no database."""
        mode = "ro" if read_only else "rwc"
        with explained(self.path), closing(self._connect(mode)) as db:
            register(db)
            db.text_factory = _decoded
            db.execute("PRAGMA temp_store = FILE")
            db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            db.execute("SELECT count(*) FROM sqlite_master")
            yield db

    def _connect(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}", uri=True, timeout=self.wait_seconds, isolation_level=None
        )

    def log_ahead(self, db: sqlite3.Connection) -> None:
        """Have changes written to a log beside the file, so that readers go on; where others forbid it, without."""
        with suppress(sqlite3.OperationalError):
            db.execute("PRAGMA journal_mode = WAL")

    @contextmanager
    def transaction(self, db: sqlite3.Connection) -> Iterator[None]:
        """Do all or nothing; another writer is waited for, and told of, before anything is read (F077)."""
        self._begin(db)
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _begin(self, db: sqlite3.Connection) -> None:
        db.execute(f"PRAGMA busy_timeout = {int(min(self.quiet_seconds, self.wait_seconds) * 1000)}")
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not _busy(error):
                raise
            self.say(f"waiting for another program that is writing to {self.path.name}")
            db.execute(f"PRAGMA busy_timeout = {int(self.wait_seconds * 1000)}")
            db.execute("BEGIN IMMEDIATE")
        db.execute(f"PRAGMA busy_timeout = {int(self.wait_seconds * 1000)}")


def _decoded(text: bytes) -> str:
    """Give a text; one that is not UTF-8 in letters that tell its bytes, more of them than SQLite counts."""
    return text.decode(errors="backslashreplace")


def _busy(error: sqlite3.Error) -> bool:
    return "locked" in str(error)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into what the loop does next: stop where it cannot write, else refuse one dataset's step."""
    try:
        yield
    except UnicodeDecodeError as error:  # what SQLite says of a name that is none
        raise damaged(path, str(error)) from error
    except sqlite3.Error as error:
        told = str(error)
        if _busy(error):
            raise TargetBusy(
                f"Another program is writing to {path}: save or close it there, then run sync again."
            ) from error
        if (trouble := file_trouble(path, told)) is not None:
            raise trouble from error
        if isinstance(error, sqlite3.IntegrityError) or any(sign in told for sign in _OWN_RULE):
            raise StepBlocked(f"something of yours stands in the way: {told}") from error
        raise StepRefused(told) from error


def rows_of(db: sqlite3.Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run a query and give its rows."""
    return db.execute(sql, values).fetchall()


def run(db: sqlite3.Connection, sql: str, values: Sequence[Any] = ()) -> int:
    """Run a statement and give how many rows it touched."""
    return db.execute(sql, values).rowcount
