"""The digest of a table as one DuckDB query, equal to `ploti.contract.digest` (D5.6)."""

from collections.abc import Iterable, Mapping
from typing import Final

import duckdb

from ploti.contract.digest import Digest
from ploti.contract.files import RECORD_ID
from ploti.contract.values import ColumnType
from ploti.sync.target import Delivery
from ploti.sync.targets._duckdb_file import literal, quoted
from ploti.sync.targets._parts import joined, parts_source, reading

_TEXT: Final[dict[ColumnType, str]] = {
    "string": "{}",
    "json": "{}",
    "integer": "{}::VARCHAR",
    "number": "CASE WHEN isfinite({0}) THEN ({0} + 0.0)::BIT::BIGINT::VARCHAR END",
    "boolean": "CASE WHEN {0} THEN '1' WHEN NOT {0} THEN '0' END",
    "date": "({} - DATE '1970-01-01')::VARCHAR",
    "timestamp": "CASE WHEN isfinite({0}) THEN epoch_us({0})::VARCHAR ELSE {0}::VARCHAR END",
    "geometry": "lower(hex({}))",
}
_WORDS: Final = ", ".join(f"sum(('0x' || substr(hash, {1 + 8 * at}, 8))::UBIGINT) % 4294967296" for at in range(4))


def digest_query(table: str, types: Mapping[str, ColumnType]) -> str:
    """Give the query of a table's buckets: name, records, four sums; `types` are its non-volatile record columns."""
    names = sorted(types, key=lambda name: name.encode())
    texts = [_TEXT[types[name]].format(quoted(name)) for name in names]
    made = "".join(f", {text} AS c{at}" for at, text in enumerate(texts))
    parts = [
        f"coalesce({literal(f'{name}:')} || length(c{at}) || ':' || c{at} || ';', '')" for at, name in enumerate(names)
    ]
    row = joined(["id || chr(10)", *parts], " || ")
    texts_of = f"SELECT coalesce({quoted(RECORD_ID)}, '') AS id{made} FROM {quoted(table)}"
    hashes = f"SELECT substr(id, 5, 2) AS bucket, sha256({row}) AS hash FROM ({texts_of})"
    return f"SELECT bucket, count(*), {_WORDS} FROM ({hashes}) GROUP BY bucket"


def digest_of(db: duckdb.DuckDBPyConnection, table: str, types: Mapping[str, ColumnType]) -> Digest:
    """Compute the digest of a table."""
    rows = db.execute(digest_query(table, types)).fetchall()
    return Digest({bucket: (int(n), int(a), int(b), int(c), int(d)) for bucket, n, a, b, c, d in rows})


def digest_of_parts(delivery: Delivery, volatile: Iterable[str]) -> Digest:
    """Compute the digest of a snapshot's own columns without volatile ones."""
    left_out = set(volatile)
    types = {each["name"]: each["type"] for each in delivery.schema["columns"] if each["name"] not in left_out}
    if not delivery.snapshot:
        return Digest()
    with reading(delivery.snapshot) as reader:
        reader.execute(f"CREATE TEMP VIEW snapshot AS SELECT * FROM {parts_source(delivery.snapshot)}")
        return digest_of(reader, "snapshot", types)
