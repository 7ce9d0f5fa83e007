"""Fixed Arrow schemas of a version's files, and the envelope columns that every row carries (D5.4, D5.5)."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import pyarrow as pa

from ploti.contract.files import (
    CHANGED_COLUMNS,
    CHANGES_COLUMNS,
    DATASET_ID,
    DELETE_REASON,
    ENVELOPE,
    FETCHED_AT,
    MATCH,
    MATCH_SCORE,
    PLACE_ID,
    PREVIOUS_RECORD_ID,
    RECORD_ID,
    SOURCE_URL,
    VERSION,
)
from ploti.contract.values import STORAGE_TYPES, ColumnType
from ploti_server.domain.schema import Column, Schema

TableKind = Literal["snapshot", "changes", "backfill", "id-map"]
"""The kinds of a version's files that hold rows."""

_ARROW: Final = {
    str(type_): type_
    for type_ in (
        pa.string(),
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.date32(),
        pa.timestamp("us", tz="UTC"),
        pa.binary(),
    )
}
_NULLABLE_ENVELOPE: Final = {PLACE_ID, SOURCE_URL, FETCHED_AT}
_NULLABLE_CHANGES: Final = {DELETE_REASON, CHANGED_COLUMNS, MATCH, MATCH_SCORE}


@dataclass(frozen=True)
class Envelope:
    """What every row of one version carries beside its record id."""

    dataset_id: str
    place_id: str | None
    version: int
    source_url: str | None
    fetched_at: datetime | None


def arrow_type(type_: ColumnType) -> pa.DataType:
    """Give the Parquet writer's type of a contract type (D2.11)."""
    return _ARROW[STORAGE_TYPES[type_].arrow]


def arrow_schema(schema: Schema, kind: TableKind) -> pa.Schema:
    """Give the exact columns of a version's files of one kind, in order (D5.4, D5.5).

    A backfill takes the columns of the `schema` that it is given; an id map none. Record columns may be null in changes
    and backfills.
    """
    match kind:
        case "snapshot":
            return pa.schema([*_envelope_fields(), *map(_own_field, schema.columns)])
        case "changes":
            return pa.schema([*_envelope_fields(), *map(_changes_field, CHANGES_COLUMNS), *_loose_fields(schema)])
        case "backfill":
            return pa.schema([pa.field(RECORD_ID, pa.string(), nullable=False), *_loose_fields(schema)])
        case "id-map":
            ids = (PREVIOUS_RECORD_ID, RECORD_ID, DATASET_ID)
            return pa.schema([pa.field(name, pa.string(), nullable=False) for name in ids])


def with_envelope(batches: Iterator[pa.RecordBatch], envelope: Envelope, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give batches the columns, order and types of a file's schema.

    Batches bring `_ploti_record_id`, the changes columns where the target has them, and own columns, in any order; what
    they lack is null. Raises `ArrowInvalid` where a value does not fit its column.
    """
    for batch in batches:
        arrays = [_array(batch, field, envelope) for field in target]
        yield pa.RecordBatch.from_arrays(arrays, schema=target)


def _array(batch: pa.RecordBatch, field: "pa.Field[Any]", envelope: Envelope) -> "pa.Array[Any]":
    constants = {
        DATASET_ID: envelope.dataset_id,
        PLACE_ID: envelope.place_id,
        VERSION: envelope.version,
        SOURCE_URL: envelope.source_url,
        FETCHED_AT: envelope.fetched_at,
    }
    if field.name in constants:
        constant: pa.Array[Any] = pa.repeat(pa.scalar(constants[field.name], type=field.type), batch.num_rows)
        return constant
    if field.name not in batch.schema.names:
        nulls: pa.Array[Any] = pa.nulls(batch.num_rows, type=field.type)
        return nulls
    given: pa.Array[Any] = batch.column(field.name)
    if given.type == field.type:
        return given
    fitted: pa.Array[Any] = given.cast(field.type)
    return fitted


def _envelope_fields() -> "list[pa.Field[Any]]":
    return [pa.field(name, arrow_type(type_), nullable=name in _NULLABLE_ENVELOPE) for name, type_ in ENVELOPE.items()]


def _changes_field(name: str) -> "pa.Field[Any]":
    types: dict[str, pa.DataType] = {CHANGED_COLUMNS: pa.list_(pa.string()), MATCH_SCORE: pa.float64()}
    return pa.field(name, types.get(name, pa.string()), nullable=name in _NULLABLE_CHANGES)


def _own_field(column: Column) -> "pa.Field[Any]":
    return pa.field(column.name, arrow_type(column.type), nullable=column.nullable)


def _loose_fields(schema: Schema) -> "list[pa.Field[Any]]":
    return [_own_field(column).with_nullable(True) for column in schema.columns]
