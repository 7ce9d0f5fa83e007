"""Asks of the matching agent in the database (D4.2)."""

from sqlalchemy import select

from ploti_server.adapters import store_tables as tables
from ploti_server.adapters.store_transaction import Transaction
from ploti_server.adapters.store_values import ASK
from ploti_server.domain.asks import Ask


class SqlAsks:
    """`AskRecords` in the database."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def get(self, check_id: int) -> Ask | None:
        row = self._in.row(select(tables.asks).where(tables.asks.c.check_id == check_id))
        return None if row is None else ASK.value(row)

    def put(self, ask: Ask) -> None:
        self._in.put(tables.asks, ASK.row(ask))

    def of_dataset(self, dataset_id: str, limit: int) -> tuple[Ask, ...]:
        c = tables.asks.c
        query = select(tables.asks).where(c.dataset_id == dataset_id).order_by(c.check_id.desc()).limit(limit)
        return tuple(ASK.value(row) for row in self._in.rows(query))

    def waiting(self) -> tuple[Ask, ...]:
        c = tables.asks.c
        query = select(tables.asks).where(c.due_at.is_not(None)).order_by(c.due_at, c.check_id)
        return tuple(ASK.value(row) for row in self._in.rows(query))
