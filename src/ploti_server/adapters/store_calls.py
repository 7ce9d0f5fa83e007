"""Counts the calls of keys, exactly over threads and processes (D8.5).

Counters are worth a minute, so nothing waits for the disk: beside SQLite they lie in a file that the processes of one
machine share, on PostgreSQL in an unlogged table, one statement a call. A window that ends further ahead than two
windows was opened by a clock that has since been set back, and starts anew.
"""

import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, text

from ploti_server.domain.limits import WINDOW, Counted

TABLE: Final = "call_counts"
_OPEN: Final = f"{TABLE}.ends > :now AND {TABLE}.ends <= :furthest"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_WINDOW: Final = WINDOW // _MILLISECOND

_COUNTER: Final = struct.Struct("<16sqq")
"""A counter in the file: the digest of key and name, when its window ends in milliseconds, calls."""
_NUMBERS: Final = struct.Struct("<qq")
_DIGEST: Final = 16
_ROW: Final = 64 * _COUNTER.size
_ROWS: Final = 1_024


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND


def _counted(rows: Iterable[Sequence[Any]]) -> tuple[Counted, ...]:
    return tuple(Counted(name, calls, _EPOCH + ends * _MILLISECOND) for name, calls, ends in rows)


class SharedCalls:
    """Counters in a file of 2 MiB: 1,024 rows of 64, each counter in the row that its digest names.

    Whoever counts locks the file. A new counter takes the place in its row whose window ends first, so that an open one
    would be lost only where more than 64 of one row are open.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._turn = threading.Lock()
        self._opened: tuple[int, mmap.mmap] | None = None

    def count(self, key_id: str, names: Sequence[str], now: datetime) -> tuple[Counted, ...]:
        """Add a call to a key's counters and give them."""
        moment = _milliseconds(now)
        with self._turn:
            handle, counters = self._opened or self._open()
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                return _counted([(name, *_add(counters, f"{key_id}\0{name}", moment)) for name in names])
            finally:
                fcntl.flock(handle, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            if self._opened is not None:
                handle, counters = self._opened
                counters.close()
                os.close(handle)
                self._opened = None

    def _open(self) -> tuple[int, mmap.mmap]:
        handle = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            have = os.fstat(handle).st_size
            os.pwrite(handle, bytes(max(_ROW * _ROWS - have, 0)), have)  # a hole on a full disk would kill who maps it
            self._opened = handle, mmap.mmap(handle, _ROW * _ROWS)
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
        return self._opened


def _add(counters: mmap.mmap, name: str, now: int) -> tuple[int, int]:
    """Add a call to a counter; gives its calls and when its window ends."""
    digest = blake2b(name.encode(), digest_size=_DIGEST).digest()
    row = int.from_bytes(digest[:4], "little") % _ROWS * _ROW
    place = _found(counters, row, digest)
    ends, calls = _NUMBERS.unpack_from(counters, place + _DIGEST) if place >= 0 else (0, 0)
    if not _is_open(ends, now):
        ends, calls = now + _WINDOW, 0
    if place < 0:
        place = min(range(row, row + _ROW, _COUNTER.size), key=lambda at: _left(counters, at, now))
    _COUNTER.pack_into(counters, place, digest, ends, calls + 1)
    return calls + 1, ends


def _is_open(ends: int, now: int) -> bool:
    return now < ends <= now + 2 * _WINDOW


def _left(counters: mmap.mmap, place: int, now: int) -> int:
    """Give how long the window of a counter lasts yet."""
    ends: int = _COUNTER.unpack_from(counters, place)[1]
    return ends - now if _is_open(ends, now) else 0


def _found(counters: mmap.mmap, row: int, digest: bytes) -> int:
    """Find where in a row a counter is; -1 where it is not."""
    place = counters.find(digest, row, row + _ROW)
    while place >= 0 and (place - row) % _COUNTER.size:
        place = counters.find(digest, place + 1, row + _ROW)
    return place


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


def _count(names: Sequence[str]) -> str:
    rows = ", ".join(f"(:key_id, :name{n}, :ends, 1)" for n in range(len(names)))
    return (
        f"INSERT INTO {TABLE} (key_id, name, ends, calls) VALUES {rows} ON CONFLICT (key_id, name) DO UPDATE SET "
        f"calls = CASE WHEN {_OPEN} THEN {TABLE}.calls + 1 ELSE 1 END, "
        f"ends = CASE WHEN {_OPEN} THEN {TABLE}.ends ELSE excluded.ends END RETURNING name, calls, ends"
    )


def _values(key_id: str, names: Sequence[str], now: datetime) -> dict[str, Any]:
    numbers = {"now": now, "ends": now + WINDOW, "furthest": now + 2 * WINDOW}
    moments = {name: _milliseconds(moment) for name, moment in numbers.items()}
    return {"key_id": key_id} | moments | {f"name{n}": name for n, name in enumerate(names)}
