"""The digest of a PostgreSQL table is the contract's, in SQL and for JSON (D5.6), and `jsonb` gives back its text."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.golden import DIGEST, RECORDS
from tests.sync.deliveries import schema
from tests.sync.test_sync_duckdb_target import HARD, VALUES

from ploti.contract.digest import Digest, canonical_row, record_hash
from ploti.contract.files import RECORD_ID
from ploti.sync.targets._postgresql_digest import digest_of
from ploti.sync.targets._postgresql_json import canonical_json, stored_json
from ploti.sync.targets._postgresql_session import Server, quoted
from ploti.sync.targets._postgresql_shape import columns_of, make_table
from ploti.testing.feed import record_id

TYPES = {**{f"c_{type_}": type_ for type_ in VALUES if type_ != "geometry"}, "geometry": "geometry", "é'\"%s": "string"}
WITHOUT_JSON = {name: type_ for name, type_ in TYPES.items() if type_ != "json"}


@pytest.fixture(scope="module")
def session(postgres_url):
    with Server(postgres_url, "digests").session() as session:
        session.run("CREATE SCHEMA digests")
        yield session
        session.run("DROP SCHEMA digests CASCADE")


def digest_in_postgresql(session, types, records):
    columns = columns_of(session, schema(types))
    own = [each for each in columns if each.name in types]
    make_table(session, "ds_a", (columns[0], *own), logged=False)
    for id_, row in records:
        names = [each.name for each in own]
        values = [stored_json(row[n]) if types[n] == "json" and row.get(n) is not None else row.get(n) for n in names]
        listed = ", ".join(quoted(name).replace("%", "%%") for name in (RECORD_ID, *names))
        marks = ", ".join(["%s"] * (1 + len(own)))
        session.run(f"INSERT INTO digests.ds_a ({listed}) VALUES ({marks})", [id_, *values])
    return digest_of(session, "ds_a", own)


def check(session, rows, types):
    expected = Digest()
    for at, row in enumerate(rows):
        expected.add(record_id(at), record_hash(record_id(at), canonical_row(row, types)))
    assert digest_in_postgresql(session, types, [(record_id(at), row) for at, row in enumerate(rows)]) == expected


@pytest.mark.parametrize("types", [TYPES, WITHOUT_JSON], ids=["with JSON", "by the server alone"])
def test_hard_values(session, types):
    check(session, HARD, types)


@pytest.mark.parametrize("golden", RECORDS, ids=lambda golden: golden.name)
def test_golden_hashes(session, golden):
    expected = Digest()
    expected.add(golden.record_id, golden.hash)
    assert digest_in_postgresql(session, golden.columns, [(golden.record_id, golden.values)]) == expected


def test_the_golden_digest_is_their_sum(session):
    whole = Digest()
    for golden in RECORDS:
        whole.merge(digest_in_postgresql(session, golden.columns, [(golden.record_id, golden.values)]))
    assert whole.to_wire() == DIGEST


ROW = st.fixed_dictionaries({name: st.none() | VALUES[type_] for name, type_ in TYPES.items()})


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=6), types=st.sampled_from([TYPES, WITHOUT_JSON]))
def test_any_values(session, rows, types):
    check(session, rows, types)


# JSON

ODD = [
    "1e+16",
    "1.5e+300",
    "-1e+22",
    "1e-07",
    "-0.0",
    "0.0",
    "62.0",
    "10000000000000000",
    "5e-324",
    '{"a":[1e+16,-0.0]}',
]
ODD += [
    '"1e+16"',
    '{"1e5":"-0.0","a\\"b":"\\\\","é":null}',
    "[]",
    "{}",
    "true",
    '[0.1,0.30000000000000004,-0.0,"-0.0"]',
]


def there_and_back(session, text):
    return canonical_json(session.rows("SELECT %s::jsonb::text", [stored_json(text)])[0][0])


@pytest.mark.parametrize("text", ODD)
def test_a_canonical_text_comes_back_from_jsonb(session, text):
    assert there_and_back(session, text) == text


@pytest.mark.parametrize("text", ["1e+16", "-1.5e-7", "-0.0", "12E2"])
def test_the_value_that_jsonb_holds_is_the_same(session, text):
    found = session.rows("SELECT %s::jsonb = %s::jsonb", [stored_json(text), text])
    assert found == [(True,)]


plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | plain
trees = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3))


@settings(max_examples=100, deadline=None)
@given(value=trees)
def test_any_canonical_text_comes_back_from_jsonb(session, value):
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert there_and_back(session, text) == text
