"""`python -m bench.growth [--axis NAME] [--most N] [--folder DIR]`: how costs grow, as curves with their exponents.

Prints JSON lines: each job's costs at each size, then the exponent at the two largest sizes: 1 is growth in step with
the size (docs/performance.md).
"""

import argparse
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench import postgis
from bench.growth_worlds import CHANGED
from bench.measure import Cost, judge, provenance, run
from bench.service import page_cost
from bench.service_jobs import manifest_cost
from bench.serving import serving

WORLDS = "bench.growth_worlds"
IN_STEP = 1.15
"""Goal for an exponent, with what one run differs from the next."""
FLAT = 1.5
"""Goal for what costs the same however many there are: the largest cost in times the smallest."""


@dataclass
class Curve:
    """The costs of one job over one axis."""

    axis: str
    job: str
    at: list[float] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)

    def exponent(self) -> float:
        """Give the exponent at the two largest sizes, which what a job costs anyway can only lower."""
        (x1, x2), (first, last) = self.at[-2:], self.costs[-2:]
        return math.log(last.cpu / first.cpu) / math.log(x2 / x1)

    def tell(self) -> None:
        """Print the curve."""
        told = [
            {"at": x, "cpu": round(cost.cpu, 4)} | ({"peak_mib": round(cost.peak_mib)} if cost.peak_mib else {})
            for x, cost in zip(self.at, self.costs, strict=True)
        ]
        print(json.dumps({"axis": self.axis, "job": self.job, "curve": told, **provenance()}), flush=True)

    def judge_growth(self) -> None:
        """Print the curve, and whether it grows no faster than in step, which one size does not show."""
        self.tell()
        if len(self.at) > 1:
            judge(f"{self.job} over {self.axis}, exponent", {}, self.exponent(), IN_STEP)

    def judge_flat(self) -> None:
        """Print the curve, and whether it stays where it is."""
        self.tell()
        spent = [cost.cpu for cost in self.costs]
        judge(f"{self.job} over {self.axis}, largest in times the smallest", {}, max(spent) / min(spent), FLAT)


@dataclass(frozen=True)
class Asked:
    """Where to work, and the largest size."""

    folder: Path
    most: float

    def sizes(self, sizes: list[float]) -> list[float]:
        """Leave out what is too large."""
        return [size for size in sizes if size <= self.most]


def over_rows(asked: Asked) -> None:
    """Publish, load and apply tables of more and more rows, of which the same share changes."""
    sizes = asked.sizes([10_000, 100_000, 1_000_000, 10_000_000])
    _tables("rows", asked, [(rows, int(rows), 20, CHANGED) for rows in sizes])


def over_share(asked: Asked) -> None:
    """The same over the percentage of rows that change; a load never sees it."""
    _tables("share changed in percent", asked, [(share, 100_000, 20, share / 100) for share in (0, 1, 10, 50, 100)])


def over_columns(asked: Asked) -> None:
    """The same over the number of columns."""
    _tables("columns", asked, [(columns, 50_000, columns, CHANGED) for columns in (5, 20, 75, 300)])


def _tables(axis: str, asked: Asked, worlds: list[tuple[float, int, int, float]]) -> None:
    curves: dict[str, Curve] = {}
    for at, rows, columns, share in worlds:
        for job, cost in _one_table(asked.folder / "table", rows, columns, share):
            curve = curves.setdefault(job, Curve(axis, job))
            curve.at.append(at)
            curve.costs.append(cost)
    for curve in curves.values():
        curve.judge_growth()


def _one_table(folder: Path, rows: int, columns: int, share: float) -> Iterator[tuple[str, Cost]]:
    """Publish two versions, and follow them into each kind of target."""
    shutil.rmtree(folder, ignore_errors=True)
    run("write-states", folder, rows, columns, share, module=WORLDS)
    home = folder / "home"
    run("set-up", home, "points")
    yield "first build", run("check", home, folder / "old.csv")
    with ExitStack() as opened:
        port, _ = opened.enter_context(serving(home))
        server = opened.enter_context(postgis.server())
        urls = {kind: f"{kind}:///{folder / 'followed'}.{kind}" for kind in ("duckdb", "sqlite", "parquet")}
        urls["postgis"] = server.make("followed")

        def follow(kind: str) -> Cost:
            def client() -> Cost:
                return run("sync", home, port, urls[kind])

            return server.measured(client) if kind == "postgis" else client()

        loads = [(f"{kind}: load", follow(kind)) for kind in urls]
        build = run("check", home, folder / "new.csv")
        applies = [(f"{kind}: apply", follow(kind)) for kind in urls]
    yield from (*loads, ("build", build), *applies)


def over_subscriptions(asked: Asked) -> None:
    """Release one version into more and more logs, and read a page of one of them."""
    release, page = Curve("subscriptions", "release"), Curve("subscriptions", "page of 100 events")
    for subscriptions in (1, 10, 100, 1_000):
        home = _emptied(asked.folder / "logs")
        run("fill-logs", home, subscriptions, module=WORLDS)
        release.costs.append(run("release", home, module=WORLDS))
        busy = page_cost("ploti-server", home)["busy"]
        page.costs.append(Cost(busy / 1e6, 0, 0))
        for curve in (release, page):
            curve.at.append(subscriptions)
    release.judge_growth()
    page.judge_flat()


def over_datasets(asked: Asked) -> None:
    """Ask for manifests of more and more datasets, load them all, and sync again with nothing to do."""
    manifest, load, idle = (Curve("datasets", job) for job in ("manifest", "duckdb: load", "duckdb: nothing to do"))
    for datasets in (10, 100, 1_000, 3_000):
        home = _emptied(asked.folder / "listed")
        run("list-many", home, datasets, module=WORLDS)
        manifest.costs.append(Cost(float(manifest_cost(home, datasets)["server_cpu_ms"]) / 1000, 0, 0))
        manifest.at.append(datasets)
    for datasets in asked.sizes([10, 100, 1_000]):
        home = _emptied(asked.folder / "many")
        run("publish-many", home, datasets, module=WORLDS)
        with serving(home) as (port, _):
            url = f"duckdb:///{home}.duckdb"
            Path(f"{home}.duckdb").unlink(missing_ok=True)
            for curve in (load, idle):
                curve.costs.append(run("sync", home, port, url))
                curve.at.append(datasets)
    for curve in (manifest, load, idle):
        curve.judge_growth()


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


AXES: dict[str, Callable[[Asked], None]] = {
    "rows": over_rows,
    "share": over_share,
    "columns": over_columns,
    "subscriptions": over_subscriptions,
    "datasets": over_datasets,
}


def main() -> None:
    """Measure every axis asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth")
    parser.add_argument("--axis", action="append", choices=AXES)
    parser.add_argument("--most", type=float, default=1_000_000, help="the most rows or datasets; 10000000 needs 40 GB")
    parser.add_argument("--folder", type=Path, help="works there; in a temporary folder by default")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = scratch
        given = Asked((asked.folder or Path(scratch)).resolve(), asked.most)
        for axis in asked.axis or AXES:
            AXES[axis](given)


if __name__ == "__main__":
    main()
