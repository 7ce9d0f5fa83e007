"""Subscriptions, their manifest and their events over the API (page 000, 003, D7.3 to D7.7, D8.4)."""

from dataclasses import replace

import pytest

from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.workspaces import set_workspace

SUBSCRIPTIONS = "/v1/feeds/subscriptions"


def error(answer):
    found = answer.json()["error"]
    return answer.status_code, found["code"], found.get("field")


def told(events):
    return [(e["type"].removeprefix("feed.dataset."), e["data"]["datasetId"]) for e in events]


class TestCreate:
    def test_created_subscription_is_answered_with_its_etag_and_read_back(self, served):
        body = {"name": "Mine", "places": ["fl"], "topics": ["permits"], "datasetIds": ["ds_nowhere"]}
        answer = served.post(SUBSCRIPTIONS, body)
        made = answer.json()
        assert (answer.status_code, answer.headers["etag"]) == (201, '"1"')
        assert made == body | {
            "id": made["id"],
            "revision": 1,
            "createdAt": "2026-01-01T00:00:00.000Z",
            "updatedAt": "2026-01-01T00:00:00.000Z",
        }
        assert made["id"].startswith("sub_")
        read = served.get(f"{SUBSCRIPTIONS}/{made['id']}", "member")
        assert (read.json(), read.headers["etag"]) == (made, '"1"')
        again = served.get(f"{SUBSCRIPTIONS}/{made['id']}", headers={"If-None-Match": '"1"'})
        assert again.status_code == 304

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({}, (400, "invalid_input", "places")),
            ([], (400, "invalid_input", None)),
            ({"places": []}, (400, "invalid_input", "places")),
            ({"places": ["fl"], "topics": ["other"]}, (400, "invalid_input", "topics")),
            ({"places": ["fl"], "webhook": "x"}, (400, "invalid_input", "webhook")),
            ({"places": ["fl"] * 501}, (400, "invalid_input", "places")),
            ({"places": ["ny"]}, (409, "outside_coverage", "places")),
            ({"datasetIds": ["ds_kings"]}, (409, "not_deliverable", "datasetIds")),
            ({"datasetIds": ["ds_withheld"]}, (409, "not_deliverable", "datasetIds")),
        ],
    )
    def test_refused_create_leaves_nothing(self, served, body, expected):
        assert error(served.post(SUBSCRIPTIONS, body)) == expected
        assert served.get(SUBSCRIPTIONS).json()["subscriptions"] == []

    def test_member_who_is_no_admin_may_read_but_not_create_or_delete(self, served):
        subscription = served.subscribe(places=["fl"])
        assert error(served.post(SUBSCRIPTIONS, {"places": ["fl"]}, "member"))[:2] == (403, "not_allowed")
        assert error(served.post(SUBSCRIPTIONS, {}, "member"))[:2] == (403, "not_allowed")
        assert error(served.delete(f"{SUBSCRIPTIONS}/{subscription}", "member"))[:2] == (403, "not_allowed")
        assert served.get(f"{SUBSCRIPTIONS}/{subscription}", "member").status_code == 200

    def test_26th_is_refused_and_deleting_one_makes_room(self, served):
        made = [served.subscribe(places=["us"]) for _ in range(25)]
        assert error(served.post(SUBSCRIPTIONS, {"places": ["us"]}))[:2] == (409, "limit_reached")
        served.delete(f"{SUBSCRIPTIONS}/{made[3]}")
        assert served.post(SUBSCRIPTIONS, {"places": ["us"]}).status_code == 201
        served.subscribe("other", places=["us"])

    def test_create_needs_the_plan(self, served):
        served.plans.available = False
        assert error(served.post(SUBSCRIPTIONS, {"places": ["fl"]}))[:2] == (503, "plan_unavailable")

    def test_every_dataset_joins_at_once_with_added_and_delayed_where_one_waits(self, served):
        served.version("ds_orange", 1)
        served.version("ds_orange", 2, status=VersionStatus.HELD, reasons=("schema_review", "data_check"))
        served.version("ds_both", 1, status=VersionStatus.HELD, reasons=("data_check",))
        events = served.events(served.subscribe(places=["fl-county-orange"]))
        assert told(events) == [
            ("added", "ds_both"),
            ("delayed", "ds_both"),
            ("added", "ds_orange"),
            ("delayed", "ds_orange"),
            ("added", "ds_orange_zoning"),
        ]
        assert [e["id"] for e in events] == [f"evt_{n:012d}" for n in range(1, 6)]
        assert events[1]["data"] == {
            "datasetId": "ds_both",
            "version": None,
            "reason": "data_check",
            "since": "2026-01-01T00:00:00.000Z",
        }
        assert (events[3]["data"]["version"], events[3]["data"]["reason"]) == (1, "schema_review")
        assert events[0]["data"] == {"datasetId": "ds_both", "version": None, "schemaVersion": None}

    def test_first_subscription_makes_a_check_due_and_a_second_leaves_it(self, served):
        served.subscribe(places=["fl"])
        due = served.get("/v1/feeds/datasets/ds_florida").json()["refresh"]
        assert due == {"lastCheckedAt": None, "nextCheckBy": "2026-01-01T00:00:00.000Z"}
        served.clock.advance(hours=1)
        served.subscribe(places=["fl"])
        assert served.get("/v1/feeds/datasets/ds_florida").json()["refresh"] == due


class TestListAndDelete:
    def test_list_is_oldest_first_in_pages(self, served):
        made = []
        for _ in range(3):
            made.append(served.subscribe(places=["us"]))
            served.clock.advance(seconds=1)
        first = served.get(f"{SUBSCRIPTIONS}?limit=2").json()
        rest = served.get(f"{SUBSCRIPTIONS}?limit=2&cursor={first['nextCursor']}").json()
        assert [s["id"] for s in (*first["subscriptions"], *rest["subscriptions"])] == made
        assert rest["nextCursor"] is None

    def test_deleted_subscription_is_gone_with_its_events(self, served):
        subscription = served.subscribe(places=["fl"])
        answer = served.delete(f"{SUBSCRIPTIONS}/{subscription}")
        assert (answer.status_code, answer.json()) == (200, {"deleted": True})
        for tail in ("", "/events", "/manifest"):
            assert error(served.get(f"{SUBSCRIPTIONS}/{subscription}{tail}"))[:2] == (404, "not_found")
        assert error(served.delete(f"{SUBSCRIPTIONS}/{subscription}"))[:2] == (404, "not_found")

    def test_subscription_whose_datasets_are_changing_is_busy(self, served):
        subscription = served.subscribe(places=["fl"])
        with served.ports.store.busy(subscription):
            assert error(served.delete(f"{SUBSCRIPTIONS}/{subscription}"))[:2] == (409, "busy")
        assert served.delete(f"{SUBSCRIPTIONS}/{subscription}").status_code == 200


class TestManifest:
    def manifest(self, served, subscription, **query):
        answer = served.get(f"{SUBSCRIPTIONS}/{subscription}/manifest", params=query)
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        return answer.json()

    def test_manifest_lists_released_versions_with_links_and_says_why_others_are_missing(self, served):
        served.version("ds_orange", 3)
        served.version("ds_both", 1, status=VersionStatus.HELD, reasons=("data_check",))
        subscription = served.subscribe(places=["fl-county-orange"])
        manifest = self.manifest(served, subscription)
        assert [(d["datasetId"], d["version"], d["keyed"]) for d in manifest["datasets"]] == [("ds_orange", 3, True)]
        snapshot = manifest["datasets"][0]["files"]["snapshot"][0]
        assert len(served.client.get(snapshot["url"]).content) == snapshot["sizeBytes"]
        assert manifest["unavailable"] == [
            {"datasetId": "ds_both", "reason": "held"},
            {"datasetId": "ds_orange_zoning", "reason": "building"},
        ]
        assert (manifest["eventCursor"], manifest["nextCursor"]) == ("evt_000000000004", None)

    def test_events_after_the_cursor_start_where_the_snapshots_end(self, served):
        served.version("ds_orange", 1)
        subscription = served.subscribe(places=["fl-county-orange"])
        cursor = self.manifest(served, subscription)["eventCursor"]
        served.release("ds_orange", 2, previous_version=1)
        assert told(served.events(subscription, cursor=cursor)) == [("updated", "ds_orange")]

    def test_manifest_brings_membership_up_to_date_before_its_cursor(self, served):
        subscription = served.subscribe(places=["fl-county-orange"])
        with served.ports.store.write() as records:
            records.catalog.put_dataset(replace(records.catalog.dataset("ds_orange"), retired=True))
            records.catalog.put_dataset(replace(records.catalog.dataset("ds_kings"), place="fl-county-orange"))
        manifest = self.manifest(served, subscription)
        assert told(served.events(subscription))[3:] == [("removed", "ds_orange"), ("added", "ds_kings")]
        assert manifest["eventCursor"] == "evt_000000000005"
        listed = [d["datasetId"] for d in manifest["unavailable"]]
        assert listed == ["ds_both", "ds_kings", "ds_orange_zoning"]

    def test_repeated_manifest_appends_nothing(self, served):
        subscription = served.subscribe(places=["fl-county-orange"])
        assert self.manifest(served, subscription)["eventCursor"] == self.manifest(served, subscription)["eventCursor"]

    def test_manifest_needs_the_plan_and_is_busy_while_another_changes_the_datasets(self, served):
        subscription = served.subscribe(places=["fl"])
        served.plans.available = False
        answer = served.get(f"{SUBSCRIPTIONS}/{subscription}/manifest")
        assert error(answer)[:2] == (503, "plan_unavailable")
        served.plans.available = True
        with served.ports.store.write() as records:
            records.catalog.put_dataset(replace(records.catalog.dataset("ds_florida"), retired=True))
        with served.ports.store.busy(subscription):
            assert error(served.get(f"{SUBSCRIPTIONS}/{subscription}/manifest"))[:2] == (409, "busy")
        assert told(served.events(subscription)) == [("added", "ds_florida")]

    def test_pages_are_of_one_moment_whatever_happens_meanwhile(self, served):
        for dataset_id in ("ds_both", "ds_orange", "ds_orange_zoning", "ds_florida"):
            served.version(dataset_id, 1)
        subscription = served.subscribe(places=["fl-county-orange", "fl", "us"])
        first = self.manifest(served, subscription, limit=1)
        assert [d["datasetId"] for d in first["datasets"]] == ["ds_both"]
        served.release("ds_orange", 2, previous_version=1)
        served.release("ds_nation", 1)
        served.put_catalog(
            replace(_stored(served, "ds_florida"), retired=True),
            replace(_stored(served, "ds_kings"), place="fl-county-orange"),
        )
        datasets, unavailable, cursor = [], [], first["nextCursor"]
        while cursor:
            page = self.manifest(served, subscription, limit=1, cursor=cursor)
            assert page["eventCursor"] == first["eventCursor"]
            datasets += [(d["datasetId"], d["version"]) for d in page["datasets"]]
            unavailable += [d["datasetId"] for d in page["unavailable"]]
            cursor = page["nextCursor"]
        assert datasets == [("ds_orange", 1), ("ds_orange_zoning", 1)]
        assert unavailable == ["ds_nation"]

    def test_pages_together_are_the_whole(self, served):
        subscription = served.subscribe(places=["fl-county-orange", "fl", "us"])
        whole = self.manifest(served, subscription)["unavailable"]
        listed, cursor = [], None
        while len(listed) < 10:
            page = self.manifest(served, subscription, limit=2, **({"cursor": cursor} if cursor else {}))
            listed += page["unavailable"]
            cursor = page["nextCursor"]
            if cursor is None:
                break
        assert listed == whole

    def test_page_cursor_expires_after_an_hour_and_belongs_to_its_subscription(self, served):
        subscription, other = (served.subscribe(places=["fl-county-orange"]) for _ in range(2))
        cursor = self.manifest(served, subscription, limit=1)["nextCursor"]
        path = f"{SUBSCRIPTIONS}/{other}/manifest?limit=1&cursor={cursor}"
        assert error(served.get(path)) == (400, "invalid_input", "cursor")
        served.clock.advance(hours=1)
        path = f"{SUBSCRIPTIONS}/{subscription}/manifest?limit=1&cursor={cursor}"
        assert error(served.get(path)) == (400, "invalid_input", "cursor")


class TestEvents:
    @pytest.fixture
    def log(self, served):
        """A subscription with events 1 to 5."""
        served.version("ds_florida", 1)
        subscription = served.subscribe(places=["fl"])
        for number in range(2, 6):
            served.release("ds_florida", number, previous_version=number - 1)
        return subscription

    def page(self, served, subscription, **query):
        answer = served.get(f"{SUBSCRIPTIONS}/{subscription}/events", params=query)
        assert answer.status_code == 200, answer.text
        return [e["id"] for e in answer.json()["events"]], answer.json()["nextCursor"]

    def test_links_are_absolute_addresses_of_the_version_and_its_schema(self, served, log):
        event = served.events(log)[1]
        assert event["data"]["links"] == {
            "version": "http://feeds.test/v1/feeds/datasets/ds_florida/versions/2",
            "schema": "http://feeds.test/v1/feeds/datasets/ds_florida/schema?version=2",
        }
        assert event["subscriptionId"] == log
        assert served.get(event["data"]["links"]["version"]).status_code == 200
        assert served.get(event["data"]["links"]["schema"]).status_code == 200

    def test_reading_goes_on_after_each_cursor_to_the_end(self, served, log):
        seen, cursor = self.page(served, log, limit=2)
        while True:
            events, cursor = self.page(served, log, limit=2, cursor=cursor)
            if not events:
                break
            seen += events
        assert seen == [f"evt_{n:012d}" for n in range(1, 6)]
        assert self.page(served, log, cursor=cursor) == ([], cursor)

    def test_cursor_advances_even_where_the_filter_matches_nothing(self, served, log):
        assert self.page(served, log, types="feed.dataset.stale") == ([], "evt_000000000005")
        assert self.page(served, log, types="feed.dataset.added") == (["evt_000000000001"], "evt_000000000005")
        assert self.page(served, log, types="feed.dataset.updated,feed.dataset.added", limit=2) == (
            ["evt_000000000001", "evt_000000000002"],
            "evt_000000000002",
        )

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ("cursor=evt_000000000006", "cursor"),
            ("cursor=43", "cursor"),
            ("cursor=", "cursor"),
            ("limit=0", "limit"),
            ("limit=501", "limit"),
            ("types=feed.dataset.gone", "types"),
            ("types=", "types"),
            ("after=3", "after"),
            ("limit=1&limit=2", "limit"),
        ],
    )
    def test_wrong_parameter_is_invalid_input(self, served, log, query, field):
        answer = served.get(f"{SUBSCRIPTIONS}/{log}/events?{query}")
        assert error(answer) == (400, "invalid_input", field)

    def test_empty_log_has_the_cursor_before_the_first_event(self, served):
        served.put_catalog(replace(_stored(served, "ds_florida"), retired=True))
        subscription = served.subscribe(places=["fl"])
        assert self.page(served, subscription) == ([], "evt_000000000000")
        assert self.page(served, subscription, cursor="evt_000000000000") == ([], "evt_000000000000")

    def test_new_dataset_of_a_place_joins_on_its_own(self, served):
        subscription = served.subscribe(places=["fl"])
        served.put_catalog(replace(_stored(served, "ds_florida"), id="ds_new"))
        assert told(served.events(subscription)) == [("added", "ds_florida"), ("added", "ds_new")]

    def test_county_that_joins_and_leaves_the_coverage_moves_its_datasets(self, served):
        subscription = served.subscribe(places=["fl-counties"])
        served.put_catalog(replace(_stored(served, "ds_kings"), place="fl-county-lake"))
        assert len(served.events(subscription)) == 3
        set_workspace(served.ports, "florida", ["fl-county-orange", "fl-county-lake"])
        set_workspace(served.ports, "florida", ["fl-county-orange"])
        events = served.events(subscription)[3:]
        assert told(events) == [("added", "ds_kings"), ("removed", "ds_kings")]
        assert events[1]["data"]["reason"] == "left_coverage"


def _stored(served, dataset_id):
    with served.ports.store.read() as records:
        return records.catalog.dataset(dataset_id)


def test_event_shape_has_five_fields(served):
    subscription = served.subscribe(places=["fl"])
    (event,) = served.events(subscription)
    assert list(event) == ["id", "type", "timestamp", "subscriptionId", "data"]
