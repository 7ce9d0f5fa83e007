"""The least that any program has to do to load and apply, each run in a process of its own.

`python -m bench.target_limits JOB ARGUMENTS`. What is left here has to equal what sync leaves: `compare_*` proves it.
"""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from bench.jobs import THREADS

TABLE = "ds_permits"
ID = "_ploti_record_id"
_TYPES = {
    "VARCHAR": "text",
    "BIGINT": "bigint",
    "DOUBLE": "double precision",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "BLOB": "geometry(Geometry,4326)",
}
_TEXTS = {"BLOB": "hex({0})", "TIMESTAMP WITH TIME ZONE": "make_timestamp(epoch_us({0}))"}


def parts(folder: str) -> str:
    """Give the parts in a folder as a source of a query of DuckDB's."""
    return f"read_parquet({[str(part) for part in sorted(Path(folder).glob('*.parquet'))]!r})"


# DuckDB


def duckdb_load(snapshot: str, database: str) -> None:
    """Create a table from the snapshot's parts and checkpoint."""
    import duckdb

    with duckdb.connect(database, config={"threads": str(THREADS)}) as db:
        db.execute(f"CREATE TABLE {TABLE} AS SELECT * FROM {parts(snapshot)}")
        db.execute("CHECKPOINT")


def duckdb_apply(changes: str, database: str) -> None:
    """Delete and insert the changed rows in one transaction."""
    import duckdb

    with duckdb.connect(database, config={"threads": str(THREADS)}) as db:
        columns = ", ".join(f'"{name}"' for name, *_ in db.sql(f"FROM {TABLE} LIMIT 0").description)
        db.execute("BEGIN")
        db.execute(f"CREATE TEMP TABLE changes AS FROM {parts(changes)}")
        db.execute(f"DELETE FROM {TABLE} WHERE {ID} IN (SELECT {ID} FROM changes)")
        db.execute(f"INSERT INTO {TABLE} SELECT {columns} FROM changes WHERE _ploti_op = 'upsert'")
        db.execute("COMMIT")
        db.execute("CHECKPOINT")


def duckdb_compare(followed: str, plain: str) -> None:
    """Compare the two tables."""
    with _spilling(plain) as db:
        for name, path in (("followed", followed), ("plain", plain)):
            db.execute(f"ATTACH '{path}' AS {name} (READ_ONLY)")
        _compare_in_duckdb(db, f"followed.{TABLE}", f"plain.{TABLE}")


def _compare_in_duckdb(db, followed: str, plain: str) -> None:
    """Compare two sources, shapes as bytes."""

    def rows(source: str) -> str:
        types = {name: str(type_) for name, type_, *_ in db.execute(f"DESCRIBE FROM {source}").fetchall()}
        shape = "ST_AsWKB(geometry)" if types["geometry"].startswith("GEOMETRY") else "geometry"
        own = sorted(f'"{name}"' for name in types if not name.startswith("_ploti_") and name != "geometry")
        return f"SELECT {', '.join([ID, *own])}, {shape}::BLOB AS shape FROM {source}"

    for one, other in ((followed, plain), (plain, followed)):
        (left,) = db.execute(f"SELECT count(*) FROM (({rows(one)}) EXCEPT ALL ({rows(other)}))").fetchone()
        if left:
            raise RuntimeError(f"{left} rows of {one} are not in {other}")


# a folder of Parquet


def parquet_load(snapshot: str, folder: str) -> None:
    """Write the rows, compressed as they were."""
    Path(folder).mkdir()
    with _spilling(folder) as db:
        _write(db, f"FROM {parts(snapshot)}", f"{folder}/1.parquet")


def parquet_apply(changes: str, folder: str) -> None:
    """Write the rows that stay and those that come, compressed as they were."""
    with _spilling(folder) as db:
        columns = ", ".join(f'"{name}"' for name, *_ in db.sql(f"FROM {parts(folder)} LIMIT 0").description)
        db.execute(f"CREATE TEMP TABLE changes AS FROM {parts(changes)}")
        kept = f"SELECT {columns} FROM {parts(folder)} WHERE {ID} NOT IN (SELECT {ID} FROM changes)"
        put = f"SELECT {columns} FROM changes WHERE _ploti_op = 'upsert'"
        _write(db, f"{kept} UNION ALL {put}", f"{folder}/2.parquet")
    Path(folder, "1.parquet").unlink()


def _spilling(path: str):
    import duckdb

    return duckdb.connect(config={"threads": str(THREADS), "memory_limit": "4GB", "temp_directory": f"{path}.spill"})


def _write(db, query: str, path: str) -> None:
    db.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")


def parquet_compare(followed: str, plain: str) -> None:
    """Compare the rows of the two folders."""
    with _spilling(plain) as db:
        _compare_in_duckdb(db, parts(f"{followed}/{TABLE}/current"), parts(plain))


# GeoPackage: rows that are ready in one SQLite file are copied to another in C

_INDEX = f'"rtree_{TABLE}_geometry"'


def _opened(path: str, other: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA cache_size = -65536")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("ATTACH ? AS ready", (other,))
    return db


def sqlite_load(ready: str, path: str) -> None:
    """Copy a table in C, with its index and its spatial index, whose bounds are ready."""
    with closing(_opened(path, ready)) as db:
        (statement,) = db.execute("SELECT sql FROM ready.sqlite_master WHERE name = ?", (TABLE,)).fetchone()
        db.execute("BEGIN IMMEDIATE")
        db.execute(statement)
        db.execute(f"INSERT INTO main.{TABLE} SELECT * FROM ready.{TABLE}")
        db.execute(f"CREATE UNIQUE INDEX by_id ON {TABLE} ({ID})")
        db.execute(f"CREATE VIRTUAL TABLE main.{_INDEX} USING rtree(id, minx, maxx, miny, maxy)")
        db.execute(f"INSERT INTO main.{_INDEX} SELECT id, minx, maxx, miny, maxy FROM ready.{_INDEX}")
        db.execute("COMMIT")


def sqlite_changes(before: str, after: str, path: str) -> None:
    """Make ready tables of what differs between two files, and its bounds."""
    with closing(_opened(path, before)) as db:
        db.execute("ATTACH ? AS later", (after,))
        same = f"SELECT 1 FROM ready.{TABLE} AS o WHERE o.fid = n.fid AND o._ploti_version = n._ploti_version"
        db.execute(f"CREATE TABLE put AS SELECT * FROM later.{TABLE} AS n WHERE NOT EXISTS ({same})")
        gone = f"SELECT 1 FROM later.{TABLE} AS n WHERE n.fid = o.fid"
        db.execute(f"CREATE TABLE gone AS SELECT {ID} FROM ready.{TABLE} AS o WHERE NOT EXISTS ({gone})")
        bounds = "i.id, i.minx, i.maxx, i.miny, i.maxy"
        db.execute(f"CREATE TABLE bounds AS SELECT {bounds} FROM later.{_INDEX} AS i JOIN put ON put.fid = i.id")


def sqlite_apply(ready: str, path: str) -> None:
    """Delete and replace rows in C, and their bounds, which are ready."""
    with closing(_opened(path, ready)) as db:
        db.execute("BEGIN IMMEDIATE")
        gone = f"SELECT fid FROM main.{TABLE} WHERE {ID} IN (SELECT {ID} FROM ready.gone)"
        db.execute(f"DELETE FROM main.{_INDEX} WHERE id IN ({gone})")
        db.execute(f"DELETE FROM main.{TABLE} WHERE fid IN ({gone})")
        db.execute(f"REPLACE INTO main.{TABLE} SELECT * FROM ready.put")
        db.execute(f"DELETE FROM main.{_INDEX} WHERE id IN (SELECT id FROM ready.bounds)")
        db.execute(f"INSERT INTO main.{_INDEX} SELECT * FROM ready.bounds")
        db.execute("COMMIT")


def sqlite_compare(followed: str, plain: str) -> None:
    """Compare the two tables, and their spatial indexes."""
    with closing(_opened(followed, plain)) as db:
        for left, right in (("main", "ready"), ("ready", "main")):
            for table in (TABLE, _INDEX):
                query = f"SELECT count(*) FROM (SELECT * FROM {left}.{table} EXCEPT SELECT * FROM {right}.{table})"
                if db.execute(query).fetchone() != (0,):
                    raise RuntimeError(f"rows of {table} differ")


# PostgreSQL with PostGIS: COPY of a ready text file


def postgis_text(folder: str, path: str) -> None:
    """Make the ready text file of parts."""
    import duckdb

    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'; SET enable_geoparquet_conversion = false")
        values = ", ".join(_TEXTS.get(type_, "{0}").format(f'"{name}"') for name, type_ in _columns(folder))
        db.execute(f"COPY (SELECT {values} FROM {parts(folder)}) TO '{path}' (FORMAT csv, HEADER false)")


def _columns(folder: str) -> Iterator[tuple[str, str]]:
    import duckdb

    with duckdb.connect() as db:
        db.execute("SET enable_geoparquet_conversion = false")
        for name, type_, *_ in db.execute(f"DESCRIBE FROM {parts(folder)}").fetchall():
            if type_ in _TYPES:
                yield name, type_


def postgis_columns(folder: str) -> dict[str, str]:
    """Give the columns of parts with the types that PostgreSQL has them in."""
    bytewise = {ID: ' COLLATE "C"'}
    return {name: _TYPES[type_] + bytewise.get(name, "") for name, type_ in _columns(folder)}


def postgis_ddl(folder: str) -> str:
    """Give the same for a statement."""
    return ", ".join(f'"{name}" {type_}' for name, type_ in postgis_columns(folder).items())


def postgis_finish(db, table: str) -> None:
    """Make the key and the spatial index of a filled table."""
    db.execute(f"ALTER TABLE {table} ADD PRIMARY KEY ({ID})")
    db.execute(f"CREATE INDEX ON {table} USING gist (geometry)")
    db.execute(f"ANALYZE {table}")


def postgis_merge(db, table: str, changes: str) -> None:
    """Delete and upsert what a staging table brings."""
    own = [name for (name,) in db.execute(_OWN.format(table)).fetchall()]
    names = ", ".join(f'"{name}"' for name in own)
    settings = ", ".join(f'"{name}" = excluded."{name}"' for name in own if name != ID)
    db.execute(f"ANALYZE {changes}")
    db.execute(f"DELETE FROM {table} p USING {changes} c WHERE c.{ID} = p.{ID} AND _ploti_op = 'delete'")
    db.execute(
        f"INSERT INTO {table} ({names}) SELECT {names} FROM {changes} WHERE _ploti_op = 'upsert' "
        f"ON CONFLICT ({ID}) DO UPDATE SET {settings}"
    )


_OWN = "SELECT attname FROM pg_attribute WHERE attrelid = '{0}'::regclass AND attnum > 0"


def _copy(db, table: str, path: str) -> None:
    db.execute("SET TimeZone = 'UTC'")
    with db.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy, open(path, "rb") as file:
        while block := file.read(1 << 18):
            copy.write(block)


def postgis_load(snapshot: str, text: str, url: str) -> None:
    """COPY the text, make the key and the spatial index."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE TABLE plain ({postgis_ddl(snapshot)})")
        _copy(db, "plain", text)
        postgis_finish(db, "plain")


def postgis_apply(changes: str, text: str, url: str) -> None:
    """COPY the changes to a temporary table, delete, upsert."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE TEMP TABLE changes ({postgis_ddl(changes)})")
        with db.transaction():
            _copy(db, "changes", text)
            postgis_merge(db, "plain", "changes")


def postgis_compare(url: str, plain: str = "plain") -> None:
    """Compare the two tables of a database."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        own = [f'"{name}"' for (name,) in db.execute(_OWN.format(plain)) if not name.startswith("_ploti_")]
        names = ", ".join([ID, *own])
        for one, other in ((plain, TABLE), (TABLE, plain)):
            left = f"SELECT {names} FROM {one} EXCEPT SELECT {names} FROM {other}"
            (count,) = db.execute(f"SELECT count(*) FROM ({left}) x").fetchone()
            if count:
                raise RuntimeError(f"{count} rows of {one} are not in {other}")


JOBS: dict[str, Callable[..., None]] = {
    job.__name__: job
    for job in (
        duckdb_load, duckdb_apply, duckdb_compare, parquet_load, parquet_apply, parquet_compare, sqlite_load,
        sqlite_changes, sqlite_apply, sqlite_compare, postgis_text, postgis_load, postgis_apply,
        postgis_compare,
    )
}  # fmt: skip


if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
