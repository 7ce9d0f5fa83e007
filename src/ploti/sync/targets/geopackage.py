"""GeoPackage target: one table per dataset in one SQLite file that QGIS opens (D11.2, D11.9).

Layout, beside what the GeoPackage standard asks for and the tables named by dataset id: `_ploti_sync` (one row:
subscription, cursor, layout) and `_ploti_datasets` (one row per dataset, left ones included).
"""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, Final

from ploti.contract.digest import Digest
from ploti.contract.resources import Schema
from ploti.sync.plan import Held
from ploti.sync.target import (
    DatasetInfo,
    Delivery,
    Moved,
    Reach,
    RowsDiffer,
    Say,
    StepRefused,
    TableSpoilt,
    Target,
    TargetUnusable,
    check_columns,
    check_whole,
    reach_nothing,
)
from ploti.sync.targets import _geopackage_layout as layout
from ploti.sync.targets import _geopackage_rows as rows
from ploti.sync.targets import _geopackage_shape as shapes
from ploti.sync.targets._books import DATASETS, Books, BooksInFile
from ploti.sync.targets._checks import check_applied, check_loaded, check_place, check_snapshot, no_table
from ploti.sync.targets._geopackage_digest import digest_of
from ploti.sync.targets._geopackage_file import GeoPackageFile, rows_of
from ploti.sync.targets._geopackage_history import LayerHistory
from ploti.sync.targets._geopackage_shape import KEY, KEY_RULE, columns_of, kind_of_shapes, shape_of
from ploti.sync.targets._parts import lost_ids, quoted, reading
from ploti.sync.targets._paths import path_in
from ploti.sync.targets._stored import MARKS, Shape, Staged, Stored, backfill_columns, count_marks

_OLDEST_SQLITE: Final = (3, 35)
_STAGING: Final = "_ploti_staging"
_FILLING: Final = "_ploti_filling"
_BOOKS: Final = Books(
    tables="SELECT name FROM sqlite_master WHERE type = 'table'",
    types={
        "key": f"{KEY_RULE}, ",
        "id": "TEXT",
        "text": "TEXT",
        "whole": "INTEGER",
        "instant": "DATETIME",
    },
    moment=layout.instant,
)


def open_target(url: str, reach: Reach, say: Say, *, history: bool = False, table_name: str | None = None) -> Target:
    """Give the target of `sqlite:///file`; one slash more makes the path absolute."""
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise TargetUnusable(f"Python has SQLite {sqlite3.sqlite_version} here, which is too old: use 3.35 or newer.")
    file = GeoPackageFile(path_in(url, "file", "records.gpkg"), say)
    return GeoPackageTarget(file, reach, history=history, table_name=table_name)


@dataclass(frozen=True)
class GeoPackageTarget(BooksInFile):
    """A GeoPackage that follows one subscription; open only while one dataset is worked on."""

    file: GeoPackageFile
    reach: Reach = reach_nothing
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    history: bool = False
    table_name: str | None = None
    books: ClassVar[Books] = _BOOKS

    def load(self, delivery: Delivery, held: Held, info: DatasetInfo | None) -> Moved:
        """Replace a dataset's rows by the snapshot and store `held`, as one transaction.

        The first load fills a table that nobody sees before the end; later ones merge by difference (D11.3).
        """
        with self._step(delivery) as step:
            if step.shape is None:
                with self._transaction(step.db):
                    step.rewrite_ids()
                    moved = _first_load(step)
                    self._write(step, held, moved, info)
                return moved
            with rows.staged(step.db, step.reader, _STAGING, step.columns, delivery.snapshot) as staging:
                self.reach("sync.staged")
                check_snapshot(rows.count_rows(step.db, staging), delivery)
                step.keep_references(by_difference=step.stays(step.shape))
                with self._transaction(step.db):
                    step.rewrite_ids()
                    moved = _reload(step, step.shape, staging)
                    check_loaded(step.table, moved.rows, delivery)
                    self._write(step, held, moved, info)
        return moved

    def apply(self, delivery: Delivery, held: Held) -> Moved:
        """Apply changes, backfill and constants, bring new columns, and store `held`, as one transaction."""
        with self._step(delivery) as step:
            if step.known is None:
                raise no_table(delivery.dataset_id)
            shape = step.shape
            if shape is None or not shape.keyed or not shape.widens_to(step.columns, step.delivered):
                raise RowsDiffer("the table's columns are not those of the version before")
            with _staged_changes(step) as staged:
                self.reach("sync.staged")
                with self._transaction(step.db):
                    moved = _apply(step, shape, staged)
                    self._write(step, held, moved, None)
        return moved

    def mend(self, delivery: Delivery, buckets: Collection[str], volatile: Collection[str]) -> Moved:
        """Put the rows of these buckets right by the loaded version's snapshot, as one transaction (D11.5)."""
        with self._step(delivery) as step:
            shape = step.shape
            check_whole(
                step.table, None if shape is None else shape.columns, {each.column: each.sql for each in step.columns}
            )
            if shape is None or not shape.keyed:
                raise TableSpoilt(f"the index of {step.table} on its record ids is gone")
            compared = {each.name for each in step.columns} - set(volatile)
            with rows.staged(
                step.db, step.reader, _STAGING, step.columns, delivery.snapshot, buckets=buckets
            ) as staging:
                self.reach("sync.staged")
                with self._transaction(step.db):
                    layout.drop_index(step.db, step.table)
                    moved = rows.merge(step.db, step.table, staging, step.columns, compared=compared, buckets=buckets)
                    step.index()
                    step.keep_history(begin=self.history)
                    self.reach("sync.rows_written")
                    _BOOKS.update_dataset(step.db, delivery.dataset_id, {"rows": moved.rows})
        return moved

    def lost_ids(self, delivery: Delivery) -> frozenset[str]:
        """Give the record ids in the user's columns that no record of the snapshot carries, once rewritten."""
        assert delivery.ids_replaced is not None
        with self.file.opened(read_only=True) as db:
            kept = rows.kept_ids(db, delivery.ids_replaced)
        return lost_ids(kept, delivery)

    def record(
        self, subscription_id: str, cursor: str | None, moved: Iterable[Held], last_event: str | None = None
    ) -> None:
        """Store the cursor together with the datasets whose state changed without rows, as one transaction."""
        with self._opened() as db, self._transaction(db):
            for held in moved:
                _BOOKS.write_dataset(db, held, {})
            names = _BOOKS.names(db, self.table_name)
            _BOOKS.write_cursor(db, subscription_id, cursor, last_event, names=names, now=self.now())

    def note(self, infos: Mapping[str, DatasetInfo]) -> None:
        """Store what the API says of datasets that are in the target already."""
        with self._opened() as db, self._transaction(db):
            names = _BOOKS.names(db, None)
            for dataset_id, info in infos.items():
                _BOOKS.update_dataset(db, dataset_id, asdict(info))
                layout.tell(db, names.of(dataset_id), info)

    def digest(self, dataset_id: str, volatile: Iterable[str]) -> Digest:
        """Compute the digest of a table's rows, volatile columns left out (D5.6)."""
        with self.file.opened(read_only=True) as db:
            schema = _BOOKS.loaded_schema(db, dataset_id)
            own = {each["name"] for each in schema["columns"]} - set(volatile)
            table = _BOOKS.names(db, None).of(dataset_id)
            shape = shape_of(db, table)
            check_place(shape, made=True)
            columns = columns_of(schema, shape)
            check_whole(table, None if shape is None else shape.columns, {each.column: each.sql for each in columns})
            return digest_of(db, table, [each for each in columns if each.name in own])

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file for writing, with its layout in place."""
        self.file.path.parent.mkdir(parents=True, exist_ok=True)
        with self.file.opened() as db:
            self.file.log_ahead(db)
            if not _BOOKS.laid_out(db):
                with self.file.transaction(db):
                    layout.make_geopackage(db)
                    _BOOKS.ensure_layout(db)
                    layout.list_table(db, DATASETS, None, self.now())
            self.reach("sync.opened")
            db.execute("PRAGMA foreign_keys = 1")
            yield db

    @contextmanager
    def _step(self, delivery: Delivery) -> Iterator["_Step"]:
        """Open the file for a dataset's step, and look at its table."""
        check_columns(delivery.schema)
        with self._opened() as db, reading(delivery.paths) as reader:
            table = _BOOKS.names(db, self.table_name).of(delivery.dataset_id)
            shape, known = shape_of(db, table), _BOOKS.read_schema(db, delivery.dataset_id)
            check_place(shape, made=known is not None)
            fine = rows.fine_columns(reader, delivery, columns_of(delivery.schema))
            columns = columns_of(delivery.schema, shape, fine)
            before = () if known is None else columns_of(known, shape)
            yield _Step(
                db,
                reader,
                delivery,
                table,
                known,
                shape,
                columns,
                frozenset(each.column for each in before),
                self.now(),
            )

    @contextmanager
    def _transaction(self, db: sqlite3.Connection) -> Iterator[None]:
        with self.file.transaction(db):
            yield
            self.reach("sync.before_commit")
        self.reach("sync.after_commit")

    def _write(self, step: "_Step", held: Held, moved: Moved, info: DatasetInfo | None) -> None:
        layout.note_change(step.db, step.table, step.now)
        if info is not None:
            layout.tell(step.db, step.table, info)
        step.keep_history(begin=self.history)
        self.reach("sync.rows_written")
        loaded = _BOOKS.loaded(step.delivery.schema, step.table, moved.rows, self.now())
        _BOOKS.write_dataset(step.db, held, {**loaded, **({} if info is None else asdict(info))})


@dataclass(frozen=True)
class _Step:
    """What is to be brought into a table, and the table as it is: `delivered` are the columns sent before."""

    db: sqlite3.Connection
    reader: rows.Reader
    delivery: Delivery
    table: str
    known: Schema | None
    shape: Shape | None
    columns: Sequence[Stored]
    delivered: Collection[str]
    now: datetime

    def stays(self, shape: Shape) -> bool:
        """Tell whether the table can be brought to the version without being made anew."""
        return shape.keyed and shape.widens_to(self.columns, self.delivered)

    def keep_references(self, *, by_difference: bool) -> None:
        """Have rows of the user's that refer to records checked: at once, or at the end where the table is remade."""
        self.db.execute(f"PRAGMA foreign_keys = {int(by_difference)}")

    def rewrite_ids(self) -> None:
        """Rewrite ids that the user keeps, where the version's delivery says so."""
        if self.delivery.ids_replaced is not None:
            rows.rewrite_ids(self.db, self.reader, self.delivery.ids_replaced)

    def keep_history(self, *, begin: bool) -> None:
        """Bring the table's history up to date, where it is to `begin` or was begun (D11.5)."""
        history = LayerHistory(self.db, self.table, self.columns, self.delivery.schema)
        history.keep(self.delivery.version, self.now, begin=begin)

    def widen(self, shape: Shape) -> None:
        """Add what the table lacks: columns, and a spatial index of which a user dropped a part."""
        shapes.add_columns(self.db, shape, self.columns, self.delivered)
        self.list()
        if kind_of_shapes(self.columns) is not None and not layout.has_index(self.db, self.table):
            layout.drop_index(self.db, self.table)
            layout.make_index(self.db, self.table, KEY)

    def list(self) -> None:
        """Have readers know the table's kind and columns."""
        if self.shape is None or self.known is None or self.delivery.schema["columns"] != self.known["columns"]:
            layout.list_table(self.db, self.table, kind_of_shapes(self.columns), self.now)
            names = [(each.name, each.column) for each in self.columns]
            layout.describe(self.db, self.table, self.delivery.schema, names)

    def finish(self) -> None:
        """Give a table that was filled its key, its listing, its spatial index and its extent."""
        shapes.key_rows(self.db, self.table)
        self.list()
        self.index()

    def index(self) -> None:
        """Make the spatial index of a table that has none, where it has shapes, and tell its extent."""
        if kind_of_shapes(self.columns) is not None:
            layout.make_index(self.db, self.table, KEY)
            layout.set_extent(self.db, self.table)


def _first_load(step: _Step) -> Moved:
    """Make a table and fill it; its key and spatial index come last."""
    db, table = step.db, quoted(step.table)
    layout.drop_index(db, step.table)
    shapes.create_table(db, step.table, step.columns, {})
    try:
        rows.insert_parts(db, step.reader, table, step.columns, step.delivery.snapshot)
        found = rows.count_rows(db, table)
        check_snapshot(found, step.delivery)
        step.finish()
    except sqlite3.IntegrityError as error:
        rows.check_ids(db, table, "snapshot")
        raise StepRefused("the snapshot has a record without an id: nothing of it was applied") from error
    return Moved(found)


def _reload(step: _Step, shape: Shape, staging: str) -> Moved:
    """Bring an existing table to the staged snapshot: columns first, then rows by difference."""
    if not step.stays(shape):
        return _remake(step, shape, staging)
    step.widen(shape)
    moved = rows.merge(step.db, step.table, staging, step.columns)
    if kind_of_shapes(step.columns) is not None:
        layout.set_extent(step.db, step.table)
    return Moved(moved.rows)


def _remake(step: _Step, shape: Shape, staging: str) -> Moved:
    """Make the table anew where columns went or changed type; what the user built on it comes back, or is named."""
    db, table = step.db, step.table
    wanted = {each.column for each in step.columns}
    own = {n: t for n, t in shape.columns.items() if n not in wanted and n not in step.delivered and n != KEY}
    objects = shapes.users_objects(db, table)
    rows.keep_old(db, table, own)
    layout.drop_index(db, table)
    shapes.check_built(db, table, [n for n in shape.columns if n in step.delivered and n not in wanted])
    db.execute(f"DROP TABLE {quoted(table)}")
    shapes.create_table(db, table, step.columns, own)
    rows.refill(db, table, staging, step.columns, own)
    step.finish()
    shapes.bring_back(db, table, objects)
    return Moved(rows.count_rows(db, quoted(table)))


@contextmanager
def _staged_changes(step: _Step) -> Iterator[Staged]:
    db, delivery = step.db, step.delivery
    changes = filling = None
    counts = (0, 0, 0)
    brought = backfill_columns(step.reader, delivery.backfill, step.columns)
    with ExitStack() as stack:
        if delivery.changes:
            columns = (*step.columns, *MARKS)
            changes = stack.enter_context(rows.staged(db, step.reader, _STAGING, columns, delivery.changes))
            counts = count_marks(lambda query: rows_of(db, query), changes)
        if brought:
            filling = stack.enter_context(rows.staged(db, step.reader, _FILLING, brought, delivery.backfill))
        yield Staged(changes, filling, brought[1:], counts)


def _apply(step: _Step, shape: Shape, staged: Staged) -> Moved:
    """Bring new columns, then changes, backfill and constants; raises RowsDiffer for another number of rows."""
    db = step.db
    step.widen(shape)
    if staged.changes is not None:
        rows.move(db, step.table, staged.changes, step.columns)
    if staged.filling is not None:
        rows.fill(db, step.table, staged.filling, staged.brought)
    rows.set_constants(db, step.table, step.columns, step.delivery.constants)
    found = rows.count_rows(db, quoted(step.table))
    check_applied(found, step.delivery)
    if staged.changes is not None and kind_of_shapes(step.columns) is not None:
        layout.widen_extent(db, step.table, staged.changes)
    return Moved(found, *staged.counts)
