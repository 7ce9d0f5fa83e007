"""Versions as views of a DuckDB that lives as long as one look: parts are fetched to a folder that goes in the end."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from ploti._client import Client
from ploti._download import ignore_bytes
from ploti._frames import require
from ploti._resources import Parts
from ploti.contract.files import ENVELOPE
from ploti.contract.resources import Schema
from ploti.contract.values import ColumnType
from ploti.errors import BadAnswer, Reload

if TYPE_CHECKING:
    import duckdb

_MEMORY_LIMIT: Final = "1GB"
_ROWS_AT_A_TIME: Final = 1_000

Record = dict[str, Any]
"""Values by column: numbers, texts and booleans; dates and times as ISO text, shapes as WKT, JSON as its text."""


@dataclass(frozen=True)
class Look:
    """A client, a folder and a database to look with; `progress` takes the sizes of pieces that arrive."""

    client: Client
    folder: Path
    db: "duckdb.DuckDBPyConnection"
    progress: Callable[[int], object]

    def current(self, dataset: str) -> int:
        """Give a dataset's current version; raises Reload while it has none."""
        current = self.client.feeds.datasets.get(dataset)["current"]
        if current is None:
            raise Reload(f"{dataset} has no released version yet: try again later.", code="no_version")
        return current["version"]

    def parts(self, dataset: str, version: int, what: Parts = "snapshot") -> Sequence[Path]:
        """Fetch a version's parts of one kind."""
        folder = self.folder / dataset / str(version)
        versions = self.client.feeds.datasets.versions
        try:
            return versions.download_parts(dataset, version, folder, what=what, progress=self.progress)
        except OSError as problem:
            raise OSError(problem.errno, problem.strerror, str(self.folder)) from problem

    def view(self, name: str, paths: Sequence[Path]) -> None:
        """Make parts of one kind a view of this name."""
        listed = ", ".join(literal(str(path)) for path in paths)
        reading = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        self.db.execute(f"CREATE OR REPLACE VIEW {name} AS FROM {reading}")

    def records(self, query: str, values: Sequence[Any] = ()) -> Iterator[Record]:
        """Run a query and go over its rows; another query must wait until they are read."""
        found = self.db.execute(query, values)
        names = [column[0] for column in found.description or ()]
        while rows := found.fetchmany(_ROWS_AT_A_TIME):
            for row in rows:
                yield dict(zip(names, row, strict=True))


@contextmanager
def looking(client: Client, progress: Callable[[int], object] = ignore_bytes) -> Iterator[Look]:
    """Open a look.

    Raises FixRequest where DuckDB is not installed, BadAnswer for files that it cannot read, OSError for a disk that is
    full or not to be written to.
    """
    require("duckdb")
    import duckdb

    with TemporaryDirectory(prefix="ploti-") as folder:
        config: dict[str, str | bool | int | float | list[str]]
        config = {"memory_limit": _MEMORY_LIMIT, "temp_directory": folder}
        with duckdb.connect(config=config) as db:
            db.execute("SET TimeZone = 'UTC'")
            db.execute("SET enable_geoparquet_conversion = false")
            try:
                yield Look(client, Path(folder), db, progress)
            except duckdb.Error as error:
                told = str(error).partition("\n")[0]
                if isinstance(error, duckdb.IOException):
                    raise _disk_trouble(told, folder) from error
                raise BadAnswer(f"The rows cannot be read: {told}", code="bad_answer") from error


def _disk_trouble(told: str, folder: str) -> OSError:
    """Give what DuckDB tells of a disk as the system would; the folder is where it keeps what it makes."""
    number = re.search(r'"errno":"([0-9]+)"', told)
    return OSError(told) if number is None else OSError(int(number[1]), os.strerror(int(number[1])), folder)


def delivered_columns(schema: Schema) -> dict[str, ColumnType]:
    """Give the columns of a version's snapshot with their types: the envelope, then the dataset's own."""
    return {**ENVELOPE, **own_columns(schema)}


def own_columns(schema: Schema) -> dict[str, ColumnType]:
    """Give a dataset's own columns with their types."""
    return {column["name"]: column["type"] for column in schema["columns"]}


def readable(columns: Mapping[str, ColumnType], prefix: str = "") -> str:
    """Select columns as the values of a Record."""
    return ", ".join(f"{as_text(prefix + quoted(name), type_)} AS {quoted(name)}" for name, type_ in columns.items())


def as_text(value: str, type_: ColumnType) -> str:
    """Give the expression of one value of a Record."""
    match type_:
        case "geometry":
            return f"ST_AsText(ST_GeomFromWKB({value}))"
        case "date":
            return f"CAST({value} AS VARCHAR)"
        case "timestamp":
            return f"replace(CAST({value} AT TIME ZONE 'UTC' AS VARCHAR), ' ', 'T') || 'Z'"
        case _:
            return value


def quoted(name: str) -> str:
    """Give a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Give a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
