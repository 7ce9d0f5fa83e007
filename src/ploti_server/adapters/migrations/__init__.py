"""The layout of the store's tables through time. One file in `versions/` takes the tables from one layout to the next.

To add one: change `store_tables.py`, run `alembic revision --autogenerate` with a `Config` from `configuration()`,
name the file after its number and set `HEAD`; a test compares tables and migrations on both databases.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0006"
"""The layout that this program reads and writes."""

KNOWN = ("0001", "0002", "0003", "0004", "0005", "0006")
"""All layouts that this program can start from."""

_LOCK = 7_081_004_773
"""Any number: PostgreSQL's advisory lock under which tables are migrated."""


class UnknownLayout(Exception):
    """The tables are of a program newer than this one."""


def is_current(connection: Connection) -> bool:
    """Tell whether the tables are at `HEAD`."""
    return _layout(connection) == HEAD


def upgrade(connection: Connection) -> None:
    """Bring the tables to `HEAD` inside the connection's transaction; raises `UnknownLayout`."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    found = _layout(connection)
    if found == HEAD:
        return
    if found is not None and found not in KNOWN:
        raise UnknownLayout(
            f"the database has layout {found}, this program knows layouts up to {HEAD}; "
            "install the newer ploti that made it, or point PLOTI_SERVER_DATABASE_URL at another database"
        )
    _run(connection)


def _layout(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    layout: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return layout


def configuration(connection: Connection) -> "Config":
    """Give Alembic's settings for running migrations, or writing a new one, on a connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _run(connection: Connection) -> None:
    from alembic import command

    command.upgrade(configuration(connection), "head")
