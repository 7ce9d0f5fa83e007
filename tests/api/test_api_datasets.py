"""Datasets over the API, a test for each sentence of page 000 about them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.api.conftest import dataset

from ploti_server.domain.checks import CheckStatus, Refresh
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.schema import Column, Schema
from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.workspaces import set_workspace

DELIVERABLE = ["ds_both", "ds_florida", "ds_nation", "ds_nowhere", "ds_orange", "ds_orange_zoning"]


def ids(answer):
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["datasets"]]


class TestList:
    def test_only_deliverable_datasets_are_listed_by_id(self, served):
        assert ids(served.get("/v1/feeds/datasets")) == DELIVERABLE
        assert ids(served.get("/v1/feeds/datasets", "other")) == ["ds_kings", "ds_nation", "ds_nowhere"]
        set_workspace(served.ports, "florida", topics=["zoning"])
        assert ids(served.get("/v1/feeds/datasets")) == ["ds_orange_zoning"]

    def test_what_the_subscriptions_could_deliver_is_listed_up_to_200_a_page(self, served):
        served.put_catalog(*(dataset(f"ds_x{n:03d}", "us") for n in range(200)))
        page = served.get("/v1/feeds/datasets?limit=200")
        assert len(ids(page)) == 200
        rest = served.get(f"/v1/feeds/datasets?limit=200&cursor={page.json()['nextCursor']}")
        assert (len(ids(rest)), rest.json()["nextCursor"]) == (6, None)
        error = served.get("/v1/feeds/datasets?limit=201").json()["error"]
        assert (error["code"], error["field"]) == ("invalid_input", "limit")

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("place=fl-county-seminole", ["ds_both"]),
            ("topic=zoning", ["ds_orange_zoning"]),
            ("subscription={subscription}", ["ds_florida", "ds_orange_zoning"]),
            ("updatedSince=2026-01-01T01:00:00Z", ["ds_nation", "ds_orange_zoning"]),
            ("subscription={subscription}&updatedSince=2026-01-01T01:00:00Z", ["ds_orange_zoning"]),
            ("place=us&topic=permits&updatedSince=2026-01-01T01:00:00Z", ["ds_nation"]),
        ],
    )
    def test_the_list_is_narrowed_by_place_topic_subscription_and_release(self, served, query, expected):
        subscription = served.subscribe(places=["fl"], datasetIds=["ds_orange_zoning"])
        served.version("ds_florida", 1)
        served.clock.advance(hours=1)
        for name in ("ds_orange_zoning", "ds_nation"):
            served.version(name, 1)
        path = f"/v1/feeds/datasets?{query.format(subscription=subscription)}"
        assert ids(served.get(path)) == expected

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
    def test_one_is_returned_by_its_id_just_as_it_is_listed(self, served):
        served.version("ds_orange", 1)
        for one in served.get("/v1/feeds/datasets").json()["datasets"]:
            assert served.get(f"/v1/feeds/datasets/{one['id']}").json() == one

    def test_data_atlas_id_is_the_catalogs_or_null(self, served):
        served.put_catalog(replace(_stored(served, "ds_orange"), data_atlas_id="DATASET-1A2B-3C4D5E"))
        shown = [served.get(f"/v1/feeds/datasets/{one}").json()["dataAtlasId"] for one in ("ds_orange", "ds_both")]
        assert shown == ["DATASET-1A2B-3C4D5E", None]

    def test_place_is_of_a_county_a_state_or_the_us_also_where_it_is_filed_nowhere(self, served):
        kinds = {one["id"]: one["place"]["kind"] for one in served.get("/v1/feeds/datasets").json()["datasets"]}
        assert kinds == {
            "ds_both": "county",
            "ds_florida": "state",
            "ds_nation": "us",
            "ds_nowhere": "us",
            "ds_orange": "county",
            "ds_orange_zoning": "county",
        }

    def test_what_the_catalog_does_not_tell_is_null(self, served):
        bare = Dataset("ds_bare", "Bare", SourceSpec("file", "/nowhere/bare.csv"))
        served.put_catalog(bare)
        shown = served.get("/v1/feeds/datasets/ds_bare").json()
        assert (shown["description"], shown["topic"]) == (None, None)
        assert (shown["place"]["id"], shown["place"]["name"]) == (None, None)
        assert shown["source"] == {"publisher": None, "url": None}
        told = {"description": "D", "publisher": "P", "place": "fl", "topic": "permits"}
        served.put_catalog(replace(bare, **told, source=SourceSpec("file", "https://gis.example.org/bare.csv")))
        shown = served.get("/v1/feeds/datasets/ds_bare").json()
        assert (shown["description"], shown["topic"], shown["place"]["name"]) == ("D", "permits", "Florida")
        assert shown["source"] == {"publisher": "P", "url": "https://gis.example.org/bare.csv"}

    def test_current_is_the_newest_released_version_or_null_before_the_first(self, served):
        def current():
            shown = served.get("/v1/feeds/datasets/ds_orange").json()["current"]
            return shown and (shown["version"], shown["rowCount"])

        served.version("ds_orange", 1, status=VersionStatus.HELD, reasons=("data_check",))
        assert current() is None
        served.version("ds_orange", 2)
        served.version("ds_orange", 4, previous_version=2)
        served.version("ds_orange", 5, previous_version=4, status=VersionStatus.DISCARDED)
        assert current() == (4, 40)

    def test_two_released_in_the_same_moment_are_both_there_since_it(self, served):
        """F056: what is stamped exactly at the saved time is given again, not dropped."""
        for name in ("ds_orange", "ds_both"):
            served.version(name, 1)
        since = served.get("/v1/feeds/datasets/ds_orange").json()["current"]["publishedAt"]
        assert ids(served.get(f"/v1/feeds/datasets?updatedSince={since}")) == ["ds_both", "ds_orange"]

    def test_status_is_available_exactly_where_there_is_a_current_version(self, served):
        served.subscribe(places=["fl-county-orange"])
        served.version("ds_orange", 1)
        served.version("ds_orange", 2, previous_version=1, status=VersionStatus.HELD, reasons=("data_check",))
        served.check("ds_orange", status=CheckStatus.FAILED)
        served.version("ds_both", 1, status=VersionStatus.HELD, reasons=("data_check",))
        for one in served.get("/v1/feeds/datasets").json()["datasets"]:
            assert (one["status"] == "available") is (one["current"] is not None) is (one["id"] == "ds_orange")

    def test_refresh_tells_when_the_source_was_checked_and_when_the_next_check_is_due(self, served):
        assert served.get("/v1/feeds/datasets/ds_orange").json()["refresh"] == {
            "lastCheckedAt": None,
            "nextCheckBy": None,
        }
        last = served.clock.now()
        with served.ports.store.write() as records:
            records.catalog.put_refresh("ds_orange", Refresh(last, served.clock.advance(days=1)))
        assert served.get("/v1/feeds/datasets/ds_orange").json()["refresh"] == {
            "lastCheckedAt": "2026-01-01T00:00:00.000Z",
            "nextCheckBy": "2026-01-02T00:00:00.000Z",
        }

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
            ("ds_nowhere", {"id": None, "name": None, "kind": "us"}),
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

    def test_status_says_why_there_is_no_version_yet(self, served):
        def status(dataset_id="ds_orange"):
            return served.get(f"/v1/feeds/datasets/{dataset_id}").json()["status"]

        nowhere = replace(_stored(served, "ds_both").source, url="/nowhere/permits.csv")
        served.put_catalog(replace(_stored(served, "ds_both"), source=nowhere))

        assert status() == "not_built"
        served.subscribe(places=["fl-county-orange"])
        assert (status(), status("ds_both")) == ("building", "awaiting_release")
        served.check("ds_orange", status=CheckStatus.FAILED)
        assert status() == "failed"
        served.version("ds_orange", 1, status=VersionStatus.HELD, reasons=("data_check",))
        assert status() == "held"
        served.version("ds_orange", 1)
        assert status() == "available"

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


def names(value):
    """Give the names of an object and of the objects in it."""
    return {name: names(member) for name, member in value.items()} if isinstance(value, dict) else None


def test_a_dataset_has_exactly_the_members_of_the_example(served):
    shape = Column("geometry", "geometry", True, "geometry", geometry_type="Point")
    served.version("ds_orange", 1, schema=Schema((Column("id", "string", False, "id"), shape), ("id",)))
    examples = Path(__file__).parents[2] / "docs" / "examples"
    example = json.loads((examples / "dataset.json").read_text(encoding="utf-8"))
    shown = served.get("/v1/feeds/datasets/ds_orange").json()
    assert names(shown) == {**names(example), "license": shown["license"]}


def _stored(served, dataset_id):
    with served.ports.store.read() as records:
        return records.catalog.dataset(dataset_id)
