"""One open transaction of the database: the few ways in which the records of the store use it."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Dialect,
    Executable,
    Row,
    Select,
    Table,
    Update,
    bindparam,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

_DRIVEN: Mapping[str, Dialect] = {
    "postgresql": PGDialect_psycopg(paramstyle="pyformat"),  # type: ignore[no-untyped-call]  # untyped there
    "sqlite": sqlite.dialect(paramstyle="named"),
}
"""How each database's driver takes named parameters."""
DATABASES: Final = tuple(_DRIVEN)
_INSERT = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


class Transaction:
    """Runs statements; one opened for reading refuses to change or lock anything with `RuntimeError`."""

    def __init__(self, connection: Connection, writable: bool) -> None:
        self._connection = connection
        self._writable = writable

    @property
    def database(self) -> str:
        """Name the kind of database: `sqlite` or `postgresql`."""
        return self._connection.dialect.name

    def fetch(self, query: Select[Any], **values: Any) -> Sequence[tuple[Any, ...]]:
        """Read all rows of a query that is made once, with `bindparam`s by name, as the driver gives them.

        This is how each request reads: the toolkit's own work would cost fifty times the query.
        """
        sql, constants = _driven(query, self.database)
        found: Sequence[tuple[Any, ...]] = self._driver().execute(sql, constants | values).fetchall()
        return found

    def list_of(self, texts: Collection[str]) -> Any:
        """Give texts as the parameter that `among` looks in."""
        return list(texts) if self.database == "postgresql" else msgspec.json.encode(list(texts)).decode()

    def change_each(self, statement: Update, rows: Sequence[Mapping[str, Any]]) -> int:
        """Change by each row of values as the driver takes them and tell how many changed; made once, like a query."""
        self._check_writable()
        sql, constants = _driven(statement, self.database)
        cursor = self._driver().cursor()
        cursor.executemany(sql, [{**constants, **row} for row in rows])
        changed: int = cursor.rowcount
        return changed

    def _driver(self) -> Any:
        return self._connection.connection.driver_connection

    def rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """Read all rows of a query."""
        return self._connection.execute(query).all()

    def row(self, query: Select[Any]) -> Row[Any] | None:
        """Read the first row of a query."""
        return self._connection.execute(query.limit(1)).first()

    def number(self, query: Select[Any]) -> int | None:
        """Read the only number of a query."""
        answer: int | None = self._connection.execute(query).scalar()
        return answer

    def change(self, statement: Update | Delete) -> int:
        """Change rows and tell how many."""
        rows: int = self._write(statement).rowcount
        return rows

    def changed(self, statement: Any) -> Row[Any] | None:
        """Change rows and read the first that the statement returns."""
        row: Row[Any] | None = self._write(statement).first()
        return row

    def locked(self, query: Select[Any], *, skip: bool = False) -> Sequence[Row[Any]]:
        """Read rows and lock them till the end, without hindering rows that refer to them.

        SQLite ignores the locks: its writers exclude each other.
        """
        rows: Sequence[Row[Any]] = self._write(query.with_for_update(key_share=True, skip_locked=skip)).all()
        return rows

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows."""
        if rows:
            self._write(table.insert(), list(rows))

    def insert_new(self, table: Table, row: Mapping[str, Any]) -> None:
        """Insert a row where none has its primary key."""
        self._write(self._insert(table).values(row).on_conflict_do_nothing(index_elements=list(table.primary_key)))

    def put(self, table: Table, row: Mapping[str, Any]) -> None:
        """Insert a row or replace the one with its primary key."""
        key = [column.name for column in table.primary_key]
        statement = self._insert(table).values(row)
        others = {name: statement.excluded[name] for name in row if name not in key}
        self._write(statement.on_conflict_do_update(index_elements=key, set_=others))

    def _insert(self, table: Table) -> Any:
        return _INSERT[self.database](table)

    def _write(self, statement: Executable, rows: Any = None) -> Any:
        self._check_writable()
        return self._connection.execute(statement, rows)

    def _check_writable(self) -> None:
        if not self._writable:
            raise RuntimeError("this transaction was opened for reading; open it with store.write() to change or lock")


def among(column: ColumnElement[str], name: str, database: str) -> ColumnElement[bool]:
    """Ask whether a column holds one of the texts of a parameter, however many; see `Transaction.list_of`."""
    if database == "postgresql":
        return column == func.any(bindparam(name))
    listed = func.json_each(bindparam(name)).table_valued("value")
    return column.in_(select(listed.c.value))


@lru_cache(maxsize=256)
def _driven(query: Select[Any] | Update, dialect: str) -> tuple[str, dict[str, Any]]:
    """Write a query or change as its driver takes it, with the values that never change."""
    written = query.compile(dialect=_DRIVEN[dialect])
    return str(written), {name: value for name, value in written.params.items() if value is not None}
