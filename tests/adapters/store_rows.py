"""Values that the store's tests put in."""

from datetime import UTC, datetime, timedelta

from sqlalchemy.exc import IntegrityError

from ploti.contract import events as wire
from ploti_server.domain.checks import Check, CheckStatus
from ploti_server.domain.datasets import (
    Dataset,
    GeometryColumns,
    License,
    MatchingLimits,
    ReviewLimits,
    SourceSpec,
)
from ploti_server.domain.events import NewEvent
from ploti_server.domain.schema import (
    Column,
    KnownColumn,
    NullabilityChange,
    Retype,
    Schema,
    SchemaChange,
    SchemaVersion,
)
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.versions import Counts, StoredFile, Version, VersionStatus
from ploti_server.domain.workspaces import ApiKey, Workspace

NOW = datetime(2026, 3, 1, 12, 30, 15, 123000, tzinfo=UTC)
HOUR = timedelta(hours=1)
UNKNOWN_PARENT = (IntegrityError, LookupError)

FULL_DATASET = Dataset(
    "ds_full",
    "Wohnungen – Zürich ☂",
    SourceSpec("arcgis", "https://example.org/0", "a.b", GeometryColumns("x", "y"), ("EPSG:2263", "EPSG:4326"), False),
    description='Text with "quotes"\nand lines',
    place="fl-county-lee",
    covers=("fl-county-lee", "fl-county-polk"),
    topic="zoning",
    publisher="County",
    license=License("CC-BY-4.0", "County", "https://example.org/l"),
    data_atlas_id="atlas-1",
    key=("PARCEL", "Unit"),
    columns={"PARCEL": "string", "Area": "number"},
    volatile=("row",),
    drop=("secret",),
    documents=("pdf",),
    timezone="America/New_York",
    check_every=timedelta(hours=6, microseconds=1),
    review=ReviewLimits(max_row_drop=0.1 + 0.2, release_after_agreeing_checks=3),
    matching=MatchingLimits(max_judged=7),
    deliverable=False,
    retired=True,
)
FULL_VERSION = Version(
    "ds_a",
    7,
    2,
    VersionStatus.HELD,
    check_id=3,
    base=5,
    previous_version=4,
    schema_version="2.10",
    schema=Schema((Column("id", "string", False, "ID"), Column("geometry", "geometry", True, "g", True, "Point", "d"))),
    schema_change=SchemaChange(
        "breaking",
        SchemaVersion(1, 12),
        (Column("n", "integer", True, "N"),),
        ("old",),
        (Retype("t", "integer", "number"),),
        (NullabilityChange("u", False, True),),
        True,
    ),
    known_columns=(KnownColumn("id", "ID"),),
    row_count=3_000_000_000,
    counts=Counts(1, 2, 3),
    resync_reason="schema_changed",
    record_ids_changed=True,
    id_epoch=1,
    source_url="https://example.org",
    place_id="fl-county-lee",
    fetched_at=NOW,
    built_at=NOW + HOUR,
    released_at=None,
    facts={"share": 0.1, "nested": {"list": [1, None, True, "x"]}},
    reasons=("schema_review", "data_check"),
    fingerprint="ab" * 32,
    files=(StoredFile("snapshot/part-0000.parquet", "application/x", 10, "00" * 32, 5),),
    staff_files=(StoredFile("rejects/part-0000.parquet", "application/x", 1, "11" * 32),),
    note="why",
    expired=("changes", "snapshot"),
    expired_at=NOW + 2 * HOUR,
    rebuilt_at=NOW + 3 * HOUR,
    definition=FULL_DATASET,
)
WORKSPACE = Workspace("w1", "Lee", ("fl-county-lee",), None, NOW)


def dataset(name):
    return Dataset(name, name.upper(), SourceSpec("csv", f"https://example.org/{name}"))


def check(of, status=CheckStatus.QUEUED, **parts):
    return Check(0, of, status, NOW, NOW, **parts)


def version(number, status=VersionStatus.RELEASED, of="ds_a"):
    return Version(of, number, 1, status, 1)


def subscription(name, workspace="w1", at=NOW):
    return Subscription(name, workspace, "N", ("fl",), (), (), 1, at, at)


def event(of="ds_a", kind=wire.ADDED, **data):
    return NewEvent(kind, of, {"datasetId": of, **data})


def key(name, workspace="w1", at=NOW, **parts):
    return ApiKey(name, workspace, "kim", "admin", ("feeds",), f"hash-{name}", at, **parts)


def numbers(rows):
    return [row.number for row in rows]


def ids(rows):
    return [row.id for row in rows]
