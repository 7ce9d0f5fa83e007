"""Two more peers on the same left-over rows: recordlinkage as its documentation shows it, and Jaro-Winkler in DuckDB.

Both get Splink's frames: texts folded, candidates that share a value held by at most 50 rows of a side or a cell of
about 100 m. Also the limit of the job: reading the rows and making candidates by hash joins, in DuckDB.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.matched import ARROW
from bench.splinked import HELD_AT_MOST, LEAST, frame, useful

Linked = dict[int, tuple[int, float]]
Rows = list[dict[str, Any]]
FEW_VALUES = 20
"""A column with no more values is compared as a whole."""


def recordlinkage(old: Rows, new: Rows, types: dict[str, str]) -> Linked:
    """Block, compare by each type's own measure, classify without labels (ECM); match at 0.85 or more."""
    import recordlinkage as linkage

    columns, (left, right) = _frames(old, new, types)
    index, compare = linkage.Index(), linkage.Compare()
    for name in columns:
        for block in ("cell_here", "cell_beside") if name == "geometry" else (f"{name}_rare",):
            index.block(block)
        _compared(compare, name, columns[name], left)
    pairs = index.index(left, right)
    classifier = linkage.ECMClassifier(binarize=0.8)
    features = compare.compute(pairs, left, right).fillna(0.0)
    classifier.fit(features)
    likely = classifier.prob(features)
    return one_to_one(zip(likely.index.to_list(), likely.to_list(), strict=True))


def _compared(compare: Any, name: str, type_: str, left: pd.DataFrame) -> None:
    if type_ == "geometry":
        compare.geo("lat", "lon", "lat", "lon", method="gauss", scale=0.2)
    elif type_ in ("string", "json") and left[name].nunique() > FEW_VALUES:
        compare.string(name, name, method="jarowinkler")
    elif type_ == "date":
        compare.date(name, name)
    elif type_ in ("number", "integer"):
        compare.numeric(name, name, method="gauss", scale=max(1.0, float(left[name].std()) / 10))
    else:
        compare.exact(name, name)


def _frames(old: Rows, new: Rows, types: dict[str, str]) -> tuple[dict[str, str], tuple[pd.DataFrame, pd.DataFrame]]:
    columns = useful([*old, *new], types)
    left, right = (frame(rows, columns).astype(object).replace({pd.NA: None}) for rows in (old, new))
    for table in (left, right):
        for name, type_ in columns.items():
            if type_ in ("number", "integer"):
                table[name] = pd.to_numeric(table[name])
            elif type_ == "date":
                table[name] = pd.to_datetime(table[name])
        if "geometry" in columns:
            table[["lat", "lon"]] = table[["lat", "lon"]].astype(float)
    return columns, (left, right)


def jaro_winkler(old: Rows, new: Rows, types: dict[str, str]) -> Linked:
    """Score candidates by the mean Jaro-Winkler likeness of all columns as text; match at 0.85 or more."""
    columns = useful([*old, *new], types)
    named = [name for name in columns if name != "geometry"]
    database = duckdb.connect(config={"threads": 2})
    for side, rows in (("old", old), ("new", new)):
        database.register(f"{side}_frame", frame(rows, columns))
        database.execute(f"CREATE TEMP TABLE {side} AS SELECT * FROM {side}_frame")
    blocks = [f"{name}_rare" for name in named]
    blocks += ["cell_here", "cell_beside"] if "geometry" in columns else []
    shared = " UNION ".join(
        f'SELECT o.unique_id a, n.unique_id b FROM old o JOIN new n ON o."{k}" = n."{k}"' for k in blocks
    )
    alike = [f'jaro_winkler_similarity(o."{n}"::VARCHAR, n."{n}"::VARCHAR)' for n in named]
    alike += ["greatest(0, 1 - (abs(o.lat - n.lat) + abs(o.lon - n.lon)) * 500)"] if "geometry" in columns else []
    found = database.execute(
        f"SELECT a, b, list_avg(list_filter([{', '.join(alike)}], lambda x: x IS NOT NULL)) AS score FROM ({shared}) p"
        " JOIN old o ON p.a = o.unique_id JOIN new n ON p.b = n.unique_id"
    ).fetchall()
    return one_to_one(((a, b), score or 0.0) for a, b, score in found)


def one_to_one(scored: Any) -> Linked:
    """Match best first at 0.85 or more, ties by place."""
    matched: Linked = {}
    taken: set[int] = set()
    for (old, new), score in sorted(scored, key=lambda one: (-one[1], one[0])):
        if score >= LEAST and old not in matched and new not in taken:
            matched[old] = (new, float(score))
            taken.add(new)
    return matched


def limit(old: Rows, new: Rows, types: dict[str, str], runs: int = 3) -> float:
    """Give the CPU seconds of the limit: reading both sides and making candidates by hash joins, the best run."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "old.parquet", Path(folder) / "new.parquet"]
        for file, rows in zip(files, (old, new), strict=True):
            arrays = {name: pa.array([row[name] for row in rows], ARROW[type_]) for name, type_ in types.items()}
            pq.write_table(pa.table(arrays), file)
        return min(_candidates(files, [name for name in types if name != "geometry"]) for _ in range(runs))


def _candidates(files: list[Path], columns: list[str]) -> float:
    started = time.process_time()
    with duckdb.connect(config={"threads": 2}) as database:
        for side, file in zip(("old", "new"), files, strict=True):
            database.execute(f"CREATE TEMP TABLE {side} AS SELECT row_number() OVER () AS _place, * FROM '{file}'")
        rare = 'SELECT "{0}" AS v FROM {1} GROUP BY v HAVING count(*) <= {2}'
        shared = " UNION ALL ".join(
            f'SELECT o._place AS a, n._place AS b FROM old o JOIN new n ON o."{c}" = n."{c}"'
            f' JOIN ({rare.format(c, "old", HELD_AT_MOST)}) ro ON o."{c}" = ro.v'
            f' JOIN ({rare.format(c, "new", HELD_AT_MOST)}) rn ON o."{c}" = rn.v'
            for c in columns
        )
        database.execute(f"CREATE TEMP TABLE pairs AS SELECT a, b, count(*) AS held FROM ({shared}) GROUP BY a, b")
    return time.process_time() - started
