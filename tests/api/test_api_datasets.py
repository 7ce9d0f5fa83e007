"""Places, topics and datasets over the API (page 000)."""

import json
from dataclasses import replace

import pytest

from ploti_server.domain.checks import CheckStatus
from ploti_server.domain.schema import Column, Schema
from ploti_server.domain.versions import VersionStatus

DELIVERABLE = ["ds_both", "ds_florida", "ds_nation", "ds_nowhere", "ds_orange", "ds_orange_zoning"]


def ids(answer):
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["datasets"]]


class TestPlaces:
    def counts(self, served, **query):
        answer = served.get("/v1/places", params=query)
        assert answer.status_code == 200, answer.text
        return {place["id"]: place["datasetCount"] for place in answer.json()["places"]}

    def test_places_are_those_of_the_coverage_with_their_datasets(self, served):
        assert self.counts(served) == {
            "fl-county-orange": 4,
            "fl-county-seminole": 1,
            "fl": 1,
            "fl-counties": 4,
            "us": 1,
        }

    def test_deliverable_counts_only_what_can_be_delivered(self, served):
        assert self.counts(served, deliverable="true")["fl-county-orange"] == 3

    def test_dataset_without_a_topic_is_in_the_count_but_not_in_the_counts_by_topic(self, served):
        served.put_catalog(replace(_stored(served, "ds_florida"), topic=None))
        (place,) = (p for p in served.get("/v1/places?kind=state").json()["places"])
        assert (place["datasetCount"], place["datasetCounts"]) == (1, {})
        assert place["state"] == "fl"

    def test_places_are_narrowed_by_state_and_kind(self, served):
        assert list(self.counts(served, state="fl", kind="county")) == ["fl-county-orange", "fl-county-seminole"]
        assert self.counts(served, state="ny") == {}
        assert list(self.counts(served, kind="us")) == ["us"]

    @pytest.mark.parametrize("query", ["state=florida", "state=us", "kind=city", "deliverable=1", "deliverable="])
    def test_wrong_filter_is_invalid_input(self, served, query):
        assert served.get(f"/v1/places?{query}").json()["error"]["code"] == "invalid_input"

    def test_deliverable_places_need_the_plan_the_others_do_not(self, served):
        served.plans.available = False
        assert served.get("/v1/places?deliverable=true").status_code == 503
        assert served.get("/v1/places").status_code == 200

    def test_topics_are_listed_in_catalog_order(self, served):
        assert served.get("/v1/topics").json() == {
            "topics": [{"id": "permits", "name": "Permits"}, {"id": "zoning", "name": "Zoning"}]
        }


class TestList:
    def test_only_deliverable_datasets_are_listed_by_id(self, served):
        assert ids(served.get("/v1/feeds/datasets")) == DELIVERABLE
        assert ids(served.get("/v1/feeds/datasets", "other")) == ["ds_kings", "ds_nation", "ds_nowhere"]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("place=fl-county-orange", ["ds_both", "ds_orange", "ds_orange_zoning"]),
            ("place=fl-county-seminole", ["ds_both"]),
            ("place=fl-counties", ["ds_both", "ds_orange", "ds_orange_zoning"]),
            ("place=fl", ["ds_florida"]),
            ("place=us", ["ds_nation"]),
            ("topic=zoning", ["ds_orange_zoning"]),
            ("topic=zoning&place=fl", []),
        ],
    )
    def test_list_is_narrowed_by_place_and_topic(self, served, query, expected):
        assert ids(served.get(f"/v1/feeds/datasets?{query}")) == expected

    def test_list_is_narrowed_to_what_a_subscription_holds(self, served):
        subscription = served.subscribe(places=["fl"], datasetIds=["ds_nowhere"])
        assert ids(served.get(f"/v1/feeds/datasets?subscription={subscription}")) == ["ds_florida", "ds_nowhere"]

    @pytest.mark.parametrize(
        ("query", "code"),
        [
            ("place=ny-county-kings", "outside_coverage"),
            ("place=atlantis", "outside_coverage"),
            ("topic=none", "invalid_input"),
            ("topic=", "invalid_input"),
            ("subscription=sub_x", "not_found"),
            ("updatedSince=yesterday", "invalid_input"),
            ("updatedSince=2026-01-01", "invalid_input"),
            ("updatedSince=2026-01-01T00:00:00", "invalid_input"),
            ("updatedSince=2026-02-30T00:00:00Z", "invalid_input"),
            ("updatedSince=0001-01-01T00:00:00%2B23:59", "invalid_input"),
        ],
    )
    def test_wrong_filter_is_refused(self, served, query, code):
        answer = served.get(f"/v1/feeds/datasets?{query}")
        assert answer.json()["error"]["code"] == code

    def test_updated_since_is_inclusive_and_reads_the_release_not_the_build(self, served):
        served.version("ds_orange", 1)
        first = served.clock.now()
        served.clock.advance(hours=1)
        served.version("ds_both", 1, built_at=first)
        second = "2026-01-01T01:00:00Z"
        assert ids(served.get("/v1/feeds/datasets?updatedSince=2026-01-01T00:00:00Z")) == ["ds_both", "ds_orange"]
        assert ids(served.get(f"/v1/feeds/datasets?updatedSince={second}")) == ["ds_both"]
        assert ids(served.get("/v1/feeds/datasets?updatedSince=2026-01-01T02:00:00%2B01:00")) == ["ds_both"]
        assert ids(served.get("/v1/feeds/datasets?updatedSince=2026-01-01T01:00:00.001Z")) == []

    def test_pages_neither_lose_nor_repeat_while_releases_happen(self, served):
        seen, cursor = [], ""
        for number in range(1, 9):
            answer = served.get(f"/v1/feeds/datasets?limit=2{cursor}")
            seen += ids(answer)
            served.version("ds_orange", number)
            if answer.json()["nextCursor"] is None:
                break
            cursor = f"&cursor={answer.json()['nextCursor']}"
        assert seen == DELIVERABLE

    def test_last_page_that_is_full_has_no_next(self, served):
        assert served.get("/v1/feeds/datasets?limit=6").json()["nextCursor"] is None

    def test_cursor_is_bound_to_its_filters_and_its_workspace(self, served):
        cursor = served.get("/v1/feeds/datasets?limit=2").json()["nextCursor"]
        for path, who in (
            (f"/v1/feeds/datasets?topic=permits&cursor={cursor}", "admin"),
            (f"/v1/feeds/datasets?cursor={cursor}", "other"),
            (f"/v1/feeds/datasets?cursor={cursor}x", "admin"),
            ("/v1/feeds/datasets?cursor=", "admin"),
            ("/v1/feeds/datasets?cursor=W10", "admin"),
            ("/v1/feeds/datasets?cursor=%C3%A9", "admin"),
        ):
            error = served.get(path, who).json()["error"]
            assert (error["code"], error["field"]) == ("invalid_input", "cursor"), path


class TestDataset:
    def test_released_dataset_shows_its_current_version_key_and_shape(self, served):
        shape = Column("geometry", "geometry", True, "geometry", geometry_type="Point")
        schema = Schema((Column("id", "string", False, "id"), shape), ("id",))
        served.version("ds_orange", 3, schema=schema, schema_version="2.1")
        answer = served.get("/v1/feeds/datasets/ds_orange").json()
        assert answer["current"] == {
            "version": 3,
            "schemaVersion": "2.1",
            "publishedAt": "2026-01-01T00:00:00.000Z",
            "rowCount": 30,
        }
        assert (answer["keyed"], answer["keyColumns"], answer["status"]) == (True, ["id"], "available")
        assert answer["geometry"] == {"type": "Point", "srid": 4326}

    def test_key_of_a_newer_version_shows_only_once_released(self, served):
        assert served.get("/v1/feeds/datasets/ds_orange").json()["keyed"] is False
        served.version("ds_orange", 1, schema=Schema((Column("id", "string", False, "id"),)))
        served.version("ds_orange", 2, status=VersionStatus.HELD, reasons=("data_check",))
        answer = served.get("/v1/feeds/datasets/ds_orange").json()
        assert (answer["keyed"], answer["keyColumns"], answer["current"]["version"]) == (False, [], 1)

    @pytest.mark.parametrize(
        ("dataset_id", "place"),
        [
            ("ds_orange", {"id": "fl-county-orange", "name": "Orange County", "kind": "county"}),
            ("ds_both", {"id": "fl-county-orange", "name": "Orange County", "kind": "county"}),
            ("ds_florida", {"id": "fl", "name": "Florida", "kind": "state"}),
            ("ds_nation", {"id": "us", "name": "United States", "kind": "us"}),
            ("ds_nowhere", {"id": None, "name": None, "kind": None}),
        ],
    )
    def test_place_is_the_filed_one_else_the_first_covered_else_null(self, served, dataset_id, place):
        assert served.get(f"/v1/feeds/datasets/{dataset_id}").json()["place"] == place

    def test_local_path_of_a_source_never_shows(self, served):
        stored = _stored(served, "ds_orange")
        served.put_catalog(replace(stored, source=replace(stored.source, url="/srv/secret/permits.csv")))
        answer = served.get("/v1/feeds/datasets/ds_orange")
        assert answer.json()["source"]["url"] is None
        assert "secret" not in answer.text

    def test_status_goes_from_not_built_over_building_and_held_to_available(self, served):
        def status():
            return served.get("/v1/feeds/datasets/ds_orange").json()["status"]

        assert status() == "not_built"
        served.subscribe(places=["fl-county-orange"])
        assert status() == "building"
        served.check("ds_orange", status=CheckStatus.FAILED)
        assert status() == "failed"
        served.version("ds_orange", 1, status=VersionStatus.HELD, reasons=("data_check",))
        assert status() == "held"
        served.version("ds_orange", 1)
        assert status() == "available"

    def test_dataset_whose_source_is_gone_awaits_its_release(self, served):
        stored = _stored(served, "ds_orange")
        served.put_catalog(replace(stored, source=replace(stored.source, url="/nowhere/permits.csv")))
        served.subscribe(places=["fl-county-orange"])
        assert served.get("/v1/feeds/datasets/ds_orange").json()["status"] == "awaiting_release"

    @pytest.mark.parametrize(
        ("dataset_id", "code"),
        [
            ("ds_unknown", "not_found"),
            ("ds_kings", "outside_coverage"),
            ("ds_withheld", "not_deliverable"),
            ("ds_retired", "not_deliverable"),
        ],
    )
    @pytest.mark.parametrize("tail", ["", "/versions", "/versions/1", "/schema", "/schemas"])
    def test_dataset_that_cannot_be_delivered_is_refused_everywhere(self, served, dataset_id, code, tail):
        assert served.get(f"/v1/feeds/datasets/{dataset_id}{tail}").json()["error"]["code"] == code

    def test_plan_decides_and_is_unavailable_where_it_cannot_be_read(self, served):
        with served.ports.store.write() as records:
            workspace = records.workspaces.named("florida")
            records.workspaces.put(replace(workspace, topics=("zoning",)))
        assert ids(served.get("/v1/feeds/datasets")) == ["ds_orange_zoning"]
        assert served.get("/v1/feeds/datasets/ds_orange").json()["error"]["code"] == "not_deliverable"
        served.plans.available = False
        assert served.get("/v1/feeds/datasets").json()["error"]["code"] == "plan_unavailable"


def test_read_answers_304_to_its_own_etag_until_it_changes(served):
    first = served.get("/v1/feeds/datasets/ds_orange")
    tag = first.headers["etag"]
    again = served.get("/v1/feeds/datasets/ds_orange", headers={"If-None-Match": f'"x", {tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    served.version("ds_orange", 1)
    assert served.get("/v1/feeds/datasets/ds_orange", headers={"If-None-Match": tag}).status_code == 200


def test_dataset_example_of_the_docs_has_exactly_the_shape_served(served):
    served.version("ds_orange", 1)
    example = json.loads((_docs() / "dataset.json").read_text(encoding="utf-8"))
    assert example.keys() == served.get("/v1/feeds/datasets/ds_orange").json().keys()


def _docs():
    from pathlib import Path

    return Path(__file__).parents[2] / "docs" / "examples"


def _stored(served, dataset_id):
    with served.ports.store.read() as records:
        return records.catalog.dataset(dataset_id)
