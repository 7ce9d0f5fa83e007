"""The digest of a GeoPackage's table, equal to `ploti.contract.digest` (D5.6).

SQLite makes each row's canonical text, Python hashes it: SQLite has neither sha256 nor the bits of a number.
"""

import sqlite3
from collections.abc import Iterable
from typing import Final

from ploti.contract.digest import Digest, float_bits, record_hash
from ploti.contract.files import RECORD_ID
from ploti.contract.values import ColumnType
from ploti.sync.targets._geopackage_shape import bucket_of_id
from ploti.sync.targets._geopackage_shapes import wkb_of
from ploti.sync.targets._parts import joined, literal, quoted
from ploti.sync.targets._stored import Stored

_MICROSECONDS: Final = "CAST(substr(rtrim(substr({0}, 21), 'Z') || '000000', 1, 6) AS INTEGER)"
_SECONDS: Final = "substr({0}, 1, 19)"
_TEXT: Final[dict[ColumnType, str]] = {
    "string": "{0}",
    "json": "{0}",
    "integer": "CAST({0} AS TEXT)",
    "number": "ploti_bits({0})",
    "boolean": "CAST({0} AS TEXT)",
    "date": "CAST(CAST(strftime('%s', {0}) AS INTEGER) / 86400 AS TEXT)",
    "timestamp": f"CAST(CAST(strftime('%s', {_SECONDS}) AS INTEGER) * 1000000 + {_MICROSECONDS} AS TEXT)",
    "geometry": "ploti_hex({0})",
}
_A_TEXT: Final = "typeof({0}) = 'text'"
_PARTS: Final = " OR ".join(f"substr({{0}}, 20) GLOB '{end}Z'" for end in ("", "." + "[0-9]" * 3, "." + "[0-9]" * 6))
_SOUND: Final[dict[ColumnType, str]] = {
    "string": _A_TEXT,
    "json": _A_TEXT,
    "integer": "typeof({0}) = 'integer'",
    "number": "typeof({0}) = 'real'",
    "boolean": "typeof({0}) = 'integer' AND {0} IN (0, 1)",
    "date": f"{_A_TEXT} AND date({{0}}) = {{0}}",
    "timestamp": f"{_A_TEXT} AND datetime({_SECONDS}) = replace({_SECONDS}, 'T', ' ') AND ({_PARTS})",
    "geometry": "typeof({0}) = 'blob'",
}
"""What holds of a value of each type: SQLite keeps whatever a user writes into a column."""
_ODD: Final = "char(0) || quote({0})"
"""The text of any other value: no text of a feed has the sign that it begins with."""


def digest_of(db: sqlite3.Connection, table: str, columns: Iterable[Stored]) -> Digest:
    """Compute the digest of a table over its non-volatile record columns."""
    db.create_function("ploti_bits", 1, _bits, deterministic=True)
    db.create_function("ploti_hex", 1, _hex, deterministic=True)
    own = sorted(columns, key=lambda each: each.name.encode())
    texts = "".join(f", {_text(each.type, each.column)} AS c{at}" for at, each in enumerate(own))
    row = joined([_part(each.name, at) for at, each in enumerate(own)], " || ") or "''"
    digest = Digest()
    ids = f"{bucket_of_id()} AS bucket, {_text('string', RECORD_ID)} AS id"
    query = f"SELECT bucket, id, {row} FROM (SELECT {ids}{texts} FROM {quoted(table)} LIMIT -1)"
    for bucket, id_, text in db.execute(query):
        digest.add(f"rec_{bucket}", record_hash(id_, text))
    return digest


def _text(type_: ColumnType, column: str) -> str:
    """Give the canonical text of a column's value, or one that no value has."""
    parts = (_SOUND[type_], _TEXT[type_], _ODD)
    sound, text, odd = (part.format(quoted(column)) for part in parts)
    return f"CASE WHEN {sound} THEN {text} WHEN {quoted(column)} IS NOT NULL THEN {odd} END"


def _part(name: str, at: int) -> str:
    return f"coalesce({literal(f'{name}:')} || length(c{at}) || ':' || c{at} || ';', '')"


def _bits(number: float) -> str | None:
    bits = float_bits(number)
    return None if bits is None else str(bits)


def _hex(blob: bytes) -> str:
    return wkb_of(blob).hex()
