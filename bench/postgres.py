"""`python -m bench.postgres [--rows N] [--shape points|polygons] [--folder DIR]`: load and apply into PostGIS.

Beside a COPY of a ready text file with the same key and index, and a COPY to a temporary table with delete and upsert.
CPU is the client's and the server's own, its helpers included; the publisher that serves the files is left out. Needs
Debian's `postgresql-postgis` and, for root, its user `postgres`.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Cost, provenance, report, run

TICKS = os.sysconf("SC_CLK_TCK")
TYPES = {
    "VARCHAR": "text",
    "BIGINT": "bigint",
    "DOUBLE": "double precision",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "BLOB": "geometry(Geometry,4326)",
}


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server of the bench's own."""

    folder: Path
    process: int

    def url(self, database: str) -> str:
        """Give a database's address."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def cpu(self) -> float:
        """CPU seconds of the server so far: its own, those of its processes that ended and of those that live."""
        own = _times(self.process)
        children = Path(f"/proc/{self.process}/task/{self.process}/children").read_text().split()
        return sum(own) + sum(sum(_times(int(child))[:2]) for child in children)


def _times(process: int) -> tuple[float, float, float, float]:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return tuple(int(field) / TICKS for field in fields[11:15])  # type: ignore[return-value]


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Start a server with settings as Debian installs it, but for a larger WAL."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/lib/postgis-3.so"))[-1].parents[1] / "bin"
    folder = Path(tempfile.mkdtemp(prefix="ploti-bench-", dir="/tmp"))
    owner = "postgres" if os.geteuid() == 0 else None
    if owner:
        shutil.chown(folder, owner)

    def do(program: str, *arguments: object) -> None:
        command = [str(programs / program), *map(str, arguments)]
        subprocess.run(command, check=True, cwd=folder, user=owner, stdout=subprocess.DEVNULL)

    do("initdb", "-D", folder / "data", "-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C.UTF-8")
    settings = f"-k {folder} -c listen_addresses= -c max_wal_size=4GB"
    do("pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log", "-o", settings, "start")
    try:
        yield Server(folder, int((folder / "data" / "postmaster.pid").read_text().split()[0]))
    finally:
        do("pg_ctl", "-D", folder / "data", "-w", "-m", "fast", "stop")
        shutil.rmtree(folder)


def spent(server: Server, job: str, *arguments: object) -> Cost:
    """Run a job of this module in a process of its own, and count the server's CPU in."""
    before, started = server.cpu(), time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "bench.postgres", "--job", job, *map(str, arguments)])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{job} ended with {child.returncode}")
    wall = time.perf_counter() - started
    return Cost(usage.ru_utime + usage.ru_stime + server.cpu() - before, wall, usage.ru_maxrss / 1024)


# jobs


def _connect(url: str):
    import psycopg

    return psycopg.connect(url, autocommit=True)


def _shape(parts: str, extra: str = "") -> tuple[str, str]:
    """Give a table's columns for DDL, and the query that makes their text."""
    import duckdb

    with duckdb.connect() as db:
        db.execute("SET enable_geoparquet_conversion = false")
        found = [row[:2] for row in db.execute(f"DESCRIBE FROM read_parquet('{parts}/part-*.parquet')").fetchall()]
    columns = [(name, type_) for name, type_ in found if type_ in TYPES]
    bytewise = {"_ploti_record_id": ' COLLATE "C"'}
    ddl = ", ".join(f'"{name}" {TYPES[type_]}{bytewise.get(name, "")}' for name, type_ in columns)
    texts = {"BLOB": "hex({0})", "TIMESTAMP WITH TIME ZONE": "make_timestamp(epoch_us({0}))"}
    values = ", ".join(texts.get(type_, "{0}").format(f'"{name}"') for name, type_ in columns)
    return ddl, f"SELECT {values} FROM read_parquet('{parts}/part-*.parquet'){extra}"


def write_text(parts: str, path: str) -> None:
    """Make the ready text file."""
    import duckdb

    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'; SET enable_geoparquet_conversion = false")
        db.execute(f"COPY ({_shape(parts)[1]}) TO '{path}' (FORMAT csv, HEADER false)")


def _copy(db, table: str, path: str) -> None:
    db.execute("SET TimeZone = 'UTC'")
    with db.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy, open(path, "rb") as file:
        while block := file.read(1 << 18):
            copy.write(block)


def copy_alone(url: str, parts: str, path: str) -> None:
    """COPY the text into a table without key or index."""
    with _connect(url) as db:
        db.execute(f"CREATE TABLE bare ({_shape(parts)[0]})")
        _copy(db, "bare", path)
        db.execute("CHECKPOINT")


def load_limit(url: str, parts: str, path: str) -> None:
    """COPY the text, make the key and the spatial index."""
    with _connect(url) as db:
        db.execute(f"CREATE TABLE plain ({_shape(parts)[0]})")
        _copy(db, "plain", path)
        db.execute("ALTER TABLE plain ADD PRIMARY KEY (_ploti_record_id)")
        db.execute("CREATE INDEX ON plain USING gist (geometry)")
        db.execute("ANALYZE plain")
        db.execute("CHECKPOINT")


def apply_limit(url: str, parts: str, path: str) -> None:
    """COPY the changes to a temporary table, delete, upsert."""
    with _connect(url) as db:
        own = [
            row[0]
            for row in db.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'plain'::regclass AND attnum > 0")
        ]
        db.execute(f"CREATE TEMP TABLE changes ({_shape(parts)[0]})")
        with db.transaction():
            _copy(db, "changes", path)
            db.execute("ANALYZE changes")
            db.execute(
                "DELETE FROM plain p USING changes c "
                "WHERE c._ploti_record_id = p._ploti_record_id AND _ploti_op = 'delete'"
            )
            names = ", ".join(f'"{name}"' for name in own)
            settings = ", ".join(f'"{name}" = excluded."{name}"' for name in own if name != "_ploti_record_id")
            db.execute(
                f"INSERT INTO plain ({names}) SELECT {names} FROM changes WHERE _ploti_op = 'upsert' "
                f"ON CONFLICT (_ploti_record_id) DO UPDATE SET {settings}"
            )
        db.execute("CHECKPOINT")


def sync(url: str, home: str, port: str) -> None:
    """Follow the subscription once."""
    import ploti
    from ploti.sync.loop import sync as follow
    from ploti.sync.targets import open_target

    key, subscription = Path(home, "access.txt").read_text().split()
    with ploti.Client(api_key=key, base_url=f"http://127.0.0.1:{port}") as client:
        report = follow(client, subscription, open_target(url))
    states = {each.held.state for each in report.datasets}
    if states != {"ok"}:
        raise RuntimeError(f"sync ended {[each.held for each in report.datasets]}")
    with _connect(url) as db:
        db.execute("CHECKPOINT")


def compare(url: str) -> None:
    """Prove that the followed table equals the one that text and upserts made."""
    with _connect(url) as db:
        own = "SELECT attname FROM pg_attribute WHERE attrelid = 'plain'::regclass AND attnum > 0"
        names = ", ".join(f'"{row[0]}"' for row in db.execute(own) if not row[0].startswith("_ploti_"))
        pairs = (("plain", "ds_permits"), ("ds_permits", "plain"))
        for one, other in pairs:
            left = f"SELECT _ploti_record_id, {names} FROM {one} EXCEPT SELECT _ploti_record_id, {names} FROM {other}"
            (count,) = db.execute(f"SELECT count(*) FROM ({left}) x").fetchone()
            if count:
                raise RuntimeError(f"{count} rows of {one} are not in {other}")


JOBS: dict[str, Callable[..., None]] = {
    job.__name__: job for job in (write_text, copy_alone, load_limit, apply_limit, sync, compare)
}


# the bench


def measure(folder: Path, rows: int, shape: str) -> None:
    """Measure load and apply of one shape; the tables are compared in the same run."""
    home = folder / "home"
    versions = home / "files" / "ds_permits" / "versions"
    run("write-states", folder, rows, shape)
    shutil.rmtree(home, ignore_errors=True)
    run("set-up", home, shape)
    run("check", home, folder / "old.csv")
    figures = {"rows": rows, "shape": shape}
    snapshot, changes = versions / "1" / "1" / "snapshot", versions / "2" / "1" / "changes"
    old_text, changes_text = folder / "old.text", folder / "changes.text"
    with server() as postgres:
        port = free_port()
        publisher = subprocess.Popen([sys.executable, "-m", "bench.jobs", "serve", str(home), str(port)])
        try:
            wait_for_port(port)
            url = _database(postgres, "bench")
            load = spent(postgres, "sync", url, home, port)
            run("check", home, folder / "new.csv")
            apply = spent(postgres, "sync", url, home, port)
        finally:
            publisher.terminate()
            publisher.wait()
        spent(postgres, "write_text", snapshot, old_text)
        spent(postgres, "write_text", changes, changes_text)
        alone = spent(postgres, "copy_alone", url, snapshot, old_text)
        costs = {"limit": spent(postgres, "load_limit", url, snapshot, old_text), "copy_alone": alone, "sync": load}
        report("PostGIS load", figures, costs)
        limit = spent(postgres, "apply_limit", url, changes, changes_text)
        report("PostGIS apply", figures, {"limit": limit, "sync": apply})
        spent(postgres, "compare", url)
    print(json.dumps({"job": "PostGIS tables are equal", **figures, **provenance()}), flush=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the publisher did not start")


def _database(postgres: Server, name: str) -> str:
    with _connect(postgres.url("postgres")) as db:
        db.execute(f"CREATE DATABASE {name}")
    with _connect(postgres.url(name)) as db:
        db.execute("CREATE EXTENSION postgis")
    return postgres.url(name)


def main() -> None:
    """Measure every shape asked for, or run one job."""
    parser = argparse.ArgumentParser(prog="python -m bench.postgres")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--shape", action="append", choices=["points", "polygons"])
    parser.add_argument("--folder", type=Path, help="keeps the states for the next run; a temporary one by default")
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        name, *arguments = asked.job
        JOBS[name](*arguments)
        return
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = scratch
        folder = asked.folder or Path(scratch)
        for shape in asked.shape or ["points", "polygons"]:
            measure(folder / f"{shape}-{asked.rows}", asked.rows, shape)


if __name__ == "__main__":
    main()
