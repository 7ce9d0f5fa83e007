"""Pieces of row queries: quoted names, literals, comparisons, and the row hash that engines spell in their own way.

Row queries use only what DuckDB and Spark share (stack.md, "Row queries"). `row_hash` is the one exception: an engine
that has no `hash`, or one that skips nulls like Spark's `xxhash64`, puts its own in when it translates a query.
"""

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from ploti.contract.values import STORAGE_TYPES, ColumnType


def quoted(name: str) -> str:
    """Quote a table's or column's name."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Write a text as a literal."""
    return "'" + text.replace("'", "''") + "'"


def null_of(type_: ColumnType) -> str:
    """Write a null of a column type."""
    return f"CAST(NULL AS {STORAGE_TYPES[type_].duckdb})"


def columns_of(table: str, names: Iterable[str]) -> str:
    """List columns of a table alias, separated by commas."""
    return ", ".join(f"{table}.{quoted(name)}" for name in names)


def row_hash(expressions: Sequence[str]) -> str:
    """Write a 64-bit hash of values, nulls counting, that holds inside one piece of work only; never store it."""
    return f"hash({', '.join([*expressions, '0'])})"


def all_equal(left: str, right: str, names: Sequence[str]) -> str:
    """Write that two aliases agree in all columns by `=`, as in the ON of a join on keys."""
    return " AND ".join(f"{left}.{quoted(name)} = {right}.{quoted(name)}" for name in names)


def differs(left: str, right: str, name: str) -> str:
    """Write that two aliases differ in a column, null counting as a value (D4.5)."""
    return f"{left}.{quoted(name)} IS DISTINCT FROM {right}.{quoted(name)}"


def total_order(expressions: Sequence[str]) -> str:
    """Write an ORDER BY list with nulls placed explicitly (D5.4)."""
    return ", ".join(f"{expression} ASC NULLS FIRST" for expression in expressions)


def staged_schema(columns: Mapping[str, pa.DataType]) -> pa.Schema:
    """Give the Arrow schema of a staged table from its columns' types."""
    return pa.schema([pa.field(name, type_) for name, type_ in columns.items()])
