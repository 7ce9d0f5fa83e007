"""The books of a PostgreSQL target: in the target's schema, which is made where it is missing (D11.7)."""

from psycopg import errors

from ploti.sync.target import TargetUnusable
from ploti.sync.targets._books import DATASETS, SYNC, Books
from ploti.sync.targets._postgresql_session import Session, first_line, literal, quoted


def books_of(session: Session) -> Books:
    """Give the books in a session's schema."""
    return Books(
        tables="SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE n.nspname = {literal(session.schema)} AND c.relkind = 'r'",
        types={
            "key": "",
            "id": "text PRIMARY KEY",
            "text": "text",
            "whole": "bigint",
            "instant": "timestamptz",
        },
        mark="%s",
        sync=session.table(SYNC),
        datasets=session.table(DATASETS),
        place="schema",
    )


def ensure_layout(session: Session) -> Books:
    """Make schema and tables where they are missing; raises TargetUnusable where that is not allowed."""
    books = books_of(session)
    if books.laid_out(session):
        return books
    try:
        with session.transaction():
            if not session.rows("SELECT 1 FROM pg_namespace WHERE nspname = %s", [session.schema]):
                session.run(f"CREATE SCHEMA {quoted(session.schema)}")
            books.ensure_layout(session)
            for table, told in (
                (books.sync, "Which subscription this schema follows and up to which event"),
                (books.datasets, "What each table holds and since when"),
            ):
                session.run(f"COMMENT ON TABLE {table} IS {literal(f'{told}; kept by ploti sync')}")
    except errors.InsufficientPrivilege as error:
        raise TargetUnusable(
            f"PostgreSQL: {first_line(error)}: let this user make tables in schema {session.schema}, or name another "
            "schema with ?schema=NAME."
        ) from error
    return books
