"""Row queries that gather evidence for the matching agent: who holds a value, and who resembles whom (D4.8).

A probe is a record of which others are looked for that resemble it: each old and new record of a pair, and some
records of the version before taken by id, which is as good as by chance. Tables read: `old`, the left-overs of the ask
(`ask_old_rows`, `ask_new_rows` with their `ask_places_*`), `ask_pairs`. Left behind: `evidence_probes`,
`evidence_held_N` for the N-th column, `evidence_weights_N` for the columns from the N-th on, `evidence_near`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import shapely

from ploti.contract.files import RECORD_ID
from ploti_server.rows.match import ROW
from ploti_server.rows.sql import columns_of, quoted

SAMPLED: Final = 300
"""Records of the version before that are probes whatever is left over."""

RESEMBLING: Final = 4
"""Records at most that resemble one probe."""

KNOWN_SAME: Final = 2_000
"""Pairs at most that are known to be one record."""

NEAR_PROBES: Final = 2_000
"""Records at most of which others are looked for that lie near."""

_NEAR: Final = 0.0005
"""Degrees; what is near is told by boxes and need not be exact."""

_SHARED_BY: Final = 50
"""Records at most that hold a value which makes two of them resemble each other."""

_OLD, _NEW, _SAMPLE = "'old'", "'new'", "'sample'"


def probes(columns: Sequence[str]) -> str:
    """Give the probes: `_side` and `_place` name them, `_own` is their record id where they have one."""
    chosen = "JOIN (SELECT DISTINCT b.{0} FROM ask_pairs b) c ON p._place = c.{0}"
    values = columns_of("t", columns)
    return (
        f"SELECT {_OLD} AS _side, p._place, t.{RECORD_ID} AS _own, {values} FROM ask_old_rows t"
        f" JOIN ask_places_old p ON t.{RECORD_ID} = p.{RECORD_ID} {chosen.format('_old')}"
        f" UNION ALL SELECT {_NEW}, p._place, CAST(NULL AS VARCHAR), {values} FROM ask_new_rows t"
        f" JOIN ask_places_new p ON t.{ROW} = p.{ROW} {chosen.format('_new')}"
        f" UNION ALL SELECT {_SAMPLE}, row_number() OVER (ORDER BY t.{RECORD_ID} ASC NULLS LAST), t.{RECORD_ID},"
        f" {values} FROM old t"
        f" JOIN (SELECT o.{RECORD_ID} FROM old o ORDER BY o.{RECORD_ID} ASC NULLS LAST LIMIT {SAMPLED}) s"
        f" ON t.{RECORD_ID} = s.{RECORD_ID}"
    )


def some_columns(columns: Sequence[str]) -> str:
    """Give some columns of the version before: a table of them is bound faster than a file of hundreds."""
    return f"SELECT {columns_of('o', (RECORD_ID, *columns))} FROM old o"


def held(column: str, rows: str) -> str:
    """Count the rows of a table that hold each value of the probes in a column."""
    name = quoted(column)
    return (
        f"SELECT o.{name} AS _value, count(*) AS _held FROM {rows} o JOIN (SELECT DISTINCT p.{name}"
        f" FROM evidence_probes p WHERE p.{name} IS NOT NULL) d ON o.{name} = d.{name} GROUP BY o.{name}"
    )


def shared_values(held_in: Mapping[str, str], rows: str, left_old: str) -> str:
    """Weigh the rare values that a record of the version before shares with a probe, in columns counted by tables.

    Only records that are surely others count: an old probe's are all but itself, a new one's those found again already.
    """
    shared = " UNION ALL ".join(
        f"SELECT p._side, p._place, p._own, o.{RECORD_ID}, CASE WHEN h._held <= 2 THEN 12 WHEN h._held <= 8 THEN 9"
        f" ELSE 6 END AS _weight FROM evidence_probes p JOIN {table} h ON p.{quoted(name)} = h._value"
        f" JOIN {rows} o ON o.{quoted(name)} = h._value WHERE h._held <= {_SHARED_BY}"
        for name, table in held_in.items()
    )
    return (
        f"SELECT s._side, s._place, s.{RECORD_ID}, CAST(SUM(s._weight) AS BIGINT) AS _weight FROM ({shared}) s"
        f" LEFT JOIN {left_old} l ON s.{RECORD_ID} = l.{RECORD_ID}"
        f" WHERE CASE WHEN s._own IS NULL THEN l.{RECORD_ID} IS NULL ELSE s._own <> s.{RECORD_ID} END"
        f" GROUP BY s._side, s._place, s.{RECORD_ID}"
    )


def resembling(weighed: Sequence[str]) -> str:
    """Give for each probe the records that share its rarest values, out of tables of weights."""
    parts = " UNION ALL ".join(f"SELECT w._side, w._place, w.{RECORD_ID}, w._weight FROM {name} w" for name in weighed)
    others = (
        f"SELECT s._side, s._place, s.{RECORD_ID}, SUM(s._weight) AS _weight FROM ({parts}) s"
        f" GROUP BY s._side, s._place, s.{RECORD_ID}"
    )
    turn = "PARTITION BY r._side, r._place ORDER BY r._weight DESC NULLS LAST"
    return (
        f"SELECT r._side, r._place, r.{RECORD_ID} FROM (SELECT r.*, row_number() OVER ({turn}, r.{RECORD_ID} ASC"
        f" NULLS LAST) AS _turn FROM ({others}) r) r WHERE r._turn <= {RESEMBLING}"
    )


def sampled_rows(columns: Sequence[str]) -> str:
    """Give the values of the probes that nobody is asked about."""
    return f"SELECT p._place, {columns_of('p', columns)} FROM evidence_probes p WHERE p._side = {_SAMPLE}"


def probed_records() -> str:
    """Name the probes of the version before, each record once by its first probe, those asked about first."""
    order = "p._side ASC NULLS LAST, p._place ASC NULLS LAST"
    turn = f"row_number() OVER (PARTITION BY p._own ORDER BY {order})"
    return (
        f"SELECT p._side, p._place FROM (SELECT p._side, p._place, p._own, {turn} AS _turn FROM evidence_probes p"
        f" WHERE p._own IS NOT NULL) p WHERE p._turn = 1 ORDER BY {order} LIMIT {NEAR_PROBES}"
    )


def near_each_other(shapes: Sequence[bytes | None]) -> list[tuple[int, int]]:
    """Give pairs of places whose shapes' boxes lie about 50 m apart at most, a few of each shape, in steady order."""
    boxes = shapely.envelope(shapely.from_wkb(shapes))
    west, south, east, north = shapely.bounds(boxes).T
    wide = shapely.box(west - _NEAR, south - _NEAR, east + _NEAR, north + _NEAR)
    one, other = shapely.STRtree(boxes).query(np.where(shapely.is_missing(boxes), None, wide))
    pairs = sorted((int(a), int(b)) for a, b in zip(one, other, strict=True) if a < b)
    taken: dict[int, int] = {}
    kept = []
    for a, b in pairs:
        if taken.setdefault(a, 0) < RESEMBLING:
            taken[a] += 1
            kept.append((a, b))
    return kept


def resembling_rows(columns: Sequence[str]) -> str:
    """Give the values of the records that resemble a probe, once each."""
    chosen = f"SELECT DISTINCT n.{RECORD_ID} FROM evidence_near n"
    values = columns_of("t", columns)
    return f"SELECT t.{RECORD_ID}, {values} FROM old t JOIN ({chosen}) c ON t.{RECORD_ID} = c.{RECORD_ID}"


def resembling_pairs() -> str:
    """Give who resembles whom, in a steady order."""
    order = f"n._side ASC NULLS LAST, n._place ASC NULLS LAST, n.{RECORD_ID} ASC NULLS LAST"
    return f"SELECT n._side, n._place, n.{RECORD_ID} FROM evidence_near n ORDER BY {order}"


def same_rows(compared: Sequence[str], columns: Sequence[str]) -> str:
    """Give the values, `old_N` and `new_N`, of pairs that other steps found and whose values may differ, by record id.

    `compared` are queries of such pairs.
    """
    pairs = " UNION ALL ".join(f"SELECT c.{ROW}, c.{RECORD_ID} FROM ({query}) c" for query in compared)
    first = f"SELECT p.{ROW}, p.{RECORD_ID} FROM ({pairs}) p ORDER BY p.{RECORD_ID} ASC NULLS LAST LIMIT {KNOWN_SAME}"
    values = [f"{t}.{quoted(name)} AS {t}_{place}" for t in ("old", "new") for place, name in enumerate(columns)]
    return (
        f"SELECT {', '.join(values)} FROM ({first}) f JOIN touched_old old ON f.{RECORD_ID} = old.{RECORD_ID}"
        f" JOIN touched_new new ON f.{ROW} = new.{ROW} ORDER BY f.{RECORD_ID} ASC NULLS LAST"
    )
