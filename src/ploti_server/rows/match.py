"""Row queries that pair a new state's rows with the records of the version before it (D4.4, D4.5).

Tables read: `new` (`_ploti_row`, own columns), `old` (the previous snapshot: `_ploti_record_id`, own columns), and the
left-overs of earlier steps. Each query gives pairs (`_ploti_row`, `_ploti_record_id`), one to one. No order ever comes
from `_ploti_row` or an engine's hash, so that the order of a source's rows decides nothing (D4.1).
"""

from collections.abc import Mapping, Sequence

from ploti.contract.files import RECORD_ID
from ploti.contract.values import ColumnType
from ploti_server.rows.sql import all_equal, columns_of, quoted, row_hash, total_order

ROW = "_ploti_row"


def repeated_keys(table: str, key: Sequence[str]) -> str:
    """Give the whole keys that more than one row of a table has, with the number of rows in `_ploti_rows`."""
    names = columns_of("t", key)
    whole = " AND ".join(f"t.{quoted(name)} IS NOT NULL" for name in key)
    return f"SELECT {names}, count(*) AS _ploti_rows FROM {table} t WHERE {whole} GROUP BY {names} HAVING count(*) > 1"


def repeated_rows(repeated: str) -> str:
    """Count the rows that share their key with another."""
    return f"SELECT CAST(COALESCE(SUM(r._ploti_rows), 0) AS BIGINT) AS found FROM {repeated} r"


def null_keys(table: str, key: Sequence[str]) -> str:
    """Count the rows of a table whose key has a null."""
    missing = " OR ".join(f"t.{quoted(name)} IS NULL" for name in key)
    return f"SELECT count(*) AS found FROM {table} t WHERE {missing}"


def keyed_rows(table: str, label: str, key: Sequence[str], compared: Sequence[str]) -> str:
    """Give each row's label, key and the hash of its compared values: what matching by key needs of a whole row."""
    hashed = row_hash([f"t.{quoted(name)}" for name in compared])
    return f"SELECT t.{label}, {columns_of('t', key)}, {hashed} AS _ploti_hash FROM {table} t"


def pairs_by_key(key: Sequence[str]) -> str:
    """Pair the rows of `keyed_new` and `keyed_old` by a key that is whole and unique in both versions.

    `_differs` tells that a compared value may differ.
    """
    old, new = _unique_keys("old", RECORD_ID, key), _unique_keys("new", ROW, key)
    return (
        f"SELECT n.{ROW}, o.{RECORD_ID}, n._ploti_hash IS DISTINCT FROM o._ploti_hash AS _differs"
        f" FROM ({new}) n JOIN ({old}) o ON {all_equal('n', 'o', key)}"
    )


def _unique_keys(side: str, label: str, key: Sequence[str]) -> str:
    return (
        f"SELECT t.{label}, {columns_of('t', key)}, t._ploti_hash FROM keyed_{side} t"
        f" LEFT JOIN repeated_{side} r ON {all_equal('t', 'r', key)} WHERE r._ploti_rows IS NULL"
    )


def left_over(table: str, label: str, pairs: str) -> str:
    """Give the labels of a table that no pair holds."""
    return f"SELECT t.{label} FROM {table} t LEFT JOIN {pairs} p ON t.{label} = p.{label} WHERE p.{label} IS NULL"


def rows_of(table: str, label: str, chosen: str) -> str:
    """Give the whole rows of a table whose labels another table holds."""
    return f"SELECT t.* FROM {table} t JOIN {chosen} c ON t.{label} = c.{label}"


def repeated_in_either(key: Sequence[str]) -> str:
    """Give the keys that more than one row has, in the new state or in the version before."""
    names = columns_of("r", key)
    sides = (f"SELECT {names}, r._ploti_rows FROM repeated_{side} r" for side in ("new", "old"))
    either = " UNION ALL ".join(sides)
    return f"SELECT {names}, max(r._ploti_rows) AS _ploti_rows FROM ({either}) r GROUP BY {names}"


def unusable_keys(table: str, label: str, repeated: str, key: Sequence[str]) -> str:
    """Give the labels of left-over rows whose key has a null or is repeated."""
    nulls = " OR ".join(f"t.{quoted(name)} IS NULL" for name in key)
    return (
        f"SELECT t.{label} FROM {table} t LEFT JOIN {repeated} r ON {all_equal('t', 'r', key)}"
        f" WHERE r._ploti_rows IS NOT NULL OR {nulls}"
    )


def hashed(table: str, label: str, columns: Sequence[str], types: Mapping[str, ColumnType]) -> str:
    """Give each row's label and two hashes of its content, the second over the same values written otherwise."""
    first = row_hash([f"t.{quoted(name)}" for name in columns])
    second = row_hash([_otherwise(f"t.{quoted(name)}", types[name]) for name in reversed(columns)])
    return f"SELECT t.{label}, {first} AS _h1, {second} AS _h2 FROM {table} t"


def _otherwise(expression: str, type_: ColumnType) -> str:
    """Write a value so that two texts or shapes with one hash have two here; null stays null."""
    if type_ == "geometry":
        return f"HEX({expression})"
    return f"{expression} || '~'" if type_ in ("string", "json") else expression


def repeated_content(old: str, new: str) -> str:
    """Give the content hashes that more than one row of either side has."""
    each = "SELECT t._h1, t._h2 FROM {} t GROUP BY t._h1, t._h2 HAVING count(*) > 1"
    return f"{each.format(old)} UNION {each.format(new)}"


def pairs_by_single_content(old: str, new: str, repeated: str) -> str:
    """Pair rows whose content neither side repeats."""
    return (
        f"SELECT n.{ROW}, o.{RECORD_ID} FROM {new} n JOIN {old} o ON n._h1 = o._h1 AND n._h2 = o._h2"
        f" LEFT JOIN {repeated} r ON n._h1 = r._h1 AND n._h2 = r._h2 WHERE r._h1 IS NULL"
    )


def records_of_content(hashes: str, repeated: str) -> str:
    """Give the ids of the old records whose content is repeated."""
    return f"SELECT h.{RECORD_ID} FROM {hashes} h JOIN {repeated} r ON h._h1 = r._h1 AND h._h2 = r._h2"


def pairs_by_repeated_content(
    old: tuple[str, str, str], new: tuple[str, str], repeated: str, orders: tuple[Sequence[str], Sequence[str]]
) -> str:
    """Pair equal rows by ordinal, as a multiset; ordinals follow the whole row, volatile columns too (D4.2).

    `old` and `new` name the table with the rows and the one with their hashes; for old ones also their ledger entries,
    so that of equal records the one that came first stays. `orders` are the columns of old and new.
    """
    seniority = ["e.first_version", "e.ordinal", f"t.{RECORD_ID}"]
    joined = f" LEFT JOIN {old[2]} e ON t.{RECORD_ID} = e.{RECORD_ID}"
    old_side = _numbered(old[:2], repeated, RECORD_ID, [*columns_in_order("t", orders[0]), *seniority], joined)
    new_side = _numbered(new, repeated, ROW, columns_in_order("t", orders[1]))
    return (
        f"SELECT n.{ROW}, o.{RECORD_ID} FROM ({new_side}) n"
        f" JOIN ({old_side}) o ON n._h1 = o._h1 AND n._h2 = o._h2 AND n._ordinal = o._ordinal"
    )


def _numbered(tables: tuple[str, str], repeated: str, label: str, order: Sequence[str], joined: str = "") -> str:
    rows, hashes = tables
    over = f"PARTITION BY h._h1, h._h2 ORDER BY {total_order(order)}"
    return (
        f"SELECT t.{label}, h._h1, h._h2, row_number() OVER ({over}) AS _ordinal FROM {rows} t"
        f" JOIN {hashes} h ON t.{label} = h.{label}"
        f" JOIN {repeated} r ON h._h1 = r._h1 AND h._h2 = r._h2{joined}"
    )


def columns_in_order(alias: str, names: Sequence[str]) -> list[str]:
    """List columns in byte order of name, so that a source's column order decides nothing; never empty."""
    return [f"{alias}.{quoted(name)}" for name in sorted(names, key=str.encode)] or ["0"]


def equal_pairs(pairs: str, old: str, new: str, columns: Sequence[str]) -> str:
    """Keep only the pairs that are equal by value, so that a collision of hashes matches nothing."""
    same = [f"n.{quoted(name)} IS NOT DISTINCT FROM o.{quoted(name)}" for name in columns]
    return (
        f"SELECT p.{ROW}, p.{RECORD_ID} FROM {pairs} p JOIN {new} n ON p.{ROW} = n.{ROW}"
        f" JOIN {old} o ON p.{RECORD_ID} = o.{RECORD_ID} WHERE {' AND '.join(same) or 'TRUE'}"
    )


def undiscerned(pairs: str, old: str, new: str, column: str, at_most: int) -> str:
    """Give the pairs that do not share a value of this column held by at most so many left-overs a side (D4.6)."""
    name = quoted(column)
    rare = (
        f"SELECT t.{name} AS _value FROM {{}} t WHERE t.{name} IS NOT NULL GROUP BY t.{name}"
        f" HAVING count(*) <= {at_most}"
    )
    return (
        f"SELECT p.{ROW}, p.{RECORD_ID} FROM {pairs} p JOIN {new} n ON p.{ROW} = n.{ROW}"
        f" JOIN {old} o ON p.{RECORD_ID} = o.{RECORD_ID}"
        f" LEFT JOIN ({rare.format(old)}) ro ON o.{name} = ro._value"
        f" LEFT JOIN ({rare.format(new)}) rn ON n.{name} = rn._value"
        f" WHERE ro._value IS NULL OR rn._value IS NULL OR o.{name} IS DISTINCT FROM n.{name}"
    )


def minus(pairs: str, taken: str) -> str:
    """Give the pairs of one table whose row another does not hold."""
    return (
        f"SELECT p.{ROW}, p.{RECORD_ID} FROM {pairs} p LEFT JOIN {taken} t ON p.{ROW} = t.{ROW} WHERE t.{ROW} IS NULL"
    )


def all_pairs(tables: Sequence[str]) -> str:
    """Give the pairs of several tables; no pairs where there is none."""
    if not tables:
        return f"SELECT CAST(0 AS BIGINT) AS {ROW}, CAST(NULL AS VARCHAR) AS {RECORD_ID} WHERE FALSE"
    return " UNION ALL ".join(f"SELECT p.{ROW}, p.{RECORD_ID} FROM {table} p" for table in tables)
