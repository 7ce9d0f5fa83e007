"""Versions, their links, and schemas over the API (page 001, 004, D1.5, I4)."""

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ploti_server.domain.schema import Column, Schema, SchemaChange, SchemaVersion
from ploti_server.domain.versions import Counts, StoredFile, VersionStatus
from ploti_server.pipeline.prune import prune
from ploti_server.pipeline.workspaces import set_workspace

PATH = "/v1/feeds/datasets/ds_orange/versions"
HIDDEN = [str(s) for s in VersionStatus if s not in (VersionStatus.RELEASED, VersionStatus.RELEASED_AGAIN)]


def numbers(answer):
    assert answer.status_code == 200, answer.text
    return [version["version"] for version in answer.json()["versions"]]


@pytest.fixture
def subscribed(served):
    served.subscribe(places=["fl-county-orange"])
    return served


class TestList:
    @pytest.fixture
    def chain(self, served):
        served.version("ds_orange", 2)
        for number, previous in ((3, 2), (5, 3), (8, 5)):
            served.version("ds_orange", number, previous_version=previous)
        return served

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("", [2, 3, 5, 8]),
            ("?after=3", [5, 8]),
            ("?after=3&order=asc", [5, 8]),
            ("?order=desc", [8, 5, 3, 2]),
            ("?order=desc&after=2", [8, 5, 3]),
            ("?after=8", []),
        ],
    )
    def test_released_versions_are_listed_in_order(self, chain, query, expected):
        assert numbers(chain.get(PATH + query)) == expected

    @pytest.mark.parametrize("query", ["limit=1", "limit=3", "limit=1&order=desc", "limit=1&order=desc&after=2"])
    def test_pages_give_what_one_page_gives(self, chain, query):
        whole = numbers(chain.get(f"{PATH}?{query.partition('&')[2]}"))
        seen, cursor = [], ""
        while True:
            answer = chain.get(f"{PATH}?{query}{cursor}")
            seen += numbers(answer)
            if answer.json()["nextCursor"] is None:
                break
            cursor = f"&cursor={answer.json()['nextCursor']}"
        assert seen == whole

    def test_version_to_apply_has_counts_and_one_to_reload_has_none(self, chain):
        first, second = chain.get(PATH).json()["versions"][:2]
        assert (first["resyncRequired"], first["counts"], first["previousVersion"]) == (True, None, None)
        assert (second["resyncRequired"], second["previousVersion"]) == (False, 2)
        assert second["counts"] == {"added": 1, "changed": 2, "removed": 3}
        again = chain.version(
            "ds_orange", 9, previous_version=8, resync_reason="schema_changed", counts=Counts(1, 1, 1)
        )
        listed = chain.get(f"{PATH}?after=8").json()["versions"]
        assert [(one["version"], one["counts"]) for one in listed] == [(again.number, None)]

    def test_what_stands_above_a_number_is_listed_in_ascending_order(self, chain):
        for number, previous in ((41, 8), (42, 41)):
            chain.version("ds_orange", number, previous_version=previous)
        assert numbers(chain.get(f"{PATH}?after=40&order=asc")) == [41, 42]

    def test_a_listed_version_has_the_shape_of_the_contracts_example(self, served):
        at = datetime(2026, 10, 18, 6, 12, 40, tzinfo=UTC)
        facts = {"schema_version": "2.1", "released_at": at, "fetched_at": at, "row_count": 184220}
        served.version("ds_orange", 42, previous_version=41, counts=Counts(212, 38, 3), **facts)
        assert json.dumps(served.get(PATH).json()) == json.dumps(
            {
                "versions": [
                    {
                        "datasetId": "ds_orange",
                        "version": 42,
                        "previousVersion": 41,
                        "schemaVersion": "2.1",
                        "publishedAt": "2026-10-18T06:12:40.000Z",
                        "sourceUrl": "https://gis.example.org/data.csv",
                        "fetchedAt": "2026-10-18T06:12:40.000Z",
                        "rowCount": 184220,
                        "counts": {"added": 212, "changed": 38, "removed": 3},
                        "resyncRequired": False,
                        "recordIdsChanged": False,
                    }
                ],
                "nextCursor": None,
            }
        )

    def test_source_url_and_fetched_at_can_be_null(self, served):
        served.version("ds_orange", 1, source_url=None, fetched_at=None)
        (listed,) = served.get(PATH).json()["versions"]
        assert (listed["sourceUrl"], listed["fetchedAt"]) == (None, None)

    def test_published_at_is_when_it_was_released_and_updated_since_reads_the_same_time(self, served):
        built, sent = served.clock.now(), served.clock.advance(days=2)
        served.version("ds_orange", 1, built_at=built, fetched_at=built, released_at=sent)
        assert served.get(PATH).json()["versions"][0]["publishedAt"] == "2026-01-03T00:00:00.000Z"
        for since, found in (("2026-01-03T00:00:00.000Z", ["ds_orange"]), ("2026-01-03T00:00:00.001Z", [])):
            answer = served.get(f"/v1/feeds/datasets?updatedSince={since}").json()
            assert [one["id"] for one in answer["datasets"]] == found

    @pytest.mark.parametrize(
        "query", ["after=-1", "after=x", "after=1.0", "after=%2B1", "order=up", "limit=0", "limit=201", "limit=1e2"]
    )
    def test_wrong_parameter_is_invalid_input_never_clamped(self, chain, query):
        error = chain.get(f"{PATH}?{query}").json()["error"]
        assert (error["code"], error["field"]) == ("invalid_input", query.partition("=")[0])

    def test_a_number_that_is_too_long_is_told_so(self, chain):
        error = chain.get(f"{PATH}?after=12345678901234567890").json()["error"]
        assert error["message"] == "'after': has to be a whole number in plain digits, 15 at most."

    def test_listing_needs_no_subscription(self, chain):
        assert numbers(chain.get(PATH)) == [2, 3, 5, 8]
        assert chain.get(f"{PATH}/8").json()["error"]["code"] == "not_subscribed"


class TestHidden:
    @pytest.mark.parametrize("status", HIDDEN)
    def test_unreleased_version_shows_nowhere_and_reads_like_an_unknown_one(self, subscribed, status):
        subscribed.version("ds_orange", 1)
        before = subscribed.get("/v1/feeds/datasets/ds_orange").json()
        subscribed.version("ds_orange", 2, previous_version=1, status=VersionStatus(status), schema_version="1.1")
        assert numbers(subscribed.get(PATH)) == [1]
        assert subscribed.get("/v1/feeds/datasets/ds_orange").json() == before
        for ask in (
            lambda number: subscribed.get(f"{PATH}/{number}"),
            lambda number: subscribed.post(f"{PATH}/{number}/links", {"files": ["schema.json"]}),
            lambda number: subscribed.get(f"/v1/feeds/datasets/ds_orange/schema?version={number}"),
        ):
            hidden, unknown = ask(2), ask(9)
            assert hidden.status_code == unknown.status_code == 404
            assert hidden.text == unknown.text.replace("9", "2")
        schemas = subscribed.get("/v1/feeds/datasets/ds_orange/schemas").json()["schemas"]
        assert [schema["schemaVersion"] for schema in schemas] == ["1.0"]

    def test_list_read_and_current_show_the_chain_that_the_events_tell(self, served):
        subscription = served.subscribe(places=["fl-county-orange"], topics=["permits"])
        served.release("ds_orange", 1)
        served.version("ds_orange", 2, previous_version=1, status=VersionStatus.HELD)
        served.release("ds_orange", 3, previous_version=1)
        served.version("ds_orange", 4, previous_version=3, status=VersionStatus.BUILDING)
        told = [one["data"]["version"] for one in served.events(subscription) if one["data"].get("version")]
        read = [number for number in range(1, 6) if served.get(f"{PATH}/{number}").status_code == 200]
        assert told == numbers(served.get(PATH)) == read == [1, 3]
        assert served.get("/v1/feeds/datasets/ds_orange").json()["current"]["version"] == 3

    def test_version_released_again_is_expired_and_no_longer_listed(self, subscribed):
        subscribed.version("ds_orange", 1)
        subscribed.version("ds_orange", 2, previous_version=1, status=VersionStatus.RELEASED_AGAIN)
        assert numbers(subscribed.get(PATH)) == [1]
        answer = subscribed.get(f"{PATH}/2")
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "expired")
        assert "released again" in answer.json()["error"]["message"]
        assert subscribed.post(f"{PATH}/2/links", {"files": ["schema.json"]}).status_code == 410

    def test_version_released_again_before_it_was_sent_was_never_there(self, subscribed):
        subscribed.version("ds_orange", 2, status=VersionStatus.RELEASED_AGAIN, released_at=None)
        assert subscribed.get(f"{PATH}/2").status_code == 404


REFUSED = {
    "a dataset that none of the subscriptions delivers": (None, 1, (409, "not_subscribed")),
    "a version that was never released": ("fl-county-orange", 2, (404, "not_found")),
    "a version released again": ("fl-county-orange", 3, (410, "expired")),
}


def put_refused(served):
    """Put a released version, one that was never sent and one that was released again."""
    served.version("ds_orange", 1)
    served.version("ds_orange", 2, previous_version=1, status=VersionStatus.DISCARDED)
    served.version("ds_orange", 3, previous_version=1, status=VersionStatus.RELEASED_AGAIN)


class TestFiles:
    @pytest.fixture
    def answered(self, subscribed):
        """The answer for a version to apply as changes."""
        subscribed.version("ds_orange", 1)
        subscribed.version("ds_orange", 2, previous_version=1)
        return subscribed.get(f"{PATH}/2")

    def test_version_is_answered_with_signed_links_to_its_files(self, subscribed, answered):
        files = answered.json()["files"]
        assert [f["path"] for f in files["changes"]] == ["changes/part-0000.parquet"]
        assert (answered.headers["cache-control"], "etag" in answered.headers) == ("no-store", False)
        for file in (*files["snapshot"], *files["changes"], files["schema"], files["manifest"]):
            assert len(subscribed.client.get(file["url"]).content) == file["sizeBytes"]

    def test_a_version_is_read_with_a_key_in_the_header_and_refused_without(self, subscribed):
        subscribed.version("ds_orange", 42, previous_version=41)
        url, key = f"{PATH}/42", subscribed.keys["admin"]
        answer = subscribed.client.get(url, headers={"Authorization": f"Bearer {key}"})
        assert (answer.status_code, answer.json()["version"]) == (200, 42)
        assert subscribed.client.get(url).status_code == 401

    def test_schema_manifest_and_attachments_stand_beside_the_parts(self, answered):
        files = answered.json()["files"]
        assert list(files) == [
            "snapshot",
            "changes",
            "backfill",
            "idMap",
            "schema",
            "manifest",
            "attachments",
            "expiresAt",
        ]
        assert (files["schema"]["path"], files["manifest"]["path"]) == ("schema.json", "manifest.json")
        assert files["attachments"] == []

    def test_links_last_an_hour_and_expire_at_expires_at(self, subscribed, answered):
        files = answered.json()["files"]
        assert files["expiresAt"] == "2026-01-01T01:00:00.000Z"
        for step, status in ((timedelta(hours=1, milliseconds=-1), 200), (timedelta(milliseconds=1), 403)):
            subscribed.clock.advance(step)
            assert subscribed.client.get(files["snapshot"][0]["url"]).status_code == status

    def test_fresh_links_can_be_asked_for_part_way_through_a_download(self, subscribed, answered):
        (file,) = answered.json()["files"]["snapshot"]
        begun = subscribed.client.get(file["url"], headers={"Range": "bytes=0-99"}).content
        subscribed.clock.advance(hours=1)
        assert subscribed.client.get(file["url"], headers={"Range": "bytes=100-"}).status_code == 403
        (fresh,) = subscribed.get(f"{PATH}/2").json()["files"]["snapshot"]
        rest = subscribed.client.get(fresh["url"], headers={"Range": "bytes=100-"}).content
        assert hashlib.sha256(begun + rest).hexdigest() == file["sha256"]

    def test_id_map_is_empty_unless_the_version_replaced_ids(self, subscribed, answered):
        made = subscribed.version("ds_orange", 3, previous_version=2, resync_reason="record_ids_changed")
        part = StoredFile("id-map/part-0000.parquet", "application/vnd.apache.parquet", 3, "0" * 64)
        subscribed.ports.files.put_bytes(f"{made.folder}/{part.path}", b"map")
        with subscribed.ports.store.write() as records:
            records.versions.put(replace(made, record_ids_changed=True, files=(*made.files, part)))
        maps = [answered.json()["files"]["idMap"], subscribed.get(f"{PATH}/3").json()["files"]["idMap"]]
        assert [[(file["path"], file["contentType"]) for file in map_] for map_ in maps] == [
            [],
            [("id-map/part-0000.parquet", "application/vnd.apache.parquet")],
        ]

    def test_links_are_signed_for_the_files_that_are_named_without_the_whole_version(self, subscribed):
        made = subscribed.version("ds_orange", 1)
        subscribed.ports.files.put_bytes(f"{made.folder}/rejects/part-0000.parquet", b"for staff")
        asked = ["schema.json", "rejects/part-0000.parquet", "snapshot/part-0000.parquet", "original", "schema.json"]
        answer = subscribed.post(f"{PATH}/1/links", {"files": asked}).json()
        assert list(answer) == ["files", "missing", "expiresAt"]
        assert [f["file"] for f in answer["files"]] == ["schema.json", "snapshot/part-0000.parquet"]
        assert answer["missing"] == ["rejects/part-0000.parquet", "original"]
        assert subscribed.client.get(answer["files"][0]["url"]).status_code == 200

    def test_each_signed_file_is_told_with_its_facts_and_when_its_link_expires(self, subscribed):
        (stored,) = subscribed.version("ds_orange", 1).files_of("schema")
        answer = subscribed.post(f"{PATH}/1/links", {"files": ["schema.json"]}).json()
        (file,) = answer["files"]
        assert list(file) == ["file", "filename", "contentType", "sizeBytes", "sha256", "url"]
        facts = ("schema.json", "schema.json", "application/json", stored.size_bytes, stored.sha256)
        assert tuple(file.values())[:5] == facts
        assert answer["expiresAt"] == "2026-01-01T01:00:00.000Z"
        for step, status in ((timedelta(hours=1, milliseconds=-1), 200), (timedelta(milliseconds=1), 403)):
            subscribed.clock.advance(step)
            assert subscribed.client.get(file["url"]).status_code == status

    def test_missing_are_the_names_without_a_file_or_with_none_left_past_retention(self, subscribed):
        subscribed.version("ds_orange", 1)
        subscribed.version("ds_orange", 2, previous_version=1)
        subscribed.version("ds_orange", 3, previous_version=2)
        subscribed.clock.advance(days=90)
        prune(subscribed.ports)
        names = ["nothing.parquet", "manifest.json", "snapshot/part-0000.parquet", "changes/part-0000.parquet"]
        answer = subscribed.post(f"{PATH}/2/links", {"files": names}).json()
        assert answer["missing"] == ["nothing.parquet", *names[2:]]

    @pytest.mark.parametrize(
        "body",
        [
            {},
            [],
            {"files": []},
            {"files": "schema.json"},
            {"files": [1]},
            {"files": [""]},
            {"files": ["x"] * 201},
            {"files": ["x"], "more": 1},
        ],
    )
    def test_wrong_body_is_invalid_input(self, subscribed, body):
        subscribed.version("ds_orange", 1)
        assert subscribed.post(f"{PATH}/1/links", body).json()["error"]["code"] == "invalid_input"

    @pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"files": [NaN]}', b"[" * 100_000])
    def test_body_that_is_not_json_is_invalid_input(self, subscribed, content):
        answer = subscribed.client.post(f"{PATH}/1/links", content=content, headers=subscribed.headers())
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input")

    def test_body_beyond_a_megabyte_is_invalid_input(self, subscribed):
        answer = subscribed.post(f"{PATH}/1/links", {"files": ["x" * 1_100_000]})
        assert answer.json()["error"]["code"] == "invalid_input"

    def test_up_to_two_hundred_attachments_and_paths_of_the_manifest_are_named_at_a_time(self, subscribed):
        made = subscribed.version("ds_orange", 1)
        paths = [file.path for file in made.files]
        names = [*paths, *(f"document:{n}" for n in range(200 - len(paths)))]
        answer = subscribed.post(f"{PATH}/1/links", {"files": names}).json()
        assert ([file["file"] for file in answer["files"]], len(answer["missing"])) == (paths, 200 - len(paths))
        refused = subscribed.post(f"{PATH}/1/links", {"files": [*names, "original"]}).json()
        assert refused["error"]["code"] == "invalid_input"

    @pytest.mark.parametrize(("place", "number", "refusal"), REFUSED.values(), ids=REFUSED)
    def test_links_are_refused_for(self, served, place, number, refusal):
        put_refused(served)
        set_workspace(served.ports, "new-york", ["fl-county-orange"])
        served.subscribe("other", places=["fl-county-orange"])
        served.subscribe(places=[place or "us"])
        answer = served.post(f"{PATH}/{number}/links", {"files": ["schema.json"]})
        assert (answer.status_code, answer.json()["error"]["code"]) == refusal

    def test_links_are_refused_in_the_words_of_the_version_itself(self, served):
        put_refused(served)
        codes = []
        for dataset, number in (
            ("ds_orange", 1), ("ds_orange", 2), ("ds_orange", 3), ("ds_unknown", 1), ("ds_kings", 1), ("ds_withheld", 1)
        ):  # fmt: skip
            path = f"/v1/feeds/datasets/{dataset}/versions/{number}"
            read, links = served.get(path), served.post(f"{path}/links", {"files": ["schema.json"]})
            assert (links.status_code, links.json()) == (read.status_code, read.json())
            codes.append(links.json()["error"]["code"])
            if number == 1 and dataset == "ds_orange":
                served.subscribe(places=["fl-county-orange"])
        assert codes == ["not_subscribed", "not_found", "expired", "not_found", "outside_coverage", "not_deliverable"]

    def test_no_link_is_signed_once_no_subscription_delivers_the_dataset(self, served):
        served.version("ds_orange", 1)
        one, two = (served.subscribe(places=["fl-county-orange"]) for _ in range(2))

        def code():
            answers = served.get(f"{PATH}/1"), served.post(f"{PATH}/1/links", {"files": ["schema.json"]})
            (code,) = {(answer.status_code, answer.json().get("error", {}).get("code")) for answer in answers}
            return code

        served.delete(f"/v1/feeds/subscriptions/{one}")
        assert code() == (200, None)
        served.patch(f"/v1/feeds/subscriptions/{two}", {"topics": ["zoning"], "revision": 1})
        assert code() == (409, "not_subscribed")
        served.patch(f"/v1/feeds/subscriptions/{two}", {"topics": [], "revision": 2})
        assert code() == (200, None)
        served.delete(f"/v1/feeds/subscriptions/{two}")
        assert code() == (409, "not_subscribed")

    def test_links_already_issued_keep_working_for_their_hour_once_the_subscription_is_gone(self, served):
        served.version("ds_orange", 1)
        subscription = served.subscribe(places=["fl-county-orange"])
        link = served.post(f"{PATH}/1/links", {"files": ["schema.json"]}).json()["files"][0]["url"]
        served.delete(f"/v1/feeds/subscriptions/{subscription}")
        for step, status in ((timedelta(hours=1, milliseconds=-1), 200), (timedelta(milliseconds=1), 403)):
            served.clock.advance(step)
            assert served.client.get(link).status_code == status

    def test_another_workspaces_subscription_signs_nothing(self, served):
        served.version("ds_nation", 1)
        served.subscribe("other", places=["us"])
        assert served.get("/v1/feeds/datasets/ds_nation/versions/1").json()["error"]["code"] == "not_subscribed"

    @pytest.mark.parametrize("version", ["0", "-1", "x", "1.0", "1e3", "9" * 30])
    def test_version_that_is_no_number_is_invalid_input(self, subscribed, version):
        assert subscribed.get(f"{PATH}/{version}").json()["error"]["code"] == "invalid_input"


class TestSchemas:
    @pytest.fixture
    def changed(self, served):
        served.version("ds_orange", 1)
        served.version("ds_orange", 2, previous_version=1)
        added = Column("color", "string", True, "COLOR")
        columns = (Column("id", "string", False, "ID"), Column("name", "string", True, "name"), added)
        change = SchemaChange("additive", SchemaVersion(1, 0), added=(added,))
        other = {"schema": Schema(columns, ("id",)), "schema_version": "1.1"}
        served.version("ds_orange", 4, previous_version=2, schema_change=change, **other)
        served.version("ds_orange", 6, previous_version=4, **other)
        return served

    @pytest.mark.parametrize("base", ["/v1/feeds/datasets", "/v1/datasets"])
    def test_schema_is_that_of_the_current_version(self, changed, base):
        current = changed.get(f"{base}/ds_orange/schema").json()
        assert (current["schemaVersion"], current["firstVersion"]) == ("1.1", 4)
        assert [column["name"] for column in current["columns"]] == ["id", "name", "color"]

    @pytest.mark.parametrize("base", ["/v1/feeds/datasets", "/v1/datasets"])
    def test_schema_of_an_older_version_is_had_by_its_number(self, changed, base):
        first = changed.get(f"{base}/ds_orange/schema?version=2").json()
        assert (first["schemaVersion"], first["firstVersion"], first["changeFromPrevious"]) == ("1.0", 1, None)
        assert [column["name"] for column in first["columns"]] == ["id", "name"]

    def test_a_schema_has_the_members_of_the_contracts_example(self, changed):
        added = {"name": "color", "type": "string", "nullable": True, "sourceName": "COLOR"}
        assert changed.get("/v1/datasets/ds_orange/schema").json() == {
            "datasetId": "ds_orange",
            "schemaVersion": "1.1",
            "firstVersion": 4,
            "keyColumns": ["id"],
            "columns": [
                {"name": "id", "type": "string", "nullable": False, "sourceName": "ID"},
                {"name": "name", "type": "string", "nullable": True},
                added,
            ],
            "changeFromPrevious": {
                "kind": "additive",
                "previousSchemaVersion": "1.0",
                "added": [added],
                "removed": [],
                "retyped": [],
                "nullabilityChanged": [],
                "keyColumnsChanged": False,
            },
            "license": None,
        }

    def test_a_schema_change_is_published_with_its_version_and_told_before_it(self, served):
        subscription = served.subscribe(places=["fl-county-orange"], topics=["permits"])
        served.release("ds_orange", 1)
        wider = Schema((Column("id", "string", False, "ID"), Column("size", "number", True, "size")), ("id",))
        change = SchemaChange("additive", SchemaVersion(1, 0), added=wider.columns[1:])
        facts = {"previous_version": 1, "schema": wider, "schema_version": "1.1", "schema_change": change}
        served.version("ds_orange", 2, status=VersionStatus.BUILDING, **facts)
        assert served.get("/v1/feeds/datasets/ds_orange/schema").json()["schemaVersion"] == "1.0"
        served.release("ds_orange", 2, **facts)
        assert served.get("/v1/feeds/datasets/ds_orange/schema").json()["schemaVersion"] == "1.1"
        told = [(one["type"], one["data"].get("version")) for one in served.events(subscription)]
        assert told[-2:] == [("feed.dataset.schema_changed", 2), ("feed.dataset.updated", 2)]

    @pytest.mark.parametrize("base", ["/v1/feeds/datasets", "/v1/datasets"])
    def test_schemas_are_all_that_the_dataset_has_had(self, changed, base):
        answer = changed.get(f"{base}/ds_orange/schemas").json()
        assert [(s["schemaVersion"], s["firstVersion"]) for s in answer["schemas"]] == [("1.0", 1), ("1.1", 4)]

    def test_a_schema_shows_the_spelling_that_its_own_version_has_as_in_its_file(self, served):
        renamed = Schema((Column("id", "string", False, "Id"), Column("name", "string", True, "name")), ("id",))
        served.version("ds_orange", 1)
        served.version("ds_orange", 2, previous_version=1, schema=renamed)
        paths = {"schema": "Id", "schema?version=1": "ID", "schema?version=2": "Id"}
        for path, spelling in paths.items():
            answer = served.get(f"/v1/feeds/datasets/ds_orange/{path}").json()
            assert (answer["columns"][0]["sourceName"], answer["firstVersion"]) == (spelling, 1)
        (listed,) = served.get("/v1/feeds/datasets/ds_orange/schemas").json()["schemas"]
        assert (listed["columns"][0]["sourceName"], listed["firstVersion"]) == ("Id", 1)

    def test_schema_needs_a_released_version_and_no_subscription(self, served):
        answer = served.get("/v1/feeds/datasets/ds_orange/schema")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert served.get("/v1/feeds/datasets/ds_orange/schemas").json() == {"datasetId": "ds_orange", "schemas": []}
