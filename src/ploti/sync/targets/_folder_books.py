"""The books of a folder of Parquet files, and the one rename that makes a dataset's next state the current one.

`_ploti_sync.json` has the subscription and the cursor, and a note of what is held of each dataset. Each dataset's
folder has one folder for each state of its table, `vVERSION-TURN`, with the parts, its history and `_ploti.json`, and a
link `current` to the newest: what moves the link moves rows, version and position (D11.2). A note counts only as long
as the turn that it was made at is the current one; one of a later turn than the table's tells that a state was lost.
"""

import filecmp
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ploti.contract.resources import Schema
from ploti.sync.plan import Held
from ploti.sync.target import LAYOUT, DatasetInfo, StepBlocked, TargetUnusable, gone
from ploti.sync.targets._folder_trouble import on_disk

_SYNC: Final = "_ploti_sync.json"
_STATE: Final = "_ploti.json"
_BOOK_ANEW: Final = "move it away: the next sync makes it anew from the datasets' states"
CURRENT: Final = "current"
_MAKING: Final = ".making"
_NAME: Final = re.compile(r"v\d+-\d+")
"""What the folder of a state is called."""
_END: Final = b"PAR1"
"""How a Parquet file ends."""
PAST: Final = "_history"
"""Folder in a state for its history; readers of the state pass over names that begin so."""


@dataclass(frozen=True)
class TableState:
    """What a dataset's folder holds: `turn` counts its states, `previous` is the one that readers may still be in.

    `parts` names the table's parts; states of earlier releases name none.
    """

    held: Held
    turn: int
    schema: Schema
    loaded_at: str
    info: DatasetInfo | None
    previous: str | None
    folder: str
    parts: Sequence[str] = ()


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
    last_event: str | None = None
    table_names: str | None = None
    notes: Mapping[str, Note] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """What is known of one dataset: the state of its table, whether its parts are there, and the newest note of it."""

    dataset_id: str
    table: TableState | None
    has_parts: bool
    note: Note | None

    @property
    def turn(self) -> int:
        """The newest turn that is known of; 0 where there was no table yet."""
        return max(self.table.turn if self.table else 0, self.note.turn if self.note else 0)

    @property
    def held(self) -> Held:
        """What is held of the dataset."""
        noted = self._counting.held if self._counting else None
        if noted is not None:
            return noted if self.table is None or self.lost else replace(noted, rows=self.table.held.rows)
        if self.table is not None and self.table.turn == self.turn:
            return self.table.held
        return Held(self.dataset_id, state="behind", reason=self.lost)

    @property
    def info(self) -> DatasetInfo | None:
        """What the API said of it last."""
        if self._counting is not None and self._counting.info is not None:
            return self._counting.info
        return None if self.table is None else self.table.info

    @property
    def lost(self) -> str | None:
        """Say what of its table is gone without sync; None where nothing is."""
        if self.table is None:
            return gone(self.dataset_id) if self.turn else None
        if self.table.turn < self.turn:
            return f"the table {self.dataset_id} is an older one than was here"
        return None if self.has_parts else damaged(self.dataset_id)

    @property
    def noted(self) -> Note:
        """Give the note that tells the same."""
        return Note(self.turn, self.held, self.info)

    @property
    def _counting(self) -> Note | None:
        return self.note if self.note is not None and self.note.turn == self.turn else None


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
        with on_disk(self.path):
            if not file.exists():
                return Book()
            told = _read(file, _BOOK_ANEW)
        if told.get("layout") != LAYOUT:
            raise TargetUnusable(f"{self.path} was made by another version of sync: use a new folder.")
        try:
            notes = {name: _note(note) for name, note in told["notes"].items()}
            return Book(told["subscriptionId"], told["cursor"], told["lastEvent"], told["tableNames"], notes)
        except (AttributeError, KeyError, TypeError) as error:
            raise _unreadable(file, _BOOK_ANEW) from error

    def write_book(self, book: Book, now: str) -> None:
        """Replace the book, at once."""
        notes = {name: asdict(note) for name, note in book.notes.items()}
        told = {"layout": LAYOUT, "subscriptionId": book.subscription_id, "cursor": book.cursor, "updatedAt": now}
        told |= {"lastEvent": book.last_event, "tableNames": book.table_names}
        fresh = self.path / f"{_SYNC}.new"
        with on_disk(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            write_synced(fresh, json.dumps({**told, "notes": notes}, ensure_ascii=False))
            fresh.rename(self.path / _SYNC)
            sync_folder(self.path)

    def read_all(self, book: Book) -> dict[str, Kept]:
        """Read what is known of every dataset, by id."""
        with on_disk(self.path):
            folders = {each.name for each in self._with_states()}
            return {name: self.read_one(book, name) for name in sorted(folders | book.notes.keys())}

    def read_one(self, book: Book, dataset_id: str) -> Kept:
        """Read what is known of one dataset; raises TargetUnusable for a state that is none where no note tells it."""
        note, current = book.notes.get(dataset_id), self.of(dataset_id) / CURRENT
        try:
            table = _read_state(current)
        except TargetUnusable:
            if note is None or not note.turn:
                raise
            table = None
        newest = _newest(self.of(dataset_id)) if table is None and note is None else None
        if newest is not None:
            note = Note(newest.turn, newest.held, newest.info)
        return Kept(dataset_id, table, table is not None and _has_parts(current, table), note)

    def _with_states(self) -> set[Path]:
        """Give the folders of datasets that have states."""
        return {each.parent.parent for name in (CURRENT, "v*-*") for each in self.path.glob(f"*/{name}/{_STATE}")}

    def parts(self, dataset_id: str) -> list[Path]:
        """List the parts of a dataset's current state, by the path that stays when the link moves on."""
        return sorted((self.of(dataset_id) / CURRENT).resolve().glob("*.parquet"))

    def past(self, dataset_id: str) -> list[Path]:
        """List the parts of the history in a dataset's current state, by the path that stays."""
        return sorted(((self.of(dataset_id) / CURRENT).resolve() / PAST).glob("*.parquet"))

    def begin(self, dataset_id: str) -> Path:
        """Give an empty folder to make a state in; raises StepBlocked where something of the user's is in the place."""
        folder = self.of(dataset_id)
        if folder.exists() and not folder.is_dir():
            raise StepBlocked(f"{folder} is a file that sync did not make: move it away")
        foreign = [] if not folder.exists() else sorted(each.name for each in folder.iterdir() if not _own(each))
        if foreign:
            raise StepBlocked(f"{folder} has {foreign[0]}, which sync did not make: move it away")
        making = folder / _MAKING
        if making.exists():
            shutil.rmtree(making)
        making.mkdir(parents=True)
        return making

    def finish(self, dataset_id: str, state: TableState) -> None:
        """Make what was begun the current state, at once; what no reader can be in any more goes."""
        folder, name = self.of(dataset_id), state.folder
        told = {**asdict(state), "parts": sorted(each.name for each in (folder / _MAKING).glob("*.parquet"))}
        write_synced(folder / _MAKING / _STATE, json.dumps(told, ensure_ascii=False))
        sync_folder(folder / _MAKING)
        if (folder / name).exists():
            shutil.rmtree(folder / name)
        (folder / _MAKING).rename(folder / name)
        _point(folder, name)

    def tidy(self, dataset_id: str, keep: Sequence[str | None]) -> None:
        """Remove the states of a dataset's table but those to keep; what cannot go now goes after a later one."""
        for each in self.of(dataset_id).iterdir():
            if each.is_dir() and not each.is_symlink() and each.name not in keep:
                shutil.rmtree(each, ignore_errors=True)

    def relink(self) -> None:
        """Have `current` link to the newest state again where that link is gone, or a copy followed it (D11.2).

        What is nothing that sync made, or has anything that the state has not, stays as it is.
        """
        with on_disk(self.path):
            for folder in sorted(self._with_states()):
                _relink(folder)


def damaged(dataset_id: str) -> str:
    """Say that parts of a table cannot be used."""
    return f"the table {dataset_id} has parts that are gone or damaged"


def _relink(folder: Path) -> None:
    current, making = folder / CURRENT, folder / _MAKING
    copied = None if current.is_symlink() else _whole_state(current)
    if copied is not None:
        place = folder / copied.folder
        if not place.exists():
            current.rename(place)
        elif _within(current, place):
            if making.exists():
                shutil.rmtree(making)
            current.rename(making)
    if not current.exists() and (newest := _newest(folder)) is not None:
        _point(folder, newest.folder)
    if making.exists():
        shutil.rmtree(making)


def _within(copy: Path, place: Path) -> bool:
    """Tell whether a folder has all that a copy has."""
    names = [str(each.relative_to(copy)) for each in copy.rglob("*") if not each.is_dir()]
    return filecmp.cmpfiles(copy, place, names, shallow=False)[1:] == ([], [])


def _point(folder: Path, name: str) -> None:
    """Make a state the current one, at once."""
    link = folder / f"{CURRENT}.new"
    if link.is_symlink():
        link.unlink()
    link.symlink_to(name)
    link.rename(folder / CURRENT)
    sync_folder(folder)


def _newest(folder: Path) -> TableState | None:
    """Give the newest of the whole states in a dataset's folder."""
    found = (_whole_state(each.parent) for each in folder.glob(f"v*-*/{_STATE}"))
    return max((each for each in found if each is not None), key=lambda each: each.turn, default=None)


def _whole_state(folder: Path) -> TableState | None:
    with suppress(TargetUnusable):  # a state that cannot be read is none
        return _read_state(folder)
    return None


def _read_state(folder: Path) -> TableState | None:
    """Read a state of a dataset's table; None where there is none."""
    file = folder / _STATE
    if not file.exists():
        return None
    told = _read(file, "use a new folder")
    try:
        info = None if told["info"] is None else DatasetInfo(**told["info"])
        held, turn, place = Held(**told["held"]), told["turn"], folder.resolve().name
        name = place if _NAME.fullmatch(place) else f"v{held.version}-{turn}"
        return TableState(
            held, turn, told["schema"], told["loaded_at"], info, told["previous"], name, told.get("parts", ())
        )
    except (KeyError, TypeError) as error:
        raise _unreadable(file, "use a new folder") from error


def _own(path: Path) -> bool:
    """Tell whether sync makes what is called so: folders of states, and links to them."""
    if path.name in {CURRENT, f"{CURRENT}.new"}:
        return path.is_symlink()
    return (path.name == _MAKING or _NAME.fullmatch(path.name) is not None) and path.is_dir()


def _read(file: Path, otherwise: str) -> dict[str, Any]:
    try:
        told = json.loads(file.read_bytes())
    except (ValueError, IsADirectoryError) as error:
        raise _unreadable(file, otherwise) from error
    if not isinstance(told, dict):
        raise _unreadable(file, otherwise)
    return told


def _unreadable(file: Path, otherwise: str) -> TargetUnusable:
    return TargetUnusable(f"{file} cannot be read: put it back, or {otherwise}.")


def _note(told: Mapping[str, Any]) -> Note:
    held, info = told["held"], told["info"]
    return Note(told["turn"], held and Held(**held), info and DatasetInfo(**info))


def _has_parts(folder: Path, table: TableState) -> bool:
    """Tell whether the parts of a state are there, none of them cut off."""
    paths = [folder / name for name in table.parts] or list(folder.glob("*.parquet"))
    return bool(paths) and all(_ends(each) for each in paths)


def _ends(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(-len(_END), os.SEEK_END)
            return file.read() == _END
    except OSError:  # gone, no file, too short for an end, or not to be read: no part that anyone can use
        return False


def write_synced(path: Path, text: str) -> None:
    """Write a file and have the disk hold it; nothing is left of one that cannot be written whole."""
    try:
        with path.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def sync_file(path: Path) -> None:
    """Have the disk hold a file that was written."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


sync_folder = sync_file
"""Have the disk hold a folder's entries; a folder is opened like a file."""
