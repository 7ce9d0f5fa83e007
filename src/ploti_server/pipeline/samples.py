"""Finds rows that show why a version is held, for the person who looks at it (D6.2)."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ploti.contract.files import GEOMETRY, RECORD_ID
from ploti_server.domain.versions import Version
from ploti_server.ports import Ports, Tables
from ploti_server.rows.sql import quoted

COLUMNS_SHOWN: Final = 6


def sample_rows(ports: Ports, held: Version, limit: int = 5) -> list[dict[str, Any]]:
    """Give rows that the first hold is about: doubled or null keys, rows that went, rejects, else the first rows."""
    folder = ports.home / "work"
    folder.mkdir(parents=True, exist_ok=True)
    with ports.store.read() as records:
        base = None if held.base is None else records.versions.get(held.dataset_id, held.base)
    rules = [hold["rule"] for hold in held.facts.get("holds", [])]
    with tempfile.TemporaryDirectory(dir=folder) as scratch, ports.engine.work(Path(scratch)) as tables:
        _add(ports, tables, "held", held, held.files_of("snapshot"))
        if base is not None:
            _add(ports, tables, "base", base, base.files_of("snapshot"))
        rejects = [file for file in held.staff_files if file.path.startswith("rejects/")]
        if rejects:
            _add(ports, tables, "rejects", held, rejects)
        sql = _query(held, base, rules, has_rejects=bool(rejects))
        return [row for batch in tables.query(f"{sql} LIMIT {limit}") for row in batch.to_pylist()]


def _add(ports: Ports, tables: Tables, name: str, version: Version, files: Sequence[Any]) -> None:
    tables.add_files(name, [ports.files.local(f"{version.folder}/{file.path}") for file in files])


def _query(held: Version, base: Version | None, rules: list[str], *, has_rejects: bool) -> str:
    shown = _shown(held)
    key = held.schema.key_columns
    first = next((rule for rule in rules if rule != "breaking_schema"), None)
    match first:
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
        case "rejects" | "missing_rows" if has_rejects:
            return 'SELECT "row", "column", reason, "value" FROM rejects ORDER BY "row" ASC NULLS LAST'
        case "zero_rows" | "row_drop" | "turnover" if base is not None:
            gone = f"{RECORD_ID} NOT IN (SELECT {RECORD_ID} FROM held)"
            return f"{_select(_shown(base))} FROM base WHERE {gone} ORDER BY {RECORD_ID} ASC NULLS LAST"
        case _:
            return f"{_select(shown)} FROM held ORDER BY {RECORD_ID} ASC NULLS LAST"


def _shown(version: Version) -> list[str]:
    """Name the columns worth a person's look: record id, key, then the first others; never a shape."""
    own = [column.name for column in version.schema.columns if column.name != GEOMETRY]
    ordered = dict.fromkeys([RECORD_ID, *version.schema.key_columns, *own])
    return list(ordered)[:COLUMNS_SHOWN]


def _select(columns: list[str]) -> str:
    return "SELECT " + ", ".join(quoted(column) for column in columns)
