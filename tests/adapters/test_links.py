"""Signed links: what they open, and that every altered one is refused alike (reliability.md 3 C, D8.6)."""

import string
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ploti_server.adapters.links import LinkSigner, SignedTarget

NOW = datetime(2026, 3, 1, 12, 0, 0, 250000, tzinfo=UTC)
HOUR = timedelta(hours=1)
PATH = "ds_a/versions/3/1/snapshot/part-0000.parquet"
TYPE = "application/vnd.apache.parquet"
SIGNER = LinkSigner(b"s" * 32)
LINK = SIGNER.sign(PATH, "part-0000.parquet", TYPE, NOW + HOUR)


def opened(link, now=NOW, method="GET", signer=SIGNER):
    path, _, query = link.partition("?")
    return signer.verify(path, query, now, method)


def query_of(link):
    return dict(pair.split("=") for pair in link.partition("?")[2].split("&"))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_link_opens_what_was_signed_for_get_and_head(method):
    assert opened(LINK, method=method) == SignedTarget(PATH, "part-0000.parquet", TYPE, NOW + HOUR)


def test_link_is_relative_and_has_a_fixed_form():
    assert LINK.startswith(f"/v1/files/{PATH}?expires=1772370000250&filename=part-0000.parquet&type=application%2F")
    assert list(query_of(LINK)) == ["expires", "filename", "type", "signature"]


def test_processes_with_the_same_secret_agree():
    assert LinkSigner(b"s" * 32).sign(PATH, "part-0000.parquet", TYPE, NOW + HOUR) == LINK


@pytest.mark.parametrize(
    ("after", "open_"),
    [
        (timedelta(0), True),
        (HOUR - timedelta(seconds=1), True),
        (HOUR - timedelta(milliseconds=1), True),
        (HOUR, False),
        (HOUR + timedelta(milliseconds=1), False),
        (HOUR + timedelta(seconds=1), False),
        (timedelta(days=400), False),
    ],
)
def test_link_ends_at_its_moment(after, open_):
    assert (opened(LINK, NOW + after) is not None) == open_


def flip(text):
    return ("0" if text[0] != "0" else "1") + text[1:]


SIGNATURE = query_of(LINK)["signature"]


@pytest.mark.parametrize(
    "altered",
    [
        pytest.param(LINK.replace("snapshot/part-0000", "changes/part-0000"), id="31 wrong file"),
        pytest.param(LINK.replace("part-0000.parquet?", "part-0001.parquet?"), id="31 next part"),
        pytest.param(LINK.replace("/3/1/", "/4/1/"), id="32 wrong version"),
        pytest.param(LINK.replace("/3/1/", "/3/2/"), id="32 wrong attempt"),
        pytest.param(LINK.replace("ds_a", "ds_b"), id="32 wrong dataset"),
        pytest.param(LINK.replace("expires=1772370000250", "expires=1772370000251"), id="34 later by a millisecond"),
        pytest.param(LINK.replace("expires=1772370000250", "expires=99999999999999"), id="34 later by ages"),
        pytest.param(LINK.replace("expires=1772370000250", "expires=999999999999999999"), id="34 beyond the calendar"),
        pytest.param(LINK.replace("expires=1772370000250", "expires=01772370000250"), id="34 leading zero"),
        pytest.param(LINK.replace("expires=1772370000250", "expires=%31772370000250"), id="34 encoded number"),
        pytest.param(LINK.replace("expires=1772370000250", "expires=١772370000250"), id="34 digit of another script"),
        pytest.param(LINK.replace("expires=1772370000250", "expires=-1"), id="34 negative"),
        pytest.param("/" + LINK, id="35 double slash"),
        pytest.param("https://example.org" + LINK, id="35 with a host"),
        pytest.param(LINK.replace("/v1/files/", "/V1/files/"), id="35 case of the prefix"),
        pytest.param(LINK.replace("/v1/files/", "/v1//files/"), id="35 slashes in the prefix"),
        pytest.param(LINK.replace("/v1/files/", "/v1/other/"), id="35 other route"),
        pytest.param(LINK.replace("/v1/files/", "/v1/files//"), id="35 empty segment"),
        pytest.param(LINK.replace("?", "/?", 1), id="35 slash at the end"),
        pytest.param(LINK.replace("/v1/files/ds_a", "/v1/files/x/../ds_a"), id="36 dot segments"),
        pytest.param(LINK.replace("/v1/files/", "/v1/files/./"), id="36 single dot"),
        pytest.param(LINK.replace("/v1/files/ds_a", "/v1/files/x/%2e%2e/ds_a"), id="36 encoded dots"),
        pytest.param(LINK.replace("ds_a/versions", "ds_a%2Fversions"), id="36 encoded slash"),
        pytest.param(LINK.replace("snapshot", "%73napshot"), id="36 encoded letter"),
        pytest.param(LINK.replace("snapshot/", "snapshot%5C"), id="36 backslash"),
        pytest.param(LINK.replace("parquet?", "parquet%00?"), id="36 zero byte"),
        pytest.param(LINK + f"&signature={SIGNATURE}", id="37 signature twice"),
        pytest.param(LINK.replace("?", "?expires=9999999999999&", 1), id="37 expiry twice"),
        pytest.param(LINK + "&expires=9999999999999", id="37 expiry again at the end"),
        pytest.param(LINK + "&x=1", id="37 unknown parameter"),
        pytest.param(LINK + "&", id="37 empty parameter"),
        pytest.param(LINK.replace("?", "?&", 1), id="37 empty parameter first"),
        pytest.param(LINK.replace("&filename=", ";filename="), id="37 other separator"),
        pytest.param(LINK.replace(SIGNATURE, SIGNATURE[:-1]), id="38 short by one"),
        pytest.param(LINK.replace(SIGNATURE, SIGNATURE[:8]), id="38 short"),
        pytest.param(LINK.replace(SIGNATURE, ""), id="38 empty"),
        pytest.param(LINK.replace(f"&signature={SIGNATURE}", ""), id="38 none"),
        pytest.param(LINK.replace(SIGNATURE, SIGNATURE + "0"), id="38 long"),
        pytest.param(LINK.replace(SIGNATURE, SIGNATURE.upper()), id="38 upper case"),
        pytest.param(LINK.replace(SIGNATURE, flip(SIGNATURE)), id="38 first digit"),
        pytest.param(LINK.replace(SIGNATURE, flip(SIGNATURE[::-1])[::-1]), id="38 last digit"),
        pytest.param(LINK.replace(SIGNATURE, "ü" * 64), id="38 not hex"),
        pytest.param(LINK + "\n", id="38 line end"),
        pytest.param(LINK.replace("filename=part", "filename=evil"), id="other file name"),
        pytest.param(LINK.replace("application%2Fvnd.apache.parquet", "text%2Fhtml"), id="other content type"),
        pytest.param(LINK.partition("?")[0], id="no query"),
        pytest.param("", id="nothing"),
        pytest.param("/v1/files/?", id="no path"),
    ],
)
def test_altered_link_is_refused(altered):
    assert altered != LINK
    assert opened(altered) is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get", ""])
def test_33_other_methods_are_refused(method):
    assert opened(LINK, method=method) is None


def test_39_other_secret_is_refused():
    assert opened(LINK, signer=LinkSigner(b"t" * 32)) is None


@pytest.mark.parametrize(
    "other", [PATH.replace("3", "4"), PATH.replace("snapshot", "changes"), PATH.replace("ds_a", "ds_b")]
)
def test_signature_of_one_link_does_not_fit_another(other):
    signature = query_of(SIGNER.sign(other, "part-0000.parquet", TYPE, NOW + HOUR))["signature"]
    assert opened(LINK.replace(SIGNATURE, signature)) is None


def test_short_secret_is_refused():
    with pytest.raises(ValueError, match="32 bytes"):
        LinkSigner(b"s" * 31)


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "a//b", "a/../b", "../a", "a/.", ".incoming/x", "a\\b", "a\0b", "a/b\n"]
)
def test_path_that_cannot_be_stored_is_not_signed(path):
    with pytest.raises(ValueError, match="not a path"):
        SIGNER.sign(path, "a", "text/plain", NOW)


@pytest.mark.parametrize("text", ["", "a\r\nSet-Cookie: x", "a\nb", "a\0b", "a\u2028b", "a\u202eb"])
def test_names_and_types_unfit_for_a_header_are_not_signed(text):
    for filename, content_type in ((text, "text/plain"), ("a", text)):
        with pytest.raises(ValueError, match="header"):
            SIGNER.sign(PATH, filename, content_type, NOW)


NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)
PATHS = st.lists(
    NAMES.filter(lambda n: not n.startswith(".") and "\\" not in n and "/" not in n), min_size=1, max_size=4
)


@given(PATHS.map("/".join), NAMES, NAMES, st.integers(1, 10**6))
def test_any_link_opens_exactly_what_was_signed(path, filename, content_type, milliseconds):
    expires = NOW + timedelta(milliseconds=milliseconds)
    link = SIGNER.sign(path, filename, content_type, expires)
    assert set(link) <= set(string.ascii_letters + string.digits + "/?&=%-._~")
    assert opened(link) == SignedTarget(path, filename, content_type, expires)
    assert opened(link, expires) is None


@given(st.integers(0, len(LINK) - 1), st.sampled_from(string.printable))
def test_any_single_replaced_character_is_refused(position, character):
    altered = LINK[:position] + character + LINK[position + 1 :]
    assert (opened(altered) is None) == (altered != LINK)


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_request_line_gets_an_answer(path, query):
    assert SIGNER.verify(path, query, NOW) is None
    assert SIGNER.verify("/v1/files/" + quote(path), query, NOW) is None
