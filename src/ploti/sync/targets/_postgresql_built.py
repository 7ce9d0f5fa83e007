"""What users built on the columns of a dataset's table in PostgreSQL, and would lose with them (D11.3)."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from psycopg import errors

from ploti.contract.files import GEOMETRY
from ploti.sync.targets._checks import cannot_follow
from ploti.sync.targets._postgresql_session import Session, first_line

_BUILT: Final = """
SELECT a.attname, pg_describe_object(d.classid, d.objid, d.objsubid), a.attrelid::regclass::text
FROM pg_attribute a JOIN pg_depend d
ON d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum
WHERE a.attrelid = %s::regclass AND a.attname = ANY (%s) AND NOT CASE d.classid
WHEN 'pg_attrdef'::regclass THEN EXISTS (SELECT FROM pg_attrdef f WHERE f.oid = d.objid AND f.adnum = a.attnum)
WHEN 'pg_constraint'::regclass THEN EXISTS (SELECT FROM pg_constraint c WHERE c.oid = d.objid AND c.contype = 'n')
WHEN 'pg_class'::regclass THEN a.attname = %s AND EXISTS (
    SELECT FROM pg_class i JOIN pg_index x ON x.indexrelid = i.oid JOIN pg_am m ON m.oid = i.relam
    WHERE i.oid = d.objid AND m.amname = 'gist' AND x.indnatts = 1 AND x.indpred IS NULL
    AND i.relname ~ '_geometry_idx[0-9]*$')
ELSE false END ORDER BY a.attname, 2
"""
"""What depends on columns, but for their defaults and `NOT NULL`, which are part of them, and the spatial index."""
_MADE_AGAIN: Final = ("index ", "constraint ", "statistics object ")
"""What PostgreSQL makes again itself where a column changes its type, if it can."""
_VIEW: Final = "rule _RETURN on "
_COLUMN: Final = ("default value for column ", "column ")


def check_built(session: Session, table: str, going: Collection[str]) -> None:
    """Raise StepBlocked for something of the user's that needs a column which goes."""
    for column, what in _built_on(session, table, going):
        raise cannot_follow(what, table, f"no column {column}")


@contextmanager
def naming_built(session: Session, table: str, retyped: Collection[str]) -> Iterator[None]:
    """Raise StepBlocked where something of the user's does not go with the new type of a column."""
    try:
        yield
    except (errors.ProgrammingError, errors.NotSupportedError) as error:
        again = isinstance(error, errors.ProgrammingError)
        built = {what for _, what in _built_on(session, table, retyped) if what.startswith(_MADE_AGAIN) == again}
        if isinstance(error, errors.InsufficientPrivilege) or not built:
            raise
        told = error.diag.message_primary or first_line(error)
        raise cannot_follow(" or ".join(sorted(built)), table, told) from error


def _built_on(session: Session, table: str, columns: Collection[str]) -> list[tuple[str, str]]:
    found = session.rows(_BUILT, [session.table(table), list(columns), GEOMETRY]) if columns else []
    return [(column, _told(what, here)) for column, what, here in found]


def _told(what: str, table: str) -> str:
    """Give PostgreSQL's words for an object without the table, which is told anyway."""
    told = what.removesuffix(f" on table {table}").removesuffix(f" of table {table}").removeprefix(_VIEW)
    for beginning in _COLUMN:
        if told.startswith(beginning):
            return f"generated column {told.removeprefix(beginning)}"
    return told
