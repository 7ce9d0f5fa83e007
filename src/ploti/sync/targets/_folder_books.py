"""The books of a folder of Parquet files, and the one rename that makes a dataset's next state the current one.

`_ploti_sync.json` has the subscription and the cursor, and what was noted of datasets since their rows last moved. Each
dataset's folder has one folder for each state of its table, `vVERSION-TURN`, with the parts, its history and
`_ploti.json`, and a link `current` to the newest: what moves the link moves rows, version and position (D11.2). A note
counts only as long as the turn that it was made at is the current one.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ploti.contract.resources import Schema
from ploti.sync.plan import Held
from ploti.sync.target import LAYOUT, DatasetInfo, StepBlocked, TargetUnusable

_SYNC: Final = "_ploti_sync.json"
_STATE: Final = "_ploti.json"
CURRENT: Final = "current"
_MAKING: Final = ".making"
PAST: Final = "_history"
"""Folder in a state for its history; readers of the state pass over names that begin so."""


@dataclass(frozen=True)
class TableState:
    """What a dataset's folder holds: `turn` counts its states, `previous` is the one that readers may still be in."""

    held: Held
    turn: int
    schema: Schema
    loaded_at: str
    info: DatasetInfo | None
    previous: str | None = None
    folder: str | None = None


@dataclass(frozen=True)
class Note:
    """What was noted of a dataset at a turn: a state without rows, what the API says of it."""

    turn: int
    held: Held | None = None
    info: DatasetInfo | None = None


@dataclass(frozen=True)
class Book:
    """The contents of `_ploti_sync.json`."""

    subscription_id: str | None = None
    cursor: str | None = None
    table_names: str | None = None
    notes: Mapping[str, Note] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """What is known of one dataset: the state of its table and the note that counts beside it."""

    table: TableState | None
    note: Note | None

    @property
    def held(self) -> Held | None:
        """What is held of the dataset; None where nothing is known of it."""
        if self.note is not None and self.note.held is not None:
            rows = self.table.held.rows if self.table else 0
            return replace(self.note.held, rows=rows)
        return None if self.table is None else self.table.held

    @property
    def info(self) -> DatasetInfo | None:
        """What the API said of it last."""
        if self.note is not None and self.note.info is not None:
            return self.note.info
        return None if self.table is None else self.table.info


@dataclass(frozen=True)
class Folder:
    """A folder of datasets."""

    path: Path

    def of(self, dataset_id: str) -> Path:
        """Give a dataset's folder."""
        return self.path / dataset_id

    def read_book(self) -> Book:
        """Read the book; raises TargetUnusable for one of another layout."""
        file = self.path / _SYNC
        if not file.exists():
            return Book()
        told = _read(file)
        if told.get("layout") != LAYOUT:
            raise TargetUnusable(f"{self.path} was made by another version of sync: use a new folder.")
        notes = {name: _note(note) for name, note in told["notes"].items()}
        return Book(told["subscriptionId"], told["cursor"], told["tableNames"], notes)

    def write_book(self, book: Book, now: str) -> None:
        """Replace the book, at once."""
        notes = {name: asdict(note) for name, note in book.notes.items()}
        told = {"layout": LAYOUT, "subscriptionId": book.subscription_id, "cursor": book.cursor, "updatedAt": now}
        told["tableNames"] = book.table_names
        self.path.mkdir(parents=True, exist_ok=True)
        fresh = self.path / f"{_SYNC}.new"
        write_synced(fresh, json.dumps({**told, "notes": notes}, ensure_ascii=False))
        fresh.rename(self.path / _SYNC)
        sync_folder(self.path)

    def read_table(self, dataset_id: str) -> TableState | None:
        """Read the current state of a dataset's table; None where there is none."""
        folder = self.of(dataset_id) / CURRENT
        if not (folder / _STATE).exists():
            return None
        told = _read(folder / _STATE)
        info = None if told["info"] is None else DatasetInfo(**told["info"])
        return TableState(
            Held(**told["held"]), told["turn"], told["schema"], told["loaded_at"], info, told["previous"],
            Path(os.readlink(folder)).name,
        )  # fmt: skip

    def read_all(self, book: Book) -> dict[str, Kept]:
        """Read what is known of every dataset, by id."""
        folders = {each.parent.parent.name for each in self.path.glob(f"*/{CURRENT}/{_STATE}")}
        return {name: self.read_one(book, name) for name in sorted(folders | book.notes.keys())}

    def read_one(self, book: Book, dataset_id: str) -> Kept:
        """Read what is known of one dataset."""
        table, note = self.read_table(dataset_id), book.notes.get(dataset_id)
        counts = note is not None and note.turn == (table.turn if table else 0)
        return Kept(table, note if counts else None)

    def parts(self, dataset_id: str) -> list[Path]:
        """List the parts of a dataset's current state, by the path that stays when the link moves on."""
        return sorted((self.of(dataset_id) / CURRENT).resolve().glob("*.parquet"))

    def past(self, dataset_id: str) -> list[Path]:
        """List the parts of the history in a dataset's current state, by the path that stays."""
        return sorted(((self.of(dataset_id) / CURRENT).resolve() / PAST).glob("*.parquet"))

    def begin(self, dataset_id: str) -> Path:
        """Give an empty folder to make a state in; raises StepBlocked where something of the user's is in the place."""
        folder = self.of(dataset_id)
        foreign = [] if not folder.exists() else [each.name for each in folder.iterdir() if not _own(each.name)]
        if foreign:
            raise StepBlocked(f"{folder} has {foreign[0]}, which sync did not make: move it away")
        making = folder / _MAKING
        if making.exists():
            shutil.rmtree(making)
        making.mkdir(parents=True)
        return making

    def finish(self, dataset_id: str, state: TableState) -> None:
        """Make what was begun the current state, at once; what no reader can be in any more goes."""
        folder, name = self.of(dataset_id), f"v{state.held.version}-{state.turn}"
        told = {**asdict(state), "folder": name}
        write_synced(folder / _MAKING / _STATE, json.dumps(told, ensure_ascii=False))
        sync_folder(folder / _MAKING)
        if (folder / name).exists():
            shutil.rmtree(folder / name)
        (folder / _MAKING).rename(folder / name)
        link = folder / f"{CURRENT}.new"
        link.unlink(missing_ok=True)
        link.symlink_to(name)
        link.rename(folder / CURRENT)
        sync_folder(folder)

    def tidy(self, dataset_id: str, keep: Sequence[str | None]) -> None:
        """Remove the states of a dataset's table but those to keep."""
        for each in self.of(dataset_id).iterdir():
            if each.is_dir() and not each.is_symlink() and each.name not in keep:
                shutil.rmtree(each)


def _own(name: str) -> bool:
    return name in {CURRENT, f"{CURRENT}.new", _MAKING} or (name[:1] == "v" and name[1:2].isdigit())


def _read(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_bytes())
    except ValueError as error:
        raise TargetUnusable(f"{file} cannot be read: put it back, or use a new folder.") from error
    if not isinstance(told, dict):
        raise TargetUnusable(f"{file} cannot be read: put it back, or use a new folder.")
    return told


def _note(told: Mapping[str, Any]) -> Note:
    held, info = told["held"], told["info"]
    return Note(told["turn"], held and Held(**held), info and DatasetInfo(**info))


def write_synced(path: Path, text: str) -> None:
    """Write a file and have the disk hold it."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Have the disk hold a file that was written."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


sync_folder = sync_file
"""Have the disk hold a folder's entries; a folder is opened like a file."""
