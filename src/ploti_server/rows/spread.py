"""Queries that tell how a state's values are spread, to suggest keys and coordinates."""

from collections.abc import Sequence

from ploti_server.rows.sql import quoted


def distinct_values(columns: Sequence[str]) -> str:
    """Count the different values of each column, as `n0`, `n1`, ...; nulls do not count."""
    counts = [f"count(DISTINCT n.{quoted(name)}) AS n{place}" for place, name in enumerate(columns)]
    return f"SELECT {', '.join(counts) or 'count(*) AS rows'} FROM new n"


def bounds(columns: Sequence[str]) -> str:
    """Give the least and the most of each column, as `least0`, `most0`, ..."""
    ends = [
        f"min(n.{quoted(name)}) AS least{place}, max(n.{quoted(name)}) AS most{place}"
        for place, name in enumerate(columns)
    ]
    return f"SELECT {', '.join(ends) or 'count(*) AS rows'} FROM new n"


def distinct_pairs(one: str, other: str) -> str:
    """Count the different pairs of values of two columns."""
    pair = f"n.{quoted(one)}, n.{quoted(other)}"
    return f"SELECT count(*) AS found FROM (SELECT {pair} FROM new n GROUP BY {pair}) t"


def some_values(column: str, limit: int) -> str:
    """Give a few values of a column."""
    return f"SELECT n.{quoted(column)} AS _value FROM new n WHERE n.{quoted(column)} IS NOT NULL LIMIT {limit}"
