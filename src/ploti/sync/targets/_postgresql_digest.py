"""The digest of a PostgreSQL table, equal to `ploti.contract.digest` (D5.6).

Computed by the server, in one query; a table with JSON sends its rows' texts, as `jsonb` has no canonical text there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ploti.contract.digest import Digest, record_hash
from ploti.contract.files import RECORD_ID
from ploti.sync.targets._postgresql_json import canonical_json
from ploti.sync.targets._postgresql_session import Session, literal, quoted
from ploti.sync.targets._stored import Stored

_FINITE: Final = "{0} NOT IN ('NaN', 'Infinity', '-Infinity')"
_TEXT: Final = {
    "string": "{0}",
    "json": "{0}::text",
    "integer": "{0}::text",
    "number": f"CASE WHEN {_FINITE} THEN ('x' || encode(float8send({{0}} + 0), 'hex'))::bit(64)::bigint::text END",
    "boolean": "CASE WHEN {0} THEN '1' WHEN NOT {0} THEN '0' END",
    "date": "CASE WHEN isfinite({0}) THEN ({0} - DATE '1970-01-01')::text ELSE {0}::text END",
    "timestamp": "trunc(extract(epoch FROM {0}) * 1000000)::text",
}
_WORDS: Final = ", ".join(
    f"(sum(('x' || encode(substr(hash, {1 + 4 * at}, 4), 'hex'))::bit(32)::bigint) % 4294967296)::bigint"
    for at in range(4)
)
_BATCH_ROWS: Final = 10_000


def digest_of(session: Session, table: str, columns: Iterable[Stored]) -> Digest:
    """Compute the digest of a table over its non-volatile record columns."""
    own = sorted(columns, key=lambda each: each.name.encode())
    if any(each.type == "json" for each in own):
        return _streamed(session, table, own)
    row = " || ".join(["id", "chr(10)", *(_part(each.name, at) for at, each in enumerate(own))])
    texts = _texts(session, table, own)
    hashes = f"SELECT substr(id, 5, 2) AS bucket, sha256(convert_to({row}, 'UTF8')) AS hash FROM ({texts}) t"
    rows = session.rows(f"SELECT bucket, count(*), {_WORDS} FROM ({hashes}) h GROUP BY bucket")
    return Digest({bucket: (n, a, b, c, d) for bucket, n, a, b, c, d in rows})


def _texts(session: Session, table: str, columns: Sequence[Stored]) -> str:
    """Give the query of each row's id and canonical texts; `OFFSET 0` keeps each text from being made twice."""
    texts = "".join(f", {_text(session, each)} AS c{at}" for at, each in enumerate(columns))
    return f"SELECT {quoted(RECORD_ID)} AS id{texts} FROM {session.table(table)} OFFSET 0"


def _text(session: Session, column: Stored) -> str:
    name = quoted(column.column)
    if column.type != "geometry":
        return _TEXT[column.type].format(name)
    shape = name if column.sql == "bytea" else f"{session.postgis}.ST_AsBinary({name}, 'NDR')"
    return f"encode({shape}, 'hex')"


def _part(name: str, at: int) -> str:
    return f"coalesce({literal(f'{name}:')} || length(c{at}) || ':' || c{at} || ';', '')"


def _streamed(session: Session, table: str, columns: Sequence[Stored]) -> Digest:
    """Read the canonical texts and hash them here, a batch of rows at a time."""
    digest = Digest()
    with session.transaction(), session.db.cursor(name="ploti_digest") as cursor:
        cursor.itersize = _BATCH_ROWS
        cursor.execute(_texts(session, table, columns).encode())
        for id_, *texts in cursor:
            row = _row({each.name: _canonical(each, text) for each, text in zip(columns, texts, strict=True)})
            digest.add(id_, record_hash(id_, row))
    return digest


def _canonical(column: Stored, text: str | None) -> str | None:
    if column.type != "json" or text is None:
        return text
    try:
        return canonical_json(text)
    except (ValueError, RecursionError):  # numbers too long and lists too deep for any feed, written by a user
        return text


def _row(texts: Mapping[str, str | None]) -> str:
    return "".join(f"{name}:{len(text)}:{text};" for name, text in texts.items() if text is not None)
