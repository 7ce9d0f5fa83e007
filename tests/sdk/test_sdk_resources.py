"""Each resource against the fake, in the same process and over a loopback port."""

from datetime import UTC, datetime, timedelta

import pytest

import ploti
from ploti.errors import NotFound

SUB, PERMITS, ZONING = "sub_orange", "ds_orange_permits", "ds_orange_zoning"


def test_places_come_as_the_contract_shows_them(client):
    assert client.places.list(kind="county", deliverable=True) == {
        "places": [
            {
                "id": "fl-county-orange",
                "name": "Orange County",
                "kind": "county",
                "state": "fl",
                "datasetCount": 2,
                "datasetCounts": {"development-activity": 1},
            }
        ]
    }


def test_topics_come_as_the_contract_shows_them(client):
    assert client.topics.list() == {"topics": [{"id": "development-activity", "name": "Development activity"}]}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [PERMITS, ZONING]),
        ({"topic": "development-activity"}, [PERMITS]),
        ({"place": "fl-county-orange"}, [PERMITS, ZONING]),
        ({"place": "fl-county-lake"}, []),
        ({"subscription": SUB}, [PERMITS, ZONING]),
        ({"updated_since": datetime.now(UTC) - timedelta(hours=1)}, [PERMITS]),
        ({"updated_since": datetime.now(UTC) + timedelta(hours=1)}, []),
        ({"updated_since": "2020-01-01T00:00:00Z"}, [PERMITS]),
    ],
)
def test_datasets_are_narrowed_by_filters(client, filters, expected):
    assert [dataset["id"] for dataset in client.feeds.datasets.list(**filters)["datasets"]] == expected
    assert [dataset["id"] for dataset in client.feeds.datasets.iter(**filters)] == expected


def test_iter_goes_over_all_pages_of_datasets(client, fake):
    for number in range(7):
        fake.add_dataset(f"ds_more_{number}")
    first = client.feeds.datasets.list(limit=2)
    assert len(first["datasets"]) == 2
    assert first["nextCursor"] is not None
    fake.requests.clear()
    found = [dataset["id"] for dataset in client.feeds.datasets.iter(limit=2)]
    assert found == sorted(fake.state.datasets)
    assert len(fake.requests) == 5


def test_a_dataset_tells_its_current_version(client):
    dataset = client.feeds.datasets.get(PERMITS)
    assert (dataset["status"], dataset["current"]["version"]) == ("available", 2)
    assert client.feeds.datasets.get(ZONING)["current"] is None


def test_schemas_are_read_for_current_and_older_versions(client):
    schema = client.feeds.datasets.schema(PERMITS)
    assert schema == client.feeds.datasets.schema(PERMITS, version=1)
    assert client.feeds.datasets.schemas(PERMITS) == {"datasetId": PERMITS, "schemas": [schema]}


def test_a_record_is_told_by_any_id_that_it_had(client):
    traced = client.feeds.datasets.record(PERMITS, "rec_a")
    assert (traced["status"], traced["replacedBy"], traced["currentId"]) == ("replaced", "rec_c", None)
    with pytest.raises(NotFound):
        client.feeds.datasets.record(PERMITS, "rec_c")


def test_a_stored_file_is_found_by_name_and_its_source_in_the_provenance(client):
    found = client.feeds.datasets.file(PERMITS, "document:ab12")
    assert (found["datasetId"], found["version"], found["filename"]) == (PERMITS, 2, "ab12.pdf")
    with pytest.raises(NotFound):
        client.feeds.datasets.file(PERMITS, "original")
    assert [source["id"] for source in client.feeds.datasets.provenance(PERMITS)["sources"]] == ["main"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [({}, [1, 2]), ({"after": 1}, [2]), ({"after": 0}, [1, 2]), ({"order": "desc"}, [2, 1]), ({"after": 2}, [])],
)
def test_versions_are_listed_in_order_after_a_number(client, asked, expected):
    page = client.feeds.datasets.versions.list(PERMITS, **asked)
    assert [version["version"] for version in page["versions"]] == expected
    assert page["nextCursor"] is None
    assert [version["version"] for version in client.feeds.datasets.versions.iter(PERMITS, **asked)] == expected


def test_a_version_has_links_to_every_kind_of_file(client):
    version = client.feeds.datasets.versions.get(PERMITS, 2)
    assert [part["path"] for part in version["files"]["changes"]] == ["changes/part-0000.parquet"]
    assert version["files"]["idMap"] == []
    assert version["files"]["attachments"][0]["file"] == "document:ab12"
    with client.http.stream(version["files"]["changes"][0]["url"]) as download:
        assert b"".join(download.chunks) == b"changes"


def test_links_are_signed_for_named_files(client):
    answer = client.feeds.datasets.versions.links(PERMITS, 2, files=["schema.json", "document:ab12", "other"])
    assert [file["file"] for file in answer["files"]] == ["schema.json", "document:ab12"]
    assert answer["missing"] == ["other"]


def test_a_subscription_is_created_read_listed_and_deleted(client):
    made = client.feeds.subscriptions.create("Zoning", dataset_ids=[ZONING])
    assert client.feeds.subscriptions.get(made["id"]) == made
    assert made in client.feeds.subscriptions.list()["subscriptions"]
    assert made in client.feeds.subscriptions.iter()
    assert client.feeds.subscriptions.delete(made["id"]) == {"deleted": True}
    with pytest.raises(ploti.NotFound):
        client.feeds.subscriptions.get(made["id"])


def test_the_manifest_lists_what_to_load_and_what_waits(client):
    manifest = client.feeds.subscriptions.manifest(SUB)
    assert [(item["datasetId"], item["version"]) for item in manifest["datasets"]] == [(PERMITS, 2)]
    assert manifest["unavailable"] == [{"datasetId": ZONING, "reason": "building"}]
    assert manifest["eventCursor"] == "evt_000000000004"


def test_a_manifest_as_of_an_event_has_the_version_of_then(client):
    manifest = client.feeds.subscriptions.manifest(SUB, as_of="evt_000000000003")
    assert [(item["datasetId"], item["version"]) for item in manifest["datasets"]] == [(PERMITS, 1)]


def test_pages_of_a_manifest_keep_its_cursor_while_events_arrive(client, fake):
    first = client.feeds.subscriptions.manifest(SUB, limit=1)
    fake.hold(PERMITS)
    second = client.feeds.subscriptions.manifest(SUB, limit=1, cursor=first["nextCursor"])
    assert second["eventCursor"] == first["eventCursor"]
    assert second["nextCursor"] is None
    assert (len(first["datasets"]), len(second["unavailable"])) == (1, 1)


def test_events_are_read_after_a_cursor(client):
    page = client.feeds.subscriptions.events(SUB, cursor="evt_000000000002", limit=1)
    assert [event["type"] for event in page["events"]] == ["feed.dataset.resync_required"]
    assert page["nextCursor"] == "evt_000000000003"


def test_iter_events_ends_at_the_newest(client):
    events = list(client.feeds.subscriptions.iter_events(SUB, limit=1))
    assert [event["id"] for event in events] == [f"evt_{number:012d}" for number in range(1, 5)]
    assert list(client.feeds.subscriptions.iter_events(SUB, cursor="evt_000000000004")) == []


def test_iter_events_goes_on_over_pages_that_a_filter_empties(client):
    """F082: a page without a match still moves the cursor."""
    events = client.feeds.subscriptions.iter_events(SUB, limit=1, types=["feed.dataset.updated"])
    assert [event["id"] for event in events] == ["evt_000000000004"]


def test_an_empty_log_has_no_events(client, fake):
    fake.subscribe("sub_empty", places=["fl-county-lake"])
    assert client.feeds.subscriptions.events("sub_empty") == {"events": [], "nextCursor": "evt_000000000000"}
    assert list(client.feeds.subscriptions.iter_events("sub_empty")) == []


@pytest.mark.parametrize("bad", ["", "..", "a/b", "a?b", "ds_a/../ds_b", "é", "ds a", "%2e%2e"])
def test_an_id_that_would_change_the_path_never_leaves(client, fake, bad):
    with pytest.raises(ploti.FixRequest):
        client.feeds.datasets.get(bad)
    assert fake.requests == []


@pytest.mark.parametrize("none", [None, 7, "None", True, 1.5, ""])
def test_what_is_no_id_and_no_number_never_leaves(client, fake, none):
    with pytest.raises(ploti.FixRequest, match="is not the"):
        client.feeds.datasets.versions.get("ds_orange_permits" if none != 7 else none, none)
    assert fake.requests == []


@pytest.mark.parametrize(
    ("act", "field"),
    [
        (lambda feeds: feeds.subscriptions.create("One", places="fl-county-orange"), "places"),
        (lambda feeds: feeds.subscriptions.preview(topics="zoning"), "topics"),
        (lambda feeds: feeds.subscriptions.update("sub_orange", revision=1, dataset_ids="ds_a"), "dataset_ids"),
        (lambda feeds: feeds.subscriptions.events("sub_orange", types="feed.dataset.added"), "types"),
        (lambda feeds: feeds.datasets.records("ds_orange_permits", "rec_a"), "record_ids"),
        (lambda feeds: feeds.datasets.versions.links("ds_orange_permits", 2, files="schema.json"), "files"),
    ],
)
def test_one_text_is_not_taken_for_a_list_of_its_letters(client, fake, act, field):
    with pytest.raises(ploti.FixRequest, match=rf"Give {field} as a list, like \['"):
        act(client.feeds)
    assert fake.requests == []


def test_a_time_without_a_zone_is_refused(client, fake):
    with pytest.raises(ploti.FixRequest, match="time zone"):
        client.feeds.datasets.list(updated_since=datetime(2026, 1, 1))  # noqa: DTZ001
    assert fake.requests == []
