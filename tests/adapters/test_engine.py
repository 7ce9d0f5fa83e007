"""DuckDB as the engine: out of core, in UTC, without extensions, leaving nothing behind (ports.Engine)."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ploti_server.adapters.engine import DuckDBEngine

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def batches(rows, step=100):
    for start in range(0, rows, step):
        numbers = range(start, min(start + step, rows))
        yield pa.RecordBatch.from_pylist([{"n": n, "s": f"text {n}"} for n in numbers], SCHEMA)


@pytest.fixture
def tables(tmp_path):
    with DuckDBEngine(256, 2).work(tmp_path / "odd [name]*?'") as tables:
        yield tables


def test_batches_become_a_table(tables):
    tables.map_batches("t", batches(250), SCHEMA)
    assert tables.one("SELECT count(*) AS rows, CAST(SUM(t.n) AS BIGINT) AS sum FROM t") == {"rows": 250, "sum": 31125}


def test_no_batches_become_an_empty_table(tables):
    tables.map_batches("t", iter(()), SCHEMA)
    assert list(tables.query("SELECT * FROM t")) == []
    assert tables.one("SELECT count(*) AS rows FROM t") == {"rows": 0}


def test_what_broke_off_is_replaced(tables):
    def breaking():
        yield from batches(300_000, 20_000)
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        tables.map_batches("t", breaking(), SCHEMA)
    tables.map_batches("t", batches(7), SCHEMA)
    assert tables.one("SELECT count(*) AS rows FROM t") == {"rows": 7}


def test_tables_are_made_while_an_answer_streams(tables):
    tables.map_batches("t", batches(1000), SCHEMA)
    seen = 0
    for place, batch in enumerate(tables.query("SELECT * FROM t", 100)):
        seen += batch.num_rows
        tables.keep(f"k{place}", f"SELECT * FROM t WHERE t.n = {place}")
        tables.map_batches(f"m{place}", iter([batch]), batch.schema)
    assert seen == 1000
    assert tables.one("SELECT k.n FROM k3 k") == {"n": 3}


def test_an_answer_can_be_staged_from_another(tables):
    tables.map_batches("t", batches(500), SCHEMA)
    tables.map_batches("u", tables.query("SELECT * FROM t WHERE t.n < 10"), SCHEMA)
    assert tables.one("SELECT count(*) AS rows FROM u") == {"rows": 10}


def test_a_table_that_was_let_go_makes_room_for_another(tables):
    tables.keep("once", "SELECT 1 AS a")
    tables.drop("once")
    tables.keep("once", "SELECT 2 AS a")
    assert tables.one("SELECT a FROM once") == {"a": 2}


def test_defined_tables_follow_what_they_read(tables):
    tables.keep("a", "SELECT 1 AS n")
    tables.define("b", "SELECT a.n + 1 AS n FROM a")
    assert tables.one("SELECT * FROM b") == {"n": 2}


def test_files_are_joined_by_name_and_shapes_stay_bytes(tables, tmp_path):
    geo = {"geo": '{"version":"1.1.0","primary_column":"g","columns":{"g":{"encoding":"WKB","geometry_types":[]}}}'}
    wkb = bytes.fromhex("0101000000000000000000f03f000000000000f03f")
    for name, columns in (("a", ["n", "g"]), ("b", ["g", "n"])):
        table = pa.table({"n": [1], "g": pa.array([wkb], pa.binary())}).select(columns)
        pq.write_table(table.replace_schema_metadata(geo), tmp_path / f"{name}.parquet")
    tables.add_files("t", [tmp_path / "a.parquet", tmp_path / "b.parquet"])
    table = pa.Table.from_batches(tables.query("SELECT t.n, t.g FROM t"))
    assert table.schema.types == [pa.int64(), pa.binary()]
    assert table.to_pylist() == [{"n": 1, "g": wkb}] * 2


def test_types_come_back_as_they_went(tables):
    rows = [
        {
            "d": date(1, 1, 1),
            "t": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
            "f": 5e-324,
            "b": True,
            "i": -(2**63),
        }
    ]
    schema = pa.schema(
        [
            ("d", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("f", pa.float64()),
            ("b", pa.bool_()),
            ("i", pa.int64()),
        ]
    )
    tables.map_batches("t", iter([pa.RecordBatch.from_pylist(rows, schema)]), schema)
    (batch,) = tables.query("SELECT * FROM t")
    assert batch.schema.types == schema.types
    assert batch.to_pylist() == rows


@pytest.mark.parametrize(("sql", "found"), [("SELECT 1 AS n WHERE FALSE", 0), ("SELECT unnest([1, 2]) AS n", 2)])
def test_one_wants_one_row(tables, sql, found):
    with pytest.raises(ValueError, match="unpack"):
        tables.one(sql)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("autoload_known_extensions", False),
        ("autoinstall_known_extensions", False),
        ("TimeZone", "UTC"),
        ("threads", 2),
    ],
)
def test_settings(tables, name, value):
    assert tables.one(f"SELECT current_setting('{name}') AS value") == {"value": value}


def test_names_are_quoted(tables):
    tables.keep('a"b', "SELECT 1 AS n")
    assert tables.one('SELECT t.n FROM "a""b" t') == {"n": 1}


def test_sorts_more_than_its_memory_and_leaves_nothing(tmp_path):
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])

    def wide():
        for start in range(40):
            numbers = pa.array([(start * 5_000 + n) * 7919 % 200_000 for n in range(5_000)])
            texts = pa.array([f"{n:0400d}" for n in range(5_000)])
            yield pa.RecordBatch.from_arrays([numbers, texts], schema=schema)

    with DuckDBEngine(60, 1).work(tmp_path) as tables:
        tables.map_batches("t", wide(), schema)
        tables.keep("sorted", "SELECT * FROM t")
        last, rows = -1, 0
        for batch in tables.query("SELECT t.n FROM sorted t ORDER BY t.s ASC NULLS LAST, t.n ASC NULLS LAST"):
            rows += batch.num_rows
        for batch in tables.query("SELECT t.n FROM sorted t ORDER BY t.n ASC NULLS LAST"):
            assert last <= batch.column(0)[0].as_py()
            last = batch.column(0)[-1].as_py()
    assert rows == 200_000
    assert list(tmp_path.iterdir()) == []


def test_a_failed_piece_of_work_leaves_nothing(tmp_path):
    class Stop(Exception):
        pass

    def fail():
        with DuckDBEngine(64, 1).work(tmp_path) as tables:
            tables.map_batches("t", batches(10), SCHEMA)
            raise Stop

    with pytest.raises(Stop):
        fail()
    assert list(tmp_path.iterdir()) == []
