"""Deliveries of events to webhooks: when each attempt is made, and what an answer means (page 003, D9.2 to D9.5)."""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, Literal

from ploti.contract.events import EventType
from ploti_server.domain.events import LoggedEvent
from ploti_server.domain.webhooks import FAILING_FOR, Webhook, turned_off

STEPS: Final = (
    timedelta(minutes=1),
    timedelta(minutes=10),
    timedelta(hours=1),
    timedelta(hours=4),
    timedelta(hours=10),
    timedelta(hours=20),
)
"""Waits before the six retries, each give or take `SPREAD` (D9.2)."""
SPREAD: Final = 0.1
GONE: Final = 410
TOO_LARGE: Final = 413

DeliveryStatus = Literal["pending", "delivered", "ended"]
EndReason = Literal["too_large", "gone", "gave_up", "webhook_off"]


@dataclass(frozen=True)
class Backlog:
    """Deliveries that wait to be sent, those of them that are due, and webhooks that are failing or turned off."""

    waiting: int
    due: int
    failing_webhooks: int
    webhooks_off: int


@dataclass(frozen=True)
class Answer:
    """What came back from a receiver: its status, or None with the problem. Its body is never kept (F063)."""

    status: int | None
    problem: str | None = None
    retry_after: str | None = None

    @property
    def is_success(self) -> bool:
        """Only 2xx is success (D9.2)."""
        return self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True)
class Delivery:
    """One event to one webhook; its id is the `webhook-id` of every attempt (D9.4).

    `due_at` is the next attempt's moment, None once it has ended. `attempts` counts since it was queued or sent again.
    """

    id: str
    webhook_id: str
    subscription_id: str
    number: int
    type: EventType
    dataset_id: str
    created_at: datetime
    due_at: datetime | None
    status: DeliveryStatus = "pending"
    lease_owner: str | None = None
    lease_until: datetime | None = None
    attempts: int = 0
    attempted_at: datetime | None = None
    answer_status: int | None = None
    answer_problem: str | None = None
    end_reason: EndReason | None = None


@dataclass(frozen=True)
class Outcome:
    """A delivery and its webhook after an attempt."""

    delivery: Delivery
    webhook: Webhook


def queued(
    webhooks: Iterable[Webhook], events: Sequence[LoggedEvent], make_id: Callable[[], str], now: datetime
) -> tuple[Delivery, ...]:
    """Make the deliveries of freshly logged events to a subscription's webhooks, due at once (D7.1)."""
    return tuple(
        Delivery(make_id(), hook.id, event.subscription_id, event.number, event.type, event.dataset_id, now, now)
        for hook in webhooks
        if hook.off_at is None
        for event in events
        if hook.wants(event.type)
    )


def jitter_of(delivery_id: str, attempt: int) -> float:
    """Give a number from -1 to 1 that spreads retries; the same for the same delivery and attempt."""
    drawn = hashlib.sha256(f"{delivery_id}\n{attempt}".encode()).digest()[:4]
    return int.from_bytes(drawn) / 0xFFFFFFFF * 2 - 1


def after_attempt(delivery: Delivery, webhook: Webhook, answer: Answer, now: datetime, jitter: float) -> Outcome:
    """Tell what becomes of a delivery and its webhook; `now` is when the answer came, `jitter` from -1 to 1."""
    tried = replace(
        delivery,
        attempts=delivery.attempts + 1,
        attempted_at=now,
        answer_status=answer.status,
        answer_problem=answer.problem,
        lease_owner=None,
        lease_until=None,
    )
    if answer.is_success:
        done = replace(tried, status="delivered", due_at=None, end_reason=None)
        return Outcome(done, replace(webhook, failing_since=None) if webhook.off_at is None else webhook)
    hook = _after_failure(webhook, answer, now)
    reason = _end_of(tried, hook, answer)
    if reason is not None:
        return Outcome(replace(tried, status="ended", due_at=None, end_reason=reason), hook)
    return Outcome(replace(tried, due_at=now + wait_before(tried.attempts, answer, now, jitter)), hook)


def _after_failure(webhook: Webhook, answer: Answer, now: datetime) -> Webhook:
    if webhook.off_at is not None:
        return webhook
    failing = replace(webhook, failing_since=webhook.failing_since or now)
    if answer.status == GONE:
        return turned_off(failing, "gone", now)
    if failing.failing_since is not None and now - failing.failing_since >= FAILING_FOR:
        return turned_off(failing, "failing", now)
    return failing


def _end_of(tried: Delivery, webhook: Webhook, answer: Answer) -> EndReason | None:
    if answer.status == GONE:
        return "gone"
    if answer.status == TOO_LARGE:
        return "too_large"
    if webhook.off_at is not None:
        return "webhook_off"
    return "gave_up" if tried.attempts > len(STEPS) else None


def wait_before(attempts: int, answer: Answer, now: datetime, jitter: float) -> timedelta:
    """Give the wait after so many failed attempts: the written step, or `Retry-After` up to the step after it."""
    step = STEPS[attempts - 1] * (1 + SPREAD * jitter)
    asked = retry_after(answer.retry_after, now)
    if asked is None:
        return step
    return max(step, min(asked, STEPS[min(attempts, len(STEPS) - 1)]))


def retry_after(header: str | None, now: datetime) -> timedelta | None:
    """Read a `Retry-After` header, seconds or a date; None where there is none to read."""
    text = (header or "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return timedelta(seconds=int(text))
    try:
        moment = parsedate_to_datetime(text)
        return max(timedelta(0), (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now)
    except (ValueError, OverflowError):
        return None


def ended_with_webhook(delivery: Delivery) -> Delivery:
    """End a delivery that waits, for its webhook is off (D9.3)."""
    return replace(delivery, status="ended", due_at=None, end_reason="webhook_off", lease_owner=None, lease_until=None)


def sent_again(delivery: Delivery, now: datetime) -> Delivery:
    """Begin a delivery anew, at once and with all retries, under the same id (D9.4)."""
    return replace(
        delivery, status="pending", due_at=now, attempts=0, end_reason=None, lease_owner=None, lease_until=None
    )
