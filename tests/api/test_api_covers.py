"""What a subscription covers and who may say so, a test for each sentence of page 000 about it (D8.8, D10.3)."""

import pytest
from tests.api.conftest import dataset, error

from ploti_server.domain.places import counties_of
from ploti_server.pipeline.workspaces import create_key, remove_member, set_workspace

DATASETS = "/v1/feeds/datasets"
SUBSCRIPTIONS = "/v1/feeds/subscriptions"
ORANGE = "fl-county-orange"


def delivered(served, subscription):
    answer = served.get(DATASETS, params={"subscription": subscription})
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["datasets"]]


def covered(served, **body):
    return delivered(served, served.subscribe(**body))


def test_it_belongs_to_the_workspace_not_to_the_person_who_created_it(served):
    served.keys["eve"] = create_key(served.ports, "florida", "eve", "admin").text
    made = served.subscribe("eve", places=[ORANGE])
    remove_member(served.ports, "florida", "eve")
    served.release("ds_orange", 1)
    assert served.events(made)[-1]["data"]["version"] == 1
    renamed = served.patch(f"{SUBSCRIPTIONS}/{made}", {"name": "Ours", "revision": 1})
    assert (renamed.status_code, renamed.json()["name"]) == (200, "Ours")


class TestFields:
    def test_places_bring_every_deliverable_dataset_in_each_now_and_later(self, served):
        made = served.subscribe(places=[ORANGE, "us"])
        assert delivered(served, made) == ["ds_both", "ds_nation", "ds_orange", "ds_orange_zoning"]
        served.put_catalog(dataset("ds_new", ORANGE), dataset("ds_withheld_too", ORANGE, deliverable=False))
        assert delivered(served, made) == ["ds_both", "ds_nation", "ds_new", "ds_orange", "ds_orange_zoning"]

    def test_a_whole_state_is_one_of_the_500_places_that_may_be_named(self, served):
        set_workspace(served.ports, "florida", ["tx-counties", "va-counties", "ga-counties"])
        each = sorted(counties_of("tx") | counties_of("va") | counties_of("ga"))
        served.put_catalog(*(dataset(f"ds_{county[10:]}", county) for county in sorted(counties_of("tx"))[:3]))
        assert len(each) > 500
        assert error(served.post(SUBSCRIPTIONS, {"places": each[:501]})) == (400, "invalid_input", "places")
        assert served.post(SUBSCRIPTIONS, {"places": each[:500]}).status_code == 201
        assert len(covered(served, places=["tx-counties", *each[:499]])) == 3
        assert len(covered(served, places=["tx-counties"])) == 3

    def test_topics_narrow_the_places_and_not_the_datasets_named(self, served):
        body = {"places": [ORANGE], "topics": ["zoning"], "datasetIds": ["ds_florida"]}
        assert covered(served, **body) == ["ds_florida", "ds_orange_zoning"]
        assert covered(served, **body | {"topics": ["zoning", "permits"]}) == [
            "ds_both",
            "ds_florida",
            "ds_orange",
            "ds_orange_zoning",
        ]

    def test_every_topic_and_none_where_topics_are_left_out(self, served):
        served.put_catalog(dataset("ds_untold", ORANGE, None))
        every = ["ds_both", "ds_orange", "ds_orange_zoning", "ds_untold"]
        assert covered(served, places=[ORANGE]) == covered(served, places=[ORANGE], topics=[]) == every
        assert covered(served, places=[ORANGE], topics=["permits", "zoning"]) == every[:-1]

    @pytest.mark.parametrize("dataset_id", ["ds_florida", "ds_nation", "ds_orange", "ds_nowhere"])
    def test_a_dataset_may_be_named_on_its_own_from_anywhere_in_the_coverage(self, served, dataset_id):
        assert covered(served, datasetIds=[dataset_id]) == [dataset_id]
        assert dataset_id in covered(served, places=["fl-county-seminole"], datasetIds=[dataset_id])


class TestRules:
    @pytest.mark.parametrize("body", [{}, {"places": []}, {"name": "x", "topics": ["permits"]}, {"datasetIds": []}])
    def test_at_least_one_place_or_dataset_is_named(self, served, body):
        assert error(served.post(SUBSCRIPTIONS, body)) == (400, "invalid_input", "places")
        assert served.post(SUBSCRIPTIONS, body | {"places": ["us"]}).status_code == 201
        assert served.post(SUBSCRIPTIONS, body | {"datasetIds": ["ds_nation"]}).status_code == 201

    def test_deleting_one_makes_room_for_another(self, served):
        made = [served.subscribe(places=["us"]) for _ in range(25)]
        assert error(served.post(SUBSCRIPTIONS, {"places": ["us"]}))[:2] == (409, "limit_reached")
        served.delete(f"{SUBSCRIPTIONS}/{made[7]}")
        assert [served.post(SUBSCRIPTIONS, {"places": ["us"]}).status_code for _ in range(2)] == [201, 409]

    def test_any_member_reads_the_subscriptions_and_what_they_deliver(self, served):
        served.version("ds_orange", 1)
        made = served.subscribe(places=[ORANGE])
        one = f"{SUBSCRIPTIONS}/{made}"
        assert [s["id"] for s in served.get(SUBSCRIPTIONS, "member").json()["subscriptions"]] == [made]
        for path in (one, f"{one}/events", f"{DATASETS}?subscription={made}"):
            assert served.get(path, "member").json() == served.get(path).json()
        url = served.get(f"{one}/manifest", "member").json()["datasets"][0]["files"]["snapshot"][0]["url"]
        assert served.client.get(url).status_code == 200
        assert served.get(f"{DATASETS}/ds_orange/versions/1", "member").status_code == 200

    def test_creating_changing_and_deleting_takes_a_workspace_admin(self, served):
        one = f"{SUBSCRIPTIONS}/{served.subscribe(places=['fl'])}"
        for refused in (
            served.post(SUBSCRIPTIONS, {"places": ["us"]}, "member"),
            served.patch(one, {"name": "Mine", "revision": 1}, "member"),
            served.delete(one, "member"),
        ):
            assert error(refused) == (403, "not_allowed", None)
        assert served.get(SUBSCRIPTIONS).json()["subscriptions"] == [served.get(one).json()]
        assert served.post(SUBSCRIPTIONS, {"places": ["us"]}).status_code == 201
        assert served.patch(one, {"name": "Mine", "revision": 1}).status_code == 200
        assert served.delete(one).status_code == 200


@pytest.fixture(params=["create", "change", "preview"])
def sent(served, request):
    """Send fields as a create, a change or a preview; gives the error that comes of it."""
    one = f"{SUBSCRIPTIONS}/{served.subscribe(places=['fl'])}"

    def send(**fields):
        if request.param == "change":
            before = served.get(one).json()
            answer = served.patch(one, fields | {"revision": 1})
            assert served.get(one).json() == before
        else:
            path = SUBSCRIPTIONS if request.param == "create" else f"{SUBSCRIPTIONS}/preview"
            answer = served.post(path, {"places": ["fl"]} | fields)
        assert len(served.get(SUBSCRIPTIONS).json()["subscriptions"]) == 1
        return error(answer)

    return send


class TestRefused:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("name", ""),
            ("name", 5),
            ("places", "fl"),
            ("places", [5]),
            ("topics", None),
            ("topics", [""]),
            ("datasetIds", {}),
            ("datasetIds", ["x" * 201]),
        ],
    )
    def test_every_field_is_checked(self, sent, field, value):
        assert sent(**{field: value}) == (400, "invalid_input", field)

    def test_a_topic_that_is_not_listed_or_nothing_named(self, sent):
        assert sent(topics=["permits", "other"]) == (400, "invalid_input", "topics")
        assert sent(places=[], datasetIds=[]) == (400, "invalid_input", "places")

    @pytest.mark.parametrize("place", ["ny-county-kings", "fl-county-lake", "ny", "ny-counties", "atlantis"])
    def test_a_place_outside_the_coverage(self, sent, place):
        assert sent(places=["fl", place]) == (409, "outside_coverage", "places")

    @pytest.mark.parametrize("dataset_id", ["ds_withheld", "ds_retired", "ds_kings", "ds_unknown"])
    def test_a_dataset_that_cannot_be_delivered(self, sent, dataset_id):
        assert sent(datasetIds=["ds_orange", dataset_id]) == (409, "not_deliverable", "datasetIds")

    def test_a_dataset_that_the_plan_does_not_open(self, served, sent):
        set_workspace(served.ports, "florida", topics=["permits"])
        assert sent(datasetIds=["ds_orange_zoning"]) == (409, "not_deliverable", "datasetIds")

    def test_the_26th_is_told_to_widen_one_or_delete_one_and_both_help(self, served):
        made = [served.subscribe(places=["us"]) for _ in range(25)]
        refused = served.post(SUBSCRIPTIONS, {"places": ["fl"]})
        assert error(refused)[:2] == (409, "limit_reached")
        assert "widen one with more places or topics, or delete one first" in refused.json()["error"]["message"]
        wider = served.patch(f"{SUBSCRIPTIONS}/{made[0]}", {"places": ["us", "fl"], "revision": 1})
        assert wider.status_code == 200
        served.delete(f"{SUBSCRIPTIONS}/{made[1]}")
        assert served.post(SUBSCRIPTIONS, {"places": ["fl"]}).status_code == 201
