"""Webhooks and their deliveries in the database.

Whoever locks several webhooks does so by subscription and id, after the subscriptions' counters.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, or_, select, tuple_, update

from ploti_server.adapters import store_tables as tables
from ploti_server.adapters.store_transaction import Transaction
from ploti_server.adapters.store_values import DELIVERY, WEBHOOK
from ploti_server.domain.deliveries import Delivery, queued
from ploti_server.domain.events import LoggedEvent
from ploti_server.domain.webhooks import Webhook
from ploti_server.pipeline.subscriptions import new_id


class SqlWebhooks:
    """`WebhookRecords` in the database."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def get(self, webhook_id: str) -> Webhook | None:
        row = self._in.row(select(tables.webhooks).where(tables.webhooks.c.id == webhook_id))
        return None if row is None else WEBHOOK.value(row)

    def lock(self, webhook_id: str) -> Webhook | None:
        found = self._in.locked(select(tables.webhooks).where(tables.webhooks.c.id == webhook_id))
        return WEBHOOK.value(found[0]) if found else None

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
        row = self._in.row(select(tables.deliveries).where(tables.deliveries.c.id == delivery_id))
        return None if row is None else DELIVERY.value(row)

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

    def put(self, delivery: Delivery) -> None:
        row = DELIVERY.row(delivery)
        changed = update(tables.deliveries).where(tables.deliveries.c.id == row.pop("id")).values(row)
        if self._in.change(changed) == 0:
            raise LookupError(f"there is no delivery {delivery.id}")

    def is_any_due(self, now: datetime) -> bool:
        hook = tables.webhooks.c
        due = select(tables.deliveries.c.id).join(tables.webhooks, hook.id == tables.deliveries.c.webhook_id)
        return self._in.row(due.where(_is_due(now), hook.off_at.is_(None))) is not None

    def claim(self, owner: str, now: datetime, until: datetime, limit: int, per_webhook: int) -> tuple[Delivery, ...]:
        c = tables.deliveries.c
        chosen = _chosen(now, per_webhook).limit(limit)
        found = self._in.locked(select(tables.deliveries).where(c.id.in_(chosen), _is_due(now)), skip=True)
        ids = [row.id for row in found]
        if ids:
            self._in.change(update(tables.deliveries).where(c.id.in_(ids)).values(lease_owner=owner, lease_until=until))
        again = select(tables.deliveries).where(c.id.in_(ids)).order_by(c.number, c.id)
        return tuple(DELIVERY.value(row) for row in self._in.rows(again)) if ids else ()


def _is_due(now: datetime) -> ColumnElement[bool]:
    c = tables.deliveries.c
    return and_(c.due_at <= now, or_(c.lease_until.is_(None), c.lease_until <= now))


def _chosen(now: datetime, per_webhook: int) -> Select[tuple[str]]:
    """Choose the deliveries to lease: the lowest of each webhook's datasets, and of those what it has room for."""
    c, hook = tables.deliveries.c, tables.webhooks.c
    leased = c.lease_until > now
    taken = select(c.webhook_id, func.count().label("count")).where(leased).group_by(c.webhook_id).subquery()
    turn = func.row_number().over(partition_by=(c.webhook_id, c.dataset_id), order_by=c.number).label("turn")
    room = case((hook.failing_since.is_not(None), 1), else_=per_webhook) - func.coalesce(taken.c.count, 0)
    due = (
        select(c.id, c.webhook_id, c.number, turn, room.label("room"))
        .join(tables.webhooks, hook.id == c.webhook_id)
        .outerjoin(taken, taken.c.webhook_id == c.webhook_id)
        .where(
            _is_due(now),
            hook.off_at.is_(None),
            tuple_(c.webhook_id, c.dataset_id).not_in(select(c.webhook_id, c.dataset_id).where(leased)),
        )
        .subquery()
    )
    place = func.row_number().over(partition_by=due.c.webhook_id, order_by=due.c.number).label("place")
    first = select(due.c.id, due.c.room, place).where(due.c.turn == 1).subquery()
    return select(first.c.id).where(first.c.place <= first.c.room).order_by(first.c.place, first.c.id)


def queue(transaction: Transaction, subscription_id: str, events: Sequence[LoggedEvent], now: datetime) -> None:
    """Queue freshly logged events for the subscription's webhooks; these stay locked until the transaction ends."""
    c = tables.webhooks.c
    mine = and_(c.subscription_id == subscription_id, c.off_at.is_(None))
    if transaction.row(select(exists().where(mine)))[0]:  # type: ignore[index]  # always one row
        rows = transaction.locked(select(tables.webhooks).where(mine).order_by(c.id))
        made = queued([WEBHOOK.value(row) for row in rows], events, lambda: new_id("msg_"), now)
        transaction.insert(tables.deliveries, [DELIVERY.row(delivery) for delivery in made])
