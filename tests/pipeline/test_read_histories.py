"""Every real history, state after state: rows, schema changes and versions are those of `expected.json`."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from ploti_server.domain.catalog import parse_catalog
from ploti_server.domain.schema import change_between, next_version
from ploti_server.domain.states import StateUnreadable
from ploti_server.pipeline.read import read_state
from ploti_server.sources import open_state

SHARED = Path(__file__).parents[2].parent / "shared"
HISTORIES = [
    (folder, dataset_id)
    for folder in (SHARED / "demo", SHARED / "data" / "main")
    for dataset_id in json.loads((folder / "expected.json").read_text())["datasets"]
]
CHANGES = {"additive": "MINOR", "breaking": "MAJOR"}


class CountingTables:
    """Takes rows and keeps only the number of rejected ones."""

    def __init__(self):
        self.rows = {}

    def map_batches(self, name, batches, schema):
        self.rows[name] = sum(pa.RecordBatch.from_arrays(b.columns, schema=schema).num_rows for b in batches)


@pytest.mark.parametrize(("folder", "dataset_id"), HISTORIES, ids=[dataset_id for _, dataset_id in HISTORIES])
def test_states_are_read_as_expected(folder, dataset_id):
    catalog = parse_catalog((folder / "catalog.yaml").read_text(), folder / "catalog.yaml")
    dataset = next(dataset for dataset in catalog.datasets if dataset.id == dataset_id)
    expected = json.loads((folder / "expected.json").read_text())["datasets"][dataset_id]["states"]
    previous, known, version = None, (), None
    for state in expected:
        path = folder / dataset_id.removeprefix("ds_") / state["file"]
        tables = CountingTables()
        if state["outcome"] == "failed":
            with pytest.raises(StateUnreadable):
                open_state(path, path.name, dataset)
            continue
        read = read_state(open_state(path, path.name, dataset), dataset, previous, known, tables)
        change = previous and change_between(previous, read.schema, version)
        told = "FIRST" if previous is None else change and CHANGES[change.kind]
        version = next_version(version, change)
        assert (state["file"], read.rows, told, str(version)) == (
            state["file"],
            state["rows"],
            state["schemaChange"],
            state["schemaVersion"],
        )
        assert tables.rows == {"new": read.rows, "rejects": sum(read.rejects.values())}
        previous, known = read.schema, read.known_columns
