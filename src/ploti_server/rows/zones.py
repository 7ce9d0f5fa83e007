"""Local times to UTC by the dataset's time zone (D2.6).

A time that a clock shows twice is the first of the two. A time that a clock skips is read as if it had not yet moved
on, so 02:30 in a gap of an hour is 03:30. Offsets come from `zoneinfo`, the same on every machine with one tzdata.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ploti_server.rows.raw import Array

UTC_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)

Microseconds = npt.NDArray[np.int64]


def to_utc(local: Array, zone: str) -> Array:
    """Turn times without a zone (timestamp in microseconds) into UTC."""
    if zone == "UTC" or local.null_count == len(local):
        same: Array = local.cast(pa.int64()).cast(UTC_TIMESTAMP)
        return same
    shown = np.asarray(local.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    moved = shown - _offsets(shown, zone)
    missing = np.asarray(local.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)
    utc: Array = pa.array(moved, mask=missing).cast(UTC_TIMESTAMP)
    return utc


def _offsets(shown: Microseconds, zone: str) -> Microseconds:
    """Give the offset of each shown time; by day where the day has only one."""
    days, index = np.unique(shown // _DAY, return_inverse=True)
    by_day = [_day_offset(int(day), zone) for day in days]
    offsets = np.array([0 if offset is None else offset for offset in by_day], dtype=np.int64)[index]
    for place in np.flatnonzero(np.array([offset is None for offset in by_day])[index]):
        offsets[place] = _offset(int(shown[place]), zone)
    return offsets


@lru_cache(maxsize=100_000)
def _day_offset(day: int, zone: str) -> int | None:
    """Give the one offset of a day, None where the clock moves in it."""
    first, last = _offset(day * _DAY, zone), _offset((day + 1) * _DAY - 1, zone)
    return first if first == last else None


def _offset(shown: int, zone: str) -> int:
    local = (_EPOCH + shown * _MICROSECOND).replace(tzinfo=ZoneInfo(zone))
    return (local.utcoffset() or timedelta()) // _MICROSECOND
