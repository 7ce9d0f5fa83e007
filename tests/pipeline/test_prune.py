"""Pruning over the fakes: what it tells, and that it may be killed anywhere (D12.2)."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from ploti.contract.events import ADDED
from ploti_server.adapters.files_local import LocalFiles
from ploti_server.domain.attachments import Attached, Attachments, attachment_path
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.events import NewEvent
from ploti_server.domain.retention import offered
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.versions import StoredFile, Version, VersionStatus
from ploti_server.domain.workspaces import Workspace
from ploti_server.pipeline.prune import prune
from ploti_server.ports import Ports
from ploti_server.testing import FakeAgent, FakePlans, FixedClock, MemoryFiles, MemoryStore

LIMIT = timedelta(days=90)
DATASETS = ("ds_a", "ds_b")


class Killed(BaseException):
    """Ends a prune where it stands."""


@pytest.fixture
def ports(tmp_path):
    """Two datasets with versions 1 to 3 of one day, and two subscriptions with two events each."""
    made = Ports(MemoryStore(), MemoryFiles(), None, FakeAgent(), FakePlans(), FixedClock(), tmp_path, None)
    now = made.clock.now()
    with made.store.write() as records:
        records.workspaces.put(Workspace("w", "W", (), None, now))
        for name in DATASETS:
            records.catalog.put_dataset(Dataset(name, name, SourceSpec("file", "x")))
            for number in (1, 2, 3):
                records.versions.put(_version(made, name, number, now))
        for name in ("sub_1", "sub_2"):
            records.subscriptions.put(Subscription(name, "w", name, ("fl",), (), (), 1, now, now))
            records.events.append(name, [NewEvent(ADDED, "ds_a", {}), NewEvent(ADDED, "ds_b", {})], now)
    return made


def _version(ports, name, number, now):
    made = Version(name, number, 1, VersionStatus.RELEASED, 1, number - 1 or None, built_at=now, released_at=now)
    paths = ("snapshot/part-0000.parquet", "changes/part-0000.parquet", "schema.json")
    for path in paths:
        ports.files.put_bytes(f"{made.folder}/{path}", path.encode())
    copy = Attached("original", "a.pdf", "x", 1, f"{number}" * 64, attachment_path(name, f"{number}" * 64, number, 1))
    ports.files.put_bytes(copy.path, b"x")
    ports.files.put_bytes(f"{made.folder}/attachments.json", msgspec.json.encode(Attachments((copy,))))
    files = tuple(StoredFile(path, "x", len(path), "0" * 64) for path in paths)
    return replace(made, files=files, staff_files=(StoredFile("attachments.json", "x", 1, "0" * 64),))


def versions(ports, name="ds_a"):
    with ports.store.read() as records:
        return records.versions.released(name)


def stored(ports, name, part):
    """Give the numbers in the names of a dataset's stored files of one part."""
    return {path.split("/")[2][0] for path in ports.files.paths(f"{name}/{part}/")}


def test_it_tells_what_goes_and_a_dry_run_lets_nothing_go(ports):
    ports.clock.advance(LIMIT)
    before = list(ports.files.paths("")), versions(ports)
    told = prune(ports, dry_run=True)
    assert (list(ports.files.paths("")), versions(ports)) == before
    assert (told.events, told.files, told.size_bytes) == (4, 0, 0)
    whole = sum(len(f"{kind}/part-0000.parquet") for kind in ("snapshot", "changes")) + 1
    assert [(one.dataset_id, one.version, one.kinds, one.size_bytes) for one in told.versions] == [
        (name, number, ("changes", "snapshot"), whole) for name in DATASETS for number in (1, 2)
    ]
    assert prune(ports) == told
    assert (prune(ports).events, prune(ports).versions) == (0, ())


@pytest.mark.parametrize("hit", [1, 2])
@pytest.mark.parametrize("step", ["events_dropped", "before_commit", "marked", "file_removed", "ended"])
def test_killed_at_any_step_the_next_prune_ends_as_if_nothing_had_happened(ports, step, hit):
    reached = []

    def reach(name):
        reached.append(name)
        if reached.count(f"prune.{step}") == hit and name == f"prune.{step}":
            raise Killed

    killed = replace(ports, reach=reach)
    for days in (90, 2, 2):
        ports.clock.advance(days=days)
        with suppress(Killed):
            prune(killed)
    assert reached.count(f"prune.{step}") >= hit
    ports.clock.advance(days=2)
    prune(ports)
    for name in DATASETS:
        assert [offered(v, is_current=v.number == 3).files_of("snapshot") != () for v in versions(ports, name)] == [
            False, False, True,
        ]  # fmt: skip
        assert stored(ports, name, "attachments") == {"2", "3"}
        parts = [path.split("/")[2::2] for path in ports.files.paths(f"{name}/versions/") if path.endswith(".parquet")]
        assert parts == [["2", "changes"], ["2", "snapshot"], ["3", "changes"], ["3", "snapshot"]]
    with ports.store.read() as records:
        assert records.events.oldest("sub_1") is records.events.oldest("sub_2") is None


def test_what_crashed_writers_left_goes_too(ports, tmp_path):
    files = LocalFiles(tmp_path / "files")
    (tmp_path / "files" / ".incoming" / "left").write_bytes(b"half")
    prune(replace(ports, files=files), dry_run=True)
    assert [*(tmp_path / "files" / ".incoming").iterdir()]
    prune(replace(ports, files=files))
    assert [*(tmp_path / "files" / ".incoming").iterdir()] == []


def test_a_lost_list_of_attachments_lets_no_copy_go(ports):
    ports.files.remove("ds_a/versions/3/1/attachments.json")
    for days in (90, 2):
        ports.clock.advance(days=days)
        prune(ports)
    assert (stored(ports, "ds_a", "attachments"), stored(ports, "ds_b", "attachments")) == ({"1", "2", "3"}, {"2", "3"})
