"""What makes a SQLite file a GeoPackage, and a dataset's table one that its readers know (GeoPackage 1.4)."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from ploti.contract.files import GEOMETRY, SRID
from ploti.contract.resources import Schema
from ploti.sync.target import DatasetInfo, TargetUnusable, column_comment
from ploti.sync.targets._geopackage_file import rows_of
from ploti.sync.targets._parts import quoted

_APPLICATION: Final = 0x47504B47
_OLDER_APPLICATIONS: Final = (0x47503130, 0x47503131)
_USER_VERSION: Final = 10400
_RTREE_DEFINITION: Final = "http://www.geopackage.org/spec140/#extension_rtree"
_SCHEMA_DEFINITION: Final = "http://www.geopackage.org/spec140/#extension_schema"
_WGS84: Final = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563,AUTHORITY["EPSG","7030"]],'
    'AUTHORITY["EPSG","6326"]],PRIMEM["Greenwich",0,AUTHORITY["EPSG","8901"]],'
    'UNIT["degree",0.0174532925199433,AUTHORITY["EPSG","9122"]],AUTHORITY["EPSG","4326"]]'
)
_SYSTEMS: Final = (
    ("Undefined Cartesian", -1, "NONE", -1, "undefined", None),
    ("Undefined geographic", 0, "NONE", 0, "undefined", None),
    ("WGS 84 geodetic", SRID, "EPSG", SRID, _WGS84, "longitude and latitude on the WGS 84 spheroid"),
)
_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS gpkg_spatial_ref_sys (
        srs_name TEXT NOT NULL, srs_id INTEGER PRIMARY KEY, organization TEXT NOT NULL,
        organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL, description TEXT)""",
    """CREATE TABLE IF NOT EXISTS gpkg_contents (
        table_name TEXT NOT NULL PRIMARY KEY, data_type TEXT NOT NULL, identifier TEXT UNIQUE,
        description TEXT DEFAULT '', last_change DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')),
        min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER,
        CONSTRAINT fk_gc_r_srs_id FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys(srs_id))""",
    """CREATE TABLE IF NOT EXISTS gpkg_geometry_columns (
        table_name TEXT NOT NULL, column_name TEXT NOT NULL, geometry_type_name TEXT NOT NULL, srs_id INTEGER NOT NULL,
        z TINYINT NOT NULL, m TINYINT NOT NULL,
        CONSTRAINT pk_geom_cols PRIMARY KEY (table_name, column_name),
        CONSTRAINT uk_gc_table_name UNIQUE (table_name),
        CONSTRAINT fk_gc_tn FOREIGN KEY (table_name) REFERENCES gpkg_contents(table_name),
        CONSTRAINT fk_gc_srs FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys (srs_id))""",
    """CREATE TABLE IF NOT EXISTS gpkg_extensions (
        table_name TEXT, column_name TEXT, extension_name TEXT NOT NULL, definition TEXT NOT NULL, scope TEXT NOT NULL,
        CONSTRAINT ge_tce UNIQUE (table_name, column_name, extension_name))""",
    """CREATE TABLE IF NOT EXISTS gpkg_data_columns (
        table_name TEXT NOT NULL, column_name TEXT NOT NULL, name TEXT, title TEXT, description TEXT, mime_type TEXT,
        constraint_name TEXT, CONSTRAINT pk_gdc PRIMARY KEY (table_name, column_name))""",
    """CREATE TABLE IF NOT EXISTS gpkg_data_column_constraints (
        constraint_name TEXT NOT NULL, constraint_type TEXT NOT NULL, value TEXT, min NUMERIC, min_is_inclusive BOOLEAN,
        max NUMERIC, max_is_inclusive BOOLEAN, description TEXT,
        CONSTRAINT gdcc_ntv UNIQUE (constraint_name, constraint_type, value))""",
)


def make_geopackage(db: sqlite3.Connection) -> None:
    """Make a SQLite file a GeoPackage where it is none yet; raises TargetUnusable for another program's file."""
    ((application,),) = rows_of(db, "PRAGMA application_id")
    if application not in (0, _APPLICATION, *_OLDER_APPLICATIONS):
        raise TargetUnusable("This SQLite file belongs to another program: use a new file.")
    if application == 0:
        db.execute(f"PRAGMA application_id = {_APPLICATION}")
        db.execute(f"PRAGMA user_version = {_USER_VERSION}")
    for table in _TABLES:
        db.execute(table)
    db.executemany("INSERT OR IGNORE INTO gpkg_spatial_ref_sys VALUES (?, ?, ?, ?, ?, ?)", _SYSTEMS)
    for table in ("gpkg_data_columns", "gpkg_data_column_constraints"):
        _extend(db, table, None, "gpkg_schema", _SCHEMA_DEFINITION, "read-write")


def _extend(db: sqlite3.Connection, table: str, column: str | None, *extension: str) -> None:
    """Note an extension, by name, definition and scope, that a table uses, once."""
    known = "SELECT 1 FROM gpkg_extensions WHERE table_name = ? AND column_name IS ? AND extension_name = ?"
    if not rows_of(db, known, (table, column, extension[0])):
        db.execute("INSERT INTO gpkg_extensions VALUES (?, ?, ?, ?, ?)", (table, column, *extension))


def list_table(db: sqlite3.Connection, table: str, shapes: str | None, now: datetime) -> None:
    """List a table among the file's contents; `shapes` is the kind of its shapes, None where it has none."""
    kind, system = ("features", SRID) if shapes is not None else ("attributes", None)
    db.execute(
        "INSERT INTO gpkg_contents (table_name, data_type, identifier, last_change, srs_id) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (table_name) DO UPDATE SET data_type = excluded.data_type, last_change = excluded.last_change, "
        "srs_id = excluded.srs_id",
        (table, kind, table, instant(now), system),
    )
    db.execute("DELETE FROM gpkg_geometry_columns WHERE table_name = ?", (table,))
    if shapes is not None:
        db.execute("INSERT INTO gpkg_geometry_columns VALUES (?, ?, ?, ?, 0, 0)", (table, GEOMETRY, shapes, SRID))


def tell(db: sqlite3.Connection, table: str, info: DatasetInfo) -> None:
    """Give a table its title among the file's contents, where QGIS shows it."""
    terms = info.license_attribution or info.license_id
    told = ". ".join(part for part in (info.title, info.publisher, terms) if part)
    db.execute("UPDATE gpkg_contents SET description = ? WHERE table_name = ?", (told, table))


def tell_like(db: sqlite3.Connection, table: str, other: str) -> None:
    """Give a table the title of another."""
    title = "(SELECT description FROM gpkg_contents WHERE table_name = ?)"
    db.execute(f"UPDATE gpkg_contents SET description = {title} WHERE table_name = ?", (other, table))


def describe(db: sqlite3.Connection, table: str, schema: Schema, stored: Sequence[tuple[str, str]]) -> None:
    """Bring the descriptions of a table's columns; `stored` gives the feed's name and the table's of each."""
    by_name = dict(stored)
    db.execute("DELETE FROM gpkg_data_columns WHERE table_name = ?", (table,))
    for column in schema["columns"]:
        told = column_comment(column)
        kind = "application/json" if column["type"] == "json" else None
        if told or kind:
            db.execute(
                "INSERT INTO gpkg_data_columns (table_name, column_name, name, description, mime_type) "
                "VALUES (?, ?, ?, ?, ?)",
                (table, by_name[column["name"]], column["name"], told or None, kind),
            )


def set_extent(db: sqlite3.Connection, table: str) -> None:
    """Give a table's extent by its spatial index."""
    query = f"SELECT min(minx), min(miny), max(maxx), max(maxy) FROM {quoted(index_of(table))}"
    db.execute(f"UPDATE gpkg_contents SET (min_x, min_y, max_x, max_y) = ({query}) WHERE table_name = ?", (table,))


def widen_extent(db: sqlite3.Connection, table: str, source: str) -> None:
    """Widen a table's extent by the shapes of another table."""
    shape = quoted(GEOMETRY)
    lowest, highest = (f"{{0}}(ST_{edge}X({shape})), {{0}}(ST_{edge}Y({shape}))" for edge in ("Min", "Max"))
    query = f"SELECT {lowest.format('min')}, {highest.format('max')} FROM {source}"
    edges = zip(("min_x", "min_y", "max_x", "max_y"), rows_of(db, query)[0], strict=True)
    for edge, value in edges:
        pick = edge.partition("_")[0]
        wider = f"{pick}(coalesce({edge}, ?1), ?1)"
        db.execute(
            f"UPDATE gpkg_contents SET {edge} = {wider} WHERE table_name = ?2 AND ?1 IS NOT NULL", (value, table)
        )


def note_change(db: sqlite3.Connection, table: str, now: datetime) -> None:
    """Say when a table changed."""
    db.execute("UPDATE gpkg_contents SET last_change = ? WHERE table_name = ?", (instant(now), table))


def instant(now: datetime) -> str:
    """Give a UTC time as GeoPackage writes it."""
    return now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"


# the spatial index


def index_of(table: str) -> str:
    """Name the spatial index of a table."""
    return f"rtree_{table}_{GEOMETRY}"


def has_index(db: sqlite3.Connection, table: str) -> bool:
    """Tell whether a table has its spatial index and every trigger that keeps it."""
    names = [index_of(table), *(f"{index_of(table)}_{name}" for name, _, _ in _triggers("", "", ""))]
    marks = ", ".join("?" * len(names))
    return rows_of(db, f"SELECT count(*) FROM sqlite_master WHERE name IN ({marks})", names) == [(len(names),)]


def drop_index(db: sqlite3.Connection, table: str) -> None:
    """Drop a table's spatial index and the triggers that keep it."""
    for name, _, _ in _triggers("", "", ""):
        db.execute(f"DROP TRIGGER IF EXISTS {quoted(f'{index_of(table)}_{name}')}")
    db.execute(f"DROP TABLE IF EXISTS {quoted(index_of(table))}")
    db.execute("DELETE FROM gpkg_extensions WHERE table_name = ? AND extension_name = 'gpkg_rtree_index'", (table,))


def make_index(db: sqlite3.Connection, table: str, key: str) -> None:
    """Make a table's spatial index from its rows, and the triggers that keep it."""
    index, shape = quoted(index_of(table)), quoted(GEOMETRY)
    db.execute(f"CREATE VIRTUAL TABLE {index} USING rtree(id, minx, maxx, miny, maxy)")
    bounds = ", ".join(f"ST_{edge}({shape})" for edge in ("MinX", "MaxX", "MinY", "MaxY"))
    db.execute(f"INSERT INTO {index} SELECT {key}, {bounds} FROM {quoted(table)} WHERE NOT ST_IsEmpty({shape})")
    for name, when, action in _triggers(index, shape, key):
        db.execute(
            f"CREATE TRIGGER {quoted(f'{index_of(table)}_{name}')} AFTER {when.format(table=quoted(table))} "
            f"BEGIN {action}; END"
        )
    _extend(db, table, GEOMETRY, "gpkg_rtree_index", _RTREE_DEFINITION, "write-only")


def _triggers(index: str, shape: str, key: str) -> list[tuple[str, str, str]]:
    """Give name, moment and action of each trigger that the GeoPackage standard asks for (annex F.3)."""
    edges = ("MinX", "MaxX", "MinY", "MaxY")
    values = ", ".join(f"ST_{edge}(NEW.{shape})" for edge in edges)
    settings = ", ".join(f"{edge.lower()} = ST_{edge}(NEW.{shape})" for edge in edges)
    there, gone = (
        f"(NEW.{shape} NOT NULL AND NOT ST_IsEmpty(NEW.{shape}))",
        (f"(NEW.{shape} ISNULL OR ST_IsEmpty(NEW.{shape}))"),
    )
    was, was_not = there.replace("NEW.", "OLD."), gone.replace("NEW.", "OLD.")
    put = f"INSERT OR REPLACE INTO {index} VALUES (NEW.{key}, {values})"
    of_shape = f"UPDATE OF {shape} ON {{table}} WHEN OLD.{key} = NEW.{key} AND"
    moved = f"UPDATE ON {{table}} WHEN OLD.{key} != NEW.{key} AND"
    drop = f"DELETE FROM {index} WHERE id = OLD.{key}"
    return [
        ("insert", f"INSERT ON {{table}} WHEN {there}", put),
        ("update6", f"{of_shape} {there} AND {was}", f"UPDATE {index} SET {settings} WHERE id = NEW.{key}"),
        ("update7", f"{of_shape} {there} AND {was_not}", f"INSERT INTO {index} VALUES (NEW.{key}, {values})"),
        ("update2", f"{of_shape} {gone}", drop),
        ("update4", f"{moved} {gone}", f"DELETE FROM {index} WHERE id IN (OLD.{key}, NEW.{key})"),
        ("update5", f"{moved} {there}", f"{drop}; {put}"),
        ("delete", f"DELETE ON {{table}} WHEN OLD.{shape} NOT NULL", drop),
    ]
