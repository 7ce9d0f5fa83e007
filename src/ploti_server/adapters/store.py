"""The metadata store on SQLite or PostgreSQL: opening, transactions, and the rules of each database.

SQLite: WAL, full sync, foreign keys, 30 seconds of patience; a writing transaction takes the write lock at its begin,
so that none has to upgrade. PostgreSQL: reads are one repeatable snapshot, writes lock rows explicitly.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from ploti_server.adapters import migrations
from ploti_server.adapters.store_calls import PostgresCalls, SqliteCalls
from ploti_server.adapters.store_records import SqlCatalog, SqlChecks, SqlVersions
from ploti_server.adapters.store_records_asks import SqlAsks
from ploti_server.adapters.store_records_limits import SqlIdempotency
from ploti_server.adapters.store_records_notices import SqlNotices
from ploti_server.adapters.store_records_webhooks import SqlDeliveries, SqlWebhooks
from ploti_server.adapters.store_records_workspaces import SqlEvents, SqlSecrets, SqlSubscriptions, SqlWorkspaces
from ploti_server.adapters.store_transaction import Transaction
from ploti_server.domain.limits import Counted

_WRITES = "ploti_writes"
_INHERITED: list[Engine] = []
"""Engines of the process that this one was forked from. SQLite forbids even closing their connections here."""


@dataclass(frozen=True)
class SqlRecords:
    """`Records` of one transaction of the database."""

    catalog: SqlCatalog
    checks: SqlChecks
    asks: SqlAsks
    versions: SqlVersions
    workspaces: SqlWorkspaces
    subscriptions: SqlSubscriptions
    events: SqlEvents
    idempotency: SqlIdempotency
    webhooks: SqlWebhooks
    deliveries: SqlDeliveries
    notices: SqlNotices
    secrets: SqlSecrets


class SqlStore:
    """`Store` on a database; safe to use from threads, and in processes forked from the one that opened it."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._made = _engine(url)
        self._calls = _calls(url, self._made)
        self._pid = os.getpid()

    @contextmanager
    def read(self) -> Iterator[SqlRecords]:
        """Open one consistent view; changing or locking in it raises `RuntimeError`."""
        with self._engine().connect() as plain:
            connection = plain.execution_options(**_read_options(self._url))
            with connection.begin():
                yield _records(Transaction(connection, writable=False))

    @contextmanager
    def write(self) -> Iterator[SqlRecords]:
        """Open a transaction, committed at the end of the block and rolled back by an exception."""
        with self._connect_to_write() as connection:
            yield _records(Transaction(connection, writable=True))

    def count_calls(self, key_id: str, names: Sequence[str], now: datetime) -> tuple[Counted, ...]:
        """Add a call to a key's counters and give them (D8.5)."""
        self._engine()
        return self._calls.count(key_id, names, now)

    def migrate(self) -> None:
        """Bring the tables to this program's layout; raises `migrations.UnknownLayout` for a newer one."""
        with self._engine().connect() as connection:
            if migrations.is_current(connection):
                return
        with self._connect_to_write() as connection:
            migrations.upgrade(connection)

    def close(self) -> None:
        """Close the connections of this process."""
        self._engine().dispose()
        self._calls.close()

    @contextmanager
    def _connect_to_write(self) -> Iterator[Connection]:
        with self._engine().connect() as plain:
            connection = plain.execution_options(**{_WRITES: True})
            with connection.begin():
                yield connection

    def _engine(self) -> Engine:
        if self._pid != os.getpid():
            _INHERITED.append(self._made)
            self._made, self._pid = _engine(self._url), os.getpid()
            self._calls = _calls(self._url, self._made)
        return self._made


def open_store(url: str) -> SqlStore:
    """Open the store at `sqlite:///PATH` or `postgresql://...`, making or migrating its tables.

    Raises `ValueError` for another address and `migrations.UnknownLayout` for tables of a newer program.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise ValueError("this is not a database address; use sqlite:///PATH or postgresql://...") from error
    if parsed.get_backend_name() == "sqlite" and parsed.database and parsed.database != ":memory:":
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        parsed = parsed.set(drivername="sqlite+pysqlite")
    elif parsed.get_backend_name() in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    else:
        shown = parsed.render_as_string(hide_password=True)
        raise ValueError(f"{shown!r} cannot hold the metadata; use sqlite:///PATH of a file or postgresql://...")
    store = SqlStore(parsed)
    store.migrate()
    return store


def _records(transaction: Transaction) -> SqlRecords:
    return SqlRecords(
        SqlCatalog(transaction),
        SqlChecks(transaction),
        SqlAsks(transaction),
        SqlVersions(transaction),
        SqlWorkspaces(transaction),
        SqlSubscriptions(transaction),
        SqlEvents(transaction),
        SqlIdempotency(transaction),
        SqlWebhooks(transaction),
        SqlDeliveries(transaction),
        SqlNotices(transaction),
        SqlSecrets(transaction),
    )


def _calls(url: URL, engine: Engine) -> PostgresCalls | SqliteCalls:
    """Count calls beside the metadata: on SQLite in a file of its own, so that counting never waits for a release."""
    if url.get_backend_name() == "sqlite":
        file = Path(url.database or "")
        return SqliteCalls(file.with_name(f"{file.stem}-calls{file.suffix}"))
    return PostgresCalls(engine)


def _read_options(url: URL) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        return {}
    return {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, max_overflow=40)
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    return create_engine(url, max_overflow=40, pool_pre_ping=True, isolation_level="READ COMMITTED")


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None
    for setting in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}").close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    driver: Any = connection.connection.driver_connection
    driver.execute(f"PRAGMA query_only = {0 if writes else 1}").close()
    driver.execute("BEGIN IMMEDIATE" if writes else "BEGIN").close()
