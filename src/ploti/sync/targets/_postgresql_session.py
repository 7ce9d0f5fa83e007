"""One session with a PostgreSQL server: settings, transactions, patient DDL, and what its errors mean (D11.3)."""

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from ploti.contract.files import RECORD_ID
from ploti.sync.target import (
    Say,
    StepBlocked,
    StepRefused,
    SyncError,
    TargetAway,
    TargetBusy,
    TargetUnusable,
    say_nothing,
)
from ploti.sync.targets._books import DATASETS, SYNC

_OLDEST_SERVER: Final = 140_000
_CONNECT_SECONDS: Final = 15
_LOCK_WAIT_SECONDS: Final = 5.0
"""How long a lock of a sync that was killed may outlive it before it counts as another sync."""
_DDL_LOCK_TIMEOUT: Final = "500ms"
_ROW_LOCK_TIMEOUT: Final = "60s"
_DDL_WAIT_SECONDS: Final = 60.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_SETTINGS: Final = f"""
SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET client_encoding = 'UTF8'; SET standard_conforming_strings = on;
SET bytea_output = 'hex'; SET extra_float_digits = 1; SET statement_timeout = 0;
SET lock_timeout = '{_ROW_LOCK_TIMEOUT}';
SET idle_in_transaction_session_timeout = 0; SET client_min_messages = 'warning'
"""
_LOCK_KEY: Final = "hashtextextended('ploti sync ' || %s::text, 0)"
_HOLDER: Final = f"""
SELECT a.application_name, a.usename, a.client_addr::text FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND ((l.classid::bigint << 32) | l.objid::bigint) = {_LOCK_KEY}
"""
_BLOCKERS: Final = """
SELECT DISTINCT a.pid, a.usename, a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.relation = to_regclass(%s) AND l.granted AND l.pid <> pg_backend_pid() AND l.mode <> ALL (%s)
ORDER BY a.pid LIMIT 1
"""
_SOMEBODY: Final = "another session"
_READING: Final = "AccessShareLock"
AWAY: Final = ("08", "57P")
"""How the states of errors begin after which the server, or the way to it, is not there."""
_SERVER_IN_TROUBLE: Final = ("53", "58", "25006", "28", "3D")


def quoted(name: str) -> str:
    """Give a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Give a text as an SQL literal; needs `standard_conforming_strings`, which every session here sets."""
    return "'" + text.replace("'", "''") + "'"


def first_line(error: BaseException) -> str:
    """Give the first line of an error, which is what a person needs of it."""
    return str(error).partition("\n")[0]


@dataclass(frozen=True)
class Server:
    """Where a target is: the address that libpq takes, the schema in it, and how patiently to wait for others."""

    conninfo: str = field(repr=False)  # may hold a password
    schema: str | None
    say: Say = say_nothing
    lock_wait_seconds: float = _LOCK_WAIT_SECONDS
    ddl_wait_seconds: float = _DDL_WAIT_SECONDS
    clock: Callable[[], float] = field(default=time.monotonic)
    sleep: Callable[[float], None] = field(default=time.sleep)

    @contextmanager
    def session(self) -> Iterator["Session"]:
        """Connect for a while; raises TargetAway where the server does not let in, TargetUnusable for another kind."""
        name = f"ploti sync, process {os.getpid()} on {socket.gethostname()}"[:63]
        patience = conninfo_to_dict(self.conninfo).get("connect_timeout", _CONNECT_SECONDS)
        try:
            db = psycopg.connect(
                self.conninfo, autocommit=True, prepare_threshold=None, application_name=name, connect_timeout=patience
            )
        except psycopg.Error as error:
            raise TargetAway(f"Cannot connect to PostgreSQL: {first_line(error)}") from error
        with db:
            yield self._set_up(db)

    def _set_up(self, db: psycopg.Connection) -> "Session":
        db.execute(_SETTINGS.encode())
        with suppress(errors.InvalidParameterValue):  # a server on a system that cannot tell
            db.execute("SET client_connection_check_interval = '1s'")
        if db.info.server_version < _OLDEST_SERVER:
            raise TargetUnusable(f"PostgreSQL {db.info.server_version // 10_000} is too old: use 14 or newer.")
        encoding, current, postgis = db.execute(
            "SELECT current_setting('server_encoding'), current_schema(), (SELECT quote_ident(n.nspname) "
            "FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE extname = 'postgis')"
        ).fetchall()[0]
        if encoding != "UTF8":
            raise TargetUnusable(f"The database has the encoding {encoding}: use one with UTF8.")
        schema = self.schema or current
        if schema is None:
            raise TargetUnusable("The address names no schema and there is no default one: add ?schema=NAME to it.")
        path = "quote_ident(%s) || ', ' || current_setting('search_path')"
        db.execute(f"SELECT set_config('search_path', {path}, false)", [schema])
        return Session(self, db, schema, postgis)


@dataclass
class Session:
    """A connection in autocommit; `postgis` is the quoted schema of the extension where it is there."""

    server: Server
    db: psycopg.Connection
    schema: str
    postgis: str | None

    def execute(self, sql: str, values: Sequence[Any] | None = None, /) -> psycopg.Cursor:
        """Run a statement. Without `values` a percent sign in it stands for itself."""
        return self.db.execute(sql.encode(), values)

    def rows(self, query: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a query and give its rows."""
        return self.execute(query, values).fetchall()

    def run(self, statement: str, values: Sequence[Any] | None = None) -> int:
        """Run a statement and give the number of rows that it touched."""
        return self.execute(statement, values).rowcount

    def table(self, name: str) -> str:
        """Give a table of the target's schema as an SQL name."""
        return f"{quoted(self.schema)}.{quoted(name)}"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what is done inside, or nothing of it."""
        with self.db.transaction():
            yield

    def alter(self, table: str, statement: str) -> None:
        """Change a table inside a transaction, giving way to readers in between; names who is waited for (D11.3).

        Raises StepRefused where the table does not come free in time.
        """
        until, pause, told = self.server.clock() + self.server.ddl_wait_seconds, _FIRST_PAUSE, False
        while True:
            try:
                with self.db.transaction():
                    self.run(f"SET LOCAL lock_timeout = '{_DDL_LOCK_TIMEOUT}'")
                    self.run(statement)
                    self.run(f"SET LOCAL lock_timeout = '{_ROW_LOCK_TIMEOUT}'")
                return
            except errors.LockNotAvailable as error:
                who = self._blocker(table) or _SOMEBODY
                if self.server.clock() >= until:
                    raise _in_use(who, table) from error
                if not told:
                    self.server.say(f"waiting for {who}, which uses {table}")
                    told = True
            self.server.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    @contextmanager
    def patient(self, table: str = "") -> Iterator[None]:
        """Name who kept a table, or rows of it, for longer than a statement waits.

        Raises TargetBusy where it is the books, which every dataset needs, else StepRefused.
        """
        try:
            yield
        except errors.LockNotAvailable as error:
            for books in (SYNC, DATASETS):
                if who := self._blocker(books, but=_READING):
                    raise TargetBusy(f"{who} keeps {books} locked: end it there, then run sync again.") from error
            if not table:
                raise TargetBusy(f"{_SOMEBODY} kept {SYNC} or {DATASETS} locked: run sync again.") from error
            raise _in_use(self._blocker(table, but=_READING) or _SOMEBODY, table) from error

    def _blocker(self, table: str, but: str = "") -> str | None:
        """Name a session that has a lock on a table, but for locks of one kind."""
        found = self.rows(_BLOCKERS, [self.table(table), [but]])
        if not found:
            return None
        pid, user, application = found[0]
        return f"session {pid} of {user}" + (f" ({application})" if application else "")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the session's advisory lock; raises TargetBusy naming the sync that has it."""
        until = self.server.clock() + self.server.lock_wait_seconds
        while not self.rows(f"SELECT pg_try_advisory_lock({_LOCK_KEY})", [self.schema])[0][0]:
            found = self.rows(_HOLDER, [self.schema])
            if self.server.clock() >= until:
                raise TargetBusy(
                    f"Another sync ({_named(found)}) is writing to schema {self.schema}: wait for its end."
                )
            self.server.sleep(_FIRST_PAUSE)
        try:
            yield
        finally:
            if not self.db.closed:
                self.run(f"SELECT pg_advisory_unlock({_LOCK_KEY})", [self.schema])


def _in_use(who: str, table: str) -> StepRefused:
    return StepRefused(f"{who} keeps {table} in use: sync tries again in the next run")


def _named(found: Sequence[tuple[Any, ...]]) -> str:
    if not found:
        return "unknown"
    application, user, address = found[0]
    where = f" from {address}" if address else ""
    return f"{application or 'unnamed'}, user {user}{where}"


@contextmanager
def explained(table: str = "") -> Iterator[None]:
    """Turn PostgreSQL's errors into what the loop does next (D11.3, D11.4).

    What only the user can solve blocks the dataset and is named; what concerns the server stops the run; anything else
    leaves one dataset behind.
    """
    try:
        yield
    except (errors.IntegrityError, errors.RaiseException) as error:
        if isinstance(error, errors.UniqueViolation) and f"({RECORD_ID})=" in (error.diag.message_detail or ""):
            raise StepRefused(f"a record is there more than once: {error.diag.message_detail}") from error
        raise StepBlocked(f"a rule of yours stands in the way: {_told(error)}") from error
    except (errors.DependentObjectsStillExist, errors.FeatureNotSupported) as error:
        what = f" of a change of {table}" if table else ""
        raise StepBlocked(
            f"something of yours stands in the way{what}: {_told(error)}: change or drop it, then run sync again"
        ) from error
    except psycopg.Error as error:
        raise _meant(error) from error


def _meant(error: psycopg.Error) -> SyncError:
    state = error.sqlstate or "08"
    if state.startswith((*AWAY, *_SERVER_IN_TROUBLE)):
        kind = TargetAway if state.startswith(AWAY) else TargetUnusable
        return kind(f"PostgreSQL: {first_line(error)}: see to it, then run sync again.")
    return StepRefused(f"PostgreSQL: {_told(error)}")


def _told(error: psycopg.Error) -> str:
    """Give message and detail in one line; the detail names views, constraints and keys."""
    message, detail = error.diag.message_primary or first_line(error), error.diag.message_detail
    return " ".join(f"{message} ({detail})".split()) if detail else message
