"""Webhooks and their deliveries in the database.

Whoever locks several webhooks does so by subscription and id, after the subscriptions' counters.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Select, and_, bindparam, exists, func, or_, select, update

from ploti_server.adapters import store_tables as tables
from ploti_server.adapters.store_transaction import Transaction
from ploti_server.adapters.store_values import DELIVERY, WEBHOOK
from ploti_server.domain.deliveries import Backlog, Delivery, queued
from ploti_server.domain.events import LoggedEvent
from ploti_server.domain.webhooks import Webhook
from ploti_server.pipeline.subscriptions import new_id

_LOOK_AHEAD: Final = 8
"""Due deliveries of a webhook that are looked at for each one that it has room for."""

_WEBHOOK = select(tables.webhooks).where(tables.webhooks.c.id == bindparam("id"))
_DELIVERY = select(tables.deliveries).where(tables.deliveries.c.id == bindparam("id"))
_PUT = (
    update(tables.deliveries)
    .where(tables.deliveries.c.id == bindparam("id"))
    .values({name: bindparam(name) for name in tables.deliveries.c.keys() if name != "id"})  # noqa: SIM118
)
_NOW = bindparam("now", type_=BigInteger)


def _is_due(now: Any) -> ColumnElement[bool]:
    c = tables.deliveries.c
    return and_(c.due_at <= now, or_(c.lease_until.is_(None), c.lease_until <= now))


def _waiting_webhooks() -> Select[Any]:
    """Select the webhooks that are on and have something due, the longest waiting first."""
    hook, c = tables.webhooks.c, tables.deliveries.c
    due = select(c.due_at).where(c.webhook_id == hook.id, _is_due(_NOW))
    oldest = due.order_by(c.due_at).limit(1).correlate(tables.webhooks).scalar_subquery()
    waiting = select(hook.id, hook.failing_since).where(hook.off_at.is_(None), oldest.is_not(None))
    return waiting.order_by(oldest, hook.id).limit(bindparam("limit"))


def _oldest_due() -> Select[Any]:
    c = tables.deliveries.c
    due = select(c.id, c.dataset_id).where(c.webhook_id == bindparam("webhook"), _is_due(_NOW))
    return due.order_by(c.due_at, c.number).limit(bindparam("limit"))


_WAITING, _OLDEST = _waiting_webhooks(), _oldest_due()
_LEASED = select(tables.deliveries.c.webhook_id, tables.deliveries.c.dataset_id).where(
    tables.deliveries.c.lease_until > _NOW
)


class SqlWebhooks:
    """`WebhookRecords` in the database."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def get(self, webhook_id: str) -> Webhook | None:
        rows = self._in.fetch(_WEBHOOK, id=webhook_id)
        return WEBHOOK.value_of(rows[0]) if rows else None

    def lock(self, webhook_id: str) -> Webhook | None:
        found = self._in.locked(select(tables.webhooks).where(tables.webhooks.c.id == webhook_id))
        return WEBHOOK.value(found[0]) if found else None

    def lock_each(self, webhook_ids: Collection[str]) -> dict[str, Webhook]:
        c = tables.webhooks.c
        query = select(tables.webhooks).where(c.id.in_(list(webhook_ids))).order_by(c.subscription_id, c.id)
        return {row.id: WEBHOOK.value(row) for row in self._in.locked(query)}

    def of_workspace(self, workspace_id: str) -> tuple[Webhook, ...]:
        c = tables.webhooks.c
        query = select(tables.webhooks).where(c.workspace_id == workspace_id)
        return tuple(WEBHOOK.value(row) for row in self._in.rows(query.order_by(c.created_at, c.id)))

    def put(self, webhook: Webhook) -> None:
        self._in.put(tables.webhooks, WEBHOOK.row(webhook))
        if webhook.off_at is not None:
            c = tables.deliveries.c
            ended = {"status": "ended", "due_at": None, "end_reason": "webhook_off"}
            waiting = and_(c.webhook_id == webhook.id, c.status == "pending")
            self._in.change(
                update(tables.deliveries).where(waiting).values(ended | {"lease_owner": None, "lease_until": None})
            )

    def remove(self, webhook_id: str) -> None:
        self._in.change(tables.webhooks.delete().where(tables.webhooks.c.id == webhook_id))


class SqlDeliveries:
    """`DeliveryRecords` in the database."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def get(self, delivery_id: str) -> Delivery | None:
        rows = self._in.fetch(_DELIVERY, id=delivery_id)
        return DELIVERY.value_of(rows[0]) if rows else None

    def get_each(self, delivery_ids: Collection[str]) -> dict[str, Delivery]:
        rows = self._in.rows(select(tables.deliveries).where(tables.deliveries.c.id.in_(list(delivery_ids))))
        return {row.id: DELIVERY.value(row) for row in rows}

    def of_webhook(
        self, webhook_id: str, limit: int, before: int | None = None, status: str | None = None
    ) -> tuple[Delivery, ...]:
        c = tables.deliveries.c
        query = select(tables.deliveries).where(c.webhook_id == webhook_id)
        if before is not None:
            query = query.where(c.number < before)
        if status is not None:
            query = query.where(c.status == status)
        rows = self._in.rows(query.order_by(c.number.desc()).limit(limit))
        return tuple(DELIVERY.value(row) for row in rows)

    def put(self, *deliveries: Delivery) -> None:
        if self._in.change_each(_PUT, [DELIVERY.row_of(delivery) for delivery in deliveries]) != len(deliveries):
            ids = {delivery.id for delivery in deliveries}
            raise LookupError(f"there is no delivery {', '.join(sorted(ids - self.get_each(ids).keys()))}")

    def is_any_due(self, now: datetime) -> bool:
        return bool(self._in.fetch(_WAITING, now=tables.number_of(now), limit=1))

    def backlog(self, now: datetime) -> Backlog:
        c, hook = tables.deliveries.c, tables.webhooks.c
        pending = select(func.count()).select_from(tables.deliveries).where(c.status == "pending")
        hooks = select(func.count()).select_from(tables.webhooks)
        return Backlog(
            self._in.number(pending) or 0,
            self._in.number(pending.where(c.due_at <= now)) or 0,
            self._in.number(hooks.where(hook.off_at.is_(None), hook.failing_since.is_not(None))) or 0,
            self._in.number(hooks.where(hook.off_at.is_not(None))) or 0,
        )

    def claim(self, owner: str, now: datetime, until: datetime, limit: int, per_webhook: int) -> tuple[Delivery, ...]:
        c = tables.deliveries.c
        chosen = self._chosen(now, limit, per_webhook)
        found = self._in.locked(select(tables.deliveries).where(c.id.in_(chosen), _is_due(now)), skip=True)
        ids = [row.id for row in found]
        if not ids:
            return ()
        self._in.change(update(tables.deliveries).where(c.id.in_(ids)).values(lease_owner=owner, lease_until=until))
        claimed = [replace(DELIVERY.value(row), lease_owner=owner, lease_until=until) for row in found]
        return tuple(sorted(claimed, key=lambda delivery: (delivery.number, delivery.id)))

    def _chosen(self, now: datetime, limit: int, per_webhook: int) -> list[str]:
        """Choose what to lease: the oldest due of each webhook's datasets, as far as the webhook has room."""
        at = tables.number_of(now)
        busy = set(self._in.fetch(_LEASED, now=at))
        taken = Counter(webhook_id for webhook_id, _ in busy)
        places: list[tuple[int, int, str]] = []
        waiting = self._in.fetch(_WAITING, now=at, limit=limit + len(busy))
        for order, (webhook_id, failing_since) in enumerate(waiting):
            room = (per_webhook if failing_since is None else 1) - taken[webhook_id]
            if room > 0:
                rows = self._in.fetch(_OLDEST, webhook=webhook_id, now=at, limit=per_webhook * _LOOK_AHEAD)
                first = {dataset_id: id_ for id_, dataset_id in reversed(rows) if (webhook_id, dataset_id) not in busy}
                own = [id_ for id_, dataset_id in rows if first.get(dataset_id) == id_][:room]
                places += [(place, order, delivery_id) for place, delivery_id in enumerate(own)]
        return [delivery_id for _, _, delivery_id in sorted(places)[:limit]]


def queue(transaction: Transaction, subscription_id: str, events: Sequence[LoggedEvent], now: datetime) -> None:
    """Queue freshly logged events for the subscription's webhooks; these stay locked until the transaction ends."""
    c = tables.webhooks.c
    mine = and_(c.subscription_id == subscription_id, c.off_at.is_(None))
    if transaction.row(select(exists().where(mine)))[0]:  # type: ignore[index]  # always one row
        rows = transaction.locked(select(tables.webhooks).where(mine).order_by(c.id))
        made = queued([WEBHOOK.value(row) for row in rows], events, lambda: new_id("msg_"), now)
        transaction.insert(tables.deliveries, [DELIVERY.row(delivery) for delivery in made])
