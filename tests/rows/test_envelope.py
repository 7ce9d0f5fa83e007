"""Schemas of a version's files and the envelope of their rows (page 001, D5.4, D5.5, D5.8)."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from ploti_server.domain.schema import Column, Schema
from ploti_server.rows.envelope import Envelope, arrow_schema, arrow_type, with_envelope

SCHEMA = Schema(
    (
        Column("permit", "string", nullable=False, source_name="PERMIT #"),
        Column("units", "integer", nullable=True, source_name="units"),
        Column("value", "number", nullable=True, source_name="value"),
        Column("open", "boolean", nullable=True, source_name="open"),
        Column("issued", "date", nullable=True, source_name="issued"),
        Column("read_at", "timestamp", nullable=True, source_name="read_at"),
        Column("extra", "json", nullable=True, source_name="extra"),
        Column("geometry", "geometry", nullable=True, source_name="geometry", geometry_type="Point"),
    ),
    key_columns=("permit",),
)
OWN = [column.name for column in SCHEMA.columns]
ENVELOPE_NAMES = [
    "_ploti_record_id",
    "_ploti_dataset_id",
    "_ploti_place_id",
    "_ploti_version",
    "_ploti_source_url",
    "_ploti_fetched_at",
]
CHANGES_NAMES = [
    "_ploti_op",
    "_ploti_change",
    "_ploti_delete_reason",
    "_ploti_changed_columns",
    "_ploti_match",
    "_ploti_match_score",
]
FETCHED = datetime(2026, 10, 18, 6, 12, 40, tzinfo=UTC)
ENVELOPE = Envelope("ds_permits", "tx-county-bexar", 7, "https://example.org/permits.csv", FETCHED)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("snapshot", ENVELOPE_NAMES + OWN),
        ("changes", ENVELOPE_NAMES + CHANGES_NAMES + OWN),
        ("backfill", ["_ploti_record_id", *OWN]),
        ("id-map", ["_ploti_previous_record_id", "_ploti_record_id", "_ploti_dataset_id"]),
    ],
)
def test_each_kind_has_its_columns_in_order(kind, names):
    assert arrow_schema(SCHEMA, kind).names == names


@pytest.mark.parametrize(
    ("type_", "arrow"),
    [
        ("string", pa.string()),
        ("integer", pa.int64()),
        ("number", pa.float64()),
        ("boolean", pa.bool_()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("json", pa.string()),
        ("geometry", pa.binary()),
    ],
)
def test_each_type_has_one_type_in_the_files(type_, arrow):
    assert arrow_type(type_) == arrow


def test_changes_columns_are_texts_but_for_the_list_and_the_score():
    types = arrow_schema(SCHEMA, "changes")
    assert types.field("_ploti_changed_columns").type == pa.list_(pa.string())
    assert types.field("_ploti_match_score").type == pa.float64()
    assert types.field("_ploti_version").type == pa.int64()
    assert types.field("_ploti_op").type == pa.string()


@pytest.mark.parametrize(
    ("kind", "never_null"),
    [
        ("snapshot", {"_ploti_record_id", "_ploti_dataset_id", "_ploti_version", "permit"}),
        ("changes", {"_ploti_record_id", "_ploti_dataset_id", "_ploti_version", "_ploti_op", "_ploti_change"}),
        ("backfill", {"_ploti_record_id"}),
        ("id-map", {"_ploti_previous_record_id", "_ploti_record_id", "_ploti_dataset_id"}),
    ],
)
def test_record_columns_are_optional_in_changes_and_backfill(kind, never_null):
    assert {field.name for field in arrow_schema(SCHEMA, kind) if not field.nullable} == never_null


def only(batches):
    (batch,) = batches
    return batch


def test_a_row_gets_its_envelope_and_the_files_order_and_types():
    batch = pa.RecordBatch.from_pydict(
        {
            "issued": pa.array([date(2026, 1, 2)]),
            "units": pa.array([3], pa.int32()),
            "permit": pa.array(["A-1"], pa.large_string()),
            "_ploti_record_id": ["rec_a"],
        }
    )
    target = arrow_schema(SCHEMA, "snapshot")
    given = only(with_envelope(iter([batch]), ENVELOPE, target))
    assert given.schema == target
    assert given.to_pylist() == [
        {
            "_ploti_record_id": "rec_a",
            "_ploti_dataset_id": "ds_permits",
            "_ploti_place_id": "tx-county-bexar",
            "_ploti_version": 7,
            "_ploti_source_url": "https://example.org/permits.csv",
            "_ploti_fetched_at": FETCHED,
            "permit": "A-1",
            "units": 3,
            "value": None,
            "open": None,
            "issued": date(2026, 1, 2),
            "read_at": None,
            "extra": None,
            "geometry": None,
        }
    ]


def test_a_delete_carries_only_the_envelope():
    batch = pa.RecordBatch.from_pydict(
        {
            "_ploti_record_id": ["rec_a"],
            "_ploti_op": ["delete"],
            "_ploti_change": ["removed"],
            "_ploti_delete_reason": ["removed_at_source"],
            "permit": pa.array([None], pa.string()),
        }
    )
    row = only(with_envelope(iter([batch]), ENVELOPE, arrow_schema(SCHEMA, "changes"))).to_pylist()[0]
    assert {name: row[name] for name in OWN} == dict.fromkeys(OWN)
    assert (row["_ploti_version"], row["_ploti_delete_reason"]) == (7, "removed_at_source")
    assert row["_ploti_changed_columns"] is None


def test_place_source_and_time_may_be_unknown():
    batch = pa.RecordBatch.from_pydict({"_ploti_record_id": ["rec_a", "rec_b"], "permit": ["A", "B"]})
    bare = Envelope("ds_permits", None, 1, None, None)
    given = only(with_envelope(iter([batch]), bare, arrow_schema(SCHEMA, "snapshot")))
    assert [given.column(name).null_count for name in ENVELOPE_NAMES] == [0, 0, 2, 0, 2, 2]


def test_a_value_that_does_not_fit_its_column_is_an_error():
    batch = pa.RecordBatch.from_pydict({"_ploti_record_id": ["rec_a"], "permit": ["A"], "units": ["many"]})
    with pytest.raises(pa.ArrowInvalid):
        only(with_envelope(iter([batch]), ENVELOPE, arrow_schema(SCHEMA, "snapshot")))
