"""Reading the log with `wait`, compressed answers, and what a server refuses before it reads a body."""

import asyncio
import gzip
import json
import threading
import time
from dataclasses import replace

import httpx2
import pytest

from ploti_server.pipeline.subscriptions import delete_subscription
from ploti_server.pipeline.workspaces import revoke_key


@pytest.fixture
def subscription(served):
    return served.subscribe(places=["fl-county-orange"])


def newest(served, subscription):
    with served.ports.store.read() as records:
        return f"evt_{records.events.newest(subscription):012d}"


def ask(served, subscription, who="admin", **query):
    """Read the log after its newest event; gives the answer and the seconds that it took."""
    began = time.monotonic()
    query = {"cursor": newest(served, subscription)} | query
    answer = served.get(f"/v1/feeds/subscriptions/{subscription}/events", who, params=query)
    return answer, time.monotonic() - began


def after(seconds, act):
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


class TestWait:
    def test_an_event_that_comes_is_answered_at_once(self, served, subscription):
        timer = after(0.3, lambda: served.release("ds_orange", 1))
        answer, seconds = ask(served, subscription, wait=20)
        timer.join()
        assert [event["type"] for event in answer.json()["events"]] == ["feed.dataset.resync_required"]
        assert 0.3 <= seconds < 5

    def test_an_event_that_is_there_is_not_waited_for(self, served, subscription):
        answer, seconds = ask(served, subscription, cursor="evt_000000000000", wait=20)
        assert len(answer.json()["events"]) == 3
        assert seconds < 5

    def test_without_an_event_the_page_is_empty_once_the_time_is_over(self, served, subscription):
        answer, seconds = ask(served, subscription, wait=1)
        assert answer.json() == {"events": [], "nextCursor": newest(served, subscription)}
        assert 1 <= seconds < 5

    def test_events_that_the_filter_leaves_out_move_the_cursor_but_do_not_end_the_wait(self, served, subscription):
        first = after(0.2, lambda: served.release("ds_orange", 1))
        second = after(0.9, lambda: served.release("ds_orange", 2, previous_version=1))
        answer, seconds = ask(served, subscription, wait=20, types="feed.dataset.updated")
        first.join()
        second.join()
        assert [event["data"]["version"] for event in answer.json()["events"]] == [2]
        assert answer.json()["nextCursor"] == newest(served, subscription)
        assert seconds > 0.9

    @pytest.mark.parametrize("wait", ["-1", "31", "1.5", "x", ""])
    def test_only_0_to_30_seconds_are_taken(self, served, subscription, wait):
        answer, _ = ask(served, subscription, wait=wait)
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, "wait")

    def test_key_revoked_meanwhile_reads_nothing(self, served, subscription):
        with served.ports.store.read() as records:
            (key,) = [
                key for key in records.workspaces.keys(records.workspaces.named("florida").id) if key.member == "bob"
            ]

        def act():
            revoke_key(served.ports, key.id)
            served.release("ds_orange", 1)

        timer = after(0.2, act)
        answer, _ = ask(served, subscription, "member", wait=20)
        timer.join()
        assert answer.status_code == 401

    def test_subscription_deleted_meanwhile_is_gone_at_once(self, served, subscription):
        with served.ports.store.read() as records:
            workspace = records.workspaces.named("florida").id
        timer = after(0.2, lambda: delete_subscription(served.ports, workspace, subscription))
        answer, seconds = ask(served, subscription, wait=20)
        timer.join()
        assert answer.status_code == 404
        assert seconds < 5

    def test_a_hundred_waiting_requests_hold_no_thread_and_end_when_the_server_stops(self, served, subscription):
        """The pool has 40 threads: other requests would stand still behind a hundred that held one each."""
        path = f"/v1/feeds/subscriptions/{subscription}/events?wait=30&cursor={newest(served, subscription)}"

        async def run():
            transport = httpx2.ASGITransport(app=served.client.app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://feeds.test") as client:
                waiting = [asyncio.create_task(client.get(path, headers=served.headers())) for _ in range(100)]
                await asyncio.sleep(0.5)
                began = time.monotonic()
                assert (await client.get("/v1/topics", headers=served.headers())).status_code == 200
                assert time.monotonic() - began < 2
                assert not any(one.done() for one in waiting)
                served.client.app.state.watch.stop()
                answers = await asyncio.wait_for(asyncio.gather(*waiting), 5)
                assert [one.json()["events"] for one in answers] == [[]] * 100
                assert (await client.get(path, headers=served.headers())).json()["events"] == []

        asyncio.run(run())

    def test_time_of_waiting_is_not_in_the_metrics(self, served, subscription):
        ask(served, subscription, wait=1)
        (line,) = [
            line
            for line in served.client.get("/metrics").text.splitlines()
            if line.startswith("ploti_http_request_seconds_sum") and "{subscription}/events" in line
        ]
        assert float(line.split()[-1]) < 1


class TestCompression:
    def raw(self, served, path, encoding):
        """Read an answer as it was sent."""
        headers = served.headers() | {"Accept-Encoding": encoding}
        with served.client.stream("GET", path, headers=headers) as answer:
            return answer.headers, b"".join(answer.iter_raw())

    @pytest.mark.parametrize(
        ("encoding", "expected"),
        [
            ("gzip", True),
            ("br, GZIP;q=0.5", True),
            ("deflate, gzip", True),
            ("", False),
            ("identity", False),
            ("br", False),
            ("gzip;q=0", False),
            ("gzip; q=0.000", False),
        ],
    )
    def test_long_json_is_compressed_for_who_takes_gzip(self, served, encoding, expected):
        headers, content = self.raw(served, "/v1/feeds/datasets", encoding)
        assert headers.get("content-encoding") == ("gzip" if expected else None)
        assert int(headers["content-length"]) == len(content)
        assert headers["vary"] == "Authorization, Accept-Encoding"
        body = json.loads(gzip.decompress(content) if expected else content)
        assert len(body["datasets"]) == 6

    def test_short_answers_and_revisions_go_as_they_are(self, served):
        assert "content-encoding" not in self.raw(served, "/v1/topics", "gzip")[0]
        one = served.subscribe(name="n" * 90, places=["fl-county-orange", "fl-county-seminole"])
        with served.ports.store.write() as records:
            long = replace(records.subscriptions.get(one), dataset_ids=tuple(f"ds_{n:04d}" for n in range(200)))
            records.subscriptions.put(long)
        headers, content = self.raw(served, f"/v1/feeds/subscriptions/{one}", "gzip")
        assert len(content) > 1_000
        assert (headers["etag"], "content-encoding" in headers) == ('"1"', False)

    def test_compressed_and_plain_answers_have_one_etag_that_answers_304(self, served):
        tags = {self.raw(served, "/v1/feeds/datasets", encoding)[0]["etag"] for encoding in ("gzip", "identity")}
        assert len(tags) == 1
        headers = {"If-None-Match": tags.pop(), "Accept-Encoding": "gzip"}
        answer = served.get("/v1/feeds/datasets", headers=headers)
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["vary"] == "Authorization, Accept-Encoding"

    def test_files_are_never_compressed(self, served):
        served.version("ds_orange", 1)
        served.subscribe(places=["fl-county-orange"])
        url = served.get("/v1/feeds/datasets/ds_orange/versions/1").json()["files"]["schema"]["url"]
        headers, content = self.raw(served, url, "gzip")
        assert "content-encoding" not in headers
        assert int(headers["content-length"]) == len(content) > 1_000
