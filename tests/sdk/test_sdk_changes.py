"""Changing and previewing subscriptions through the SDK against the fake (page 000, D8.1, D8.8)."""

import pytest

import ploti

SUB, PERMITS, ZONING = "sub_orange", "ds_orange_permits", "ds_orange_zoning"


class TestUpdate:
    def test_what_is_given_replaces_and_the_rest_is_kept(self, client):
        before = client.feeds.subscriptions.get(SUB)
        after = client.feeds.subscriptions.update(SUB, revision=before["revision"], name="New")
        assert after == before | {"name": "New", "revision": before["revision"] + 1, "updatedAt": after["updatedAt"]}
        assert client.feeds.subscriptions.get(SUB) == after

    def test_stale_revision_is_to_be_read_again_and_nothing_changes(self, client):
        client.feeds.subscriptions.update(SUB, revision=1, name="First")
        with pytest.raises(ploti.ReadAgain) as stale:
            client.feeds.subscriptions.update(SUB, revision=1, name="Second")
        assert stale.value.code == "precondition_failed"
        assert client.feeds.subscriptions.get(SUB)["name"] == "First"

    def test_datasets_leave_and_join_with_events(self, client, fake):
        fake.add_dataset("ds_new", place=None)
        newest = client.feeds.subscriptions.manifest(SUB)["eventCursor"]
        client.feeds.subscriptions.update(SUB, revision=1, places=[], dataset_ids=["ds_new", ZONING])
        events = client.feeds.subscriptions.events(SUB, cursor=newest)["events"]
        told = {(e["type"], e["data"]["datasetId"], e["data"].get("reason")) for e in events}
        assert told == {
            ("feed.dataset.added", "ds_new", None),
            ("feed.dataset.removed", PERMITS, "subscription_changed"),
        }

    def test_change_that_would_leave_nothing_is_refused(self, client):
        with pytest.raises(ploti.FixRequest):
            client.feeds.subscriptions.update(SUB, revision=1, places=[], dataset_ids=[])

    def test_change_whose_answer_was_lost_is_not_sent_twice(self, client, fake):
        fake.drop_next("/subscriptions/", after_acting=True)
        with pytest.raises(ploti.NoAnswer):
            client.feeds.subscriptions.update(SUB, revision=1, name="Once")
        assert client.feeds.subscriptions.get(SUB)["revision"] == 2

    def test_busy_is_tried_again(self, client, fake):
        fake.fail_next("/subscriptions/", 409, "busy", method="PATCH")
        assert client.feeds.subscriptions.update(SUB, revision=1, name="Later")["name"] == "Later"


class TestPreview:
    def test_counts_and_lists_without_creating(self, client):
        found = client.feeds.subscriptions.preview(places=["fl-county-orange"], dataset_ids=[ZONING])
        assert found == {
            "total": 2,
            "matchedBy": {"places": 2, "datasets": 1},
            "byTopic": [{"topic": "development-activity", "count": 1}, {"topic": None, "count": 1}],
            "byPlace": [{"id": "fl-county-orange", "name": "Orange County", "kind": "county", "count": 2}],
            "matching": 2,
            "datasets": found["datasets"],
            "nextCursor": None,
        }
        assert {one["id"]: one["matchedBy"] for one in found["datasets"]} == {
            PERMITS: ["places"],
            ZONING: ["places", "datasets"],
        }
        assert len(list(client.feeds.subscriptions.iter())) == 1

    @pytest.mark.parametrize(
        ("narrowing", "expected"),
        [
            ({"topic": "none"}, [ZONING]),
            ({"topic": "development-activity"}, [PERMITS]),
            ({"matched_by": "datasets"}, [ZONING]),
            ({"q": "nothing like it"}, []),
            ({"place": "fl"}, []),
        ],
    )
    def test_page_is_narrowed_and_totals_stay(self, client, narrowing, expected):
        found = client.feeds.subscriptions.preview(places=["fl-county-orange"], dataset_ids=[ZONING], **narrowing)
        assert (found["total"], found["matching"]) == (2, len(expected))
        assert [one["id"] for one in found["datasets"]] == expected

    @pytest.mark.parametrize("sort", ["place", "title", "updated", None])
    def test_pages_hold_every_dataset_once(self, client, fake, sort):
        for number in range(5):
            fake.add_dataset(f"ds_more_{number}", title="Same")
        found, cursor = [], None
        while True:
            page = client.feeds.subscriptions.preview(places=["fl-county-orange"], sort=sort, limit=2, cursor=cursor)
            found += [one["id"] for one in page["datasets"]]
            cursor = page["nextCursor"]
            if cursor is None:
                break
        assert sorted(found) == sorted(fake.state.datasets)

    def test_nothing_named_is_refused(self, client):
        with pytest.raises(ploti.FixRequest) as refused:
            client.feeds.subscriptions.preview()
        assert refused.value.code == "invalid_input"
