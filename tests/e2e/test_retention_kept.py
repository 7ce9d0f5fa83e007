"""What is past retention, from a real publisher to a reader's table; a prune killed by SIGKILL (page 001, D12)."""

import json
import os
import signal
import urllib.request
from dataclasses import replace
from datetime import timedelta

import duckdb
import pytest
from tests.e2e.forge import forging
from tests.e2e.independent import SyncedTable
from tests.e2e.serving import Publisher, serving

from ploti import Client
from ploti.errors import Reload
from ploti.sync.attachments import follow_attachments
from ploti.sync.loop import sync
from ploti.sync.target import Progress
from ploti.sync.targets import open_target
from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.check import GivenState
from ploti_server.pipeline.prune import prune

CATALOG = """
topics: [{id: t, name: T}]
datasets:
  - {id: ds_x, title: X, topic: t, key: [k], source: {kind: file, url: x.csv}, documents: [pdf],
     attachments: [{file: original, url: map.pdf}]}
"""
DATASET = "ds_x"


@pytest.fixture
def publisher(tmp_path):
    (tmp_path / "catalog.yaml").write_text(CATALOG)
    (tmp_path / "map.pdf").write_bytes(b"a map")
    made = Publisher(tmp_path / "home", ("x",), tmp_path / "catalog.yaml")
    made.subscription = made.subscribe()
    publish(made, 1)
    return made


def publish(publisher, number):
    """Publish a state in which every row has the number of its version."""
    state = publisher.home.parent / f"{number}.csv"
    (state.parent / "plan.pdf").write_text(f"plan {number}")
    state.write_text("k,v,pdf\n" + "".join(f"{key},{number},plan.pdf\n" for key in range(20 + number)))
    assert publisher.publish("x", GivenState(state)) == number


def age(publisher, days):
    """Let every version have been built, sent and, where it is past retention, marked days earlier than it was."""
    with publisher.ports.store.write() as records:
        for version in records.versions.in_status(DATASET, list(VersionStatus)):
            moments = {name: getattr(version, name) for name in ("built_at", "released_at", "expired_at")}
            earlier = {name: at - timedelta(days=days) for name, at in moments.items() if at is not None}
            records.versions.put(replace(version, **earlier))


def check_documents(client, database, held):
    """Every row finds the file that its cell names, with the bytes of its version, beside the dataset's own."""
    follow_attachments(client, [held], database.parent / "files", Progress())
    folder = database.parent / "files" / DATASET
    paths = {one["file"]: one["path"] for one in json.loads((folder / "attachments.json").read_text())["attachments"]}
    with duckdb.connect(database, read_only=True) as rows:
        ((cell,),) = rows.execute("SELECT DISTINCT pdf FROM ds_x").fetchall()
    assert {file: (folder / path).read_text() for file, path in paths.items()} == {
        "original": "a map", cell: f"plan {held.version}",
    }  # fmt: skip


def test_a_reader_whose_next_version_is_past_retention_loads_the_current_one(publisher, tmp_path):
    database = tmp_path / "reader.duckdb"
    with serving(publisher) as url, Client(publisher.key, url) as client:

        def follow():
            (report,) = sync(client, publisher.subscription, open_target(f"duckdb:///{database}")).datasets
            table = SyncedTable(database, DATASET)
            assert (table.state, table.version) == ("ok", report.held.version)
            check_documents(client, database, report.held)
            return report

        assert follow().held.version == 1
        link = client.feeds.datasets.versions.get(DATASET, 1)["files"]["snapshot"][0]
        for number in (2, 3):
            publish(publisher, number)
        age(publisher, 90)  # the events are young: as after a long hold
        done = prune(publisher.ports)
        assert [(one.version, one.kinds) for one in done.versions] == [(1, ("snapshot",)), (2, ("changes", "snapshot"))]
        with pytest.raises(Reload):
            client.feeds.datasets.versions.get(DATASET, 2)
        with urllib.request.urlopen(link["url"], timeout=10) as kept:
            assert len(kept.read()) == link["sizeBytes"]
        report = follow()
        assert (report.reloaded, report.held.version, report.held.rows) == (True, 3, 23)
        publish(publisher, 4)
        assert prune(publisher.ports, publisher.ports.clock.now() + timedelta(days=90)).events == 5
        report = follow()
        assert (report.reloaded, report.held.version) == (True, 4)


def test_after_a_sigkill_the_next_prune_ends_its_work(publisher):
    for number in (2, 3):
        publish(publisher, number)
    age(publisher, 90)
    prune(publisher.ports)
    age(publisher, 2)
    order = {"home": str(publisher.home), "verb": "prune", "trace": str(publisher.home / "trace")}
    with forging("tests.e2e.killed") as ordered:
        status = ordered(order | {"step": "prune.file_removed", "hit": 1})
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    prune(publisher.ports)
    stored = publisher.ports.files.paths(f"{DATASET}/versions/1/")
    assert [path.split("/", 4)[4] for path in stored] == ["ledger/part-0000.parquet", "manifest.json", "schema.json"]
    copies = publisher.ports.files.paths(f"{DATASET}/attachments/")
    assert len([*copies]) == 3  # the map, and the plans of the versions that keep their snapshots
    assert publisher.published("x", 3).manifest["version"] == 3
