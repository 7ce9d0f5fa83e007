"""Column types, the one rule for text, and how each type is stored where data goes (D2.2, D2.5, D2.11)."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Final, Literal

ColumnType = Literal["string", "integer", "number", "boolean", "date", "timestamp", "json", "geometry"]


@dataclass(frozen=True)
class StorageTypes:
    """Names of one contract type in each place that holds it; `arrow` is the Parquet writer's type."""

    arrow: str
    duckdb: str
    postgresql: str
    sqlite: str
    spark: str


STORAGE_TYPES: Final[dict[ColumnType, StorageTypes]] = {
    "string": StorageTypes("string", "VARCHAR", "text", "TEXT", "string"),
    "integer": StorageTypes("int64", "BIGINT", "bigint", "INTEGER", "bigint"),
    "number": StorageTypes("double", "DOUBLE", "double precision", "REAL", "double"),
    "boolean": StorageTypes("bool", "BOOLEAN", "boolean", "BOOLEAN", "boolean"),
    "date": StorageTypes("date32[day]", "DATE", "date", "DATE", "date"),
    "timestamp": StorageTypes(
        "timestamp[us, tz=UTC]", "TIMESTAMP WITH TIME ZONE", "timestamp with time zone", "DATETIME", "timestamp"
    ),
    "json": StorageTypes("string", "VARCHAR", "jsonb", "TEXT", "string"),
    "geometry": StorageTypes("binary", "BLOB", "bytea", "BLOB", "binary"),
}
"""PostgreSQL holds geometry as `geometry` where PostGIS is there, else as `bytea`."""

COLUMN_TYPES: Final[tuple[ColumnType, ...]] = tuple(STORAGE_TYPES)

WHITE_SPACE: Final = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode's White_Space property: what is trimmed at both ends of a text."""

_LINE_END = re.compile("\r\n?")


def clean_text(text: str) -> str | None:
    """Give the delivered form of a text: NFC, no U+0000, trimmed, LF line ends; None where nothing is left (D2.5)."""
    cleaned = _LINE_END.sub("\n", unicodedata.normalize("NFC", text.replace("\0", ""))).strip(WHITE_SPACE)
    return cleaned or None
