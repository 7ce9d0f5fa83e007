"""Frozen values as rows and back: a field with a column of its name lies there, the other fields as JSON in `rest`.

Versions keep schema and known columns as JSON in `schemas`: it is long and mostly the same from version to version, so
that it is read once for all rows that share it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import Row, Table

from ploti_server.adapters import store_tables as tables
from ploti_server.domain.asks import Ask
from ploti_server.domain.checks import Check, Refresh
from ploti_server.domain.datasets import Dataset, Topic
from ploti_server.domain.deliveries import Delivery
from ploti_server.domain.events import LoggedEvent
from ploti_server.domain.idempotency import Remembered
from ploti_server.domain.notices import Notice
from ploti_server.domain.schema import KnownColumn, Schema
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.versions import Version
from ploti_server.domain.webhooks import Webhook
from ploti_server.domain.workspaces import ApiKey, Member, Workspace

T = TypeVar("T")


@dataclass(frozen=True)
class Shape(Generic[T]):
    """How one kind of value lies in its table."""

    kind: type[T]
    table: Table

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        names = [field.name for field in fields(self.kind)]  # type: ignore[arg-type]
        stored = set(self.table.columns.keys())
        return tuple(n for n in names if n in stored), tuple(n for n in names if n not in stored)

    def row(self, value: T) -> dict[str, Any]:
        """Give the row of a value; raises `ValueError` for a moment without a zone."""
        own, others = self._names
        row = {name: _stored(getattr(value, name)) for name in own}
        if others:
            row["rest"] = encode({name: _stored(getattr(value, name)) for name in others})
        return row

    def value(self, row: Row[Any]) -> T:
        """Give the value of a row that has the table's columns."""
        own, others = self._names
        stored = row._mapping
        built: dict[str, Any] = decode(stored["rest"]) if others else {}
        return msgspec.convert(built | {name: stored[name] for name in own}, self.kind)


class VersionShape(Shape[Version]):
    """How versions lie in their table."""

    def row(self, value: Version) -> dict[str, Any]:
        """Give the row of a version."""
        schemas = _Schemas(value.schema, value.known_columns)
        row = super().row(replace(value, schema=Schema(()), known_columns=()))
        return row | {"schemas": msgspec.json.encode(schemas).decode()}

    def value(self, row: Row[Any]) -> Version:
        """Give the version of a row."""
        schemas = _read_schemas(row.schemas)
        return replace(super().value(row), schema=schemas.schema, known_columns=schemas.known_columns)


@dataclass(frozen=True)
class _Schemas:
    schema: Schema
    known_columns: tuple[KnownColumn, ...]


@lru_cache(maxsize=256)
def _read_schemas(text: str) -> _Schemas:
    return msgspec.json.decode(text, type=_Schemas)


def _stored(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise ValueError(f"{value.isoformat()} has no time zone")
    return value.astimezone(UTC)


def encode(value: Mapping[str, Any]) -> str:
    """Write JSON text."""
    return msgspec.json.encode(value).decode()


def decode(text: str) -> dict[str, Any]:
    """Read JSON text."""
    read: dict[str, Any] = msgspec.json.decode(text)
    return read


TOPIC = Shape(Topic, tables.topics)
DATASET = Shape(Dataset, tables.datasets)
REFRESH = Shape(Refresh, tables.refreshes)
CHECK = Shape(Check, tables.checks)
VERSION = VersionShape(Version, tables.versions)
ASK = Shape(Ask, tables.asks)
WORKSPACE = Shape(Workspace, tables.workspaces)
MEMBER = Shape(Member, tables.members)
API_KEY = Shape(ApiKey, tables.api_keys)
SUBSCRIPTION = Shape(Subscription, tables.subscriptions)
REMEMBERED = Shape(Remembered, tables.idempotency)
WEBHOOK = Shape(Webhook, tables.webhooks)
DELIVERY = Shape(Delivery, tables.deliveries)
NOTICE = Shape(Notice, tables.notices)


def logged_event(row: Row[Any]) -> LoggedEvent:
    """Give the event of a row of the log, whose `data` is ready JSON."""
    return LoggedEvent(row.subscription_id, row.number, row.type, row.dataset_id, row.timestamp, decode(row.data))
