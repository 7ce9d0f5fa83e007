"""A simulated feed: datasets with rows, published on the fake API as real Parquet files.

`Feed.snapshots` has what each version holds, which is what the tables of a target must equal.
"""

import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from ploti.contract.digest import Digest, Value, canonical_row, record_hash
from ploti.contract.events import ResyncReason
from ploti.contract.files import (
    CHANGE,
    CHANGED_COLUMNS,
    DATASET_ID,
    DELETE_REASON,
    ENVELOPE,
    FETCHED_AT,
    MATCH,
    MATCH_SCORE,
    OP,
    PLACE_ID,
    PREVIOUS_RECORD_ID,
    RECORD_ID,
    REMOVED_AT_SOURCE,
    SOURCE_URL,
    VERSION,
    part_path,
)
from ploti.contract.resources import Column, Schema, SchemaChange
from ploti.contract.values import STORAGE_TYPES, ColumnType
from ploti.testing.fake_api import FakeApi

Row = Mapping[str, Value]
Rows = Mapping[str, Row]
"""By record id, the dataset's own columns."""

SUBSCRIPTION: Final = "sub_feed"
_FETCHED: Final = datetime(2026, 10, 18, 6, 1, 12, tzinfo=UTC)
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"


def record_id(number: int) -> str:
    """Give a record id that looks like a real one, the same for the same number (D4.1)."""
    digits = sha256(f"record {number}".encode()).digest()
    return "rec_" + "".join(_ALPHABET[byte % 32] for byte in digits[:26])


@dataclass(frozen=True)
class Snapshot:
    """What a version holds."""

    version: int
    schema: Schema
    rows: Rows


@dataclass
class Feed:
    """Datasets with their history, on a fake API with one subscription to all of them."""

    api: FakeApi = field(default_factory=FakeApi)
    snapshots: dict[str, dict[int, Snapshot]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.api.subscribe(SUBSCRIPTION, places=["fl-county-orange"])

    def current(self, dataset_id: str) -> Snapshot:
        """Give the newest version."""
        return self.snapshots[dataset_id][max(self.snapshots[dataset_id])]

    def add(
        self,
        dataset_id: str,
        columns: Mapping[str, ColumnType],
        rows: Rows | None = None,
        *,
        key: Sequence[str] = (),
        **facts: Any,
    ) -> None:
        """Add a dataset to the subscription; with `rows`, release its first version too."""
        self.snapshots[dataset_id] = {}
        shapes = "Point" if "geometry" in columns else None
        self.api.add_dataset(dataset_id, geometry=shapes, key_columns=key, **facts)
        if rows is not None:
            self.reload(dataset_id, rows, "first_version", columns=columns)

    def reload(
        self,
        dataset_id: str,
        rows: Rows,
        reason: ResyncReason,
        *,
        columns: Mapping[str, ColumnType] | None = None,
        id_map: Mapping[str, str] | None = None,
        parts: int = 1,
        version: int | None = None,
        previous: int | None = None,
    ) -> int:
        """Release a version to be loaded from its snapshot; other columns than before are a MAJOR schema change."""
        number = self._number(dataset_id, version)
        schema = self._schema(dataset_id, number, columns, breaking=True)
        files = self._snapshot(dataset_id, number, schema, rows, parts)
        if id_map is not None:
            pairs = [{PREVIOUS_RECORD_ID: old, RECORD_ID: new, DATASET_ID: dataset_id} for old, new in id_map.items()]
            types: dict[str, ColumnType] = {PREVIOUS_RECORD_ID: "string", RECORD_ID: "string", DATASET_ID: "string"}
            files[part_path("id-map", 0)] = parquet(types, pairs)
        self.api.publish(
            dataset_id,
            files=files,
            version=number,
            previous=previous,
            schema=schema,
            row_count=len(rows),
            reason=reason,
            manifest={"digest": digest_of(rows, schema).to_wire()},
        )
        self.snapshots[dataset_id][number] = Snapshot(number, schema, dict(rows))
        self._trace(dataset_id, number, rows, id_map or {})
        return number

    def _trace(self, dataset_id: str, number: int, rows: Rows, id_map: Mapping[str, str]) -> None:
        """Have the API tell of the ids that a map replaced and that no record carries now."""
        known = self.api.state.datasets[dataset_id].records
        for old, new in id_map.items():
            if new in rows:
                known.pop(new, None)
            if old != new and old not in rows:
                self.api.add_record(
                    {
                        "datasetId": dataset_id,
                        "recordId": old,
                        "status": "replaced",
                        "firstVersion": 1,
                        "lastVersion": number - 1,
                        "replacedBy": new,
                        "currentId": new,
                    }
                )
        for id_, told in known.items():
            known[id_] = {**told, "currentId": id_map.get(told["currentId"] or "", told["currentId"])}

    def update(
        self,
        dataset_id: str,
        *,
        put: Rows | None = None,
        drop: Iterable[str] = (),
        constants: Mapping[str, Value] | None = None,
        columns: Mapping[str, ColumnType] | None = None,
        fill: Callable[[str], Row] | None = None,
        parts: int = 1,
        version: int | None = None,
        manifest: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> int:
        """Release a version to be applied as changes.

        `put` inserts or replaces records, `constants` moves single-valued columns, `columns` (old and new ones) is a
        MINOR schema change and `fill` gives the new columns' values for records that did not change otherwise.
        """
        before, put = self.current(dataset_id), put or {}
        number = self._number(dataset_id, version)
        schema = self._schema(dataset_id, number, columns, breaking=False)
        put = {id_: {**row, **(constants or {})} for id_, row in put.items()}
        kept = [id_ for id_ in before.rows if id_ not in put and id_ not in set(drop)]
        backfill: dict[str, Row] = {id_: fill(id_) for id_ in kept} if fill is not None else {}
        rows: dict[str, Row] = {id_: {**before.rows[id_], **(constants or {}), **backfill.get(id_, {})} for id_ in kept}
        rows |= put
        after = Snapshot(number, schema, rows)
        made = self._snapshot(dataset_id, number, schema, rows, parts)
        made[part_path("changes", 0)] = self._changes(after, before.rows, put, drop)
        if backfill:
            made[part_path("backfill", 0)] = self._backfill(schema, backfill)
        added = sum(id_ not in before.rows for id_ in put)
        self.api.publish(
            dataset_id,
            files={**made, **(files or {})},
            version=number,
            schema=schema,
            row_count=len(rows),
            counts={"added": added, "changed": len(put) - added, "removed": len(list(drop))},
            manifest={
                "digest": digest_of(rows, schema).to_wire(),
                "constants": {name: _wire(value) for name, value in (constants or {}).items()},
                **(manifest or {}),
            },
        )
        self.snapshots[dataset_id][number] = after
        return number

    def _number(self, dataset_id: str, version: int | None) -> int:
        return version if version is not None else max(self.snapshots[dataset_id], default=0) + 1

    def _schema(
        self, dataset_id: str, number: int, columns: Mapping[str, ColumnType] | None, *, breaking: bool
    ) -> Schema:
        """Give the schema that a version has: the one before, or a new one numbered by the rule (D2.7)."""
        before = self.current(dataset_id).schema if self.snapshots[dataset_id] else None
        had: dict[str, ColumnType] = {each["name"]: each["type"] for each in before["columns"]} if before else {}
        if before is not None and (columns is None or dict(columns) == had):
            return before
        assert columns is not None
        major, minor = map(int, before["schemaVersion"].split(".")) if before else (1, 0)
        following = f"{major + 1}.0" if breaking else f"{major}.{minor + 1}"
        return {
            "datasetId": dataset_id,
            "schemaVersion": following if before else "1.0",
            "firstVersion": number,
            "keyColumns": self.api.state.datasets[dataset_id].key_columns,
            "columns": [_column(name, type_) for name, type_ in columns.items()],
            "changeFromPrevious": _change(before, had, columns, breaking=breaking) if before else None,
        }

    def _snapshot(self, dataset_id: str, number: int, schema: Schema, rows: Rows, parts: int) -> dict[str, bytes]:
        types = {**ENVELOPE, **_types(schema)}
        lines = [{**_envelope(dataset_id, number, id_), **row} for id_, row in sorted(rows.items())]
        share = max(1, -(-len(lines) // parts))
        return {part_path("snapshot", at): parquet(types, lines[at * share : (at + 1) * share]) for at in range(parts)}

    def _changes(self, after: Snapshot, before: Rows, put: Iterable[str], drop: Iterable[str]) -> bytes:
        dataset_id, number = after.schema["datasetId"], after.version
        lines = [_upsert(_envelope(dataset_id, number, id_), after.rows[id_], before.get(id_)) for id_ in put]
        for id_ in drop:
            gone = {OP: "delete", CHANGE: "removed", DELETE_REASON: REMOVED_AT_SOURCE}
            lines.append({**_envelope(dataset_id, number, id_), **gone})
        return changes_part(after.schema, lines)

    def _backfill(self, schema: Schema, rows: Rows) -> bytes:
        names = {name for row in rows.values() for name in row}
        types: dict[str, ColumnType] = {RECORD_ID: "string"}
        types |= {name: type_ for name, type_ in _types(schema).items() if name in names}
        return parquet(types, [{RECORD_ID: id_, **row} for id_, row in rows.items()])


def changes_part(schema: Schema, lines: Iterable[Mapping[str, Any]]) -> bytes:
    """Give a changes part of rows that are written out whole, right or wrong."""
    text: ColumnType = "string"
    more: dict[str, ColumnType] = {OP: text, CHANGE: text, DELETE_REASON: text, MATCH: text, MATCH_SCORE: "number"}
    return parquet({**ENVELOPE, **more, **_types(schema)}, lines, lists=(CHANGED_COLUMNS,))


def parquet(types: Mapping[str, ColumnType], lines: Iterable[Mapping[str, Any]], lists: Iterable[str] = ()) -> bytes:
    """Write rows to a Parquet file with the contract's column types, `lists` being lists of strings."""
    columns = {name: STORAGE_TYPES[type_].duckdb for name, type_ in types.items()} | dict.fromkeys(lists, "VARCHAR[]")
    return _written(tuple(columns.items()), _Lines([[line.get(name) for name in columns] for line in lines]))


class _Lines(list[list[Any]]):
    """Rows that a cache can keep apart by what stands in them."""

    def __hash__(self) -> int:  # type: ignore[override]  # never changed once made
        return hash(repr(self))

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)


@lru_cache(maxsize=4096)
def _written(columns: tuple[tuple[str, str], ...], values: _Lines) -> bytes:
    """Write a file once for each content: stories are told again and again."""
    import duckdb

    shape = ", ".join(f"{_quoted(name)} {type_}" for name, type_ in columns)
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute(f"CREATE TABLE made ({shape})")
        if values:
            db.executemany(f"INSERT INTO made VALUES ({', '.join('?' * len(columns))})", list(values))
        path = Path(folder) / "part.parquet"
        db.execute(f"COPY made TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
        return path.read_bytes()


def digest_of(rows: Rows, schema: Schema) -> Digest:
    """Compute a version's digest by its definition (D5.6)."""
    digest, types = Digest(), _types(schema)
    for id_, row in rows.items():
        digest.add(id_, record_hash(id_, canonical_row(row, types)))
    return digest


def _types(schema: Schema) -> dict[str, ColumnType]:
    return {column["name"]: column["type"] for column in schema["columns"]}


def _column(name: str, type_: ColumnType) -> Column:
    return {"name": name, "type": type_, "nullable": True}


def _change(
    before: Schema, had: Mapping[str, ColumnType], columns: Mapping[str, ColumnType], *, breaking: bool
) -> SchemaChange:
    return {
        "kind": "breaking" if breaking else "additive",
        "previousSchemaVersion": before["schemaVersion"],
        "added": [_column(name, type_) for name, type_ in columns.items() if name not in had],
        "removed": [name for name in had if name not in columns],
        "retyped": [
            {"name": name, "from": had[name], "to": type_}
            for name, type_ in columns.items()
            if had.get(name, type_) != type_
        ],
        "nullabilityChanged": [],
        "keyColumnsChanged": False,
    }


def _envelope(dataset_id: str, number: int, id_: str) -> dict[str, Any]:
    return {
        RECORD_ID: id_,
        DATASET_ID: dataset_id,
        PLACE_ID: "fl-county-orange",
        VERSION: number,
        SOURCE_URL: f"https://records.example/{dataset_id}",
        FETCHED_AT: _FETCHED,
    }


def _upsert(envelope: Mapping[str, Any], row: Row, before: Row | None) -> dict[str, Any]:
    line = {**envelope, **row, OP: "upsert", CHANGE: "added"}
    if before is None:
        return line
    differing = [name for name in row if row[name] != before.get(name)]
    return {**line, CHANGE: "changed", CHANGED_COLUMNS: differing, MATCH: "key"}


def _wire(value: Value) -> Any:
    """Give a constant as `manifest.json` has it."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
