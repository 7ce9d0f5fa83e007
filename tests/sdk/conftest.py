"""A fake with two datasets and a subscription, reached in the same process and over a loopback port."""

import os
import subprocess
import sys

import pytest

import ploti
from ploti.testing import FakeApi

SNAPSHOT = "snapshot/part-0000.parquet"
CHANGES = "changes/part-0000.parquet"
RECORD = {
    "datasetId": "ds_orange_permits",
    "recordId": "rec_a",
    "status": "replaced",
    "firstVersion": 1,
    "lastVersion": 1,
    "replacedBy": "rec_c",
    "currentId": None,
}


@pytest.fixture
def fake():
    fake = FakeApi()
    fake.add_dataset("ds_orange_permits", title="Permits", geometry="Point")
    fake.add_dataset("ds_orange_zoning", title="Zoning", topic=None)
    fake.subscribe("sub_orange", places=["fl-county-orange"])
    fake.publish("ds_orange_permits", files={SNAPSHOT: b"one" * 1000}, row_count=3)
    fake.publish(
        "ds_orange_permits",
        files={SNAPSHOT: b"two" * 1000, CHANGES: b"changes"},
        row_count=4,
        counts={"added": 1, "changed": 0, "removed": 0},
        attachments={"document:ab12": b"%PDF"},
    )
    fake.add_record(RECORD)
    return fake


@pytest.fixture(params=["in process", "loopback"])
def client(fake, request):
    """A client without waits between its attempts."""
    with ploti.Client(**fake.client_options, retries=ploti.Retries(first_wait=0)) as inside:
        if request.param == "in process":
            yield inside
            return
    with fake.serve() as url, ploti.Client(fake.api_key, url, retries=ploti.Retries(first_wait=0)) as outside:
        yield outside


@pytest.fixture
def run_python(tmp_path):
    """Run code in a fresh interpreter in a folder of its own and give what it printed."""

    def run(code, **environment):
        command = [sys.executable, "-c", code]
        env = {**os.environ, **environment}
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
