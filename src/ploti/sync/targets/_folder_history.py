"""The history of a dataset's table in a folder: parts in the table's own state, so that both move at once (D11.5).

Each state of a record is a row: `past-` parts have the states that ended and are only added to, `open-` parts those
that hold. What a version touches is written anew together with small parts, the others are linked, so that their number
stays small. All have the same columns; when these change, every part is written anew.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import duckdb

from ploti.contract.files import RECORD_ID
from ploti.contract.resources import Schema
from ploti.sync.targets._folder_books import PAST, sync_folder
from ploti.sync.targets._folder_parts import geo_of, link, part_name, rows_in, stored_types, types_of, write_part
from ploti.sync.targets._history import FROM, FROM_VERSION, TO, TO_VERSION, Past, counted, kept_apart
from ploti.sync.targets._parts import parts_source, quoted

_ID: Final = quoted(RECORD_ID)
_INSTANT: Final = "TIMESTAMP WITH TIME ZONE"
_SPAN: Final = {FROM_VERSION: "BIGINT", TO_VERSION: "BIGINT", FROM: _INSTANT, TO: _INSTANT}
_OPEN: Final = "open"
_ENDED: Final = "past"


@dataclass
class PartsHistory:
    """A history on its way into a state that is being made: `table` are that state's parts, `before` its own until now.

    `columns` are those that its parts get, by name and type; `renamed` those that keep their past apart.
    """

    reader: duckdb.DuckDBPyConnection
    schema: Schema
    table: Sequence[Path]
    before: Sequence[Path]
    making: Path
    turn: int
    small_rows: int
    columns: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    written: int = 0

    def keep(self, version: int, now: datetime) -> None:
        """Write the history that goes with the table's rows, which are those of a version now.

        Its times never go back, as a clock may. Where a publisher went on from a backup, what later versions said is
        taken back: they are no more.
        """
        self._place.mkdir()
        self._choose_columns(version)
        ended, opened = self._compare(version)
        moment = f"TIMESTAMPTZ '{self._latest(now)}'"
        self._write_ended(version, moment, ended)
        self._write_open({FROM_VERSION: f"{version}", FROM: moment}, ended, opened)
        sync_folder(self._place)

    @property
    def _place(self) -> Path:
        return self.making / PAST

    def _parts(self, kind: str) -> list[Path]:
        return [each for each in self.before if each.name.startswith(f"{kind}-")]

    def _choose_columns(self, version: int) -> None:
        """Choose the columns: the table's, those that it has no more or has otherwise now, and the span of a state."""
        stored = stored_types(self.schema)
        self.found = types_of(self.reader, self.before) if self.before else {}
        self.renamed = kept_apart(self.found, [Past(name, type_, type_) for name, type_ in stored.items()], version)
        beside = {self.renamed.get(name, name): type_ for name, type_ in self.found.items()}
        self.columns = {**stored, **{name: beside[name] for name in beside if name not in stored}}
        self.columns = {name: type_ for name, type_ in self.columns.items() if name not in _SPAN} | _SPAN

    @property
    def _same_columns(self) -> bool:
        return list(self.found) == list(self.columns) and not self.renamed

    def _held(self, parts: Sequence[Path]) -> str:
        """Give the rows of the history's parts with the columns that they get."""
        before = {after: name for name, after in self.renamed.items()}
        before |= {name: name for name in self.found if name not in self.renamed}
        values = (
            f"{quoted(before[name])} AS {quoted(name)}" if name in before else _nothing(name, type_)
            for name, type_ in self.columns.items()
        )
        return f"(SELECT {', '.join(values)} FROM {parts_source(parts)})"

    def _latest(self, now: datetime) -> str:
        """Give the time of this state: now, or the latest in the history where that is later."""
        if not self.before:
            return now.isoformat()
        told = f"SELECT max(greatest({FROM}, {TO})) FROM {parts_source(self.before)}"
        moment = f"greatest(TIMESTAMPTZ '{now.isoformat()}', ({told}))"
        return str(self.reader.execute(f"SELECT CAST({moment} AS VARCHAR)").fetchall()[0][0])

    def _compare(self, version: int) -> tuple[int, int]:
        """List the records whose state ended and those that have another or a first one; gives how many."""
        table, held = parts_source(self.table), self._parts(_OPEN)
        own = counted(self.schema)
        same = "".join(
            f" AND t.{quoted(name)} IS NOT DISTINCT FROM h.{quoted(name)}" for name in self.columns if name in own
        )
        ended = "SELECT NULL::VARCHAR AS id LIMIT 0"
        opened = f"SELECT t.{_ID} AS id FROM {table} AS t"
        if held:
            ended = (
                f"SELECT h.{_ID} AS id FROM {self._held(held)} AS h "
                f"LEFT JOIN {table} AS t ON t.{_ID} = h.{_ID}{same} "
                f"WHERE t.{_ID} IS NULL OR h.{FROM_VERSION} > {version}"
            )
            staying = f"(SELECT h.{_ID} AS id FROM {parts_source(held)} AS h ANTI JOIN ended ON ended.id = h.{_ID})"
            opened += f" ANTI JOIN {staying} AS h ON h.id = t.{_ID}"
        self.reader.execute(f"CREATE TEMP TABLE ended AS {ended}")
        self.reader.execute(f"CREATE TEMP TABLE opened AS {opened}")
        return self._count("ended"), self._count("opened")

    def _count(self, source: str) -> int:
        return int(self.reader.execute(f"SELECT count(*) FROM {source}").fetchall()[0][0])

    def _write_ended(self, version: int, moment: str, ended: int) -> None:
        """Put the states that ended into a part, together with small ones of those before."""
        parts = self._parts(_ENDED)
        anew = [each for each in parts if self._count(f"{parts_source([each])} WHERE {TO_VERSION} > {version}")]
        anew += [each for each in parts if ended and each not in anew and rows_in(self.reader, each) < self.small_rows]
        self._stay([each for each in parts if each not in anew])
        sources = []
        if anew:
            until = f"least({TO_VERSION}, {version}) AS {TO_VERSION}"
            sources.append(f"SELECT * REPLACE ({until}) FROM {self._held(anew)}")
        if ended:
            ending = f"{version} AS {TO_VERSION}, {moment} AS {TO}"
            held = f"{self._held(self._parts(_OPEN))} AS h SEMI JOIN ended ON ended.id = h.{_ID}"
            sources.append(f"SELECT * REPLACE ({ending}) FROM {held}")
        if sources:
            self._write(_ENDED, sources)

    def _write_open(self, beginning: dict[str, str], ended: int, opened: int) -> None:
        """Put the states that began into parts, together with small ones, and write those anew in which some ended."""
        rest = []
        for part in self._parts(_OPEN):
            touched = ended and self._count(f"{parts_source([part])} AS h SEMI JOIN ended ON ended.id = h.{_ID}")
            if (touched or opened) and rows_in(self.reader, part) < self.small_rows:
                rest.append(part)
            elif touched:
                self._write(_OPEN, [self._staying([part])])
            else:
                self._stay([part])
        few = []
        for part in self.table if opened else ():
            began = self._count(f"{parts_source([part])} AS t SEMI JOIN opened ON opened.id = t.{_ID}")
            if began >= self.small_rows:
                self._write(_OPEN, [self._begun([part], beginning)])
            elif began:
                few.append(part)
        if rest or few or not any(self._place.glob(f"{_OPEN}-*")):
            sources = [self._staying(rest)] if rest else []
            self._write(_OPEN, [*sources, self._begun(few or self.table, beginning)])

    def _staying(self, parts: Sequence[Path]) -> str:
        return f"SELECT h.* FROM {self._held(parts)} AS h ANTI JOIN ended ON ended.id = h.{_ID}"

    def _begun(self, parts: Sequence[Path], beginning: dict[str, str]) -> str:
        values = []
        stored = stored_types(self.schema)
        for name, type_ in self.columns.items():
            value = f"t.{quoted(name)}" if name in stored else beginning.get(name, "NULL")
            values.append(f"CAST({value} AS {type_}) AS {quoted(name)}")
        source = f"{parts_source(parts)} AS t SEMI JOIN opened ON opened.id = t.{_ID}"
        return f"SELECT {', '.join(values)} FROM {source}"

    def _stay(self, parts: Iterable[Path]) -> None:
        """Link parts; they are written anew where the columns are others now."""
        for part in parts:
            if self._same_columns:
                link(part, self._place / part.name)
            else:
                self._write(part.name.partition("-")[0], [f"FROM {self._held([part])}"])

    def _write(self, kind: str, sources: Sequence[str]) -> None:
        self.written += 1
        geo = geo_of(self.reader, self.table[0]) or (geo_of(self.reader, self.before[0]) if self.before else None)
        path = self._place / part_name(self.turn, self.written, kind)
        write_part(self.reader, " UNION ALL ".join(sources), path, geo)


def _nothing(name: str, type_: str) -> str:
    return f"CAST(NULL AS {type_}) AS {quoted(name)}"
