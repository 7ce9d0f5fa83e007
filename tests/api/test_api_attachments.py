"""Attachments over the API: listed with a version, in the manifest, and linked by name (page 001 "Attachments")."""

import hashlib
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from tests.api.conftest import DATASETS

from ploti_server.domain.attachments import Attached, Attachments, attachment_path
from ploti_server.domain.datasets import Attachment
from ploti_server.domain.versions import StoredFile
from ploti_server.pipeline.prune import prune

VERSIONS = "/v1/feeds/datasets/ds_orange/versions"
CONTENT = b"%PDF-1.7 an ordinance"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PATH = attachment_path("ds_orange", SHA256, 1, 1)
NAMES = ["original", "source:zoning-ordinance", f"document:{SHA256}"]


def attached(served, number, names=NAMES, **other):
    """Put a released version with attachments of one content."""
    version = served.version("ds_orange", number, **other)
    listed = tuple(Attached(name, "Ordinance ☂.pdf", "application/pdf", len(CONTENT), SHA256, PATH) for name in names)
    served.ports.files.put_bytes(PATH, CONTENT)
    content = msgspec.json.encode(Attachments(listed))
    served.ports.files.put_bytes(f"{version.folder}/attachments.json", content)
    file = StoredFile("attachments.json", "application/json", len(content), "0" * 64)
    with served.ports.store.write() as records:
        records.versions.put(replace(version, staff_files=(file,)))


@pytest.fixture
def subscribed(served):
    served.subscription = served.subscribe(places=["fl-county-orange"])
    attached(served, 1)
    return served


def test_a_version_lists_them_by_name(subscribed):
    found = subscribed.get(f"{VERSIONS}/1").json()["files"]["attachments"]
    assert [one["file"] for one in found] == NAMES


def test_sha256_is_the_checksum_of_the_bytes_that_its_link_gives(subscribed):
    for one in subscribed.get(f"{VERSIONS}/1").json()["files"]["attachments"]:
        content = subscribed.client.get(one["url"]).content
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (one["sha256"], one["sizeBytes"])


def test_each_has_the_shape_of_the_contracts_example(subscribed):
    one = subscribed.get(f"{VERSIONS}/1").json()["files"]["attachments"][1]
    assert list(one) == ["file", "filename", "contentType", "sizeBytes", "sha256", "url"]
    url = one.pop("url")
    assert one == {
        "file": "source:zoning-ordinance",
        "filename": "Ordinance ☂.pdf",
        "contentType": "application/pdf",
        "sizeBytes": len(CONTENT),
        "sha256": SHA256,
    }
    answer = subscribed.client.get(url)
    assert answer.headers["content-type"] == "application/pdf"
    assert "filename*=UTF-8''Ordinance%20%E2%98%82.pdf" in answer.headers["content-disposition"]


def test_the_subscriptions_manifest_lists_them_too(subscribed):
    found = subscribed.get(f"/v1/feeds/subscriptions/{subscribed.subscription}/manifest").json()
    assert [one["file"] for one in found["datasets"][0]["files"]["attachments"]] == NAMES


def test_links_are_signed_by_name_beside_paths(subscribed):
    names = ["source:zoning-ordinance", "manifest.json", "source:nothing", NAMES[2], "attachments.json"]
    answer = subscribed.post(f"{VERSIONS}/1/links", {"files": names}).json()
    assert [file["file"] for file in answer["files"]] == ["source:zoning-ordinance", "manifest.json", NAMES[2]]
    assert answer["missing"] == ["source:nothing", "attachments.json"]
    assert subscribed.client.get(answer["files"][0]["url"]).content == CONTENT


def test_the_contracts_example_of_three_files_is_answered_with_a_link_to_each(subscribed):
    names = ["source:zoning-ordinance", "original", "snapshot/part-0000.parquet"]
    answer = subscribed.post(f"{VERSIONS}/1/links", {"files": names}).json()
    assert ([file["file"] for file in answer["files"]], answer["missing"]) == (names, [])
    assert [subscribed.client.get(file["url"]).status_code for file in answer["files"]] == [200] * 3


def test_each_is_read_by_the_name_that_it_is_listed_under(subscribed):
    for name in NAMES:
        told = subscribed.get(f"/v1/datasets/ds_orange/files/{name}").json()
        assert (told["datasetId"], told["version"], told["file"], told["sha256"]) == ("ds_orange", 1, name, SHA256)
        assert subscribed.client.get(told["url"]).content == CONTENT
    for name in ("source:nothing", "schema.json", "attachments.json"):
        assert subscribed.get(f"/v1/datasets/ds_orange/files/{name}").status_code == 404
    for who, code in (("other", "outside_coverage"), ("hooks", "not_allowed")):
        assert subscribed.get("/v1/datasets/ds_orange/files/original", who).json()["error"]["code"] == code


def test_the_archived_copy_of_a_source_has_its_id_from_the_provenance(subscribed):
    attachments = (Attachment(NAMES[1], "https://gis.example.org/code.pdf"), Attachment("source:plan", "/srv/plan.pdf"))
    subscribed.put_catalog(replace(DATASETS[0], attachments=attachments))
    assert subscribed.get("/v1/datasets/ds_orange/provenance").json()["sources"] == [
        {"id": "main", "url": "https://gis.example.org/data.csv", "file": None},
        {"id": "zoning-ordinance", "url": "https://gis.example.org/code.pdf", "file": "source:zoning-ordinance"},
        {"id": "plan", "url": None, "file": "source:plan"},
    ]


def test_a_version_without_them_has_none(subscribed):
    subscribed.version("ds_orange", 2, previous_version=1)
    assert subscribed.get(f"{VERSIONS}/2").json()["files"]["attachments"] == []


def test_past_retention_the_links_are_missing_and_the_copy_stays_while_another_version_lists_it(subscribed):
    for number in (2, 3):
        attached(subscribed, number, NAMES[:1], previous_version=number - 1)
    for days in (90, 2):
        subscribed.clock.advance(timedelta(days=days))
        prune(subscribed.ports)
        assert subscribed.post(f"{VERSIONS}/1/links", {"files": NAMES}).json()["missing"] == NAMES
    assert subscribed.ports.files.stat("ds_orange/versions/1/1/attachments.json") is None
    (one,) = subscribed.get(f"{VERSIONS}/3").json()["files"]["attachments"]
    assert subscribed.client.get(one["url"]).content == CONTENT
