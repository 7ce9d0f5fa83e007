"""Sync without end: it runs, waits at the log, runs again; what waiting mends is waited for, the rest is raised."""

import threading
from dataclasses import dataclass

import pytest

import ploti
from ploti.sync.follow import follow
from ploti.sync.target import TargetAway, TargetBusy
from ploti.testing import FakeApi

D, SUB = "ds_a", "sub_fake"


@dataclass
class Report:
    cursor: str
    behind: tuple = ()


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def api():
    api = FakeApi()
    api.add_dataset(D)
    api.subscribe(places=["fl-county-orange"])
    return api


@pytest.fixture
def following(api):
    """Follow with runs that give or raise what is listed; the reports, the clock and what was said."""
    clock, said = Clock(), []
    client = ploti.Client(**api.client_options, retries=ploti.Retries(attempts=1))

    def begin(*outcomes):
        left = iter(outcomes)

        def run():
            outcome = next(left)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return follow(client, SUB, run, say=said.append, sleep=clock.sleep, clock=clock), clock, said

    return begin


def test_the_next_run_comes_as_soon_as_the_log_goes_on(api, following):
    one, two = Report("evt_000000000001"), Report("evt_000000000002")
    reports, clock, said = following(one, two)
    assert next(reports) is one
    timer = threading.Timer(0.05, lambda: api.hold(D))
    timer.start()
    assert next(reports) is two
    timer.join()
    assert (clock.slept, said) == ([], [])


def test_a_server_that_cannot_wait_is_polled(api, following):
    body = b'{"error": {"code": "invalid_input", "message": "no such parameter", "field": "wait"}}'
    api.fail_next("wait=", 400, body=body)
    reports, clock, _ = following(Report("evt_000000000001", ("behind",)), Report("evt_000000000001"))
    next(reports)
    next(reports)
    assert clock.slept == [10.0] * 12
    assert not [request for request in api.requests[1:] if "wait" in request.target]


def test_a_log_whose_cursor_is_gone_is_for_the_next_run(api, following):
    api.hold(D)
    api.prune_events(SUB, 2)
    one, two = Report("evt_000000000001"), Report("evt_000000000002")
    reports, _, _ = following(one, two)
    assert [next(reports), next(reports)] == [one, two]


def test_what_waiting_mends_is_waited_for_longer_each_time(api, following):
    away = ploti.NoAnswer("no answer", code="no_answer")
    asked = ploti.RetryLater("slower", code="rate_limited", retry_after=70.0)
    fine = Report("evt_000000000000")
    reports, clock, said = following(away, TargetBusy("in use"), away, away, asked, fine, away, fine)
    assert next(reports) is fine
    assert clock.slept == [10.0, 20.0, 40.0, 60.0, 70.0]
    assert said[:2] == ["waiting: no answer", "waiting: in use"]
    assert next(reports) is fine
    assert clock.slept[5:] == [10.0]


def test_an_api_that_goes_away_while_waiting_is_waited_for(api, following):
    api.drop_next("/events")
    one = Report("evt_000000000000")
    reports, clock, _ = following(one, one)
    assert [next(reports), next(reports)] == [one, one]
    assert clock.slept == [10.0]


def test_a_database_that_goes_away_after_it_was_reached_is_waited_for(api, following):
    fine = Report("evt_000000000000")
    reports, clock, said = following(fine, TargetAway("gone"), TargetAway("gone"), fine)
    next(reports)
    api.hold(D)
    assert next(reports) is fine
    assert (clock.slept, said) == ([10.0, 20.0], ["waiting: gone"] * 2)


@pytest.mark.parametrize(
    "problem", [ploti.NotAllowed("no", code="unauthenticated"), ploti.NotFound("no", code="x"), TargetAway("where?")]
)
def test_what_waiting_does_not_mend_is_raised(following, problem):
    reports, clock, _ = following(problem)
    with pytest.raises(type(problem)):
        next(reports)
    assert clock.slept == []
