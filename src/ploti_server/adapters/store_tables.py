"""Tables of the metadata store. Columns are what queries filter or sort by; `rest` is the remainder of a frozen value
as JSON (see `store_values`). Moments are whole microseconds since 1970 UTC. Text sorts by code point on every database.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeDecorator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Moment(TypeDecorator[datetime]):
    """A moment in UTC as microseconds since 1970: exact, and ordered like the time."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        """Turn an aware moment into a number; raises `ValueError` for one without a zone."""
        return None if value is None else number_of(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Turn a stored number into an aware moment."""
        return None if value is None else moment_of(value)


def number_of(moment: datetime) -> int:
    """Give the number that stands for a moment; raises `ValueError` for one without a zone."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone")
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(number: int) -> datetime:
    """Give the moment that a stored number stands for."""
    return _EPOCH + timedelta(microseconds=number)


NAME = String().with_variant(String(collation="C"), "postgresql")
ROW_ID = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _of(table: str, cascade: bool = False) -> ForeignKey:
    return ForeignKey(f"{table}.id", ondelete="CASCADE" if cascade else None)


def _rest() -> Column[str]:
    return Column("rest", Text, nullable=False)


topics = Table(
    "topics",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("name", Text, nullable=False),
    Column("position", Integer, nullable=False),
)
datasets = Table("datasets", metadata, Column("id", NAME, primary_key=True), _rest())
refreshes = Table(
    "refreshes",
    metadata,
    Column("dataset_id", NAME, _of("datasets"), primary_key=True),
    Column("last_checked_at", Moment),
    Column("next_check_by", Moment),
    Column("stale_for", Moment),
)
checks = Table(
    "checks",
    metadata,
    Column("id", ROW_ID, primary_key=True, autoincrement=True),
    Column("dataset_id", NAME, _of("datasets"), nullable=False),
    Column("status", NAME, nullable=False),
    Column("fetched_at", Moment, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("due_at", Moment),
    Column("lease_owner", NAME),
    Column("lease_until", Moment),
    _rest(),
    Index(None, "dataset_id", "id"),
    Index(None, "status", "id"),
    sqlite_autoincrement=True,
)
versions = Table(
    "versions",
    metadata,
    Column("dataset_id", NAME, _of("datasets"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("status", NAME, nullable=False),
    Column("schemas", Text, nullable=False),
    _rest(),
    Index(None, "dataset_id", "status", "number"),
    Index(None, "status", "dataset_id", "number"),
)
asks = Table(
    "asks",
    metadata,
    Column("check_id", BigInteger, _of("checks"), primary_key=True, autoincrement=False),
    Column("dataset_id", NAME, _of("datasets"), nullable=False),
    Column("due_at", Moment),
    _rest(),
    Index(None, "dataset_id", "check_id"),
    Index(None, "due_at"),
)
workspaces = Table(
    "workspaces",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("created_at", Moment, nullable=False),
    _rest(),
    UniqueConstraint("name"),
)
members = Table(
    "members",
    metadata,
    Column("workspace_id", NAME, _of("workspaces", cascade=True), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("role", NAME, nullable=False),
    Column("left_at", Moment),
)
api_keys = Table(
    "api_keys",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("workspace_id", NAME, _of("workspaces", cascade=True), nullable=False),
    Column("key_hash", NAME, nullable=False),
    Column("created_at", Moment, nullable=False),
    _rest(),
    UniqueConstraint("key_hash"),
    Index(None, "workspace_id", "created_at"),
)
subscriptions = Table(
    "subscriptions",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("workspace_id", NAME, _of("workspaces", cascade=True), nullable=False),
    Column("created_at", Moment, nullable=False),
    _rest(),
    Index(None, "workspace_id", "created_at"),
)
counters = Table(
    "counters",
    metadata,
    Column("subscription_id", NAME, _of("subscriptions", cascade=True), primary_key=True),
    Column("newest", BigInteger, nullable=False),
)
joined = Table(
    "joined",
    metadata,
    Column("subscription_id", NAME, _of("subscriptions", cascade=True), primary_key=True),
    Column("dataset_id", NAME, _of("datasets"), primary_key=True),
    Index(None, "dataset_id", "subscription_id"),
)
events = Table(
    "events",
    metadata,
    Column("subscription_id", NAME, _of("subscriptions", cascade=True), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("type", NAME, nullable=False),
    Column("dataset_id", NAME, nullable=False),
    Column("timestamp", Moment, nullable=False),
    Column("body", Text, nullable=False),
)
webhooks = Table(
    "webhooks",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("workspace_id", NAME, _of("workspaces", cascade=True), nullable=False),
    Column("subscription_id", NAME, _of("subscriptions", cascade=True), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("failing_since", Moment),
    Column("off_at", Moment),
    _rest(),
    Index(None, "workspace_id", "created_at"),
    Index(None, "subscription_id"),
)
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("webhook_id", NAME, _of("webhooks", cascade=True), nullable=False),
    Column("subscription_id", NAME, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("type", NAME, nullable=False),
    Column("dataset_id", NAME, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("due_at", Moment),
    Column("status", NAME, nullable=False),
    Column("end_reason", NAME),
    Column("lease_owner", NAME),
    Column("lease_until", Moment),
    _rest(),
    ForeignKeyConstraint(
        ["subscription_id", "number"], ["events.subscription_id", "events.number"], ondelete="CASCADE"
    ),
    UniqueConstraint("webhook_id", "number"),
    Index(None, "subscription_id", "number"),
    Index(None, "webhook_id", "due_at", "number"),
    Index(None, "lease_until"),
)
idempotency = Table(
    "idempotency",
    metadata,
    Column("workspace_id", NAME, _of("workspaces", cascade=True), primary_key=True),
    Column("route", NAME, primary_key=True),
    Column("key", NAME, primary_key=True),
    Column("body_hash", NAME, nullable=False),
    Column("status", Integer, nullable=False),
    Column("answer", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Index(None, "workspace_id", "created_at"),
)
notices = Table(
    "notices",
    metadata,
    Column("id", ROW_ID, primary_key=True, autoincrement=True),
    Column("due_at", Moment, nullable=False),
    _rest(),
    Index(None, "due_at"),
    sqlite_autoincrement=True,
)
secrets = Table(
    "secrets",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("value", Text, nullable=False),
)
