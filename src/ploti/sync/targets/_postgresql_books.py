"""The two tables in which a PostgreSQL target keeps its books: `_ploti_sync` and `_ploti_datasets` (D11.7)."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast

from psycopg import errors

from ploti.contract.resources import Schema
from ploti.sync.plan import Held
from ploti.sync.target import INFO_COLUMNS, LAYOUT, DatasetInfo, DatasetStatus, TableNames, TargetState, TargetUnusable
from ploti.sync.targets._postgresql_session import Session, first_line, quoted

_SYNC: Final = "_ploti_sync"
_DATASETS: Final = "_ploti_datasets"
_LAYOUT_SQL: Final = """
CREATE TABLE IF NOT EXISTS {sync} (
    subscription_id text, cursor text, layout integer NOT NULL, updated_at timestamptz NOT NULL,
    table_names text NOT NULL);
CREATE TABLE IF NOT EXISTS {datasets} (
    dataset_id text PRIMARY KEY, table_name text, title text, place_id text, place_name text, topic text,
    publisher text, source_url text, license_id text, license_attribution text, license_url text,
    loaded_version bigint, schema_version text, loaded_at timestamptz, rows bigint,
    state text, reason text, accepted_major integer, position bigint, schema text,
    chosen_columns text);
COMMENT ON TABLE {sync} IS 'Which subscription this schema follows and up to which event; kept by ploti sync';
COMMENT ON TABLE {datasets} IS 'What each table holds and since when; kept by ploti sync'
"""
_HELD: Final = (
    "dataset_id, loaded_version, schema_version, accepted_major, state, reason, coalesce(rows, 0), "
    'coalesce("position", 0), chosen_columns'
)


def ensure_layout(session: Session) -> None:
    """Make schema and tables where they are missing; raises TargetUnusable where that is not allowed."""
    if _laid_out(session):
        return
    try:
        with session.transaction():
            if not session.rows("SELECT 1 FROM pg_namespace WHERE nspname = %s", [session.schema]):
                session.run(f"CREATE SCHEMA {quoted(session.schema)}")
            session.run(_LAYOUT_SQL.format(sync=session.table(_SYNC), datasets=session.table(_DATASETS)))
    except errors.InsufficientPrivilege as error:
        raise TargetUnusable(
            f"PostgreSQL: {first_line(error)}: let this user make tables in schema {session.schema}, or name another "
            "schema with ?schema=NAME."
        ) from error


def _laid_out(session: Session) -> bool:
    found = session.rows(
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname IN (%s, %s) AND c.relkind = 'r'",
        [session.schema, _SYNC, _DATASETS],
    )
    return bool(found[0][0] == 2)


def read_state(session: Session) -> TargetState:
    """Read subscription, cursor and what is held; raises TargetUnusable for a layout of another version."""
    if not _laid_out(session):
        return TargetState(None, None, {})
    rows = session.rows(f"SELECT subscription_id, cursor, layout FROM {session.table(_SYNC)}")
    subscription_id, cursor, layout = rows[0] if rows else (None, None, LAYOUT)
    if layout != LAYOUT:
        raise TargetUnusable(f"This schema was made by another version of sync (layout {layout}): use a new schema.")
    found = session.rows(f"SELECT {_HELD} FROM {session.table(_DATASETS)}")
    return TargetState(subscription_id, cursor, {row[0]: Held(*row) for row in found})


def read_status(session: Session) -> list[DatasetStatus]:
    """List the datasets by id."""
    if not _laid_out(session):
        return []
    query = f"SELECT {_HELD}, title, place_id, loaded_at FROM {session.table(_DATASETS)} ORDER BY dataset_id"
    return [
        DatasetStatus(Held(*row[:9]), row[9], row[10], row[11] and row[11].isoformat(timespec="seconds"))
        for row in session.rows(query)
    ]


def read_infos(session: Session) -> dict[str, DatasetInfo]:
    """Read what is stored of what the API says, by dataset."""
    if not _laid_out(session):
        return {}
    rows = session.rows(f"SELECT dataset_id, {', '.join(INFO_COLUMNS)} FROM {session.table(_DATASETS)}")
    return {row[0]: DatasetInfo(*row[1:]) for row in rows}


def read_schema(session: Session, dataset_id: str) -> Schema | None:
    """Read the schema of a dataset's table; None where no rows were loaded."""
    if not _laid_out(session):
        return None
    rows = session.rows(f"SELECT schema FROM {session.table(_DATASETS)} WHERE dataset_id = %s", [dataset_id])
    return cast(Schema, json.loads(rows[0][0])) if rows and rows[0][0] is not None else None


def schema_text(schema: Schema) -> str:
    """Give the stored form of a schema."""
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def read_names(session: Session, asked: str | None) -> TableNames:
    """Read how tables are named; raises TargetUnusable where other names are asked for."""
    rows = session.rows(f"SELECT table_names FROM {session.table(_SYNC)}") if _laid_out(session) else []
    return TableNames.kept(rows[0][0] if rows else None, asked)


def write_cursor(session: Session, subscription_id: str, cursor: str | None, names: TableNames, now: datetime) -> None:
    """Store the position in the log, and how tables are named."""
    session.run(f"DELETE FROM {session.table(_SYNC)}")
    session.run(
        f"INSERT INTO {session.table(_SYNC)} VALUES (%s, %s, %s, %s, %s)",
        [subscription_id, cursor, LAYOUT, now, names.scheme],
    )


def write_dataset(session: Session, held: Held, more: Mapping[str, Any]) -> None:
    """Store what is held of a dataset, and `more` of its columns; the others stay."""
    columns = {
        "loaded_version": held.version,
        "schema_version": held.schema_version,
        "accepted_major": held.accepted_major,
        "state": held.state,
        "reason": held.reason,
        "position": held.position,
        "chosen_columns": held.columns,
        **more,
    }
    insert = f"INSERT INTO {session.table(_DATASETS)} (dataset_id) VALUES (%s) ON CONFLICT DO NOTHING"
    session.run(insert, [held.dataset_id])
    update_dataset(session, held.dataset_id, columns)


def update_dataset(session: Session, dataset_id: str, columns: Mapping[str, Any]) -> None:
    """Set some columns of a dataset's row."""
    settings = ", ".join(f"{quoted(name)} = %s" for name in columns)
    statement = f"UPDATE {session.table(_DATASETS)} SET {settings} WHERE dataset_id = %s"
    session.run(statement, [*columns.values(), dataset_id])
