"""The first rows of a dataset, and a version as one file: CSV, GeoJSON, GeoParquet or GeoPackage."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from ploti._client import Client
from ploti._download import ignore_bytes
from ploti.contract.files import GEOMETRY, RECORD_ID
from ploti.contract.resources import Schema
from ploti.contract.values import ColumnType
from ploti.errors import FixRequest
from ploti.look.cells import FORMULA, NUMBER
from ploti.look.view import Look, Record, as_text, delivered_columns, literal, looking, quoted, readable
from ploti.sync.plan import Held
from ploti.sync.target import DatasetInfo, Delivery
from ploti.sync.targets import open_target

BOOKS: Final = ("_ploti_sync", "_ploti_datasets")
"""Tables in which a target keeps what it follows; an export follows nothing."""
_SQLITE: Final = b"SQLite format 3\x00"
_DUCKDB: Final = b"DUCK"
Format = Literal["csv", "geojson", "gpkg", "parquet"]
_ENDINGS: Final[Mapping[str, Format]] = {
    ".csv": "csv",
    ".geojson": "geojson",
    ".json": "geojson",
    ".gpkg": "gpkg",
    ".parquet": "parquet",
    ".geoparquet": "parquet",
}
_GEO: Final = json.dumps(
    {
        "version": "1.1.0",
        "primary_column": GEOMETRY,
        "columns": {GEOMETRY: {"encoding": "WKB", "geometry_types": []}},
    }
)
"""What makes Parquet GeoParquet: shapes in longitude and latitude, of any kind."""


@dataclass(frozen=True)
class FirstRows:
    """The first rows of a version, envelope included."""

    dataset_id: str
    version: int
    schema: Schema
    rows: list[Record]


@dataclass(frozen=True)
class Exported:
    """A version as a file."""

    dataset_id: str
    version: int
    path: Path
    format: Format
    rows: int


def head(
    client: Client,
    dataset: str,
    version: int | None = None,
    *,
    rows: int = 10,
    progress: Callable[[int], object] = ignore_bytes,
) -> FirstRows:
    """Read the first rows of a version, the current one unless given."""
    with looking(client, progress) as look:
        number = look.current(dataset) if version is None else version
        schema = client.feeds.datasets.schema(dataset, number)
        columns = readable(delivered_columns(schema))
        found: list[Record] = []
        versions = client.feeds.datasets.versions
        for at, part in enumerate(versions.get(dataset, number)["files"]["snapshot"]):
            path = look.folder / f"{at}.parquet"
            look.view("part", [versions.download(dataset, number, part["path"], path, progress=progress)])
            found += look.records(f"SELECT {columns} FROM part LIMIT {rows - len(found)}")
            if len(found) >= rows:
                break
        return FirstRows(dataset, number, schema, found)


def export(
    client: Client,
    dataset: str,
    to: Path,
    version: int | None = None,
    *,
    format: Format | None = None,  # noqa: A002  # called so by users
    columns: Sequence[str] = (),
    raw: bool = False,
    progress: Callable[[int], object] = ignore_bytes,
) -> Exported:
    """Write a version into one file, the current version unless given; the file appears whole or not at all.

    The format follows the file's ending unless given. `columns` leaves out all others but the record id (a GeoPackage
    has all envelope columns, as one that sync keeps); `raw` leaves
    text in CSV as it is that a spreadsheet would take for a formula (F080). Raises FixRequest for what cannot be
    written, and for a file that sync keeps.
    """
    chosen = format or _ENDINGS.get(to.suffix.lower())
    if chosen is None:
        raise FixRequest(f"Name a file that ends in {', '.join(_ENDINGS)}, or a --format.", code="invalid_input")
    if not to.parent.is_dir():
        raise FixRequest(f"There is no folder {to.parent}: make it first.", code="invalid_input")
    if to.is_file() and _is_kept_by_sync(to):
        raise FixRequest(f"{to} is a database that ploti sync keeps: name another file.", code="invalid_input")
    with looking(client, progress) as look:
        number = look.current(dataset) if version is None else version
        schema = client.feeds.datasets.schema(dataset, number)
        wanted = _chosen(delivered_columns(schema), columns)
        if chosen == "geojson" and GEOMETRY not in wanted:
            raise FixRequest(f"{dataset} has no shapes to write as GeoJSON: use CSV or Parquet.", code="invalid_input")
        parts = look.parts(dataset, number)
        look.view("snapshot", parts)
        rows = sum(count["rows"] for count in look.records("SELECT count(*) AS rows FROM snapshot"))
        with _replacing(to) as fresh:
            if chosen == "gpkg":
                own = [column for column in schema["columns"] if column["name"] in wanted]
                delivery = Delivery(dataset, number, {**schema, "columns": own}, rows, {}, tuple(parts))
                _write_geopackage(look, delivery, fresh)
            elif chosen == "parquet" and len(parts) == 1 and not columns:
                shutil.copyfile(parts[0], fresh)
            else:
                _write(look, wanted, fresh, chosen, raw)
    return Exported(dataset, number, to, chosen, rows)


def _is_kept_by_sync(file: Path) -> bool:
    """Tell whether a file is a target of sync; exports make no DuckDB files, so any of those is taken for one."""
    with file.open("rb") as opened:
        head = opened.read(16)
    if head[8:12] == _DUCKDB:
        return True
    if head != _SQLITE:
        return False
    with closing(sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro", uri=True)) as db:
        return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name IN (?, ?)", BOOKS).fetchall())


def _chosen(delivered: Mapping[str, ColumnType], columns: Sequence[str]) -> dict[str, ColumnType]:
    """Give the columns to write; raises FixRequest for one that is not there."""
    unknown = [name for name in columns if name not in delivered]
    if unknown:
        raise FixRequest(f"There is no column {unknown[0]!r}: {', '.join(delivered)}.", code="invalid_input")
    named = {RECORD_ID, *columns}
    return {name: type_ for name, type_ in delivered.items() if not columns or name in named}


@contextmanager
def _replacing(to: Path) -> Iterator[Path]:
    """Give a name beside a file; what is written there takes the file's place in the end."""
    fresh = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        yield fresh
        fresh.replace(to)
    finally:
        fresh.unlink(missing_ok=True)


def _write(look: Look, columns: Mapping[str, ColumnType], to: Path, chosen: Format, raw: bool) -> None:
    write: dict[Format, Callable[[str, ColumnType], str]] = {
        "csv": lambda value, type_: _csv_value(value, type_, raw),
        "geojson": _geojson_value,
        "parquet": lambda value, _: value,
    }
    options = {
        "csv": "FORMAT csv, HEADER",
        "geojson": "FORMAT geojson",
        "parquet": "FORMAT parquet, COMPRESSION zstd",
    }
    if GEOMETRY in columns:
        options["parquet"] += f", KV_METADATA {{geo: {literal(_GEO)}}}"
    selected = ", ".join(f"{write[chosen](quoted(name), type_)} AS {quoted(name)}" for name, type_ in columns.items())
    look.db.execute(f"COPY (SELECT {selected} FROM snapshot) TO {literal(str(to))} ({options[chosen]})")


def _write_geopackage(look: Look, delivery: Delivery, to: Path) -> None:
    """Write a GeoPackage as sync does, without the books of one."""
    made, dataset = look.folder / "made.gpkg", look.client.feeds.datasets.get(delivery.dataset_id)
    target = open_target(f"sqlite:///{quote(str(made.absolute()))}")
    with target.lock():
        held = Held(delivery.dataset_id, delivery.version, delivery.schema["schemaVersion"])
        target.load(delivery, held, DatasetInfo.of(dataset))
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        for table in BOOKS:
            db.execute(f"DROP TABLE IF EXISTS {table}")
            db.execute("DELETE FROM gpkg_contents WHERE table_name = ?", (table,))
        db.execute("VACUUM")
    shutil.copyfile(made, to)


def _csv_value(value: str, type_: ColumnType, raw: bool) -> str:
    """Give a value as text; one that a spreadsheet would run gets an apostrophe ahead, a number stays (F080)."""
    if raw or type_ not in {"string", "json"}:
        return as_text(value, type_)
    runs = f"regexp_matches({value}, {literal(f'^{FORMULA}')}) AND NOT regexp_full_match({value}, {literal(NUMBER)})"
    return f"CASE WHEN {runs} THEN '''' || {value} ELSE {value} END"


def _geojson_value(value: str, type_: ColumnType) -> str:
    match type_:
        case "geometry":
            return f"ST_GeomFromWKB({value})"
        case "json":
            return f"CAST({value} AS JSON)"
        case _:
            return as_text(value, type_)
