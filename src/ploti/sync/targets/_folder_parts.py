"""Parts of a dataset's table in a folder: taken as delivered, and rewritten where changes touch them (D5.8).

A part never changes: a state's folder links the parts that stay and has new ones for the others.
"""

import json
import os
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from ploti.contract.files import CHANGE, ENVELOPE, GEOMETRY, OP, RECORD_ID
from ploti.contract.resources import Schema
from ploti.contract.values import STORAGE_TYPES, ColumnType
from ploti.sync.target import Delivery, Moved, RowsDiffer, StepRefused
from ploti.sync.targets._folder_books import sync_file
from ploti.sync.targets._parts import check_file_columns, file_columns, literal, parts_source, quoted

_ID: Final = quoted(RECORD_ID)
SMALL_ROWS: Final = 50_000
"""Parts below this are put together with what a version brings, so that their number stays small."""
_GROUP_ROWS: Final = 50_000


def wanted_types(schema: Schema) -> dict[str, ColumnType]:
    """Give the columns of a dataset's table: the envelope, then the dataset's own."""
    return {**ENVELOPE, **{column["name"]: column["type"] for column in schema["columns"]}}


def stored_types(schema: Schema) -> dict[str, str]:
    """Give the same with DuckDB's names of types."""
    return {name: STORAGE_TYPES[type_].duckdb for name, type_ in wanted_types(schema).items()}


def types_of(reader: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> dict[str, str]:
    """Give the columns of parts with DuckDB's names of types."""
    return {row[0]: row[1] for row in reader.execute(f"DESCRIBE SELECT * FROM {parts_source(paths)}").fetchall()}


def count_rows(reader: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> int:
    """Count the rows of parts."""
    if not paths:
        return 0
    return int(reader.execute(f"SELECT count(*) FROM {parts_source(paths)}").fetchall()[0][0])


def rows_in(reader: duckdb.DuckDBPyConnection, part: Path) -> int:
    """Give how many rows a part says that it has."""
    found = reader.execute(f"SELECT num_rows FROM parquet_file_metadata({literal(str(part))})").fetchall()
    return int(found[0][0])


def take_snapshot(reader: duckdb.DuckDBPyConnection, delivery: Delivery, making: Path, turn: int) -> Moved:
    """Take a snapshot's parts as they are; raises StepRefused where they are not what the version says."""
    stored = stored_types(delivery.schema)
    if not delivery.snapshot:
        empty = ", ".join(f"CAST(NULL AS {type_}) AS {quoted(name)}" for name, type_ in stored.items())
        write_part(reader, f"SELECT {empty} LIMIT 0", making / part_name(turn, 0), None)
        rows = 0
    else:
        check_file_columns(reader, delivery.snapshot, stored)
        found = types_of(reader, delivery.snapshot)
        if wrong := [name for name, type_ in stored.items() if found[name] != type_]:
            raise StepRefused(f"the files have {wrong[0]!r} as {found[wrong[0]]} instead of {stored[wrong[0]]}")
        rows = count_rows(reader, delivery.snapshot)
        check_ids(reader, parts_source(delivery.snapshot), "snapshot")
        for at, path in enumerate(delivery.snapshot):
            if delivery.left_out:
                names = ", ".join(quoted(name) for name in stored)
                geo = geo_of(reader, path) if GEOMETRY in stored else None
                write_part(reader, f"SELECT {names} FROM {parts_source([path])}", making / part_name(turn, at), geo)
                continue
            link(path, making / part_name(turn, at))
            sync_file(making / part_name(turn, at))
    if rows != delivery.row_count:
        raise StepRefused(f"the snapshot has {rows} rows where {delivery.row_count} are announced")
    return Moved(rows)


def check_ids(reader: duckdb.DuckDBPyConnection, source: str, where: str) -> None:
    """Refuse record ids that are null or there twice (D5.5)."""
    found = reader.execute(
        f"SELECT {_ID}, count(*) FROM {source} GROUP BY 1 HAVING count(*) > 1 OR {_ID} IS NULL ORDER BY 1 LIMIT 1"
    ).fetchall()
    if found:
        record_id, times = found[0]
        what = "a record without an id" if record_id is None else f"record {record_id} {times} times"
        raise StepRefused(f"the {where} has {what}: nothing of it was applied")


@dataclass
class Rewriting:
    """A version's changes on their way into new parts."""

    reader: duckdb.DuckDBPyConnection
    delivery: Delivery
    parts: Sequence[Path]
    making: Path
    turn: int
    small_rows: int = SMALL_ROWS
    written: int = 0
    new: Collection[str] = ()
    filled: Collection[str] = ()

    def apply(self) -> Moved:
        """Write the next state's parts; raises RowsDiffer where a reload is the way on."""
        counts = self._take_marks()
        columns = self._columns()
        whole = self._prepare(columns)
        rest: list[Path] = []
        for part in self.parts:
            touched = whole or self._touches(part)
            if rows_in(self.reader, part) < self.small_rows and (touched or self.delivery.changes):
                rest.append(part)
            elif touched:
                self._rewrite([part], columns, upserts=False)
            else:
                link(part, self.making / part.name)
        if rest or counts[0] or counts[1]:
            self._rewrite(rest, columns, upserts=True)
        rows = count_rows(self.reader, sorted(self.making.glob("*.parquet")))
        if rows != self.delivery.row_count:
            raise RowsDiffer(f"after the changes there are {rows} rows where {self.delivery.row_count} are announced")
        return Moved(rows, *counts)

    def _take_marks(self) -> tuple[int, int, int]:
        """Read what the changes do; gives added, changed and removed."""
        changes = self.delivery.changes
        self.reader.execute("CREATE TEMP TABLE marks (id VARCHAR, op VARCHAR, change VARCHAR)")
        if changes:
            wanted = {**wanted_types(self.delivery.schema), OP: None, CHANGE: None}
            check_file_columns(self.reader, changes, wanted)
            told = f"SELECT {_ID}, {quoted(OP)}, {quoted(CHANGE)} FROM {parts_source(changes)}"
            self.reader.execute(f"INSERT INTO marks {told}")
        unknown, added, changed, removed = self.reader.execute(
            "SELECT count(*) FILTER (op NOT IN ('upsert', 'delete') OR op IS NULL), "
            "count(*) FILTER (change = 'added'), count(*) FILTER (change = 'changed'), "
            "count(*) FILTER (op = 'delete') FROM marks"
        ).fetchall()[0]
        if unknown:
            raise StepRefused(f"the changes file has {unknown} rows that are neither upsert nor delete")
        check_ids(self.reader, f"(SELECT id AS {_ID} FROM marks)", "changes file")
        return added, changed, removed

    def _columns(self) -> list[str]:
        """Give the columns that the next state's parts have, those beside the schema's included."""
        found, stored = types_of(self.reader, self.parts), stored_types(self.delivery.schema)
        beside = [name for name in found if name not in stored and name.startswith("_ploti_")]
        gone = [name for name in found if name not in stored and name not in beside]
        if gone or any(found[name] != type_ for name, type_ in stored.items() if name in found):
            raise RowsDiffer("the table's columns are not those of the version before")
        if GEOMETRY in stored and (GEOMETRY not in found or (beside and GEOMETRY in self.delivery.constants)):
            raise RowsDiffer("every row has another shape")
        if self.delivery.changes and not set(beside) <= set(file_columns(self.reader, self.delivery.changes)):
            raise RowsDiffer("the changes lack a column that the snapshot has beside its own")
        self.new = [name for name in stored if name not in found]
        return [*stored, *beside]

    def _prepare(self, columns: Collection[str]) -> bool:
        """Read backfill and constants; tells whether every row has to be written anew."""
        if self.delivery.backfill:
            check_ids(self.reader, parts_source(self.delivery.backfill), "backfill")
            here = file_columns(self.reader, self.delivery.backfill)
            self.filled = [name for name in here if name in columns and name not in ENVELOPE]
        stored = stored_types(self.delivery.schema)
        for at, (name, value) in enumerate(self.delivery.constants.items()):
            if name not in stored:
                raise StepRefused(f"the version gives a value for {name!r}, which is no column of it")
            new = f"CAST($value AS {stored[name]})" if name != GEOMETRY else "from_base64($value::VARCHAR)"
            self.reader.execute(f"CREATE TEMP TABLE constant{at} AS SELECT {new} AS value", {"value": _bindable(value)})
        return bool(self.new or self.filled or self.delivery.constants)

    def _touches(self, part: Path) -> bool:
        found = self.reader.execute(
            f"SELECT 1 FROM {parts_source([part])} WHERE {_ID} IN (SELECT id FROM marks) LIMIT 1"
        ).fetchall()
        return bool(found)

    def _rewrite(self, parts: Sequence[Path], columns: Sequence[str], *, upserts: bool) -> None:
        """Write a part of the rows that parts keep, and with `upserts` of those that the version puts."""
        sources = []
        if parts:
            joined = ""
            if self.filled:
                joined = f" LEFT JOIN {parts_source(self.delivery.backfill)} AS b ON b.{_ID} = t.{_ID}"
            values = ", ".join(f"{self._value(name, kept=True)} AS {quoted(name)}" for name in columns)
            kept = f"t.{_ID} NOT IN (SELECT id FROM marks)"
            sources.append(f"SELECT {values} FROM {parts_source(parts)} AS t{joined} WHERE {kept}")
        if upserts and self.delivery.changes:
            values = ", ".join(f"{self._value(name, kept=False)} AS {quoted(name)}" for name in columns)
            put = f"t.{quoted(OP)} = 'upsert'"
            sources.append(f"SELECT {values} FROM {parts_source(self.delivery.changes)} AS t WHERE {put}")
        self.written += 1
        path = self.making / part_name(self.turn, self.written)
        write_part(self.reader, " UNION ALL ".join(sources), path, geo_of(self.reader, self.parts[0]))

    def _value(self, name: str, *, kept: bool) -> str:
        """Give a column of a row that is kept from the parts, or put by the changes."""
        constants = list(self.delivery.constants)
        if name in constants:
            return f"(SELECT value FROM constant{constants.index(name)})"
        type_ = stored_types(self.delivery.schema).get(name)
        held = "NULL" if kept and name in self.new else f"t.{quoted(name)}"
        if kept and name in self.filled:
            held = f"CASE WHEN b.{_ID} IS NULL THEN {held} ELSE b.{quoted(name)} END"
        return held if type_ is None else f"CAST({held} AS {type_})"


def geo_of(reader: duckdb.DuckDBPyConnection, part: Path) -> str | None:
    """Give the GeoParquet metadata of a part, without what holds for its own rows or other columns only."""
    found = reader.execute(f"SELECT value FROM parquet_kv_metadata({literal(str(part))}) WHERE key = 'geo'").fetchall()
    if not found:
        return None
    told = json.loads(found[0][0])
    for column in told.get("columns", {}).values():
        column.pop("bbox", None)
        column.pop("covering", None)
        column["geometry_types"] = []
    return json.dumps(told)


def part_name(turn: int, number: int, kind: str = "part") -> str:
    """Name a part that is written at a turn."""
    return f"{kind}-{turn:06d}-{number:04d}.parquet"


def write_part(reader: duckdb.DuckDBPyConnection, query: str, path: Path, geo: str | None) -> None:
    """Write the rows of a query as a part, with the metadata of GeoParquet where there is some."""
    metadata = "" if geo is None else f", KV_METADATA {{geo: {literal(geo)}}}"
    options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_GROUP_ROWS}{metadata}"
    reader.execute(f"COPY ({query}) TO {literal(str(path))} ({options})")
    sync_file(path)


def link(path: Path, place: Path) -> None:
    """Give a part another name, without copying it where the disk can."""
    try:
        os.link(path, place)
    except OSError:
        shutil.copyfile(path, place)


def _bindable(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return value


def differing(
    reader: duckdb.DuckDBPyConnection, held: Sequence[Path], right: Sequence[Path], compared: Iterable[str]
) -> tuple[int, int, int]:
    """Count the records that parts lack, have otherwise and have beside those of the right ones."""
    names = [quoted(name) for name in compared]
    unlike = " OR ".join(f"h.{name} IS DISTINCT FROM r.{name}" for name in names) or "false"
    found = reader.execute(
        f"SELECT count(*) FILTER (h.{_ID} IS NULL), count(*) FILTER (h.{_ID} = r.{_ID} AND ({unlike})), "
        f"count(*) FILTER (r.{_ID} IS NULL) FROM {parts_source(held)} AS h FULL JOIN {parts_source(right)} AS r "
        f"ON h.{_ID} = r.{_ID}"
    ).fetchall()[0]
    return found[0], found[1], found[2]
