"""Catalog, checks and versions in the database."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, exists, func, literal_column, or_, select, update

from ploti_server.adapters import store_tables as tables
from ploti_server.adapters.store_transaction import DATABASES, Transaction, among
from ploti_server.adapters.store_values import CHECK, DATASET, REFRESH, TOPIC, VERSION
from ploti_server.domain.checks import Check, CheckStatus, Refresh
from ploti_server.domain.datasets import Dataset, Topic
from ploti_server.domain.versions import Version, VersionStatus

_STARTED = (CheckStatus.BUILDING, CheckStatus.WAITING)
_OPEN = (CheckStatus.QUEUED, *_STARTED)
_SHOWN = (VersionStatus.RELEASED, VersionStatus.RELEASED_AGAIN)

_DATASET = select(tables.datasets).where(tables.datasets.c.id == bindparam("id"))
_DATASETS = select(tables.datasets).order_by(tables.datasets.c.id)
_REFRESH = select(tables.refreshes).where(tables.refreshes.c.dataset_id == bindparam("dataset"))
_VERSION = select(tables.versions).where(
    tables.versions.c.dataset_id == bindparam("dataset"), tables.versions.c.number == bindparam("number")
)
_RELEASED: ColumnElement[str] = literal_column(f"'{VersionStatus.RELEASED.value}'")
_CURRENT = (
    select(tables.versions)
    .where(
        tables.versions.c.dataset_id == bindparam("dataset"),
        tables.versions.c.status == _RELEASED,
    )
    .order_by(tables.versions.c.number.desc())
    .limit(literal_column("1"))
)


def _currents(database: str) -> Select[Any]:
    """Select the newest released version of each dataset of a list."""
    c, other = tables.versions.c, tables.versions.alias("other").c
    newest = select(func.max(other.number)).where(other.dataset_id == c.dataset_id, other.status == _RELEASED)
    listed = among(c.dataset_id, "ids", database)
    return select(tables.versions).where(listed, c.status == _RELEASED, c.number == newest.scalar_subquery())


_CURRENTS = {database: _currents(database) for database in DATABASES}
_REFRESHES = select(tables.refreshes).order_by(tables.refreshes.c.dataset_id)
_REFRESHES_OF = {
    database: _REFRESHES.where(among(tables.refreshes.c.dataset_id, "ids", database)) for database in DATABASES
}
_LAST_CHECK = (
    select(tables.checks)
    .where(tables.checks.c.dataset_id == bindparam("dataset"))
    .order_by(tables.checks.c.id.desc())
    .limit(literal_column("1"))
)


class SqlCatalog:
    """`CatalogRecords` in the database."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def topics(self) -> tuple[Topic, ...]:
        rows = self._in.rows(select(tables.topics).order_by(tables.topics.c.position))
        return tuple(TOPIC.value(row) for row in rows)

    def put_topics(self, topics: Sequence[Topic]) -> None:
        self._in.change(tables.topics.delete())
        self._in.insert(tables.topics, [TOPIC.row(t) | {"position": n} for n, t in enumerate(topics)])

    def dataset(self, dataset_id: str) -> Dataset | None:
        rows = self._in.fetch(_DATASET, id=dataset_id)
        return DATASET.value_of(rows[0]) if rows else None

    def datasets(self) -> tuple[Dataset, ...]:
        return tuple(DATASET.value_of(row) for row in self._in.fetch(_DATASETS))

    def put_dataset(self, dataset: Dataset) -> None:
        self._in.put(tables.datasets, DATASET.row(dataset))

    def lock(self, dataset_ids: Sequence[str]) -> None:
        ids = tables.datasets.c.id
        self._in.locked(select(ids).where(ids.in_(list(dataset_ids))).order_by(ids))

    def refresh(self, dataset_id: str) -> Refresh:
        rows = self._in.fetch(_REFRESH, dataset=dataset_id)
        return REFRESH.value_of(rows[0]) if rows else Refresh()

    def refreshes(self, dataset_ids: Collection[str] | None = None) -> dict[str, Refresh]:
        if dataset_ids is None:
            rows = self._in.fetch(_REFRESHES)
        else:
            rows = self._in.fetch(_REFRESHES_OF[self._in.database], ids=self._in.list_of(dataset_ids))
        return {row[0]: REFRESH.value_of(row) for row in rows}

    def put_refresh(self, dataset_id: str, refresh: Refresh) -> None:
        self._in.put(tables.refreshes, {"dataset_id": dataset_id} | REFRESH.row(refresh))


class SqlChecks:
    """`CheckRecords` in the database."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def add(self, check: Check) -> Check:
        ids = tables.datasets.c.id
        self._in.locked(select(ids).where(ids == check.dataset_id))  # a dataset's checks become visible in id order
        row = CHECK.row(check)
        del row["id"]
        added = self._in.changed(tables.checks.insert().values(row).returning(tables.checks.c.id))
        if added is None:
            raise RuntimeError("the database gave no id for a check")
        return replace(check, id=added.id)

    def get(self, check_id: int) -> Check | None:
        return self._first(tables.checks.c.id == check_id)

    def put(self, check: Check) -> None:
        row = CHECK.row(check)
        if self._in.change(update(tables.checks).where(tables.checks.c.id == row.pop("id")).values(row)) == 0:
            raise LookupError(f"there is no check {check.id}")

    def open_of(self, dataset_id: str) -> tuple[Check, ...]:
        c = tables.checks.c
        rows = self._in.rows(
            select(tables.checks).where(c.dataset_id == dataset_id, c.status.in_(_OPEN)).order_by(c.id)
        )
        return tuple(CHECK.value(row) for row in rows)

    def last_of(self, dataset_id: str, before: int | None = None) -> Check | None:
        c = tables.checks.c
        older = c.dataset_id == dataset_id if before is None else and_(c.dataset_id == dataset_id, c.id < before)
        return self._first(older)

    def claim(self, owner: str, now: datetime, until: datetime, check_id: int | None = None) -> Check | None:
        c = tables.checks.c
        ready = or_(c.due_at.is_(None), c.due_at <= now) if check_id is None else c.id == check_id
        found = self._in.locked(
            select(c.id).where(ready, _unleased(now), ~_behind_another(now)).order_by(c.id).limit(1), skip=True
        )
        if not found:
            return None
        status = case((c.status == CheckStatus.QUEUED, CheckStatus.BUILDING), else_=c.status)
        row = self._in.changed(
            update(tables.checks)
            .where(c.id == found[0].id)
            .values(status=status, lease_owner=owner, lease_until=until)
            .returning(*c)
        )
        return None if row is None else CHECK.value(row)

    def beat(self, check_id: int, owner: str, until: datetime) -> bool:
        c = tables.checks.c
        held = and_(c.id == check_id, c.lease_owner == owner, c.status.in_(_STARTED))
        return self._in.change(update(tables.checks).where(held).values(lease_until=until)) == 1

    def leased(self) -> tuple[Check, ...]:
        c = tables.checks.c
        owned = and_(c.status.in_(_STARTED), c.lease_owner.is_not(None))
        return tuple(CHECK.value(row) for row in self._in.rows(select(tables.checks).where(owned).order_by(c.id)))

    def _first(self, condition: ColumnElement[bool]) -> Check | None:
        row = self._in.row(select(tables.checks).where(condition).order_by(tables.checks.c.id.desc()))
        return None if row is None else CHECK.value(row)


def _unleased(now: datetime) -> ColumnElement[bool]:
    c = tables.checks.c
    run_out = or_(c.lease_until.is_(None), c.lease_until <= now)
    return or_(c.status == CheckStatus.QUEUED, and_(c.status.in_(_STARTED), run_out))


def _behind_another(now: datetime) -> ColumnElement[bool]:
    """A check of the same dataset is leased, or older and open."""
    other = tables.checks.alias("other").c
    leased = and_(other.status.in_(_STARTED), other.lease_until > now)
    older = and_(other.status.in_(_OPEN), other.id < tables.checks.c.id)
    same = and_(other.dataset_id == tables.checks.c.dataset_id, other.id != tables.checks.c.id)
    return exists(select(other.id).where(same, or_(leased, older)))


class SqlVersions:
    """`VersionRecords` in the database."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def get(self, dataset_id: str, number: int) -> Version | None:
        rows = self._in.fetch(_VERSION, dataset=dataset_id, number=number)
        return VERSION.value_of(rows[0]) if rows else None

    def put(self, version: Version) -> None:
        self._in.put(tables.versions, VERSION.row(version))

    def drop(self, dataset_id: str, number: int) -> None:
        hidden = tables.versions.c.status.not_in(_SHOWN)
        gone = self._in.change(tables.versions.delete().where(_is(dataset_id, number), hidden))
        if gone == 0 and self.get(dataset_id, number) is not None:
            raise ValueError(f"version {number} of {dataset_id} was released and stays")

    def current(self, dataset_id: str) -> Version | None:
        rows = self._in.fetch(_CURRENT, dataset=dataset_id)
        return VERSION.value_of(rows[0]) if rows else None

    def currents(self, dataset_ids: Collection[str]) -> dict[str, Version]:
        rows = self._in.fetch(_CURRENTS[self._in.database], ids=self._in.list_of(dataset_ids))
        return {row[0]: VERSION.value_of(row) for row in rows}

    def newest_number(self, dataset_id: str) -> int:
        c = tables.versions.c
        return self._in.number(select(func.max(c.number)).where(c.dataset_id == dataset_id)) or 0

    def released(
        self,
        dataset_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int = 1000,
    ) -> tuple[Version, ...]:
        c = tables.versions.c
        query = select(tables.versions).where(
            c.dataset_id == dataset_id, c.status == VersionStatus.RELEASED, c.number > after
        )
        if before is not None:
            query = query.where(c.number < before)
        order = c.number.desc() if newest_first else c.number
        return tuple(VERSION.value(row) for row in self._in.rows(query.order_by(order).limit(limit)))

    def in_status(self, dataset_id: str | None, statuses: Sequence[VersionStatus]) -> tuple[Version, ...]:
        c = tables.versions.c
        query = select(tables.versions).where(c.status.in_(list(statuses)))
        if dataset_id is not None:
            query = query.where(c.dataset_id == dataset_id)
        return tuple(VERSION.value(row) for row in self._in.rows(query.order_by(c.dataset_id, c.number)))


def _is(dataset_id: str, number: int) -> ColumnElement[bool]:
    return and_(tables.versions.c.dataset_id == dataset_id, tables.versions.c.number == number)
