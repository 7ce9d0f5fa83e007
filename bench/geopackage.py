"""`python -m bench.geopackage [--rows N] [--shape points|polygons] [--folder DIR]`: load and apply into a GeoPackage.

Beside the same rows copied in C, from one SQLite file to another, with the same index, spatial index and changes.
CPU is that of the process that does it; the publisher that serves the files is left out.
"""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench.measure import Cost, judge, provenance, report, run
from bench.postgres import free_port, wait_for_port

TABLE = "ds_permits"
INDEX = f'"rtree_{TABLE}_geometry"'
LOAD_GOAL, APPLY_GOAL = 10.0, 3.0


def spent(job: str, *arguments: object) -> Cost:
    """Run a job of this module in a process of its own."""
    started = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "bench.geopackage", "--job", job, *map(str, arguments)])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{job} ended with {child.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - started, usage.ru_maxrss / 1024)


# jobs


def sync(url: str, home: str, port: str) -> None:
    """Follow the subscription once."""
    import ploti
    from ploti.sync.loop import sync as follow
    from ploti.sync.targets import open_target

    key, subscription = Path(home, "access.txt").read_text().split()
    with ploti.Client(api_key=key, base_url=f"http://127.0.0.1:{port}") as client:
        report = follow(client, subscription, open_target(url))
    if {each.held.state for each in report.datasets} != {"ok"}:
        raise RuntimeError(f"sync ended {[each.held for each in report.datasets]}")


def _opened(path: str, other: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA cache_size = -65536")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("ATTACH ? AS ready", (other,))
    return db


def load_limit(path: str, ready: str) -> None:
    """Copy a table in C, with its index and its spatial index, whose bounds are ready."""
    with closing(_opened(path, ready)) as db:
        (statement,) = db.execute("SELECT sql FROM ready.sqlite_master WHERE name = ?", (TABLE,)).fetchone()
        db.execute("BEGIN IMMEDIATE")
        db.execute(statement)
        db.execute(f"INSERT INTO main.{TABLE} SELECT * FROM ready.{TABLE}")
        db.execute(f"CREATE UNIQUE INDEX by_id ON {TABLE} (_ploti_record_id)")
        db.execute(f"CREATE VIRTUAL TABLE main.{INDEX} USING rtree(id, minx, maxx, miny, maxy)")
        db.execute(f"INSERT INTO main.{INDEX} SELECT id, minx, maxx, miny, maxy FROM ready.{INDEX}")
        db.execute("COMMIT")


def write_changes(path: str, before: str, after: str) -> None:
    """Make ready tables of what differs between two files, and its bounds."""
    with closing(_opened(path, before)) as db:
        db.execute("ATTACH ? AS later", (after,))
        same = f"SELECT 1 FROM ready.{TABLE} AS o WHERE o.fid = n.fid AND o._ploti_version = n._ploti_version"
        db.execute(f"CREATE TABLE put AS SELECT * FROM later.{TABLE} AS n WHERE NOT EXISTS ({same})")
        gone = f"SELECT 1 FROM later.{TABLE} AS n WHERE n.fid = o.fid"
        db.execute(f"CREATE TABLE gone AS SELECT _ploti_record_id FROM ready.{TABLE} AS o WHERE NOT EXISTS ({gone})")
        bounds = "i.id, i.minx, i.maxx, i.miny, i.maxy"
        db.execute(f"CREATE TABLE bounds AS SELECT {bounds} FROM later.{INDEX} AS i JOIN put ON put.fid = i.id")


def apply_limit(path: str, ready: str) -> None:
    """Delete and replace rows in C, and their bounds, which are ready."""
    with closing(_opened(path, ready)) as db:
        db.execute("BEGIN IMMEDIATE")
        gone = f"SELECT fid FROM main.{TABLE} WHERE _ploti_record_id IN (SELECT _ploti_record_id FROM ready.gone)"
        db.execute(f"DELETE FROM main.{INDEX} WHERE id IN ({gone})")
        db.execute(f"DELETE FROM main.{TABLE} WHERE fid IN ({gone})")
        db.execute(f"REPLACE INTO main.{TABLE} SELECT * FROM ready.put")
        db.execute(f"DELETE FROM main.{INDEX} WHERE id IN (SELECT id FROM ready.bounds)")
        db.execute(f"INSERT INTO main.{INDEX} SELECT * FROM ready.bounds")
        db.execute("COMMIT")


def compare(one: str, other: str) -> None:
    """Prove that the followed table equals the one that was copied and changed in C."""
    with closing(_opened(one, other)) as db:
        for left, right in (("main", "ready"), ("ready", "main")):
            for table in (TABLE, INDEX):
                query = f"SELECT count(*) FROM (SELECT * FROM {left}.{table} EXCEPT SELECT * FROM {right}.{table})"
                if db.execute(query).fetchone() != (0,):
                    raise RuntimeError(f"rows of {table} differ")


JOBS: dict[str, Callable[..., None]] = {
    job.__name__: job for job in (sync, load_limit, write_changes, apply_limit, compare)
}


# the bench


def measure(folder: Path, rows: int, shape: str) -> None:
    """Measure load and apply of one shape; the tables are compared in the same run."""
    home, figures = folder / "home", {"rows": rows, "shape": shape}
    run("write-states", folder, rows, shape)
    shutil.rmtree(home, ignore_errors=True)
    run("set-up", home, shape)
    run("check", home, folder / "old.csv")
    paths = {name: folder / f"{name}.gpkg" for name in ("followed", "old", "plain", "changes")}
    for path in paths.values():
        path.unlink(missing_ok=True)
    port = free_port()
    publisher = subprocess.Popen([sys.executable, "-m", "bench.jobs", "serve", str(home), str(port)])
    try:
        wait_for_port(port)
        url = f"sqlite:///{paths['followed']}"
        load = spent("sync", url, home, port)
        shutil.copy(paths["followed"], paths["old"])
        run("check", home, folder / "new.csv")
        apply = spent("sync", url, home, port)
    finally:
        publisher.terminate()
        publisher.wait()
    limit = spent("load_limit", paths["plain"], paths["old"])
    ratios = report("GeoPackage load", figures, {"limit": limit, "sync": load})
    judge("GeoPackage load, times the limit", figures, ratios["sync"], LOAD_GOAL)
    spent("write_changes", paths["changes"], paths["old"], paths["followed"])
    limit = spent("apply_limit", paths["plain"], paths["changes"])
    ratios = report("GeoPackage apply", figures, {"limit": limit, "sync": apply})
    judge("GeoPackage apply, times the limit", figures, ratios["sync"], APPLY_GOAL)
    spent("compare", paths["followed"], paths["plain"])
    print(json.dumps({"job": "GeoPackage tables are equal", **figures, **provenance()}), flush=True)


def main() -> None:
    """Measure every shape asked for, or run one job."""
    parser = argparse.ArgumentParser(prog="python -m bench.geopackage")
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
        for shape in asked.shape or ["points", "polygons"]:
            measure((asked.folder or Path(scratch)) / f"{shape}-{asked.rows}", asked.rows, shape)


if __name__ == "__main__":
    main()
