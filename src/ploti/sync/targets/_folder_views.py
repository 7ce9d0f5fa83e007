"""`views.duckdb` in a folder of Parquet files: a view for each table and history, and `_ploti_datasets` (D11.7)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb

from ploti.sync.target import INFO_COLUMNS
from ploti.sync.targets._duckdb_file import STORAGE_VERSION
from ploti.sync.targets._folder_books import Kept
from ploti.sync.targets._folder_trouble import on_disk
from ploti.sync.targets._parts import literal, parts_source, quoted

VIEWS: Final = "views.duckdb"


@dataclass
class Shown:
    """The state that each table's view names, in a run: views that name a state which is kept may wait."""

    in_run: bool = False
    states: dict[str, str | None] = field(default_factory=dict)
    moved: int = 0

    def may_wait(self, dataset_id: str, previous: str | None) -> bool:
        """Tell whether a table that moved on may be shown later: its view names the state before, and few others wait.

        As many as were shown may wait, so that the views of many tables are not made again for each of them.
        """
        self.moved += 1
        return self.in_run and self.states.get(dataset_id) == previous and self.moved < len(self.states)

    def note(self, known: Mapping[str, Kept]) -> None:
        """Note that the views name the current states."""
        self.states = {name: kept.table.folder for name, kept in known.items() if kept.table is not None}
        self.moved = 0


def write_views(folder: Path, known: Mapping[str, Kept], parts: Mapping[str, Sequence[Path]]) -> None:
    """Replace the file of views, at once; a view names the parts themselves, so that it never shows two states.

    Parts that cannot be read get no view.
    """
    fresh = folder / f"{VIEWS}.new"
    with on_disk(folder):
        try:
            while (unreadable := _make(fresh, known, parts)) is not None:
                parts = {name: own for name, own in parts.items() if name != unreadable}
            fresh.rename(folder / VIEWS)
        finally:
            _clear(fresh)


def _make(fresh: Path, known: Mapping[str, Kept], parts: Mapping[str, Sequence[Path]]) -> str | None:
    """Make a file of views; gives the first that cannot be made, None where all are."""
    _clear(fresh)
    with duckdb.connect() as db:
        db.execute(f"ATTACH {literal(str(fresh))} AS fresh (STORAGE_VERSION '{STORAGE_VERSION}')")
        db.execute("USE fresh")
        db.execute("BEGIN")
        columns = ", ".join(f"{name} VARCHAR" for name in INFO_COLUMNS)
        db.execute(
            f"CREATE TABLE _ploti_datasets (dataset_id VARCHAR, {columns}, loaded_version BIGINT, "
            "schema_version VARCHAR, rows BIGINT, state VARCHAR, reason VARCHAR, loaded_at TIMESTAMP WITH TIME ZONE)"
        )
        for name, kept in known.items():
            row = [name, *_told(kept), None if kept.table is None else kept.table.loaded_at]
            db.execute(f"INSERT INTO _ploti_datasets VALUES ({', '.join('?' * len(row))})", row)
        for name, own in parts.items():
            if own:
                source = parts_source(path.absolute() for path in own)
                try:
                    db.execute(f"CREATE VIEW {quoted(name)} AS SELECT * FROM {source}")
                except duckdb.Error:  # of many kinds, by what is wrong with a file
                    return name
        db.execute("COMMIT")
        db.execute("CHECKPOINT fresh")
        db.execute("USE memory")
        db.execute("DETACH fresh")
    return None


def _clear(fresh: Path) -> None:
    for each in (fresh, fresh.with_name(f"{fresh.name}.wal")):
        each.unlink(missing_ok=True)


def _told(kept: Kept) -> list[Any]:
    """Give what is known of a dataset in the order of the table's columns."""
    info = {} if kept.info is None else asdict(kept.info)
    held = kept.held
    state = [held.version, held.schema_version, held.rows, held.state, held.reason]
    return [*(info.get(name) for name in INFO_COLUMNS), *state]
