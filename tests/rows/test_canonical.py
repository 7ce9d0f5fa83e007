"""Arrow's canonical rows, hashes and digests equal the definition's, and so does DuckDB's own expression (D2.11)."""

import math
from datetime import UTC, date, datetime

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.golden import DIGEST, RECORDS

from ploti.contract.digest import Digest, canonical_row, canonical_value, record_hash
from ploti.contract.values import COLUMN_TYPES, STORAGE_TYPES, clean_text
from ploti_server.rows.canonical import canonical_rows, canonical_texts, json_value, key_texts, record_hashes, slices
from ploti_server.rows.digest import digest_of

ARROW = {
    "string": pa.string(),
    "json": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "geometry": pa.binary(),
}


def batch_of(rows, types):
    arrays = [pa.array([row.get(name) for row in rows], ARROW[type_]) for name, type_ in types.items()]
    fields = [pa.array([f"rec_{place:026d}" for place in range(len(rows))], pa.string()), *arrays]
    return pa.RecordBatch.from_arrays(fields, names=["_ploti_record_id", *types])


@pytest.mark.parametrize("golden", RECORDS, ids=lambda golden: golden.name)
def test_golden_vectors_in_arrow(golden):
    batch = batch_of([golden.values], golden.columns)
    rows = canonical_rows(batch, golden.columns)
    assert rows.to_pylist() == [golden.row]
    assert record_hashes(pa.array([golden.record_id]), rows) == [golden.hash]


def duckdb_text(name, type_):
    """Write DuckDB's canonical text of a value, as the sync client's target writes its own."""
    column = f'"{name}"'
    return {
        "integer": f"CAST({column} AS VARCHAR)",
        "number": f"CASE WHEN isfinite({column}) THEN CAST(({column} + 0.0)::BIT::BIGINT AS VARCHAR) END",
        "boolean": f"CASE WHEN {column} THEN '1' WHEN NOT {column} THEN '0' END",
        "date": f"CAST({column} - DATE '1970-01-01' AS VARCHAR)",
        "timestamp": f"CAST(epoch_us({column}) AS VARCHAR)",
        "geometry": f"lower(hex({column}))",
        "string": column,
        "json": column,
    }[type_]


def duckdb_row(types):
    parts = []
    for name in sorted(types, key=str.encode):
        text = duckdb_text(name, types[name])
        parts.append(f"COALESCE('{name}:' || CAST(length({text}) AS VARCHAR) || ':' || {text} || ';', '')")
    return " || ".join(parts) or "''"


@pytest.mark.parametrize("golden", RECORDS, ids=lambda golden: golden.name)
def test_golden_vectors_in_duckdb(golden):
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    batch = batch_of([golden.values], golden.columns)
    names = ", ".join(f'CAST("{n}" AS {STORAGE_TYPES[t].duckdb}) AS "{n}"' for n, t in golden.columns.items())
    connection.register("given", pa.Table.from_batches([batch]))
    row = duckdb_row(golden.columns)
    found = connection.execute(
        f"SELECT row, sha256(? || chr(10) || row) FROM (SELECT {row} AS row FROM (SELECT {names or '1'} FROM given))",
        [golden.record_id],
    ).fetchall()
    assert found == [(golden.row, golden.hash.hex())]


def test_golden_digest_of_batches():
    total = Digest()
    for golden in RECORDS:
        batch = batch_of([golden.values], golden.columns)
        batch = batch.set_column(0, "_ploti_record_id", pa.array([golden.record_id]))
        total.merge(digest_of([batch], golden.columns))
    assert total.to_wire() == DIGEST


VALUES = {
    "string": st.text(max_size=8).map(clean_text),
    "json": st.text("{}:1\u00e9\U0001f6a7", min_size=1, max_size=8),
    "integer": st.integers(-(2**63), 2**63 - 1),
    "number": st.floats(),
    "boolean": st.booleans(),
    "date": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "geometry": st.binary(max_size=9),
}


@st.composite
def tables(draw):
    names = draw(st.lists(st.text("abz_0", min_size=1, max_size=4), unique=True, max_size=4))
    types = {name: draw(st.sampled_from(COLUMN_TYPES)) for name in names}
    row = st.fixed_dictionaries({name: st.none() | VALUES[type_] for name, type_ in types.items()})
    return types, draw(st.lists(row, max_size=6))


@settings(max_examples=150, deadline=None)
@given(tables(), st.integers(1, 200))
def test_arrow_equals_the_definition(table, limit):
    types, rows = table
    batch = batch_of(rows, types)
    texts = [text for part in slices(batch, limit) for text in canonical_rows(part, types).to_pylist()]
    assert texts == [canonical_row(row, types) for row in rows]
    ids = batch.column(0).to_pylist()
    expected = Digest()
    for id_, text in zip(ids, texts, strict=True):
        expected.add(id_, record_hash(id_, text))
    assert digest_of([batch], types) == expected
    for name, type_ in types.items():
        column = canonical_texts(batch.column(name), type_).to_pylist()
        assert column == [canonical_value(row[name], type_) for row in rows]


def test_sliced_batches_read_their_own_bytes():
    batch = batch_of([{"g": bytes([n])} for n in range(9)], {"g": "geometry"}).slice(3, 4)
    assert canonical_rows(batch, {"g": "geometry"}).to_pylist() == [f"g:2:{n:02x};" for n in range(3, 7)]


def test_key_text_tells_types_and_lengths_apart():
    batch = batch_of([{"a": "1", "b": 1}, {"a": "1;", "b": None}], {"a": "string", "b": "integer"})
    assert key_texts(batch, {"b": "integer", "a": "string"}).to_pylist() == ["integer:1:1;string:1:1;", None]


@pytest.mark.parametrize(
    ("value", "type_", "shown"),
    [
        (None, "string", None),
        ("x", "string", "x"),
        (7, "integer", 7),
        (0.1, "number", 0.1),
        (True, "boolean", True),
        (False, "boolean", False),
        (date(1, 2, 3), "date", "0001-02-03"),
        (datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "timestamp", "2026-01-02T03:04:05.000006Z"),
        ('{"a":1}', "json", '{"a":1}'),
    ],
)
def test_json_value_of_a_constant(value, type_, shown):
    found = json_value(canonical_value(value, type_), type_)
    assert found == shown
    assert not isinstance(found, float) or math.isfinite(found)
