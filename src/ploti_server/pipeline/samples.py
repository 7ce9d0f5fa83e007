"""Finds rows that show why a version is held, for the person who looks at it (D6.2)."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import pyarrow as pa

from ploti.contract.files import GEOMETRY, RECORD_ID
from ploti.contract.values import ColumnType
from ploti_server.domain.columns import SourceColumn, find_column
from ploti_server.domain.schema import SchemaChange
from ploti_server.domain.versions import Version
from ploti_server.ports import Ports, Tables
from ploti_server.rows.raw import Kind, RawColumn
from ploti_server.rows.sql import literal, quoted
from ploti_server.rows.types import hold

COLUMNS_SHOWN: Final = 6
SCHEMA_RULE: Final = "breaking_schema"
TYPES: Final[dict[str, ColumnType]] = {name: name for name in get_args(ColumnType) if name != GEOMETRY}
"""Types by the name that a schema change tells."""


def sample_rows(
    ports: Ports, held: Version, limit: int = 5, about: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Give rows that a hold is about: doubled or null keys, empty cells, rows that went, rejects; else any.

    Without one it is the first of `shown_rules`. Of a schema that broke, rows show what each removed or retyped column
    held before, as `COLUMN before`, and of a column that became text those that made it so. Columns that the catalog
    drops are not shown, nor are undecodable rows as they stand where it drops any (D10.2).
    """
    folder = ports.home / "work"
    folder.mkdir(parents=True, exist_ok=True)
    with ports.store.read() as records:
        base = None if held.base is None else records.versions.get(held.dataset_id, held.base)
        dataset = records.catalog.dataset(held.dataset_id)
    drop = dataset.drop if dataset is not None else ()
    with tempfile.TemporaryDirectory(dir=folder) as scratch, ports.engine.work(Path(scratch)) as tables:
        _add(ports, tables, "held", held, held.files_of("snapshot"))
        if base is not None:
            _add(ports, tables, "base", base, base.files_of("snapshot"))
        rejects = [file for file in held.staff_files if file.path.startswith("rejects/")]
        if rejects:
            _add(ports, tables, "rejects", held, rejects)
        about = about or next(iter(shown_rules(held.facts["holds"])), {})
        if about.get("rule") == SCHEMA_RULE and base is not None and held.schema_change is not None:
            zone = dataset.timezone if dataset is not None else "UTC"
            odd = [id_ for _, id_ in zip(range(limit), _odd(tables, held.schema_change, zone), strict=False)]
            sql = _schema_query(held, base, held.schema_change, drop, odd)
        else:
            sql = _query(held, base, drop, about, has_rejects=bool(rejects))
        return [row for batch in tables.query(f"{sql} LIMIT {limit}") for row in batch.to_pylist()]


def shown_rules(holds: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Give the holds that sample rows are shown for: the first that is about rows, then the schema's."""
    rows = [hold for hold in holds if hold["rule"] != SCHEMA_RULE]
    return (*rows[:1], *(hold for hold in holds if hold["rule"] == SCHEMA_RULE))


def _add(ports: Ports, tables: Tables, name: str, version: Version, files: Sequence[Any]) -> None:
    tables.add_files(name, [ports.files.local(f"{version.folder}/{file.path}") for file in files])


def _query(
    held: Version, base: Version | None, drop: tuple[str, ...], about: Mapping[str, Any], *, has_rejects: bool
) -> str:
    shown = _shown(held, drop)
    key = held.schema.key_columns
    match about.get("rule"):
        case "duplicate_key":
            keys = ", ".join(quoted(column) for column in key)
            same = " AND ".join(f"h.{quoted(column)} = d.{quoted(column)}" for column in key)
            doubled = f"SELECT {keys} FROM held GROUP BY {keys} HAVING count(*) > 1"
            ahead = f"h.{', h.'.join(quoted(column) for column in shown)}"
            return (
                f"SELECT {ahead} FROM held h JOIN ({doubled}) d ON {same}"
                f" ORDER BY {', '.join(f'h.{quoted(c)} ASC NULLS LAST' for c in (*key, RECORD_ID))}"
            )
        case "null_key":
            null = " OR ".join(f"{quoted(column)} IS NULL" for column in key)
            return f"{_select(shown)} FROM held WHERE {null} ORDER BY {RECORD_ID} ASC NULLS LAST"
        case "null_rise" | "geometry_loss":
            empty = f"{quoted(about['column'])} IS NULL"
            return f"{_select(shown)} FROM held WHERE {empty} ORDER BY {RECORD_ID} ASC NULLS LAST"
        case "rejects" | "missing_rows" if has_rejects:
            value = 'CASE WHEN "column" IS NOT NULL THEN "value" END AS "value"' if drop else '"value"'
            return f'SELECT "row", "column", reason, {value} FROM rejects ORDER BY "row" ASC NULLS LAST'
        case "zero_rows" | "row_drop" | "turnover" if base is not None:
            gone = f"{RECORD_ID} NOT IN (SELECT {RECORD_ID} FROM held)"
            return f"{_select(_shown(base, drop))} FROM base WHERE {gone} ORDER BY {RECORD_ID} ASC NULLS LAST"
        case _:
            return f"{_select(shown)} FROM held ORDER BY {RECORD_ID} ASC NULLS LAST"


def _schema_query(held: Version, base: Version, change: SchemaChange, drop: tuple[str, ...], odd: list[str]) -> str:
    """Put what removed and retyped columns held before beside the rows of now."""
    retyped = [one.name for one in change.retyped]
    now = _shown(held, drop, [*retyped, *(column.name for column in change.added)])
    kept_back = _kept_back(base, drop)
    before = [name for name in (*change.removed, *retyped) if name not in kept_back][:COLUMNS_SHOWN]
    columns = [f"h.{quoted(name)}" for name in now]
    columns += [f"b.{quoted(name)} AS {quoted(f'{name} before')}" for name in before]
    chosen = f" WHERE h.{RECORD_ID} IN ({', '.join(map(literal, odd))})" if odd else ""
    return (
        f"SELECT {', '.join(columns)} FROM held h LEFT JOIN base b ON h.{RECORD_ID} = b.{RECORD_ID}{chosen}"
        f" ORDER BY b.{RECORD_ID} IS NULL, h.{RECORD_ID} ASC NULLS LAST"
    )


def _odd(tables: Tables, change: SchemaChange, zone: str) -> Iterator[str]:
    """Give the ids of rows whose value the type that a column had before cannot hold."""
    for retype in change.retyped:
        if retype.to != "string" or retype.from_ not in TYPES:
            continue
        rows = f"SELECT h.{RECORD_ID}, h.{quoted(retype.name)} FROM held h ORDER BY h.{RECORD_ID} ASC NULLS LAST"
        for batch in tables.query(rows):
            misfits = hold(RawColumn(batch[1], frozenset({Kind.TEXT})), TYPES[retype.from_], zone).misfits
            yield from map(str, batch[0].filter(pa.array(misfits)).to_pylist())


def _shown(version: Version, drop: tuple[str, ...], ahead: Sequence[str] = ()) -> list[str]:
    """Name the columns worth a person's look: record id, key, what a hold names, then the first others; no shape."""
    kept_back = _kept_back(version, drop)
    about = [hold["column"] for hold in version.facts.get("holds", []) if hold.get("column")]
    own = [column.name for column in version.schema.columns]
    ordered = dict.fromkeys([RECORD_ID, *version.schema.key_columns, *ahead, *about, *own])
    return [name for name in ordered if name not in kept_back][:COLUMNS_SHOWN]


def _kept_back(version: Version, drop: tuple[str, ...]) -> set[str]:
    """Name the columns that no sample row shows: shapes, and what the catalog drops."""
    columns = [SourceColumn(column.name, column.source_name, 0) for column in version.schema.columns]
    return {GEOMETRY, *(found.id for name in drop if (found := find_column(columns, name)))}


def _select(columns: list[str]) -> str:
    return "SELECT " + ", ".join(quoted(column) for column in columns)
