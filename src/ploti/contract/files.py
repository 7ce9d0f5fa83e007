"""Envelope columns, file names and limits of a version's files (page 001, D5.3 to D5.5)."""

from typing import Final, Literal

from ploti.contract.values import ColumnType

RECORD_ID: Final = "_ploti_record_id"
PREVIOUS_RECORD_ID: Final = "_ploti_previous_record_id"
DATASET_ID: Final = "_ploti_dataset_id"
PLACE_ID: Final = "_ploti_place_id"
VERSION: Final = "_ploti_version"
SOURCE_URL: Final = "_ploti_source_url"
FETCHED_AT: Final = "_ploti_fetched_at"
OP: Final = "_ploti_op"
CHANGE: Final = "_ploti_change"
DELETE_REASON: Final = "_ploti_delete_reason"
CHANGED_COLUMNS: Final = "_ploti_changed_columns"
MATCH: Final = "_ploti_match"
MATCH_SCORE: Final = "_ploti_match_score"

ENVELOPE: Final[dict[str, ColumnType]] = {
    RECORD_ID: "string",
    DATASET_ID: "string",
    PLACE_ID: "string",
    VERSION: "integer",
    SOURCE_URL: "string",
    FETCHED_AT: "timestamp",
}
"""Columns ahead of a dataset's own in every snapshot and changes file, in this order."""

CHANGES_COLUMNS: Final[tuple[str, ...]] = (OP, CHANGE, DELETE_REASON, CHANGED_COLUMNS, MATCH, MATCH_SCORE)
"""Columns that follow the envelope in changes files, in this order; `_ploti_changed_columns` is a list of strings and
`_ploti_match_score` a number, the others are strings."""

RESERVED_PREFIX: Final = "_ploti_"
GEOMETRY: Final = "geometry"
SRID: Final = 4326

Match = Literal["key", "content", "agent"]
Change = Literal["added", "changed", "removed"]
REMOVED_AT_SOURCE: Final = "removed_at_source"

FileKind = Literal["snapshot", "changes", "backfill", "id-map", "schema", "manifest"]
PARQUET_TYPE: Final = "application/vnd.apache.parquet"
JSON_TYPE: Final = "application/json"

PART_BYTES: Final = 256_000_000
"""A part's compressed bytes at most (D5.3)."""
ROW_GROUP_ROWS: Final = 50_000
LINK_SECONDS: Final = 3_600
LINKS_PER_CALL: Final = 200
RECORDS_PER_CALL: Final = 1_000

DOCUMENT_PREFIX: Final = "document:"
SOURCE_COPY_PREFIX: Final = "source:"
ORIGINAL: Final = "original"
"""How attachments are named: `document:<sha256>`, `source:<id>`, `original`."""


def part_path(kind: FileKind, number: int) -> str:
    """Name a Parquet part inside a version, like `snapshot/part-0000.parquet`."""
    return f"{kind}/part-{number:04d}.parquet"
