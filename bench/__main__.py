"""`python -m bench [--rows N] [--shape points|polygons] [--folder DIR]`: a build beside its limit.

Prints JSON lines: each job's costs, then each goal with its figure and whether it is met (docs/performance.md).
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from bench.measure import Cost, judge, provenance, report, run

RUNS = 2
BUILD = 4.0
"""Goal for CPU, in times the limit of the same job."""
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
    """Build the two versions of one shape; the output is checked in the same run."""
    run("write-states", folder, rows, shape)
    home, base = folder / "home", folder / "home" / "files" / "ds_permits" / "versions"
    shutil.rmtree(home, ignore_errors=True)
    run("set-up", home, shape)
    first = run("check", home, folder / "old.csv")
    build = run("check", home, folder / "new.csv")
    figures = {"rows": rows, "shape": shape}
    previous, new = base / "1" / "1" / "snapshot", base / "2" / "1"
    run("check-build", previous, new / "snapshot", new / "changes", rows)
    limit = _best("build-limit", previous, folder / "new.csv", folder)
    built = report("build", figures, {"limit": limit, "build": build})["build"]
    print(json.dumps({"job": "first build", **figures, "cost": first.__dict__, **provenance()}), flush=True)
    judge("build, CPU in times the limit", figures, built, BUILD)
    judge("build, peak memory in MiB", figures, build.peak_mib, PEAK_MIB if rows <= 1_000_000 else LARGE_PEAK_MIB)


def _best(job: str, *arguments: object) -> Cost:
    return min((run(job, *arguments) for _ in range(RUNS)), key=lambda cost: cost.cpu)


if __name__ == "__main__":
    main()
