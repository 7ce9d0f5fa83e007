"""The two tables in which a database keeps its books: `_ploti_sync` and `_ploti_datasets` (D11.7)."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast, get_args

from ploti.contract.digest import Digest
from ploti.contract.events import event_number
from ploti.contract.resources import Schema
from ploti.contract.values import STORAGE_TYPES
from ploti.sync.plan import Held, State
from ploti.sync.target import (
    INFO_COLUMNS,
    LAYOUT,
    DatasetInfo,
    DatasetStatus,
    Delivery,
    StepRefused,
    TableNames,
    TableSpoilt,
    TargetState,
    TargetUnusable,
    as_found,
    brought_back,
    gone,
)
from ploti.sync.targets._duckdb_digest import digest_of_parts
from ploti.sync.targets._file_trouble import is_empty
from ploti.sync.targets._parts import quoted

_Read = TypeVar("_Read")
SYNC: Final = "_ploti_sync"
DATASETS: Final = "_ploti_datasets"
_SYNC_SQL: Final = """CREATE TABLE IF NOT EXISTS {sync} (
    {key}subscription_id {text}, cursor {text}, last_event {text}, layout {whole}, updated_at {instant},
    table_names {text})"""
_DATASETS_SQL: Final = """CREATE TABLE IF NOT EXISTS {datasets} (
    {key}dataset_id {id}, title {text}, place_id {text}, place_name {text}, topic {text},
    publisher {text}, source_url {text}, license_id {text}, license_attribution {text}, license_url {text},
    loaded_version {whole}, schema_version {text}, loaded_at {instant}, rows {whole},
    state {text}, reason {text}, accepted_major {whole}, position {whole}, schema {text},
    chosen_columns {text}, table_name {text})"""
_NO_SCHEMA: Final = cast(Schema, {"columns": []})
_STATES: Final = frozenset(get_args(State))
_COUNTS: Final = 'coalesce(rows, 0), coalesce("position", 0)'
_HELD: Final = f"dataset_id, loaded_version, schema_version, accepted_major, state, reason, {_COUNTS}, chosen_columns"


class Database(Protocol):
    """What is used of a connection."""

    def execute(self, sql: str, values: Any = ..., /) -> Any:
        """Run a statement; its rows come by `fetchall`."""


@dataclass(frozen=True)
class Books:
    """The books in one kind of database: how it lists tables by name, names types, stores a moment, marks a value.

    `sync` and `datasets` are the tables as SQL names, `place` says what they stand in.
    """

    tables: str
    types: Mapping[str, str]
    moment: Callable[[datetime], Any] = lambda now: now
    mark: str = "?"
    sync: str = SYNC
    datasets: str = DATASETS
    place: str = "file"

    def ensure_layout(self, db: Database) -> None:
        """Make the two tables where they are missing."""
        if not self.laid_out(db):
            for table in (_SYNC_SQL, _DATASETS_SQL):
                db.execute(table.format(sync=self.sync, datasets=self.datasets, **self.types))

    def laid_out(self, db: Database) -> bool:
        """Tell whether both tables are there."""
        return {SYNC, DATASETS} <= self._tables(db)

    def _tables(self, db: Database) -> set[str]:
        return {name for (name,) in db.execute(self.tables).fetchall()}

    def _lost(self, db: Database) -> dict[str, str]:
        """Give the loaded datasets whose table is gone, and what is to be told of them."""
        there = self._tables(db)
        loaded = db.execute(f"SELECT dataset_id, table_name FROM {self.datasets} WHERE schema IS NOT NULL").fetchall()
        return {name: gone(table) for name, table in loaded if isinstance(table, str) and table not in there}

    def read_state(self, db: Database, asked: str | None) -> TargetState:
        """Read subscription, cursor and what is held; what a user wrote there that cannot be is not taken for known.

        Raises TargetUnusable for a layout of another version, or where tables are `asked` to have other names.
        """
        if not self.laid_out(db):
            TableNames.kept(None, asked)
            return TargetState(None, None, {})
        layouts = db.execute(f"SELECT layout FROM {self.sync}").fetchall()
        layout = layouts[0][0] if layouts else LAYOUT
        if layout != LAYOUT:
            raise TargetUnusable(
                f"This {self.place} was made by another version of sync (layout {layout}): use a new {self.place}."
            )
        self.names(db, asked)
        named = f"SELECT {_HELD} FROM {self.datasets} WHERE dataset_id IS NOT NULL"
        held = {row[0]: _held(row) for row in db.execute(named).fetchall()}
        rows = db.execute(f"SELECT subscription_id, cursor, last_event FROM {self.sync}").fetchall()
        subscription_id, cursor, last_event = rows[0] if rows else (None, None, None)
        known = isinstance(cursor, str) and event_number(cursor) is not None
        return TargetState(subscription_id, cursor if known else None, held, _text(last_event), self._lost(db))

    def read_status(self, db: Database) -> list[DatasetStatus]:
        """List the datasets by id."""
        if not self.laid_out(db):
            return []
        query = (
            f"SELECT {_HELD}, title, place_id, loaded_at FROM {self.datasets} WHERE dataset_id IS NOT NULL ORDER BY 1"
        )
        rows, lost = db.execute(query).fetchall(), self._lost(db)
        return [
            DatasetStatus(as_found(_held(row[:9]), lost.get(row[0])), row[9], row[10], _text(row[11])) for row in rows
        ]

    def read_infos(self, db: Database) -> dict[str, DatasetInfo]:
        """Read what is stored of what the API says, by dataset."""
        if not self.laid_out(db):
            return {}
        rows = db.execute(f"SELECT dataset_id, {', '.join(INFO_COLUMNS)} FROM {self.datasets}").fetchall()
        return {row[0]: DatasetInfo(*row[1:]) for row in rows}

    def read_schema(self, db: Database, dataset_id: str) -> Schema | None:
        """Read the schema of a dataset's table; None where no rows were loaded, one without columns where it is none.

        With the latter every column counts as the user's, so that what comes next makes the table whole.
        """
        if not self.laid_out(db):
            return None
        rows = db.execute(f"SELECT schema FROM {self.datasets} WHERE {self._named}", [dataset_id]).fetchall()
        return _schema(rows[0][0]) if rows and rows[0][0] is not None else None

    def loaded_schema(self, db: Database, dataset_id: str) -> Schema:
        """Read the schema of a table; raises StepRefused where none was loaded, TableSpoilt where it is no schema."""
        schema = self.read_schema(db, dataset_id)
        if schema is None:
            raise StepRefused("no rows were loaded yet")
        if schema is _NO_SCHEMA:
            raise TableSpoilt(brought_back(f"the schema in {DATASETS} was changed by hand"))
        return schema

    def names(self, db: Database, asked: str | None) -> TableNames:
        """Read how tables are named; raises TargetUnusable where other names are asked for."""
        rows = db.execute(f"SELECT table_names FROM {self.sync}").fetchall() if self.laid_out(db) else []
        return TableNames.kept(rows[0][0] if rows else None, asked)

    def write_cursor(
        self,
        db: Database,
        subscription_id: str,
        cursor: str | None,
        last_event: str | None,
        *,
        names: TableNames,
        now: datetime,
    ) -> None:
        """Store the position in the log, and how tables are named."""
        db.execute(f"DELETE FROM {self.sync}")
        db.execute(
            f"INSERT INTO {self.sync} (subscription_id, cursor, last_event, layout, updated_at, table_names) "
            f"VALUES ({', '.join([self.mark] * 6)})",
            [subscription_id, cursor, last_event, LAYOUT, self.moment(now), names.scheme],
        )

    def loaded(self, schema: Schema, table: str, rows: int, now: datetime) -> dict[str, Any]:
        """Give the columns that say what was loaded when, and where it is."""
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        return {"rows": rows, "loaded_at": self.moment(now), "schema": text, "table_name": table}

    def write_dataset(self, db: Database, held: Held, more: Mapping[str, Any]) -> None:
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
        found = db.execute(f"SELECT count(*) FROM {self.datasets} WHERE {self._named}", [held.dataset_id]).fetchall()
        if not found[0][0]:
            db.execute(f"INSERT INTO {self.datasets} (dataset_id) VALUES ({self.mark})", [held.dataset_id])
        self.update_dataset(db, held.dataset_id, columns)

    def update_dataset(self, db: Database, dataset_id: str, columns: Mapping[str, Any]) -> None:
        """Set some columns of a dataset's row."""
        settings = ", ".join(f"{quoted(name)} = {self.mark}" for name in columns)
        db.execute(f"UPDATE {self.datasets} SET {settings} WHERE {self._named}", [*columns.values(), dataset_id])

    @property
    def _named(self) -> str:
        return f"dataset_id = {self.mark}"


def _held(row: Sequence[Any]) -> Held:
    """Give what is held of a dataset; where its row cannot be one that sync wrote, nothing is, so that it is loaded."""
    dataset_id, version, schema_version, accepted_major, state, reason, rows, position, columns = row
    sound = (
        all(isinstance(each, int) for each in (rows, position))
        and all(each is None or isinstance(each, int) for each in (version, accepted_major))
        and all(each is None or isinstance(each, str) for each in (schema_version, reason, columns))
        and state in _STATES
    )
    changed = f"its row in {DATASETS} was changed by hand"
    return Held(*row) if sound else Held(dataset_id, state="behind", reason=changed)


def _schema(text: str) -> Schema:
    try:
        told = json.loads(text)
        if all(column["type"] in STORAGE_TYPES and isinstance(column["name"], str) for column in told["columns"]):
            return cast(Schema, told)
    except (ValueError, TypeError, LookupError, RecursionError):  # whatever a user wrote there
        pass
    return _NO_SCHEMA


def _text(moment: Any) -> str | None:
    if isinstance(moment, datetime):
        return moment.isoformat(timespec="seconds")
    return None if moment is None else str(moment)


class DatabaseFile(Protocol):
    """What is used of a file that is a database."""

    @property
    def path(self) -> Path:
        """Where it is."""

    def beside(self, suffix: str) -> Path:
        """Give the path of a companion of the file."""

    def locked(self) -> AbstractContextManager[None]:
        """Keep other syncs away."""

    def opened(self, *, read_only: bool = False) -> AbstractContextManager[Database]:
        """Open it for one piece of work."""


class BooksInFile:
    """What is alike in targets that are one file: where things are, and what is read of the books."""

    file: DatabaseFile
    books: ClassVar[Books]
    table_name: str | None

    @property
    def downloads(self) -> Path:
        """Folder beside the file for parts on their way into it."""
        return self.file.beside(".downloads")

    def lock(self) -> AbstractContextManager[None]:
        """Keep other syncs away for a whole run; raises TargetBusy naming the one that is running."""
        return self.file.locked()

    def state(self) -> TargetState:
        """Read subscription, cursor and what is held."""
        if is_empty(self.file.path):
            TableNames.kept(None, self.table_name)
        return self._read(lambda db: self.books.read_state(db, self.table_name), TargetState(None, None, {}))

    def infos(self) -> Mapping[str, DatasetInfo]:
        """Give what is stored of what the API says, by dataset."""
        return self._read(self.books.read_infos, {})

    def status(self) -> list[DatasetStatus]:
        """List the datasets by id."""
        return self._read(self.books.read_status, [])

    def snapshot_digest(self, delivery: Delivery, volatile: Iterable[str]) -> Digest:
        """Compute the digest of a snapshot's own columns without volatile ones."""
        return digest_of_parts(delivery, volatile)

    def _read(self, read: Callable[[Database], _Read], nothing: _Read) -> _Read:
        if is_empty(self.file.path):
            return nothing
        with self.file.opened(read_only=True) as db:
            return read(db)
