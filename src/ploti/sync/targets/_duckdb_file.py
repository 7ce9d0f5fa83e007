"""Opening a DuckDB file that others read too: created for older readers, waited for when locked (D11.9)."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import duckdb

from ploti.sync.target import Say, TargetBusy, TargetUnusable, say_nothing
from ploti.sync.targets._run_lock import run_lock

STORAGE_VERSION: Final = "v1.4.0"
"""The oldest DuckDB that opens the files made here."""
_WAIT_SECONDS: Final = 60.0
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_HOLDER = re.compile(r"lock is held in (.*?) \(PID (\d+)\)")


def quoted(name: str) -> str:
    """Give a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Give a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class DuckFile:
    """A DuckDB file by path, and how long to wait for it."""

    path: Path
    say: Say = say_nothing
    wait_seconds: float = _WAIT_SECONDS
    clock: Callable[[], float] = field(default=time.monotonic)
    sleep: Callable[[float], None] = field(default=time.sleep)

    def beside(self, suffix: str) -> Path:
        """Give the path of a companion of the file."""
        return self.path.with_name(self.path.name + suffix)

    @contextmanager
    def opened(self, *, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open the file for one piece of work; raises TargetBusy where others keep it, else TargetUnusable."""
        if not read_only and not self.path.exists():
            self._create()
        db = self._connect(read_only)
        try:
            db.execute("SET TimeZone = 'UTC'")
            db.execute("SET enable_geoparquet_conversion = false")
            yield db
        finally:
            db.close()

    def locked(self) -> AbstractContextManager[None]:
        """Hold the run's lock file; raises TargetBusy naming the process that holds it."""
        return run_lock(self.beside(".sync-lock"), self.path)

    def _create(self) -> None:
        """Make the file under another name first, so that a kill leaves either no file or a whole one."""
        fresh = self.beside(".new")
        fresh.unlink(missing_ok=True)
        try:
            with duckdb.connect() as db:
                db.execute(f"ATTACH {literal(str(fresh))} AS fresh (STORAGE_VERSION '{STORAGE_VERSION}')")
                db.execute("DETACH fresh")
        except duckdb.IOException as error:
            raise TargetUnusable(f"Cannot make {self.path}: {first_line(error)}") from error
        fresh.rename(self.path)

    def _connect(self, read_only: bool) -> duckdb.DuckDBPyConnection:
        until, pause, told = self.clock() + self.wait_seconds, _FIRST_PAUSE, False
        while True:
            try:
                return duckdb.connect(str(self.path), read_only=read_only)
            except duckdb.IOException as error:
                holder = _HOLDER.search(str(error))
                if holder is None:
                    raise TargetUnusable(f"Cannot open {self.path}: {first_line(error)}") from error
                who = f"{Path(holder[1]).name} (process {holder[2]})"
                if self.clock() >= until:
                    raise TargetBusy(f"{who} keeps {self.path} open: close it there, then run sync again.") from error
            if not told:
                self.say(f"waiting for {who}, which has {self.path.name} open")
                told = True
            self.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


def first_line(error: BaseException) -> str:
    """Give the first line of an error, which is what a person needs of it."""
    return str(error).partition("\n")[0]
