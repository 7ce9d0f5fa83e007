"""The fake is as strict as the service, its answers have the contract's shapes, and its faults do what they say."""

import json
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from pydantic import TypeAdapter

from ploti.contract import events, resources
from ploti.contract.errors import ErrorBody
from ploti.testing import FakeApi
from ploti.testing.fake_http import FakeRequest

DATASETS, SUBS = "/v1/feeds/datasets", "/v1/feeds/subscriptions"
PERMITS = f"{DATASETS}/ds_orange_permits"


@pytest.fixture
def http(fake):
    headers = {"authorization": f"Bearer {fake.api_key}"}
    with httpx2.Client(transport=fake.transport, base_url=fake.base_url, headers=headers) as http:
        yield http


def check(shape, value):
    """A value is of a shape, strictly, and has no member that the shape lacks."""
    assert TypeAdapter(shape).validate_python(value, strict=True) == value


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/places", resources.PlaceList),
        ("/v1/topics", resources.TopicList),
        (DATASETS, resources.DatasetPage),
        (PERMITS, resources.Dataset),
        (f"{DATASETS}/ds_orange_zoning", resources.Dataset),
        (f"{PERMITS}/schema", resources.Schema),
        (f"{PERMITS}/schemas", resources.SchemaList),
        (f"{PERMITS}/records/rec_a", resources.RecordTrace),
        ("/v1/datasets/ds_orange_permits/schema?version=1", resources.Schema),
        ("/v1/datasets/ds_orange_permits/schemas", resources.SchemaList),
        (f"{PERMITS}/versions", resources.VersionPage),
        (f"{PERMITS}/versions/2", resources.Version),
        (SUBS, resources.SubscriptionPage),
        (f"{SUBS}/sub_orange", resources.Subscription),
        (f"{SUBS}/sub_orange/manifest", resources.SubscriptionManifest),
        (f"{SUBS}/sub_orange/events", events.EventPage),
    ],
)
def test_answers_have_the_contracts_shapes(http, path, shape):
    answer = http.get(path)
    assert answer.status_code == 200
    check(shape, answer.json())


def test_events_have_the_contracts_shapes(fake, http):
    changed = {
        "kind": "additive",
        "previousSchemaVersion": "1.0",
        "added": [],
        "removed": [],
        "retyped": [],
        "nullabilityChanged": [],
        "keyColumnsChanged": False,
    }
    schema = {**http.get(f"{PERMITS}/schema").json(), "schemaVersion": "1.1", "changeFromPrevious": changed}
    fake.publish("ds_orange_permits", files={}, schema=schema)
    fake.hold("ds_orange_permits")
    fake.change_dataset("ds_orange_zoning", deliverable=False)
    shapes = {
        "feed.dataset.added": events.AddedData,
        "feed.dataset.resync_required": events.ResyncData,
        "feed.dataset.updated": events.UpdatedData,
        "feed.dataset.schema_changed": events.SchemaChangedData,
        "feed.dataset.delayed": events.DelayedData,
        "feed.dataset.removed": events.RemovedData,
    }
    log = http.get(f"{SUBS}/sub_orange/events").json()["events"]
    assert {event["type"] for event in log} == shapes.keys()
    for event in log:
        check(shapes[event["type"]], event["data"])
    types = [event["type"] for event in log if event["data"].get("version") == 3]
    assert types[:2] == ["feed.dataset.schema_changed", "feed.dataset.updated"]


def test_a_versions_documents_have_their_shapes_and_checksums(http, fake):
    fake.publish("ds_orange_permits", files={}, manifest={"digest": {"aa": [1, 2, 3, 4, 5]}, "constants": {"a": 1}})
    files = http.get(f"{PERMITS}/versions/3").json()["files"]
    manifest = http.get(files["manifest"]["url"]).json()
    check(resources.VersionManifest, manifest)
    assert (manifest["digest"], manifest["constants"]) == ({"aa": [1, 2, 3, 4, 5]}, {"a": 1})
    check(resources.Schema, http.get(files["schema"]["url"]).json())
    assert [file["sha256"] for file in manifest["files"]] == [files["schema"]["sha256"]]


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/v1/topics?x=1", None, "invalid_input"),
        ("GET", f"{DATASETS}?limit=1&limit=2", None, "invalid_input"),
        ("GET", f"{DATASETS}?limit=", None, "invalid_input"),
        ("GET", f"{DATASETS}?limit=+1", None, "invalid_input"),
        ("GET", f"{DATASETS}?topic=made-up", None, "invalid_input"),
        ("GET", f"{DATASETS}?updatedSince=yesterday", None, "invalid_input"),
        ("GET", f"{DATASETS}?updatedSince=2026-01-01T00:00:00", None, "invalid_input"),
        ("GET", "/v1/places?kind=village", None, "invalid_input"),
        ("GET", "/v1/places?deliverable=yes", None, "invalid_input"),
        ("GET", f"{PERMITS}/versions?order=up", None, "invalid_input"),
        ("GET", f"{PERMITS}/versions/02", None, "not_found"),
        ("GET", f"{PERMITS}/schema?version=9", None, "not_found"),
        ("GET", "/v1/nothing", None, "not_found"),
        ("GET", f"{DATASETS}/", None, "not_found"),
        ("PUT", DATASETS, None, "method_not_allowed"),
        ("POST", SUBS, b"{", "invalid_input"),
        ("POST", SUBS, b"[]", "invalid_input"),
        ("POST", SUBS, b'{"name": "A", "places": ["fl-county-orange"], "owner": "me"}', "invalid_input"),
        ("POST", SUBS, b'{"name": " ", "places": ["fl-county-orange"]}', "invalid_input"),
        ("POST", SUBS, b'{"name": "A", "places": "fl-county-orange"}', "invalid_input"),
        ("POST", SUBS, b'{"name": "A", "places": ["fl-county-orange"], "topics": ["made-up"]}', "invalid_input"),
        ("POST", f"{PERMITS}/versions/2/links", b'{"files": "snapshot"}', "invalid_input"),
        ("POST", f"{PERMITS}/records", b'{"records": "rec_a"}', "invalid_input"),
    ],
)
def test_it_refuses_what_the_service_refuses(http, method, path, body, code):
    answer = http.request(method, path, content=body)
    check(ErrorBody, answer.json())
    assert answer.json()["error"]["code"] == code


def test_keys_and_permissions(fake, http):
    fake.add_key("ploti_member", admin=False)
    fake.add_key("ploti_hooks", permissions=["webhooks"])
    body = {"name": "A", "places": ["fl-county-orange"]}

    def code(key, method="GET", **kwargs):
        answer = http.request(method, SUBS, headers={"authorization": key}, **kwargs)
        return answer.json()["error"]["code"] if answer.is_error else answer.status_code

    assert code("Bearer ploti_member") == 200
    assert code("Bearer ploti_member", "POST", json=body) == "not_allowed"
    assert code("Bearer ploti_hooks") == "not_allowed"
    assert code("Basic ploti_member") == "unauthenticated"
    fake.revoke_key("ploti_member")
    assert code("Bearer ploti_member") == "unauthenticated"


def test_the_twenty_sixth_subscription_is_refused(http):
    body = {"name": "A", "places": ["fl-county-orange"]}
    codes = [http.post(SUBS, json=body).status_code for _ in range(26)]
    assert codes == [201] * 24 + [409] * 2  # one was there


def test_a_cursor_is_bound_to_its_filters(http, fake):
    cursor = http.get(f"{DATASETS}?limit=1").json()["nextCursor"]
    assert http.get(DATASETS, params={"limit": 2, "cursor": cursor}).status_code == 200
    assert http.get(DATASETS, params={"place": "fl-county-orange", "cursor": cursor}).status_code == 400


def test_a_link_ends_at_its_hour():
    now = [datetime(2026, 11, 30, 12, tzinfo=UTC)]
    fake = FakeApi(clock=lambda: now[0])
    fake.add_dataset("ds_a")
    fake.subscribe(dataset_ids=["ds_a"])
    fake.publish("ds_a", files={"snapshot/part-0000.parquet": b"x"})
    url = fake.links.url(fake.state.datasets["ds_a"].versions[1], "snapshot/part-0000.parquet")
    with httpx2.Client(transport=fake.transport) as http:
        now[0] += timedelta(seconds=3599)
        assert http.get(url).status_code == 200
        now[0] += timedelta(seconds=1)
        assert http.get(url).status_code == 403


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_link_answers_reads_only(http, method):
    url = http.get(f"{PERMITS}/versions/2").json()["files"]["schema"]["url"]
    answer = http.request(method, url)
    assert (answer.status_code, len(answer.content) > 0) == (200, method == "GET")
    assert http.post(url).status_code == 405


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [
        ("bytes=0-2", 206, b"two"),
        ("bytes=2997-", 206, b"two"),
        ("bytes=2998-9999", 206, b"wo"),
        ("bytes=3000-", 416, None),
    ],
)
def test_ranges(http, asked, status, content):
    url = http.get(f"{PERMITS}/versions/2").json()["files"]["snapshot"][0]["url"]
    answer = http.get(url, headers={"range": asked})
    assert answer.status_code == status
    if content is not None:
        assert answer.content == content


def test_faults_meet_the_next_matching_calls_and_no_others(fake, http):
    fake.fail_next("events", 503, "plan_unavailable", times=2)
    assert http.get(SUBS).status_code == 200
    statuses = [http.get(f"{SUBS}/sub_orange/events").status_code for _ in range(3)]
    assert statuses == [503, 503, 200]


def test_a_corrupt_download_has_the_size_but_not_the_checksum(fake, http):
    file = http.get(f"{PERMITS}/versions/2").json()["files"]["snapshot"][0]
    fake.corrupt_next_download(pattern="snapshot")
    broken, whole = http.get(file["url"]).content, http.get(file["url"]).content
    assert len(broken) == len(whole) == file["sizeBytes"]
    assert sum(a != b for a, b in zip(broken, whole, strict=True)) == 1


def test_a_version_released_again_leaves_the_list(fake, http):
    fake.keep("ds_orange_permits", 2, "released_again")
    assert [item["version"] for item in http.get(f"{PERMITS}/versions").json()["versions"]] == [1]
    assert http.get(PERMITS).json()["current"]["version"] == 1
    assert http.get(f"{PERMITS}/versions/2").json()["error"]["code"] == "expired"


def test_a_version_being_rebuilt_is_unavailable_in_the_manifest(fake, http):
    fake.keep("ds_orange_permits", 2, "rebuilding")
    manifest = http.get(f"{SUBS}/sub_orange/manifest").json()
    assert {"datasetId": "ds_orange_permits", "version": 2, "reason": "rebuilding"} in manifest["unavailable"]
    check(resources.SubscriptionManifest, manifest)


def test_it_notes_every_request(fake):
    fake.answer(FakeRequest("GET", "/v1/topics", (("x", "1"),)))
    assert [(request.method, request.target) for request in fake.requests] == [("GET", "/v1/topics?x=1")]


def test_a_dataset_that_leaves_says_why(fake, http):
    fake.change_dataset("ds_orange_permits", covered=False)
    fake.change_dataset("ds_orange_zoning", deliverable=False)
    reasons = [event["data"].get("reason") for event in http.get(f"{SUBS}/sub_orange/events").json()["events"]]
    assert reasons[-2:] == ["left_coverage", "no_longer_deliverable"]
    assert json.loads(http.get(f"{SUBS}/sub_orange/manifest").content)["datasets"] == []
