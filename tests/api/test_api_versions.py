"""Versions, their links, and schemas over the API (page 001, 004, D1.5, I4)."""

import pytest

from ploti_server.domain.schema import Column, Schema, SchemaChange, SchemaVersion
from ploti_server.domain.versions import VersionStatus

PATH = "/v1/feeds/datasets/ds_orange/versions"
HIDDEN = [s for s in VersionStatus if s not in (VersionStatus.RELEASED, VersionStatus.RELEASED_AGAIN)]


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
        assert "files" not in second

    @pytest.mark.parametrize(
        "query", ["after=-1", "after=x", "after=1.0", "after=%2B1", "order=up", "limit=0", "limit=201", "limit=1e2"]
    )
    def test_wrong_parameter_is_invalid_input_never_clamped(self, chain, query):
        error = chain.get(f"{PATH}?{query}").json()["error"]
        assert (error["code"], error["field"]) == ("invalid_input", query.partition("=")[0])

    def test_listing_needs_no_subscription(self, chain):
        assert numbers(chain.get(PATH)) == [2, 3, 5, 8]
        assert chain.get(f"{PATH}/8").json()["error"]["code"] == "not_subscribed"


class TestHidden:
    @pytest.mark.parametrize("status", HIDDEN)
    def test_unreleased_version_shows_nowhere_and_reads_like_an_unknown_one(self, subscribed, status):
        subscribed.version("ds_orange", 1)
        before = subscribed.get("/v1/feeds/datasets/ds_orange").json()
        subscribed.version("ds_orange", 2, previous_version=1, status=status, schema_version="1.1")
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


class TestFiles:
    def test_version_has_every_kind_of_file_with_links_for_an_hour(self, subscribed):
        subscribed.version("ds_orange", 1)
        subscribed.version("ds_orange", 2, previous_version=1)
        answer = subscribed.get(f"{PATH}/2")
        files = answer.json()["files"]
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
        assert [f["path"] for f in files["changes"]] == ["changes/part-0000.parquet"]
        assert files["expiresAt"] == "2026-01-01T01:00:00.000Z"
        assert answer.headers["cache-control"] == "no-store"
        assert "etag" not in answer.headers
        for file in (*files["snapshot"], *files["changes"], files["schema"], files["manifest"]):
            assert len(subscribed.client.get(file["url"]).content) == file["sizeBytes"]

    def test_links_are_signed_for_the_files_that_are_named(self, subscribed):
        made = subscribed.version("ds_orange", 1)
        subscribed.ports.files.put_bytes(f"{made.folder}/rejects/part-0000.parquet", b"for staff")
        asked = ["schema.json", "rejects/part-0000.parquet", "snapshot/part-0000.parquet", "original", "schema.json"]
        answer = subscribed.post(f"{PATH}/1/links", {"files": asked}).json()
        assert [f["file"] for f in answer["files"]] == ["schema.json", "snapshot/part-0000.parquet"]
        assert answer["missing"] == ["rejects/part-0000.parquet", "original"]
        assert subscribed.client.get(answer["files"][0]["url"]).status_code == 200
        assert answer["expiresAt"] == "2026-01-01T01:00:00.000Z"

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

    def test_two_hundred_files_can_be_named(self, subscribed):
        subscribed.version("ds_orange", 1)
        answer = subscribed.post(f"{PATH}/1/links", {"files": [f"f{n}" for n in range(200)]})
        assert len(answer.json()["missing"]) == 200

    def test_no_link_is_signed_once_no_subscription_delivers_the_dataset(self, served):
        served.version("ds_orange", 1)
        one, two = (served.subscribe(places=["fl-county-orange"]) for _ in range(2))
        served.delete(f"/v1/feeds/subscriptions/{one}")
        assert served.get(f"{PATH}/1").status_code == 200
        served.delete(f"/v1/feeds/subscriptions/{two}")
        assert served.get(f"{PATH}/1").json()["error"]["code"] == "not_subscribed"
        links = served.post(f"{PATH}/1/links", {"files": ["schema.json"]})
        assert links.json()["error"]["code"] == "not_subscribed"

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
    def test_schema_is_that_of_the_current_version_or_of_the_one_named(self, changed, base):
        current = changed.get(f"{base}/ds_orange/schema").json()
        assert (current["schemaVersion"], current["firstVersion"]) == ("1.1", 4)
        assert [column["name"] for column in current["columns"]] == ["id", "name", "color"]
        assert current["columns"][0] == {"name": "id", "type": "string", "nullable": False, "sourceName": "ID"}
        assert current["changeFromPrevious"]["added"] == [current["columns"][2]]
        first = changed.get(f"{base}/ds_orange/schema?version=2").json()
        assert (first["schemaVersion"], first["firstVersion"], first["changeFromPrevious"]) == ("1.0", 1, None)

    @pytest.mark.parametrize("base", ["/v1/feeds/datasets", "/v1/datasets"])
    def test_schemas_are_all_that_there_were_oldest_first(self, changed, base):
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
