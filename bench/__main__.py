"""`python -m bench [--rows N] [--shape points|polygons] [--folder DIR]`: build, load and apply beside their limits.

Prints JSON lines: each job's costs, then each goal with its figure and whether it is met (docs/performance.md).
"""

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import Cost, judge, provenance, report, run

RUNS = 2
BUILD, LOAD, APPLY = 4.0, 1.5, 3.0
"""Goals for CPU, in times the limit of the same job."""
PEAK_MIB, LARGE_PEAK_MIB = 1536.0, 2048.0
"""Goals for a build's peak memory, up to a million rows and beyond."""


def main() -> None:
    """Measure every shape asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--shape", action="append", choices=["points", "polygons"])
    parser.add_argument("--folder", type=Path, help="keeps the states for the next run; a temporary one by default")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch)
        for shape in asked.shape or ["points", "polygons"]:
            measure(folder / f"{shape}-{asked.rows}", asked.rows, shape)


def measure(folder: Path, rows: int, shape: str) -> None:
    """Build, first load, and apply of one shape; outputs are checked in the same run."""
    run("write-states", folder, rows, shape)
    home, base = folder / "home", folder / "home" / "files" / "ds_permits" / "versions"
    shutil.rmtree(home, ignore_errors=True)
    run("set-up", home, shape)
    first = run("check", home, folder / "old.csv")
    figures = {"rows": rows, "shape": shape}
    port = _free_port()
    server = subprocess.Popen([sys.executable, "-m", "bench.jobs", "serve", str(home), str(port)])
    try:
        _wait(port)
        database = folder / "followed.duckdb"
        database.unlink(missing_ok=True)
        load = run("sync", home, port, database)
        build = run("check", home, folder / "new.csv")
        apply = run("sync", home, port, database)
    finally:
        server.terminate()
        server.wait()
    previous, new = base / "1" / "1" / "snapshot", base / "2" / "1"
    run("check-build", previous, new / "snapshot", new / "changes", rows)
    limit = _best("build-limit", previous, folder / "new.csv", folder)
    built = report("build", figures, {"limit": limit, "build": build})["build"]
    print(json.dumps({"job": "first build", **figures, "cost": first.__dict__, **provenance()}), flush=True)
    plain = folder / "plain.duckdb"
    plain.unlink(missing_ok=True)
    load_limit = run("load-limit", previous, plain)
    loaded = report("load", figures, {"limit": load_limit, "sync": load})["sync"]
    applied = report("apply", figures, {"limit": run("apply-limit", new / "changes", plain), "sync": apply})["sync"]
    judge("build, CPU in times the limit", figures, built, BUILD)
    judge("build, peak memory in MiB", figures, build.peak_mib, PEAK_MIB if rows <= 1_000_000 else LARGE_PEAK_MIB)
    judge("load, CPU in times the limit", figures, loaded, LOAD)
    judge("apply, CPU in times the limit", figures, applied, APPLY)


def _best(job: str, *arguments: object) -> Cost:
    return min((run(job, *arguments) for _ in range(RUNS)), key=lambda cost: cost.cpu)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the server did not start")


if __name__ == "__main__":
    main()
