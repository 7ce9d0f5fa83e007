"""Changing a subscription: revisions, refusals, and who joins and leaves (page 000 "Changing a subscription", D8.1)."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.api.conftest import error

from ploti_server.pipeline.workspaces import set_workspace

SUBSCRIPTIONS = "/v1/feeds/subscriptions"


def told(events):
    return [(e["type"].removeprefix("feed.dataset."), e["data"]["datasetId"], e["data"].get("reason")) for e in events]


@pytest.fixture
def one(served):
    """The path of a subscription to Orange County's permits and one named dataset; its log is at event 3."""
    made = served.subscribe(
        name="Mine", places=["fl-county-orange"], topics=["permits"], datasetIds=["ds_orange_zoning"]
    )
    return f"{SUBSCRIPTIONS}/{made}"


def events_since(served, path, number=3):
    return told(served.events(path.rpartition("/")[2])[number:])


class TestFields:
    @pytest.mark.parametrize(
        ("sent", "expected"),
        [
            ({"name": "Other"}, {"name": "Other"}),
            ({"places": ["us"]}, {"places": ["us"]}),
            ({"topics": ["zoning", "permits", "zoning"]}, {"topics": ["zoning", "permits"]}),
            ({"datasetIds": ["ds_nowhere"]}, {"datasetIds": ["ds_nowhere"]}),
            ({"topics": []}, {"topics": []}),
            ({"datasetIds": []}, {"datasetIds": []}),
            ({"places": []}, {"places": []}),
            ({"places": ["fl"], "name": "Both"}, {"places": ["fl"], "name": "Both"}),
        ],
    )
    def test_fields_sent_replace_those_and_fields_left_out_are_kept(self, served, one, sent, expected):
        before = served.get(one).json()
        served.clock.advance(hours=1)
        answer = served.patch(one, sent | {"revision": 1})
        assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
        assert answer.json() == before | expected | {"revision": 2, "updatedAt": "2026-01-01T01:00:00.000Z"}
        assert served.get(one).json() == answer.json()

    @pytest.mark.parametrize("field", ["name", "places", "topics", "datasetIds", "revision"])
    def test_null_is_not_accepted_and_an_empty_list_clears(self, served, one, field):
        assert error(served.patch(one, {"name": "A", "revision": 1, field: None})) == (400, "invalid_input", field)
        if field in ("places", "topics", "datasetIds"):
            assert served.get(one).json()[field] != []
            assert served.patch(one, {"revision": 1, field: []}).json()[field] == []

    @pytest.mark.parametrize(
        ("sent", "expected"),
        [
            ({"id": "sub_x"}, (400, "invalid_input", "id")),
            ({"name": ""}, (400, "invalid_input", "name")),
            ({"places": "fl"}, (400, "invalid_input", "places")),
            ({"places": ["fl"] * 501}, (400, "invalid_input", "places")),
            ({"topics": ["other"]}, (400, "invalid_input", "topics")),
            ({"revision": "1"}, (400, "invalid_input", "revision")),
            ({"revision": True}, (400, "invalid_input", "revision")),
            ({"revision": 0}, (400, "invalid_input", "revision")),
            ({"places": ["ny"]}, (409, "outside_coverage", "places")),
            ({"places": ["atlantis"]}, (409, "outside_coverage", "places")),
            ({"datasetIds": ["ds_kings"]}, (409, "not_deliverable", "datasetIds")),
            ({"datasetIds": ["ds_withheld"]}, (409, "not_deliverable", "datasetIds")),
            ({"places": [], "datasetIds": []}, (400, "invalid_input", "places")),
        ],
    )
    def test_refused_change_changes_nothing(self, served, one, sent, expected):
        before = served.get(one).json()
        assert error(served.patch(one, {"revision": 1} | sent)) == expected
        assert served.get(one).json() == before
        assert events_since(served, one) == []

    def test_to_stop_receiving_the_subscription_is_deleted(self, served, one):
        refused = served.patch(one, {"places": [], "datasetIds": [], "revision": 1})
        assert "delete the subscription to stop receiving" in refused.json()["error"]["message"]
        assert served.delete(one).status_code == 200
        served.release("ds_orange", 1)
        assert error(served.get(f"{one}/events"))[:2] == (404, "not_found")

    def test_change_that_would_leave_no_places_and_no_datasets_is_refused_field_by_field(self, served, one):
        assert served.patch(one, {"places": [], "revision": 1}).status_code == 200
        assert error(served.patch(one, {"datasetIds": [], "revision": 2})) == (400, "invalid_input", "places")

    def test_fields_left_out_are_not_checked_again(self, served, one):
        set_workspace(served.ports, "florida", ["fl-county-seminole"])
        assert served.patch(one, {"name": "Kept", "revision": 1}).json()["places"] == ["fl-county-orange"]
        again = served.patch(one, {"places": ["fl-county-orange"], "revision": 2})
        assert error(again) == (409, "outside_coverage", "places")

    def test_body_that_is_no_object_is_refused(self, served, one):
        assert error(served.patch(one, [])) == (400, "invalid_input", None)
        answer = served.client.patch(one, content=b"{", headers=served.headers())
        assert error(answer) == (400, "invalid_input", None)

    def test_change_that_makes_no_difference_makes_no_revision(self, served, one):
        served.clock.advance(hours=1)
        answer = served.patch(one, {"name": "Mine", "revision": 1})
        assert (answer.status_code, answer.json()["revision"]) == (200, 1)
        assert answer.json()["updatedAt"] == "2026-01-01T00:00:00.000Z"


class TestRevision:
    def test_every_read_gives_the_revision_as_etag(self, served, one):
        read = served.get(one, "member")
        assert (read.headers["etag"], read.json()["revision"]) == ('"1"', 1)

    @pytest.mark.parametrize(
        ("if_match", "in_body", "expected"),
        [
            (None, None, (400, "invalid_input", "revision")),
            ('"1"', None, 200),
            (None, 1, 200),
            ('"7"', 1, 200),
            ("*", 1, 200),
            ("nonsense", 1, 200),
            ('"1"', 7, (412, "precondition_failed", None)),
            ('"0"', None, (412, "precondition_failed", None)),
            ('"2"', None, (412, "precondition_failed", None)),
            (None, 2, (412, "precondition_failed", None)),
            ('W/"1"', None, (412, "precondition_failed", None)),
            ('"other"', None, (412, "precondition_failed", None)),
            ('"7", "1"', None, 200),
            ('"7",W/"1"', None, (412, "precondition_failed", None)),
            ("*", None, (400, "invalid_input", "If-Match")),
            ("1", None, (400, "invalid_input", "If-Match")),
            ("", None, (400, "invalid_input", "If-Match")),
            ('"1" "2"', None, (400, "invalid_input", "If-Match")),
        ],
    )
    def test_revision_of_the_body_wins_over_if_match_and_one_is_needed(self, served, one, if_match, in_body, expected):
        headers = {} if if_match is None else {"If_Match": if_match}
        sent = {"name": "New"} | ({} if in_body is None else {"revision": in_body})
        answer = served.patch(one, sent, **headers)
        assert (200 if answer.status_code == 200 else error(answer)) == expected

    @pytest.mark.parametrize("way", ["header", "body"])
    def test_two_edits_never_overwrite_each_other(self, served, one, way):
        def edit(name, read):
            if way == "body":
                return served.patch(one, {"name": name, "revision": read.json()["revision"]})
            return served.patch(one, {"name": name}, If_Match=read.headers["etag"])

        mine, yours = served.get(one), served.get(one, "member")
        assert edit("First", mine).status_code == 200
        assert error(edit("Second", yours))[:2] == (412, "precondition_failed")
        assert served.get(one).json()["name"] == "First"

    def test_a_change_without_any_revision_is_invalid(self, served, one):
        assert error(served.patch(one, {"name": "New"})) == (400, "invalid_input", "revision")
        assert served.get(one).json()["name"] == "Mine"

    def test_a_stale_revision_is_a_precondition_that_failed(self, served, one):
        served.patch(one, {"name": "First", "revision": 1})
        for stale in (
            served.patch(one, {"name": "Second"}, If_Match='"1"'),
            served.patch(one, {"name": "Second", "revision": 1}),
            served.patch(one, {"name": "Second", "revision": 1}, If_Match='"2"'),
        ):
            assert error(stale)[:2] == (412, "precondition_failed")

    def test_stale_revision_says_what_it_is_now_and_reading_again_helps(self, served, one):
        served.patch(one, {"name": "First", "revision": 1})
        stale = served.patch(one, {"name": "Second"}, If_Match='"1"')
        assert error(stale)[:2] == (412, "precondition_failed")
        assert "revision 2" in stale.json()["error"]["message"]
        again = served.patch(one, {"name": "Second"}, If_Match=served.get(one).headers["etag"])
        assert (again.status_code, again.json()["name"]) == (200, "Second")

    def test_one_of_many_edits_at_once_wins(self, served_on_each):
        made = served_on_each.subscribe(places=["us"])
        path = f"{SUBSCRIPTIONS}/{made}"
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda n: served_on_each.patch(path, {"name": f"n{n}", "revision": 1}), range(6)))
        codes = sorted(answer.status_code for answer in answers)
        assert codes[0] == 200
        assert set(codes[1:]) <= {409, 412}
        assert served_on_each.get(path).json()["revision"] == 2


class TestMembership:
    def test_datasets_that_join_send_added_and_those_that_leave_send_removed(self, served_on_each):
        made = served_on_each.subscribe(places=["fl-county-orange"], topics=["permits"])
        path = f"{SUBSCRIPTIONS}/{made}"
        served_on_each.patch(path, {"topics": ["zoning"], "places": ["fl-county-orange", "us"], "revision": 1})
        assert events_since(served_on_each, path, 2) == [
            ("removed", "ds_both", "subscription_changed"),
            ("removed", "ds_orange", "subscription_changed"),
            ("added", "ds_orange_zoning", None),
        ]

    def test_dataset_that_stays_says_nothing(self, served, one):
        served.patch(one, {"places": ["fl-counties"], "revision": 1})
        assert events_since(served, one) == []

    def test_reason_is_the_first_that_holds_when_several_do(self, served, one):
        with served.ports.store.write() as records:
            orange = records.catalog.dataset("ds_orange")
            records.catalog.put_dataset(replace(orange, retired=True))
        served.patch(one, {"places": ["us"], "revision": 1})
        assert events_since(served, one) == [
            ("removed", "ds_both", "subscription_changed"),
            ("removed", "ds_orange", "no_longer_deliverable"),
            ("added", "ds_nation", None),
        ]

    def test_links_of_a_dataset_that_left_are_signed_no_longer(self, served, one):
        served.version("ds_orange", 1)
        path = "/v1/feeds/datasets/ds_orange/versions/1"
        assert served.get(path).status_code == 200
        served.patch(one, {"places": [], "revision": 1})
        assert error(served.get(path))[:2] == (409, "not_subscribed")

    def test_change_needs_the_plan_and_waits_for_nobody(self, served, one):
        served.plans.available = False
        assert error(served.patch(one, {"name": "A", "revision": 1}))[:2] == (503, "plan_unavailable")
        served.plans.available = True
        with served.ports.store.busy(one.rpartition("/")[2]):
            assert error(served.patch(one, {"places": ["us"], "revision": 1}))[:2] == (409, "busy")
        assert served.get(one).json()["revision"] == 1


class TestAccess:
    def test_only_an_admin_changes_and_only_its_own_workspaces(self, served, one):
        assert error(served.patch(one, {"name": "A", "revision": 1}, "member"))[:2] == (403, "not_allowed")
        assert error(served.patch(one, {"name": "A", "revision": 1}, "hooks"))[:2] == (403, "not_allowed")
        assert error(served.patch(one, {"name": "A", "revision": 1}, "other"))[:2] == (404, "not_found")
        unknown = f"{SUBSCRIPTIONS}/sub_0123456789abcdef"
        assert error(served.patch(unknown, {"name": "A", "revision": 1}))[:2] == (404, "not_found")


def test_reads_answer_304_to_their_own_etag_and_signed_links_have_none(served):
    served.version("ds_orange", 1)
    subscription = served.subscribe(places=["fl-county-orange"])
    one = f"{SUBSCRIPTIONS}/{subscription}"
    dataset = "/v1/feeds/datasets/ds_orange"
    reads = ["/v1/places", "/v1/topics", "/v1/feeds/datasets", dataset, f"{dataset}/versions", f"{dataset}/schema"]
    for path in (*reads, f"{dataset}/schemas", SUBSCRIPTIONS, one, f"{one}/events"):
        tag = served.get(path).headers["etag"]
        for given in (tag, tag.removeprefix("W/"), f"W/{tag.removeprefix('W/')}", f'"x", {tag}', "*"):
            again = served.get(path, headers={"If-None-Match": given})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag), path
        assert served.get(path, headers={"If-None-Match": '"x"'}).status_code == 200
    for path in (f"{one}/manifest", f"{dataset}/versions/1"):
        answer = served.get(path, headers={"If-None-Match": "*"})
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        assert "etag" not in answer.headers


def test_etag_changes_with_what_is_read(served):
    subscription = served.subscribe(places=["fl-county-orange"])
    events = f"{SUBSCRIPTIONS}/{subscription}/events"
    tags = [served.get(events).headers["etag"]]
    for number in (1, 2):
        served.release("ds_orange", number, **({"previous_version": 1} if number == 2 else {}))
        tags.append(served.get(events).headers["etag"])
    assert all(a != b for a, b in itertools.combinations(tags, 2))
