"""The metadata store on SQLite or PostgreSQL: opening, transactions, and the rules of each database.

SQLite: WAL, full sync, foreign keys, 30 seconds of patience; a writing transaction takes the write lock at its begin,
so that none has to upgrade. PostgreSQL: reads are one repeatable snapshot, writes lock rows explicitly.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from weakref import WeakSet

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from ploti_server.adapters import migrations
from ploti_server.adapters.store_calls import PostgresCalls, SharedCalls
from ploti_server.adapters.store_records import SqlCatalog, SqlChecks, SqlVersions
from ploti_server.adapters.store_records_asks import SqlAsks
from ploti_server.adapters.store_records_limits import SqlIdempotency
from ploti_server.adapters.store_records_notices import SqlNotices
from ploti_server.adapters.store_records_webhooks import SqlDeliveries, SqlWebhooks
from ploti_server.adapters.store_records_workspaces import SqlEvents, SqlSecrets, SqlSubscriptions, SqlWorkspaces
from ploti_server.adapters.store_transaction import Transaction
from ploti_server.domain.limits import Counted

_WRITES = "ploti_writes"
_READS = "ploti_reads"
_INHERITED: list[object] = []
"""What belongs to the process that this one was forked from. SQLite forbids even closing its connections here."""


class SqlRecords:
    """`Records` of one transaction of the database; each part is made where it is used."""

    def __init__(self, transaction: Transaction) -> None:
        self._in = transaction

    @property
    def catalog(self) -> SqlCatalog:
        return SqlCatalog(self._in)

    @property
    def checks(self) -> SqlChecks:
        return SqlChecks(self._in)

    @property
    def asks(self) -> SqlAsks:
        return SqlAsks(self._in)

    @property
    def versions(self) -> SqlVersions:
        return SqlVersions(self._in)

    @property
    def workspaces(self) -> SqlWorkspaces:
        return SqlWorkspaces(self._in)

    @property
    def subscriptions(self) -> SqlSubscriptions:
        return SqlSubscriptions(self._in)

    @property
    def events(self) -> SqlEvents:
        return SqlEvents(self._in)

    @property
    def idempotency(self) -> SqlIdempotency:
        return SqlIdempotency(self._in)

    @property
    def webhooks(self) -> SqlWebhooks:
        return SqlWebhooks(self._in)

    @property
    def deliveries(self) -> SqlDeliveries:
        return SqlDeliveries(self._in)

    @property
    def notices(self) -> SqlNotices:
        return SqlNotices(self._in)

    @property
    def secrets(self) -> SqlSecrets:
        return SqlSecrets(self._in)


class _SqliteReading:
    """Reads on a connection that stays open for the next reading: opening one costs more than most queries."""

    __slots__ = ("_begin", "_connection", "_engine", "_idle")

    def __init__(self, engine: Engine, idle: list[Connection], begin: str | None = "BEGIN") -> None:
        self._engine, self._idle, self._begin = engine, idle, begin

    def __enter__(self) -> SqlRecords:
        self._connection = self._idle.pop() if self._idle else _reader(self._engine)
        if self._begin:
            _tell_driver(self._connection, self._begin)
        return SqlRecords(Transaction(self._connection, writable=False))

    def __exit__(self, *_: object) -> None:
        if self._connection.in_transaction():
            self._connection.rollback()
        driver: Any = self._connection.connection.driver_connection
        if driver.in_transaction:
            driver.rollback()
        self._idle.append(self._connection)


@contextmanager
def _read_postgres(engine: Engine) -> Iterator[SqlRecords]:
    with engine.connect() as plain:
        connection = plain.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with connection.begin():
            yield SqlRecords(Transaction(connection, writable=False))


@contextmanager
def _glance_postgres(engine: Engine) -> Iterator[SqlRecords]:
    with engine.connect() as plain:
        connection = plain.execution_options(isolation_level="AUTOCOMMIT", postgresql_readonly=True)
        yield SqlRecords(Transaction(connection, writable=False))


class SqlStore:
    """`Store` on a database; safe to use from threads, and in processes forked from the one that opened it."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._begin()
        _OPENED.add(self)

    def _begin(self) -> None:
        self._engine = _engine(self._url)
        self._calls = _calls(self._url, self._engine)
        self._readers: list[Connection] = []

    def begin_anew(self) -> None:
        """Leave connections and counters to the process that this one was forked from, and begin with own ones."""
        _INHERITED.append((self._engine, self._calls, self._readers))
        self._begin()

    @property
    def answers_at_once(self) -> bool:
        """Tell whether the database is a file of this machine, whose readers never wait for its writers."""
        return self._engine.dialect.name == "sqlite"

    def read(self) -> AbstractContextManager[SqlRecords]:
        """Open one consistent view; changing or locking in it raises `RuntimeError`."""
        if self.answers_at_once:
            return _SqliteReading(self._engine, self._readers)
        return _read_postgres(self._engine)

    def glance(self) -> AbstractContextManager[SqlRecords]:
        """Open a view in which each read is of its own moment; changing or locking in it raises `RuntimeError`."""
        if self.answers_at_once:
            return _SqliteReading(self._engine, self._readers, begin=None)
        return _glance_postgres(self._engine)

    @contextmanager
    def write(self) -> Iterator[SqlRecords]:
        """Open a transaction, committed at the end of the block and rolled back by an exception."""
        with self._connect_to_write() as connection:
            yield SqlRecords(Transaction(connection, writable=True))

    def count_calls(self, key_id: str, names: Sequence[str], now: datetime) -> tuple[Counted, ...]:
        """Add a call to a key's counters and give them (D8.5)."""
        return self._calls.count(key_id, names, now)

    def migrate(self) -> None:
        """Bring the tables to this program's layout; raises `migrations.UnknownLayout` for a newer one."""
        with self._engine.connect() as connection:
            if migrations.is_current(connection):
                return
        with self._connect_to_write() as connection:
            migrations.upgrade(connection)

    def close(self) -> None:
        """Close the connections of this process."""
        while self._readers:
            self._readers.pop().close()
        self._engine.dispose()
        self._calls.close()

    @contextmanager
    def _connect_to_write(self) -> Iterator[Connection]:
        with self._engine.connect() as plain:
            connection = plain.execution_options(**{_WRITES: True})
            with connection.begin():
                yield connection


_OPENED: WeakSet[SqlStore] = WeakSet()
"""The stores of this process."""


def _begin_all_anew() -> None:
    for store in _OPENED:
        store.begin_anew()


os.register_at_fork(after_in_child=_begin_all_anew)


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


def _calls(url: URL, engine: Engine) -> PostgresCalls | SharedCalls:
    """Count calls beside the metadata, so that counting never waits for a release."""
    if url.get_backend_name() == "sqlite":
        file = Path(url.database or "")
        return SharedCalls(file.with_name(f"{file.stem}.calls"))
    return PostgresCalls(engine)


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
    if connection.info.get(_READS):
        return
    writes = connection.get_execution_options().get(_WRITES, False)
    _tell_driver(connection, "BEGIN IMMEDIATE" if writes else "BEGIN")


def _reader(engine: Engine) -> Connection:
    """Open a connection that only reads; its transactions are begun by whoever reads."""
    connection = engine.connect()
    connection.info[_READS] = True
    _tell_driver(connection, "PRAGMA query_only = 1")
    return connection


def _tell_driver(connection: Connection, statement: str) -> None:
    driver: Any = connection.connection.driver_connection
    driver.execute(statement).close()
