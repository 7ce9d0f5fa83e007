"""Parquet parts read by DuckDB, for targets of another kind: within little memory, files that are none refused."""

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import duckdb

from ploti.contract.files import PREVIOUS_RECORD_ID, RECORD_ID
from ploti.sync.target import Delivery, IdsReplaced, StepBlocked, StepRefused

_CHAIN: Final = 100
_LEAST_MB: Final = 128
_TIMES_A_GROUP: Final = 4
"""What reading a row group takes, in times its bytes: its pages, their values, and what is made of these."""
_PAIRS_AT_A_TIME: Final = 10_000
PAIR: Final = f'"{PREVIOUS_RECORD_ID}", "{RECORD_ID}"'
"""Columns of an id map: an id, and the one that its record has after it."""
ID_LIKE: Final = "rec!_%"
"""What every record id is like, with `!` as escape."""
_ID_FORM: Final = re.compile(r"rec_[0-9A-Za-z]{1,90}")


def joined(terms: Sequence[str], sign: str) -> str:
    """Join SQL terms by an operator that may be grouped anyhow, as a tree: no engine takes a chain of a thousand."""
    if len(terms) <= _CHAIN:
        return sign.join(terms)
    middle = len(terms) // 2
    return f"({joined(terms[:middle], sign)}){sign}({joined(terms[middle:], sign)})"


@contextmanager
def reading(
    paths: Iterable[Path] = (), *, least_mb: int = _LEAST_MB, spill: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a reader with memory for these Parquet files, which may spill into a folder; ones that are none are refused.

    Files are read a row group at a time, however many there are.
    """
    try:
        memory = _memory(list(paths), least_mb)
        engine = _engine(memory, os.getpid()) if spill is None else _started(memory, spill)
        with engine.cursor() as reader:
            reader.execute("SET TimeZone = 'UTC'")
            reader.execute("SET enable_geoparquet_conversion = false")
            yield reader
    except duckdb.Error as error:
        _engine.cache_clear()
        raise StepRefused(str(error).partition("\n")[0]) from error


def _memory(paths: Sequence[Path], least_mb: int) -> str:
    """Give the least memory doubled until the largest row group has room, so that few engines are started."""
    needed = least_mb + _largest_group(paths) * _TIMES_A_GROUP // 1_000_000 if paths else least_mb
    doublings = max(0, math.ceil(math.log2(needed / least_mb)))
    return f"{least_mb << doublings}MB"


def _largest_group(paths: Sequence[Path]) -> int:
    """Give the bytes of the largest row group, before compression."""
    files = ", ".join(literal(str(path)) for path in paths)
    with _engine(f"{_LEAST_MB}MB", os.getpid()).cursor() as reader:
        ((largest,),) = reader.execute(f"SELECT max(row_group_bytes) FROM parquet_metadata([{files}])").fetchall()
    return largest or 0


def _started(memory: str, spill: Path | None) -> duckdb.DuckDBPyConnection:
    config: dict[str, str | bool | int | float | list[str]] = {"threads": 1, "memory_limit": memory}
    if spill is not None:
        config["temp_directory"] = str(spill)
    return duckdb.connect(config=config)


@cache
def _engine(memory: str, process: int) -> duckdb.DuckDBPyConnection:  # noqa: ARG001  # a fork starts its own
    """Start DuckDB once for all datasets; each reader has a connection and temporary tables of its own.

    What a process was forked with stays untouched: it has no threads there, and ending it would wait for them.
    """
    return _started(memory, None)


def parts_source(paths: Iterable[Path]) -> str:
    """Give parts of one kind as a source of a query."""
    return f"read_parquet([{', '.join(literal(str(path)) for path in paths)}])"


def file_columns(reader: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> list[str]:
    """Name the columns of the parts of one kind."""
    return [row[0] for row in reader.execute(f"DESCRIBE SELECT * FROM {parts_source(paths)}").fetchall()]


def check_file_columns(reader: duckdb.DuckDBPyConnection, paths: Sequence[Path], names: Iterable[str]) -> None:
    """Refuse parts that lack a column of the schema; others, such as a bounding box, are left out."""
    missing = set(names) - set(file_columns(reader, paths)) if paths else set()
    if missing:
        raise StepRefused(f"the files lack the column {min(missing)!r} of their schema")


def id_pairs(reader: duckdb.DuckDBPyConnection, replaced: IdsReplaced) -> Iterator[Iterator[Sequence[Any]]]:
    """Give each id map in turn as batches of pairs, an id and the one after it; last what was told of single ids."""
    for parts in replaced.maps:
        found = reader.execute(f"SELECT {PAIR} FROM {parts_source(parts)}")
        yield iter(partial(found.fetchmany, _PAIRS_AT_A_TIME), [])
    if replaced.told:
        yield iter([list(replaced.told.items())])


def lost_ids(kept: Iterable[object], delivery: Delivery) -> frozenset[str]:
    """Give those of the user's ids that no record of a snapshot carries, once they are rewritten.

    What can be no id is not asked about, whatever a user keeps beside ids.
    """
    assert delivery.ids_replaced is not None
    ids = [id_ for id_ in kept if isinstance(id_, str) and _ID_FORM.fullmatch(id_)]
    with reading(delivery.paths) as reader:
        reader.execute("CREATE TEMP TABLE kept AS SELECT unnest(?::VARCHAR[]) AS id", [ids])
        for parts in delivery.ids_replaced.maps:
            pairs = f"(SELECT {PAIR} FROM {parts_source(parts)}) AS map (previous, id)"
            reader.execute(f"UPDATE kept SET id = map.id FROM {pairs} WHERE kept.id = map.previous")
        told = delivery.ids_replaced.told
        rewritten = {told.get(id_, id_) for (id_,) in reader.execute("SELECT id FROM kept").fetchall()}
        reader.execute("CREATE OR REPLACE TEMP TABLE kept AS SELECT unnest(?::VARCHAR[]) AS id", [list(rewritten)])
        if delivery.snapshot:
            carried = f"SELECT {quoted(RECORD_ID)} FROM {parts_source(delivery.snapshot)}"
            reader.execute(f"DELETE FROM kept WHERE id IN ({carried})")
        found = reader.execute("SELECT id FROM kept").fetchall()
    return frozenset(id_ for (id_,) in found)


def no_column(table: str, column: str) -> StepBlocked:
    """Tell that a column in which ids are to be rewritten is not there, or none that can hold any."""
    return StepBlocked(f"there is no {table}.{column} of text to rewrite ids in: name another column, or none")


def quoted(name: str) -> str:
    """Give a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Give a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
