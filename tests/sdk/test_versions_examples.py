"""What page 001 shows of the command and of Python, asked of a feed whose versions are about to reach 42."""

import json
import shlex

import pytest

from ploti.cli.command import run
from ploti.testing import FakeApi

DATASET = "ds_orange_fl_building_permits"
FILES = {"snapshot/part-0000.parquet": b"rows", "changes/part-0000.parquet": b"changes"}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    fake = FakeApi()
    fake.add_dataset(DATASET)
    fake.subscribe("sub_orange", places=["fl-county-orange"])
    for version in (39, 41, 42):
        fake.publish(DATASET, files=FILES, version=version, counts={"added": 212, "changed": 38, "removed": 3})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PLOTI_API_KEY", fake.api_key)
    with fake.serve() as url:
        monkeypatch.setenv("PLOTI_API_URL", url)
        yield fake


def test_the_command_lists_versions_after_a_number_and_gets_one(fake, capsys):
    answers = []
    for line in (f"feeds datasets versions list {DATASET} --after 40", f"feeds datasets versions get {DATASET} 42"):
        assert run(shlex.split(line)) == 0
        assert capsys.readouterr().out.strip()
        assert run(shlex.split(f"{line} --json")) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert [version["version"] for version in answers[0]["versions"]] == [41, 42]
    assert (answers[1]["version"], answers[1]["previousVersion"]) == (42, 41)
    assert [part["path"] for part in answers[1]["files"]["changes"]] == ["changes/part-0000.parquet"]


def test_python_lists_versions_after_a_number_and_finds_the_changes_of_one(fake, run_python):
    code = (
        "import ploti\n"
        f"page = ploti.feeds.datasets.versions.list({DATASET!r}, after=40)\n"
        "print([version['version'] for version in page['versions']])\n"
        f"version = ploti.feeds.datasets.versions.get({DATASET!r}, 42)\n"
        "print([part['path'] for part in version['files']['changes']])\n"
    )
    assert run_python(code).split("\n")[:2] == ["[41, 42]", "['changes/part-0000.parquet']"]
