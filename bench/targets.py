"""`python -m bench.targets`: load and apply of every sync target, beside the least possible and beside other tools.

Prints JSON lines (docs/performance.md). The least possible, called the limit, is what any program has to do. What sync
leaves is compared with what the limit left in the same run; a difference ends it.
"""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench import postgis, target_peers
from bench.measure import Cost, judge, provenance, report, run
from bench.serving import serving

LIMITS, PEERS = "bench.target_limits", "bench.target_peers"
DATASET = "ds_permits"
JOBS = ("load", "apply")


@dataclass(frozen=True)
class World:
    """Two versions of a dataset of permits, and the publisher that serves the first, later both."""

    folder: Path
    port: int

    def parts(self, job: str) -> Path:
        """Give the parts that a job reads."""
        versions = self.folder / "home" / "files" / DATASET / "versions"
        return versions / "1" / "1" / "snapshot" if job == "load" else versions / "2" / "1" / "changes"

    @property
    def ready(self) -> Path:
        """Give a GeoPackage of the first version."""
        return self.folder / "ready.gpkg"

    def sync(self, url: str) -> Cost:
        """Follow the subscription once."""
        return run("sync", self.folder / "home", self.port, url)


class Kind(Protocol):
    """A kind of target, with goals in times the limit; `at` numbers the rounds, each with tables of its own."""

    name: str
    key: str
    goals: Mapping[str, float]
    peak_goal: float | None
    peers: tuple[str, ...]

    def sync(self, job: str, at: int) -> Cost:
        """Have sync do a job."""

    def limit(self, job: str, at: int) -> Cost:
        """Do the least for a job."""

    def peer(self, peer: str, job: str) -> Cost:
        """Have another tool do a job."""

    def compare(self) -> None:
        """Prove that sync and the limit left the same rows."""


@dataclass(frozen=True)
class File:
    """A target that is a file or a folder."""

    world: World
    name: str
    key: str
    goals: Mapping[str, float]
    peers: tuple[str, ...] = ()
    peak_goal: float | None = None

    def sync(self, job: str, at: int) -> Cost:
        del job
        return self.world.sync(f"{self.key}:///{self._path('followed', at)}")

    def limit(self, job: str, at: int) -> Cost:
        return run(f"{self.key}_{job}", self._source(job, at), self._path("plain", at), module=LIMITS)

    def peer(self, peer: str, job: str) -> Cost:
        source = self.world.ready if peer == "ogr2ogr" else self.world.parts(job)
        return run(f"{self.key}_{peer}_{job}", source, self._path(peer, 0), module=PEERS)

    def compare(self) -> None:
        run(f"{self.key}_compare", self._path("followed", 0), self._path("plain", 0), module=LIMITS)

    def _path(self, name: str, at: int) -> Path:
        return self.world.folder / f"{name}-{at}.{'gpkg' if self.key == 'sqlite' else self.key}"

    def _source(self, job: str, at: int) -> Path:
        """Give what the limit copies: the parts, or for SQLite rows that are ready in another file."""
        if self.key != "sqlite":
            return self.world.parts(job)
        if job == "load":
            return self.world.ready
        changes = self._path("changes", 0)
        if at == 0:
            run("sqlite_changes", self.world.ready, self._path("followed", 0), changes, module=LIMITS)
        return changes


@dataclass(frozen=True)
class PostGIS:
    """A schema in PostgreSQL with PostGIS; each round has a database."""

    world: World
    server: postgis.Server
    name: str = "PostGIS"
    key: str = "postgis"
    goals: Mapping[str, float] = field(default_factory=lambda: {"load": 1.5, "apply": 2.0})
    peers: tuple[str, ...] = ("adbc", "binary_copy", "ogr2ogr", "geopandas", "dlt")
    peak_goal: float | None = 300.0

    def sync(self, job: str, at: int) -> Cost:
        url = self._database(f"round_{at}", job)
        return self.server.measured(lambda: self.world.sync(url))

    def limit(self, job: str, at: int) -> Cost:
        text = self.world.folder / f"{job}.text"
        if at == 0:
            run("postgis_text", self.world.parts(job), text, module=LIMITS)
        url = self.server.url(f"round_{at}")
        return self.server.measured(lambda: run(f"postgis_{job}", self.world.parts(job), text, url, module=LIMITS))

    def peer(self, peer: str, job: str) -> Cost:
        source = self.world.ready if peer == "ogr2ogr" else self.world.parts(job)
        url = self._database(peer, job)
        return self.server.measured(lambda: run(f"postgis_{peer}_{job}", source, url, module=PEERS))

    def compare(self) -> None:
        run("postgis_compare", self.server.url("round_0"), module=LIMITS)

    def _database(self, name: str, job: str) -> str:
        return self.server.make(name) if job == "load" else self.server.url(name)


def kinds_of(world: World, server: postgis.Server | None, wanted: list[str]) -> list[Kind]:
    """Give the kinds of targets to measure."""
    files = [
        File(world, "DuckDB", "duckdb", {"load": 1.5, "apply": 3.0}, ("dlt",)),
        File(world, "GeoPackage", "sqlite", {"load": 10.0, "apply": 3.0}, ("ogr2ogr", "geopandas")),
        File(world, "Parquet", "parquet", {}),
    ]
    chosen: list[Kind] = [each for each in files if each.name in wanted]
    return chosen if server is None else [*chosen, PostGIS(world, server)]


NAMES = ("DuckDB", "GeoPackage", "Parquet", "PostGIS")


def main() -> None:
    """Measure every size and shape asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.targets")
    parser.add_argument("--rows", type=int, action="append", help="100,000 and 1,000,000 unless given")
    parser.add_argument("--shape", action="append", choices=["points", "polygons"])
    parser.add_argument("--target", action="append", choices=NAMES)
    parser.add_argument("--runs", type=int, default=1, help="rounds of sync and limit, of which the median counts")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--folder", type=Path, help="keeps the states for the next run; a temporary one by default")
    asked = parser.parse_args()
    names = asked.target or list(NAMES)
    print(json.dumps({"peers": {} if asked.no_peers else target_peers.versions(), **provenance()}), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = scratch
        for rows in asked.rows or [100_000, 1_000_000]:
            for shape in asked.shape or ["points", "polygons"]:
                folder = (asked.folder or Path(scratch)) / f"{shape}-{rows}"
                figures = {"rows": rows, "shape": shape, "runs": asked.runs}
                with _world(folder, rows, shape) as world, _server("PostGIS" in names) as server:
                    kinds = kinds_of(world, server, names)
                    measure(world, kinds, figures, asked.runs, peers=not asked.no_peers)
                _forget(folder)


@contextmanager
def _world(folder: Path, rows: int, shape: str) -> Iterator[World]:
    """Publish the first version, and serve what is published."""
    _forget(folder)
    run("write-states", folder, rows, shape)
    run("set-up", folder / "home", shape)
    run("check", folder / "home", folder / "old.csv")
    with serving(folder / "home") as (port, _):
        yield World(folder, port)


def _forget(folder: Path) -> None:
    """Remove all but the two states."""
    for path in folder.glob("*"):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix != ".csv":
            path.unlink()


@contextmanager
def _server(wanted: bool) -> Iterator[postgis.Server | None]:
    if not wanted:
        yield None
        return
    with postgis.server() as server:
        yield server


def measure(world: World, kinds: list[Kind], figures: dict[str, object], runs: int, *, peers: bool) -> None:
    """Measure load, release the second version, measure apply."""
    world.sync(f"sqlite:///{world.ready}")
    for job in JOBS:
        if job == "apply":
            run("check", world.folder / "home", world.folder / "new.csv")
        for kind in kinds:
            rounds = [(kind.sync(job, at), kind.limit(job, at)) for at in range(runs)]
            sync, limit = (sorted(costs, key=lambda cost: cost.cpu)[runs // 2] for costs in zip(*rounds, strict=True))
            others = _peers(kind, job) if peers else {}
            _tell(kind, job, figures, {"limit": limit, "sync": sync, **others})
    for kind in kinds:
        kind.compare()
        print(json.dumps({"job": f"{kind.name}: sync and limit left the same rows", **figures}), flush=True)


def _peers(kind: Kind, job: str) -> dict[str, Cost]:
    """Measure the peers that are here, and say of each other why it is not."""
    costs = {}
    for peer in kind.peers:
        reason = target_peers.absent(peer, f"{kind.key}_{peer}_{job}")
        if reason is None:
            try:
                costs[peer] = kind.peer(peer, job)
            except RuntimeError as failure:
                reason = str(failure)
        if reason is not None:
            print(json.dumps({"job": f"{kind.name} {job}", "peer": peer, "not_measured": reason}), flush=True)
    return costs


def _tell(kind: Kind, job: str, figures: dict[str, object], costs: dict[str, Cost]) -> None:
    ratios = report(f"{kind.name} {job}", figures, costs)
    if job in kind.goals:
        judge(f"{kind.name} {job}, CPU in times the limit", figures, ratios["sync"], kind.goals[job])
    if kind.peak_goal is not None:
        judge(f"{kind.name} {job}, peak memory in MiB", figures, costs["sync"].peak_mib, kind.peak_goal)


if __name__ == "__main__":
    main()
