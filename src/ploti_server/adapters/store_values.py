"""Frozen values as rows and back: a field with a column of its name lies there, the other fields as JSON in `rest`.

Versions keep schema and known columns as JSON in `schemas`: it is long and mostly the same from version to version, so
that it is read once for all rows that share it.
"""

from collections.abc import Callable, Mapping
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
from ploti_server.domain.events import LoggedEvent, data_of
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
    """How one kind of value lies in its table. The last `kept` values are kept by their rows, for the next reading."""

    kind: type[T]
    table: Table
    kept: int = 0

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        names = [field.name for field in fields(self.kind)]  # type: ignore[arg-type]
        stored = set(self.table.columns.keys())
        return tuple(n for n in names if n in stored), tuple(n for n in names if n not in stored)

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        return tuple(self.table.columns.keys())

    @cached_property
    def _moments(self) -> frozenset[str]:
        return frozenset(c.name for c in self.table.columns if isinstance(c.type, tables.Moment))

    @cached_property
    def value_of(self) -> Callable[[tuple[Any, ...]], T]:
        """Give the value of a row as the driver gives it."""
        return lru_cache(maxsize=self.kept)(self._read) if self.kept else self._read

    def row(self, value: T) -> dict[str, Any]:
        """Give the row of a value; raises `ValueError` for a moment without a zone."""
        own, others = self._names
        row = {name: _stored(getattr(value, name)) for name in own}
        if others:
            row["rest"] = encode({name: _stored(getattr(value, name)) for name in others})
        return row

    def row_of(self, value: T) -> dict[str, Any]:
        """Give the row of a value as the driver takes it."""
        row = self.row(value)
        return row | {name: tables.number_of(row[name]) for name in self._moments if row[name] is not None}

    def value(self, row: Row[Any]) -> T:
        """Give the value of a row that has just the table's columns."""
        return self.value_of(tuple(row))

    def _read(self, row: tuple[Any, ...]) -> T:
        stored = dict(zip(self._columns, row, strict=True))
        for name in self._moments:
            if isinstance(stored[name], int):
                stored[name] = tables.moment_of(stored[name])
        return self._built(stored)

    def _built(self, stored: dict[str, Any]) -> T:
        own, others = self._names
        rest: dict[str, Any] = decode(stored["rest"]) if others else {}
        return msgspec.convert(rest | {name: stored[name] for name in own}, self.kind)


class VersionShape(Shape[Version]):
    """How versions lie in their table."""

    def row(self, value: Version) -> dict[str, Any]:
        """Give the row of a version."""
        schemas = _Schemas(value.schema, value.known_columns)
        row = super().row(replace(value, schema=Schema(()), known_columns=()))
        return row | {"schemas": msgspec.json.encode(schemas).decode()}

    def _built(self, stored: dict[str, Any]) -> Version:
        schemas = _read_schemas(stored["schemas"])
        return replace(super()._built(stored), schema=schemas.schema, known_columns=schemas.known_columns)


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
DATASET = Shape(Dataset, tables.datasets, kept=4_096)
REFRESH = Shape(Refresh, tables.refreshes, kept=4_096)
CHECK = Shape(Check, tables.checks)
VERSION = VersionShape(Version, tables.versions, kept=4_096)
ASK = Shape(Ask, tables.asks)
WORKSPACE = Shape(Workspace, tables.workspaces, kept=1_024)
MEMBER = Shape(Member, tables.members, kept=1_024)
API_KEY = Shape(ApiKey, tables.api_keys, kept=1_024)
SUBSCRIPTION = Shape(Subscription, tables.subscriptions, kept=1_024)
REMEMBERED = Shape(Remembered, tables.idempotency)
WEBHOOK = Shape(Webhook, tables.webhooks)
DELIVERY = Shape(Delivery, tables.deliveries)
NOTICE = Shape(Notice, tables.notices)


def logged_event(row: Row[Any]) -> LoggedEvent:
    """Give the event of a row of the log, which has its body."""
    return LoggedEvent(row.subscription_id, row.number, row.type, row.dataset_id, row.timestamp, data_of(row.body))
