"""The first rows of a dataset, and a version as one file: CSV, GeoJSON, GeoParquet or GeoPackage."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
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

_UNDER_WAY: Final = ".ploti-export-"
"""How a file is called while it is written, with the process's number after it."""
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
    has all envelope columns, as one that sync keeps; GeoJSON has shapes); `raw` leaves text in CSV as it is that a
    spreadsheet would take for a formula (F080). Raises FixRequest for what cannot be written, and for a file that sync
    keeps.
    """
    chosen = format or _ENDINGS.get(to.suffix.lower())
    if chosen is None:
        raise FixRequest(f"Name a file that ends in {', '.join(_ENDINGS)}, or a --format.", code="invalid_input")
    _check_place(to)
    with looking(client, progress) as look:
        number = look.current(dataset) if version is None else version
        schema = client.feeds.datasets.schema(dataset, number)
        delivered = delivered_columns(schema)
        shapes = {GEOMETRY} & {*delivered} if chosen == "geojson" and columns else ()
        wanted = _chosen(delivered, (*columns, *shapes))
        if chosen == "geojson" and GEOMETRY not in wanted:
            raise FixRequest(f"{dataset} has no shapes to write as GeoJSON: use CSV or Parquet.", code="invalid_input")
        parts = look.parts(dataset, number)
        look.view("snapshot", parts)
        rows = sum(count["rows"] for count in look.records("SELECT count(*) AS rows FROM snapshot"))
        made = look.folder / "made"
        if chosen == "gpkg":
            own = [column for column in schema["columns"] if column["name"] in wanted]
            delivery = Delivery(dataset, number, {**schema, "columns": own}, rows, {}, tuple(parts))
            _write_geopackage(look, delivery, made)
        elif chosen == "parquet" and len(parts) == 1 and not columns:
            made = parts[0]
        else:
            about = {name: schema.get(name) for name in ("datasetId", "schemaVersion", "license")} | {"version": number}
            _write(look, wanted, about, made, chosen, raw=raw)
        _put(made, to)
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


def _check_place(to: Path) -> None:
    """Raise FixRequest where no file of an export may be, before anything is fetched."""
    told = None
    if not to.parent.is_dir():
        told = f"There is no folder {to.parent}: make it first."
    elif to.is_dir():
        told = f"{to} is a folder: name a file in it."
    elif to.exists() and not to.is_file():
        told = f"{to} is no file: name another one, or - for standard output."
    elif to.is_file() and _is_kept_by_sync(to):
        told = f"{to} is a database that ploti sync keeps: name another file."
    if told is not None:
        raise FixRequest(told, code="invalid_input")


def _put(made: Path, to: Path) -> None:
    """Copy a file to where it is wanted: beside it first, then in its place, with its permissions, through links.

    What an export that was killed left there goes. Raises OSError that names `to`.
    """
    place = to.resolve()
    fresh = place.with_name(f"{_UNDER_WAY}{os.getpid()}-{token_hex(4)}")
    try:
        _sweep(place.parent)
        shutil.copyfile(made, fresh)
        if place.exists():
            shutil.copymode(place, fresh)
        fresh.replace(place)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(to)) from problem
    finally:
        fresh.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove what exports of processes that are gone were writing."""
    for left in folder.glob(f"{_UNDER_WAY}*"):
        number = left.name.removeprefix(_UNDER_WAY).partition("-")[0]
        if os.name == "posix" and number.isdecimal() and not _runs(int(number)):
            left.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _write(
    look: Look, columns: Mapping[str, ColumnType], about: Mapping[str, object], to: Path, chosen: Format, *, raw: bool
) -> None:
    if chosen == "geojson":
        _write_geojson(look, columns, about, to)
        return
    options = "FORMAT csv, HEADER"
    if chosen == "parquet":
        told = ", ".join(f"{quoted(name)}: {literal(text)}" for name, text in _described(columns, about).items())
        options = f"FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{told}}}"
    values = (
        f"{_csv_value(quoted(name), type_, raw) if chosen == 'csv' else quoted(name)} AS {quoted(name)}"
        for name, type_ in columns.items()
    )
    look.db.execute(f"COPY (SELECT {', '.join(values)} FROM snapshot) TO {literal(str(to))} ({options})")


def _described(columns: Mapping[str, ColumnType], about: Mapping[str, object]) -> dict[str, str]:
    """Give what a Parquet file tells of itself, as a version's own parts do."""
    told = {"ploti:dataset_id": str(about["datasetId"]), "ploti:version": str(about["version"])}
    told["ploti:schema_version"] = str(about["schemaVersion"])
    if about["license"] is not None:
        told["ploti:license"] = json.dumps(about["license"])
    return told | ({"geo": _GEO} if GEOMETRY in columns else {})


def _write_geojson(look: Look, columns: Mapping[str, ColumnType], about: Mapping[str, object], to: Path) -> None:
    """Write a collection whose features have the record id as theirs, and every column as a property (RFC 7946)."""
    properties = ", ".join(
        f"{literal(name)}, {_geojson_value(quoted(name), type_)}" for name, type_ in columns.items() if name != GEOMETRY
    )
    members = {
        "type": "'Feature'",
        "id": quoted(RECORD_ID),
        "geometry": f"ST_AsGeoJSON(ST_GeomFromWKB({GEOMETRY}))::JSON",
        "properties": f"json_object({properties})",
    }
    selected = ", ".join(f"{value} AS {name}" for name, value in members.items())
    features = look.folder / "features"
    look.db.execute(f"COPY (SELECT {selected} FROM snapshot) TO {literal(str(features))} (FORMAT json, ARRAY true)")
    with to.open("wb") as out, features.open("rb") as body:
        out.write(f'{{"type":"FeatureCollection","ploti":{json.dumps(about)},"features":'.encode())
        shutil.copyfileobj(body, out)
        out.write(b"}\n")


def _write_geopackage(look: Look, delivery: Delivery, made: Path) -> None:
    """Write a GeoPackage as sync does, without the books of one."""
    dataset = look.client.feeds.datasets.get(delivery.dataset_id)
    target = open_target(f"sqlite:///{quote(str(made.absolute()))}")
    with target.lock():
        held = Held(delivery.dataset_id, delivery.version, delivery.schema["schemaVersion"])
        target.load(delivery, held, DatasetInfo.of(dataset))
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        for table in BOOKS:
            db.execute(f"DROP TABLE IF EXISTS {table}")
            db.execute("DELETE FROM gpkg_contents WHERE table_name = ?", (table,))
        db.execute("VACUUM")


def _csv_value(value: str, type_: ColumnType, raw: bool) -> str:
    """Give a value as text; one that a spreadsheet would run gets an apostrophe ahead, a number stays (F080)."""
    if raw or type_ not in {"string", "json"}:
        return as_text(value, type_)
    runs = f"regexp_matches({value}, {literal(f'^{FORMULA}')}) AND NOT regexp_full_match({value}, {literal(NUMBER)})"
    return f"CASE WHEN {runs} THEN '''' || {value} ELSE {value} END"


def _geojson_value(value: str, type_: ColumnType) -> str:
    return f"CAST({value} AS JSON)" if type_ == "json" else as_text(value, type_)
