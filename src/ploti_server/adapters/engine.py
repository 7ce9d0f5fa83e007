"""Whole-table work on one machine: DuckDB, out of core, within a set memory and without extensions (stack.md, 1 and 2).

Each query runs on its own cursor of one in-memory database, so that an answer can be streamed while tables are made.
What a generator of batches gives and what a row query gives to keep stands in tables, which spill into the work folder
where memory runs short.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ploti_server.rows.sql import quoted

STAGED_GROUP_ROWS = 122_880
"""A row group of a DuckDB table."""
STAGED_GROUP_BYTES = 64_000_000


class DuckDBTables:
    """Named tables of one piece of work."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def add_files(self, name: str, files: Sequence[Path]) -> None:
        """Name Parquet files as a table; their columns are joined by name."""
        paths = ", ".join(text_literal(glob_escaped(str(file))) for file in files)
        self.define(name, f"SELECT * FROM read_parquet([{paths}], union_by_name = true)")

    def map_batches(self, name: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Store what a generator of batches gives as a table, taking the place of one that was begun before."""
        with self._connection.cursor() as cursor:
            _read_in(cursor, f"CREATE OR REPLACE TABLE {quoted(name)} AS SELECT * FROM staged", [], schema)
            for group in row_groups(batches):
                _read_in(cursor, f"INSERT INTO {quoted(name)} SELECT * FROM staged", group, schema)

    def keep(self, name: str, sql: str) -> None:
        """Store the answer of a row query as a table that spills into the work folder."""
        self._run(f"CREATE TABLE {quoted(name)} AS {sql}")

    def define(self, name: str, sql: str) -> None:
        """Name a row query as a table without running it."""
        self._run(f"CREATE VIEW {quoted(name)} AS {sql}")

    def drop(self, name: str) -> None:
        """Let go of a stored table that nothing reads again."""
        self._run(f"DROP TABLE {quoted(name)}")

    def query(self, sql: str, rows_per_batch: int = 20_000) -> Iterator[pa.RecordBatch]:
        """Stream the answer of a row query in batches."""
        with self._connection.cursor() as cursor:
            yield from cursor.sql(sql).to_arrow_reader(rows_per_batch)

    def one(self, sql: str) -> Mapping[str, Any]:
        """Give the only row of an answer; raises `ValueError` where there is none or more."""
        (row,) = (row for batch in self.query(sql) for row in batch.to_pylist())
        return dict(row)

    def _run(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)


class DuckDBEngine:
    """Runs row queries in DuckDB; `memory_mb` is about half of the process's budget (stack.md, "Streaming")."""

    def __init__(self, memory_mb: int, threads: int) -> None:
        self._memory_mb = memory_mb
        self._threads = threads

    @contextmanager
    def work(self, folder: Path) -> Iterator[DuckDBTables]:
        """Open a space that spills into `folder/engine` and leaves nothing there."""
        scratch = folder / "engine"
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            with duckdb.connect(":memory:", config=self._settings(scratch)) as connection:
                connection.execute("SET GLOBAL TimeZone = 'UTC'")
                connection.execute("SET GLOBAL enable_geoparquet_conversion = false")
                yield DuckDBTables(connection)
        finally:
            shutil.rmtree(scratch)

    def _settings(self, scratch: Path) -> dict[str, str | bool | int | float | list[str]]:
        return {
            "memory_limit": f"{self._memory_mb}MB",
            "threads": str(self._threads),
            "temp_directory": str(scratch / "spill"),
            "preserve_insertion_order": "false",
            "checkpoint_threshold": "1TB",  # a checkpoint would compress tables that are read once or twice
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }


def _read_in(
    cursor: duckdb.DuckDBPyConnection, statement: str, batches: list[pa.RecordBatch], schema: pa.Schema
) -> None:
    """Run a statement that reads batches once, under the name `staged`."""
    cursor.register("staged", pa.RecordBatchReader.from_batches(schema, batches))
    cursor.execute(statement)
    cursor.unregister("staged")


def row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Gather batches to about one row group, so that they are stored without a second copy and memory stays bounded."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= STAGED_GROUP_ROWS or size >= STAGED_GROUP_BYTES:
            yield held
            held, rows, size = [], 0, 0
    if held:
        yield held


def text_literal(text: str) -> str:
    """Write a text as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def glob_escaped(path: str) -> str:
    """Write a path so that DuckDB takes no character of it as a wildcard."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in path)
