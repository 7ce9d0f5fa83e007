"""The jobs that are measured, each run in a process of its own: `python -m bench.jobs JOB ARGUMENTS`."""

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

THREADS = int(os.environ.get("BENCH_THREADS", "2"))
DATASET = "ds_permits"
OLD_DAY, NEW_DAY = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
DECLARED = {"applied": "date", "issued": "date", "finaled": "date"}


def nothing() -> None:
    """Start, import what a build imports, and end."""
    import ploti_server.app  # noqa: F401


def publisher(home: str, **settings: str):
    """Open the publisher of a bench folder; further settings by name."""
    from ploti_server.app import build_ports
    from ploti_server.domain.settings import Settings

    named = {f"PLOTI_SERVER_{name.upper()}": value for name, value in settings.items()}
    return build_ports(Settings.of(home=Path(home), environment={"PLOTI_SERVER_THREADS": str(THREADS)} | named))


def set_up(home: str, shape: str) -> None:
    """Apply a catalog of one dataset that nobody judges, open a workspace, subscribe; notes key and subscription."""
    from ploti_server.domain.datasets import Dataset, GeometryColumns, MatchingLimits, SourceSpec, Topic
    from ploti_server.domain.subscriptions import Selection
    from ploti_server.pipeline.subscriptions import create_subscription
    from ploti_server.pipeline.workspaces import create_key, create_workspace

    ports = publisher(home)
    geometry = GeometryColumns(wkt="shape") if shape == "polygons" else GeometryColumns(x="x", y="y")
    source = SourceSpec("file", "permits.csv", geometry=geometry, crs=("EPSG:4326",))
    with ports.store.write() as records:
        records.catalog.put_topics([Topic("development-activity", "Development activity")])
        records.catalog.put_dataset(
            Dataset(
                DATASET, "Permits", source, place="fl-county-orange", topic="development-activity",
                key=("permit_number",), matching=MatchingLimits(agent="nobody"),
            )
        )  # fmt: skip
    workspace = create_workspace(ports, "bench", ["fl-counties"], None)
    key = create_key(ports, "bench", "bench", "admin").text
    subscription = create_subscription(ports, workspace, Selection("bench", ("fl-county-orange",), (), ()))
    Path(home, "access.txt").write_text(f"{key}\n{subscription.id}\n")


def check(home: str, state: str) -> None:
    """Read a state and release its version, where it differs from the last one."""
    from ploti_server import worker
    from ploti_server.pipeline.check import GivenState, take_state

    ports = publisher(home)
    day = OLD_DAY if Path(state).name.startswith("old") else NEW_DAY
    done = worker.work_through(ports, "bench", take_state(ports, DATASET, GivenState(Path(state), day)).id)
    if done.outcome not in {"released", "unchanged"}:
        raise RuntimeError(f"{state} ended {done.outcome}: {done.reason} {done.facts.get('holds')}")


def build_limit(previous: str, state: str, out: str) -> None:
    """Scan the previous snapshot, read the new state, write 26 columns with zstd: what a build cannot do without."""
    import duckdb

    con = duckdb.connect(config={"threads": str(THREADS), "temp_directory": out, "memory_limit": "1GB"})
    scanned = ", ".join(f"count({name})" for name, *_ in con.sql(f"FROM read_parquet({_parts(previous)})").description)
    con.execute(f"SELECT {scanned} FROM read_parquet({_parts(previous)})").fetchall()
    envelope = ", ".join(
        f"'{value}' AS e{number}" for number, value in enumerate(["ds", "place", "url", "day", "id", "v"])
    )
    con.execute(
        f"COPY (SELECT {envelope}, * FROM read_csv('{state}', header = true)) TO '{out}/limit.parquet' "
        "(FORMAT parquet, COMPRESSION zstd)"
    )


def check_build(previous: str, snapshot: str, changes: str, rows: int) -> None:
    """Prove that previous snapshot and changes give the new one, with the numbers that the generator made."""
    import duckdb

    con = duckdb.connect(
        config={"threads": str(THREADS), "memory_limit": "4GB", "temp_directory": str(Path(previous).parent / "spill")}
    )
    own = [n for n, *_ in con.sql(f"FROM read_parquet({_parts(snapshot)})").description if not n.startswith("_ploti_")]
    columns = ", ".join(["_ploti_record_id", *(f'"{name}"' for name in own)])
    con.execute(f"CREATE VIEW changes AS FROM read_parquet({_parts(changes)})")
    kept = "_ploti_record_id NOT IN (SELECT _ploti_record_id FROM changes)"
    applied = (
        f"SELECT {columns} FROM read_parquet({_parts(previous)}) WHERE {kept} "
        f"UNION ALL SELECT {columns} FROM changes WHERE _ploti_op = 'upsert'"
    )
    published = f"SELECT {columns} FROM read_parquet({_parts(snapshot)})"
    for one, other in ((applied, published), (published, applied)):
        (left,) = con.execute(f"SELECT count(*) FROM (({one}) EXCEPT ALL ({other}))").fetchone()
        if left:
            raise RuntimeError(f"{left} rows differ")
    found = dict(con.execute("SELECT _ploti_change, count(*) FROM changes GROUP BY ALL").fetchall())
    expected = {"added": rows // 100, "changed": rows // 50, "removed": rows // 200}
    if found != expected:
        raise RuntimeError(f"{found} instead of {expected}")


def serve(home: str, port: str) -> None:
    """Serve the publisher until stopped, without limits on calls."""
    from dataclasses import replace

    from ploti_server.api import make_api
    from ploti_server.api.serving import ApiServer
    from ploti_server.app import build_signer
    from ploti_server.domain.settings import Settings

    ports = publisher(home)
    settings = Settings.of(home=Path(home))
    limits = {"requests_per_minute": 10**9, "strict_requests_per_minute": 10**9}
    settings = replace(settings, public_url=f"http://127.0.0.1:{port}", **limits)
    ApiServer(make_api(ports, settings, build_signer(ports)), host="127.0.0.1", port=int(port), log_level="error").run()


def sync(home: str, port: str, url: str) -> None:
    """Follow the subscription once."""
    import ploti
    from ploti.sync.loop import sync as follow
    from ploti.sync.targets import open_target

    key, subscription = Path(home, "access.txt").read_text().split()
    with ploti.Client(api_key=key, base_url=f"http://127.0.0.1:{port}") as client:
        report = follow(client, subscription, open_target(url))
    if report.behind:
        raise RuntimeError(f"sync ended {report.behind}")


def write_states(folder: str, rows: str, shape: str) -> None:
    """Make the two states."""
    from bench.permits import write_states as write

    write(Path(folder), int(rows), polygons=shape == "polygons")


def _parts(folder: str) -> str:
    return repr([str(part) for part in sorted(Path(folder).glob("part-*.parquet"))])


JOBS: dict[str, Callable[..., None]] = {
    job.__name__.replace("_", "-"): job
    for job in (
        nothing, set_up, check, build_limit, check_build, serve, sync, write_states,
    )
}  # fmt: skip


class _WithoutPandas:
    """Hides pandas, which neither `ploti[server]` nor `ploti[sync]` installs and which pyarrow imports where it is."""

    def find_spec(self, name, *_):
        """Say that pandas is not there."""
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, _WithoutPandas())
    name, *arguments = sys.argv[1:]
    if name == "check-build":
        *paths, count = arguments
        check_build(*paths, int(count))
    else:
        JOBS[name](*arguments)
