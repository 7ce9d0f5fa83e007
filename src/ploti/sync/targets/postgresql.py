"""PostgreSQL target: one table per dataset in one schema, rows and position in one transaction (D11.2, D11.3).

Layout, beside the tables named by dataset id, each with `_ploti_record_id` as primary key:
`_ploti_sync` (one row: subscription, cursor, layout) and `_ploti_datasets` (one row per dataset, left ones included).
While a dataset is brought in there are also `_ploti_staging_*` tables; what a killed run left of them, the next drops.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from ploti.contract.digest import Digest
from ploti.contract.files import RECORD_ID
from ploti.contract.resources import Schema
from ploti.sync.plan import Held
from ploti.sync.target import (
    DatasetInfo,
    DatasetStatus,
    Delivery,
    Moved,
    Reach,
    RowsDiffer,
    Say,
    TableSpoilt,
    Target,
    TargetState,
    TargetUnusable,
    check_columns,
    check_whole,
    reach_nothing,
)
from ploti.sync.targets import _postgresql_rows as rows
from ploti.sync.targets._books import Books
from ploti.sync.targets._checks import check_applied, check_loaded, check_place, check_snapshot, no_table
from ploti.sync.targets._duckdb_digest import digest_of_parts
from ploti.sync.targets._history import History, Past, counted
from ploti.sync.targets._parts import lost_ids, reading
from ploti.sync.targets._postgresql_books import books_of, ensure_layout
from ploti.sync.targets._postgresql_digest import digest_of
from ploti.sync.targets._postgresql_session import Server, Session, explained, quoted
from ploti.sync.targets._postgresql_shape import (
    bring_shape,
    columns_of,
    declared,
    describe,
    exact,
    fitted,
    shape_of,
)
from ploti.sync.targets._stored import MARKS, Shape, Staged, Stored, backfill_columns, count_marks

_EXAMPLE: Final = "postgresql://user@host/database?schema=feeds"


def open_target(url: str, reach: Reach, say: Say, *, history: bool = False, table_name: str | None = None) -> Target:
    """Give the target of `postgresql://user@host/database?schema=NAME`; the rest of the address is libpq's."""
    address, _, query = url.partition("?")
    options = [option for option in query.split("&") if option]
    named = [unquote(option.removeprefix("schema=")) for option in options if option.startswith("schema=")]
    if len(named) > 1 or any(not name or "%" in name or "\0" in name or len(name.encode()) > 63 for name in named):
        raise TargetUnusable(f"The address names no schema that could be. Write one like {_EXAMPLE}")
    rest = "&".join(option for option in options if not option.startswith("schema="))
    return PostgresTarget(
        Server(f"{address}?{rest}" if rest else address, named[0] if named else None, say), reach, history=history,
        table_name=table_name,
    )  # fmt: skip


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ploti" / "sync"


@dataclass
class PostgresTarget:
    """A schema that follows one subscription; all work of a locked run goes over the session that holds the lock."""

    server: Server
    reach: Reach = reach_nothing
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    history: bool = False
    table_name: str | None = None
    _held: Session | None = None

    @property
    def downloads(self) -> Path:
        """Folder in the user's cache for parts on their way into this database."""
        told = f"{self.server.conninfo} {self.server.schema}"
        return _cache() / sha256(told.encode()).hexdigest()[:16]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other syncs away for a whole run; raises TargetBusy naming the one that is running."""
        with explained(), self.server.session() as session, session.locked():
            self._held = session
            try:
                yield
            finally:
                self._held = None

    def state(self) -> TargetState:
        """Read subscription, cursor and what is held."""
        with self._session() as session:
            return books_of(session).read_state(session, self.table_name)

    def load(self, delivery: Delivery, held: Held, info: DatasetInfo | None) -> Moved:
        """Replace a dataset's rows by the snapshot and store `held`, as one transaction.

        The first load fills a table that nobody sees and names it at the end; later ones merge by difference (D11.3).
        """
        told = {} if info is None else asdict(info)
        with self._step(delivery) as step:
            name, session = rows.staging_name(delivery.dataset_id), step.session
            with rows.staged(session, name, step.columns, delivery.snapshot, logged=step.shape is None) as staging:
                check_snapshot(rows.count_rows(session, name), delivery)
                if step.shape is None:
                    rows.finish_first(session, name, step.table, step.columns)
                    describe(session, name, delivery.schema, step.columns)
                    rows.analyze_new(session, staging, len(step.columns))
                else:
                    rows.analyze_staged(session, staging)
                self.reach("sync.staged")
                with self._transaction(session):
                    if delivery.ids_replaced is not None:
                        rows.rewrite_ids(session, delivery.ids_replaced)
                    if step.shape is None:
                        session.run(f"ALTER TABLE {staging} RENAME TO {quoted(step.table)}")
                    else:
                        _reload(step, step.shape, staging)
                    moved = Moved(delivery.row_count)
                    self._keep_history(step)
                    self._write(step, held, moved, told)
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
                with self._transaction(step.session):
                    moved = _apply(step, shape, staged)
                    self._keep_history(step)
                    self._write(step, held, moved, {})
        return moved

    def mend(self, delivery: Delivery, buckets: Collection[str], volatile: Collection[str]) -> Moved:
        """Put the rows of these buckets right by the loaded version's snapshot, as one transaction (D11.5)."""
        with self._step(delivery) as step:
            shape, session = step.shape, step.session
            check_whole(
                step.table, None if shape is None else shape.columns, {each.column: each.sql for each in step.columns}
            )
            if shape is None or not shape.keyed:
                raise TableSpoilt(f"the primary key of {step.table} is gone")
            compared = {each.name for each in step.columns} - set(volatile)
            name = rows.staging_name(delivery.dataset_id)
            with rows.staged(session, name, step.columns, delivery.snapshot, buckets=buckets) as staging:
                rows.check_ids(session, staging, "snapshot")
                self.reach("sync.staged")
                with self._transaction(session):
                    moved = rows.merge(session, step.table, staging, step.columns, compared=compared, buckets=buckets)
                    self._keep_history(step)
                    self.reach("sync.rows_written")
                    step.books.update_dataset(session, delivery.dataset_id, {"rows": moved.rows})
        return moved

    def lost_ids(self, delivery: Delivery) -> frozenset[str]:
        """Give the record ids in the user's columns that no record of the snapshot carries, once rewritten."""
        assert delivery.ids_replaced is not None
        with self._session() as session:
            kept = rows.kept_ids(session, delivery.ids_replaced)
        return lost_ids(kept, delivery)

    def record(
        self, subscription_id: str, cursor: str | None, moved: Iterable[Held], last_event: str | None = None
    ) -> None:
        """Store the cursor together with the datasets whose state changed without rows, as one transaction."""
        with self._session() as session:
            books = ensure_layout(session)
            self.reach("sync.opened")
            names = books.names(session, self.table_name)
            with self._transaction(session):
                for held in moved:
                    books.write_dataset(session, held, {"table_name": fitted(names.of(held.dataset_id))})
                books.write_cursor(session, subscription_id, cursor, last_event, names=names, now=self.now())

    def infos(self) -> Mapping[str, DatasetInfo]:
        """Give what is stored of what the API says, by dataset."""
        with self._session() as session:
            return books_of(session).read_infos(session)

    def note(self, infos: Mapping[str, DatasetInfo]) -> None:
        """Store what the API says of datasets that are in the target already."""
        with self._session() as session, self._transaction(session):
            books = books_of(session)
            for dataset_id, info in infos.items():
                books.update_dataset(session, dataset_id, asdict(info))

    def digest(self, dataset_id: str, volatile: Iterable[str]) -> Digest:
        """Compute the digest of a table's rows, volatile columns left out (D5.6)."""
        with self._session() as session:
            books = books_of(session)
            schema = books.loaded_schema(session, dataset_id)
            table, left_out = fitted(books.names(session, None).of(dataset_id)), set(volatile)
            own = {each["name"] for each in schema["columns"]} - left_out
            shape = shape_of(session, table)
            check_place(shape, made=True)
            columns = columns_of(session, schema, shape)
            check_whole(table, None if shape is None else shape.columns, {each.column: each.sql for each in columns})
            with session.patient(table):
                return digest_of(session, table, [each for each in columns if each.name in own])

    def snapshot_digest(self, delivery: Delivery, volatile: Iterable[str]) -> Digest:
        """Compute the digest of a snapshot's own columns without volatile ones."""
        return digest_of_parts(delivery, volatile)

    def status(self) -> list[DatasetStatus]:
        """List the datasets by id."""
        with self._session() as session:
            return books_of(session).read_status(session)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with explained():
            if self._held is not None:
                with self._held.patient():
                    yield self._held
                return
            with self.server.session() as session, session.patient():
                yield session

    @contextmanager
    def _step(self, delivery: Delivery) -> Iterator["_Step"]:
        """Open a session for a dataset's step, and look at its table."""
        check_columns(delivery.schema)
        with self._session() as session:
            table = fitted(books_of(session).names(session, self.table_name).of(delivery.dataset_id))
            with explained(table), session.patient(table):
                books = ensure_layout(session)
                self.reach("sync.opened")
                shape = shape_of(session, table)
                known = books.read_schema(session, delivery.dataset_id)
                check_place(shape, made=known is not None)
                columns = columns_of(session, delivery.schema, shape)
                before = () if known is None else columns_of(session, known, shape)
                delivered = frozenset(each.column for each in before)
                yield _Step(session, books, delivery, table, known, shape, columns, delivered)

    @contextmanager
    def _transaction(self, session: Session) -> Iterator[None]:
        with session.transaction():
            yield
            self.reach("sync.before_commit")
        self.reach("sync.after_commit")

    def _keep_history(self, step: "_Step") -> None:
        """Bring the table's history up to date, where one is asked for or was begun (D11.5)."""
        session, name = step.session, fitted(step.table, "_history")
        found = shape_of(session, name)
        if found is None and not self.history:
            return
        own = counted(step.delivery.schema)
        columns = [
            Past(each.column, each.sql, declared(session, each), exact(each), each.name in own) for each in step.columns
        ]
        history = History(
            session.table(step.table), session.table(name), None if found is None else found.columns, session.run
        )
        history.keep(columns, step.delivery.version, self.now())
        if found is None:
            session.run(f"CREATE INDEX ON {session.table(name)} ({quoted(RECORD_ID)})")

    def _write(self, step: "_Step", held: Held, moved: Moved, more: Mapping[str, Any]) -> None:
        self.reach("sync.rows_written")
        loaded = step.books.loaded(step.delivery.schema, step.table, moved.rows, self.now())
        step.books.write_dataset(step.session, held, {**loaded, **more})


@dataclass(frozen=True)
class _Step:
    """What is to be brought into a table, and the table as it is: `delivered` are the columns sent before."""

    session: Session
    books: Books
    delivery: Delivery
    table: str
    known: Schema | None
    shape: Shape | None
    columns: Sequence[Stored]
    delivered: Collection[str]

    def bring_shape(self, shape: Shape) -> None:
        """Make the table's columns those of the version, comments included."""
        bring_shape(self.session, shape, self.columns, self.delivered)
        if self.known is None or self.delivery.schema["columns"] != self.known["columns"]:
            describe(self.session, self.table, self.delivery.schema, self.columns)


def _reload(step: _Step, shape: Shape, staging: str) -> None:
    """Bring an existing table to the staged snapshot: columns first, then rows by difference."""
    step.bring_shape(shape)
    change = rows.merge if shape.keyed else rows.replace_all
    moved = change(step.session, step.table, staging, step.columns)
    if moved.rows != step.delivery.row_count:
        rows.check_ids(step.session, staging, "snapshot")
    check_loaded(step.table, moved.rows, step.delivery)
    if not shape.keyed:
        rows.add_key(step.session, step.table, step.table)


@contextmanager
def _staged_changes(step: _Step) -> Iterator[Staged]:
    session, delivery = step.session, step.delivery
    changes = filling = None
    counts = (0, 0, 0)
    with reading(delivery.backfill) as reader:
        brought = backfill_columns(reader, delivery.backfill, step.columns)
    with ExitStack() as stack:
        if delivery.changes:
            name = rows.staging_name(delivery.dataset_id)
            changes = stack.enter_context(rows.staged(session, name, (*step.columns, *MARKS), delivery.changes))
            counts = count_marks(session.rows, changes)
            rows.check_ids(session, changes, "changes file")
            rows.analyze_staged(session, changes)
        if brought:
            name = rows.staging_name(delivery.dataset_id, "_fill")
            filling = stack.enter_context(rows.staged(session, name, brought, delivery.backfill))
            rows.check_ids(session, filling, "backfill")
            rows.analyze_staged(session, filling)
        yield Staged(changes, filling, brought[1:], counts)


def _apply(step: _Step, shape: Shape, staged: Staged) -> Moved:
    """Bring new columns, then changes, backfill and constants; raises RowsDiffer for another number of rows."""
    session = step.session
    step.bring_shape(shape)
    if staged.changes is not None:
        rows.move(session, step.table, staged.changes, step.columns)
    if staged.filling is not None:
        rows.fill(session, step.table, staged.filling, staged.brought)
    rows.set_constants(session, step.table, step.columns, step.delivery.constants)
    found = rows.count_rows(session, step.table)
    check_applied(found, step.delivery)
    return Moved(found, *staged.counts)
