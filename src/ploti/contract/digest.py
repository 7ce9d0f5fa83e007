"""Canonical form of a value and a row, a record's hash, and the digest of a version (D5.6).

This module is the definition. Faster forms of it (Arrow, SQL) must give the same for the golden vectors in
`tests/contract/golden_digest.json`.

A row is its non-null, non-volatile record columns in byte order of name, each `name:N:text;` with N in code points. A
record's hash is sha256 of record id, newline, row. A digest has, for each bucket (first two characters of the id after
`rec_`), the number of records and four sums modulo 2^32 of the big-endian 32-bit words in bytes 0 to 15 of the hashes.
"""

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import Final

from ploti.contract.values import ColumnType

Value = str | int | float | bool | date | datetime | bytes | None
BucketSums = tuple[int, int, int, int, int]
"""Records in the bucket, then four sums modulo 2^32."""

_EPOCH_DAY: Final = date(1970, 1, 1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MODULUS: Final = 1 << 32


def float_bits(number: float) -> int | None:
    """Give a number's IEEE-754 bits as a signed 64-bit integer; -0.0 counts as 0.0, NaN and infinities as null."""
    if not math.isfinite(number):
        return None
    bits: int = struct.unpack(">q", struct.pack(">d", number + 0.0))[0]
    return bits


def canonical_value(value: Value, type_: ColumnType) -> str | None:
    """Give the canonical text of one value of a column type; None for null (D5.6)."""
    if value is None:
        return None
    match type_:
        case "integer":
            return str(int(value))  # type: ignore[arg-type]  # the column's type says what the value is
        case "number":
            bits = float_bits(float(value))  # type: ignore[arg-type]
            return None if bits is None else str(bits)
        case "boolean":
            return "1" if value else "0"
        case "date":
            assert isinstance(value, date)
            return str((value - _EPOCH_DAY).days)
        case "timestamp":
            assert isinstance(value, datetime)
            return str((value.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1))
        case "geometry":
            assert isinstance(value, bytes)
            return value.hex()
        case "string" | "json":
            return str(value)


def canonical_row(row: Mapping[str, Value], types: Mapping[str, ColumnType]) -> str:
    """Give the canonical text of a row over the columns in `types`; nulls contribute nothing (D5.6)."""
    parts = []
    for name in sorted(types, key=lambda name: name.encode()):
        text = canonical_value(row.get(name), types[name])
        if text is not None:
            parts.append(f"{name}:{len(text)}:{text};")
    return "".join(parts)


def record_hash(record_id: str, row_text: str) -> bytes:
    """Give the sha256 of a record: its id, a newline, its canonical row."""
    return sha256(f"{record_id}\n{row_text}".encode()).digest()


def bucket_of(record_id: str) -> str:
    """Give the bucket of a record id: the first two characters after `rec_`."""
    return record_id[4:6]


@dataclass
class Digest:
    """Order-independent digest of a version's records, by bucket.

    Proves equality against accident, doubled rows included; against a forger stands each file's `sha256`.
    """

    buckets: dict[str, BucketSums] = field(default_factory=dict)

    def add(self, record_id: str, hash_: bytes) -> None:
        """Count one record in."""
        self._move(bucket_of(record_id), 1, struct.unpack(">4I", hash_[:16]))

    def remove(self, record_id: str, hash_: bytes) -> None:
        """Count one record out."""
        self._move(bucket_of(record_id), -1, tuple(-word for word in struct.unpack(">4I", hash_[:16])))

    def merge(self, other: "Digest", sign: int = 1) -> None:
        """Add another digest, or with `sign=-1` take it away."""
        for bucket, (count, *sums) in other.buckets.items():
            self._move(bucket, sign * count, tuple(sign * part for part in sums))

    def _move(self, bucket: str, count: int, words: tuple[int, ...]) -> None:
        old = self.buckets.get(bucket, (0, 0, 0, 0, 0))
        sums = [(old[i + 1] + words[i]) % _MODULUS for i in range(4)]
        new = (old[0] + count, sums[0], sums[1], sums[2], sums[3])
        if any(new):
            self.buckets[bucket] = new
        else:
            self.buckets.pop(bucket, None)

    def differing(self, other: "Digest") -> list[str]:
        """Name the buckets in which two digests differ, in order."""
        names = self.buckets.keys() | other.buckets.keys()
        return sorted(name for name in names if self.buckets.get(name) != other.buckets.get(name))

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(sums[0] for sums in self.buckets.values())

    def to_wire(self) -> dict[str, list[int]]:
        """Give the form that stands in a version manifest, buckets in order."""
        return {bucket: list(self.buckets[bucket]) for bucket in sorted(self.buckets)}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Iterable[int]]) -> "Digest":
        """Read the form that stands in a version manifest."""
        return cls({bucket: tuple(sums) for bucket, sums in wire.items()})  # type: ignore[misc]  # five numbers each
