"""Attachments in a folder: safe names, no file of others touched, goes on after trouble (page 001, F079)."""

import hashlib
import json
from dataclasses import replace

import pytest

from ploti import Client, Retries
from ploti.errors import BadAnswer, Reload
from ploti.sync.attachments import follow_attachments, save_attachments
from ploti.sync.plan import Held
from ploti.sync.target import Progress
from ploti.testing import FakeApi

D = "ds_orange_permits"
SNAPSHOT = {"snapshot/part-0000.parquet": b"PAR1"}


@pytest.fixture
def api():
    api = FakeApi()
    api.add_dataset(D)
    api.subscribe("sub_1", places=["fl-county-orange"])
    return api


def publish(api, attachments, names=None):
    """Publish a version with attachments by name; `names` are their file names."""
    number = api.publish(D, files=SNAPSHOT, attachments=attachments)["version"]
    versions = api.state.datasets[D].versions
    listed = {
        file: replace(one, filename=(names or {}).get(file, one.filename))
        for file, one in versions[number].attachments.items()
    }
    versions[number] = replace(versions[number], attachments=listed)
    return number


def follow(api, version, folder):
    with Client(**api.client_options, retries=Retries(attempts=1)) as client:
        return follow_attachments(client, [Held(D, version, state="ok")], folder, Progress())


def stored(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "attachments.json"}


def index(folder):
    return {one["file"]: one["path"] for one in json.loads((folder / "attachments.json").read_text())["attachments"]}


HARD = {
    "source:a": "../../.bashrc",
    "source:b": "/etc/x",
    "source:c": "CON",
    "source:d": "a\0b.pdf",
    "source:e": "x" * 300 + ".pdf",
    "source:f": "same.pdf",
    "source:g": "same.pdf",
    "source:h": "SAME.PDF",
    "source:i": "attachments.json",
    "source:j": "..",
}


def test_files_lie_only_inside_the_folder_each_under_a_name_of_its_own(api, tmp_path):
    contents = {file: file.encode() for file in HARD}
    version = publish(api, contents, HARD)
    (report,) = follow(api, version, tmp_path / "files")
    assert (report.files, report.fetched, report.problem) == (len(HARD), len(HARD), None)
    assert [path.name for path in tmp_path.iterdir()] == ["files"]
    folder = tmp_path / "files" / D
    names = index(folder)
    assert {file: (folder / name).read_bytes() for file, name in names.items()} == contents
    assert len({name.casefold() for name in names.values()}) == len(HARD)
    assert all(path.is_file() for path in folder.iterdir())
    assert names["source:f"] == "same.pdf"
    assert names["source:g"] == f"same-{hashlib.sha256(b'source:g').hexdigest()[:12]}.pdf"


def test_what_is_there_is_not_fetched_again_and_a_file_of_somebody_else_stays(api, tmp_path):
    folder = tmp_path / D
    folder.mkdir()
    (folder / "plan.pdf").write_bytes(b"mine")
    first = publish(api, {"original": b"one"}, {"original": "plan.pdf"})
    follow(api, first, tmp_path)
    assert follow(api, first, tmp_path) == ()
    kept = index(folder)["original"]
    assert stored(folder) == {"plan.pdf": b"mine", kept: b"one"}
    second = publish(api, {"original": b"one", "source:a": b"two"}, {"original": "plan.pdf", "source:a": "a.pdf"})
    (report,) = follow(api, second, tmp_path)
    assert (report.files, report.fetched, report.removed) == (2, 1, 0)
    third = publish(api, {"source:a": b"other"}, {"source:a": "a.pdf"})
    (report,) = follow(api, third, tmp_path)
    assert (report.files, report.fetched, report.removed) == (1, 1, 1)
    assert stored(folder) == {"plan.pdf": b"mine", "a.pdf": b"other"}
    fourth = publish(api, {})
    (report,) = follow(api, fourth, tmp_path)
    assert stored(folder) == {"plan.pdf": b"mine"}


def test_rows_that_name_one_document_find_one_file(api, tmp_path):
    document = f"document:{hashlib.sha256(b'plan').hexdigest()}"
    version = publish(api, {document: b"plan", "original": b"plan"}, {document: "p.pdf", "original": "p.pdf"})
    follow(api, version, tmp_path)
    assert index(tmp_path / D) == {document: "p.pdf", "original": "p.pdf"}
    assert stored(tmp_path / D) == {"p.pdf": b"plan"}


def test_a_version_past_retention_leaves_what_is_there_and_says_so(api, tmp_path):
    first = publish(api, {"original": b"one"})
    follow(api, first, tmp_path)
    second = publish(api, {"original": b"two"})
    publish(api, {"original": b"three"})
    api.keep(D, second, "pruned")
    (report,) = follow(api, second, tmp_path)
    assert "past retention" in report.problem
    assert b"one" in stored(tmp_path / D).values()


class Expired:
    """Answers as the API does for the last version of a MAJOR that is past retention: refused, but signed by name."""

    def __init__(self, versions):
        self._versions, self.asked = versions, []

    def get(self, dataset, version):
        raise Reload("past retention", code="expired")

    def download(self, dataset, version, file, to):
        return self._versions.download(dataset, version, file, to)

    def links(self, dataset, version, *, files):
        self.asked.append(len(files))
        return self._versions.links(dataset, version, files=files)


def test_the_last_version_of_a_major_is_had_by_name_past_retention(api, tmp_path):
    many = {f"source:{number}": b"%d" % number for number in range(201)}
    version = publish(api, many)
    with Client(**api.client_options) as client:
        expired = client.feeds.datasets.versions = Expired(client.feeds.datasets.versions)
        (report,) = follow_attachments(client, [Held(D, version, state="ok")], tmp_path, Progress())
    assert (report.files, report.problem, expired.asked) == (201, None, [200, 1])
    assert index(tmp_path / D).keys() == many.keys()


def test_expired_links_are_signed_anew_by_name(api, tmp_path):
    version = publish(api, {"original": b"one"})
    with Client(**api.client_options, retries=Retries(attempts=1)) as client:
        listed = client.feeds.datasets.versions.get(D, version)["files"]["attachments"]
        api.expire_links()
        report = save_attachments(client, D, version, listed, tmp_path, progress=Progress())
    assert (report.problem, list(stored(tmp_path).values())) == (None, [b"one"])


def test_a_checksum_that_is_none_is_refused(api, tmp_path):
    version = publish(api, {"original": b"one"})
    with Client(**api.client_options, retries=Retries(attempts=1)) as client:
        (one,) = client.feeds.datasets.versions.get(D, version)["files"]["attachments"]
        with pytest.raises(BadAnswer, match="checksum"):
            save_attachments(client, D, version, [one | {"sha256": "../x"}], tmp_path, progress=Progress())
