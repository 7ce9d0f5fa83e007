"""When a delivery is tried and what an answer means: one row for each sentence of page 003 and D9.2 to D9.5."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ploti.contract.events import ADDED, UPDATED
from ploti_server.domain.deliveries import (
    STEPS,
    Answer,
    Delivery,
    after_attempt,
    jitter_of,
    queued,
    retry_after,
    sent_again,
    wait_before,
)
from ploti_server.domain.events import LoggedEvent
from ploti_server.domain.webhooks import SecretRef, Webhook

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOOK = Webhook("wh_1", "w1", "sub_1", "ann", "https://a.example", None, (SecretRef("s", "k"),), NOW)
QUEUED = Delivery("msg_1", "wh_1", "sub_1", 1, UPDATED, "ds_a", NOW, NOW, lease_owner="me", lease_until=NOW + HOUR)


def fail_through(jitter=0.0):
    """Answer every attempt with 500 until the delivery has ended; gives the moments of the attempts and the end."""
    now, delivery, hook, tried = NOW, QUEUED, HOOK, []
    while delivery.due_at is not None:
        now = delivery.due_at
        tried.append(now - NOW)
        delivery, hook = (o := after_attempt(delivery, hook, Answer(500), now, jitter)).delivery, o.webhook
    return tried, delivery, hook


def test_failed_deliveries_are_tried_again_six_times_at_the_written_times():
    tried, ended, _ = fail_through()
    waits = [after - before for before, after in itertools.pairwise(tried)]
    assert tried[0] == timedelta(0)
    assert waits == [timedelta(minutes=1), timedelta(minutes=10), HOUR, 4 * HOUR, 10 * HOUR, 20 * HOUR]
    assert timedelta(days=1.4) < tried[-1] < timedelta(days=1.6)
    assert (ended.status, ended.end_reason, ended.attempts) == ("ended", "gave_up", 7)


@pytest.mark.parametrize("jitter", [-1.0, -0.3, 0.7, 1.0])
def test_each_wait_is_ten_percent_shorter_or_longer_at_most(jitter):
    tried, *_ = fail_through(jitter=jitter)
    waits = [after - before for before, after in itertools.pairwise(tried)]
    for wait, step in zip(waits, STEPS, strict=True):
        assert wait / step == pytest.approx(1 + jitter / 10)


@given(st.text(min_size=1), st.integers(1, 7))
def test_the_spread_is_between_both_ends_and_the_same_again(delivery_id, attempt):
    assert -1 <= jitter_of(delivery_id, attempt) <= 1
    assert jitter_of(delivery_id, attempt) == jitter_of(delivery_id, attempt)


def test_the_spread_reaches_both_sides():
    drawn = [jitter_of(f"msg_{n}", 1) for n in range(1000)]
    assert min(drawn) < -0.98
    assert max(drawn) > 0.98
    assert abs(sum(drawn) / 1000) < 0.1


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_only_2xx_is_success(status):
    done, hook = (o := after_attempt(QUEUED, HOOK, Answer(status), NOW, 0)).delivery, o.webhook
    assert (done.status, done.due_at, done.end_reason) == ("delivered", None, None)
    assert (done.attempts, done.answer_status, done.attempted_at) == (1, status, NOW)
    assert (done.lease_owner, done.lease_until) == (None, None)
    assert hook == HOOK


@pytest.mark.parametrize(
    "answer",
    [Answer(s) for s in (100, 199, 301, 302, 307, 308, 400, 401, 404, 409, 429, 500, 503, 599)] + [Answer(None, "x")],
)
def test_everything_else_is_tried_again(answer):
    again, hook = (o := after_attempt(QUEUED, HOOK, answer, NOW, 0)).delivery, o.webhook
    assert (again.status, again.due_at) == ("pending", NOW + timedelta(minutes=1))
    assert (again.answer_status, again.answer_problem) == (answer.status, answer.problem)
    assert (again.lease_owner, again.lease_until) == (None, None)
    assert (hook.failing_since, hook.off_at) == (NOW, None)


@pytest.mark.parametrize(("status", "reason", "off"), [(413, "too_large", (None, None)), (410, "gone", (NOW, "gone"))])
def test_413_is_not_retried_and_410_turns_the_webhook_off(status, reason, off):
    ended, hook = (o := after_attempt(QUEUED, HOOK, Answer(status), NOW, 0)).delivery, o.webhook
    assert (ended.status, ended.end_reason, ended.due_at) == ("ended", reason, None)
    assert (hook.off_at, hook.off_reason) == off


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("attempts", "asked", "wait"),
        [
            (1, "30", timedelta(minutes=1)),
            (1, "300", timedelta(minutes=5)),
            (1, "86400", timedelta(minutes=10)),
            (2, "120", timedelta(minutes=10)),
            (2, "1800", timedelta(minutes=30)),
            (5, "72000", 20 * HOUR),
            (6, "1", 20 * HOUR),
            (6, "999999", 20 * HOUR),
            (1, "Sun, 01 Mar 2026 00:05:00 GMT", timedelta(minutes=5)),
            (1, "Sun, 01 Mar 2020 00:00:00 GMT", timedelta(minutes=1)),
            (1, None, timedelta(minutes=1)),
            (1, "soon", timedelta(minutes=1)),
            (1, "-5", timedelta(minutes=1)),
        ],
    )
    def test_is_respected_up_to_the_next_step(self, attempts, asked, wait):
        assert wait_before(attempts, Answer(503, retry_after=asked), NOW, 0) == wait

    @given(st.text(max_size=60))
    def test_any_header_is_read_or_ignored(self, text):
        asked = retry_after(text, NOW)
        assert asked is None or asked >= timedelta(0)


class TestTurnedOff:
    def test_when_every_delivery_has_failed_for_five_days(self):
        failing = after_attempt(QUEUED, HOOK, Answer(500), NOW, 0).webhook
        later = NOW + timedelta(days=5)
        before = after_attempt(QUEUED, failing, Answer(500), later - timedelta(milliseconds=1), 0)
        assert (before.webhook.off_at, before.delivery.status) == (None, "pending")
        after = after_attempt(QUEUED, failing, Answer(500), later, 0)
        assert (after.webhook.off_at, after.webhook.off_reason) == (later, "failing")
        assert (after.delivery.status, after.delivery.end_reason) == ("ended", "webhook_off")

    def test_one_success_counts_the_days_anew(self):
        failing = after_attempt(QUEUED, HOOK, Answer(500), NOW, 0).webhook
        well = after_attempt(QUEUED, failing, Answer(200), NOW + timedelta(days=4), 0).webhook
        assert well.failing_since is None
        again = after_attempt(QUEUED, well, Answer(500), NOW + timedelta(days=6), 0).webhook
        assert (again.failing_since, again.off_at) == (NOW + timedelta(days=6), None)

    def test_a_webhook_that_is_off_keeps_its_reason_and_gets_no_retry(self):
        off = after_attempt(QUEUED, HOOK, Answer(410), NOW, 0).webhook
        late = after_attempt(QUEUED, off, Answer(500), NOW + HOUR, 0)
        assert late.webhook == off
        assert (late.delivery.status, late.delivery.end_reason) == ("ended", "webhook_off")

    def test_a_success_after_it_was_turned_off_is_told_but_does_not_turn_it_on(self):
        off = after_attempt(QUEUED, HOOK, Answer(410), NOW, 0).webhook
        late = after_attempt(QUEUED, off, Answer(200), NOW + HOUR, 0)
        assert (late.delivery.status, late.webhook) == ("delivered", off)


def test_sent_again_begins_at_once_with_all_retries_under_the_same_id():
    _, ended, hook = fail_through()
    again = sent_again(ended, NOW + 99 * HOUR)
    assert (again.id, again.status, again.due_at, again.attempts) == ("msg_1", "pending", NOW + 99 * HOUR, 0)
    assert again.end_reason is None
    assert after_attempt(again, hook, Answer(500), NOW + 99 * HOUR, 0).delivery.status == "pending"


def test_queued_are_the_events_that_each_webhook_wants_due_at_once():
    events = [LoggedEvent("sub_1", n, kind, "ds_a", NOW, {}) for n, kind in enumerate([ADDED, UPDATED, ADDED], 1)]
    every = HOOK
    some = Webhook("wh_2", "w1", "sub_1", "ann", "https://a.example", (ADDED,), HOOK.secrets, NOW)
    off = Webhook("wh_3", "w1", "sub_1", "ann", "https://a.example", None, HOOK.secrets, NOW, off_at=NOW)
    names = iter(f"msg_{n}" for n in range(9))
    made = queued([every, some, off], events, lambda: next(names), NOW)
    assert [(d.webhook_id, d.number) for d in made] == [("wh_1", 1), ("wh_1", 2), ("wh_1", 3), ("wh_2", 1), ("wh_2", 3)]
    assert len({d.id for d in made}) == 5
    assert {d.due_at for d in made} == {NOW}
