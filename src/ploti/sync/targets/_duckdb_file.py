"""Opening a DuckDB file that others read too: created for older readers, waited for when locked (D11.9)."""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import duckdb

from ploti.sync.target import Say, StepBlocked, StepRefused, TargetBusy, TargetUnusable, say_nothing
from ploti.sync.targets._file_trouble import AGAIN, damaged, file_trouble, is_empty
from ploti.sync.targets._run_lock import run_lock

STORAGE_VERSION: Final = "v1.4.0"
"""The oldest DuckDB that opens the files made here."""
_WAIT_SECONDS: Final = 60.0
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_OWN_NAME: Final = "_ploti_engine"
_OWN: Final = f"FROM duckdb_databases() WHERE database_name = '{_OWN_NAME}'"
_ATTACHED: Final = f"SELECT database_name FROM duckdb_databases() WHERE NOT internal AND database_name <> '{_OWN_NAME}'"
_BROKEN_RULE: Final = "constraint violation"
_OPEN_HERE: Final = "Unique file handle conflict"
_BESIDE: Final = (".wal", ".tmp", ".new")
_NAMED: Final = re.compile(r'file "(.*?)"')
_HOLDER = re.compile(r"lock is held in (.*?) \(PID (\d+)\)")


def quoted(name: str) -> str:
    """Give a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Give a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


class Engine:
    """DuckDB without a file, to which one is attached for each piece of work: a tenth of what starting it costs."""

    def __init__(self) -> None:
        self._db: duckdb.DuckDBPyConnection | None = None

    def connection(self, spill: Path) -> duckdb.DuckDBPyConnection:
        """Give a connection of its own for one piece of work; what is too large for memory goes to `spill`."""
        if self._db is None:
            self._db = duckdb.connect(config={"temp_directory": str(spill)})
            self._db.execute(f"ATTACH ':memory:' AS {_OWN_NAME}; USE {_OWN_NAME}; DETACH memory")
        return self._db.cursor()

    def stop(self) -> None:
        """Let go of every file; the next connection starts anew."""
        if self._db is not None:
            self._db.close()
            self._db = None


@dataclass(frozen=True)
class DuckFile:
    """A DuckDB file by path, and how long to wait for it."""

    path: Path
    say: Say = say_nothing
    wait_seconds: float = _WAIT_SECONDS
    clock: Callable[[], float] = field(default=time.monotonic)
    sleep: Callable[[float], None] = field(default=time.sleep)
    engine: Engine = field(default_factory=Engine, compare=False, repr=False)

    def beside(self, suffix: str) -> Path:
        """Give the path of a companion of the file."""
        return self.path.with_name(self.path.name + suffix)

    @contextmanager
    def opened(self, *, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open the file for one piece of work; raises TargetBusy where others keep it, else TargetUnusable."""
        with explained(self.path):
            if not read_only and is_empty(self.path):
                self._create()
            db = self._connect(read_only)
            try:
                db.execute("SET TimeZone = 'UTC'")
                db.execute("SET enable_geoparquet_conversion = false")
                yield db
            except BaseException:
                db.close()
                self.engine.stop()
                raise
            self._let_go(db)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run's lock file; raises TargetBusy naming the process that holds it."""
        with run_lock(self.beside(".sync-lock"), self.path):
            try:
                yield
            finally:
                self.engine.stop()

    def _create(self) -> None:
        """Make the file under another name first, so that a kill leaves either no file or a whole one."""
        fresh, log = self.beside(".new"), self.beside(".wal")
        if log.exists():
            raise TargetUnusable(f"{log} belongs to a file that is gone: bring that back or delete it, {AGAIN}.")
        fresh.unlink(missing_ok=True)
        try:
            with self.engine.connection(self.beside(".tmp")) as db:
                db.execute(f"ATTACH {literal(str(fresh))} AS fresh (TYPE duckdb, STORAGE_VERSION '{STORAGE_VERSION}')")
                db.execute("DETACH fresh")
        except duckdb.Error:
            self.engine.stop()
            fresh.unlink(missing_ok=True)
            raise
        fresh.replace(self.path)

    def _connect(self, read_only: bool) -> duckdb.DuckDBPyConnection:
        until, pause, told = self.clock() + self.wait_seconds, _FIRST_PAUSE, False
        while True:
            try:
                return self._attached(read_only)
            except duckdb.IOException as error:
                holder = _HOLDER.search(str(error))
                if holder is None:
                    raise
                who = f"{Path(holder[1]).name} (process {holder[2]})"
                if self.clock() >= until:
                    raise TargetBusy(f"{who} keeps {self.path} open: close it there, then run sync again.") from error
            if not told:
                self.say(f"waiting for {who}, which has {self.path.name} open")
                told = True
            self.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _attached(self, read_only: bool) -> duckdb.DuckDBPyConnection:
        """Attach the file by the name that DuckDB gives it, as users' views may have it; or share one open here."""
        db = self.engine.connection(self.beside(".tmp"))
        try:
            db.execute(f"ATTACH {literal(str(self.path))} (TYPE duckdb{', READ_ONLY' if read_only else ''})")
        except duckdb.Error as error:
            db.close()
            if _OPEN_HERE not in str(error):
                raise
            return duckdb.connect(str(self.path), read_only=read_only)
        ((name,),) = db.execute(_ATTACHED).fetchall()
        db.execute(f"USE {quoted(name)}")
        return db

    def _let_go(self, db: duckdb.DuckDBPyConnection) -> None:
        """Close the file. What was committed stays where its log cannot be brought into it: the next opening does."""
        try:
            ((name, own),) = db.execute(f"SELECT current_database(), count(*) {_OWN}").fetchall()
            if own:
                db.execute(f"USE {_OWN_NAME}")
                db.execute(f"DETACH {quoted(name)}")
        except duckdb.Error:
            self.engine.stop()
        finally:
            db.close()


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn DuckDB's errors into what the loop does next: stop where the file is in trouble, else refuse one step."""
    try:
        yield
    except (duckdb.InternalException, duckdb.FatalException, duckdb.SerializationException) as error:
        raise damaged(path, first_line(error)) from error
    except (duckdb.ConstraintException, duckdb.DependencyException, duckdb.CatalogException) as error:
        raise StepBlocked(f"something of yours stands in the way: {first_line(error)}") from error
    except duckdb.Error as error:
        told = first_line(error)
        if isinstance(error, duckdb.TransactionException) and _BROKEN_RULE in told:
            raise StepBlocked(f"something of yours stands in the way: {told}") from error
        named = _NAMED.search(told)
        own = named is None or _is_of(named[1], path)
        raise (file_trouble(path, told) if own else None) or StepRefused(told) from error


def _is_of(named: str, path: Path) -> bool:
    """Tell whether DuckDB names a file or what it puts beside it; it tells a relative path as a whole one."""
    there, here = os.path.realpath(named), os.path.realpath(path)
    return there == here or there.startswith(tuple(f"{here}{end}" for end in _BESIDE))


def first_line(error: BaseException) -> str:
    """Give the first line of an error, which is what a person needs of it."""
    return str(error).partition("\n")[0]
