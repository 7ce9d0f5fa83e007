"""Request ids, the access log, metrics, health, readiness and the size of bodies (D8.5, issue of the service)."""

import json
import logging
from contextlib import contextmanager
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from ploti_server.adapters.links import LinkSigner
from ploti_server.api import make_api
from ploti_server.api.logs import JsonLines
from ploti_server.api.queries import BODY_BYTES
from ploti_server.domain.settings import Settings

SUBSCRIPTIONS = "/v1/feeds/subscriptions"


class TestRequestIds:
    @pytest.mark.parametrize(
        "path", ["/v1/topics", "/v1/nothing", "/v1/topics?nonsense=1", "/openapi.json", "/healthz"]
    )
    def test_every_answer_has_an_id_of_its_own(self, served, path):
        ids = [served.get(path).headers["x-request-id"] for _ in range(2)]
        assert ids[0] != ids[1]
        assert all(one.startswith("req_") for one in ids)

    def test_id_that_came_along_is_kept(self, served):
        answer = served.get("/v1/topics", headers={"X-Request-Id": "trace-1.2:3_x"})
        assert answer.headers["x-request-id"] == "trace-1.2:3_x"

    @pytest.mark.parametrize("given", ["", "with space", "x" * 101, 'a"b', "a\u00e9".encode()])
    def test_id_that_could_do_harm_in_a_log_is_replaced(self, served, given):
        assert served.get("/v1/topics", headers={"X-Request-Id": given}).headers["x-request-id"].startswith("req_")

    def test_answer_to_a_fault_of_the_program_has_one(self, served):
        served.at("subscription.before_commit", lambda: 1 / 0)
        answer = served.post(SUBSCRIPTIONS, {"places": ["fl"]})
        assert answer.status_code == 500
        assert answer.headers["x-request-id"].startswith("req_")
        assert answer.headers["ratelimit"]


@contextmanager
def logged():
    """Collect what the server logs as lines of JSON."""

    class Lines(logging.Handler):
        def emit(self, record):
            lines.append(self.format(record))

    lines = []
    handler = Lines()
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("ploti_server")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class TestAccessLog:
    def test_each_request_is_one_line_that_names_it_and_who_made_it(self, served):
        with logged() as lines:
            answer = served.get("/v1/topics?nonsense=1")
        (line,) = [json.loads(line) for line in lines]
        key = next(k for k in _keys(served) if k.member == "ann" and "feeds" in k.permissions)
        assert line["event"] == "request"
        assert line["level"] == "info"
        assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/topics", 400)
        assert line["requestId"] == answer.headers["x-request-id"]
        assert (line["workspace"], line["member"], line["key"]) == (key.workspace_id, "ann", key.id)
        assert line["bytes"] == len(answer.content)
        assert line["ms"] >= 0

    def test_no_key_query_signature_or_body_is_logged(self, served):
        served.version("ds_florida", 1)
        with logged() as lines:
            served.subscribe(places=["fl"], name="A secret name")
            url = served.get("/v1/feeds/datasets/ds_florida/versions/1").json()["files"]["snapshot"][0]["url"]
            served.client.get(url)
            served.client.get("/v1/topics", headers={"Authorization": "Bearer ploti_guessed"})
        text = "\n".join(lines)
        assert len(lines) == 4
        for secret in (*served.keys.values(), "ploti_guessed", "A secret name", "signature=", url.partition("?")[2]):
            assert secret not in text

    def test_fault_is_logged_with_its_trace_under_the_same_id(self, served):
        served.at("subscription.before_commit", lambda: 1 / 0)
        with logged() as lines:
            answer = served.post(SUBSCRIPTIONS, {"places": ["fl"]})
        fault = next(line for line in map(json.loads, lines) if line["level"] == "error")
        assert fault["requestId"] == answer.headers["x-request-id"]
        assert "ZeroDivisionError" in fault["trace"]

    def test_a_name_cannot_forge_a_line(self, served):
        with logged() as lines:
            served.get('/v1/feeds/datasets/x%0A{"event":"forged"}')
        assert len(lines) == 1
        assert "\n" not in lines[0]

    def test_probes_are_not_logged(self, served):
        with logged() as lines:
            for path in ("/healthz", "/readyz", "/metrics"):
                assert served.client.get(path).status_code == 200
        assert lines == []


def _keys(served):
    with served.ports.store.read() as records:
        return [key for workspace in records.workspaces.all() for key in records.workspaces.keys(workspace.id)]


class TestMetrics:
    def test_requests_are_counted_by_route_and_status_never_by_path(self, served):
        for name in ("ds_orange", "ds_both", "ds_unknown"):
            served.get(f"/v1/feeds/datasets/{name}")
        served.client.get("/v1/nothing/here")
        answer = served.client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = answer.text.splitlines()
        route = 'method="GET",route="/v1/feeds/datasets/{dataset}"'
        assert f'ploti_http_requests_total{{{route},status="200"}} 2' in lines
        assert f'ploti_http_requests_total{{{route},status="404"}} 1' in lines
        assert f"ploti_http_request_seconds_count{{{route}}} 3" in lines
        assert f'ploti_http_request_seconds_bucket{{{route},le="+Inf"}} 3' in lines
        assert 'ploti_http_requests_total{method="GET",route="none",status="404"} 1' in lines
        assert "ploti_http_requests_in_flight 1" in lines
        assert "ploti_versions_held 0" in lines
        assert {"ploti_deliveries_waiting 0", "ploti_deliveries_due 0"} <= set(lines)
        assert {"ploti_webhooks_failing 0", "ploti_webhooks_off 0"} <= set(lines)
        assert "ds_unknown" not in answer.text

    def test_buckets_grow_and_unknown_methods_share_a_label(self, served):
        for _ in range(3):
            served.client.request("BREW", "/v1/topics", headers=served.headers())
        text = served.client.get("/metrics").text
        counts = [int(line.split()[-1]) for line in text.splitlines() if "bucket" in line and 'method="other"' in line]
        assert counts == sorted(counts)
        assert counts[-1] == 3
        assert "BREW" not in text


class BrokenStore:
    answers_at_once = False

    def read(self):
        raise OSError("the disk is gone")


class TestProbes:
    def test_health_and_readiness_need_no_key(self, served):
        assert served.client.get("/healthz").json() == {"status": "ok"}
        assert served.client.get("/readyz").json() == {"status": "ready"}

    def test_process_whose_store_does_not_answer_is_alive_but_not_ready(self, served, tmp_path):
        ports = replace(served.ports, store=BrokenStore())
        client = TestClient(make_api(ports, Settings.of(tmp_path), LinkSigner(b"s" * 32)))
        assert client.get("/healthz").status_code == 200
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"})
        assert "disk" not in answer.text


class TestBodies:
    @pytest.mark.parametrize("chunked", [True, False])
    def test_body_over_a_megabyte_is_refused(self, served, chunked):
        content = b'{"name": "' + b"x" * BODY_BYTES + b'"}'
        sent = iter([content[:1000], content[1000:]]) if chunked else content
        answer = served.client.post(SUBSCRIPTIONS, content=sent, headers=served.headers())
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input")
        assert str(BODY_BYTES) in answer.json()["error"]["message"]

    def test_a_body_that_says_it_is_too_large_is_not_waited_for(self, served):
        headers = served.headers() | {"Content-Length": str(BODY_BYTES + 1)}
        answer = served.client.post(SUBSCRIPTIONS, content=b"{}", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input")
        assert str(BODY_BYTES) in answer.json()["error"]["message"]
