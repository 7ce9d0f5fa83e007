"""`python -m bench.dirty [--rows N ...]`: are dirty states matched exactly? JSON lines, for 10 k, 100 k and 1 M rows.

A keyed table whose key is not whole: keys that several records share, in one state or in both, records without a key,
records that gain, lose or change theirs, equal rows, beside records that are edited, go and come. Nothing is judged.
Every survivor has to keep its id (else it is missed), no id may go to another record (else it is false), and the
changes have to hold exactly what was edited, went and came.
"""

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from bench.matched import ARROW, PLACE, Chain
from bench.measure import judge, provenance
from ploti.contract.digest import canonical_value
from ploti.contract.files import OP
from ploti_server.adapters.agents import NobodyJudges
from ploti_server.domain.datasets import Dataset, MatchingLimits, SourceSpec
from ploti_server.domain.schema import Column, Schema
from ploti_server.domain.states import StateRead
from ploti_server.rows.match import ROW

ROWS = (10_000, 100_000, 1_000_000)
KEY = "permit_number"
TYPES = {KEY: "string", "address": "string", "parcel": "string", "status": "string", "applied": "date",
         "valuation": "number", "description": "string"}  # fmt: skip

KINDS = {
    "edited": (0, 9, "own", "own"),
    "removed": (10, 14, "own", None),
    "renumbered": (15, 24, "own", "new"),
    "shares its key": (25, 28, "shared", "shared"),
    "no key": (29, 31, "none", "none"),
    "gains a key": (32, 33, "none", "own"),
    "loses its key": (34, 35, "own", "none"),
    "takes another's key": (36, 37, "own", "another's"),
    "gives a shared key up": (38, 39, "shared", "new"),
    "no key, removed": (40, 41, "none", None),
    "shares its key, removed": (42, 43, "shared", None),
    "equal rows": (44, 47, "shared", "shared"),
    "equal rows, one removed": (48, 48, "shared", "shared"),
    "the equal row that is removed": (49, 49, "shared", None),
}
"""Kinds of records: first and last place among a thousand, and the key in the old and in the new state; None where the
record is gone. All others keep a key of their own and everything else."""

KEYS = {"own": "number(i)", "new": "'N' || number(i)", "shared": "number(i - i % 2)", "none": "NULL",
        "another's": "number(i + 100)"}  # fmt: skip
CAME = "CASE i % 10 WHEN 0 THEN NULL WHEN 1 THEN number(i) WHEN 2 THEN number(i - 1) ELSE number(i) END"
"""The key of a record that came: of ten, one has none and two share theirs."""


def states(rows: int) -> tuple[pa.Table, pa.Table]:
    """Make both states; one record comes for each hundred, and the new state stands in another order."""
    with duckdb.connect(config={"threads": 2}) as database:
        database.execute("CREATE MACRO number(i) AS 'B' || lpad((i)::VARCHAR, 9, '0')")
        gone = " OR ".join(_among(*places[:2]) for places in KINDS.values() if places[3] is None)
        old = _state(rows, f"CASE {_keys(2)} ELSE number(i) END", "true", "'issued'", 1)
        key = f"CASE WHEN i >= {rows} THEN {CAME} {_keys(3)} ELSE number(i) END"
        status = f"CASE WHEN i < {rows} AND {_among(*KINDS['edited'][:2])} THEN 'finaled' ELSE 'issued' END"
        new = _state(rows + rows // 100, key, f"i >= {rows} OR NOT ({gone})", status, 2)
        return database.sql(old).to_arrow_table(), database.sql(new).to_arrow_table()


def _among(first: int, last: int) -> str:
    return f"i % 1000 BETWEEN {first} AND {last}"


def _keys(state: int) -> str:
    ways = ((places, places[state]) for places in KINDS.values())
    return " ".join(f"WHEN {_among(*places[:2])} THEN {KEYS[way]}" for places, way in ways if way is not None)


def _state(rows: int, key: str, kept: str, status: str, turn: int) -> str:
    """Give the query of a state; of two equal rows the second has the values of the first."""
    first = KINDS["equal rows"][0]
    return (
        f"SELECT {key} AS {KEY}, (100 + v % 9900) || ' ' || ['Oak', 'Pine', 'Lake', 'Hill'][1 + v % 4] || ' Street, '"
        f" || 'lot ' || v AS address, printf('%02d-%07d', v % 30, v) AS parcel, {status} AS status,"
        " DATE '2020-01-01' + (v * 7 % 2000)::INTEGER AS applied, (v * 131 % 900000) / 7.0 AS valuation,"
        f" 'roof and panel ' || (v * 17 % 4001) AS description, i AS {PLACE} FROM (SELECT i::BIGINT AS i, (CASE WHEN"
        f" {_among(first, 49)} THEN i - i % 2 ELSE i END)::BIGINT AS v FROM range({rows}) t(i)) WHERE {kept}"
        f" ORDER BY hash(i * 3 + {turn})"
    )


def follow(old: pa.Table, new: pa.Table, folder: Path) -> dict[str, Any]:
    """Match both states as two versions; gives who was missed, who was taken for another, and the changes by kind."""
    source = SourceSpec("file", "x")
    dataset = Dataset("ds_permits", "Permits", source, key=(KEY,), matching=MatchingLimits(agent="nobody"))
    chain = Chain(folder, dataset, NobodyJudges(), columns=(PLACE,))
    before, after = (chain.next(lambda engine, state=state: _read(engine, state)) for state in (old, new))
    survivors = set(old[PLACE].to_pylist()) & set(new[PLACE].to_pylist())
    kept = {before.rows[own][PLACE]: row[PLACE] for own, row in after.rows.items() if own in before.rows}
    return {
        "survivors": len(survivors),
        "missed": sum(place not in kept for place in survivors),
        "false": sum(_named(one) != _named(other) for one, other in kept.items()),
        "changes": dict(sorted(Counter(row[OP] for row in after.changes).items())),
        "by": after.by,
        "cpu": round(after.cpu, 2),
        "wall": round(after.wall, 2),
    }


def _named(place: int) -> int:
    """Give what names a record: of equal rows nobody can say which is which."""
    return place - place % 2 if KINDS["equal rows"][0] <= place % 1000 <= 49 else place


def _read(engine: Any, state: pa.Table) -> StateRead:
    columns = [Column(name, type_, True, name) for name, type_ in TYPES.items()]
    columns.append(Column(PLACE, "integer", True, PLACE, volatile=True))
    schema = pa.schema([(ROW, pa.int64()), *((column.name, ARROW[column.type]) for column in columns)])
    table = state.add_column(0, ROW, pa.array(range(state.num_rows), pa.int64())).select(schema.names).cast(schema)
    engine.map_batches("new", iter(table.to_batches(max_chunksize=50_000)), schema)
    single = {name: pc.unique(state[name]).to_pylist() for name in TYPES}
    return StateRead(
        Schema(tuple(columns), (KEY,)),
        (),
        state.num_rows,
        nulls={name: state[name].null_count for name in (*TYPES, PLACE)},
        singles={n: canonical_value(one[0], TYPES[n]) for n, one in single.items() if len(one) == 1},
    )


def expected(rows: int) -> dict[str, int]:
    """Count the changes that the new state has to make."""
    thousands = rows // 1000
    sizes = {kind: last - first + 1 for kind, (first, last, *_) in KINDS.items()}
    gone = sum(sizes[kind] for kind, places in KINDS.items() if places[3] is None)
    other_key = sum(sizes[kind] for kind, places in KINDS.items() if places[3] not in (None, places[2]))
    upserts = thousands * (other_key + sizes["edited"]) + rows // 100
    return {"delete": thousands * gone, "upsert": upserts}


def main() -> None:
    """Match each size and print what came out, then whether it was exact."""
    parser = argparse.ArgumentParser(prog="python -m bench.dirty")
    parser.add_argument("--rows", type=int, action="append", help="in thousands of whole rows")
    for rows in parser.parse_args().rows or ROWS:
        old, new = states(rows)
        with tempfile.TemporaryDirectory() as folder:
            found = follow(old, new, Path(folder))
        print(json.dumps({"job": "dirty states", "rows": rows, **found, **provenance()}), flush=True)
        wanted = expected(rows)
        other = sum(abs(found["changes"].get(op, 0) - wanted.get(op, 0)) for op in wanted | found["changes"])
        judge("dirty states: missed, false, and changes too many or too few", {"rows": rows},
              found["missed"] + found["false"] + other, 0)  # fmt: skip


if __name__ == "__main__":
    main()
