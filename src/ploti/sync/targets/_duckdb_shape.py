"""The shape of a dataset's table in DuckDB, and what users built on it (D11.3, D11.9)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import duckdb

from ploti.contract.files import GEOMETRY
from ploti.contract.resources import Schema
from ploti.contract.values import STORAGE_TYPES, ColumnType
from ploti.sync.target import StepBlocked, column_comment
from ploti.sync.targets._checks import cannot_follow, check_place, named, speaking_of
from ploti.sync.targets._duckdb_file import first_line, literal, quoted

_POINT: Final = "Point"
_KEY: Final = "primary key"
_UNIQUE: Final = "CREATE UNIQUE"
_EQUAL: Final = "duplicate key"
_UNFIT: Final = (duckdb.ProgrammingError, duckdb.IntegrityError, duckdb.NotSupportedError, duckdb.DataError)
"""What DuckDB raises for an index that columns or rows do not fit, not for a full disk."""


@dataclass(frozen=True)
class Shape:
    """A table as it is: its columns with DuckDB's types, in order; a user may have added some.

    `kind` is another word than `table` where something else has its name.
    """

    table: str
    columns: Mapping[str, str]
    kind: str = "table"

    def widens_to(self, wanted: Mapping[str, ColumnType], delivered: Mapping[str, ColumnType]) -> bool:
        """Tell whether adding columns is all that a new schema asks for; `delivered` are the columns sent before."""
        kept = all(self.columns.get(name, _stored(type_)) == _stored(type_) for name, type_ in wanted.items())
        return kept and delivered.keys() <= wanted.keys()


def _stored(type_: ColumnType) -> str:
    return STORAGE_TYPES[type_].duckdb


def shape_of(db: duckdb.DuckDBPyConnection, table: str) -> Shape | None:
    """Read the shape of a table, or of what has its name; None where nothing has."""
    here = "database_name = current_database() AND schema_name = current_schema()"
    rows = db.execute(
        f"SELECT column_name, data_type FROM duckdb_columns() WHERE {here} AND table_name = ? ORDER BY column_index",
        [table],
    ).fetchall()
    view = db.execute(f"SELECT 1 FROM duckdb_views() WHERE {here} AND view_name = ?", [table]).fetchall()
    return Shape(table, dict(rows), "view" if view else "table") if rows else None


def bring_shape(
    db: duckdb.DuckDBPyConnection,
    table: str,
    schema: Schema,
    shape: Shape | None,
    columns: Mapping[str, ColumnType],
    *,
    known: Schema | None,
) -> None:
    """Make the table, or add the columns that it lacks."""
    if shape is None:
        _create(db, table, _kept(schema, columns))
    else:
        for name, type_ in columns.items():
            if name not in shape.columns:
                db.execute(f"ALTER TABLE {quoted(table)} ADD COLUMN {quoted(name)} {_stored(type_)}")
    if shape is None or known is None or schema["columns"] != known["columns"]:
        _describe(db, table, schema, () if known is None else [each["name"] for each in known["columns"]])


def rebuild_shape(
    db: duckdb.DuckDBPyConnection,
    schema: Schema,
    shape: Shape,
    columns: Mapping[str, ColumnType],
    delivered: Mapping[str, ColumnType],
) -> Sequence[tuple[str, str]]:
    """Make the table anew where columns went or changed type; gives what `bring_back` is to make on it again.

    Columns that the user added stay, empty. Views follow the table by its name; raises StepBlocked for one that cannot.
    """
    table = shape.table
    views = _views_on(db, table)
    built = _built_on(db, table)
    own = {name: type_ for name, type_ in shape.columns.items() if name not in delivered and name not in columns}
    db.execute(f"DROP TABLE {quoted(table)}")
    _create(db, table, {**_kept(schema, columns), **own})
    _describe(db, table, schema, delivered)
    for view, name in views:
        with _following(named("view", name), table):
            db.execute(f"SELECT * FROM {view} LIMIT 0")
    return built


def _kept(schema: Schema, columns: Mapping[str, ColumnType]) -> dict[str, str]:
    """Give the columns of a new table: shapes beyond points are compressed whole, not searched for what repeats."""
    large = [column["name"] for column in schema["columns"] if column.get("geometryType", _POINT) != _POINT]
    return {
        name: _stored(type_) + (" USING COMPRESSION zstd" if name in large else "") for name, type_ in columns.items()
    }


def _create(db: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, str]) -> None:
    body = ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns.items())
    db.execute(f"CREATE TABLE {quoted(table)} ({body})")


def _views_on(db: duckdb.DuckDBPyConnection, table: str) -> list[tuple[str, str]]:
    """Name the user's views that speak of a table, in SQL and as they are told."""
    rows = db.execute(
        "SELECT view_name, sql, schema_name FROM duckdb_views() WHERE NOT internal "
        "AND database_name = current_database() AND view_name <> ?",
        [f"{table}_geo"],
    ).fetchall()
    chosen = speaking_of(table, [(view, sql) for view, sql, _ in rows])
    return [(f"{quoted(schema)}.{quoted(view)}", view) for view, _, schema in rows if view in chosen]


def _built_on(db: duckdb.DuckDBPyConnection, table: str) -> list[tuple[str, str]]:
    """Give the user's indexes and key on a table, each by what it is called and the statement that makes it."""
    here = "WHERE database_name = current_database() AND schema_name = current_schema() AND table_name = ?"
    indexes = db.execute(f"SELECT index_name, sql FROM duckdb_indexes() {here} AND sql <> ''", [table]).fetchall()
    key = f"SELECT constraint_text FROM duckdb_constraints() {here} AND constraint_type = 'PRIMARY KEY'"
    keys = [(_KEY, f"ALTER TABLE {quoted(table)} ADD {text}") for (text,) in db.execute(key, [table]).fetchall()]
    return [*keys, *((named("index", name), statement) for name, statement in indexes)]


def bring_back(db: duckdb.DuckDBPyConnection, table: str, built: Sequence[tuple[str, str]]) -> None:
    """Make the user's indexes again on a table that was made anew; raises StepBlocked for one that cannot be."""
    for what, statement in built:
        with _following(what, table, _UNFIT):
            db.execute(statement)


def kept_apart(db: duckdb.DuckDBPyConnection, table: str, error: duckdb.Error) -> StepBlocked | None:
    """Name what of the user's may keep rows apart where an error is about equal ones, which DuckDB does not."""
    if _EQUAL not in str(error).lower():
        return None
    unique = [what for what, made in _built_on(db, table) if made.startswith(_UNIQUE) or what == _KEY]
    told = f"your {' or '.join(unique)} stands in the way of rows of {table} ({first_line(error)})"
    return StepBlocked(f"{told}: change or drop it, then run sync again") if unique else None


@contextmanager
def _following(
    what: str, table: str, signs: type[duckdb.Error] | tuple[type[duckdb.Error], ...] = duckdb.Error
) -> Iterator[None]:
    try:
        yield
    except signs as error:
        raise cannot_follow(what, table, first_line(error)) from error


def _describe(db: duckdb.DuckDBPyConnection, table: str, schema: Schema, delivered: Collection[str]) -> None:
    """Bring comments on columns and the view that gives shapes as GEOMETRY, made before where they were delivered."""
    for column in schema["columns"]:
        told = column_comment(column)
        db.execute(f"COMMENT ON COLUMN {quoted(table)}.{quoted(column['name'])} IS {literal(told) if told else 'NULL'}")
    name, made = f"{table}_geo", GEOMETRY in delivered
    if any(column["name"] == GEOMETRY for column in schema["columns"]):
        check_place(None if made else shape_of(db, name), made=False)
        shaped = f"SELECT * REPLACE (ST_GeomFromWKB({quoted(GEOMETRY)}) AS {quoted(GEOMETRY)})"
        db.execute(f"CREATE OR REPLACE VIEW {quoted(name)} AS {shaped} FROM {quoted(table)}")
    elif made:
        db.execute(f"DROP VIEW IF EXISTS {quoted(name)}")
