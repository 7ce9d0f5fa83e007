"""Delivers events to webhooks: claims what is due, sends it side by side, records each outcome (D9.2, D9.4).

Nothing is sent inside a transaction. One thread claims and records, several at a time in one transaction; the others
only send, so that a slow receiver holds up nobody else. A crash leaves leases that run out: what was in the air is sent
again, which receivers allow for.
"""

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event
from typing import Final

import msgspec
from standardwebhooks import Webhook as Signing

from ploti_server.domain.deliveries import Answer, Delivery, after_attempt, jitter_of
from ploti_server.domain.events import wire_event
from ploti_server.domain.webhooks import Webhook, key_id, secret_text, signing_secrets
from ploti_server.ports import Hooks, Ports, Records

SLOTS: Final = 64
"""Requests that one process sends at a time."""
PER_WEBHOOK: Final = 4
"""Requests to one webhook at a time, over all processes; one while it is failing, and one for each dataset."""
LEASE: Final = timedelta(minutes=1)
_LOOK_AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True)
class _Task:
    """A claimed delivery with all that sending it takes."""

    delivery: Delivery
    webhook: Webhook
    body: bytes


@dataclass(frozen=True)
class _Attempt:
    """A task that was sent, what came back and when."""

    task: _Task
    answer: Answer
    answered_at: datetime


def hooks_of(ports: Ports) -> Hooks:
    """Give what webhooks need; raises `RuntimeError` in a process that was opened without."""
    if ports.hooks is None:
        raise RuntimeError("this process was opened without webhooks")
    return ports.hooks


def post(hooks: Hooks, webhook: Webhook, message_id: str, body: bytes, now: datetime) -> Answer:
    """Sign a body with each of the webhook's secrets and send it; a ping and a delivery take this same way (D9.1)."""
    refs = [ref for ref in signing_secrets(webhook, now) if ref.key_id == key_id(hooks.key)]
    if not refs:
        return Answer(None, "this server has another webhooks_key than the one that made the webhook's secret")
    signed = [Signing(secret_text(hooks.key, webhook.id, ref)).sign(message_id, now, body.decode()) for ref in refs]
    headers = {
        "content-type": "application/json",
        "user-agent": "ploti-webhooks",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signed),
    }
    return hooks.sender.send(webhook.url, headers, body)


def deliver_due(ports: Ports, owner: str, stop: Event | None = None) -> int:
    """Send what is due until nothing is left or it is told to stop; gives how many attempts were made."""
    attempts = 0
    done: set[Future[_Attempt]] = set()
    flying: set[Future[_Attempt]] = set()
    with ThreadPoolExecutor(SLOTS, "webhooks") as pool:
        while True:
            room = 0 if stop is not None and stop.is_set() else SLOTS - len(flying)
            tasks = _record_and_claim(ports, owner, [sent.result() for sent in done], room)
            flying |= {pool.submit(_attempt, ports, task) for task in tasks}
            attempts += len(done)
            if not flying:
                return attempts
            done, flying = wait(flying, _LOOK_AGAIN_SECONDS, FIRST_COMPLETED)


def _attempt(ports: Ports, task: _Task) -> _Attempt:
    answer = post(hooks_of(ports), task.webhook, task.delivery.id, task.body, ports.clock.now())
    return _Attempt(task, answer, ports.clock.now())


def _record_and_claim(ports: Ports, owner: str, done: list[_Attempt], room: int) -> list[_Task]:
    """Write down how attempts ended and lease what may be sent next, in one transaction."""
    now = ports.clock.now()
    if not done:
        with ports.store.read() as records:
            if room == 0 or not records.deliveries.is_any_due(now):
                return []
    with ports.store.write() as records:
        _record(records, owner, done)
        ports.reach("deliver.before_commit")
        if room == 0:
            return []
        claimed = records.deliveries.claim(owner, now, now + LEASE, room, PER_WEBHOOK)
        tasks = _tasks(records, claimed, hooks_of(ports).public_url)
    ports.reach("deliver.claimed")
    return tasks


def _record(records: Records, owner: str, done: Sequence[_Attempt]) -> None:
    """Write down outcomes; a delivery that was ended, deleted or taken over meanwhile stays as it is."""
    if not done:
        return
    before = records.webhooks.lock_each({attempt.task.delivery.webhook_id for attempt in done})
    standing = records.deliveries.get_each([attempt.task.delivery.id for attempt in done])
    webhooks, ended = dict(before), list[Delivery]()
    for attempt in sorted(done, key=lambda one: one.answered_at):
        delivery = standing.get(attempt.task.delivery.id)
        if delivery is not None and delivery.lease_owner == owner:
            jitter = jitter_of(delivery.id, delivery.attempts + 1)
            webhook = webhooks[delivery.webhook_id]
            outcome = after_attempt(delivery, webhook, attempt.answer, attempt.answered_at, jitter)
            ended.append(outcome.delivery)
            webhooks[delivery.webhook_id] = outcome.webhook
    records.deliveries.put(*ended)
    for webhook_id, webhook in webhooks.items():
        if webhook != before[webhook_id]:
            records.webhooks.put(webhook)


def _tasks(records: Records, claimed: Sequence[Delivery], base: str) -> list[_Task]:
    webhooks = {webhook_id: records.webhooks.get(webhook_id) for webhook_id in {one.webhook_id for one in claimed}}
    events = records.events.at({(one.subscription_id, one.number) for one in claimed})
    tasks = []
    for one in claimed:
        webhook, event = webhooks[one.webhook_id], events.get((one.subscription_id, one.number))
        if webhook is None or event is None:
            raise LookupError(f"delivery {one.id} has lost its event or webhook")
        tasks.append(_Task(one, webhook, msgspec.json.encode(wire_event(event, base))))
    return tasks
