"""The two tables in which a target that is one file keeps its books: `_ploti_sync` and `_ploti_datasets` (D11.7)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, cast

from ploti.contract.resources import Schema
from ploti.sync.plan import Held
from ploti.sync.target import INFO_COLUMNS, LAYOUT, DatasetInfo, DatasetStatus, TableNames, TargetState, TargetUnusable
from ploti.sync.targets._parts import quoted

SYNC: Final = "_ploti_sync"
DATASETS: Final = "_ploti_datasets"
_LAYOUT_SQL: Final = (
    f"""CREATE TABLE IF NOT EXISTS {SYNC} (
    {{key}}subscription_id {{text}}, cursor {{text}}, layout {{whole}}, updated_at {{instant}},
    table_names {{text}})""",
    f"""CREATE TABLE IF NOT EXISTS {DATASETS} (
    {{key}}dataset_id {{text}}, title {{text}}, place_id {{text}}, place_name {{text}}, topic {{text}},
    publisher {{text}}, source_url {{text}}, license_id {{text}}, license_attribution {{text}}, license_url {{text}},
    loaded_version {{whole}}, schema_version {{text}}, loaded_at {{instant}}, rows {{whole}},
    state {{text}}, reason {{text}}, accepted_major {{whole}}, position {{whole}}, schema {{text}},
    chosen_columns {{text}}, table_name {{text}})""",
)
_COUNTS: Final = "coalesce(rows, 0), coalesce(position, 0)"
_HELD: Final = f"dataset_id, loaded_version, schema_version, accepted_major, state, reason, {_COUNTS}, chosen_columns"


class Database(Protocol):
    """What is used of a connection."""

    def execute(self, sql: str, values: Any = ..., /) -> Any:
        """Run a statement; its rows come by `fetchall`."""


@dataclass(frozen=True)
class Books:
    """The books in one kind of database: how it finds tables, names types, and stores a moment."""

    find: str
    types: Mapping[str, str]
    moment: Callable[[datetime], Any]

    def ensure_layout(self, db: Database) -> None:
        """Make the two tables where they are missing."""
        if not self.laid_out(db):
            for table in _LAYOUT_SQL:
                db.execute(table.format(**self.types))

    def laid_out(self, db: Database) -> bool:
        """Tell whether both tables are there."""
        return bool(db.execute(self.find, [SYNC, DATASETS]).fetchall()[0][0] == 2)

    def read_state(self, db: Database) -> TargetState:
        """Read subscription, cursor and what is held; raises TargetUnusable for a layout of another version."""
        if not self.laid_out(db):
            return TargetState(None, None, {})
        rows = db.execute(f"SELECT subscription_id, cursor, layout FROM {SYNC}").fetchall()
        subscription_id, cursor, layout = rows[0] if rows else (None, None, LAYOUT)
        if layout != LAYOUT:
            raise TargetUnusable(f"This file was made by another version of sync (layout {layout}): use a new file.")
        held = {row[0]: Held(*row) for row in db.execute(f"SELECT {_HELD} FROM {DATASETS}").fetchall()}
        return TargetState(subscription_id, cursor, held)

    def read_status(self, db: Database) -> list[DatasetStatus]:
        """List the datasets by id."""
        if not self.laid_out(db):
            return []
        query = f"SELECT {_HELD}, title, place_id, loaded_at FROM {DATASETS} ORDER BY dataset_id"
        return [DatasetStatus(Held(*row[:9]), row[9], row[10], _text(row[11])) for row in db.execute(query).fetchall()]

    def read_infos(self, db: Database) -> dict[str, DatasetInfo]:
        """Read what is stored of what the API says, by dataset."""
        if not self.laid_out(db):
            return {}
        rows = db.execute(f"SELECT dataset_id, {', '.join(INFO_COLUMNS)} FROM {DATASETS}").fetchall()
        return {row[0]: DatasetInfo(*row[1:]) for row in rows}

    def names(self, db: Database, asked: str | None) -> TableNames:
        """Read how tables are named; raises TargetUnusable where other names are asked for."""
        rows = db.execute(f"SELECT table_names FROM {SYNC}").fetchall() if self.laid_out(db) else []
        return TableNames.kept(rows[0][0] if rows else None, asked)

    def write_cursor(
        self, db: Database, subscription_id: str, cursor: str | None, names: TableNames, now: datetime
    ) -> None:
        """Store the position in the log, and how tables are named."""
        db.execute(f"DELETE FROM {SYNC}")
        db.execute(
            f"INSERT INTO {SYNC} (subscription_id, cursor, layout, updated_at, table_names) VALUES (?, ?, ?, ?, ?)",
            [subscription_id, cursor, LAYOUT, self.moment(now), names.scheme],
        )

    def loaded(self, schema: Schema, table: str, rows: int, now: datetime) -> dict[str, Any]:
        """Give the columns that say what was loaded when, and where it is."""
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        return {"rows": rows, "loaded_at": self.moment(now), "schema": text, "table_name": table}


def read_schema(db: Database, dataset_id: str) -> Schema | None:
    """Read the schema of a dataset's table; None where no rows were loaded."""
    rows = db.execute(f"SELECT schema FROM {DATASETS} WHERE dataset_id = ?", [dataset_id]).fetchall()
    return cast(Schema, json.loads(rows[0][0])) if rows and rows[0][0] is not None else None


def write_dataset(db: Database, held: Held, more: Mapping[str, Any]) -> None:
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
    found = db.execute(f"SELECT count(*) FROM {DATASETS} WHERE dataset_id = ?", [held.dataset_id]).fetchall()
    if not found[0][0]:
        db.execute(f"INSERT INTO {DATASETS} (dataset_id) VALUES (?)", [held.dataset_id])
    update_dataset(db, held.dataset_id, columns)


def update_dataset(db: Database, dataset_id: str, columns: Mapping[str, Any]) -> None:
    """Set some columns of a dataset's row."""
    settings = ", ".join(f"{quoted(name)} = ?" for name in columns)
    db.execute(f"UPDATE {DATASETS} SET {settings} WHERE dataset_id = ?", [*columns.values(), dataset_id])


def _text(moment: Any) -> str | None:
    if isinstance(moment, datetime):
        return moment.isoformat(timespec="seconds")
    return None if moment is None else str(moment)
