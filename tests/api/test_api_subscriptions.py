"""Subscriptions and their events over the API (page 000, 003, D7.3 to D7.7)."""

import pytest
from tests.api.conftest import error, told

from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.deliver import deliver_due

SUBSCRIPTIONS = "/v1/feeds/subscriptions"
VERSION = "/v1/feeds/datasets/ds_florida/versions/1"


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
        wider = {"places": ["us", "fl"], "revision": 1}
        assert served.patch(f"{SUBSCRIPTIONS}/{made[0]}", wider).status_code == 200
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


class TestAfterADelete:
    """What has stopped once the only subscription to a dataset is gone."""

    @pytest.fixture
    def deleted(self, served):
        """The id of the subscription that was deleted."""
        made = served.subscribe(places=["fl"])
        served.post("/v1/webhooks", {"url": "https://acme.example/hooks", "subscriptionId": made})
        served.release("ds_florida", 1)
        assert served.get(VERSION).status_code == 200
        served.delete(f"{SUBSCRIPTIONS}/{made}")
        return made

    def test_its_events_and_its_webhooks_have_stopped(self, served, deleted):
        served.release("ds_florida", 2, previous_version=1)
        assert deliver_due(served.ports, "test") == 0
        assert served.ports.hooks.sender.sent == []
        assert served.get("/v1/webhooks").json()["webhooks"] == []
        assert error(served.get(f"{SUBSCRIPTIONS}/{deleted}/events"))[:2] == (404, "not_found")

    def test_its_versions_are_refused_as_not_subscribed(self, served, deleted):
        assert error(served.get(VERSION))[:2] == (409, "not_subscribed")
        assert error(served.post(f"{VERSION}/links", {"files": ["schema.json"]}))[:2] == (409, "not_subscribed")
