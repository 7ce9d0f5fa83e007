"""A PostgreSQL with PostGIS of the bench's own, whose CPU counts with the client's.

Needs Debian's `postgresql-postgis` and, for root, its user `postgres`.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Cost

_TICKS = os.sysconf("SC_CLK_TCK")
_SETTINGS = "-c listen_addresses= -c max_wal_size=4GB -c autovacuum=off"
"""As Debian installs it, but for a larger log, and no vacuum that one job would pay for another."""


@dataclass(frozen=True)
class Server:
    """A running server."""

    programs: Path
    folder: Path
    process: int

    def url(self, database: str) -> str:
        """Give a database's address."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def do(self, program: str, *arguments: object) -> None:
        """Run one of the server's programs."""
        _do(self.programs, self.folder, program, *arguments)

    def sql(self, database: str, statement: str) -> None:
        """Run a statement."""
        self.do("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), "-c", statement)

    def make(self, database: str) -> str:
        """Make an empty database with PostGIS; gives its address."""
        self.sql("postgres", f"CREATE DATABASE {database}")
        self.sql(database, "CREATE EXTENSION postgis")
        return self.url(database)

    def cpu(self) -> float:
        """CPU seconds of the server so far: its own, those of its processes that ended and of those that live."""
        children = Path(f"/proc/{self.process}/task/{self.process}/children").read_text().split()
        living = 0.0
        for child in children:
            with suppress(FileNotFoundError, ProcessLookupError):  # one that ended by now is in its parent's sum
                living += sum(_times(int(child))[:2])
        return living + sum(_times(self.process))

    def measured(self, job: Callable[[], Cost]) -> Cost:
        """Do a job and write to disk what it left; CPU is the client's and the server's, memory the client's."""
        before, started = self.cpu(), time.perf_counter()
        client = job()
        self.sql("postgres", "CHECKPOINT")
        return Cost(client.cpu + self.cpu() - before, time.perf_counter() - started, client.peak_mib)


def _times(process: int) -> tuple[float, ...]:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return tuple(int(field) / _TICKS for field in fields[11:15])


def _do(programs: Path, folder: Path, program: str, *arguments: object) -> None:
    command = [str(programs / program), *map(str, arguments)]
    owner = "postgres" if os.geteuid() == 0 else None
    subprocess.run(command, check=True, cwd=folder, user=owner, stdout=subprocess.DEVNULL)


@contextmanager
def server() -> Iterator[Server]:
    """Start a server."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/lib/postgis-3.so"))[-1].parents[1] / "bin"
    folder = Path(tempfile.mkdtemp(prefix="ploti-bench-", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    data = folder / "data"
    _do(programs, folder, "initdb", "-D", data, "-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C.UTF-8")
    settings = f"-k {folder} {_SETTINGS}"
    _do(programs, folder, "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", settings, "start")
    try:
        yield Server(programs, folder, int((data / "postmaster.pid").read_text().split()[0]))
    finally:
        _do(programs, folder, "pg_ctl", "-D", data, "-w", "-m", "fast", "stop")
        shutil.rmtree(folder)
