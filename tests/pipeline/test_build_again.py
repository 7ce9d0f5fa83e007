"""Builds that break down and are begun again, and what is gathered for them (D4.3, D5.2, D5.3)."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ploti_server import worker
from ploti_server.app import build_ports
from ploti_server.domain.catalog import parse_catalog
from ploti_server.domain.checks import CheckStatus
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.settings import Settings
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.pipeline.catalog import apply_catalog
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.follow import sent_versions
from ploti_server.testing import MemoryStore

DATASET = "ds_x"
SENT_AT = datetime(2026, 1, 1, tzinfo=UTC)
CATALOG = f"datasets: [{{id: {DATASET}, title: X, source: {{kind: file, url: x.csv}}, key: [id]}}]"


class DiskIsFull(OSError):
    """The disk took no more."""


class Breaking:
    """Breaks a build down where the first of its parts is stored, as often as told."""

    def __init__(self):
        self.times = 0

    def __call__(self, step):
        if step == "build.part_stored" and self.times:
            self.times -= 1
            raise DiskIsFull(28, "No space left on device")


@pytest.fixture
def breaking():
    return Breaking()


@pytest.fixture
def ports(home, breaking):
    opened = build_ports(Settings.of(home, {}, {}), reach=breaking)
    apply_catalog(opened, parse_catalog(CATALOG, home / "catalog.yaml"))
    yield opened
    opened.store.close()


@pytest.fixture
def taken(ports, tmp_path):
    def take(content):
        file = tmp_path / "x.csv"
        file.write_text(content)
        return take_state(ports, DATASET, GivenState(file)).id

    return take


def versions(ports):
    with ports.store.read() as records:
        return [(v.number, v.status) for v in records.versions.in_status(DATASET, list(VersionStatus))]


def test_what_a_failed_build_left_in_the_file_store_never_stands_in_the_way(ports, breaking, taken):
    check, breaking.times = taken("id,v\n1,a\n"), worker.TRIES
    for _ in range(worker.TRIES):
        with pytest.raises(DiskIsFull):
            worker.work_one(ports, "test", check)
    with ports.store.read() as records:
        assert records.checks.get(check).status is CheckStatus.FAILED
    assert versions(ports) == []
    assert list(ports.files.paths(f"{DATASET}/versions/1/"))
    assert worker.work_through(ports, "test", taken("id,v\n1,b\n")).outcome == "released"
    assert versions(ports) == [(1, VersionStatus.RELEASED)]


def test_a_state_that_takes_the_place_of_a_broken_build_takes_its_number(ports, breaking, taken):
    check, breaking.times = taken("id,v\n1,a\n"), 1
    with pytest.raises(DiskIsFull):
        worker.work_one(ports, "test", check)
    assert versions(ports) == [(1, VersionStatus.BUILDING)]
    assert worker.work_through(ports, "test", taken("id,v\n1,b\n")).outcome == "released"
    assert versions(ports) == [(1, VersionStatus.RELEASED)]


def test_a_check_that_another_worker_took_over_is_awaited(ports, taken):
    check = taken("id,v\n1,a\n")

    def lose_the_lease_once(step):
        if step == "build.computed":
            with ports.store.write() as records:
                records.checks.put(replace(records.checks.get(check), lease_owner=None, lease_until=None))

    assert (
        worker.work_through(replace(ports, reach=lose_once(lose_the_lease_once)), "test", check).outcome == "released"
    )
    assert versions(ports) == [(1, VersionStatus.RELEASED)]


def lose_once(lose):
    """Let a step be interfered with the first time only."""
    lost = []

    def reach(step):
        if step == "build.computed" and not lost:
            lost.append(step)
            lose(step)

    return reach


def test_all_sent_versions_are_gathered_however_many():
    store = MemoryStore()
    with store.write() as records:
        records.catalog.put_dataset(Dataset(DATASET, "X", SourceSpec("file", "x.csv")))
        for number in range(1, 1203):
            records.versions.put(Version(DATASET, number, 1, VersionStatus.RELEASED, 0, released_at=SENT_AT))
    with store.read() as records:
        assert [v.number for v in sent_versions(records, DATASET)] == list(range(1, 1203))
