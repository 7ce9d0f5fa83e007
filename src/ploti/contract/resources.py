"""Shapes of the API's resources, with wire names (page 000, 001, 004, D1.6)."""

from typing import Any, Literal, NotRequired

from ploti.contract._typed import TypedDict
from ploti.contract.values import ColumnType

PlaceKind = Literal["county", "state", "state_counties", "us"]
DatasetStatus = Literal["available", "not_built", "building", "held", "failed", "awaiting_release"]


class Place(TypedDict):
    """A place in a workspace's coverage; `datasetCounts` leaves out datasets without a topic."""

    id: str
    name: str
    kind: PlaceKind
    state: str | None
    datasetCount: int
    datasetCounts: dict[str, int]


class PlaceList(TypedDict):
    """Every place at once."""

    places: list[Place]


class Topic(TypedDict):
    """A subject that datasets are filed under."""

    id: str
    name: str


class TopicList(TypedDict):
    """Every topic."""

    topics: list[Topic]


class DatasetPlace(TypedDict):
    """Where a dataset is filed; one that is filed nowhere is in every coverage, as those of `us` are."""

    id: str | None
    name: str | None
    kind: Literal["county", "state", "us"]


class SourceInfo(TypedDict):
    """Who publishes a dataset and where."""

    publisher: str | None
    url: str | None


class License(TypedDict):
    """Terms that go wherever the data goes (D10.2)."""

    id: str | None
    attribution: str | None
    url: str | None


class GeometryInfo(TypedDict):
    """Kind of a dataset's shapes."""

    type: str
    srid: int


class CurrentVersion(TypedDict):
    """The newest released version."""

    version: int
    schemaVersion: str
    publishedAt: str
    rowCount: int


class Refresh(TypedDict):
    """When the source was last read whole and when it is due again."""

    lastCheckedAt: str | None
    nextCheckBy: str | None


class Dataset(TypedDict):
    """One set of public records from one source."""

    id: str
    dataAtlasId: str | None
    title: str
    description: str | None
    place: DatasetPlace
    topic: str | None
    source: SourceInfo
    license: License | None
    keyed: bool
    keyColumns: list[str]
    geometry: GeometryInfo | None
    current: CurrentVersion | None
    status: DatasetStatus
    refresh: Refresh


class DatasetPage(TypedDict):
    """A page of datasets."""

    datasets: list[Dataset]
    nextCursor: str | None


class Counts(TypedDict):
    """Rows of a changes file by kind."""

    added: int
    changed: int
    removed: int


class FileLink(TypedDict):
    """One file of a version with a signed link; `path` is its name in the version manifest."""

    path: str
    filename: str
    contentType: str
    sizeBytes: int
    sha256: str
    url: str


class AttachmentLink(TypedDict):
    """One attachment with a signed link."""

    file: str
    filename: str
    contentType: str
    sizeBytes: int
    sha256: str
    url: str


class VersionFiles(TypedDict):
    """Every file of a version; each key is always there (D5.3)."""

    snapshot: list[FileLink]
    changes: list[FileLink]
    backfill: list[FileLink]
    idMap: list[FileLink]
    schema: FileLink
    manifest: FileLink
    attachments: list[AttachmentLink]
    expiresAt: str


class Version(TypedDict):
    """A released version; `files` only where one version is asked for."""

    datasetId: str
    version: int
    previousVersion: int | None
    schemaVersion: str
    publishedAt: str
    sourceUrl: str | None
    fetchedAt: str | None
    rowCount: int
    counts: Counts | None
    resyncRequired: bool
    recordIdsChanged: bool
    files: NotRequired[VersionFiles]


class VersionPage(TypedDict):
    """A page of versions."""

    versions: list[Version]
    nextCursor: str | None


RecordStatus = Literal["current", "removed", "replaced"]


class RecordTrace(TypedDict):
    """What became of a record id. `lastVersion` is the last version in which a record carried it.

    `replacedBy` is the id that took its place, `currentId` the one that its record carries now, null where it is gone.
    """

    datasetId: str
    recordId: str
    status: RecordStatus
    firstVersion: int
    lastVersion: int
    replacedBy: str | None
    currentId: str | None


class RecordTraces(TypedDict):
    """What became of the record ids that were named, and those that no record ever carried."""

    records: list[RecordTrace]
    missing: list[str]


class SignedFile(TypedDict):
    """A file asked for by name, with a fresh link."""

    file: str
    filename: str
    contentType: str
    sizeBytes: int
    sha256: str
    url: str


class DatasetFile(TypedDict):
    """A stored file of a dataset by name, as its current version has it, with a link."""

    datasetId: str
    version: int
    file: str
    filename: str
    contentType: str
    sizeBytes: int
    sha256: str
    url: str
    expiresAt: str


class ProvenanceSource(TypedDict):
    """A source of a dataset. `url` is null where it is no web address, `file` where no copy of it is archived."""

    id: str
    url: str | None
    file: str | None


class Provenance(TypedDict):
    """The sources that a dataset comes from, its rows' own first."""

    datasetId: str
    sources: list[ProvenanceSource]


class SignedFiles(TypedDict):
    """Fresh links to the files that were named, and the names without a file."""

    files: list[SignedFile]
    missing: list[str]
    expiresAt: str


class Column(TypedDict):
    """One delivered column."""

    name: str
    type: ColumnType
    nullable: bool
    description: NotRequired[str]
    sourceName: NotRequired[str]
    geometryType: NotRequired[str]
    volatile: NotRequired[bool]


class SchemaChange(TypedDict):
    """What a version changed in the schema."""

    kind: Literal["additive", "breaking"]
    previousSchemaVersion: str
    added: list[Column]
    removed: list[str]
    retyped: list[dict[str, str]]
    nullabilityChanged: list[dict[str, Any]]
    keyColumnsChanged: bool


class Schema(TypedDict):
    """A dataset's columns as of a schema version."""

    datasetId: str
    schemaVersion: str
    firstVersion: int
    keyColumns: list[str]
    columns: list[Column]
    changeFromPrevious: SchemaChange | None
    license: NotRequired[License | None]


class SchemaList(TypedDict):
    """Every schema version that a dataset has had, oldest first."""

    datasetId: str
    schemas: list[Schema]


class Subscription(TypedDict):
    """The datasets that a workspace follows."""

    id: str
    name: str
    places: list[str]
    topics: list[str]
    datasetIds: list[str]
    revision: int
    createdAt: str
    updatedAt: str


class SubscriptionPage(TypedDict):
    """A page of subscriptions."""

    subscriptions: list[Subscription]
    nextCursor: str | None


class TopicCount(TypedDict):
    """Datasets of a primary topic, null for none."""

    topic: str | None
    count: int


class PlaceCount(TypedDict):
    """Datasets filed under a place, null for none."""

    id: str | None
    name: str | None
    kind: Literal["county", "state", "us"]
    count: int


class MatchedBy(TypedDict):
    """Datasets that the places name, and that are named on their own; one may be both."""

    places: int
    datasets: int


class PreviewedDataset(TypedDict):
    """A dataset that would be delivered, and what names it."""

    id: str
    title: str
    matchedBy: list[Literal["places", "datasets"]]


class SubscriptionPreview(TypedDict):
    """What a subscription would deliver now; the filters leave `matching` of `total`."""

    total: int
    matchedBy: MatchedBy
    byTopic: list[TopicCount]
    byPlace: list[PlaceCount]
    matching: int
    datasets: list[PreviewedDataset]
    nextCursor: str | None


class ManifestDataset(TypedDict):
    """A dataset to load, with links."""

    datasetId: str
    keyed: bool
    version: int
    schemaVersion: str
    files: VersionFiles


class UnavailableDataset(TypedDict):
    """A dataset that cannot be loaded now; `version` where its files are being rebuilt."""

    datasetId: str
    reason: Literal["rebuilding", "building", "held", "failed", "awaiting_release", "not_built"]
    version: NotRequired[int]


class SubscriptionManifest(TypedDict):
    """A subscription's datasets and the last event that they reflect."""

    subscriptionId: str
    eventCursor: str
    datasets: list[ManifestDataset]
    unavailable: list[UnavailableDataset]
    nextCursor: str | None


class ManifestFile(TypedDict):
    """One file in a version's `manifest.json`."""

    path: str
    filename: str
    contentType: str
    sizeBytes: int
    sha256: str
    rows: NotRequired[int]


class VersionManifest(TypedDict):
    """Content of a version's `manifest.json`."""

    datasetId: str
    version: int
    previousVersion: int | None
    schemaVersion: str
    rowCount: int
    counts: Counts | None
    resyncRequired: bool
    recordIdsChanged: bool
    sourceUrl: str | None
    fetchedAt: str | None
    files: list[ManifestFile]
    attachments: list[dict[str, Any]]
    constants: dict[str, Any]
    volatileColumns: list[str]
    repairedShapes: int
    rejects: dict[str, int]
    digest: dict[str, list[int]]
    license: License | None
