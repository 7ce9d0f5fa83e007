"""DuckDB target: one table per dataset in one file, rows and position in one transaction (D11.2, D11.9).

Layout, beside the tables named by dataset id and the views `<dataset>_geo`:
`_ploti_sync` (one row: subscription, cursor, layout) and `_ploti_datasets` (one row per dataset, left ones included).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import duckdb

from ploti.contract.digest import Digest
from ploti.contract.values import STORAGE_TYPES
from ploti.sync.plan import Held
from ploti.sync.target import (
    DatasetInfo,
    Delivery,
    Moved,
    Reach,
    Say,
    Target,
    check_columns,
    check_whole,
    reach_nothing,
)
from ploti.sync.targets._books import Books, BooksInFile
from ploti.sync.targets._checks import check_place, no_table
from ploti.sync.targets._duckdb_digest import digest_of
from ploti.sync.targets._duckdb_file import DuckFile, quoted
from ploti.sync.targets._duckdb_rows import (
    apply_changes,
    kept_ids,
    mend_rows,
    replace_rows,
    rewrite_ids,
    wanted_columns,
)
from ploti.sync.targets._duckdb_shape import kept_apart, shape_of
from ploti.sync.targets._history import History, Past, counted
from ploti.sync.targets._parts import lost_ids
from ploti.sync.targets._paths import path_in

_BOOKS: Final = Books(
    tables="SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()",
    types={"key": "", "id": "VARCHAR", "text": "VARCHAR", "whole": "BIGINT", "instant": "TIMESTAMP WITH TIME ZONE"},
)


def open_target(url: str, reach: Reach, say: Say, *, history: bool = False, table_name: str | None = None) -> Target:
    """Give the target of `duckdb:///file`; one slash more makes the path absolute."""
    return DuckTarget(
        DuckFile(path_in(url, "file", "records.duckdb"), say), reach, history=history, table_name=table_name
    )


@dataclass(frozen=True)
class DuckTarget(BooksInFile):
    """A DuckDB file that follows one subscription; open only while one dataset is worked on."""

    file: DuckFile
    reach: Reach = reach_nothing
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    history: bool = False
    table_name: str | None = None
    books: ClassVar[Books] = _BOOKS

    def load(self, delivery: Delivery, held: Held, info: DatasetInfo | None) -> Moved:
        """Replace a dataset's rows by the snapshot and store `held`, as one transaction."""
        check_columns(delivery.schema)
        with self._step(delivery) as db:
            delivery = self._named(db, delivery)
            known = _BOOKS.read_schema(db, delivery.dataset_id)
            moved = replace_rows(db, delivery, known)
            if delivery.ids_replaced is not None:
                rewrite_ids(db, delivery.ids_replaced)
            self._keep_history(db, delivery)
            self.reach("sync.rows_written")
            _BOOKS.write_dataset(
                db, held, {**_BOOKS.loaded(delivery.schema, delivery.table, moved.rows, self.now()), **_told(info)}
            )
        return moved

    def apply(self, delivery: Delivery, held: Held) -> Moved:
        """Apply changes, backfill and constants, bring new columns, and store `held`, as one transaction."""
        check_columns(delivery.schema)
        with self._step(delivery) as db:
            delivery = self._named(db, delivery)
            known = _BOOKS.read_schema(db, delivery.dataset_id)
            if known is None:
                raise no_table(delivery.dataset_id)
            moved = apply_changes(db, delivery, known)
            self._keep_history(db, delivery)
            self.reach("sync.rows_written")
            _BOOKS.write_dataset(db, held, _BOOKS.loaded(delivery.schema, delivery.table, moved.rows, self.now()))
        return moved

    def mend(self, delivery: Delivery, buckets: Collection[str], volatile: Collection[str]) -> Moved:
        """Put the rows of these buckets right by the loaded version's snapshot, as one transaction (D11.5)."""
        check_columns(delivery.schema)
        with self._step(delivery) as db:
            delivery = self._named(db, delivery)
            moved = mend_rows(db, delivery, buckets, volatile)
            self._keep_history(db, delivery)
            self.reach("sync.rows_written")
            _BOOKS.update_dataset(db, delivery.dataset_id, {"rows": moved.rows})
        return moved

    def lost_ids(self, delivery: Delivery) -> frozenset[str]:
        """Give the record ids in the user's columns that no record of the snapshot carries, once rewritten."""
        assert delivery.ids_replaced is not None
        with self.file.opened(read_only=True) as db:
            kept = kept_ids(db, delivery.ids_replaced)
        return lost_ids(kept, delivery)

    def record(
        self, subscription_id: str, cursor: str | None, moved: Iterable[Held], last_event: str | None = None
    ) -> None:
        """Store the cursor together with the datasets whose state changed without rows, as one transaction."""
        with self.file.opened() as db, self._transaction(db):
            for held in moved:
                _BOOKS.write_dataset(db, held, {})
            names = _BOOKS.names(db, self.table_name)
            _BOOKS.write_cursor(db, subscription_id, cursor, last_event, names=names, now=self.now())

    def note(self, infos: Mapping[str, DatasetInfo]) -> None:
        """Store what the API says of datasets that are in the target already."""
        with self.file.opened() as db, self._transaction(db):
            for dataset_id, info in infos.items():
                _BOOKS.update_dataset(db, dataset_id, asdict(info))

    def digest(self, dataset_id: str, volatile: Iterable[str]) -> Digest:
        """Compute the digest of a table's rows, volatile columns left out (D5.6)."""
        with self.file.opened(read_only=True) as db:
            schema = _BOOKS.loaded_schema(db, dataset_id)
            left_out = set(volatile)
            types = {each["name"]: each["type"] for each in schema["columns"] if each["name"] not in left_out}
            stored = {name: STORAGE_TYPES[type_].duckdb for name, type_ in wanted_columns(schema).items()}
            table = _BOOKS.names(db, None).of(dataset_id)
            shape = shape_of(db, table)
            check_place(shape, made=True)
            check_whole(table, None if shape is None else shape.columns, stored)
            return digest_of(db, table, types)

    def _named(self, db: duckdb.DuckDBPyConnection, delivery: Delivery) -> Delivery:
        return replace(delivery, table=_BOOKS.names(db, self.table_name).of(delivery.dataset_id))

    def _keep_history(self, db: duckdb.DuckDBPyConnection, delivery: Delivery) -> None:
        """Bring the table's history up to date, where one is asked for or was begun (D11.5)."""
        name = f"{delivery.table}_history"
        found = shape_of(db, name)
        if found is None and not self.history:
            return
        own = counted(delivery.schema)
        types = wanted_columns(delivery.schema)
        columns = [
            Past(each, STORAGE_TYPES[type_].duckdb, STORAGE_TYPES[type_].duckdb, counts=each in own)
            for each, type_ in types.items()
        ]
        history = History(quoted(delivery.table), quoted(name), None if found is None else found.columns, db.execute)
        history.keep(columns, delivery.version, self.now())

    @contextmanager
    def _step(self, delivery: Delivery) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open the file for a dataset's step, as one transaction."""
        with self.file.opened() as db:
            try:
                with self._transaction(db):
                    yield db
            except duckdb.Error as error:
                if (blocked := kept_apart(db, self._named(db, delivery).table, error)) is not None:
                    raise blocked from error
                raise

    @contextmanager
    def _transaction(self, db: duckdb.DuckDBPyConnection) -> Iterator[None]:
        _BOOKS.ensure_layout(db)
        self.reach("sync.opened")
        db.execute("BEGIN")
        try:
            yield
            self.reach("sync.before_commit")
            db.execute("COMMIT")
        except BaseException:
            with _ended():
                db.execute("ROLLBACK")
            raise
        self.reach("sync.after_commit")


def _told(info: DatasetInfo | None) -> dict[str, Any]:
    return {} if info is None else asdict(info)


@contextmanager
def _ended() -> Iterator[None]:
    """Allow for a transaction that DuckDB ended by itself when its commit failed."""
    try:
        yield
    except duckdb.TransactionException:
        return
