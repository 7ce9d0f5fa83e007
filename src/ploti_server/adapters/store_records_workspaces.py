"""Workspaces, subscriptions, the event log and secrets in the database."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Select,
    and_,
    bindparam,
    cast,
    func,
    literal_column,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError

from ploti_server.adapters import store_tables as tables
from ploti_server.adapters.store_records_webhooks import queue
from ploti_server.adapters.store_transaction import Transaction
from ploti_server.adapters.store_values import API_KEY, MEMBER, SUBSCRIPTION, WORKSPACE, logged_event
from ploti_server.domain.events import LoggedEvent, NewEvent, StoredBodies, stored_body
from ploti_server.domain.log import LogEnds, LogPage
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.workspaces import ApiKey, Holder, Member, Workspace
from ploti_server.ports import NameTaken

_WORKSPACE = select(tables.workspaces).where(tables.workspaces.c.id == bindparam("id"))
_MEMBER = select(tables.members).where(
    tables.members.c.workspace_id == bindparam("workspace"), tables.members.c.name == bindparam("name")
)


def _holder(member_name: ColumnElement[Any]) -> Select[Any]:
    keys, members = tables.api_keys.c, tables.members.c
    is_its = and_(members.workspace_id == keys.workspace_id, members.name == member_name)
    found = tables.api_keys.join(tables.workspaces, tables.workspaces.c.id == keys.workspace_id)
    return (
        select(tables.api_keys, tables.workspaces, tables.members)
        .select_from(found.outerjoin(tables.members, is_its))
        .where(keys.key_hash == bindparam("hash"))
    )


_HOLDER = {
    "sqlite": _holder(func.json_extract(tables.api_keys.c.rest, "$.member")),
    "postgresql": _holder(cast(tables.api_keys.c.rest, JSON)["member"].as_string()),
}
"""By database: the name of a key's member lies in its rest."""
_SUBSCRIPTION = select(tables.subscriptions).where(tables.subscriptions.c.id == bindparam("id"))
_JOINED = (
    select(tables.joined.c.dataset_id)
    .where(tables.joined.c.subscription_id == bindparam("subscription"))
    .order_by(tables.joined.c.dataset_id)
)
_HOLDING = (
    select(tables.subscriptions)
    .join(tables.joined, tables.joined.c.subscription_id == tables.subscriptions.c.id)
    .where(tables.joined.c.dataset_id == bindparam("dataset"))
    .order_by(tables.subscriptions.c.id)
)
_OF_KEY = len(tables.api_keys.c)
_OF_MEMBER = _OF_KEY + len(tables.workspaces.c)


def _page(types: Sequence[str] | None) -> Select[Any]:
    """Join a page's bodies in the database; both take a sorted subquery's rows in its order."""
    events, counters, subscriptions = tables.events.c, tables.counters.c, tables.subscriptions.c
    query = select(events.number, events.body).where(
        events.subscription_id == bindparam("subscription"), events.number > bindparam("after")
    )
    if types is not None:
        query = query.where(events.type.in_(list(types)))
    rows = query.order_by(events.number).limit(bindparam("limit")).subquery().c
    comma: Any = literal_column("','")  # a text would be written into the statement only by the toolkit's own calls
    joined = select(
        func.aggregate_strings(rows.body, comma).label("text"),
        func.count().label("count"),
        func.max(rows.number).label("last"),
    ).subquery()
    oldest = select(func.min(events.number)).where(events.subscription_id == subscriptions.id).scalar_subquery()
    log = tables.subscriptions.join(tables.counters, counters.subscription_id == subscriptions.id).join(joined, true())
    found = select(subscriptions.workspace_id, counters.newest, oldest, *joined.c).select_from(log)
    return found.where(subscriptions.id == bindparam("subscription"))


_PAGE = _page(None)
_ENDS = select(
    tables.counters.c.newest,
    select(func.min(tables.events.c.number))
    .where(tables.events.c.subscription_id == tables.counters.c.subscription_id)
    .scalar_subquery(),
).where(tables.counters.c.subscription_id == bindparam("subscription"))


@lru_cache(maxsize=1_024)
def _held_by(row: tuple[Any, ...]) -> Holder:
    member = row[_OF_MEMBER:]
    is_known = member[0] is not None
    return Holder(
        API_KEY.value_of(row[:_OF_KEY]),
        MEMBER.value_of(member) if is_known else None,
        WORKSPACE.value_of(row[_OF_KEY:_OF_MEMBER]),
    )


class SqlWorkspaces:
    """`WorkspaceRecords` in the database."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def get(self, workspace_id: str) -> Workspace | None:
        rows = self._in.fetch(_WORKSPACE, id=workspace_id)
        return WORKSPACE.value_of(rows[0]) if rows else None

    def named(self, name: str) -> Workspace | None:
        return self._one(select(tables.workspaces).where(tables.workspaces.c.name == name))

    def all(self) -> tuple[Workspace, ...]:
        rows = self._in.rows(select(tables.workspaces).order_by(tables.workspaces.c.name))
        return tuple(WORKSPACE.value(row) for row in rows)

    def lock(self, workspace_id: str) -> None:
        ids = tables.workspaces.c.id
        self._in.locked(select(ids).where(ids == workspace_id))

    def put(self, workspace: Workspace) -> None:
        row = WORKSPACE.row(workspace)
        try:
            self._in.put(tables.workspaces, row)
        except IntegrityError as error:
            raise NameTaken(workspace.name) from error

    def remove(self, workspace_id: str) -> None:
        self._in.change(tables.workspaces.delete().where(tables.workspaces.c.id == workspace_id))

    def member(self, workspace_id: str, name: str) -> Member | None:
        rows = self._in.fetch(_MEMBER, workspace=workspace_id, name=name)
        return MEMBER.value_of(rows[0]) if rows else None

    def members(self, workspace_id: str) -> tuple[Member, ...]:
        c = tables.members.c
        rows = self._in.rows(select(tables.members).where(c.workspace_id == workspace_id).order_by(c.name))
        return tuple(MEMBER.value(row) for row in rows)

    def put_member(self, member: Member) -> None:
        self._in.put(tables.members, MEMBER.row(member))

    def put_key(self, key: ApiKey) -> None:
        self._in.put(tables.api_keys, API_KEY.row(key))

    def holder(self, key_hash: str) -> Holder | None:
        rows = self._in.fetch(_HOLDER[self._in.database], hash=key_hash)
        return _held_by(rows[0]) if rows else None

    def keys(self, workspace_id: str) -> tuple[ApiKey, ...]:
        c = tables.api_keys.c
        query = select(tables.api_keys).where(c.workspace_id == workspace_id)
        return tuple(API_KEY.value(row) for row in self._in.rows(query.order_by(c.created_at, c.id)))

    def _one(self, query: Select[Any]) -> Workspace | None:
        row = self._in.row(query)
        return None if row is None else WORKSPACE.value(row)


class SqlSubscriptions:
    """`SubscriptionRecords` in the database."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def get(self, subscription_id: str) -> Subscription | None:
        rows = self._in.fetch(_SUBSCRIPTION, id=subscription_id)
        return SUBSCRIPTION.value_of(rows[0]) if rows else None

    def of_workspace(self, workspace_id: str) -> tuple[Subscription, ...]:
        c = tables.subscriptions.c
        query = select(tables.subscriptions).where(c.workspace_id == workspace_id)
        return self._many(query.order_by(c.created_at, c.id))

    def all(self) -> tuple[Subscription, ...]:
        return self._many(select(tables.subscriptions).order_by(tables.subscriptions.c.id))

    def put(self, subscription: Subscription) -> None:
        self._in.put(tables.subscriptions, SUBSCRIPTION.row(subscription))
        self._in.insert_new(tables.counters, {"subscription_id": subscription.id, "newest": 0})

    def remove(self, subscription_id: str) -> None:
        self._in.change(tables.subscriptions.delete().where(tables.subscriptions.c.id == subscription_id))

    def try_lock(self, subscription_id: str) -> bool:
        ids = tables.counters.c.subscription_id
        return bool(self._in.locked(select(ids).where(ids == subscription_id), skip=True))

    def joined(self, subscription_id: str) -> tuple[str, ...]:
        return tuple(dataset_id for (dataset_id,) in self._in.fetch(_JOINED, subscription=subscription_id))

    def join(self, subscription_id: str, dataset_id: str) -> None:
        self._in.insert_new(tables.joined, {"subscription_id": subscription_id, "dataset_id": dataset_id})

    def leave(self, subscription_id: str, dataset_id: str) -> None:
        c = tables.joined.c
        self._in.change(tables.joined.delete().where(c.subscription_id == subscription_id, c.dataset_id == dataset_id))

    def holding(self, dataset_id: str) -> tuple[Subscription, ...]:
        return tuple(SUBSCRIPTION.value_of(row) for row in self._in.fetch(_HOLDING, dataset=dataset_id))

    def _many(self, query: Select[Any]) -> tuple[Subscription, ...]:
        return tuple(SUBSCRIPTION.value(row) for row in self._in.rows(query))


class SqlEvents:
    """`EventRecords` in the database: numbers come from the counter row, never from a sequence (D7.2)."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def append(self, subscription_id: str, events: Sequence[NewEvent], now: datetime) -> tuple[LoggedEvent, ...]:
        if not events:
            return ()
        first = self._take_numbers(subscription_id, len(events))
        logged = tuple(
            LoggedEvent(subscription_id, first + offset, event.type, event.dataset_id, now, event.data)
            for offset, event in enumerate(events)
        )
        self._in.insert(tables.events, [_event_row(event) for event in logged])
        queue(self._in, subscription_id, logged, now)
        return logged

    def _take_numbers(self, subscription_id: str, count: int) -> int:
        c = tables.counters.c
        row = self._in.changed(
            update(tables.counters)
            .where(c.subscription_id == subscription_id)
            .values(newest=c.newest + count)
            .returning(c.newest)
        )
        if row is None:
            raise LookupError(f"there is no subscription {subscription_id}")
        return int(row.newest) - count + 1

    def after(
        self, subscription_id: str, number: int, limit: int, types: Sequence[str] | None = None
    ) -> tuple[LoggedEvent, ...]:
        c = tables.events.c
        query = select(tables.events).where(c.subscription_id == subscription_id, c.number > number)
        if types is not None:
            query = query.where(c.type.in_(list(types)))
        return tuple(logged_event(row) for row in self._in.rows(query.order_by(c.number).limit(limit)))

    def at(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], LoggedEvent]:
        c = tables.events.c
        rows = self._in.rows(select(tables.events).where(tuple_(c.subscription_id, c.number).in_(list(places))))
        return {(row.subscription_id, row.number): logged_event(row) for row in rows}

    def page(self, subscription_id: str, number: int, limit: int, types: Sequence[str] | None = None) -> LogPage | None:
        values = {"subscription": subscription_id, "after": number, "limit": limit}
        found = self._in.fetch(_PAGE, **values) if types is None else self._in.rows(_page(types).params(values))
        if not found:
            return None
        workspace_id, newest, oldest, text, count, last = found[0]
        bodies = StoredBodies(text or "", count, number if last is None else last)
        return LogPage(workspace_id, LogEnds(newest, oldest), bodies)

    def last_of_each(self, subscription_id: str, through: int, types: Sequence[str]) -> tuple[LoggedEvent, ...]:
        c = tables.events.c
        last = (
            select(func.max(c.number).label("number"))
            .where(c.subscription_id == subscription_id, c.number <= through, c.type.in_(list(types)))
            .group_by(c.dataset_id)
            .subquery()
        )
        query = select(tables.events).join(last, c.number == last.c.number).where(c.subscription_id == subscription_id)
        return tuple(logged_event(row) for row in self._in.rows(query.order_by(c.dataset_id)))

    def about(self, subscription_id: str, dataset_id: str, limit: int) -> tuple[LoggedEvent, ...]:
        c = tables.events.c
        query = select(tables.events).where(c.subscription_id == subscription_id, c.dataset_id == dataset_id)
        return tuple(logged_event(row) for row in self._in.rows(query.order_by(c.number.desc()).limit(limit))[::-1])

    def newest(self, subscription_id: str) -> int:
        c = tables.counters.c
        return self._in.number(select(c.newest).where(c.subscription_id == subscription_id)) or 0

    def ends(self, subscription_id: str) -> LogEnds:
        found = self._in.fetch(_ENDS, subscription=subscription_id)
        return LogEnds(*found[0]) if found else LogEnds(0, None)

    def newest_of(self, subscription_ids: Collection[str]) -> dict[str, int]:
        c = tables.counters.c
        query = select(c.subscription_id, c.newest).where(c.subscription_id.in_(list(subscription_ids)))
        return {row.subscription_id: row.newest for row in self._in.rows(query)}

    def oldest(self, subscription_id: str) -> int | None:
        c = tables.events.c
        return self._in.number(select(func.min(c.number)).where(c.subscription_id == subscription_id))

    def sent_by(self, subscription_id: str, moment: datetime) -> int | None:
        c = tables.events.c
        oldest = self.oldest(subscription_id)
        later = select(c.number).where(c.subscription_id == subscription_id, c.timestamp > moment).order_by(c.number)
        first_later = self._in.number(later.limit(1))
        end = self.newest(subscription_id) if first_later is None else first_later - 1
        return end if oldest is not None and oldest <= end else None

    def drop_through(self, subscription_id: str, number: int) -> None:
        c = tables.events.c
        self._in.change(tables.events.delete().where(c.subscription_id == subscription_id, c.number <= number))


def _event_row(event: LoggedEvent) -> dict[str, Any]:
    row = dict(vars(event)) | {"body": stored_body(event)}
    del row["data"]
    return row


class SqlSecrets:
    """`SecretRecords` in the database."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    def get_or_put(self, name: str, fresh: str) -> str:
        self._in.insert_new(tables.secrets, {"name": name, "value": fresh})
        row = self._in.row(select(tables.secrets.c.value).where(tables.secrets.c.name == name))
        if row is None:
            raise RuntimeError(f"the secret {name} was not stored")
        return str(row.value)
