"""Webhooks and their deliveries in memory."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from ploti_server.domain.deliveries import Backlog, Delivery, ended_with_webhook
from ploti_server.domain.webhooks import Webhook
from ploti_server.testing.memory_state import State, kept, known


class MemoryWebhooks:
    """`WebhookRecords` in memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    def get(self, webhook_id: str) -> Webhook | None:
        return self._state.webhooks.get(webhook_id)

    def lock(self, webhook_id: str) -> Webhook | None:
        return self._state.changing().webhooks.get(webhook_id)

    def lock_each(self, webhook_ids: Collection[str]) -> dict[str, Webhook]:
        found = self._state.changing().webhooks
        return {webhook_id: found[webhook_id] for webhook_id in webhook_ids if webhook_id in found}

    def of_workspace(self, workspace_id: str) -> tuple[Webhook, ...]:
        own = (w for w in self._state.webhooks.values() if w.workspace_id == workspace_id)
        return tuple(sorted(own, key=lambda w: (w.created_at, w.id)))

    def put(self, webhook: Webhook) -> None:
        known(self._state.workspaces, webhook.workspace_id, "workspace")
        known(self._state.subscriptions, webhook.subscription_id, "subscription")
        state = self._state.changing()
        state.webhooks[webhook.id] = kept(webhook)
        if webhook.off_at is not None:
            waiting = [d for d in state.deliveries.values() if d.webhook_id == webhook.id and d.status == "pending"]
            state.deliveries |= {d.id: ended_with_webhook(d) for d in waiting}

    def remove(self, webhook_id: str) -> None:
        state = self._state.changing()
        state.webhooks.pop(webhook_id, None)
        state.deliveries = {k: d for k, d in state.deliveries.items() if d.webhook_id != webhook_id}


class MemoryDeliveries:
    """`DeliveryRecords` in memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    def get(self, delivery_id: str) -> Delivery | None:
        return self._state.deliveries.get(delivery_id)

    def get_each(self, delivery_ids: Collection[str]) -> dict[str, Delivery]:
        found = self._state.deliveries
        return {delivery_id: found[delivery_id] for delivery_id in delivery_ids if delivery_id in found}

    def of_webhook(
        self, webhook_id: str, limit: int, before: int | None = None, status: str | None = None
    ) -> tuple[Delivery, ...]:
        own = [d for d in self._state.deliveries.values() if d.webhook_id == webhook_id and status in (None, d.status)]
        below = [d for d in own if before is None or d.number < before]
        return tuple(sorted(below, key=lambda d: -d.number)[:limit])

    def put(self, *deliveries: Delivery) -> None:
        for delivery in deliveries:
            known(self._state.deliveries, delivery.id, "delivery")
        self._state.changing().deliveries |= {delivery.id: kept(delivery) for delivery in deliveries}

    def is_any_due(self, now: datetime) -> bool:
        return any(self._is_due(d, now) for d in self._state.deliveries.values())

    def backlog(self, now: datetime) -> Backlog:
        pending = [d for d in self._state.deliveries.values() if d.status == "pending"]
        due = [d for d in pending if d.due_at is not None and d.due_at <= now]
        hooks = self._state.webhooks.values()
        failing = [w for w in hooks if w.off_at is None and w.failing_since is not None]
        return Backlog(len(pending), len(due), len(failing), len([w for w in hooks if w.off_at is not None]))

    def claim(self, owner: str, now: datetime, until: datetime, limit: int, per_webhook: int) -> tuple[Delivery, ...]:
        state = self._state.changing()
        leased = [d for d in state.deliveries.values() if d.lease_until is not None and d.lease_until > now]
        busy = {(d.webhook_id, d.dataset_id) for d in leased}
        taken = Counter(d.webhook_id for d in leased)
        places: list[tuple[int, str]] = []
        for delivery in sorted(state.deliveries.values(), key=lambda d: (d.due_at or now, d.number)):
            pair = (delivery.webhook_id, delivery.dataset_id)
            failing = state.webhooks[delivery.webhook_id].failing_since is not None
            room = 1 if failing else per_webhook
            if self._is_due(delivery, now) and pair not in busy and taken[delivery.webhook_id] < room:
                busy.add(pair)
                taken[delivery.webhook_id] += 1
                places.append((taken[delivery.webhook_id], delivery.id))
        chosen = [delivery_id for _, delivery_id in sorted(places)[:limit]]
        claimed = [kept(replace(state.deliveries[i], lease_owner=owner, lease_until=until)) for i in chosen]
        state.deliveries |= {d.id: d for d in claimed}
        return tuple(sorted(claimed, key=lambda d: (d.number, d.id)))

    def _is_due(self, delivery: Delivery, now: datetime) -> bool:
        due = delivery.due_at is not None and delivery.due_at <= now
        free = delivery.lease_until is None or delivery.lease_until <= now
        return due and free and self._state.webhooks[delivery.webhook_id].off_at is None
