"""Parquet parts read by DuckDB, for targets of another kind: within little memory, files that are none refused."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from ploti.sync.target import StepRefused

_MEMORY_LIMIT: Final = "128MB"


@contextmanager
def reading(memory: str = _MEMORY_LIMIT, spill: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a reader of Parquet files, which may spill into a folder; files that are none are refused."""
    config: dict[str, str | bool | int | float | list[str]] = {"threads": 1, "memory_limit": memory}
    if spill is not None:
        config["temp_directory"] = str(spill)
    with duckdb.connect(config=config) as reader:
        reader.execute("SET TimeZone = 'UTC'")
        reader.execute("SET enable_geoparquet_conversion = false")
        try:
            yield reader
        except duckdb.Error as error:
            raise StepRefused(str(error).partition("\n")[0]) from error


def parts_source(paths: Iterable[Path]) -> str:
    """Give parts of one kind as a source of a query."""
    return f"read_parquet([{', '.join(literal(str(path)) for path in paths)}])"


def file_columns(reader: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> list[str]:
    """Name the columns of the parts of one kind."""
    return [row[0] for row in reader.execute(f"DESCRIBE SELECT * FROM {parts_source(paths)}").fetchall()]


def check_file_columns(reader: duckdb.DuckDBPyConnection, paths: Sequence[Path], names: Iterable[str]) -> None:
    """Refuse parts that lack a column of the schema; others, such as a bounding box, are left out."""
    missing = set(names) - set(file_columns(reader, paths)) if paths else set()
    if missing:
        raise StepRefused(f"the files lack the column {min(missing)!r} of their schema")


def quoted(name: str) -> str:
    """Give a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Give a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
