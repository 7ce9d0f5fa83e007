"""What differs between two versions of a dataset, old and new values side by side, however many lie between them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, Literal

from ploti._client import Client
from ploti._download import ignore_bytes
from ploti.contract.files import PREVIOUS_RECORD_ID, RECORD_ID
from ploti.contract.resources import Schema
from ploti.contract.values import ColumnType
from ploti.errors import FixRequest, Reload
from ploti.look.view import Look, Record, as_text, looking, own_columns, quoted
from ploti.sync.replaced import leads, replacements

_ID: Final = quoted(RECORD_ID)
_LIKE_A_COPY: Final = 2
"""Rows from which on a column of one single value is told once instead of in every row, as changes files do."""


@dataclass(frozen=True)
class Pair:
    """A value before and after."""

    old: Any
    new: Any


@dataclass(frozen=True)
class Difference:
    """One record that differs; `values` has the columns that do, all that hold something for an added or removed one.

    `previous_id` is the id that it had before, where ids were replaced between the two versions; `record` is the whole
    record as it is now, or was before it was removed.
    """

    record_id: str
    previous_id: str | None
    change: Literal["added", "changed", "removed"]
    values: Mapping[str, Pair]
    record: Record


@dataclass(frozen=True)
class Columns:
    """How two versions' columns differ; `moved` are those of one value in every row, told once."""

    added: list[str]
    removed: list[str]
    retyped: dict[str, Pair]
    moved: dict[str, Pair]


@dataclass(frozen=True)
class Compared:
    """What differs between two versions: `counts` of all records, and those that were asked for.

    `replaced` counts the records that both have under different ids, whether anything else of them differs or not.
    """

    columns: Columns
    counts: dict[str, int]
    replaced: int
    records: list[Difference]
    key_columns: Sequence[str]


class Diff:
    """Two versions laid beside each other in a look."""

    def __init__(self, look: Look, dataset: str, old: int, new: int) -> None:
        if not old < new:
            raise FixRequest("Name two versions, the older one first.", code="invalid_input")
        self._look, self._dataset = look, dataset
        schemas = look.client.feeds.datasets
        self._before, self._after = schemas.schema(dataset, old), schemas.schema(dataset, new)
        look.view("old_rows", look.parts(dataset, old))
        look.view("new_rows", look.parts(dataset, new))
        self._replaced = self._map_ids(old, new)
        self._common = _common(self._before, self._after)
        self.columns = self._columns()
        self.key_columns = self._after["keyColumns"]

    def _map_ids(self, old: int, new: int) -> bool:
        """Make `ids`, from every id in the old version that was replaced to the one that its record has now."""
        db, all_there = self._look.db, True
        db.execute("CREATE OR REPLACE TABLE ids (was VARCHAR, id VARCHAR)")
        listed = self._look.client.feeds.datasets.versions.iter(self._dataset, after=old)
        passed = list(takewhile(lambda version: version["version"] <= new, listed))
        for version in passed:
            if version["recordIdsChanged"]:
                try:
                    self._look.view("step", self._look.parts(self._dataset, version["version"], "id_map"))
                except Reload:
                    all_there = False
                    continue
                self._take_step(f"SELECT {quoted(PREVIOUS_RECORD_ID)} AS was, {_ID} AS id FROM step")
        if not all_there or not leads(passed, old, new):
            self._ask()
        db.execute("DELETE FROM ids WHERE was = id")
        return bool(db.execute("SELECT count(*) FROM ids").fetchall()[0][0])

    def _take_step(self, step: str, values: Mapping[str, Any] | None = None) -> None:
        """Lead every id in `ids` one step on, ids that were not replaced before among them."""
        self._look.db.execute(
            f"CREATE OR REPLACE TABLE ids AS WITH step AS ({step}) "
            "SELECT coalesce(ids.was, step.was) AS was, coalesce(step.id, ids.id) AS id "
            "FROM ids FULL JOIN step ON ids.id = step.was",
            values,
        )

    def _ask(self) -> None:
        """Ask what became of the ids that the new version has not, where a map is gone (page 001)."""
        lost = (
            f"SELECT coalesce(ids.id, o.{_ID}) AS now FROM old_rows o LEFT JOIN ids ON ids.was = o.{_ID} "
            f"WHERE now NOT IN (SELECT {_ID} FROM new_rows)"
        )
        asked: set[str] = set()
        while ids := {row[0] for row in self._look.db.execute(lost).fetchall()} - asked:
            found = replacements(self._look.client, self._dataset, ids)
            asked |= ids
            step = "SELECT unnest($was::VARCHAR[]) AS was, unnest($now::VARCHAR[]) AS id"
            self._take_step(step, {"was": list(found.keys()), "now": list(found.values())})

    def _columns(self) -> Columns:
        before, after = own_columns(self._before), own_columns(self._after)
        return Columns(
            added=[name for name in after if name not in before],
            removed=[name for name in before if name not in after],
            retyped={
                name: Pair(before[name], after[name]) for name in after if before.get(name, after[name]) != after[name]
            },
            moved=self._moved(),
        )

    def _moved(self) -> dict[str, Pair]:
        """Find columns that hold one value in every row of each version, and another one in each."""
        if not self._common:
            return {}
        counts = ", ".join(f"min({quoted(name)}) = max({quoted(name)}), count({quoted(name)})" for name in self._common)
        first, second = (
            self._look.db.execute(f"SELECT count(*), {counts} FROM {rows}").fetchone() or ()
            for rows in ("old_rows", "new_rows")
        )
        alike = [
            name
            for at, name in enumerate(self._common)
            if all(_single(found[0], *found[1 + 2 * at : 3 + 2 * at]) for found in (first, second))
        ]
        if not alike:
            return {}
        old, new = (
            next(self._look.records(f"SELECT {self._shown(alike, rows)} FROM {rows} LIMIT 1"))
            for rows in ("old_rows", "new_rows")
        )
        return {name: Pair(old[name], new[name]) for name in alike if old[name] != new[name]}

    def _shown(self, names: list[str], rows: str) -> str:
        types = own_columns(self._before if rows == "old_rows" else self._after)
        return ", ".join(f"{as_text(f'{rows}.{quoted(name)}', types[name])} AS {quoted(name)}" for name in names)

    def counts(self) -> dict[str, int]:
        """Count the records that were added, changed and removed."""
        return dict.fromkeys(("added", "changed", "removed"), 0) | {
            row["change"]: row["records"]
            for row in self._look.records(f"SELECT change, count(*) AS records FROM ({self._query()}) GROUP BY change")
        }

    def replaced(self) -> int:
        """Count the records whose id was replaced between the two."""
        told = f"SELECT count(*) FROM ids JOIN old_rows o ON o.{_ID} = ids.was JOIN new_rows n ON n.{_ID} = ids.id"
        (number,) = self._look.db.execute(told).fetchone() or (0,)
        return int(number)

    def differences(self, limit: int | None = None) -> Iterator[Difference]:
        """Go over the records that differ, by record id, at most `limit` of them."""
        narrowed = "" if limit is None else f" LIMIT {limit}"
        for row in self._look.records(f"{self._query()} ORDER BY id{narrowed}"):
            values = dict(self._values(row))
            names, side = {**own_columns(self._before), **own_columns(self._after)}, "on"[row["change"] != "removed"]
            record = {name: row[f"{side}{at}"] for at, name in enumerate(names) if f"{side}{at}" in row}
            yield Difference(row["id"], row["was"], row["change"], values, record)

    def _values(self, row: Mapping[str, Any]) -> Iterator[tuple[str, Pair]]:
        before, after = own_columns(self._before), own_columns(self._after)
        for at, name in enumerate({**before, **after}):
            if row["change"] == "changed" and not row.get(f"d{at}"):
                continue
            pair = Pair(row.get(f"o{at}"), row.get(f"n{at}"))
            if pair != Pair(None, None):
                yield name, pair

    def _query(self) -> str:
        """Select each record that differs: its id, the change, per column old and new value and whether they differ."""
        before, after = own_columns(self._before), own_columns(self._after)
        compared = [name for name in self._common if name not in self.columns.moved]
        selected, differs = [], []
        for at, name in enumerate({**before, **after}):
            if name in before:
                selected.append(f"{as_text(f'o.{quoted(name)}', before[name])} AS o{at}")
            if name in after:
                selected.append(f"{as_text(f'n.{quoted(name)}', after[name])} AS n{at}")
            if name in compared:
                differs.append(f"{_differs(name, before[name], after[name])} AS d{at}")
        flags = "".join(f" OR d{at}" for at, name in enumerate({**before, **after}) if name in compared)
        change = f"CASE WHEN o.{_ID} IS NULL THEN 'added' WHEN n.{_ID} IS NULL THEN 'removed' ELSE 'changed' END"
        joined = (
            f"(SELECT old_rows.*, coalesce(ids.id, old_rows.{_ID}) AS _ploti_now FROM old_rows "
            f"LEFT JOIN ids ON ids.was = old_rows.{_ID}) o FULL JOIN new_rows n ON n.{_ID} = o._ploti_now"
        )
        was = f"CASE WHEN o.{_ID} <> n.{_ID} THEN o.{_ID} END" if self._replaced else "NULL"
        columns = ", ".join([*selected, *differs])
        row = f"SELECT coalesce(n.{_ID}, o.{_ID}) AS id, {was} AS was, {change} AS change, {columns} FROM {joined}"
        return f"SELECT * FROM ({row}) WHERE change <> 'changed'{flags}"


def diff(
    client: Client,
    dataset: str,
    old: int,
    new: int,
    *,
    limit: int | None = None,
    progress: Callable[[int], object] = ignore_bytes,
) -> Compared:
    """Compare two versions: their columns, how many records differ, and up to `limit` of these.

    Volatile columns are not compared. Raises Reload where a version's snapshot is past retention.
    """
    with looking(client, progress) as look:
        found = Diff(look, dataset, old, new)
        differences = list(found.differences(limit))
        return Compared(found.columns, found.counts(), found.replaced(), differences, found.key_columns)


def _common(before: Schema, after: Schema) -> list[str]:
    """Name the columns to compare: those of both versions, without volatile ones."""
    volatile = {column["name"] for schema in (before, after) for column in schema["columns"] if column.get("volatile")}
    return [name for name in own_columns(after) if name in own_columns(before) and name not in volatile]


def _differs(name: str, before: ColumnType, after: ColumnType) -> str:
    old, new = f"o.{quoted(name)}", f"n.{quoted(name)}"
    if before != after:
        old, new = (f"CAST({as_text(value, type_)} AS VARCHAR)" for value, type_ in ((old, before), (new, after)))
    return f"{old} IS DISTINCT FROM {new}"


def _single(rows: int, alike: bool | None, filled: int) -> bool:
    return rows >= _LIKE_A_COPY and (filled == 0 or (alike is True and filled == rows))
