"""Row queries for what a version delivers: snapshot, changes and backfill (D4.5, D5.5, D5.8).

Tables read: `new`; `touched_new` and `touched_old`, the whole rows that are left over or may differ; `row_ids`
(`_ploti_row`, `_ploti_record_id`); `added` (`_ploti_row`); `changed` (`_ploti_row`, `_ploti_record_id`, `_match`,
`_score`, `_columns`); `removed` (`_ploti_record_id`); `kept_shapes` (`_ploti_row`, `geometry`: the old bytes of a shape
that is still the same, D3.4).
"""

from collections.abc import Sequence

from ploti.contract.files import GEOMETRY, RECORD_ID, REMOVED_AT_SOURCE
from ploti_server.domain.schema import Schema
from ploti_server.rows.match import ROW
from ploti_server.rows.sql import columns_of, differs, literal, null_of, quoted

HILBERT = "_ploti_hilbert"


def moved_shapes(pairs: str, old: str, new: str) -> str:
    """Give both shapes of the pairs whose bytes differ, to be compared vertex by vertex."""
    return (
        f"SELECT p.{ROW}, p.{RECORD_ID}, o.{GEOMETRY} AS _old, n.{GEOMETRY} AS _new FROM {pairs} p"
        f" JOIN {new} n ON p.{ROW} = n.{ROW} JOIN {old} o ON p.{RECORD_ID} = o.{RECORD_ID}"
        f" WHERE {differs('n', 'o', GEOMETRY)}"
    )


def changed_pairs(pairs: str, old: str, new: str, compared: Sequence[str]) -> str:
    """Give the pairs that differ in a compared column by value, with the names in schema order (D4.5)."""
    different = [_different(name) for name in compared] or ["FALSE"]
    named = [f"CASE WHEN {test} THEN {literal(name)} END" for name, test in zip(compared, different, strict=False)]
    shapes = f" LEFT JOIN same_shapes s ON p.{ROW} = s.{ROW}" if GEOMETRY in compared else ""
    return (
        f"SELECT p.{ROW}, p.{RECORD_ID}, p._match, p._score,"
        f" list_filter([{', '.join([*named, 'CAST(NULL AS VARCHAR)'])}], lambda x: x IS NOT NULL) AS _columns"
        f" FROM {pairs} p JOIN {new} n ON p.{ROW} = n.{ROW} JOIN {old} o ON p.{RECORD_ID} = o.{RECORD_ID}{shapes}"
        f" WHERE {' OR '.join(different)}"
    )


def _different(name: str) -> str:
    if name == GEOMETRY:
        return f"({differs('n', 'o', name)} AND s.{ROW} IS NULL)"
    return differs("n", "o", name)


def _own(schema: Schema, alias: str, *, kept: bool) -> str:
    """List a schema's columns; where shapes were kept their old bytes stand in."""
    kept_shape = f"CASE WHEN k.{ROW} IS NULL THEN {alias}.{GEOMETRY} ELSE k.{GEOMETRY} END AS {GEOMETRY}"
    names = [
        kept_shape if kept and column.name == GEOMETRY else f"{alias}.{quoted(column.name)}"
        for column in schema.columns
    ]
    return ", ".join(names)


def _kept_join(kept: bool) -> str:
    return f" LEFT JOIN kept_shapes k ON n.{ROW} = k.{ROW}" if kept else ""


def snapshot(schema: Schema, *, kept: bool, chosen: str | None = None) -> str:
    """Give the rows of the new version, all or those whose `_ploti_row` is in the table `chosen`."""
    hilbert = f"n.{HILBERT}, " if schema.column(GEOMETRY) else ""
    only = f" JOIN {chosen} c ON n.{ROW} = c.{ROW}" if chosen else ""
    return (
        f"SELECT i.{RECORD_ID}, {hilbert}{_own(schema, 'n', kept=kept)}"
        f" FROM {'touched_new' if chosen else 'new'} n"
        f" JOIN row_ids i ON n.{ROW} = i.{ROW}{only}{_kept_join(kept)}"
    )


def changes(schema: Schema, *, kept: bool) -> str:
    """Give one row per change: upserts with the record as of this version, deletes with nulls."""
    own = _own(schema, "n", kept=kept)
    no_columns = "CAST(NULL AS VARCHAR[])"
    nothing = ", ".join(f"{null_of(column.type)} AS {quoted(column.name)}" for column in schema.columns)
    text, number = null_of("string"), null_of("number")
    return (
        f"SELECT i.{RECORD_ID}, 'upsert' AS _ploti_op, 'added' AS _ploti_change, {text} AS _ploti_delete_reason,"
        f" {no_columns} AS _ploti_changed_columns, {text} AS _ploti_match, {number} AS _ploti_match_score, {own}"
        f" FROM touched_new n JOIN added a ON n.{ROW} = a.{ROW} JOIN row_ids i ON n.{ROW} = i.{ROW}{_kept_join(kept)}"
        f" UNION ALL SELECT c.{RECORD_ID}, 'upsert', 'changed', {text}, c._columns, c._match, c._score, {own}"
        f" FROM touched_new n JOIN changed c ON n.{ROW} = c.{ROW}{_kept_join(kept)}"
        f" UNION ALL SELECT r.{RECORD_ID}, 'delete', 'removed', {literal(REMOVED_AT_SOURCE)}, {no_columns}, {text},"
        f" {number}, {nothing} FROM removed r"
    )


def backfill(columns: Sequence[str]) -> str:
    """Give the values of added columns for rows that are neither added nor changed and have one (D5.8)."""
    valued = " OR ".join(f"n.{quoted(name)} IS NOT NULL" for name in columns) or "FALSE"
    touched = f"SELECT a.{ROW} FROM added a UNION ALL SELECT c.{ROW} FROM changed c"
    return (
        f"SELECT i.{RECORD_ID}{', ' if columns else ''}{columns_of('n', columns)} FROM new n"
        f" JOIN row_ids i ON n.{ROW} = i.{ROW} LEFT JOIN ({touched}) t ON n.{ROW} = t.{ROW}"
        f" WHERE t.{ROW} IS NULL AND ({valued})"
    )


def old_rows(chosen: str) -> str:
    """Give the previous version's rows whose ids a table holds."""
    return f"SELECT o.* FROM touched_old o JOIN {chosen} c ON o.{RECORD_ID} = c.{RECORD_ID}"
