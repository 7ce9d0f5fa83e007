"""Events and the log over the API, a test for each sentence of page 003 about them (D1.3, D7.2 to D7.7)."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.api.conftest import error, stored, told

from ploti_server.domain.checks import Refresh
from ploti_server.domain.events import added, delayed, released, removed, stale
from ploti_server.domain.schema import Column, Schema, SchemaChange, SchemaVersion
from ploti_server.domain.versions import Counts, Version, VersionStatus
from ploti_server.pipeline.deliver import deliver_due
from ploti_server.pipeline.notice import notice_stale
from ploti_server.pipeline.prune import prune
from ploti_server.pipeline.workspaces import set_workspace

SUBSCRIPTIONS = "/v1/feeds/subscriptions"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
ORANGE = "/v1/feeds/datasets/ds_orange"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
VERSION = Version("ds_x", 2, 1, VersionStatus.RELEASED, 1, resync_reason="first_version")


def links(number):
    return {
        "version": f"http://feeds.test{ORANGE}/versions/{number}",
        "schema": f"http://feeds.test{ORANGE}/schema?version={number}",
    }


def names(value):
    """Give the names of an object and of the objects in it."""
    return {name: names(member) for name, member in value.items()} if isinstance(value, dict) else None


@pytest.fixture
def orange(served):
    """A subscription to one dataset alone; its log begins with event 1, `added`."""
    return served.subscribe(datasetIds=["ds_orange"])


def sent(served, subscription, cursor="evt_000000000001"):
    """Give the type's last word and the data of each event after the first."""
    return [(e["type"].rpartition(".")[2], e["data"]) for e in served.events(subscription, cursor=cursor)]


class TestEvent:
    @pytest.fixture
    def everywhere(self, served, orange):
        """One event as the log has it, the POST of it, and a ping."""
        hook = {"url": "https://acme.example/hooks", "subscriptionId": orange}
        made = served.post("/v1/webhooks", hook).json()["id"]
        served.release("ds_orange", 1)
        deliver_due(served.ports, "test")
        served.post(f"/v1/webhooks/{made}/test", None)
        delivered, ping = (json.loads(body) for *_, body in served.ports.hooks.sender.sent)
        return served.events(orange)[-1], delivered, ping

    def test_each_has_the_four_fields_in_the_log_and_to_a_webhook(self, everywhere):
        for event in everywhere:
            assert event.keys() >= {"id", "type", "timestamp", "data"}
        log, delivered, ping = everywhere
        assert log == delivered
        assert list(ping) == ["id", "type", "timestamp", "data"]

    def test_a_feed_event_adds_the_subscription_it_belongs_to(self, everywhere, orange):
        log, delivered, _ = everywhere
        assert list(log) == list(delivered) == ["id", "type", "timestamp", "subscriptionId", "data"]
        assert log["subscriptionId"] == delivered["subscriptionId"] == orange

    def test_it_has_exactly_the_members_of_the_example(self, served, orange):
        served.release("ds_orange", 1)
        served.clock.advance(hours=1)
        served.release("ds_orange", 2, previous_version=1)
        event = served.events(orange)[-1]
        example = json.loads((EXAMPLES / "event-updated.json").read_text("utf-8"))
        assert names(event) == names(example)
        assert (event["id"], event["timestamp"]) == ("evt_000000000003", "2026-01-01T01:00:00.000Z")

    def test_links_are_absolute_addresses_of_the_version_and_its_schema(self, served):
        served.version("ds_florida", 1)
        log = served.subscribe(places=["fl"])
        served.release("ds_florida", 2, previous_version=1)
        event = served.events(log)[1]
        assert event["data"]["links"] == {
            "version": "http://feeds.test/v1/feeds/datasets/ds_florida/versions/2",
            "schema": "http://feeds.test/v1/feeds/datasets/ds_florida/schema?version=2",
        }
        assert event["subscriptionId"] == log
        assert served.get(event["data"]["links"]["version"]).status_code == 200
        assert served.get(event["data"]["links"]["schema"]).status_code == 200

    def test_links_version_takes_the_key_and_returns_the_files_of_a_dataset_that_is_delivered(self, served, orange):
        served.release("ds_orange", 1)
        url = served.events(orange)[-1]["data"]["links"]["version"]
        files = served.get(url, "member").json()["files"]
        assert served.client.get(files["snapshot"][0]["url"]).status_code == 200
        assert served.client.get(url).status_code == 401
        served.patch(f"{SUBSCRIPTIONS}/{orange}", {"datasetIds": ["ds_both"], "revision": 1})
        assert error(served.get(url))[:2] == (409, "not_subscribed")


class TestTypes:
    """Each type: when it is sent, and exactly what its data has."""

    def test_added_when_a_dataset_joins_with_links_where_it_has_a_version(self, served):
        served.version("ds_orange", 3, schema_version="2.1")
        made = served.subscribe(datasetIds=["ds_both", "ds_orange"])
        assert sent(served, made, "evt_000000000000") == [
            ("added", {"datasetId": "ds_both", "version": None, "schemaVersion": None}),
            ("added", {"datasetId": "ds_orange", "version": 3, "schemaVersion": "2.1", "links": links(3)}),
        ]

    @pytest.mark.parametrize("numbers", [(1, 2, 3), (0, 0, 0)])
    def test_updated_when_there_is_a_version_to_apply_as_changes(self, served, orange, numbers):
        served.version("ds_orange", 1)
        served.release("ds_orange", 4, previous_version=1, schema_version="1.0", counts=Counts(*numbers))
        data = {"datasetId": "ds_orange", "version": 4, "previousVersion": 1, "schemaVersion": "1.0"}
        counts = dict(zip(("added", "changed", "removed"), numbers, strict=True))
        assert sent(served, orange) == [("updated", data | {"counts": counts, "links": links(4)})]

    @pytest.fixture
    def wider(self, served, orange):
        """A version that adds a column."""
        color = Column("color", "string", True, "COLOR")
        schema = Schema((Column("id", "string", False, "id"), color), ("id",))
        change = SchemaChange("additive", SchemaVersion(1, 0), added=(color,))
        served.version("ds_orange", 1)
        served.release("ds_orange", 2, previous_version=1, schema=schema, schema_version="1.1", schema_change=change)
        return sent(served, orange)

    def test_schema_changed_when_a_version_changes_the_schema(self, wider):
        (name, data), _ = wider
        assert (name, list(data)) == ("schema_changed", ["datasetId", "version", "schemaVersion", "schemaChange"])
        assert (data["version"], data["schemaVersion"]) == (2, "1.1")
        assert [column["name"] for column in data["schemaChange"]["added"]] == ["color"]

    def test_schema_changed_comes_before_the_event_of_its_version(self, wider):
        assert [(name, data["version"]) for name, data in wider] == [("schema_changed", 2), ("updated", 2)]

    def test_resync_required_when_a_version_is_to_be_loaded_from_its_snapshot(self, served, orange):
        served.release("ds_orange", 2, previous_version=1, resync_reason="previous_unavailable")
        ((name, data),) = sent(served, orange)
        reason = {"reason": "previous_unavailable", "links": links(2)}
        assert name == "resync_required"
        assert data == {"datasetId": "ds_orange", "version": 2, "schemaVersion": "1.0"} | reason
        files = served.get(data["links"]["version"]).json()["files"]
        assert (len(files["snapshot"]), files["changes"]) == (1, [])

    def test_resync_required_stands_in_place_of_updated(self, served, orange):
        served.release("ds_orange", 1)
        served.release("ds_orange", 2, previous_version=1)
        served.release("ds_orange", 3, previous_version=2, resync_reason="schema_changed")
        assert [(name, data["version"]) for name, data in sent(served, orange)] == [
            ("resync_required", 1),
            ("updated", 2),
            ("resync_required", 3),
        ]

    def test_removed_when_a_dataset_leaves(self, served, orange):
        served.put_catalog(replace(stored(served, "ds_orange"), retired=True))
        assert sent(served, orange) == [("removed", {"datasetId": "ds_orange", "reason": "no_longer_deliverable"})]

    def test_stale_when_the_source_is_24_hours_past_its_due_check(self, served, orange):
        last = served.clock.now()
        with served.ports.store.write() as records:
            records.catalog.put_refresh("ds_orange", Refresh(last, last + timedelta(hours=6)))
        served.clock.advance(hours=30, milliseconds=-1)
        notice_stale(served.ports)
        assert sent(served, orange) == []
        served.clock.advance(milliseconds=1)
        notice_stale(served.ports)
        data = {"datasetId": "ds_orange", "reason": "check_overdue", "lastCheckedAt": "2026-01-01T00:00:00.000Z"}
        assert sent(served, orange) == [("stale", data)]

    def test_delayed_when_the_next_version_is_held_for_review(self, served):
        served.version("ds_orange", 1)
        served.version("ds_orange", 2, previous_version=1, status=VersionStatus.HELD, reasons=("data_check",))
        made = served.subscribe(datasetIds=["ds_orange"])
        data = {"datasetId": "ds_orange", "version": 1, "reason": "data_check", "since": "2026-01-01T00:00:00.000Z"}
        assert sent(served, made) == [("delayed", data)]

    @pytest.mark.parametrize(
        "event",
        [
            added("ds_x", None),
            added("ds_x", VERSION),
            removed("ds_x", "plan_changed"),
            stale("ds_x", None),
            delayed(replace(VERSION, reasons=("data_check",), built_at=NOW), None),
            *released(replace(VERSION, schema_change=SchemaChange("additive", SchemaVersion(1, 0)))),
            *released(replace(VERSION, resync_reason=None, previous_version=1, counts=Counts(0, 0, 0))),
        ],
        ids=lambda event: event.type,
    )
    def test_every_events_data_carries_its_dataset(self, event):
        assert (event.data["datasetId"], event.dataset_id) == ("ds_x", "ds_x")

    def test_feed_events_have_their_own_prefix_and_no_others_can_be_asked_for(self, served, orange):
        hook = {"url": "https://acme.example/hooks", "subscriptionId": orange, "events": ["dataset.changed"]}
        assert error(served.post("/v1/webhooks", hook)) == (400, "invalid_input", "events")
        path = f"{SUBSCRIPTIONS}/{orange}/events"
        assert error(served.get(path, params={"types": "dataset.changed"})) == (400, "invalid_input", "types")
        served.release("ds_orange", 1)
        assert all(e["type"].startswith("feed.dataset.") for e in served.events(orange))


class TestRemoved:
    @pytest.fixture
    def permits(self, served):
        """A subscription to the permits of Orange County."""
        return served.subscribe(places=["fl-county-orange"], topics=["permits"])

    def reason(self, served, subscription):
        (left,) = [e for e in served.events(subscription) if e["type"] == "feed.dataset.removed"]
        assert left["data"]["datasetId"] == "ds_orange"
        return left["data"]["reason"]

    def test_left_coverage_though_the_subscription_still_matches_it(self, served, permits):
        set_workspace(served.ports, "florida", ["fl-county-seminole"])
        assert self.reason(served, permits) == "left_coverage"
        assert served.get(f"{SUBSCRIPTIONS}/{permits}").json()["places"] == ["fl-county-orange"]

    @pytest.mark.parametrize(
        ("coverage", "reasons"),
        [
            (None, {"ds_orange": "plan_changed"}),
            (["fl-county-seminole"], dict.fromkeys(["ds_orange", "ds_orange_zoning"], "left_coverage")),
        ],
        ids=["still", "no longer either"],
    )
    def test_plan_changed_though_it_is_still_in_the_coverage(self, served, coverage, reasons):
        made = served.subscribe(datasetIds=["ds_orange", "ds_orange_zoning"])
        set_workspace(served.ports, "florida", coverage, ["zoning"])
        left = [e["data"] for e in served.events(made) if e["type"] == "feed.dataset.removed"]
        assert {one["datasetId"]: one["reason"] for one in left} == reasons

    @pytest.mark.parametrize(
        ("change", "body"),
        [
            ({"topics": ["zoning"]}, {"places": ["fl-county-orange"], "topics": ["permits"]}),
            ({"places": ["fl-county-seminole"]}, {"places": ["fl-county-orange"], "topics": ["permits"]}),
            ({"datasetIds": ["ds_nation"]}, {"datasetIds": ["ds_orange", "ds_nation"]}),
        ],
        ids=["topics", "places", "datasets"],
    )
    def test_subscription_changed_where_places_topics_or_datasets_match_it_no_longer(self, served, change, body):
        made = served.subscribe(**body)
        served.patch(f"{SUBSCRIPTIONS}/{made}", change | {"revision": 1})
        left = [e["data"] for e in served.events(made) if e["type"] == "feed.dataset.removed"]
        assert {"datasetId": "ds_orange", "reason": "subscription_changed"} in left
        assert {one["reason"] for one in left} == {"subscription_changed"}

    @pytest.mark.parametrize(
        "fields", [{"topic": "zoning"}, {"place": "fl-county-seminole"}, {"place": "ny-county-kings"}]
    )
    def test_subscription_changed_too_where_it_is_filed_under_another_topic_or_place(self, served, permits, fields):
        served.put_catalog(replace(stored(served, "ds_orange"), **fields))
        assert self.reason(served, permits) == "subscription_changed"

    @pytest.mark.parametrize("fields", [{"deliverable": False}, {"retired": True}])
    def test_no_longer_deliverable_whatever_else_changed(self, served, permits, fields):
        served.put_catalog(replace(stored(served, "ds_orange"), topic="zoning", **fields))
        assert self.reason(served, permits) == "no_longer_deliverable"


class TestLog:
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
        served.put_catalog(replace(stored(served, "ds_florida"), retired=True))
        subscription = served.subscribe(places=["fl"])
        assert self.page(served, subscription) == ([], "evt_000000000000")
        assert self.page(served, subscription, cursor="evt_000000000000") == ([], "evt_000000000000")

    def test_the_same_cursor_gives_the_same_events_in_the_same_order_again(self, served, log):
        first = served.events(log, cursor="evt_000000000002")
        assert [e["id"] for e in first] == ["evt_000000000003", "evt_000000000004", "evt_000000000005"]
        served.release("ds_florida", 6, previous_version=5)
        assert served.events(log, cursor="evt_000000000002")[:3] == first

    def test_a_page_has_100_events_unless_a_limit_up_to_500_is_given(self, served):
        made = served.subscribe(datasetIds=["ds_florida"])
        with served.ports.store.write() as records:
            moved = [removed("ds_florida", "plan_changed"), added("ds_florida", None)]
            records.events.append(made, moved * 250, served.clock.now())
        assert [len(self.page(served, made, **query)[0]) for query in ({}, {"limit": 500}, {"limit": 7})] == [
            100,
            500,
            7,
        ]
        assert error(served.get(f"{SUBSCRIPTIONS}/{made}/events?limit=501"))[:2] == (400, "invalid_input")


class TestRetention:
    """A log of which the first or all events are 90 days old and gone."""

    @pytest.fixture
    def path(self, served, orange):
        served.release("ds_orange", 1)
        served.clock.advance(days=1)
        served.release("ds_orange", 2, previous_version=1)
        served.clock.advance(days=89)
        prune(served.ports)
        return f"{SUBSCRIPTIONS}/{orange}/events"

    def codes(self, served, path, *cursors):
        return [served.get(path, params={"cursor": cursor}).status_code for cursor in cursors]

    CURSORS = ("evt_000000000000", "evt_000000000001", "evt_000000000002", "evt_000000000003")

    def test_a_cursor_whose_following_events_were_pruned_is_expired_also_when_all_were(self, served, path):
        assert self.codes(served, path, *self.CURSORS) == [410, 410, 200, 200]
        served.clock.advance(days=1)
        prune(served.ports)
        assert self.codes(served, path, *self.CURSORS) == [410, 410, 410, 200]
        assert error(served.get(f"{path}?cursor={self.CURSORS[2]}")) == (410, "expired", "cursor")

    def test_the_manifest_gives_a_cursor_to_go_on_from(self, served, path, orange):
        assert "manifest" in served.get(f"{path}?cursor={self.CURSORS[0]}").json()["error"]["message"]
        cursor = served.get(f"{SUBSCRIPTIONS}/{orange}/manifest").json()["eventCursor"]
        assert served.events(orange, cursor=cursor) == []
        served.release("ds_orange", 3, previous_version=2)
        assert [e["data"]["version"] for e in served.events(orange, cursor=cursor)] == [3]

    def test_without_a_cursor_it_is_expired_once_the_first_events_are_gone(self, served, path):
        assert error(served.get(path)) == (410, "expired", "cursor")

    def test_without_a_cursor_reading_starts_at_the_oldest_event(self, served, orange):
        served.release("ds_orange", 1)
        first = [e["id"] for e in served.events(orange)]
        assert first == ["evt_000000000001", "evt_000000000002"]

    def test_a_cursor_past_the_newest_event_was_never_given(self, served, path):
        for cursor in ("evt_000000000004", "evt_999999999999"):
            assert error(served.get(path, params={"cursor": cursor})) == (400, "invalid_input", "cursor")


class TestJoining:
    def test_new_dataset_of_a_place_joins_on_its_own(self, served):
        subscription = served.subscribe(places=["fl"])
        served.put_catalog(replace(stored(served, "ds_florida"), id="ds_new"))
        assert told(served.events(subscription)) == [("added", "ds_florida"), ("added", "ds_new")]

    def test_county_that_joins_and_leaves_the_coverage_moves_its_datasets(self, served):
        subscription = served.subscribe(places=["fl-counties"])
        served.put_catalog(replace(stored(served, "ds_kings"), place="fl-county-lake"))
        assert len(served.events(subscription)) == 3
        set_workspace(served.ports, "florida", ["fl-county-orange", "fl-county-lake"])
        set_workspace(served.ports, "florida", ["fl-county-orange"])
        events = served.events(subscription)[3:]
        assert told(events) == [("added", "ds_kings"), ("removed", "ds_kings")]
        assert events[1]["data"]["reason"] == "left_coverage"
