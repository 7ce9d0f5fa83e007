"""The same jobs done with other tools, each run in a process of its own: `python -m bench.target_peers JOB ARGUMENTS`.

They read the same parts from disk, know no feed, and prove nothing of what they read. Each does what is fastest with it
and still leaves the same table: a key, a spatial index, shapes as geometry; what one cannot do is said beside it.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which
from urllib.parse import quote

from bench.target_limits import ID, TABLE, parts, postgis_columns, postgis_ddl, postgis_finish, postgis_merge

_NEEDS: dict[str, tuple[str, ...]] = {
    "geopandas": ("geopandas", "geoalchemy2"),
    "adbc": ("adbc-driver-postgresql", "pyarrow"),
    "dlt": ("dlt",),
    "binary_copy": ("psycopg", "pyarrow"),
    "ogr2ogr": (),
}
"""Packages of the `bench` extra by peer; ogr2ogr is Debian's `gdal-bin`."""


def absent(peer: str, job: str) -> str | None:
    """Say what keeps a peer from doing a job here; None where nothing does."""
    return _absent(peer) if job in JOBS else "it deletes no rows by key"


def _absent(peer: str) -> str | None:
    if peer == "ogr2ogr":
        return None if which("ogr2ogr") else "ogr2ogr is not there: install Debian's gdal-bin"
    for package in _NEEDS[peer]:
        try:
            version(package)
        except PackageNotFoundError:
            return f'{package} is not there: pip install "ploti[dev,bench]"'
    return None


def versions() -> dict[str, str]:
    """Give the versions of the peers that are here."""
    packages = {package for peer, needs in _NEEDS.items() if _absent(peer) is None for package in needs}
    found = {package: version(package) for package in sorted(packages)}
    if _absent("ogr2ogr") is None:
        told = subprocess.run(["ogr2ogr", "--version"], capture_output=True, text=True, check=True)
        found["ogr2ogr"] = told.stdout.strip()
    return found


def _connect(url: str):
    import psycopg

    return psycopg.connect(url, autocommit=True)


def _batches(folder: str, names: list[str]):
    import pyarrow.dataset

    return pyarrow.dataset.dataset(sorted(Path(folder).glob("*.parquet"))).scanner(columns=names).to_reader()


# PostGIS


def postgis_adbc_load(snapshot: str, url: str) -> None:
    """Arrow batches by ADBC's binary COPY into a table that is ready."""
    with _connect(url) as db:
        db.execute(f"CREATE TABLE adbc ({postgis_ddl(snapshot)})")
    _adbc_ingest(snapshot, url, "adbc")
    with _connect(url) as db:
        postgis_finish(db, "adbc")


def postgis_adbc_apply(changes: str, url: str) -> None:
    """The same into a staging table, then a delete and an upsert."""
    with _merging(changes, url, "adbc") as staging:
        _adbc_ingest(changes, url, staging)


@contextmanager
def _merging(changes: str, url: str, table: str) -> Iterator[str]:
    """Give a staging table to fill, which is merged into a peer's table then."""
    staging = f"{table}_changes"
    with _connect(url) as db:
        db.execute(f"CREATE UNLOGGED TABLE {staging} ({postgis_ddl(changes)})")
        yield staging
        with db.transaction():
            postgis_merge(db, table, staging)
        db.execute(f"DROP TABLE {staging}")


def _adbc_ingest(folder: str, url: str, table: str) -> None:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as db, db.cursor() as cursor:
        cursor.adbc_ingest(table, _batches(folder, list(postgis_columns(folder))), mode="append")
        db.commit()


def postgis_binary_copy_load(snapshot: str, url: str) -> None:
    """psycopg's binary COPY, row by row."""
    with _connect(url) as db:
        db.execute(f"CREATE TABLE binary_copy ({postgis_ddl(snapshot)})")
        _binary_copy(db, snapshot, "binary_copy")
        postgis_finish(db, "binary_copy")


def postgis_binary_copy_apply(changes: str, url: str) -> None:
    """The same into a temporary table, then a delete and an upsert."""
    with _connect(url) as db:
        db.execute(f"CREATE TEMP TABLE changes ({postgis_ddl(changes)})")
        with db.transaction():
            _binary_copy(db, changes, "changes")
            postgis_merge(db, "binary_copy", "changes")


def _binary_copy(db, folder: str, table: str) -> None:
    columns = postgis_columns(folder)
    types = [type_.partition(" COLLATE")[0] for type_ in columns.values()]
    with db.cursor().copy(f"COPY {table} FROM STDIN (FORMAT binary)") as copy:
        # PostGIS reads its binary form from what is sent as bytes
        copy.set_types(["bytea" if type_.startswith("geometry") else type_ for type_ in types])
        for batch in _batches(folder, list(columns)):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                copy.write_row(row)


def _frame(folder: str):
    import geopandas
    import pandas
    import pyarrow

    whole = {"types_mapper": {pyarrow.int64(): pandas.Int64Dtype()}.get}  # else a null makes numbers of integers
    paths = sorted(Path(folder).glob("*.parquet"))
    read = [geopandas.read_parquet(part, to_pandas_kwargs=whole) for part in paths]
    frame = geopandas.GeoDataFrame(pandas.concat(read, ignore_index=True), geometry="geometry")
    return frame[list(postgis_columns(folder))].set_crs(4326, allow_override=True)


def _to_postgis(frame, url: str, table: str) -> None:
    from sqlalchemy import create_engine

    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    frame.to_postgis(table, engine, if_exists="append", index=False)


def postgis_geopandas_load(snapshot: str, url: str) -> None:
    """`to_postgis` into a table that is ready."""
    with _connect(url) as db:
        db.execute(f"CREATE TABLE geopandas ({postgis_ddl(snapshot)})")
        _to_postgis(_frame(snapshot), url, "geopandas")
        postgis_finish(db, "geopandas")


def postgis_geopandas_apply(changes: str, url: str) -> None:
    """The same into a staging table, then a delete and an upsert."""
    frame = _frame(changes)
    with _merging(changes, url, "geopandas") as staging:
        _to_postgis(frame, url, staging)


def postgis_ogr2ogr_load(ready: str, url: str) -> None:
    """ogr2ogr from a ready GeoPackage."""
    options = ["-lco", "GEOMETRY_NAME=geometry", "-lco", "FID=fid", "-lco", "SPATIAL_INDEX=NONE"]
    subprocess.run(
        ["ogr2ogr", "-f", "PostgreSQL", f"PG:{url}", ready, TABLE, "-nln", "ogr2ogr", *options],
        check=True,
        env=os.environ | {"PG_USE_COPY": "YES"},
    )
    with _connect(url) as db:
        db.execute("ALTER TABLE ogr2ogr DROP CONSTRAINT ogr2ogr_pkey")
        postgis_finish(db, "ogr2ogr")


def postgis_dlt_load(snapshot: str, url: str) -> None:
    """dlt, which makes no geometry of shapes and no index on them."""
    _dlt("postgres", url, snapshot, "replace")


def postgis_dlt_apply(changes: str, url: str) -> None:
    """dlt's merge by delete and insert."""
    _dlt("postgres", url, changes, "merge")


# DuckDB


def duckdb_dlt_load(snapshot: str, database: str) -> None:
    """dlt."""
    _dlt("duckdb", database, snapshot, "replace")


def duckdb_dlt_apply(changes: str, database: str) -> None:
    """dlt's merge by delete and insert."""
    _dlt("duckdb", database, changes, "merge")


def _dlt(kind: str, place: str, folder: str, disposition: str) -> None:
    os.environ |= {"RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR"}
    import dlt

    def rows() -> Iterator[object]:
        import duckdb

        with duckdb.connect() as db:
            db.execute("SET enable_geoparquet_conversion = false")
            own = [
                f'"{name}"'
                for name in postgis_columns(folder)
                if name not in ("_ploti_op", "_ploti_change", "geometry")
            ]
            gone = ", _ploti_op = 'delete' AS gone" if disposition == "merge" else ""
            shape = "hex(geometry) AS geometry" if kind == "postgres" else "geometry"
            query = f"SELECT {', '.join(own)}, {shape}{gone} FROM {parts(folder)}"
            yield from db.sql(query).to_arrow_reader(50_000)

    folder_of_server = place.partition("?host=")[2]
    if kind == "postgres":  # dlt wants a host and a password, and takes no address without
        place = place.partition("?")[0].replace("postgres@", f"postgres:none@{quote(folder_of_server, safe='')}")
    destination = getattr(dlt.destinations, kind)(place)
    own = folder_of_server or Path(place).parent
    pipeline = dlt.pipeline("bench", destination=destination, dataset_name="dlt", pipelines_dir=f"{own}/dlt")
    hints = {"columns": {"gone": {"data_type": "bool", "hard_delete": True}}} if disposition == "merge" else {}
    resource = dlt.resource(rows, name="permits", write_disposition=disposition, primary_key=ID, **hints)
    pipeline.run(resource, loader_file_format="csv" if kind == "postgres" else "parquet").raise_on_failed_jobs()


# GeoPackage


def sqlite_ogr2ogr_load(ready: str, path: str) -> None:
    """ogr2ogr from a ready GeoPackage; it makes no unique index."""
    subprocess.run(["ogr2ogr", "-f", "GPKG", path, ready, TABLE], check=True)


def sqlite_geopandas_load(snapshot: str, path: str) -> None:
    """`to_file`, which writes by GDAL from Arrow; it makes no unique index."""
    _frame(snapshot).to_file(path, layer=TABLE, driver="GPKG", use_arrow=True)


JOBS: dict[str, Callable[..., None]] = {
    job.__name__: job
    for job in (
        postgis_adbc_load, postgis_adbc_apply, postgis_binary_copy_load, postgis_binary_copy_apply,
        postgis_geopandas_load, postgis_geopandas_apply, postgis_ogr2ogr_load, postgis_dlt_load, postgis_dlt_apply,
        duckdb_dlt_load, duckdb_dlt_apply, sqlite_ogr2ogr_load, sqlite_geopandas_load,
    )
}  # fmt: skip


if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
