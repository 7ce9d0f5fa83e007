"""`python -m bench.service [--seconds N] [--rate N] [--folder DIR]`: the service under load, and one page of events.

Mixed reads at a fixed rate while versions are released; then what a page of 100 events costs the server, beside a bare
server and FastAPI with pydantic over the same rows. Prints JSON lines, then each goal (docs/performance.md).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.jobs import publisher
from bench.measure import judge, provenance
from bench.service_load import WARM_UP, Connection, Seen, load
from bench.service_world import HELD, KEPT_VERSIONS, fill
from bench.serving import PUBLISHER, serving

DATASETS, SUBSCRIPTIONS, EVENTS = 500, 50, 200_000
RELEASE_EVERY = 2.0
P99_MS, PAGE_US, AIM_US = 150.0, 400.0, 120.0
"""Goals: the slowest but one of a hundred reads, and the server's CPU for a page; the aim is further off."""
PAGES = 3_000
AT_ONCE = 4
TICK = 1 / os.sysconf("SC_CLK_TCK")
PAGE_SERVERS = ("ploti-server", "bare server", "FastAPI and pydantic")
SERVERS = {
    "ploti-server": PUBLISHER,
    "bare server": ["-m", "bench.service_peers", "bare"],
    "sendfile": ["-m", "bench.service_peers", "sendfile"],
    "sink": ["-m", "bench.service_peers", "sink"],
    "FastAPI and pydantic": ["-m", "bench.service_peers", "fastapi"],
}


def main() -> None:
    """Fill a store, load its service, measure a page."""
    parser = argparse.ArgumentParser(prog="python -m bench.service")
    parser.add_argument("--rate", type=float, default=300)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--folder", type=Path, help="keeps the filled store for the next run; a temporary one by default"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = (asked.folder or Path(scratch)) / "home"
        if not (home / "access.json").exists():
            fill(home, DATASETS, SUBSCRIPTIONS, EVENTS)
            _note_what_is_there(home)
        pages = {name: page_cost(name, home) for name in PAGE_SERVERS}
        print(json.dumps({"job": "page of 100 events", "server_cpu_us": pages, **provenance()}), flush=True)
        reads = mixed_reads(home, asked.rate, asked.seconds)
        judge(
            "page of 100 events, CPU of the busy server in µs", {"aim": AIM_US}, pages["ploti-server"]["busy"], PAGE_US
        )
        judge("mixed reads, p99 in ms", {"rate": asked.rate}, reads["p99_ms"], P99_MS)
        judge("mixed reads, answers of 5xx", {"rate": asked.rate}, reads["faults"], 0)
        judge("mixed reads, pages with a gap", {"rate": asked.rate}, reads["gaps"], 0)


def _note_what_is_there(home: Path) -> None:
    access = json.loads((home / "access.json").read_text())
    (home / "access.json").write_text(
        json.dumps(access | {"events": EVENTS // SUBSCRIPTIONS, "version": KEPT_VERSIONS})
    )


def mixed_reads(home: Path, rate: float, seconds: float) -> dict[str, float]:
    """Read while versions are released by a process of their own; gives what was seen."""
    with serving(home) as (port, process):
        before = cpu_of(process)
        command = [sys.executable, "-m", "bench.service", "release", str(home), str(seconds + WARM_UP)]
        releasing = subprocess.Popen(command)
        try:
            seen = load(home, port, rate, seconds)
        finally:
            releasing.terminate()
            releasing.wait()
        used = cpu_of(process) - before
    told = _told(seen, used)
    print(json.dumps({"job": "mixed reads", "rate": rate, "seconds": seconds, **told, **provenance()}), flush=True)
    return told


def _told(seen: list[Seen], used: float) -> dict[str, float]:
    times = sorted(seconds for one in seen for _, seconds in one.seconds)
    by_kind = {
        kind: sorted(seconds for one in seen for of, seconds in one.seconds if of == kind)
        for kind in ("events", "version", "list")
    }
    statuses = [status for one in seen for status in one.statuses]
    return {
        "reads": len(times),
        "p50_ms": _at(times, 0.5),
        "p99_ms": _at(times, 0.99),
        "slowest_ms": _at(times, 1.0),
        **{f"p99_ms_{kind}": _at(found, 0.99) for kind, found in by_kind.items()},
        "faults": sum(status >= 500 for status in statuses),
        "refused": sum(400 <= status < 500 for status in statuses),
        "gaps": sum(one.gaps for one in seen),
        "server_cpu_us_per_read": round(used / len(statuses) * 1e6),
    }


def _at(times: list[float], share: float) -> float:
    return round(times[min(int(len(times) * share), len(times) - 1)] * 1000, 1)


def page_cost(name: str, home: Path) -> dict[str, float]:
    """Give the microseconds of CPU that a server spends on a page of 100 events.

    Once with so many requests on their way that the server always has the next one, once one after the other, when it
    sleeps in between and wakes to caches that others have used.
    """
    access = json.loads((home / "access.json").read_text())
    workspace = access["workspaces"][0]
    paths = [f"/v1/feeds/subscriptions/{one}/events?cursor=evt_{100:012d}" for one in workspace["subscriptions"]]
    with serving(home, SERVERS[name]) as (port, process):
        connections = [Connection(port) for _ in range(AT_ONCE)]
        for turn in range(len(paths) * 4):
            status, body = connections[turn % AT_ONCE].get(paths[turn % len(paths)], workspace["key"])
            if status != 200 or len(json.loads(body)["events"]) != 100:
                raise RuntimeError(f"{name} answered {status} {body[:200]!r}")
        costs = {}
        for kind, used in (("busy", connections), ("one after the other", connections[:1])):
            before = cpu_of(process)
            for connection in used:
                connection.ask(paths[0], workspace["key"])
            for turn in range(PAGES):
                connection = used[turn % len(used)]
                connection.answer()
                connection.ask(paths[turn % len(paths)], workspace["key"])
            for connection in used:
                connection.answer()
            costs[kind] = round((cpu_of(process) - before) / (PAGES + len(used)) * 1e6, 1)
    return costs


def cpu_of(process: int) -> float:
    """Give the CPU seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def release(home: str, seconds: str) -> None:
    """Release a held version every other second until stopped."""
    from ploti_server.pipeline.release import release_held

    ports = publisher(home)
    with ports.store.read() as records:
        held = [v.dataset_id for v in records.versions.in_status(None, ["held"]) if v.number == HELD]
    until = time.monotonic() + float(seconds)
    for dataset_id in held:
        if time.monotonic() >= until:
            break
        release_held(ports, dataset_id)
        time.sleep(RELEASE_EVERY)  # the load has a release every so often, not as many as can be


if __name__ == "__main__":
    if sys.argv[1:2] == ["release"]:
        release(*sys.argv[2:])
    else:
        main()
