"""How many calls a key may make a minute (page 000 "Rate limits", D8.5)."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from ploti_server.adapters.links import LinkSigner
from ploti_server.adapters.store import open_store
from ploti_server.api import make_api
from ploti_server.domain.settings import Settings

SUBSCRIPTIONS = "/v1/feeds/subscriptions"
PREVIEW = {"places": ["fl"]}


def limited(served, tmp_path, calls=120, strict=20, store=None):
    """Serve the same publisher with limits, in a fresh minute; as one more API process where a store is given."""
    served.clock.advance(minutes=1)
    ports = served.ports if store is None else replace(served.ports, store=store)
    settings = replace(Settings.of(tmp_path), requests_per_minute=calls, strict_requests_per_minute=strict)
    api = make_api(ports, settings, LinkSigner(b"s" * 32))
    return replace(served, ports=ports, client=TestClient(api, base_url="http://feeds.test"))


def code(answer):
    return answer.status_code, answer.json().get("error", {}).get("code")


def policies(answer):
    """Read the two headers about limits: most, left and seconds by name."""
    most = dict(re.findall(r'"(\w+)";q=(\d+);w=60', answer.headers["ratelimit-policy"]))
    left = {name: (r, t) for name, r, t in re.findall(r'"(\w+)";r=(\d+);t=(\d+)', answer.headers["ratelimit"])}
    return {name: (int(most[name]), int(r), int(t)) for name, (r, t) in left.items()}


class TestEveryCall:
    def test_default_is_120_calls_a_minute_and_20_of_the_stricter(self, tmp_path):
        settings = Settings.of(tmp_path)
        assert (settings.requests_per_minute, settings.strict_requests_per_minute) == (120, 20)

    def test_120_calls_pass_and_the_next_is_refused_until_the_minute_is_over(self, served_on_each, tmp_path):
        served = limited(served_on_each, tmp_path)
        assert [served.get("/v1/topics").status_code for _ in range(120)] == [200] * 120
        served.clock.advance(seconds=20)
        refused = served.get("/v1/topics")
        assert code(refused) == (429, "rate_limited")
        assert refused.headers["retry-after"] == "40"
        assert "40 seconds" in refused.json()["error"]["message"]
        served.clock.advance(seconds=39.999)
        again = served.get("/v1/topics")
        assert (code(again), again.headers["retry-after"]) == ((429, "rate_limited"), "1")
        served.clock.advance(seconds=0.001)
        assert served.get("/v1/topics").status_code == 200

    def test_beyond_a_limit_it_is_enough_to_wait_as_long_as_the_header_says(self, served, tmp_path):
        served = limited(served, tmp_path, calls=30, strict=1)
        for ask in (lambda: served.post(f"{SUBSCRIPTIONS}/preview", PREVIEW), lambda: served.get("/v1/topics")):
            while (answer := ask()).status_code == 200:
                served.clock.advance(seconds=1)
            assert code(answer) == (429, "rate_limited")
            seconds = int(answer.headers["retry-after"])
            assert 0 < seconds <= 60
            served.clock.advance(seconds=seconds)
            assert ask().status_code == 200

    def test_limit_is_of_each_key(self, served, tmp_path):
        served = limited(served, tmp_path, calls=2)
        for who in ("admin", "member", "other"):
            assert [served.get("/v1/topics", who).status_code for _ in range(3)] == [200, 200, 429]

    def test_every_authenticated_call_counts_whatever_it_answers(self, served, tmp_path):
        subscription = served.subscribe(places=["fl"])
        served = limited(served, tmp_path, calls=7)
        tag = served.get("/v1/topics").headers["etag"]
        asks = [
            served.get("/v1/topics", headers={"If-None-Match": tag}),
            served.get("/v1/feeds/datasets/ds_unknown"),
            served.get("/v1/topics?nonsense=1"),
            served.post(SUBSCRIPTIONS, {}),
            served.get(f"{SUBSCRIPTIONS}/{subscription}/events"),
            served.delete(f"{SUBSCRIPTIONS}/{subscription}"),
        ]
        assert [a.status_code for a in asks] == [304, 404, 400, 400, 200, 200]
        assert [policies(a)["calls"][1] for a in asks] == [5, 4, 3, 2, 1, 0]
        assert served.get("/v1/topics").status_code == 429

    def test_key_without_the_permission_is_counted_too(self, served, tmp_path):
        served = limited(served, tmp_path, calls=1)
        answers = [served.get("/v1/feeds/datasets", "hooks").status_code for _ in range(2)]
        assert answers == [403, 429]

    def test_call_without_a_valid_key_has_no_limit_and_no_headers(self, served, tmp_path):
        served = limited(served, tmp_path, calls=1)
        for _ in range(3):
            answer = served.client.get("/v1/topics")
            assert (answer.status_code, "ratelimit" in answer.headers) == (401, False)
        assert served.get("/v1/topics").status_code == 200

    def test_replayed_create_counts(self, served, tmp_path):
        served = limited(served, tmp_path, strict=3)
        headers = {"Idempotency-Key": "a"}
        answers = [served.post(SUBSCRIPTIONS, PREVIEW, headers=headers).status_code for _ in range(4)]
        assert answers == [201, 201, 201, 429]

    def test_signed_links_are_not_counted(self, served, tmp_path):
        served.version("ds_florida", 1)
        served.subscribe(places=["fl"])
        served = limited(served, tmp_path, calls=1)
        url = served.get("/v1/feeds/datasets/ds_florida/versions/1").json()["files"]["snapshot"][0]["url"]
        assert [served.client.get(url).status_code for _ in range(3)] == [200, 200, 200]


class TestStricter:
    @pytest.mark.parametrize(
        "ask",
        [
            lambda served, one: served.post(SUBSCRIPTIONS, {"places": ["us"]}),
            lambda served, one: served.patch(one, {"name": "A"}, If_Match=served.get(one, "member").headers["etag"]),
            lambda served, one: served.post(f"{SUBSCRIPTIONS}/preview", PREVIEW),
            lambda served, one: served.get(f"{one}/manifest"),
            lambda served, one: served.get(f"{one}/manifest?limit=1"),
            lambda served, one: served.get(f"{one}/manifest?asOf=evt_000000000001"),
        ],
        ids=["create", "change", "preview", "manifest", "manifest-page", "manifest-as-of"],
    )
    def test_create_change_preview_and_manifest_count_toward_20_a_minute(self, served, tmp_path, ask):
        one = f"{SUBSCRIPTIONS}/{served.subscribe(places=['fl'])}"
        served = limited(served, tmp_path)
        assert served.post(f"{SUBSCRIPTIONS}/preview", PREVIEW).status_code == 200
        answers = [ask(served, one) for _ in range(20)]
        assert all(answer.is_success for answer in answers[:19])
        assert code(answers[19]) == (429, "rate_limited")
        assert answers[19].headers["retry-after"] == "60"
        assert served.get(one).status_code == 200

    def test_they_share_one_limit_and_count_toward_the_120_as_well(self, served, tmp_path):
        one = f"{SUBSCRIPTIONS}/{served.subscribe(places=['fl'])}"
        served = limited(served, tmp_path, calls=5, strict=3)
        answers = [
            served.post(f"{SUBSCRIPTIONS}/preview", PREVIEW),
            served.get(f"{one}/manifest"),
            served.post(SUBSCRIPTIONS, PREVIEW),
            served.get(f"{one}/manifest"),
            served.get(one),
            served.get(one),
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 201, 429, 200, 429]
        assert policies(answers[0]) == {"calls": (5, 4, 60), "strict": (3, 2, 60)}
        assert policies(answers[3]) == {"calls": (5, 1, 60), "strict": (3, 0, 60)}
        assert policies(answers[4]) == {"calls": (5, 0, 60)}

    @pytest.mark.parametrize("path", [SUBSCRIPTIONS, "/v1/places", "/v1/feeds/datasets", "/v1/topics"])
    def test_other_calls_do_not_count_toward_it(self, served, tmp_path, path):
        assert set(policies(limited(served, tmp_path).get(path))) == {"calls"}


class TestAtOnce:
    def test_limits_are_exact_over_threads(self, served_on_each, tmp_path):
        served = limited(served_on_each, tmp_path)
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: served.get("/v1/topics").status_code, range(150)))
        assert (answers.count(200), answers.count(429)) == (120, 30)

    def test_limits_are_exact_over_several_processes_on_one_database(self, served_on_each_database, tmp_path):
        first, url = served_on_each_database
        stores = [open_store(url) for _ in range(2)]
        apis = [limited(first, tmp_path), *(limited(first, tmp_path, store=store) for store in stores)]
        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda n: apis[n % 3].get("/v1/topics").status_code, range(180)))
            strict = list(
                pool.map(
                    lambda n: apis[n % 3].post(f"{SUBSCRIPTIONS}/preview", PREVIEW, "member").status_code, range(30)
                )
            )
        for store in stores:
            store.close()
        assert (answers.count(200), answers.count(429)) == (120, 60)
        assert (strict.count(200), strict.count(429)) == (20, 10)
