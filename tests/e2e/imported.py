"""A publisher process that imports histories: `python -m tests.e2e.imported HOME` with an order as JSON on its input.

The order names for each of its `catalogs` the datasets with their states (file and time read), the engine's
`threads`, and by how many `days` the clock is ahead. Each catalog has a home of its own in HOME. Every hold is
released. Printed is what each version is made of, by dataset.
"""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from tests.e2e.independent import PublishedVersion

from ploti_server.app import build_ports
from ploti_server.domain.catalog import parse_catalog
from ploti_server.domain.settings import Settings
from ploti_server.pipeline.catalog import apply_catalog
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.release import release_held
from ploti_server.worker import new_owner, work_through


class OtherDay:
    """A clock that is some days ahead."""

    def __init__(self, days):
        self._ahead = timedelta(days=days)

    def now(self):
        return datetime.now(UTC) + self._ahead


def main(home):
    order = json.load(sys.stdin)
    pa.set_cpu_count(order["threads"])
    told, owner = {}, new_owner()
    for at, (catalog, states) in enumerate(order["catalogs"].items()):
        environment = {"PLOTI_SERVER_THREADS": str(order["threads"])}
        settings = Settings.of(home=Path(home) / str(at), environment=environment)
        ports = build_ports(settings, clock=OtherDay(order["days"]))
        apply_catalog(ports, parse_catalog(Path(catalog).read_text(encoding="utf-8"), Path(catalog)))
        told |= {dataset_id: list(_versions(ports, owner, dataset_id, given)) for dataset_id, given in states.items()}
    print(json.dumps(told))


def _versions(ports, owner, dataset_id, states):
    for file, fetched_at in states:
        taken = take_state(ports, dataset_id, GivenState(Path(file), datetime.fromisoformat(fetched_at)))
        check = work_through(ports, owner, taken.id)
        if check.outcome == "held":
            version = release_held(ports, dataset_id)
        elif check.outcome == "released":
            with ports.store.read() as records:
                version = records.versions.get(dataset_id, check.version)
        else:
            yield {"outcome": check.outcome}
            continue
        published = PublishedVersion(ports.home / "files" / version.folder)
        staff = {file.path: file.sha256 for file in version.staff_files if file.path.startswith("ledger/")}
        yield {
            "outcome": check.outcome,
            "facts": check.facts,
            "schemaVersion": version.schema_version,
            "counts": published.manifest["counts"],
            "digest": published.manifest["digest"],
            "ids": sorted(published.rows()),
            "changes": _changes(published),
            "files": {file.path: file.sha256 for file in version.files} | staff,
        }


def _changes(published):
    if not published.paths("changes"):
        return None
    columns = ["_ploti_op", "_ploti_change", "_ploti_match", "_ploti_record_id", "_ploti_changed_columns"]
    told = published.table("changes").select(columns).to_pylist()
    return sorted([*list(row.values())[:-1], sorted(row["_ploti_changed_columns"] or ())] for row in told)


if __name__ == "__main__":
    main(*sys.argv[1:])
