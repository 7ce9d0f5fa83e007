"""The vectorised text rule equals the contract's `clean_text` for every value (D2.5, F038)."""

import unicodedata

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ploti.contract.values import WHITE_SPACE, clean_text
from ploti_server.rows.text import clean

TEXTS = [
    "",
    " ",
    "A ",
    "\u2003A\u00a0",
    "\u0085x\u0085",
    "a\0b",
    " \0 a",
    "\0",
    "a\r\nb\rc\n",
    "\r",
    "e\u0301",
    " \u0301x",
    "Tentudía",
    "\u1e9b\u0323",
    "a\u200bb",
    "\u200b",
    "日本",
    "\U0001f3e0",
    "\x1f",
    "\ufeff",
    "2000\u2000",
    "\u0344",
]
ODD = st.text(st.sampled_from(WHITE_SPACE + "\0\r\na e\u0301\u00e9\u200b日\u0344\x1f"), max_size=8)


@settings(deadline=None)
@given(st.lists(st.none() | st.text(max_size=12) | ODD, max_size=20), st.integers(0, 3))
@example(TEXTS, 0)
def test_clean_equals_the_definition(texts, start):
    expected = [None if text is None else clean_text(text) for text in texts]
    assert clean(pa.array(texts, pa.string())).to_pylist() == expected
    assert clean(pa.array(texts, pa.string())[start:]).to_pylist() == expected[start:]


@settings(deadline=None)
@given(st.lists(st.text(max_size=12) | ODD, max_size=8))
def test_clean_again_changes_nothing(texts):
    once = clean(pa.array(texts, pa.string()))
    assert clean(once).equals(once)


@pytest.mark.parametrize("text", [text for text in TEXTS if clean_text(text)])
def test_clean_text_is_nfc_without_outer_white_space(text):
    (cleaned,) = clean(pa.array([text])).to_pylist()
    assert unicodedata.is_normalized("NFC", cleaned)
    assert cleaned == cleaned.strip(WHITE_SPACE)
    assert not set("\0\r") & set(cleaned)


def test_no_character_below_u0300_is_changed_by_nfc():
    assert all(
        unicodedata.normalize("NFC", first + second) == first + second
        for first in map(chr, range(0x20, 0x300))
        for second in ("a", "\u00e9", "\u02ff")
    )
