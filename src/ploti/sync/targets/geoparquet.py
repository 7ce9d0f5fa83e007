"""Target that is a folder of GeoParquet: a folder for each dataset, a link to its newest state (D11.1, D11.2).

Layout: `<dataset>/current` is a link to `<dataset>/vVERSION-TURN`, which has the parts and never changes; the state
before stays for readers that are in it. `views.duckdb` has a view for each dataset and the table `_ploti_datasets`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import duckdb

from ploti.contract.digest import Digest
from ploti.sync.plan import Held
from ploti.sync.target import (
    INFO_COLUMNS,
    DatasetInfo,
    DatasetStatus,
    Delivery,
    Moved,
    Reach,
    RowsDiffer,
    Say,
    StepBlocked,
    StepRefused,
    TableNames,
    TableSpoilt,
    Target,
    TargetState,
    TargetUnusable,
    as_found,
    brought_back,
    check_columns,
    check_whole,
    reach_nothing,
)
from ploti.sync.targets._duckdb_digest import digest_of, digest_of_parts
from ploti.sync.targets._folder_books import CURRENT, PAST, Book, Folder, Kept, Note, TableState, damaged
from ploti.sync.targets._folder_history import PartsHistory
from ploti.sync.targets._folder_parts import SMALL_ROWS, Rewriting, differing, stored_types, take_snapshot, types_of
from ploti.sync.targets._folder_trouble import in_step
from ploti.sync.targets._folder_views import Shown, write_views
from ploti.sync.targets._parts import parts_source, quoted, reading
from ploti.sync.targets._paths import path_in
from ploti.sync.targets._run_lock import run_lock

_LEAST_MB: Final = 512
_OTHERWISE: Final = "put copies of them back, or move that folder away, so that the history begins anew"


def open_target(url: str, reach: Reach, say: Say, *, history: bool = False, table_name: str | None = None) -> Target:
    """Give the target of `parquet:///folder`; one slash more makes the path absolute."""
    del say
    return ParquetTarget(Folder(path_in(url, "folder", "records")), reach, history=history, table_name=table_name)


@dataclass(frozen=True)
class ParquetTarget:
    """A folder that follows one subscription."""

    folder: Folder
    reach: Reach = reach_nothing
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    small_rows: int = SMALL_ROWS
    history: bool = False
    table_name: str | None = None
    shown: Shown = field(default_factory=Shown, compare=False, repr=False)

    @property
    def downloads(self) -> Path:
        """Folder inside it for parts on their way, so that they need not be copied."""
        return self.folder.path / "_ploti_downloads"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other syncs away for a whole run; raises TargetBusy naming the one that is running."""
        with run_lock(self.folder.path / "_ploti.lock", self.folder.path):
            self.folder.relink()
            self.shown.states, self.shown.in_run = {}, True
            try:
                yield
            except BaseException:
                if self.shown.moved:
                    with suppress(TargetUnusable):  # what ended the run is told, not this
                        self._show()
                raise
            finally:
                self.shown.in_run = False
            self._show()
            self._note_all()

    def state(self) -> TargetState:
        """Read subscription, cursor and what is held."""
        book = self.folder.read_book()
        self._names(book)
        known = self.folder.read_all(book)
        held = {name: kept.held for name, kept in known.items()}
        lost = {name: kept.lost for name, kept in known.items() if kept.lost is not None}
        return TargetState(book.subscription_id, book.cursor, held, book.last_event, lost)

    def load(self, delivery: Delivery, held: Held, info: DatasetInfo | None) -> Moved:
        """Make the snapshot's parts the current state, with `held`, at once."""
        check_columns(delivery.schema)
        if delivery.ids_replaced is not None:
            raise _no_tables()
        kept = self._kept(delivery.dataset_id)
        with self._making(delivery, kept, None) as (reader, making, turn):
            moved = take_snapshot(reader, delivery, making, turn)
            self.reach("sync.staged")
            self._keep_history(reader, delivery, making, turn)
            self._finish(delivery, kept, held, moved, info or kept.info)
        return moved

    def apply(self, delivery: Delivery, held: Held) -> Moved:
        """Make a state of parts that stay and parts written anew the current one, with `held`, at once."""
        check_columns(delivery.schema)
        kept, parts = self._kept(delivery.dataset_id), self.folder.parts(delivery.dataset_id)
        if kept.table is None or kept.lost:
            raise RowsDiffer(kept.lost or "the table is not there any more")
        with self._making(delivery, kept, RowsDiffer(damaged(kept.dataset_id))) as (reader, making, turn):
            moved = Rewriting(reader, delivery, parts, making, turn, self.small_rows).apply()
            self.reach("sync.staged")
            self._keep_history(reader, delivery, making, turn)
            self._finish(delivery, kept, held, moved, kept.info)
        return moved

    def mend(self, delivery: Delivery, buckets: Collection[str], volatile: Collection[str]) -> Moved:
        """Make the loaded version's snapshot the current state again, and count what was wrong (D11.5)."""
        del buckets
        kept, parts = self._kept(delivery.dataset_id), self.folder.parts(delivery.dataset_id)
        if kept.table is None or kept.lost:
            raise TableSpoilt(kept.lost or "the table is not there any more")
        compared = [column["name"] for column in delivery.schema["columns"] if column["name"] not in volatile]
        with self._making(delivery, kept, TableSpoilt(damaged(kept.dataset_id))) as (reader, making, turn):
            taken = take_snapshot(reader, delivery, making, turn)
            self._keep_history(reader, delivery, making, turn)
            counts = differing(reader, parts, sorted(making.glob("*.parquet")), compared)
            self._finish(delivery, kept, kept.table.held, taken, kept.info)
        return Moved(taken.rows, *counts)

    def lost_ids(self, delivery: Delivery) -> frozenset[str]:
        """Raise StepBlocked: there are no columns of the user's here."""
        del delivery
        raise _no_tables()

    def record(
        self, subscription_id: str, cursor: str | None, moved: Iterable[Held], last_event: str | None = None
    ) -> None:
        """Store the cursor together with the datasets whose state changed without rows, at once."""
        book = self.folder.read_book()
        self.reach("sync.opened")
        notes = self._notes(book)
        for held in moved:
            notes[held.dataset_id] = replace(notes.get(held.dataset_id) or Note(0), held=held)
        self.reach("sync.before_commit")
        self._write(Book(subscription_id, cursor, last_event, self._names(book).scheme, notes))
        self.reach("sync.after_commit")

    def infos(self) -> Mapping[str, DatasetInfo]:
        """Give what is stored of what the API says, by dataset."""
        known = self.folder.read_all(self.folder.read_book())
        nothing = DatasetInfo(*(None for _ in INFO_COLUMNS))
        return {name: kept.info or nothing for name, kept in known.items()}

    def note(self, infos: Mapping[str, DatasetInfo]) -> None:
        """Store what the API says of datasets that are in the folder already."""
        book = self.folder.read_book()
        notes = self._notes(book)
        self._write(replace(book, notes=notes | {name: replace(notes[name], info=infos[name]) for name in infos}))

    def digest(self, dataset_id: str, volatile: Iterable[str]) -> Digest:
        """Compute the digest of a table's rows, volatile columns left out (D5.6)."""
        kept, parts = self._kept(dataset_id), self.folder.parts(dataset_id)
        if kept.lost is not None:
            raise TableSpoilt(brought_back(kept.lost))
        table = kept.table
        if table is None:
            raise StepRefused("no rows were loaded yet")
        spoilt = TableSpoilt(brought_back(damaged(dataset_id)))
        with (
            in_step(self.folder.of(dataset_id), spoilt),
            reading(parts, least_mb=_LEAST_MB, spill=self.downloads) as reader,
        ):
            stored = stored_types(table.schema)
            check_whole(dataset_id, types_of(reader, parts), stored)
            reader.execute(f"CREATE TEMP VIEW {quoted(dataset_id)} AS SELECT * FROM {parts_source(parts)}")
            left_out = set(volatile)
            own = {each["name"]: each["type"] for each in table.schema["columns"] if each["name"] not in left_out}
            return digest_of(reader, dataset_id, own)

    def snapshot_digest(self, delivery: Delivery, volatile: Iterable[str]) -> Digest:
        """Compute the digest of a snapshot's own columns without volatile ones."""
        return digest_of_parts(delivery, volatile)

    def status(self) -> list[DatasetStatus]:
        """List the datasets by id."""
        known = self.folder.read_all(self.folder.read_book())
        return [_status(kept) for _, kept in sorted(known.items())]

    def _kept(self, dataset_id: str) -> Kept:
        return self.folder.read_one(self.folder.read_book(), dataset_id)

    def _names(self, book: Book) -> TableNames:
        return TableNames.kept(book.table_names, self.table_name)

    def _notes(self, book: Book) -> dict[str, Note]:
        """Give a note of every dataset, so that a state which is lost later is missed."""
        return {name: kept.noted for name, kept in self.folder.read_all(book).items()}

    def _note_all(self) -> None:
        """Note states that came without the cursor moving, as by a repair."""
        book = self.folder.read_book()
        notes = self._notes(book)
        if any(name not in book.notes or book.notes[name].turn < note.turn for name, note in notes.items()):
            self._write(replace(book, notes=notes))

    def _write(self, book: Book) -> None:
        self.folder.write_book(book, self.now().isoformat(timespec="milliseconds"))

    @contextmanager
    def _making(
        self, delivery: Delivery, kept: Kept, unreadable: StepRefused | None
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path, int]]:
        """Begin a state of a dataset's table, and read files; raises `unreadable` for parts of the last one."""
        with in_step(self.folder.of(delivery.dataset_id), unreadable):
            making = self.folder.begin(delivery.dataset_id)
            self.reach("sync.opened")
            here = [] if unreadable is None else self.folder.parts(delivery.dataset_id)
            with reading((*delivery.paths, *here), least_mb=_LEAST_MB, spill=self.downloads) as reader:
                yield reader, making, kept.turn + 1

    def _keep_history(self, reader: duckdb.DuckDBPyConnection, delivery: Delivery, making: Path, turn: int) -> None:
        """Bring the table's history up to date, where one is asked for or was begun (D11.5)."""
        before, table = self.folder.past(delivery.dataset_id), sorted(making.glob("*.parquet"))
        if before or self.history:
            history = PartsHistory(reader, delivery.schema, table, before, making, turn, self.small_rows)
            folder = self.folder.of(delivery.dataset_id)
            with in_step(folder, StepBlocked(f"parts in {folder / CURRENT / PAST} are damaged: {_OTHERWISE}")):
                history.keep(delivery.version, self.now())

    def _finish(self, delivery: Delivery, kept: Kept, held: Held, moved: Moved, info: DatasetInfo | None) -> None:
        self.reach("sync.rows_written")
        previous, turn = None if kept.table is None else kept.table.folder, kept.turn + 1
        state = TableState(
            replace(held, rows=moved.rows), turn, delivery.schema, self.now().isoformat(timespec="seconds"), info,
            previous, f"v{held.version}-{turn}",
        )  # fmt: skip
        self.reach("sync.before_commit")
        self.folder.finish(delivery.dataset_id, state)
        self.reach("sync.after_commit")
        if not self.shown.may_wait(delivery.dataset_id, previous):
            self._show()
        self.folder.tidy(delivery.dataset_id, [state.folder, previous])

    def _show(self) -> None:
        """Bring the views up to date with the folder."""
        book = self.folder.read_book()
        known, names = self.folder.read_all(book), self._names(book)
        views = {}
        for name in (name for name, kept in known.items() if kept.table is not None):
            views[f"{names.of(name)}_history"] = self.folder.past(name)
        for name in (name for name, kept in known.items() if kept.table is not None):
            views[names.of(name)] = self.folder.parts(name)
        write_views(self.folder.path, known, views)
        self.shown.note(known)


def _status(kept: Kept) -> DatasetStatus:
    title, place = (None, None) if kept.info is None else (kept.info.title, kept.info.place_id)
    loaded_at = None if kept.table is None else kept.table.loaded_at
    return DatasetStatus(as_found(kept.held, kept.lost), title, place, loaded_at)


def _no_tables() -> StepBlocked:
    return StepBlocked("a folder has no tables of yours to rewrite ids in: leave --rewrite-ids out")
