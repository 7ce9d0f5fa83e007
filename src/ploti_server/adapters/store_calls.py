"""Counts the calls of keys in the database, exactly over threads and processes: one statement a call (D8.5).

Counters are worth a minute, so nothing waits for the disk: SQLite keeps them in a file of their own beside the metadata
and syncs it at checkpoints only, PostgreSQL in an unlogged table. A window that ends further ahead than two windows was
opened by a clock that has since been set back, and starts anew.
"""

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, text

from ploti_server.domain.limits import WINDOW, Counted

TABLE: Final = "call_counts"
_CREATE: Final = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (key_id TEXT NOT NULL, name TEXT NOT NULL, ends INTEGER NOT NULL, "
    "calls INTEGER NOT NULL, PRIMARY KEY (key_id, name)) WITHOUT ROWID"
)
_OPEN: Final = f"{TABLE}.ends > :now AND {TABLE}.ends <= :furthest"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def _count(names: Sequence[str]) -> str:
    rows = ", ".join(f"(:key_id, :name{n}, :ends, 1)" for n in range(len(names)))
    return (
        f"INSERT INTO {TABLE} (key_id, name, ends, calls) VALUES {rows} ON CONFLICT (key_id, name) DO UPDATE SET "
        f"calls = CASE WHEN {_OPEN} THEN {TABLE}.calls + 1 ELSE 1 END, "
        f"ends = CASE WHEN {_OPEN} THEN {TABLE}.ends ELSE excluded.ends END RETURNING name, calls, ends"
    )


def _values(key_id: str, names: Sequence[str], now: datetime) -> dict[str, Any]:
    moments = {"now": now, "ends": now + WINDOW, "furthest": now + 2 * WINDOW}
    numbers = {name: (moment - _EPOCH) // _MILLISECOND for name, moment in moments.items()}
    return {"key_id": key_id} | numbers | {f"name{n}": name for n, name in enumerate(names)}


def _counted(rows: Iterable[Sequence[Any]]) -> tuple[Counted, ...]:
    return tuple(Counted(name, calls, _EPOCH + ends * _MILLISECOND) for name, calls, ends in rows)


class SqliteCalls:
    """Counters in a SQLite file; one connection, opened at the first call, is shared by the threads of a process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._turn = threading.Lock()
        self._opened: sqlite3.Connection | None = None

    def count(self, key_id: str, names: Sequence[str], now: datetime) -> tuple[Counted, ...]:
        """Add a call to a key's counters and give them."""
        with self._turn:
            return _counted(self._connection().execute(_count(names), _values(key_id, names, now)).fetchall())

    def close(self) -> None:
        """Close the connection."""
        with self._turn:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            opened = sqlite3.connect(self._file, timeout=30, isolation_level=None, check_same_thread=False)
            for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", _CREATE):
                opened.execute(statement).close()
            self._opened = opened
        return self._opened


class PostgresCalls:
    """Counters in an unlogged table of PostgreSQL; every count is a transaction of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    def count(self, key_id: str, names: Sequence[str], now: datetime) -> tuple[Counted, ...]:
        """Add a call to a key's counters and give them."""
        with self._engine.connect() as connection:
            return _counted(tuple(row) for row in connection.execute(text(_count(names)), _values(key_id, names, now)))

    def close(self) -> None:
        """Leave the connections to the store, whose they are."""
