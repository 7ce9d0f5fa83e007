"""What a subscription would deliver, before there is one (page 000 "Preview before you subscribe", D8.8, F055)."""

from dataclasses import replace

import pytest
from tests.api.conftest import dataset, error

from ploti_server.pipeline.workspaces import set_workspace

SUBSCRIPTIONS = "/v1/feeds/subscriptions"
PREVIEW = f"{SUBSCRIPTIONS}/preview"
EVERYWHERE = {"places": ["fl-county-orange", "fl-county-seminole", "fl", "us"], "datasetIds": ["ds_nowhere"]}


def preview(served, body, who="admin", **query):
    answer = served.post(PREVIEW, body, who, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


def names(found):
    return [one["id"] for one in found["datasets"]]


class TestTotals:
    def test_preview_answers_what_a_subscription_would_deliver_without_creating_one(self, served_on_each):
        found = preview(served_on_each, {"places": ["fl-county-orange"], "datasetIds": ["ds_orange", "ds_nowhere"]})
        assert found == {
            "total": 4,
            "matchedBy": {"places": 3, "datasets": 2},
            "byTopic": [{"topic": "permits", "count": 2}, {"topic": "zoning", "count": 1}, {"topic": None, "count": 1}],
            "byPlace": [
                {"id": "fl-county-orange", "name": "Orange County", "kind": "county", "count": 3},
                {"id": None, "name": None, "kind": "us", "count": 1},
            ],
            "matching": 4,
            "datasets": [
                {"id": "ds_both", "title": "Both", "matchedBy": ["places"]},
                {"id": "ds_orange", "title": "Orange", "matchedBy": ["places", "datasets"]},
                {"id": "ds_orange_zoning", "title": "Orange_Zoning", "matchedBy": ["places"]},
                {"id": "ds_nowhere", "title": "Nowhere", "matchedBy": ["datasets"]},
            ],
            "nextCursor": None,
        }
        assert served_on_each.get(SUBSCRIPTIONS).json()["subscriptions"] == []

    @pytest.mark.parametrize(
        "body",
        [
            EVERYWHERE,
            {"places": ["fl-counties"]},
            {"places": ["fl-county-orange", "fl-county-seminole"], "topics": ["permits"]},
            {"places": ["us"], "topics": ["zoning"], "datasetIds": ["ds_orange_zoning"]},
            {"datasetIds": ["ds_both"]},
        ],
    )
    def test_total_is_exact_a_dataset_over_several_places_counts_once(self, served, body):
        found = preview(served, body)
        subscription = served.subscribe(**body)
        delivered = served.get(f"/v1/feeds/datasets?subscription={subscription}").json()["datasets"]
        assert found["total"] == len(delivered) == len(names(found))
        assert sorted(names(found)) == [one["id"] for one in delivered]
        assert sum(one["count"] for one in found["byTopic"]) == found["total"]
        assert sum(one["count"] for one in found["byPlace"]) == found["total"]

    def test_it_takes_the_fields_of_a_create_and_creates_nothing(self, served):
        for body in ({"places": ["us"]}, {"places": ["fl-county-orange"], "topics": ["zoning"]}, EVERYWHERE):
            found = preview(served, body)
            assert served.get(SUBSCRIPTIONS).json()["subscriptions"] == []
            made = served.subscribe(**body)
            delivered = served.get(f"/v1/feeds/datasets?subscription={made}").json()["datasets"]
            assert sorted(names(found)) == [one["id"] for one in delivered]
            served.delete(f"{SUBSCRIPTIONS}/{made}")

    def test_counts_by_topic_and_by_filed_place_are_of_the_same_datasets(self, served):
        served.put_catalog(dataset("ds_wide", "fl-county-orange", "zoning", covers=("fl-county-seminole",)))
        found = preview(served, EVERYWHERE, q="orange", limit=1)
        assert {one["topic"]: one["count"] for one in found["byTopic"]} == {"permits": 4, "zoning": 2, None: 1}
        by_place = {one["id"]: one["count"] for one in found["byPlace"]}
        assert by_place == {"fl-county-orange": 4, "fl": 1, "us": 1, None: 1}
        assert sum(by_place.values()) == found["total"] == 7

    def test_total_includes_datasets_without_a_topic(self, served):
        served.put_catalog(dataset("ds_untold", "fl-county-orange", None))
        found = preview(served, {"places": ["fl-county-orange"]})
        places = {p["id"]: p for p in served.get("/v1/places?deliverable=true").json()["places"]}
        assert found["total"] == 4 == sum(places["fl-county-orange"]["datasetCounts"].values()) + 1
        assert {"topic": None, "count": 1} in found["byTopic"]

    def test_totals_ignore_what_narrows_the_page_and_matching_obeys_it(self, served):
        whole = preview(served, EVERYWHERE)
        narrowed = preview(served, EVERYWHERE, q="orange", limit=1)
        for field in ("total", "matchedBy", "byTopic", "byPlace"):
            assert narrowed[field] == whole[field]
        assert (narrowed["matching"], len(narrowed["datasets"])) == (2, 1)

    def test_a_place_that_by_place_names_narrows_the_page_though_it_is_not_covered(self, served):
        set_workspace(served.ports, "florida", ["fl-county-seminole"])
        served.put_catalog(dataset("ds_wide", "fl-county-orange", "zoning", covers=("fl-county-seminole",)))
        body = {"places": ["fl-county-seminole"]}
        assert "fl-county-orange" in {one["id"] for one in preview(served, body)["byPlace"]}
        assert "ds_wide" in names(preview(served, body, place="fl-county-orange"))

    def test_name_may_come_along_as_in_a_create(self, served):
        assert preview(served, {"name": "Mine", "places": ["us"]})["total"] == 1


class TestNarrowing:
    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ({"q": "ORANGE"}, ["ds_orange", "ds_orange_zoning"]),
            ({"q": "zon orange"}, ["ds_orange_zoning"]),
            ({"q": ""}, ["ds_both", "ds_nation", "ds_nowhere", "ds_orange", "ds_orange_zoning", "ds_florida"]),
            ({"q": "%"}, []),
            ({"place": "fl-county-orange"}, ["ds_both", "ds_orange", "ds_orange_zoning"]),
            ({"place": "fl-county-seminole"}, []),
            ({"place": "fl-counties"}, ["ds_both", "ds_orange", "ds_orange_zoning"]),
            ({"place": "fl"}, ["ds_florida"]),
            ({"place": "us"}, ["ds_nation"]),
            ({"topic": "zoning"}, ["ds_orange_zoning"]),
            ({"topic": "none"}, ["ds_nowhere"]),
            ({"matchedBy": "datasets"}, ["ds_nowhere"]),
            ({"matchedBy": "places", "topic": "zoning", "q": "o"}, ["ds_orange_zoning"]),
            ({"sort": "place", "topic": "permits"}, ["ds_florida", "ds_both", "ds_orange", "ds_nation"]),
            ({"sort": "title", "topic": "permits"}, ["ds_both", "ds_florida", "ds_nation", "ds_orange"]),
            ({"sort": "updated", "topic": "permits"}, ["ds_nation", "ds_both", "ds_florida", "ds_orange"]),
        ],
    )
    def test_page_is_narrowed_and_sorted_by_what_is_asked_for(self, served, query, expected):
        served.version("ds_nation", 1)
        in_query = preview(served, EVERYWHERE, **query)
        in_body = preview(served, EVERYWHERE | query)
        assert in_query == in_body
        ordered = names(in_query) if "sort" in query else sorted(names(in_query))
        assert ordered == (expected if "sort" in query else sorted(expected))
        assert in_query["matching"] == len(expected)

    def test_place_filter_gives_what_by_place_counts(self, served):
        found = preview(served, EVERYWHERE)
        for place in (one for one in found["byPlace"] if one["id"] is not None):
            assert preview(served, EVERYWHERE, place=place["id"])["matching"] == place["count"]

    @pytest.mark.parametrize(
        ("body", "query", "expected"),
        [
            ({"limit": 0}, {}, (400, "invalid_input", "limit")),
            ({"limit": 201}, {}, (400, "invalid_input", "limit")),
            ({"limit": "5"}, {}, (400, "invalid_input", "limit")),
            ({"limit": True}, {}, (400, "invalid_input", "limit")),
            ({"q": None}, {}, (400, "invalid_input", "q")),
            ({"q": "x" * 201}, {}, (400, "invalid_input", "q")),
            ({"sort": "newest"}, {}, (400, "invalid_input", "sort")),
            ({"matchedBy": "topics"}, {}, (400, "invalid_input", "matchedBy")),
            ({"cursor": "x"}, {}, (400, "invalid_input", "cursor")),
            ({}, {"sort": "newest"}, (400, "invalid_input", "sort")),
            ({}, {"matchedBy": ""}, (400, "invalid_input", "matchedBy")),
            ({}, {"limit": "201"}, (400, "invalid_input", "limit")),
            ({}, {"cursor": "x"}, (400, "invalid_input", "cursor")),
            ({}, {"page": "2"}, (400, "invalid_input", "page")),
            ({}, {"topic": "other"}, (400, "invalid_input", "topic")),
            ({}, {"place": "ny"}, (409, "outside_coverage", "place")),
            ({"q": "a"}, {"q": "a"}, (400, "invalid_input", "q")),
        ],
    )
    def test_wrong_narrowing_is_refused(self, served, body, query, expected):
        assert error(served.post(PREVIEW, {"places": ["fl"]} | body, params=query)) == expected


class TestRefusals:
    def test_a_place_outside_the_coverage_is_refused(self, served):
        body = {"places": ["fl", "ny"]}
        assert error(served.post(PREVIEW, body)) == (409, "outside_coverage", "places")
        set_workspace(served.ports, "florida", ["ny-counties", "fl-counties"])
        assert served.post(PREVIEW, body).status_code == 200

    def test_a_dataset_that_cannot_be_delivered_is_refused(self, served):
        for dataset_id in ("ds_kings", "ds_withheld", "ds_unknown"):
            body = {"places": ["fl"], "datasetIds": ["ds_florida", dataset_id]}
            assert error(served.post(PREVIEW, body)) == (409, "not_deliverable", "datasetIds")

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (b"", (400, "invalid_input", None)),
            (b"{", (400, "invalid_input", None)),
            (b"[]", (400, "invalid_input", None)),
            (b"{}", (400, "invalid_input", "places")),
            (b'{"topics": ["permits"]}', (400, "invalid_input", "places")),
            (b'{"places": "fl"}', (400, "invalid_input", "places")),
            (b'{"places": ["fl"], "webhook": 1}', (400, "invalid_input", "webhook")),
            (b'{"places": ["fl"], "topics": ["other"]}', (400, "invalid_input", "topics")),
        ],
    )
    def test_an_empty_or_malformed_body_is_refused(self, served, content, expected):
        assert error(served.client.post(PREVIEW, content=content, headers=served.headers())) == expected

    def test_preview_needs_the_plan(self, served):
        served.plans.available = False
        assert error(served.post(PREVIEW, {"places": ["fl"]}))[:2] == (503, "plan_unavailable")

    def test_limit_of_25_subscriptions_does_not_apply(self, served):
        for _ in range(25):
            served.subscribe(places=["us"])
        assert preview(served, {"places": ["us"]})["total"] == 1

    def test_member_previews_and_other_workspaces_see_their_own(self, served):
        assert preview(served, {"places": ["us"]}, "member")["total"] == 1
        assert preview(served, {"places": ["us", "ny-county-kings"]}, "other")["total"] == 2
        assert error(served.post(PREVIEW, {"places": ["us"]}, "hooks"))[:2] == (403, "not_allowed")

    def test_plan_narrows_what_would_be_delivered(self, served):
        set_workspace(served.ports, "florida", topics=["zoning"])
        assert names(preview(served, {"places": ["fl-county-orange", "fl"]})) == ["ds_orange_zoning"]


class TestPages:
    """60 datasets of equal title and place, in pages of 7, while versions are released between pages."""

    @pytest.fixture
    def many(self, served):
        served.put_catalog(*(replace(dataset(f"ds_m{n:02d}", "fl-county-orange"), title="Same") for n in range(60)))
        for n in range(0, 60, 2):
            served.version(f"ds_m{n:02d}", 1)
        served.clock.advance(seconds=1)
        return served

    def pages(self, served, between=lambda _: None, **query):
        found, page, number = [], preview(served, {"places": ["fl-county-orange"]}, limit=7, **query), 0
        while True:
            found += names(page)
            if page["nextCursor"] is None:
                return found
            number += 1
            between(number)
            page = preview(served, {"places": ["fl-county-orange"]}, limit=7, cursor=page["nextCursor"], **query)

    @pytest.mark.parametrize("sort", ["place", "title", "updated", None])
    def test_each_dataset_is_listed_once_though_versions_are_released_between_pages(self, many, sort):
        def release(number):
            many.clock.advance(seconds=1)
            many.version(f"ds_m{59 - number:02d}", 2, previous_version=1)
            many.version(f"ds_m{number:02d}", 3, previous_version=2)

        query = {} if sort is None else {"sort": sort}
        found = self.pages(many, release, **query)
        assert len(found) == len(set(found)) == 63

    def test_sorted_by_title_ignoring_case_then_id(self, served):
        served.put_catalog(*(replace(dataset(f"ds_t{n}", "fl"), title=t) for n, t in enumerate(["b", "B", "a", "É"])))
        found = preview(served, {"places": ["fl"]}, sort="title")
        assert names(found) == ["ds_t2", "ds_t0", "ds_t1", "ds_florida", "ds_t3"]

    def test_sorted_by_updated_newest_first_and_unreleased_last(self, served):
        for name in ("ds_both", "ds_orange"):
            served.version(name, 1)
            served.clock.advance(seconds=1)
        found = preview(served, {"places": ["fl-county-orange"]}, sort="updated")
        assert names(found) == ["ds_orange", "ds_both", "ds_orange_zoning"]

    def test_sorted_by_place_by_default(self, served):
        found = preview(served, EVERYWHERE)
        assert names(found) == names(preview(served, EVERYWHERE, sort="place"))
        assert names(found)[0] == "ds_florida"
        assert names(found)[-1] == "ds_nowhere"

    @pytest.mark.parametrize("change", [{"sort": "title"}, {"q": "a"}, {"topic": "permits"}, {"place": "fl"}])
    def test_cursor_belongs_to_its_selection_and_filters(self, served, change):
        cursor = preview(served, EVERYWHERE, limit=1)["nextCursor"]
        assert error(served.post(PREVIEW, EVERYWHERE, params={"cursor": cursor} | change))[:2] == (400, "invalid_input")
        assert error(served.post(PREVIEW, {"places": ["fl"]}, params={"cursor": cursor}))[2] == "cursor"
