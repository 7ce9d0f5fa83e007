"""Errors by code, retries, and answers that make no sense."""

import itertools
import re
from datetime import UTC, datetime

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ploti
from ploti._http import Http, Retries, _unreached, _whole, retry_after_seconds
from ploti.contract.errors import ERROR_STATUS
from ploti.errors import ERROR_KINDS, error_kind

SUB, PERMITS, ZONING = "sub_orange", "ds_orange_permits", "ds_orange_zoning"
NEXT_STEP = {
    "invalid_input": ploti.FixRequest,
    "unauthenticated": ploti.NotAllowed,
    "not_allowed": ploti.NotAllowed,
    "not_found": ploti.NotFound,
    "method_not_allowed": ploti.FixRequest,
    "busy": ploti.RetryLater,
    "idempotency_conflict": ploti.FixRequest,
    "idempotency_in_progress": ploti.RetryLater,
    "limit_reached": ploti.FixRequest,
    "not_deliverable": ploti.NotDelivered,
    "not_subscribed": ploti.NotDelivered,
    "outside_coverage": ploti.NotDelivered,
    "expired": ploti.Reload,
    "precondition_failed": ploti.ReadAgain,
    "range_not_satisfiable": ploti.FixRequest,
    "rate_limited": ploti.RetryLater,
    "internal_error": ploti.RetryLater,
    "plan_unavailable": ploti.RetryLater,
}
TRIED_AGAIN = {"busy", "idempotency_in_progress", "rate_limited", "internal_error", "plan_unavailable"}


def test_every_code_of_the_contract_has_an_exception():
    assert ERROR_KINDS.keys() == ERROR_STATUS.keys() == NEXT_STEP.keys()


@pytest.mark.parametrize("code", sorted(ERROR_STATUS))
def test_each_code_raises_what_the_caller_does_next(client, fake, code):
    fake.fail_next("/v1/topics", ERROR_STATUS[code], code, times=99, headers={"x-request-id": "req_7"})
    with pytest.raises(ploti.PlotiError) as raised:
        client.topics.list()
    assert type(raised.value) is NEXT_STEP[code]
    assert (raised.value.code, raised.value.status) == (code, ERROR_STATUS[code])
    assert raised.value.request_id == "req_7"
    assert "\n" not in str(raised.value)
    assert len(fake.requests) == (5 if code in TRIED_AGAIN else 1)


@pytest.mark.parametrize("code", sorted(TRIED_AGAIN))
def test_a_read_succeeds_after_passing_trouble(client, fake, code):
    fake.fail_next("/v1/topics", ERROR_STATUS[code], code, times=3)
    assert client.topics.list()["topics"]
    assert len(fake.requests) == 4


@pytest.mark.parametrize(
    ("act", "kind", "code"),
    [
        (lambda c: c.feeds.datasets.get("ds_none"), ploti.NotFound, "not_found"),
        (lambda c: c.feeds.datasets.list(limit=201), ploti.FixRequest, "invalid_input"),
        (lambda c: c.feeds.datasets.list(limit=0), ploti.FixRequest, "invalid_input"),
        (lambda c: c.feeds.datasets.list(cursor="made up"), ploti.FixRequest, "invalid_input"),
        (lambda c: c.feeds.subscriptions.events(SUB, limit=501), ploti.FixRequest, "invalid_input"),
        (lambda c: c.feeds.subscriptions.events(SUB, cursor="evt_9"), ploti.FixRequest, "invalid_input"),
        (lambda c: c.feeds.subscriptions.events(SUB, cursor="evt_000000000099"), ploti.FixRequest, "invalid_input"),
        (lambda c: c.feeds.subscriptions.events(SUB, types=["updated"]), ploti.FixRequest, "invalid_input"),
        (lambda c: c.feeds.subscriptions.create("None"), ploti.FixRequest, "invalid_input"),
        (
            lambda c: c.feeds.subscriptions.create("X", places=["fl-county-lake"]),
            ploti.NotDelivered,
            "outside_coverage",
        ),
        (lambda c: c.feeds.subscriptions.create("X", dataset_ids=["ds_no"]), ploti.NotDelivered, "not_deliverable"),
        (lambda c: c.feeds.datasets.versions.get(PERMITS, 9), ploti.NotFound, "not_found"),
        (lambda c: c.feeds.datasets.versions.links(PERMITS, 2, files=[]), ploti.FixRequest, "invalid_input"),
        (lambda c: c.feeds.datasets.versions.links(PERMITS, 2, files=["a"] * 201), ploti.FixRequest, "invalid_input"),
        (lambda c: c.feeds.datasets.records(PERMITS, ["rec_a"] * 1_001), ploti.FixRequest, "invalid_input"),
    ],
)
def test_the_api_refuses_what_the_contract_refuses(client, act, kind, code):
    with pytest.raises(kind) as raised:
        act(client)
    assert raised.value.code == code


def test_versions_are_refused_in_order(client, fake):
    """D1.5: coverage, then delivery, then subscription, then the version, then retention."""
    fake.keep(PERMITS, 1, "pruned")
    versions = client.feeds.datasets.versions
    with pytest.raises(ploti.Reload):
        versions.get(PERMITS, 1)
    fake.state.subscriptions.clear()
    with pytest.raises(ploti.NotDelivered, match="not_subscribed"):
        versions.get(PERMITS, 9)
    fake.change_dataset(PERMITS, deliverable=False)
    with pytest.raises(ploti.NotDelivered, match="not_deliverable"):
        versions.get(PERMITS, 1)
    fake.change_dataset(PERMITS, covered=False)
    with pytest.raises(ploti.NotDelivered, match="outside_coverage"):
        versions.get(PERMITS, 1)


def test_pruned_events_ask_for_a_reload(client, fake):
    fake.prune_events(SUB, 2)
    for act in (
        lambda: client.feeds.subscriptions.events(SUB),
        lambda: client.feeds.subscriptions.events(SUB, cursor="evt_000000000001"),
        lambda: client.feeds.subscriptions.manifest(SUB, as_of="evt_000000000003"),
    ):
        with pytest.raises(ploti.Reload):
            act()
    assert client.feeds.subscriptions.events(SUB, cursor="evt_000000000002")["events"]


def test_a_broken_connection_is_tried_again_for_a_read(client, fake):
    fake.drop_next("/v1/topics", times=2)
    assert client.topics.list()["topics"]
    fake.drop_next("/v1/topics", times=9)
    with pytest.raises(ploti.NoAnswer):
        client.topics.list()


def test_a_create_whose_answer_was_lost_creates_once(client, fake):
    fake.drop_next("/v1/feeds/subscriptions", after_acting=True)
    made = client.feeds.subscriptions.create("Zoning", dataset_ids=[ZONING])
    assert sorted(fake.state.subscriptions) == sorted([made["id"], SUB])


def test_a_delete_whose_answer_was_lost_is_not_repeated(client, fake):
    fake.drop_next("/v1/feeds/subscriptions", after_acting=True)
    with pytest.raises(ploti.NoAnswer):
        client.feeds.subscriptions.delete(SUB)
    assert [request.method for request in fake.requests] == ["DELETE"]


def test_a_busy_delete_is_repeated(client, fake):
    fake.fail_next("/v1/feeds/subscriptions", 409, "busy")
    assert client.feeds.subscriptions.delete(SUB) == {"deleted": True}


def test_one_key_for_two_bodies_is_a_conflict(client):
    client.feeds.subscriptions.create("One", dataset_ids=[ZONING], idempotency_key="k")
    with pytest.raises(ploti.FixRequest, match="idempotency_conflict"):
        client.feeds.subscriptions.create("Two", dataset_ids=[ZONING], idempotency_key="k")


@pytest.mark.parametrize(
    ("status", "body", "kind", "tries"),
    [
        (502, b"<html>Bad gateway</html>", ploti.RetryLater, 5),
        (429, b"", ploti.RetryLater, 5),
        (200, b'{"topics": [', ploti.NoAnswer, 5),
        (200, b"<html>Welcome</html>", ploti.BadAnswer, 1),
        (200, b"[1]", ploti.BadAnswer, 1),
        (200, b"", ploti.BadAnswer, 1),
        (200, b"[" * 100_000, ploti.BadAnswer, 1),
        (302, b"", ploti.BadAnswer, 1),
        (401, b"", ploti.NotAllowed, 1),
        (403, b"<html>Firewall</html>", ploti.NotAllowed, 1),
        (404, b"404 page not found", ploti.BadAnswer, 1),
        (407, b"", ploti.FixRequest, 1),
        (410, b"<html>Gone</html>", ploti.BadAnswer, 1),
        (418, b'{"error": "tea"}', ploti.BadAnswer, 1),
    ],
)
def test_an_answer_that_is_not_the_apis_is_told_as_such(client, fake, status, body, kind, tries):
    """No status of a proxy or balancer says that something is gone, or that an API's code was answered."""
    fake.fail_next("/v1/topics", status, times=9, body=body, headers={"x-request-id": "req_7"})
    with pytest.raises(kind) as raised:
        client.topics.list()
    assert (type(raised.value), raised.value.status, raised.value.request_id) == (kind, status, "req_7")
    assert len(fake.requests) == tries


def test_a_dataset_is_not_taken_for_gone_where_a_balancer_answers(client, fake):
    fake.fail_next(f"/datasets/{PERMITS}", 404, body=b"404 page not found")
    with pytest.raises(ploti.BadAnswer, match="what stands between"):
        client.feeds.datasets.get(PERMITS)


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        (
            "[Errno -2] Name or service not known",
            ploti.NoAnswer,
            "not known. Check the address, the proxy in HTTPS_PROXY",
        ),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", ploti.NoAnswer, "there is no TLS"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)",
            ploti.BadAnswer,
            r"is not trusted \(self-signed certificate\).*SSL_CERT_FILE",
        ),
        (
            "certificate verify failed: Hostname mismatch, certificate is not valid for 'x'. (_ssl.c:1006)",
            ploti.BadAnswer,
            r"\(Hostname mismatch, certificate is not valid for 'x'\)",
        ),
        ("407 Proxy Auth", ploti.FixRequest, "wants a name and password"),
    ],
)
def test_what_keeps_an_answer_away_is_told_by_what_to_do_next(monkeypatch, said, kind, told):
    monkeypatch.setenv("HTTPS_PROXY", "http://name:secret@proxy.example:1")
    problem = _unreached(httpx2.URL("https://api.example/v1/topics?q=1"), said)
    assert type(problem) is kind
    assert re.search(told, problem.message)
    assert "secret" not in problem.message


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("HTTPS_PROXY", "foo://127.0.0.1:1", "HTTPS_PROXY"),
        ("ALL_PROXY", "socks5://127.0.0.1:1", "pip install socksio"),
        ("SSL_CERT_FILE", "/nowhere.pem", "/nowhere.pem"),
    ],
)
def test_surroundings_that_cannot_be_used_are_told(monkeypatch, name, value, told):
    monkeypatch.setenv(name, value)
    with pytest.raises(ploti.FixRequest, match=told):
        ploti.Client("k", "https://api.example")


def test_certificates_that_are_none_are_told_for_an_api_on_this_machine_too(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(ploti.FixRequest, match=r"/nowhere\.pem"):
        ploti.Client("k", "https://127.0.0.1:8731")


@pytest.mark.parametrize(
    "act",
    [
        lambda client: client.topics.list(),
        lambda client: client.feeds.datasets.get(PERMITS),
        lambda client: list(client.feeds.datasets.iter()),
        lambda client: client.feeds.datasets.versions.links(PERMITS, 2, files=[]),
        lambda client: client.feeds.subscriptions.create("One", dataset_ids=[ZONING]),
        lambda client: next(client.feeds.subscriptions.follow("sub_orange")),
        lambda client: client.webhooks.create("https://h", subscription_id="sub_orange"),
        lambda client: client.webhooks.rotate("wh_acme"),
    ],
)
def test_an_object_that_is_no_answer_of_the_api_is_told(client, fake, act):
    fake.answer_next("/v1", {"up": True})
    with pytest.raises(ploti.BadAnswer, match="check the address"):
        act(client)


def test_whoever_waits_is_told(fake):
    fake.fail_next("/v1/topics", 429, "rate_limited", headers={"retry-after": "9"})
    told = []
    http = Http(
        fake.base_url, fake.api_key, transport=fake.transport, sleep=lambda _: None,
        waiting=lambda problem, seconds: told.append((problem.code, round(seconds))),
    )  # fmt: skip
    http.get("/v1/topics")
    assert told == [("rate_limited", 9)]


def test_a_redirect_is_not_followed(client, fake):
    fake.fail_next("/v1/topics", 302, headers={"location": "https://a:b@other.example/v1/places?key=1"}, body=b"")
    with pytest.raises(ploti.BadAnswer, match=r"points to https://other\.example\. If"):
        client.topics.list()
    assert len(fake.requests) == 1


def test_a_list_whose_cursor_comes_twice_ends_in_an_error(client, fake):
    """F082: a repeated cursor is an error, after one repeat and not after for ever."""
    fake.answer_next("/v1/feeds/datasets", {"datasets": [], "nextCursor": "same"}, times=99)
    with pytest.raises(ploti.BadAnswer, match="twice"):
        list(client.feeds.datasets.iter())
    assert len(fake.requests) == 2


def test_a_log_that_goes_back_is_an_error(client, fake):
    fake.answer_next("/events", {"events": [], "nextCursor": "evt_000000000001"})
    with pytest.raises(ploti.BadAnswer):
        list(client.feeds.subscriptions.iter_events(SUB, cursor="evt_000000000002"))


def test_a_code_of_a_newer_service_falls_back_to_its_status():
    assert error_kind("brand_new", 503) is ploti.RetryLater
    assert error_kind("brand_new", 410) is ploti.Reload
    assert error_kind("brand_new", 422) is ploti.FixRequest


def test_no_key_is_refused_before_anything_is_sent(fake):
    http = Http(fake.base_url, None, transport=fake.transport)
    with pytest.raises(ploti.NotAllowed, match="ploti login"):
        http.get("/v1/topics")
    assert fake.requests == []


def test_a_time_out_is_no_answer(fake):
    fake.delay_next("/v1/topics", 0.5)
    with (
        fake.serve() as url,
        ploti.Client(fake.api_key, url, timeout=0.1, retries=Retries(attempts=1)) as client,
        pytest.raises(ploti.NoAnswer, match="in time"),
    ):
        client.topics.list()


def test_a_server_that_is_not_there_is_named():
    with (
        ploti.Client("k", "http://127.0.0.1:9", retries=Retries(attempts=1)) as client,
        pytest.raises(ploti.NoAnswer, match=r"http://127\.0\.0\.1:9"),
    ):
        client.topics.list()


@pytest.mark.parametrize(
    "bad",
    [
        "127.0.0.1:8731",
        "ftp://host",
        "http://",
        "https://user:pass@host",
        "http://h?x=1",
        "http://h:99999",
        "http://h:port",
        "http://ex ample",
        "http://[::1",
        "http://h/a b",
        "http://a..b",
    ],
)
def test_an_address_that_is_none_is_refused(bad):
    with pytest.raises(ploti.FixRequest, match="PLOTI_API_URL"):
        ploti.Client("k", bad)


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/behind/v1"])
def test_an_address_that_names_v1_is_told_without(path):
    with pytest.raises(ploti.FixRequest, match=f"without /v1: http://h{path.partition('/v1')[0]} "):
        ploti.Client("k", f"http://h{path}")


@pytest.mark.parametrize("bad", [0, -1, 61])
def test_a_time_out_out_of_range_is_refused(bad):
    with pytest.raises(ploti.FixRequest):
        ploti.Client("k", "http://h", timeout=bad)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("Mon, 30 Nov 2026 12:00:09 GMT", 9.0),
        ("Mon, 30 Nov 2026 11:59:00 GMT", 0.0),
        ("99999999999", 86_400.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        ("soon", None),
        ("-3", None),
        ("²", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(header, seconds):
    assert retry_after_seconds(header, datetime(2026, 11, 30, 12, tzinfo=UTC)) == seconds


@given(st.integers(1, 4), st.one_of(st.none(), st.floats(0, 60)), st.floats(0, 1))
def test_a_wait_is_never_shorter_than_asked_nor_too_long(attempt, asked, chance):
    wait = Retries().wait(attempt, asked, chance)
    assert wait is not None
    assert (asked or 0) <= wait <= 60


def test_a_wait_too_long_or_too_often_gives_up():
    assert Retries().wait(5, None, 0.5) is None
    assert Retries().wait(1, 61, 0.5) is None


def test_the_wait_asked_for_is_kept(fake):
    waits = []
    http = Http(fake.base_url, fake.api_key, transport=fake.transport, sleep=waits.append)
    fake.fail_next("/v1/topics", 429, headers={"retry-after": "17"})
    assert http.get("/v1/topics")["topics"]
    assert waits == [17.0]


@pytest.mark.parametrize("bad", ["schlüssel", "two words", "line\nbreak", "   ", "\x00"])
def test_a_key_that_no_header_can_carry_is_told(bad):
    with pytest.raises(ploti.NotAllowed, match="PLOTI_API_KEY"):
        ploti.Client(bad, "http://h")


def test_a_key_is_freed_of_white_space(fake):
    with ploti.Client(f" {fake.api_key}\n", fake.base_url, transport=fake.transport) as client:
        assert client.topics.list()["topics"]


def test_an_answer_that_does_not_end_is_given_up():
    """Security check 44."""
    with pytest.raises(ploti.BadAnswer, match="does not end"):
        _whole(httpx2.Response(200, content=b"x" * 11), most=10)
    assert _whole(httpx2.Response(200, content=b"x" * 10), most=10) == b"x" * 10


@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_nested_without_end_is_told(client, fake, status):
    fake.fail_next("/v1/topics", status, times=9, body=b"[" * 100_000)
    with pytest.raises(ploti.BadAnswer if status == 200 else ploti.RetryLater):
        client.topics.list()


class Drip(httpx2.SyncByteStream):
    """An answer that comes byte by byte."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        yield from (b" " for _ in range(self.count))
        yield b'{"topics": []}'


def test_an_answer_that_only_drips_is_given_up_after_a_minute():
    """F083: each look at the clock finds it ten seconds later."""
    drips = []

    def answer(request):
        drips.append(Drip(100 if len(drips) < 2 else 4))
        return httpx2.Response(200, stream=drips[-1])

    ticks = itertools.count(0, 10)
    http = Http(
        "http://api.example", "ploti_key", transport=httpx2.MockTransport(answer), seconds=lambda: next(ticks),
        retries=Retries(attempts=2, first_wait=0),
    )  # fmt: skip
    with pytest.raises(ploti.NoAnswer, match="too slowly"):
        http.get("/v1/topics")
    assert next(ticks) == 140
    assert http.get("/v1/topics") == {"topics": []}
