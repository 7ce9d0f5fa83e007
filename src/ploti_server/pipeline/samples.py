"""Finds rows that show why a version is held, for the person who looks at it (D6.2)."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ploti.contract.files import GEOMETRY, RECORD_ID
from ploti_server.domain.columns import SourceColumn, find_column
from ploti_server.domain.versions import Version
from ploti_server.ports import Ports, Tables
from ploti_server.rows.sql import quoted

COLUMNS_SHOWN: Final = 6


def sample_rows(ports: Ports, held: Version, limit: int = 5) -> list[dict[str, Any]]:
    """Give rows that the first hold is about: doubled or null keys, empty cells, rows that went, rejects; else any.

    Columns that the catalog drops are not shown, nor are undecodable rows as they stand where it drops any (D10.2).
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
        sql = _query(held, base, drop, has_rejects=bool(rejects))
        return [row for batch in tables.query(f"{sql} LIMIT {limit}") for row in batch.to_pylist()]


def _add(ports: Ports, tables: Tables, name: str, version: Version, files: Sequence[Any]) -> None:
    tables.add_files(name, [ports.files.local(f"{version.folder}/{file.path}") for file in files])


def _query(held: Version, base: Version | None, drop: tuple[str, ...], *, has_rejects: bool) -> str:
    holds: list[dict[str, Any]] = held.facts.get("holds", [])
    shown = _shown(held, drop)
    key = held.schema.key_columns
    first = next((hold for hold in holds if hold["rule"] != "breaking_schema"), {})
    match first.get("rule"):
        case "duplicate_key":
            keys = ", ".join(quoted(column) for column in key)
            same = " AND ".join(f"h.{quoted(column)} = d.{quoted(column)}" for column in key)
            doubled = f"SELECT {keys} FROM held GROUP BY {keys} HAVING count(*) > 1"
            ahead = f"h.{', h.'.join(quoted(column) for column in shown)}"
            return (
                f"SELECT {ahead} FROM held h JOIN ({doubled}) d ON {same} ORDER BY h.{quoted(RECORD_ID)} ASC NULLS LAST"
            )
        case "null_key":
            null = " OR ".join(f"{quoted(column)} IS NULL" for column in key)
            return f"{_select(shown)} FROM held WHERE {null} ORDER BY {RECORD_ID} ASC NULLS LAST"
        case "null_rise" | "geometry_loss":
            empty = f"{quoted(first['column'])} IS NULL"
            return f"{_select(shown)} FROM held WHERE {empty} ORDER BY {RECORD_ID} ASC NULLS LAST"
        case "rejects" | "missing_rows" if has_rejects:
            value = 'CASE WHEN "column" IS NOT NULL THEN "value" END AS "value"' if drop else '"value"'
            return f'SELECT "row", "column", reason, {value} FROM rejects ORDER BY "row" ASC NULLS LAST'
        case "zero_rows" | "row_drop" | "turnover" if base is not None:
            gone = f"{RECORD_ID} NOT IN (SELECT {RECORD_ID} FROM held)"
            return f"{_select(_shown(base, drop))} FROM base WHERE {gone} ORDER BY {RECORD_ID} ASC NULLS LAST"
        case _:
            return f"{_select(shown)} FROM held ORDER BY {RECORD_ID} ASC NULLS LAST"


def _shown(version: Version, drop: tuple[str, ...]) -> list[str]:
    """Name the columns worth a person's look: record id, key, what a hold names, then the first others; no shape."""
    columns = [SourceColumn(column.name, column.source_name, 0) for column in version.schema.columns]
    dropped = {GEOMETRY, *(found.id for name in drop if (found := find_column(columns, name)))}
    about = [hold["column"] for hold in version.facts.get("holds", []) if hold.get("column")]
    own = [column.name for column in version.schema.columns]
    ordered = dict.fromkeys([RECORD_ID, *version.schema.key_columns, *about, *own])
    return [name for name in ordered if name not in dropped][:COLUMNS_SHOWN]


def _select(columns: list[str]) -> str:
    return "SELECT " + ", ".join(quoted(column) for column in columns)
