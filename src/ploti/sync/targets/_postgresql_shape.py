"""The shape of a dataset's table in PostgreSQL, and how it follows the schema without being dropped (D11.3)."""

from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Final

from ploti.contract.files import GEOMETRY, RECORD_ID, SRID
from ploti.contract.resources import Schema
from ploti.contract.values import STORAGE_TYPES, ColumnType
from ploti.sync.target import StepBlocked, StepRefused, column_comment
from ploti.sync.targets._postgresql_built import check_built, naming_built
from ploti.sync.targets._postgresql_session import Session, literal, quoted
from ploti.sync.targets._stored import Shape, Stored, stored_columns

_NAME_BYTES: Final = 63
_KINDS: Final = {
    "r": "table",
    "p": "table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
    "S": "sequence",
    "i": "index",
    "c": "type",
}
"""What PostgreSQL's letters for what has a table's name mean."""
_SYSTEM_COLUMNS: Final = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})


def exact(column: Stored) -> str:
    """Give a cast after which two values are equal only where the digest's texts are (D5.6)."""
    if column.type == "json":
        return "::text"
    return "::bytea" if column.sql.startswith("geometry(") else ""


def fitted(name: str, ending: str = "") -> str:
    """Give a name with an ending within 63 bytes; a cut one carries a mark of the whole."""
    if len((name + ending).encode()) <= _NAME_BYTES:
        return name + ending
    mark = "_" + sha256(name.encode()).hexdigest()[:8] + ending
    return name.encode()[: _NAME_BYTES - len(mark.encode())].decode(errors="ignore") + mark


def columns_of(session: Session, schema: Schema, shape: Shape | None = None) -> tuple[Stored, ...]:
    """Give the columns of a dataset's table; raises StepRefused for a name that is too long.

    Shapes stay `bytea` where the table has them so, made before PostGIS came.
    """
    for name in (each["name"] for each in schema["columns"]):
        if len(name.encode()) > _NAME_BYTES:
            raise StepRefused(f"column name {name!r} is longer than 63 bytes: tell the publisher of the feed")

    def sql_of(column: str, type_: ColumnType, kind: str) -> str:
        if column == RECORD_ID:
            return "text"
        kept = shape is not None and shape.columns.get(column) == "bytea"
        if type_ == "geometry" and session.postgis is not None and not kept:
            return f"geometry({kind},{SRID})"
        return STORAGE_TYPES[type_].postgresql

    return stored_columns(schema, _SYSTEM_COLUMNS, sql_of)


def shape_of(session: Session, table: str) -> Shape | None:
    """Read the shape of a table, or of what has its name; None where nothing has."""
    found = session.rows(
        "SELECT c.oid, c.relkind FROM pg_class c WHERE c.oid = to_regclass(%s)", [session.table(table)]
    )
    if not found:
        return None
    rows = session.rows(
        "SELECT a.attname, regexp_replace(format_type(a.atttypid, a.atttypmod), '^\\S+\\.(?=geometry)', '') "
        "FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        [found[0][0]],
    )
    keyed = session.rows(
        "SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "WHERE i.indrelid = %s AND a.attname = %s AND i.indisunique AND i.indisvalid AND i.indimmediate "
        "AND i.indnatts = 1 AND i.indpred IS NULL",
        [found[0][0], RECORD_ID],
    )
    return Shape(table, dict(rows), bool(keyed), _KINDS.get(found[0][1], "relation"))


def make_table(session: Session, table: str, columns: Iterable[Stored], *, logged: bool) -> None:
    """Make a table in place of one that a killed run left under the same name."""
    session.run(f"DROP TABLE IF EXISTS {session.table(table)}")
    body = ", ".join(f"{quoted(each.column)} {declared(session, each)}" for each in columns)
    kind = "TABLE" if logged else "UNLOGGED TABLE"
    session.run(f"CREATE {kind} {session.table(table)} ({body})")


def declared(session: Session, column: Stored) -> str:
    """Give a column's type for DDL; ids sort by bytes, which is what the digest's buckets and fast joins want."""
    if column.name == RECORD_ID:
        return 'text COLLATE "C" NOT NULL'
    return f"{session.postgis}.{column.sql}" if column.sql.startswith("geometry(") else column.sql


def bring_shape(session: Session, shape: Shape, wanted: Sequence[Stored], delivered: Collection[str]) -> None:
    """Add, drop and retype columns so that a table is as wanted; `delivered` are the columns sent before.

    Columns of the user's own stay. Raises StepBlocked where one of them has the name of a column that arrives, or
    something of the user's is built on a column that goes.
    """
    table = shape.table
    own = {each.column: each.sql for each in wanted}
    for column in wanted:
        if (
            column.column in shape.columns
            and column.column not in delivered
            and shape.columns[column.column] != column.sql
        ):
            raise StepBlocked(
                f"{table} has a column {column.column!r} of yours, and one of that name arrives: rename it"
            )
    going = [name for name in delivered if name in shape.columns and name not in own]
    check_built(session, table, going)
    actions = [f"DROP COLUMN {quoted(name)}" for name in going]
    retyped = []
    for column in wanted:
        type_ = declared(session, column)
        if column.column not in shape.columns:
            actions.append(f"ADD COLUMN {quoted(column.column)} {type_}")
        elif shape.columns[column.column] != column.sql:
            actions.append(f"ALTER COLUMN {quoted(column.column)} TYPE {type_} USING NULL")
            retyped.append(column.column)
    if actions:
        with naming_built(session, table, retyped):
            session.alter(table, f"ALTER TABLE {session.table(table)} {', '.join(actions)}")
    if GEOMETRY in own and own[GEOMETRY] != "bytea" and GEOMETRY not in shape.columns:
        index_shapes(session, table)


def index_shapes(session: Session, table: str, named_after: str | None = None) -> None:
    """Make the spatial index."""
    name = fitted(named_after or table, "_geometry_idx")
    taken = session.rows("SELECT to_regclass(%s)", [session.table(name)])[0][0] is not None
    session.run(f"CREATE INDEX {'' if taken else quoted(name)} ON {session.table(table)} USING gist ({GEOMETRY})")


def describe(session: Session, table: str, schema: Schema, columns: Iterable[Stored]) -> None:
    """Bring the comments on a table's columns."""
    described = {each["name"]: column_comment(each) for each in schema["columns"]}
    for column in columns:
        told = described.get(column.name)
        if told is not None:
            where = f"{session.table(table)}.{quoted(column.column)}"
            session.run(f"COMMENT ON COLUMN {where} IS {literal(told) if told else 'NULL'}")
