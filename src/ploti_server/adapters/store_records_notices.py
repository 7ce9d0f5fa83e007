"""Notices to the operator in the database."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import select, update

from ploti_server.adapters import store_tables as tables
from ploti_server.adapters.store_transaction import Transaction
from ploti_server.adapters.store_values import NOTICE
from ploti_server.domain.notices import Notice


class SqlNotices:
    """`NoticeRecords` in the database."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def add(self, notice: Notice) -> Notice:
        row = NOTICE.row(notice)
        del row["id"]
        added = self._in.changed(tables.notices.insert().values(row).returning(tables.notices.c.id))
        if added is None:
            raise RuntimeError("the database gave no id for a notice")
        return replace(notice, id=added.id)

    def claim(self, now: datetime, until: datetime, limit: int) -> tuple[Notice, ...]:
        c = tables.notices.c
        due = self._in.locked(select(tables.notices).where(c.due_at <= now).order_by(c.id).limit(limit), skip=True)
        if due:
            self._in.change(update(tables.notices).where(c.id.in_([row.id for row in due])).values(due_at=until))
        return tuple(NOTICE.value(row) for row in due)

    def put(self, notice: Notice) -> None:
        row = NOTICE.row(notice)
        self._in.change(update(tables.notices).where(tables.notices.c.id == row.pop("id")).values(row))

    def remove(self, notice_id: int) -> None:
        self._in.change(tables.notices.delete().where(tables.notices.c.id == notice_id))
