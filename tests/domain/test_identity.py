"""Record ids and what they come from (D4.1)."""

import base64
from hashlib import sha256

import pytest

from ploti_server.domain.identity import content_text, identity_hash, key_values, record_id, record_id_of_hash


def test_the_written_form():
    identity = sha256(b"string:1:7;").hexdigest()
    written = f"ds_a\n0\n0\n{identity}".encode()
    expected = base64.b32encode(sha256(written).digest()).decode().lower()[:26]
    assert record_id("ds_a", 0, "string:1:7;", 0) == f"rec_{expected}"


def test_an_id_that_never_changes():
    assert record_id("ds_fl_airports", 0, "string:4:KMIA;", 0) == "rec_yezh4crtq3zfiywvrnfzsnjzcz"


@pytest.mark.parametrize(
    "other",
    [
        ("ds_b", 0, "string:1:7;", 0),
        ("ds_a", 1, "string:1:7;", 0),
        ("ds_a", 0, "integer:1:7;", 0),
        ("ds_a", 0, content_text("string:1:7;"), 0),
        ("ds_a", 0, "string:1:7;", 1),
    ],
    ids=["dataset", "epoch", "type", "content", "ordinal"],
)
def test_everything_that_identifies_counts(other):
    assert record_id("ds_a", 0, "string:1:7;", 0) != record_id(*other)


def test_form_of_an_id():
    id_ = record_id_of_hash("ds_a", 3, identity_hash("x"), 12)
    assert len(id_) == 30
    assert set(id_[4:]) <= set("abcdefghijklmnopqrstuvwxyz234567")


@pytest.mark.parametrize(
    ("key_text", "values"),
    [
        ("string:3:P-3;", ("P-3",)),
        ("string:7:a:1;b:;;integer:2:-7;", ("a:1;b:;", "-7")),
        ("string:2:Äß;boolean:1:1;boolean:1:0;", ("Äß", "true", "false")),
        ("date:5:19782;timestamp:16:1767229323000004;", ("2024-02-29", "2026-01-01T01:02:03.000004+00:00")),
        ("number:19:4608308318706860032;", ("1.25",)),
    ],
)
def test_a_key_text_is_read_back_as_a_person_writes_it(key_text, values):
    assert key_values(key_text) == values
