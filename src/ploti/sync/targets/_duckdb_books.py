"""The two tables in which a DuckDB target keeps its books: `_ploti_sync` and `_ploti_datasets` (D11.7)."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast

import duckdb

from ploti.contract.resources import Schema
from ploti.sync.plan import Held
from ploti.sync.target import LAYOUT, DatasetStatus, TargetState, TargetUnusable
from ploti.sync.targets._duckdb_file import quoted

_SYNC: Final = "_ploti_sync"
_DATASETS: Final = "_ploti_datasets"
_LAYOUT_SQL: Final = f"""
CREATE TABLE IF NOT EXISTS {_SYNC} (
    subscription_id VARCHAR, cursor VARCHAR, layout INTEGER, updated_at TIMESTAMP WITH TIME ZONE);
CREATE TABLE IF NOT EXISTS {_DATASETS} (
    dataset_id VARCHAR, title VARCHAR, place_id VARCHAR, place_name VARCHAR, topic VARCHAR, publisher VARCHAR,
    source_url VARCHAR, license_id VARCHAR, license_attribution VARCHAR, license_url VARCHAR,
    loaded_version BIGINT, schema_version VARCHAR, loaded_at TIMESTAMP WITH TIME ZONE, rows BIGINT,
    state VARCHAR, reason VARCHAR, accepted_major INTEGER, position BIGINT, schema VARCHAR);
"""
_COUNTS: Final = "coalesce(rows, 0), coalesce(position, 0)"
_HELD: Final = f"dataset_id, loaded_version, schema_version, accepted_major, state, reason, {_COUNTS}"


def ensure_layout(db: duckdb.DuckDBPyConnection) -> None:
    """Make the two tables where they are missing; raises TargetUnusable for a layout of another version."""
    if not _laid_out(db):
        db.execute(_LAYOUT_SQL)


def _laid_out(db: duckdb.DuckDBPyConnection) -> bool:
    found = db.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database() AND table_name IN (?, ?)",
        [_SYNC, _DATASETS],
    ).fetchall()
    return bool(found[0][0] == 2)


def read_state(db: duckdb.DuckDBPyConnection) -> TargetState:
    """Read subscription, cursor and what is held; raises TargetUnusable for a layout of another version."""
    if not _laid_out(db):
        return TargetState(None, None, {})
    rows = db.execute(f"SELECT subscription_id, cursor, layout FROM {_SYNC}").fetchall()
    subscription_id, cursor, layout = rows[0] if rows else (None, None, LAYOUT)
    if layout != LAYOUT:
        raise TargetUnusable(f"This file was made by another version of sync (layout {layout}): use a new file.")
    held = {row[0]: Held(*row) for row in db.execute(f"SELECT {_HELD} FROM {_DATASETS}").fetchall()}
    return TargetState(subscription_id, cursor, held)


def read_status(db: duckdb.DuckDBPyConnection) -> list[DatasetStatus]:
    """List the datasets by id."""
    if not _laid_out(db):
        return []
    query = f"SELECT {_HELD}, title, place_id, loaded_at FROM {_DATASETS} ORDER BY dataset_id"
    return [
        DatasetStatus(Held(*row[:8]), row[8], row[9], row[10] and row[10].isoformat(timespec="seconds"))
        for row in db.execute(query).fetchall()
    ]


def read_schema(db: duckdb.DuckDBPyConnection, dataset_id: str) -> Schema | None:
    """Read the schema of a dataset's table; None where no rows were loaded."""
    rows = db.execute(f"SELECT schema FROM {_DATASETS} WHERE dataset_id = ?", [dataset_id]).fetchall()
    return cast(Schema, json.loads(rows[0][0])) if rows and rows[0][0] is not None else None


def schema_text(schema: Schema) -> str:
    """Give the stored form of a schema."""
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def write_cursor(db: duckdb.DuckDBPyConnection, subscription_id: str, cursor: str | None, now: datetime) -> None:
    """Store the position in the log."""
    db.execute(f"DELETE FROM {_SYNC}")
    db.execute(f"INSERT INTO {_SYNC} VALUES (?, ?, ?, ?)", [subscription_id, cursor, LAYOUT, now])


def write_dataset(db: duckdb.DuckDBPyConnection, held: Held, more: Mapping[str, Any]) -> None:
    """Store what is held of a dataset, and `more` of its columns; the others stay."""
    columns = {
        "loaded_version": held.version,
        "schema_version": held.schema_version,
        "accepted_major": held.accepted_major,
        "state": held.state,
        "reason": held.reason,
        "position": held.position,
        **more,
    }
    found = db.execute(f"SELECT count(*) FROM {_DATASETS} WHERE dataset_id = ?", [held.dataset_id]).fetchall()
    if not found[0][0]:
        db.execute(f"INSERT INTO {_DATASETS} (dataset_id) VALUES (?)", [held.dataset_id])
    update_dataset(db, held.dataset_id, columns)


def update_dataset(db: duckdb.DuckDBPyConnection, dataset_id: str, columns: Mapping[str, Any]) -> None:
    """Set some columns of a dataset's row."""
    settings = ", ".join(f"{quoted(name)} = ?" for name in columns)
    db.execute(f"UPDATE {_DATASETS} SET {settings} WHERE dataset_id = ?", [*columns.values(), dataset_id])
