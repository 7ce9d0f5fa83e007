"""What `bench.growth` measures on, each made by a process of its own: `python -m bench.growth_worlds JOB ARGUMENTS`.

Two states of any number of rows and columns, many logs, many small datasets.
"""

import csv
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bench.jobs import DATASET

CHANGED = 0.035
"""The share of rows that change where nothing else is asked."""
_OWN = ("permit_number", "status", "valuation", "x", "y")
_KINDS = (
    "'Type ' || hash(n, {at}) % 40",
    "round((hash(n, {at}) % 900000) / 7, 2)",
    "DATE '2010-01-01' + (hash(n, {at}) % 6000)::INTEGER",
    "'Work ' || hash(n, {at}) % 9973 || ' on parcel ' || n",
    "hash(n, {at}) % 12",
)


def write_states(folder: str, rows: str, columns: str, share: str) -> None:
    """Write `old.csv` and `new.csv`: a share of the rows with another status and valuation, in another row order."""
    import duckdb

    Path(folder).mkdir(parents=True, exist_ok=True)
    more = [f"{_KINDS[at % len(_KINDS)].format(at=at)} AS extra_{at}" for at in range(int(columns) - len(_OWN))]
    config = {"threads": 2, "memory_limit": "4GB", "temp_directory": f"{folder}/spill"}
    with duckdb.connect(config=config) as con:
        for name, changed, order in (
            ("old", "false", ""),
            ("new", f"hash(n, 'changed') % 1000000 < {float(share) * 1e6}", "ORDER BY hash(n, 'order')"),
        ):
            own = (
                "'B' || lpad(n::VARCHAR, 9, '0') AS permit_number",
                f"if({changed}, 'finaled', 'issued') AS status",
                f"round((hash(n) % 900000) / 7 + if({changed}, 100, 0), 2) AS valuation",
                "-81.7 + (hash(n, 'x') % 100003) / 1e5 AS x",
                "28.1 + (hash(n, 'y') % 99991) / 1.25e5 AS y",
            )
            query = f"SELECT {', '.join((*own, *more))} FROM range({rows}) AS t(n) {order}"
            con.execute(f"COPY ({query}) TO '{folder}/{name}.csv'")


def release(home: str) -> None:
    """Release a held version into every log that wants it."""
    from bench.jobs import publisher
    from bench.service_world import HELD
    from ploti_server.pipeline.release import release_held

    ports = publisher(home)
    with ports.store.read() as records:
        held = next(v.dataset_id for v in records.versions.in_status(None, ["held"]) if v.number == HELD)
    release_held(ports, held)


def fill_logs(home: str, subscriptions: str) -> None:
    """Fill a home folder with 20 datasets and many subscriptions of 250 events each."""
    from bench.service_world import fill

    fill(Path(home), 20, int(subscriptions), 250 * int(subscriptions))


def list_many(home: str, datasets: str) -> None:
    """Fill a home folder with a subscription to many datasets whose files nobody reads."""
    from bench.service_world import fill_many

    Path(home).mkdir(parents=True, exist_ok=True)
    fill_many(Path(home), int(datasets))


def publish_many(home: str, datasets: str) -> None:
    """Publish the first version of many small datasets, each from a state of its own; notes key and subscription."""
    from bench.jobs import publisher, set_up
    from ploti_server import worker
    from ploti_server.pipeline.check import GivenState, take_state

    set_up(home, "points")
    ports = publisher(home)
    with ports.store.write() as records:
        first = records.catalog.dataset(DATASET)
        ids = [DATASET, *(f"{DATASET}_{number}" for number in range(1, int(datasets)))]
        for dataset_id in ids:
            records.catalog.put_dataset(replace(first, id=dataset_id))
    state = Path(home, "state.csv")
    with state.open("w", newline="") as file:
        csv.writer(file).writerows([_OWN, *((f"B{n}", "issued", n, -81.0 - n / 100, 28.0) for n in range(20))])
    for dataset_id in ids:
        check = take_state(ports, dataset_id, GivenState(state, datetime(2026, 1, 1, tzinfo=UTC)))
        done = worker.work_through(ports, "bench", check.id)
        if done.outcome != "released":
            raise RuntimeError(f"{dataset_id} ended {done.outcome}: {done.reason}")


JOBS = {job.__name__.replace("_", "-"): job for job in (write_states, release, fill_logs, list_many, publish_many)}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
