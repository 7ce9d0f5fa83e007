"""Lost files of the current version are made again, byte for byte (D5.10, page 001 "Retention", page 000)."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.pipeline.publishing import DATASET, Publisher, table

from ploti_server.domain.datasets import Attachment, License, SourceSpec
from ploti_server.pipeline.attach import attachments_of
from ploti_server.pipeline.prune import prune
from ploti_server.pipeline.restore import Restored, RestoreFailed, lost_files, restore, restore_current
from ploti_server.ports import Judgement
from ploti_server.testing import FakeAgent
from ploti_server.worker import UPKEEP, Upkeep


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A publisher with a version that was matched by the agent and by content, with attachments and a backfill."""
    folder = tmp_path_factory.mktemp("restore")
    (folder / "a.pdf").write_bytes(b"a plan")
    attachment = Attachment("original", str(folder / "a.pdf"))
    publisher = Publisher(
        folder, source=SourceSpec("file", str(folder / "x.csv")), documents=("pdf",), attachments=(attachment,)
    )
    agent = FakeAgent(lambda pair: Judgement(pair.pair_id, same=True, confidence=0.9))
    publisher.ports = replace(publisher.ports, agent=agent)
    names = [f"{name} {street}" for name in ("Maple", "Cedar", "Birch") for street in ("Avenue", "Street", "Lane")]
    first = "name,amount,pdf\n" + "".join(f"{name},{n * 37},a.pdf\n" for n, name in enumerate(names))
    edited = first.replace("Cedar Street,148", "Cedar Stret,148").replace("name,amount,pdf", "name,amount,pdf,more")
    edited = "\n".join(line + ("" if line.endswith("more") else ",new") for line in edited.splitlines()) + "\n"
    assert publisher.outcome(first) == ("released", 1)
    assert publisher.outcome(edited) == ("released", 2)
    return publisher


@pytest.fixture
def publisher(told, tmp_path):
    return told.copy(tmp_path)


def stored(publisher, number):
    """Give the bytes of a version's files by path."""
    version = publisher.version(number)
    files = (*version.files, *version.staff_files)
    return {file.path: b"".join(publisher.ports.files.read(f"{version.folder}/{file.path}")) for file in files}


def lose(publisher, number, *paths):
    version = publisher.version(number)
    for path in paths or [file.path for file in version.files]:
        publisher.ports.files.remove(f"{version.folder}/{path}")


def test_every_lost_file_has_the_same_bytes_again_under_a_new_attempt(publisher):
    before = stored(publisher, 2)
    assert {row["_ploti_match"] for row in publisher.rows(2, "changes")} == {"agent"}
    publisher.define(documents=(), drop=("amount",), attachments=())
    publisher.clock.advance(days=200)
    lose(publisher, 2)
    (restored,) = restore_current(publisher.ports).versions
    assert (restored.number, restored.attempt, restored.rebuilt_at) == (2, 2, publisher.clock.now())
    assert stored(publisher, 2) == before
    assert restore_current(publisher.ports) == Restored()


def test_a_working_server_makes_them_again_within_minutes(publisher):
    upkeep = Upkeep(tuple(piece for piece in UPKEEP if piece[1] is restore_current))
    upkeep.look_after(publisher.ports)
    lose(publisher, 2, "snapshot/part-0000.parquet")
    publisher.clock.advance(minutes=5)
    upkeep.look_after(publisher.ports)
    assert (lost_files(publisher.ports, publisher.version(2)), publisher.version(2).attempt) == ((), 2)


def test_a_first_version_is_made_again_from_its_state_alone(publisher):
    before = stored(publisher, 1)
    lose(publisher, 1, "snapshot/part-0000.parquet")
    restore(publisher.ports, publisher.version(1))
    assert stored(publisher, 1) == before


def test_a_damaged_file_is_found_by_its_checksum_and_a_cut_one_by_its_size(publisher):
    version = publisher.version(2)
    path = "snapshot/part-0000.parquet"
    file = publisher.ports.files.local(f"{version.folder}/{path}")
    content = file.read_bytes()
    file.write_bytes(content[:99] + bytes([content[99] ^ 1]) + content[100:])
    assert (lost_files(publisher.ports, version), lost_files(publisher.ports, version, deep=True)) == ((), (path,))
    file.write_bytes(content[:-1])
    assert lost_files(publisher.ports, version) == (path,)


def test_what_cannot_be_made_the_same_is_left_and_told(publisher):
    version = publisher.version(2)

    def refused(why, lost):
        with pytest.raises(RestoreFailed, match=why):
            restore(publisher.ports, lost)

    lose(publisher, 2, "manifest.json")
    for why, changed in (("its records", {"drop": ("amount",)}), ("its files", {"license": License("CC0-1.0")})):
        refused(f"{why} come out otherwise", replace(version, definition=replace(version.definition, **changed)))
    lose(publisher, 1)
    refused("the version before it is lost too", version)
    for path in list(publisher.ports.files.paths(f"{DATASET}/states/")):
        publisher.ports.files.remove(path)
    refused("not kept any more", version)
    lose(publisher, 2, "attachments.json")
    (why,) = restore_current(publisher.ports).failed
    assert "the list of its attachments is lost too" in why
    assert publisher.version(2) == version
    assert list(publisher.ports.files.paths(f"{DATASET}/versions/2/2/")) == []


def test_a_lost_list_of_attachments_is_taken_from_the_manifest(tmp_path):
    (tmp_path / "a.pdf").write_bytes(b"a plan")
    publisher = Publisher(tmp_path, key=("k",), attachments=(Attachment("original", str(tmp_path / "a.pdf")),))
    publisher.check(table(range(5)))
    before, listed = stored(publisher, 1), attachments_of(publisher.ports.files, publisher.version(1)).listed
    lose(publisher, 1, "attachments.json", "snapshot/part-0000.parquet")
    assert restore_current(publisher.ports).failed == ()
    assert stored(publisher, 1) | {"attachments.json": b""} == before | {"attachments.json": b""}
    assert attachments_of(publisher.ports.files, publisher.version(1)).listed == listed
    assert restore_current(publisher.ports, deep=True) == Restored()
    assert publisher.outcome(table(range(5))) == ("unchanged", 1)


def test_killed_before_its_end_it_is_made_again_and_the_rest_is_pruned(publisher):
    class Killed(BaseException):
        pass

    def reach(name):
        if name == "restore.before_commit":
            raise Killed

    before = stored(publisher, 2)
    lose(publisher, 2)
    with suppress(Killed):
        restore_current(replace(publisher.ports, reach=reach))
    restore_current(publisher.ports)
    assert stored(publisher, 2) == before
    publisher.clock.advance(timedelta(hours=25))
    prune(publisher.ports)
    attempts = {path.split("/")[3] for path in publisher.ports.files.paths(f"{DATASET}/versions/2/")}
    assert attempts == {"3"}


def test_versions_that_replaced_ids_or_were_released_again_are_made_again_too(tmp_path):
    publisher = Publisher(tmp_path, key=("k",))
    publisher.check(table(range(5)))
    for act in (publisher.replace_ids, lambda: publisher.release_again(2)):
        ((_, number),) = act()
        before = stored(publisher, number)
        lose(publisher, number)
        assert restore_current(publisher.ports).failed == ()
        assert stored(publisher, number) == before
    reasons = [publisher.version(number).resync_reason for number in (2, 3)]
    assert reasons == ["record_ids_changed", "previous_unavailable"]
