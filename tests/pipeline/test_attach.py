"""Attachments through the real builder: copied once, checked, named in rows, gone with their versions (D5.9)."""

import hashlib
import json
from datetime import timedelta

import pytest
from tests.pipeline.publishing import DATASET, Publisher

from ploti_server.domain.datasets import Attachment, SourceSpec
from ploti_server.pipeline.attach import attachments_of
from ploti_server.pipeline.prune import prune

ORDINANCE, PLAN = b"the ordinance", b"a plan"


def name(content):
    return f"document:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def publisher(tmp_path):
    (tmp_path / "ordinance.pdf").write_bytes(ORDINANCE)
    (tmp_path / "a.pdf").write_bytes(PLAN)
    (tmp_path / "b.pdf").write_bytes(PLAN)
    ordinance = Attachment("source:ordinance", str(tmp_path / "ordinance.pdf"))
    source = SourceSpec("file", str(tmp_path / "permits.csv"))
    return Publisher(tmp_path, source=source, key=("k",), documents=("pdf",), attachments=(ordinance,))


def rows(*cells):
    return "k,pdf\n" + "".join(f"{key},{cell}\n" for key, cell in enumerate(cells))


def listed(publisher, number):
    version = publisher.version(number)
    return {one.file: one for one in attachments_of(publisher.ports.files, version).listed}


def cells(publisher, number):
    return [row["pdf"] for row in sorted(publisher.rows(number), key=lambda row: row["k"])]


def copies(publisher):
    return list(publisher.ports.files.paths(f"{DATASET}/attachments/"))


class TestCopies:
    def test_cells_hold_the_name_of_their_document_and_rows_naming_one_share_it(self, publisher):
        publisher.check(rows("a.pdf", "b.pdf", "", "none.pdf"))
        assert cells(publisher, 1) == [name(PLAN), name(PLAN), None, "none.pdf"]
        assert list(listed(publisher, 1)) == ["source:ordinance", name(PLAN)]
        assert len(copies(publisher)) == 2

    def test_the_manifest_lists_them_without_a_path(self, publisher):
        publisher.check(rows("a.pdf"))
        stored = publisher.ports.files.read(f"{publisher.version(1).folder}/manifest.json")
        told = json.loads(b"".join(stored))["attachments"]
        assert told[0] == {
            "file": "source:ordinance", "filename": "ordinance.pdf", "contentType": "application/pdf",
            "sizeBytes": len(ORDINANCE), "sha256": hashlib.sha256(ORDINANCE).hexdigest(),
        }  # fmt: skip
        assert [one["file"] for one in told] == list(listed(publisher, 1))

    def test_the_same_bytes_are_stored_once_over_versions_also_where_they_come_back(self, publisher):
        publisher.check(rows("a.pdf"))
        publisher.check(rows("b.pdf", ""))
        publisher.check(rows("", ""))
        publisher.check(rows("", "a.pdf"))
        paths = [listed(publisher, number)[name(PLAN)].path for number in (1, 2, 4)]
        assert len({*paths}) == 1
        assert name(PLAN) not in listed(publisher, 3)
        assert len(copies(publisher)) == 2


class TestVersions:
    def test_an_attachment_that_changed_is_a_version_with_zero_counts(self, publisher):
        publisher.check(rows("a.pdf"))
        assert publisher.outcome(rows("a.pdf")) == ("unchanged", 1)
        (publisher.folder / "ordinance.pdf").write_bytes(b"another")
        assert publisher.outcome(rows("a.pdf")) == ("released", 2)
        version = publisher.version(2)
        assert (version.counts.added, version.counts.changed, version.counts.removed) == (0, 0, 0)
        assert version.resync_reason is None
        assert listed(publisher, 2)["source:ordinance"].sha256 == hashlib.sha256(b"another").hexdigest()

    def test_a_document_that_changed_changes_its_row(self, publisher):
        publisher.check(rows("a.pdf", "b.pdf"))
        (publisher.folder / "a.pdf").write_bytes(b"a newer plan")
        assert publisher.outcome(rows("a.pdf", "b.pdf")) == ("released", 2)
        assert cells(publisher, 2) == [name(b"a newer plan"), name(PLAN)]
        assert publisher.version(2).counts.changed == 1

    def test_a_copy_that_fails_keeps_the_rows_name_and_makes_no_version(self, publisher):
        publisher.check(rows("a.pdf"))
        for lost in ("a.pdf", "ordinance.pdf"):
            (publisher.folder / lost).unlink()
        done = publisher.check(rows("a.pdf"))
        assert (done.outcome, done.facts["left_out"]) == ("unchanged", 2)
        assert publisher.outcome(rows("a.pdf", "")) == ("released", 2)
        assert cells(publisher, 2) == [name(PLAN), None]
        assert list(listed(publisher, 2)) == [name(PLAN)]

    @pytest.mark.parametrize("right", [True, False])
    def test_a_checksum_known_beforehand_is_checked_and_a_mismatch_leaves_the_file_out(self, publisher, right):
        sha256 = hashlib.sha256(ORDINANCE).hexdigest() if right else "0" * 64
        publisher.define(attachments=(Attachment("original", str(publisher.folder / "ordinance.pdf"), sha256),))
        done = publisher.check(rows("a.pdf"))
        assert list(listed(publisher, 1)) == (["original", name(PLAN)] if right else [name(PLAN)])
        assert ("original" in done.facts["left_out_because"]) is not right

    def test_a_dataset_with_no_stored_files_has_no_attachments(self, publisher):
        publisher.define(documents=(), attachments=())
        publisher.check(rows("a.pdf"))
        assert cells(publisher, 1) == ["a.pdf"]
        assert listed(publisher, 1) == {}
        assert copies(publisher) == []


class TestRetention:
    def test_a_copy_is_kept_as_long_as_a_version_that_lists_it_keeps_its_snapshot(self, publisher):
        publisher.check(rows("a.pdf"))
        (publisher.folder / "a.pdf").write_bytes(b"a newer plan")
        for number in (2, 3, 4):
            publisher.check(rows("a.pdf", *[""] * number))
        gone = listed(publisher, 1)[name(PLAN)].path
        publisher.clock.advance(timedelta(days=90))
        prune(publisher.ports)
        publisher.clock.advance(timedelta(hours=24))
        prune(publisher.ports)
        assert gone in copies(publisher)
        publisher.clock.advance(timedelta(hours=1))
        prune(publisher.ports)
        kept = {one.path for one in listed(publisher, 4).values()}
        assert set(copies(publisher)) == kept

    def test_a_list_that_was_lost_lets_no_copy_go(self, publisher):
        publisher.check(rows("a.pdf"))
        publisher.check(rows("a.pdf", ""))
        publisher.ports.files.remove(f"{publisher.version(2).folder}/attachments.json")
        publisher.clock.advance(timedelta(days=200))
        prune(publisher.ports)
        assert len(copies(publisher)) == 2
