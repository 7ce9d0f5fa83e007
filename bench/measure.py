"""Runs a job in a process of its own and gives its CPU seconds, wall time and peak memory, children included."""

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version


@dataclass(frozen=True)
class Cost:
    """What one run of a job took."""

    cpu: float
    wall: float
    peak_mib: float


def run(job: str, *arguments: object, threads: int = 2, module: str = "bench.jobs") -> Cost:
    """Run `python -m MODULE JOB ARGUMENTS`; raises where it fails."""
    command = [sys.executable, "-m", module, job, *map(str, arguments)]
    started = time.perf_counter()
    child = subprocess.Popen(command, env=_environment() | {"BENCH_THREADS": str(threads)})
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{job} ended with {child.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - started, usage.ru_maxrss / 1024)


def _environment() -> dict[str, str]:
    """Give the environment of a job, whose modules stay compiled from run to run, as on an install."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def idle_cost() -> Cost:
    """What a job costs that imports what jobs import and does nothing."""
    return run("nothing")


def report(job: str, figures: dict[str, object], costs: dict[str, Cost]) -> dict[str, float]:
    """Print one JSON line: each cost, and each CPU as a ratio to the one called `limit`; gives the ratios."""
    limit = costs["limit"].cpu
    ratios = {name: round(cost.cpu / limit, 2) for name, cost in costs.items() if name != "limit"}
    line = {"job": job, **figures, **{name: asdict(cost) for name, cost in costs.items()}, "times_the_limit": ratios}
    print(json.dumps({**line, **provenance()}), flush=True)
    return ratios


def judge(goal: str, figures: dict[str, object], figure: float, at_most: float) -> None:
    """Print one JSON line: a goal, the figure, and whether it is met."""
    line = {"goal": goal, **figures, "figure": round(figure, 2), "at_most": at_most, "met": figure <= at_most}
    print(json.dumps(line), flush=True)


def judge_least(goal: str, figures: dict[str, object], figure: float, at_least: float) -> None:
    """Print one JSON line: a goal that is met from a figure upwards."""
    line = {"goal": goal, **figures, "figure": round(figure, 4), "at_least": at_least, "met": figure >= at_least}
    print(json.dumps(line), flush=True)


def provenance() -> dict[str, object]:
    """Commit and library versions that the figures belong to, and how busy the machine is."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    libraries = {name: version(name) for name in ("duckdb", "pyarrow", "shapely", "numpy")}
    waiting = round(os.getloadavg()[0], 1)
    return {"commit": commit.stdout.strip(), "libraries": libraries, "cores": os.cpu_count(), "load": waiting}


def peak_mib() -> float:
    """Peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
