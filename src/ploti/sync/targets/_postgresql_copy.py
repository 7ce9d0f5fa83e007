"""Parquet parts into a PostgreSQL table: DuckDB decodes, ADBC sends them as binary COPY, a slice at a time.

Memory stays flat, whatever a part's size: a slice has rows for about 16 MiB. No pyarrow is needed. ADBC has its own
connection, so what is copied here is committed at once: only staging tables are filled this way.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import adbc_driver_manager as adbc
import adbc_driver_postgresql
import duckdb

from ploti.contract.files import RECORD_ID
from ploti.contract.values import STORAGE_TYPES
from ploti.sync.target import StepRefused, TargetAway, TargetUnusable
from ploti.sync.targets._parts import file_columns, parts_source
from ploti.sync.targets._postgresql_json import ODD, stored_json
from ploti.sync.targets._postgresql_session import AWAY, Session, first_line, literal, quoted
from ploti.sync.targets._stored import Stored

_SLICE_BYTES: Final = 16 * 1024 * 1024
_SLICE_ROWS_LEAST: Final = 1_000
_SLICE_ROWS_MOST: Final = 50_000
_JSONB_FORMAT: Final = "chr(1)"
"""The byte ahead of a text that makes it the binary form of a `jsonb`."""
_SERVER_IN_TROUBLE: Final = ("53", "58")
_ROW_NUMBER: Final = "file_row_number"


def copy_parts(
    reader: duckdb.DuckDBPyConnection,
    session: Session,
    table: str,
    columns: Sequence[Stored],
    paths: Sequence[Path],
    *,
    buckets: Collection[str] | None = None,
) -> None:
    """Send parts into a staging table; with `buckets`, only the records of those (D5.6)."""
    odd = _odd_texts(reader, columns, paths)
    values = ", ".join(f"{_value(each, odd)} AS {quoted(each.column)}" for each in columns)
    chosen = (
        "" if buckets is None else f" WHERE substr({quoted(RECORD_ID)}, 5, 2) IN ({', '.join(map(literal, buckets))})"
    )
    with _ingesting(session, table) as ingest:
        for path in paths:
            for source in _slices(reader, path):
                ingest(reader.sql(f"SELECT {values} FROM {source}{chosen}"))


def _value(column: Stored, odd: bool) -> str:
    """Give a column as Arrow must have it so that its binary form is the one of the table's type."""
    text = f"CAST({quoted(column.name)} AS {STORAGE_TYPES[column.type].duckdb})"
    if column.type != "json":
        return text
    stored = f"coalesce((SELECT _ploti_stored FROM odd WHERE _ploti_text = {text}), {text})" if odd else text
    return f"{_JSONB_FORMAT} || {stored}"


def _odd_texts(reader: duckdb.DuckDBPyConnection, columns: Sequence[Stored], paths: Sequence[Path]) -> bool:
    """Find the JSON texts that `jsonb` takes in another spelling; tells whether there is any."""
    names = [each.name for each in columns if each.type == "json"] if paths else []
    if not names:
        return False
    each = " UNION ALL ".join(f"SELECT {quoted(name)} AS text FROM {parts_source(paths)}" for name in names)
    found = reader.execute(f"SELECT DISTINCT text FROM ({each}) WHERE regexp_matches(text, {literal(ODD)})").fetchall()
    reader.execute("CREATE OR REPLACE TEMP TABLE odd (_ploti_text VARCHAR, _ploti_stored VARCHAR)")
    if found:
        reader.executemany("INSERT INTO odd VALUES (?, ?)", [[text, stored_json(text)] for (text,) in found])
    return bool(found)


def _slices(reader: duckdb.DuckDBPyConnection, path: Path) -> Iterator[str]:
    """Give the row ranges in which a part is read, each as a source of a query."""
    name = literal(str(path))
    rows, size = reader.execute(
        f"SELECT (SELECT sum(num_rows) FROM parquet_file_metadata({name})), "
        f"(SELECT sum(total_uncompressed_size) FROM parquet_metadata({name}))"
    ).fetchall()[0]
    step = max(_SLICE_ROWS_LEAST, min(_SLICE_ROWS_MOST, int(rows) * _SLICE_BYTES // max(int(size or 0), 1)))
    if rows <= step or _ROW_NUMBER in (column.casefold() for column in file_columns(reader, [path])):
        yield parts_source([path])
        return
    for start in range(0, int(rows), step):
        within = f"{_ROW_NUMBER} >= {start} AND {_ROW_NUMBER} < {start + step}"
        yield f"(SELECT * FROM read_parquet({name}, {_ROW_NUMBER} = true) WHERE {within})"


@contextmanager
def _ingesting(session: Session, table: str) -> Iterator[Any]:
    """Open a connection that appends Arrow streams to a table."""
    options = {
        "adbc.ingest.target_table": table,
        "adbc.ingest.target_db_schema": session.schema,
        "adbc.ingest.mode": "adbc.ingest.mode.append",
    }
    try:
        with (
            adbc.AdbcDatabase(driver=adbc_driver_postgresql._driver_path(), uri=session.server.conninfo) as database,
            adbc.AdbcConnection(database) as connection,
        ):
            _execute(connection, "SET client_encoding = 'UTF8'; SET statement_timeout = 0")

            def ingest(stream: duckdb.DuckDBPyRelation) -> None:
                with adbc.AdbcStatement(connection) as statement:
                    statement.set_options(**options)
                    statement.bind_stream(stream)
                    statement.execute_update()

            yield ingest
    except adbc.Error as error:
        state = error.sqlstate or ""
        if state.startswith((*AWAY, *_SERVER_IN_TROUBLE)):
            kind = TargetAway if state.startswith(AWAY) else TargetUnusable
            raise kind(f"PostgreSQL: {first_line(error)}: see to it, then run sync again.") from error
        raise StepRefused(f"PostgreSQL: {first_line(error)}") from error


def _execute(connection: Any, sql: str) -> None:
    with adbc.AdbcStatement(connection) as statement:
        statement.set_sql_query(sql)
        statement.execute_update()
