"""Following the log without end: the server waits, one that cannot is polled, one that is away is waited for."""

import threading
import time

import pytest

import ploti
from ploti._http import Http
from ploti._resources import Subscriptions

SUB, PERMITS = "sub_orange", "ds_orange_permits"


class Pauses(list):
    def __call__(self, seconds):
        self.append(seconds)
        time.sleep(0.02)


@pytest.fixture
def pauses():
    return Pauses()


@pytest.fixture
def subscriptions(fake, pauses):
    once = ploti.Retries(attempts=1)
    http = Http(fake.base_url, fake.api_key, transport=fake.transport, retries=once, sleep=pauses)
    return Subscriptions(http)


def later(seconds, act):
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


def test_an_event_that_comes_while_the_server_waits_is_given_at_once(fake, subscriptions):
    newest = subscriptions.manifest(SUB)["eventCursor"]
    timer = later(0.1, lambda: fake.hold(PERMITS))
    asked = time.monotonic()
    page = subscriptions.events(SUB, cursor=newest, wait=30)
    timer.join()
    assert [event["type"] for event in page["events"]] == ["feed.dataset.delayed"]
    assert time.monotonic() - asked < 25


def test_in_the_end_an_empty_page_comes_whose_cursor_passed_what_the_filter_left_out(subscriptions):
    page = subscriptions.events(SUB, cursor="evt_000000000003", types=["feed.dataset.removed"], wait=1)
    assert page == {"events": [], "nextCursor": "evt_000000000004"}


@pytest.mark.parametrize("wait", [-1, 31])
def test_waiting_has_its_limits(subscriptions, wait):
    with pytest.raises(ploti.FixRequest) as refused:
        subscriptions.events(SUB, wait=wait)
    assert refused.value.field == "wait"


def test_following_gives_what_is_there_and_then_what_comes(fake, subscriptions, pauses):
    pages = subscriptions.follow(SUB)
    first = next(pages)
    assert len(first["events"]) == 4
    timer = later(0.1, lambda: fake.hold(PERMITS))
    second = next(pages)
    timer.join()
    assert [event["id"] for event in second["events"]] == [second["nextCursor"]] == ["evt_000000000005"]
    assert pauses == []


def test_a_server_that_cannot_wait_is_asked_every_few_seconds(fake, subscriptions, pauses):
    body = b'{"error": {"code": "invalid_input", "message": "no such parameter", "field": "wait"}}'
    fake.fail_next("wait=", 400, body=body)
    newest = subscriptions.manifest(SUB)["eventCursor"]
    pages = subscriptions.follow(SUB, cursor=newest)
    timer = later(0.2, lambda: fake.hold(PERMITS))
    assert len(next(pages)["events"]) == 1
    timer.join()
    assert set(pauses) == {5.0}
    assert "wait" not in fake.requests[-1].target


def test_an_api_that_is_away_is_waited_for_longer_each_time(fake, subscriptions, pauses):
    fake.drop_next("/events", times=3)
    fake.fail_next("/events", 429, "rate_limited", headers={"retry-after": "55"})
    troubles = []
    pages = subscriptions.follow(SUB, trouble=troubles.append)
    assert len(next(pages)["events"]) == 4
    assert pauses == [5.0, 10.0, 20.0, 55.0]
    assert [type(problem) for problem in troubles] == [ploti.NoAnswer] * 3 + [ploti.RetryLater]


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda fake: fake.drop_next("/events"), ploti.NoAnswer),
        (lambda fake: fake.prune_events(SUB, 2), ploti.Reload),
        (lambda fake: fake.revoke_key(fake.api_key), ploti.NotAllowed),
        (lambda fake: fake.fail_next("/events", 400, "invalid_input"), ploti.FixRequest),
    ],
)
def test_what_waiting_does_not_mend_is_raised(fake, subscriptions, spoil, error):
    spoil(fake)
    with pytest.raises(error):
        next(subscriptions.follow(SUB, cursor="evt_000000000000"))
