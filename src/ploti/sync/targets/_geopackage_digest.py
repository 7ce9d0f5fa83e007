"""The digest of a GeoPackage's table, equal to `ploti.contract.digest` (D5.6).

SQLite makes each row's canonical text, Python hashes it: SQLite has neither sha256 nor the bits of a number.
"""

import sqlite3
from collections.abc import Iterable
from typing import Final

from ploti.contract.digest import Digest, float_bits, record_hash
from ploti.contract.files import RECORD_ID
from ploti.contract.values import ColumnType
from ploti.sync.targets._geopackage_shapes import wkb_of
from ploti.sync.targets._parts import literal, quoted
from ploti.sync.targets._stored import Stored

_MICROSECONDS: Final = "CAST(substr(rtrim(substr({0}, 21), 'Z') || '000000', 1, 6) AS INTEGER)"
_TEXT: Final[dict[ColumnType, str]] = {
    "string": "{0}",
    "json": "{0}",
    "integer": "CAST({0} AS TEXT)",
    "number": "ploti_bits({0})",
    "boolean": "CASE WHEN {0} THEN '1' WHEN NOT {0} THEN '0' END",
    "date": "CAST(CAST(strftime('%s', {0}) AS INTEGER) / 86400 AS TEXT)",
    "timestamp": f"CAST(CAST(strftime('%s', substr({{0}}, 1, 19)) AS INTEGER) * 1000000 + {_MICROSECONDS} AS TEXT)",
    "geometry": "ploti_hex({0})",
}


def digest_of(db: sqlite3.Connection, table: str, columns: Iterable[Stored]) -> Digest:
    """Compute the digest of a table over its non-volatile record columns."""
    db.create_function("ploti_bits", 1, _bits, deterministic=True)
    db.create_function("ploti_hex", 1, _hex, deterministic=True)
    own = sorted(columns, key=lambda each: each.name.encode())
    texts = "".join(f", {_TEXT[each.type].format(quoted(each.column))} AS c{at}" for at, each in enumerate(own))
    row = " || ".join(_part(each.name, at) for at, each in enumerate(own)) or "''"
    digest = Digest()
    query = f"SELECT id, {row} FROM (SELECT {quoted(RECORD_ID)} AS id{texts} FROM {quoted(table)} LIMIT -1)"
    for id_, text in db.execute(query):
        digest.add(str(id_), record_hash(str(id_), text))
    return digest


def _part(name: str, at: int) -> str:
    return f"coalesce({literal(f'{name}:')} || length(c{at}) || ':' || c{at} || ';', '')"


def _bits(number: object) -> str | None:
    """Give the bits of a number; whatever else a user wrote there differs from any."""
    if number is None:
        return None
    bits = float_bits(float(number)) if isinstance(number, int | float) else repr(number)
    return None if bits is None else str(bits)


def _hex(blob: object) -> str | None:
    if blob is None:
        return None
    return wkb_of(blob).hex() if isinstance(blob, bytes) else repr(blob)
