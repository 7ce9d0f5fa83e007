"""First answers to Idempotency-Keys in the database (D8.2)."""

from datetime import datetime

from sqlalchemy import select

from ploti_server.adapters import store_tables as tables
from ploti_server.adapters.store_transaction import Transaction
from ploti_server.adapters.store_values import REMEMBERED
from ploti_server.domain.idempotency import Remembered


class SqlIdempotency:
    """`IdempotencyRecords` in the database."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def get(self, workspace_id: str, route: str, key: str) -> Remembered | None:
        c = tables.idempotency.c
        query = select(tables.idempotency).where(c.workspace_id == workspace_id, c.route == route, c.key == key)
        row = self._in.row(query)
        return None if row is None else REMEMBERED.value(row)

    def put(self, remembered: Remembered) -> None:
        self._in.put(tables.idempotency, REMEMBERED.row(remembered))

    def forget(self, workspace_id: str, before: datetime) -> None:
        c = tables.idempotency.c
        self._in.change(tables.idempotency.delete().where(c.workspace_id == workspace_id, c.created_at <= before))
