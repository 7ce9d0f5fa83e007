"""Attachments through the real builder, as one story of states: copied once, checked, named in rows (D5.9)."""

import hashlib
import json

import pytest
from tests.pipeline.publishing import DATASET, Publisher

from ploti_server.app import rehearsal_of
from ploti_server.domain.datasets import Attachment, SourceSpec
from ploti_server.pipeline.attach import attachments_of
from ploti_server.pipeline.check import GivenState
from ploti_server.pipeline.rehearse import rehearse

ORDINANCE, NEWER, PLAN, REVISED = b"the ordinance", b"a newer ordinance", b"a plan", b"a revised plan"


def name(content):
    return f"document:{hashlib.sha256(content).hexdigest()}"


def rows(*cells):
    return "k,pdf\n" + "".join(f"{key},{cell}\n" for key, cell in enumerate(cells))


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A publisher that has been through all states, with the check of each."""
    folder = tmp_path_factory.mktemp("attach")
    ordinance, map_ = folder / "ordinance.pdf", folder / "map.pdf"
    for file, content in ((ordinance, ORDINANCE), (map_, b"a map"), (folder / "a.pdf", PLAN), (folder / "b.pdf", PLAN)):
        file.write_bytes(content)
    attachments = (
        Attachment("source:ordinance", str(ordinance), hashlib.sha256(ORDINANCE).hexdigest()),
        Attachment("original", str(map_), "0" * 64),
    )
    source = SourceSpec("file", str(folder / "permits.csv"))
    told = Publisher(folder, source=source, key=("k",), documents=("pdf",), attachments=attachments)
    told.first = told.check(rows("a.pdf", "b.pdf", "", "none.pdf"))
    told.same = told.check(rows("a.pdf", "b.pdf", "", "none.pdf"))
    told.define(attachments=(Attachment("source:ordinance", str(ordinance)), Attachment("original", str(map_))))
    ordinance.write_bytes(NEWER)
    told.newer = told.check(rows("a.pdf", "b.pdf", "", "none.pdf"))
    (folder / "a.pdf").write_bytes(REVISED)
    told.revised = told.check(rows("a.pdf", "b.pdf", "", "none.pdf"))
    for lost in (ordinance, folder / "b.pdf"):
        lost.unlink()
    told.failing = told.check(rows("a.pdf", "b.pdf", "", "none.pdf"))
    told.without = told.check(rows("a.pdf", "", "", "none.pdf"))
    (folder / "b.pdf").write_bytes(PLAN)
    told.back = told.check(rows("a.pdf", "b.pdf", "", "none.pdf"))
    told.lost = listed(told, 5)[name(PLAN)].path
    told.ports.files.remove(told.lost)
    told.again = told.check(rows("a.pdf", "b.pdf", "", "none.pdf"))
    return told


def listed(story, number):
    version = story.version(number)
    return {one.file: one for one in attachments_of(story.ports.files, version).listed}


def cells(story, number):
    return [row["pdf"] for row in sorted(story.rows(number), key=lambda row: row["k"])]


def outcome(check):
    return check.outcome, check.version


def named(tmp_path):
    """A publisher with documents that rows name: `a.pdf` and `b.pdf` have the same bytes, `c.pdf` has others."""
    source = SourceSpec("file", str(tmp_path / "permits.csv"))
    for file, content in (("a.pdf", PLAN), ("b.pdf", PLAN), ("c.pdf", REVISED)):
        (tmp_path / file).write_bytes(content)
    return Publisher(tmp_path, source=source, key=("k",), documents=("pdf",))


def test_they_are_the_files_held_as_of_the_version(tmp_path):
    """One stays, one goes, one comes, and what goes is still held as of the version that had it."""
    publisher = named(tmp_path)
    ordinance = tmp_path / "ordinance.pdf"
    ordinance.write_bytes(ORDINANCE)
    publisher.check(rows("a.pdf", "c.pdf"))
    publisher.define(attachments=(Attachment("source:ordinance", str(ordinance)),))
    publisher.check(rows("a.pdf"))
    assert set(listed(publisher, 1)) == {name(PLAN), name(REVISED)}
    assert set(listed(publisher, 2)) == {"source:ordinance", name(PLAN)}
    assert set(told_attachments(publisher, 2)) == {"source:ordinance", name(PLAN)}


def content(story, one):
    return b"".join(story.ports.files.read(one.path))


def test_original_is_the_file_that_was_downloaded_for_the_dataset(story):
    assert content(story, listed(story, 2)["original"]) == b"a map"


def test_document_and_its_sha256_is_a_file_stored_per_row(story):
    documents = {file: one for file, one in listed(story, 3).items() if file.startswith("document:")}
    assert {file: content(story, one) for file, one in documents.items()} == {
        f"document:{hashlib.sha256(bytes_).hexdigest()}": bytes_ for bytes_ in (PLAN, REVISED)
    }


def test_a_rows_cell_holds_the_name_of_its_document(story):
    assert cells(story, 1) == [name(PLAN), name(PLAN), None, "none.pdf"]


def test_rows_naming_one_document_share_one_attachment(tmp_path):
    """Also where they name it by two addresses."""
    publisher = named(tmp_path)
    publisher.check(rows("a.pdf", "c.pdf", "b.pdf", "a.pdf"))
    assert cells(publisher, 1) == [name(PLAN), name(REVISED), name(PLAN), name(PLAN)]
    files = sorted([name(PLAN), name(REVISED)])
    assert [one.file for one in attachments_of(publisher.ports.files, publisher.version(1)).listed] == files
    assert [one["file"] for one in manifest(publisher, 1)["attachments"]] == files


def test_a_copy_is_checked_against_a_checksum_known_beforehand(story):
    assert listed(story, 1)["source:ordinance"].sha256 == hashlib.sha256(ORDINANCE).hexdigest()
    assert "not the one that the catalog tells" in story.first.facts["left_out_because"]["original"]


def test_a_copy_that_does_not_match_or_could_not_be_made_is_left_out_of_that_version(story):
    told = story.first.facts
    assert (told["attachments"], told["left_out"], len(told["left_out_because"])) == (2, 2, 2)
    assert not {"original", "none.pdf"} & listed(story, 1).keys()


def test_the_same_file_has_the_same_sha256_in_several_versions(story):
    assert {listed(story, number)[name(PLAN)].sha256 for number in (1, 2, 3, 5)} == {hashlib.sha256(PLAN).hexdigest()}


def manifest(story, number):
    return json.loads(b"".join(story.ports.files.read(f"{story.version(number).folder}/manifest.json")))


def told_attachments(story, number):
    """Give the attachments of a version's manifest by name."""
    return {one["file"]: one for one in manifest(story, number)["attachments"]}


def test_the_manifest_lists_them_without_a_path(story):
    told = told_attachments(story, 1)
    assert told["source:ordinance"] == {
        "file": "source:ordinance", "filename": "ordinance.pdf", "contentType": "application/pdf",
        "sizeBytes": len(ORDINANCE), "sha256": hashlib.sha256(ORDINANCE).hexdigest(),
    }  # fmt: skip
    assert list(told) == list(listed(story, 1))


def test_an_attachment_that_changed_or_came_is_a_version_with_zero_counts(story):
    assert list(listed(story, 1)) == ["source:ordinance", name(PLAN)]
    assert list(listed(story, 2)) == ["original", "source:ordinance", name(PLAN)]
    assert [outcome(story.same), outcome(story.newer)] == [("unchanged", 1), ("released", 2)]
    version = story.version(2)
    assert (version.counts.added, version.counts.changed, version.counts.removed) == (0, 0, 0)
    assert version.resync_reason is None
    held = [listed(story, number)["source:ordinance"] for number in (1, 2)]
    assert [content(story, one) for one in held] == [ORDINANCE, NEWER]
    assert held[1].sha256 == hashlib.sha256(NEWER).hexdigest()


def test_a_document_that_changed_changes_its_row(story):
    assert outcome(story.revised) == ("released", 3)
    assert cells(story, 3) == [name(REVISED), name(PLAN), None, "none.pdf"]
    assert story.version(3).counts.changed == 1


def test_a_copy_that_fails_keeps_the_rows_name_and_makes_no_version_by_itself(story):
    assert outcome(story.failing) == ("unchanged", 3)
    assert sorted(story.failing.facts["left_out_because"])[-1] == "source:ordinance"
    assert outcome(story.without) == ("released", 4)
    assert cells(story, 4) == [name(REVISED), None, None, "none.pdf"]
    assert list(listed(story, 4)) == ["original", name(REVISED)]


def test_a_copy_that_was_lost_is_put_back(story):
    assert outcome(story.again) == ("unchanged", 5)
    assert b"".join(story.ports.files.read(story.lost)) == PLAN


def test_the_same_bytes_are_stored_once_over_versions_also_where_they_come_back(story):
    assert outcome(story.back) == ("released", 5)
    paths = [listed(story, number)[name(PLAN)].path for number in (1, 2, 3, 5)]
    assert len({*paths}) == 1
    copies = [path.split("/")[2] for path in story.ports.files.paths(f"{DATASET}/attachments/")]
    kept = (ORDINANCE, NEWER, PLAN, REVISED, b"a map")
    assert copies == sorted(hashlib.sha256(content).hexdigest() for content in kept)


def test_no_cell_reaches_the_servers_own_files_or_follows_a_link_out_of_its_sources_folder(tmp_path):
    (tmp_path / "county").mkdir()
    (tmp_path / "secret.txt").write_bytes(b"a secret")
    source = SourceSpec("file", str(tmp_path / "county" / "permits.csv"))
    publisher = Publisher(tmp_path / "county", source=source, key=("k",), documents=("pdf",))
    folder = publisher.folder
    (folder / "a.pdf").write_bytes(PLAN)
    (folder / "same.pdf").symlink_to("a.pdf")
    (folder / "out.pdf").symlink_to(tmp_path / "secret.txt")
    (folder / "around").symlink_to(tmp_path)
    (folder / "ring").symlink_to("ring")
    (folder / "permits.csv").write_text("k,kept_back\n1,x\n")
    own = ["home/webhooks.key", "home/ploti.db", "around/county/home/ploti.db", "permits.csv"]
    named = ["out.pdf", "around/secret.txt", "ring", *own]
    assert publisher.check(rows("same.pdf", *named)).outcome == "released"
    assert cells(publisher, 1) == [name(PLAN), *named]
    assert list(listed(publisher, 1)) == [name(PLAN)]


def test_a_rehearsal_keeps_back_what_a_check_keeps_back(tmp_path):
    """The home folder lies in the source's folder, and a rehearsal works in a folder of its own."""
    publisher = named(tmp_path)
    state = tmp_path / "permits.csv"
    state.write_text(rows("a.pdf", "home/webhooks.key", "home/ploti.db", ".hidden", "../out.pdf"))
    with rehearsal_of(publisher.ports) as (spare, _):
        told = rehearse(publisher.ports, spare, DATASET, GivenState(state, None)).check.facts
    assert (told["attachments"], told["left_out"]) == (1, 0)
    done = publisher.check(state.read_text()).facts
    assert (done["attachments"], done["left_out"]) == (1, 0)


def test_an_address_in_capitals_is_called_and_is_no_file(tmp_path):
    publisher = Publisher(tmp_path, key=("k",), documents=("pdf",))
    told = publisher.check(rows("HTTP://127.0.0.1:9/a.pdf")).facts["left_out_because"]
    assert "No such file" not in told["HTTP://127.0.0.1:9/a.pdf"]
