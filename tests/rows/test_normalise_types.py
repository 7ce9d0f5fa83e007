"""What each type holds, by spelling and kind (D2.3 to D2.6; F007, F008, F027, F042, F060)."""

import json
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ploti_server.rows.profile import ColumnProfile, type_of_kinds
from ploti_server.rows.raw import Kind, RawColumn
from ploti_server.rows.types import ARROW_TYPES, fit, hold, json_text
from ploti_server.rows.zones import to_utc

K = Kind


def text_column(*texts):
    return RawColumn(pa.array(texts, pa.string()), frozenset({K.TEXT}))


def json_column(*values):
    """Give a column of (kind, text) pairs."""
    kinds = [kind for kind, _ in values]
    found = frozenset(kinds) - {K.NULL}
    return RawColumn(pa.array([text for _, text in values], pa.string()), found, np.array(kinds, dtype=np.int8))


def held(column, type_, zone="UTC", read=hold):
    got = read(column, type_, zone)
    assert got.values.type == ARROW_TYPES[type_]
    return ["misfit" if wrong else value for value, wrong in zip(got.values.to_pylist(), got.misfits, strict=True)]


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


PINNED_TEXT = [
    ("integer", "0", 0),
    ("integer", "-12", -12),
    ("integer", "-0", 0),
    ("integer", "999999999999999999", 999999999999999999),
    ("integer", " 7 ", 7),
    ("integer", "1000000000000000000", "misfit"),
    ("integer", "007", "misfit"),
    ("integer", "+1", "misfit"),
    ("integer", "1.0", "misfit"),
    ("integer", "0x1F", "misfit"),
    ("integer", "1,000", "misfit"),
    ("integer", "12E12", "misfit"),
    ("integer", "", None),
    ("number", "1", 1.0),
    ("number", "1.50", 1.5),
    ("number", "-0.0", 0.0),
    ("number", "0.1", 0.1),
    ("number", "1e5", "misfit"),
    ("number", ".5", "misfit"),
    ("number", "00.5", "misfit"),
    ("number", "$5", "misfit"),
    ("number", "NaN", None),
    ("number", "-Infinity", None),
    ("number", "inf", None),
    ("number", "********", None),
    ("number", "0000-00-00", None),
    ("boolean", "true", True),
    ("boolean", "false", False),
    ("boolean", "TRUE", "misfit"),
    ("boolean", "no", "misfit"),
    ("boolean", "1", "misfit"),
    ("date", "2024-02-29", date(2024, 2, 29)),
    ("date", "0001-01-01", date(1, 1, 1)),
    ("date", "9999-12-31", date(9999, 12, 31)),
    ("date", "1600-02-29", date(1600, 2, 29)),
    ("date", "0000-00-00", None),
    ("date", "********", None),
    ("date", "0000-01-01", "misfit"),
    ("date", "2023-02-29", "misfit"),
    ("date", "2023-2-1", "misfit"),
    ("date", "01/02/2023", "misfit"),
    ("date", "2023-02-01T00:00:00", "misfit"),
    ("timestamp", "2023-07-01T10:00:00Z", utc(2023, 7, 1, 10)),
    ("timestamp", "2023-07-01 10:00", utc(2023, 7, 1, 10)),
    ("timestamp", "2023-07-01T10:00:00.123456+03:00", utc(2023, 7, 1, 7, 0, 0, 123456)),
    ("timestamp", "2023-07-01T10:00:00-0530", utc(2023, 7, 1, 15, 30)),
    ("timestamp", "2023-07-01T10:00:00+05", utc(2023, 7, 1, 5)),
    ("timestamp", "2023-07-01T10:00:00.1230000000Z", utc(2023, 7, 1, 10, 0, 0, 123000)),
    ("timestamp", "2023-07-01T10:00:00.1234567Z", "misfit"),
    ("timestamp", "0001-01-01T00:00:00Z", utc(1, 1, 1)),
    ("timestamp", "9999-12-31T23:59:59.999999Z", utc(9999, 12, 31, 23, 59, 59, 999999)),
    ("timestamp", "0001-01-01T00:00:00+05:00", "misfit"),
    ("timestamp", "9999-12-31T23:00:00-05:00", "misfit"),
    ("timestamp", "0000-00-00 00:00:00", None),
    ("timestamp", "2023-07-01", "misfit"),
    ("timestamp", "2023-07-01T24:00:00", "misfit"),
    ("timestamp", "2023-07-01T23:59:60Z", "misfit"),
    ("string", " Nan ", "Nan"),
    ("string", "0012", "0012"),
    ("json", '{"b": 1, "a": [1, 2.50]}', '{"a":[1,2.5],"b":1}'),
    ("json", "not json", "misfit"),
]


@pytest.mark.parametrize(("type_", "text", "value"), PINNED_TEXT)
def test_pinned_type_takes_one_spelling_of_text(type_, text, value):
    beside = {"integer": "5", "number": "5", "boolean": "true", "date": "2020-01-01", "json": "{}"}
    other = beside.get(type_, "2020-01-01T00:00:00Z")
    assert held(text_column(text), type_) == [value]
    assert held(text_column(other, text, None, other), type_)[1:3] == [value, None]


INT, NUM, STR, BOOL, NEST = K.INTEGER, K.NUMBER, K.STRING, K.BOOLEAN, K.NESTED
PINNED_JSON = [
    ("integer", INT, "9223372036854775807", 2**63 - 1),
    ("integer", NUM, "62.0", 62),
    ("integer", NUM, "62.5", "misfit"),
    ("integer", NUM, "1e+19", "misfit"),
    ("integer", STR, "62", "misfit"),
    ("integer", BOOL, "true", "misfit"),
    ("number", INT, "62", 62.0),
    ("number", NUM, "-0.0", 0.0),
    ("number", STR, "62", "misfit"),
    ("number", STR, "NaN", None),
    ("boolean", BOOL, "false", False),
    ("boolean", STR, "false", "misfit"),
    ("boolean", INT, "0", "misfit"),
    ("string", INT, "62", "62"),
    ("string", NUM, "62.0", "62.0"),
    ("string", BOOL, "true", "true"),
    ("string", STR, " e\u0301 ", "é"),
    ("string", NEST, "[1]", "misfit"),
    ("json", NEST, "[1]", "[1]"),
    ("json", STR, "a", '"a"'),
    ("json", INT, "1", "1"),
    ("json", BOOL, "true", "true"),
    ("date", STR, "2020-01-01", date(2020, 1, 1)),
    ("date", INT, "20200101", "misfit"),
]


@pytest.mark.parametrize(("type_", "kind", "text", "value"), PINNED_JSON)
def test_pinned_type_takes_kinds_of_json(type_, kind, text, value):
    assert held(RawColumn(pa.array([text]), frozenset({kind})), type_) == [value]
    mixed = held(json_column((K.NULL, None), (kind, text), (NEST, "{}"), (STR, "x"), (INT, "5")), type_)
    assert mixed[:2] == [None, value]


DECLARED = [
    ("integer", "007", 7),
    ("integer", "+7", 7),
    ("integer", "7.0", 7),
    ("integer", "9223372036854775808", "misfit"),
    ("integer", "abc", "misfit"),
    ("number", "-8.2E+01", -82.0),
    ("number", ".5", 0.5),
    ("number", "1e400", "misfit"),
    ("number", "1,234.50", "misfit"),
    ("number", "NaN", None),
    ("boolean", "Yes", True),
    ("boolean", "0", False),
    ("boolean", "maybe", "misfit"),
    ("date", "2020-01-01T00:00:00", date(2020, 1, 1)),
    ("date", "2020-01-01T10:00:00", "misfit"),
    ("date", "2020-02-30", "misfit"),
    ("timestamp", "1577836800000", utc(2020, 1, 1)),
    ("timestamp", "2020-01-01", utc(2020, 1, 1)),
    ("timestamp", "2020-13-01T00:00", "misfit"),
    ("string", "0012", "0012"),
    ("json", "text", '"text"'),
    ("integer", "", None),
]


@pytest.mark.parametrize(("type_", "text", "value"), DECLARED)
def test_declared_type_takes_every_spelling_that_means_a_value(type_, text, value):
    assert held(text_column("x", text), type_, read=fit)[1] == value


def test_declared_string_takes_what_is_nested():
    assert held(json_column((NEST, "[1]"), (STR, "a")), "string", read=fit) == ["[1]", "a"]


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        (["1", "2", ""], "integer"),
        (["1", "2.5"], "number"),
        (["10.5", "11"], "number"),
        (["1", "007"], "string"),
        (["00123", "00124", "01001"], "string"),
        (["12E12", "1"], "string"),
        (["123456789012345678901"], "string"),
        (["1", "NaN"], "number"),
        (["NaN", ""], "string"),
        (["Nan", "Bangkok"], "string"),
        (["true", "false"], "boolean"),
        (["TRUE"], "string"),
        (["2020-01-01", "0000-00-00"], "date"),
        (["2020-01-01", "2020-01-01T00:00"], "string"),
        (["2020-01-01T00:00", "2020-01-01 10:00:00Z"], "timestamp"),
        (["2020-01-01", "2023-02-30"], "string"),
        (["", " ", None], "string"),
        (["$5"], "string"),
        (["1,000"], "string"),
    ],
)
def test_first_reading_of_text(texts, type_):
    for cuts in ([texts], [[text] for text in texts], [[None], texts]):
        profile = ColumnProfile("UTC")
        for batch in cuts:
            profile.see(text_column(*batch))
        assert profile.inferred == type_


@pytest.mark.parametrize(
    ("kinds", "type_"),
    [
        ((), "string"),
        ((INT,), "integer"),
        ((NUM,), "number"),
        ((INT, NUM), "number"),
        ((BOOL,), "boolean"),
        ((STR,), "string"),
        ((STR, INT), "string"),
        ((BOOL, INT), "string"),
        ((NEST,), "json"),
        ((NEST, STR), "json"),
        ((NEST, INT, BOOL), "json"),
    ],
)
def test_first_reading_of_json(kinds, type_):
    assert type_of_kinds(frozenset(kinds)) == type_


@pytest.mark.parametrize(
    ("pinned", "texts", "holds"),
    [
        ("number", ["10", "11"], True),
        ("integer", ["10", "11.5"], False),
        ("string", ["10", "11"], True),
        ("date", ["", None], True),
        ("timestamp", ["2020-01-01"], False),
    ],
)
def test_values_never_narrow_a_pinned_type(pinned, texts, holds):
    profile = ColumnProfile("UTC", pinned)
    profile.see(text_column(*texts))
    assert profile.holds_pinned is holds


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-(10**18) + 1, 10**18 - 1), max_size=9))
def test_integers_come_back(values):
    texts = [None if value is None else str(value) for value in values]
    assert held(text_column(*texts), "integer") == values


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=9))
def test_json_numbers_come_back(values):
    column = RawColumn(pa.array([repr(value) for value in values], pa.string()), frozenset({NUM}))
    assert held(column, "number") == values


@pytest.mark.parametrize(
    ("shown", "moment"),
    [
        ("2024-03-10T01:59:59", utc(2024, 3, 10, 6, 59, 59)),
        ("2024-03-10T02:30:00", utc(2024, 3, 10, 7, 30)),
        ("2024-03-10T03:00:00", utc(2024, 3, 10, 7)),
        ("2024-11-03T01:30:00", utc(2024, 11, 3, 5, 30)),
        ("2024-11-03T02:00:00", utc(2024, 11, 3, 7)),
        ("2024-07-01T12:00:00", utc(2024, 7, 1, 16)),
    ],
)
def test_a_time_without_zone_is_the_dataset_s(shown, moment):
    assert held(text_column(shown, "2024-01-01T00:00:00Z"), "timestamp", "America/New_York")[0] == moment


@settings(deadline=None)
@given(
    st.lists(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)), max_size=9),  # noqa: DTZ001  # as shown
    st.sampled_from(["America/New_York", "Europe/London", "Australia/Lord_Howe", "UTC", "Asia/Kathmandu"]),
)
def test_local_times_agree_with_zoneinfo(moments, zone):
    expected = [moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) for moment in moments]
    assert to_utc(pa.array(moments, pa.timestamp("us")), zone).to_pylist() == expected
    hours = [datetime(2024, 3, 9) + timedelta(minutes=30 * n) for n in range(100)]  # noqa: DTZ001  # as shown
    expected = [hour.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) for hour in hours]
    assert to_utc(pa.array(hours, pa.timestamp("us")), zone).to_pylist() == expected


def test_canonical_json_is_strict():
    value = {"b": [float("nan"), 62.0, float("inf")], "a": {"z": "e\u0301", "y": "n\0ul"}, "\ud800": "\ud83c\udfe0"}
    text = json_text(value)
    assert text == '{"a":{"y":"nul","z":"é"},"b":[null,62.0,null],"\ufffd":"🏠"}'
    assert json.loads(text, parse_constant=pytest.fail)["b"] == [None, 62.0, None]


def test_member_names_of_json_are_composed_before_they_are_sorted():
    assert (
        json_text({"z": 1, "e\u0301": 2, "f": 3}) == json_text({"\u00e9": 2, "f": 3, "z": 1}) == '{"f":3,"z":1,"é":2}'
    )
