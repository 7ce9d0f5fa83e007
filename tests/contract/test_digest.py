"""The definition of canonical row, record hash and digest against its golden vectors (D5.6)."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.golden import DIGEST, RECORDS

from ploti.contract.digest import Digest, canonical_row, float_bits, record_hash


@pytest.mark.parametrize("golden", RECORDS, ids=lambda golden: golden.name)
def test_golden_row_and_hash(golden):
    assert canonical_row(golden.values, golden.columns) == golden.row
    assert record_hash(golden.record_id, golden.row) == golden.hash


def test_golden_digest():
    digest = Digest()
    for golden in RECORDS:
        digest.add(golden.record_id, golden.hash)
    assert digest.to_wire() == DIGEST
    assert Digest.from_wire(DIGEST).records == len(RECORDS)


def test_hash_is_sha256_of_id_newline_row():
    golden = RECORDS[1]
    assert golden.hash == sha256(f"{golden.record_id}\n{golden.row}".encode()).digest()


@pytest.mark.parametrize(
    ("number", "bits"),
    [(-0.0, 0), (0.0, 0), (float("nan"), None), (float("inf"), None), (5e-324, 1), (1.0, 1023 << 52)],
)
def test_float_bits(number, bits):
    assert float_bits(number) == bits


records = st.lists(st.tuples(st.text("abc", min_size=2, max_size=3), st.binary(min_size=32, max_size=32)), max_size=20)


@given(records, st.randoms(use_true_random=False))
def test_digest_ignores_order_and_undoes(found, shuffler):
    one, other = Digest(), Digest()
    for id_, hash_ in found:
        one.add(f"rec_{id_}", hash_)
    shuffled = list(found)
    shuffler.shuffle(shuffled)
    for id_, hash_ in shuffled:
        other.add(f"rec_{id_}", hash_)
    assert one == other
    assert one.records == len(found)
    for id_, hash_ in found:
        one.remove(f"rec_{id_}", hash_)
    assert one == Digest()


def test_digest_sees_a_doubled_row_and_names_the_bucket():
    one, other = Digest(), Digest()
    for digest, times in ((one, 1), (other, 2)):
        for _ in range(times):
            digest.add("rec_abx", b"\0" * 32)
    assert one.differing(other) == ["ab"]


def test_merge_moves_on_and_back():
    whole, part = Digest(), Digest()
    whole.add("rec_aa1", b"\xff" * 32)
    whole.add("rec_ab1", b"\x01" * 32)
    part.add("rec_ab1", b"\x01" * 32)
    whole.merge(part, -1)
    assert whole.to_wire() == {"aa": [1, *[2**32 - 1] * 4]}
