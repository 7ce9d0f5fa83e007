"""Places and topics over the API, a test for each sentence of page 000 about them (D10.1, D10.3)."""

from dataclasses import replace

import pytest
from tests.api.conftest import dataset

from ploti_server.pipeline.workspaces import set_workspace

DATASETS = "/v1/feeds/datasets"
SUBSCRIPTIONS = "/v1/feeds/subscriptions"
ORANGE, SEMINOLE, LAKE = "fl-county-orange", "fl-county-seminole", "fl-county-lake"


def places(served, **query):
    answer = served.get("/v1/places", params=query)
    assert answer.status_code == 200, answer.text
    return {place["id"]: place for place in answer.json()["places"]}


def counts(served, **query):
    return {place_id: place["datasetCount"] for place_id, place in places(served, **query).items()}


def listed(served, **query):
    answer = served.get(DATASETS, params=query)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["datasets"]]


def delivered(served, **body):
    return listed(served, subscription=served.subscribe(**body))


def code(answer):
    return answer.status_code, answer.json()["error"]["code"]


class TestKinds:
    @pytest.mark.parametrize(
        ("place_id", "name", "kind", "filed"),
        [
            pytest.param(ORANGE, "Orange County", "county", "ds_orange", id="a county is state, county and its name"),
            pytest.param("fl", "Florida", "state", "ds_florida", id="a state holds its statewide records"),
            pytest.param("us", "United States", "us", "ds_nation", id="us holds what is published nationally"),
        ],
    )
    def test_kind_of_place(self, served, place_id, name, kind, filed):
        shown = {"id": place_id, "name": name, "kind": kind}
        assert places(served)[place_id].items() >= shown.items()
        assert filed in listed(served, place=place_id)
        assert served.get(f"{DATASETS}/{filed}").json()["place"] == shown

    def test_a_states_counties_are_those_that_the_coverage_has_in_it(self, served):
        served.put_catalog(dataset("ds_lake", LAKE), dataset("ds_seminole", SEMINOLE))
        covered = ["ds_both", "ds_orange", "ds_orange_zoning", "ds_seminole"]
        assert places(served)["fl-counties"]["kind"] == "state_counties"
        assert listed(served, place="fl-counties") == covered
        set_workspace(served.ports, "florida", [ORANGE, LAKE])
        assert listed(served, place="fl-counties") == ["ds_both", "ds_lake", "ds_orange", "ds_orange_zoning"]

    def test_every_place_and_topic_that_is_listed_can_be_subscribed_to(self, served):
        topics = [topic["id"] for topic in served.get("/v1/topics").json()["topics"]]
        for place_id in places(served):
            assert served.post(SUBSCRIPTIONS, {"places": [place_id], "topics": topics}).status_code == 201

    @pytest.mark.parametrize("spelt", ["FL-county-orange", "fl_county_orange", "FL", "fl-county-orange-county", "US"])
    def test_an_id_is_used_exactly_as_it_is_given(self, served, spelt):
        assert code(served.get(DATASETS, params={"place": spelt})) == (409, "outside_coverage")
        assert code(served.post(SUBSCRIPTIONS, {"places": [spelt]})) == (409, "outside_coverage")


class TestSeveralCounties:
    @pytest.mark.parametrize("county", [ORANGE, SEMINOLE])
    def test_a_dataset_over_several_counties_counts_is_listed_and_joins_under_each(self, served, county):
        before = places(served)[county]["datasetCounts"]["permits"]
        served.put_catalog(dataset("ds_wide", ORANGE, covers=(ORANGE, SEMINOLE)))
        assert places(served)[county]["datasetCounts"]["permits"] == before + 1
        assert "ds_wide" in listed(served, place=county)
        assert "ds_wide" in delivered(served, places=[county])

    def test_it_counts_once_toward_the_states_counties(self, served):
        before = counts(served)["fl-counties"]
        served.put_catalog(dataset("ds_wide", None, covers=(ORANGE, SEMINOLE)))
        assert counts(served)["fl-counties"] == before + 1
        assert listed(served, place="fl-counties").count("ds_wide") == 1


class TestStatesCounties:
    def test_they_stand_for_all_counties_of_the_coverage_as_one_place(self, served):
        served.put_catalog(dataset("ds_seminole", SEMINOLE))
        each = {one for county in (ORANGE, SEMINOLE) for one in delivered(served, places=[county])}
        assert delivered(served, places=["fl-counties"]) == sorted(each)

    def test_a_county_that_joins_the_coverage_joins_and_one_taken_out_is_dropped(self, served):
        served.put_catalog(dataset("ds_lake", LAKE))
        subscription = served.subscribe(places=["fl-counties"])
        set_workspace(served.ports, "florida", [ORANGE, LAKE])
        assert listed(served, subscription=subscription) == ["ds_both", "ds_lake", "ds_orange", "ds_orange_zoning"]
        set_workspace(served.ports, "florida", [ORANGE, SEMINOLE])
        assert listed(served, subscription=subscription) == ["ds_both", "ds_orange", "ds_orange_zoning"]

    def test_the_states_own_records_are_not_among_them(self, served):
        assert "ds_florida" not in delivered(served, places=["fl-counties"])

    def test_the_states_own_records_come_with_the_state(self, served):
        assert delivered(served, places=["fl"]) == ["ds_florida"]
        assert "ds_florida" in delivered(served, places=["fl", "fl-counties"])


class TestList:
    def test_places_are_those_of_the_coverage_with_their_datasets(self, served):
        assert counts(served) == {ORANGE: 4, SEMINOLE: 1, "fl": 1, "fl-counties": 4, "us": 1}

    def test_each_has_its_state_and_its_count_in_all_and_by_topic(self, served):
        served.put_catalog(dataset("ds_untold", ORANGE, None))
        found = places(served)
        assert {place_id: place["state"] for place_id, place in found.items()} == {
            ORANGE: "fl",
            SEMINOLE: "fl",
            "fl": "fl",
            "fl-counties": "fl",
            "us": None,
        }
        assert (found[ORANGE]["datasetCount"], found[ORANGE]["datasetCounts"]) == (5, {"permits": 3, "zoning": 1})
        assert (found["us"]["datasetCount"], found["us"]["datasetCounts"]) == (1, {"permits": 1})

    def test_deliverable_counts_only_what_can_be_delivered(self, served):
        only = places(served, deliverable="true")[ORANGE]
        assert (only["datasetCount"], only["datasetCounts"]) == (3, {"permits": 2, "zoning": 1})
        assert counts(served, deliverable="false") == counts(served)

    def test_all_come_at_once_or_those_of_a_state_or_kind(self, served):
        set_workspace(served.ports, "florida", ["tx-counties", "fl-counties"])
        assert len(places(served)) == 254 + 67 + 2 + 2 + 1
        assert list(served.get("/v1/places").json()) == ["places"]
        assert {place["state"] for place in places(served, state="tx").values()} == {"tx"}
        assert len(places(served, state="tx", kind="county")) == 254
        assert list(places(served, kind="us")) == ["us"]
        assert places(served, state="ny") == {}

    @pytest.mark.parametrize("query", ["state=florida", "state=us", "kind=city", "deliverable=1", "deliverable="])
    def test_wrong_filter_is_invalid_input(self, served, query):
        assert served.get(f"/v1/places?{query}").json()["error"]["code"] == "invalid_input"

    def test_deliverable_places_need_the_plan_the_others_do_not(self, served):
        served.plans.available = False
        assert served.get("/v1/places?deliverable=true").status_code == 503
        assert served.get("/v1/places").status_code == 200

    def test_a_statewide_dataset_is_covered_with_a_county_and_a_national_one_with_any(self, served):
        for who, found in (("admin", (200, 200)), ("other", (409, 200))):
            asked = [served.get(f"{DATASETS}/{one}", who).status_code for one in ("ds_florida", "ds_nation")]
            assert tuple(asked) == found


class TestTopics:
    def test_a_datasets_topic_is_the_one_it_is_filed_under_or_null(self, served):
        shown = {one["id"]: one["topic"] for one in served.get(DATASETS).json()["datasets"]}
        assert (shown["ds_orange"], shown["ds_orange_zoning"], shown["ds_nowhere"]) == ("permits", "zoning", None)
        fixed = {topic["id"] for topic in served.get("/v1/topics").json()["topics"]}
        assert set(shown.values()) - {None} <= fixed

    def test_topics_are_listed_in_catalog_order(self, served):
        assert served.get("/v1/topics").json() == {
            "topics": [{"id": "permits", "name": "Permits"}, {"id": "zoning", "name": "Zoning"}]
        }

    def test_filter_subscription_and_counts_go_by_the_same_topic(self, served):
        def by_topic(topic):
            found = listed(served, topic=topic, place=ORANGE)
            assert delivered(served, places=[ORANGE], topics=[topic]) == found
            assert places(served, deliverable="true")[ORANGE]["datasetCounts"].get(topic, 0) == len(found)
            return found

        assert by_topic("zoning") == ["ds_orange_zoning"]
        with served.ports.store.read() as records:
            orange = records.catalog.dataset("ds_orange")
        served.put_catalog(replace(orange, topic="zoning"))
        assert by_topic("zoning") == ["ds_orange", "ds_orange_zoning"]
        assert by_topic("permits") == ["ds_both"]
