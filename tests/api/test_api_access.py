"""Keys, the one shape of refusals, and the description of the API (D1.5, D8.5)."""

import re

import pytest
from openapi_spec_validator import validate

from ploti.contract.errors import ERROR_STATUS
from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.workspaces import create_key, remove_member, revoke_key

READS = (
    "/v1/places",
    "/v1/topics",
    "/v1/feeds/datasets",
    "/v1/feeds/datasets/ds_orange",
    "/v1/feeds/datasets/ds_orange/versions",
    "/v1/feeds/datasets/ds_orange/versions/1",
    "/v1/feeds/datasets/ds_orange/records/rec_x",
    "/v1/feeds/datasets/ds_orange/schema",
    "/v1/feeds/datasets/ds_orange/schemas",
    "/v1/datasets/ds_orange/schema",
    "/v1/datasets/ds_orange/schemas",
    "/v1/feeds/subscriptions",
    "/v1/feeds/subscriptions/sub_x",
    "/v1/feeds/subscriptions/sub_x/events",
    "/v1/feeds/subscriptions/sub_x/manifest",
)
NO_KEY = ("/v1/places", "/v1/topics")


def code(answer):
    body = answer.json()
    assert list(body) == ["error"]
    assert set(body["error"]) <= {"code", "message", "field"}
    assert answer.status_code == ERROR_STATUS[body["error"]["code"]]
    return body["error"]["code"]


class TestKeys:
    @pytest.mark.parametrize("path", READS)
    @pytest.mark.parametrize(
        "header", [None, "", "Bearer", "Bearer ", "Bearer ploti_x", "Basic YTpi", "ploti_x", "Bearer é"]
    )
    def test_without_a_valid_key_nothing_opens(self, served, path, header):
        headers = {} if header is None else {"Authorization": header.encode()}
        answer = served.client.get(path, headers=headers)
        assert code(answer) == "unauthenticated"
        assert answer.headers["www-authenticate"].startswith("Bearer")

    def test_scheme_is_read_in_any_case(self, served):
        key = served.keys["admin"]
        assert served.client.get("/v1/topics", headers={"Authorization": f"bearer  {key}"}).status_code == 200

    def test_revoked_key_opens_nothing(self, served):
        made = create_key(served.ports, "florida", "ann")
        served.keys["new"] = made.text
        assert served.get("/v1/topics", "new").status_code == 200
        revoke_key(served.ports, made.key.id)
        assert code(served.get("/v1/topics", "new")) == "unauthenticated"

    def test_key_of_a_member_who_left_opens_nothing(self, served):
        remove_member(served.ports, "florida", "bob")
        assert code(served.get("/v1/topics", "member")) == "unauthenticated"

    @pytest.mark.parametrize("path", READS)
    def test_key_without_the_feeds_permission_is_not_allowed(self, served, path):
        answer = served.get(path, "hooks")
        assert answer.status_code == 200 if path in NO_KEY else code(answer) == "not_allowed"

    def test_admins_key_made_for_a_member_may_not_create(self, served):
        served.keys["low"] = create_key(served.ports, "florida", "ann", "member").text
        assert code(served.post("/v1/feeds/subscriptions", {"places": ["fl"]}, "low")) == "not_allowed"

    def test_key_is_asked_for_before_anything_else(self, served):
        assert code(served.client.get("/v1/feeds/datasets?limit=x&limit=y")) == "unauthenticated"


class TestShape:
    @pytest.mark.parametrize(
        ("method", "path", "expected"),
        [
            ("GET", "/", "not_found"),
            ("GET", "/v1", "not_found"),
            ("GET", "/v1/feeds/datasets/", "not_found"),
            ("GET", "/v1/feeds/datasets/a/b/c", "not_found"),
            ("GET", "/v2/places", "not_found"),
            ("GET", "/docs", "not_found"),
            ("POST", "/v1/places", "method_not_allowed"),
            ("DELETE", "/v1/feeds/datasets/ds_orange", "method_not_allowed"),
            ("PUT", "/v1/feeds/subscriptions", "method_not_allowed"),
        ],
    )
    def test_unknown_address_and_method_are_refused_in_the_same_shape(self, served, method, path, expected):
        answer = served.client.request(method, path, headers=served.headers())
        assert code(answer) == expected

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("POST", "/v1/places", "GET, HEAD"),
            ("DELETE", "/v1/feeds/datasets/ds_orange", "GET, HEAD"),
            ("POST", "/healthz", "GET, HEAD"),
            ("PUT", "/v1/feeds/subscriptions", "GET, HEAD, POST"),
            ("PUT", "/v1/feeds/subscriptions/sub_a", "DELETE, GET, HEAD, PATCH"),
            ("HEAD", "/v1/webhooks/wh_a/test", "POST"),
            ("POST", "/v1/files/a/b", "GET, HEAD, OPTIONS"),
        ],
    )
    def test_a_refused_method_names_every_one_that_the_address_takes(self, served, method, path, allowed):
        answer = served.client.request(method, path, headers=served.headers())
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)

    @pytest.mark.parametrize("path", [*READS, "/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/places?kind=x"])
    def test_head_answers_as_get_does_without_the_body(self, served, path):
        whole, head = (served.client.request(method, path, headers=served.headers()) for method in ("GET", "HEAD"))
        assert (head.status_code, head.content) == (whole.status_code, b"")
        differing = {"x-request-id", "ratelimit"} | ({"content-length"} if path == "/metrics" else set())
        for name in whole.headers.keys() - differing:
            assert head.headers[name] == whole.headers[name], name

    def test_head_counts_as_a_call(self, served):
        asked = [served.client.request(method, "/v1/topics", headers=served.headers()) for method in ("HEAD", "GET")]
        first, second = (int(re.search("r=([0-9]+)", answer.headers["ratelimit"])[1]) for answer in asked)
        assert first == second + 1

    @pytest.mark.parametrize("path", READS)
    def test_unknown_parameter_is_invalid_input(self, served, path):
        answer = served.get(f"{path}?nonsense=1")
        assert (code(answer), answer.json()["error"]["field"]) == ("invalid_input", "nonsense")

    @pytest.mark.parametrize(
        "query", ["place=fl&place=fl", "limit=5&limit=5", "topic=permits&topic=zoning", "Limit=5", "limit=%201"]
    )
    def test_parameter_given_twice_or_misspelt_is_invalid_input(self, served, query):
        assert code(served.get(f"/v1/feeds/datasets?{query}")) == "invalid_input"

    def test_fault_of_the_program_is_told_in_the_same_shape_and_shows_nothing(self, served):
        made = served.version("ds_orange", 1)
        with served.ports.store.write() as records:
            records.versions.put(_without_release_time(made))
        answer = served.get("/v1/feeds/datasets/ds_orange")
        assert code(answer) == "internal_error"
        assert "ds_orange" not in answer.text


def _without_release_time(version):
    from dataclasses import replace

    return replace(version, released_at=None)


class TestDescription:
    def test_description_is_valid_openapi_3_1(self, served):
        described = served.client.get("/openapi.json").json()
        assert described["openapi"].startswith("3.1")
        validate(described)

    def test_every_route_is_described_with_its_refusals_and_its_key(self, served):
        described = served.client.get("/openapi.json").json()
        assert "/v1/files/{path}" in described["paths"]
        for path, operations in described["paths"].items():
            for operation in operations.values():
                assert "422" not in operation["responses"]
                if not path.startswith("/v1/files/"):
                    assert operation["security"] == [{"key": []}]
                    assert {"400", "401", "403", "429", "500"} <= set(operation["responses"])
        version = described["paths"]["/v1/feeds/datasets/{dataset}/versions/{version}"]["get"]["responses"]
        assert {"200", "404", "409", "410", "503"} <= set(version)
        assert "`not_subscribed`" in version["409"]["description"]

    def test_answers_are_described_with_the_contracts_shapes(self, served):
        schemas = served.client.get("/openapi.json").json()["components"]["schemas"]
        assert {"Dataset", "Version", "Schema", "SubscriptionManifest", "EventPage", "ErrorBody"} <= set(schemas)
        assert "HTTPValidationError" not in schemas


class TestMatrix:
    """What names something of one workspace, asked for by another (I8); who may do what stands in the matrix."""

    def asks(self, served, subscription):
        one = f"/v1/feeds/subscriptions/{subscription}"
        dataset = "/v1/feeds/datasets/ds_orange"
        return {
            "read": lambda who: served.get(one, who),
            "events": lambda who: served.get(f"{one}/events", who),
            "manifest": lambda who: served.get(f"{one}/manifest", who),
            "list": lambda who: served.get(f"/v1/feeds/datasets?subscription={subscription}", who),
            "dataset": lambda who: served.get(dataset, who),
            "versions": lambda who: served.get(f"{dataset}/versions", who),
            "version": lambda who: served.get(f"{dataset}/versions/1", who),
            "links": lambda who: served.post(f"{dataset}/versions/1/links", {"files": ["schema.json"]}, who),
            "schema": lambda who: served.get(f"{dataset}/schema", who),
            "delete": lambda who: served.delete(one, who),
        }

    def test_another_workspaces_subscription_is_refused_like_an_unknown_one(self, served):
        subscription = served.subscribe(places=["fl-county-orange"])
        for name in ("read", "events", "manifest", "list", "delete"):
            foreign = self.asks(served, subscription)[name]("other")
            unknown = self.asks(served, "sub_0123456789abcdef")[name]("other")
            assert foreign.status_code == unknown.status_code == 404
            assert foreign.text == unknown.text.replace("sub_0123456789abcdef", subscription)

    def test_held_version_gives_no_link_to_anyone(self, served):
        served.version("ds_orange", 1, status=VersionStatus.HELD, reasons=("data_check",))
        subscription = served.subscribe(places=["fl-county-orange"])
        for who in served.keys:
            assert self.asks(served, subscription)["version"](who).status_code >= 400
        assert "/v1/files/" not in served.get(f"/v1/feeds/subscriptions/{subscription}/manifest").text
