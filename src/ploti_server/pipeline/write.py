"""Writes a built version's files: Parquet parts, `schema.json`, `manifest.json`; then into the file store (D5.3)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa

from ploti.contract import resources
from ploti.contract.digest import Digest
from ploti.contract.files import GEOMETRY, JSON_TYPE, PARQUET_TYPE, PREVIOUS_RECORD_ID, RECORD_ID
from ploti_server.domain.attachments import Attached, Attachments
from ploti_server.domain.datasets import License
from ploti_server.domain.states import StateRead
from ploti_server.domain.versions import ATTACHMENTS_FILE, StoredFile, Version
from ploti_server.domain.wire import wire_column, wire_counts, wire_license, wire_schema_change, wire_time
from ploti_server.ports import Ports, Tables
from ploti_server.rows.envelope import Envelope, arrow_schema, with_envelope
from ploti_server.rows.geoparquet import WrittenPart, write_parts

WrittenKind = Literal["snapshot", "changes", "backfill", "id-map"]
SNAPSHOT_ORDER = {True: "_ploti_hilbert ASC NULLS LAST, ", False: ""}


@dataclass(frozen=True)
class Built:
    """What a build has to write down: the version so far, its numbers, and which tables hold its rows.

    `schema_origin` is the released version that brought the schema version, None where this one does.
    """

    version: Version
    state: StateRead
    digest: Digest
    license: License | None = None
    schema_origin: Version | None = None
    constants: dict[str, Any] = field(default_factory=dict)
    backfill_columns: tuple[str, ...] = ()
    backfill_rows: int = 0
    attachments: Attachments = Attachments()

    @property
    def geometry_type(self) -> str | None:
        """Kind of the dataset's shapes, None without a geometry column."""
        return next((c.geometry_type for c in self.version.schema.columns if c.name == GEOMETRY), None)

    @property
    def envelope(self) -> Envelope:
        """The values that every row carries ahead of its own."""
        v = self.version
        return Envelope(v.dataset_id, v.place_id, v.number, v.source_url, v.fetched_at)


def write_version(ports: Ports, tables: Tables, built: Built, folder: Path) -> Version:
    """Write every file of a version and put it in the store; gives the version with its files.

    Nothing here is visible to subscribers before the version's row says so (D7.1).
    """
    parts = [part for kind, batches in _tables_to_write(tables, built) for part in _write(built, kind, batches, folder)]
    staff = _write_staff(tables, built, folder)
    ports.reach("build.parts_written")
    files = [_stored(part) for part in parts]
    documents = {"schema.json": _schema_document(built)}
    files.append(_stored_document("schema.json", documents["schema.json"]))
    documents["manifest.json"] = _manifest_document(built, files)
    files.append(_stored_document("manifest.json", documents["manifest.json"]))
    for part in (*parts, *staff):
        ports.files.put(f"{built.version.folder}/{part.path}", part.local)
        ports.reach("build.part_stored")
    documents |= _attachments_document(built.attachments)
    for path, content in documents.items():
        ports.files.put_bytes(f"{built.version.folder}/{path}", content)
    ports.reach("build.files_stored")
    kept = [_stored(part) for part in staff]
    kept += [_stored_document(path, documents[path]) for path in documents if path == ATTACHMENTS_FILE]
    return replace(built.version, files=tuple(files), staff_files=tuple(kept))


def _attachments_document(attachments: Attachments) -> dict[str, bytes]:
    return {} if attachments == Attachments() else {ATTACHMENTS_FILE: msgspec.json.encode(attachments)}


def _tables_to_write(tables: Tables, built: Built) -> Iterator[tuple[WrittenKind, Iterator[pa.RecordBatch]]]:
    shapes = SNAPSHOT_ORDER[built.geometry_type is not None]
    yield "snapshot", tables.query(f"SELECT * FROM snapshot_rows ORDER BY {shapes}{RECORD_ID} ASC NULLS LAST")
    if built.version.record_ids_changed:
        by_id = f"{PREVIOUS_RECORD_ID} ASC NULLS LAST"
        yield "id-map", tables.query(f"SELECT * FROM id_map_rows ORDER BY {by_id}")
    if built.version.resync_reason is None:
        yield (
            "changes",
            tables.query(f"SELECT * FROM changes_rows ORDER BY _ploti_op DESC NULLS LAST, {RECORD_ID} ASC NULLS LAST"),
        )
        if built.backfill_rows:
            yield "backfill", tables.query(f"SELECT * FROM backfill_rows ORDER BY {RECORD_ID} ASC NULLS LAST")


def _write(built: Built, kind: WrittenKind, batches: Iterator[pa.RecordBatch], folder: Path) -> tuple[WrittenPart, ...]:
    if kind == "backfill":
        added = tuple(c for c in built.version.schema.columns if c.name in built.backfill_columns)
        schema = arrow_schema(replace(built.version.schema, columns=added), kind)
        rows: Iterator[pa.RecordBatch] = (batch.select(schema.names).cast(schema) for batch in batches)
        geometry_type = built.geometry_type if GEOMETRY in built.backfill_columns else None
    else:
        schema = arrow_schema(built.version.schema, kind)
        rows = with_envelope(batches, built.envelope, schema)
        geometry_type = None if kind == "id-map" else built.geometry_type
    return write_parts(
        rows, kind=kind, schema=schema, folder=folder, geometry_type=geometry_type, metadata=_metadata(built)
    )


def _metadata(built: Built) -> dict[str, str]:
    version = built.version
    described = {
        "ploti:dataset_id": version.dataset_id,
        "ploti:version": str(version.number),
        "ploti:schema_version": version.schema_version,
        "ploti:digest": sha256(_json(built.digest.to_wire())).hexdigest(),
    }
    if built.license is not None:
        described["ploti:license"] = _json(wire_license(built.license)).decode()
    return described


def _write_staff(tables: Tables, built: Built, folder: Path) -> list[WrittenPart]:
    """Write the ledger entries and the rejects list: for staff and the next build, never linked (D4.3, D5.7)."""
    ledger = tables.query(f"SELECT * FROM ledger_rows ORDER BY {RECORD_ID} ASC NULLS LAST")
    written = list(_write_plain(ledger, "ledger", folder))
    if built.state.rejects:
        order = '"row" ASC NULLS LAST, "column" ASC NULLS LAST, reason ASC NULLS LAST, "value" ASC NULLS LAST'
        written += _write_plain(tables.query(f"SELECT * FROM rejects ORDER BY {order}"), "rejects", folder)
    return written


def _write_plain(batches: Iterator[pa.RecordBatch], kind: Any, folder: Path) -> tuple[WrittenPart, ...]:
    first = next(batches, None)
    if first is None:
        return ()

    def rows() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    return write_parts(rows(), kind=kind, schema=first.schema, folder=folder, geometry_type=None, metadata={})


def _schema_document(built: Built) -> bytes:
    return _json(schema_resource(built.version, built.schema_origin or built.version, built.license))


def schema_resource(version: Version, origin: Version, license_: License | None) -> resources.Schema:
    """Give a version's schema as the API and `schema.json` show it; `origin` is the version that brought it (D2.7)."""
    change = origin.schema_change
    return {
        "datasetId": version.dataset_id,
        "schemaVersion": version.schema_version,
        "firstVersion": origin.number,
        "keyColumns": list(version.schema.key_columns),
        "columns": [wire_column(column) for column in version.schema.columns],
        "changeFromPrevious": wire_schema_change(change) if change else None,
        "license": wire_license(license_),
    }


def _manifest_document(built: Built, files: list[StoredFile]) -> bytes:
    version = built.version
    manifest: resources.VersionManifest = {
        "datasetId": version.dataset_id,
        "version": version.number,
        "previousVersion": version.previous_version,
        "schemaVersion": version.schema_version,
        "rowCount": version.row_count,
        "counts": wire_counts(version.counts) if version.counts else None,
        "resyncRequired": version.resync_reason is not None,
        "recordIdsChanged": version.record_ids_changed,
        "sourceUrl": version.source_url,
        "fetchedAt": wire_time(version.fetched_at) if version.fetched_at else None,
        "files": [_manifest_file(file) for file in files],
        "attachments": [_manifest_attachment(one) for one in built.attachments.listed],
        "constants": {} if version.resync_reason else built.constants,
        "volatileColumns": [column.name for column in version.schema.columns if column.volatile],
        "repairedShapes": built.state.repaired_shapes,
        "rejects": dict(sorted(built.state.rejects.items())),
        "digest": built.digest.to_wire(),
        "license": wire_license(built.license),
    }
    return _json(manifest)


def _manifest_file(file: StoredFile) -> resources.ManifestFile:
    entry: resources.ManifestFile = {
        "path": file.path,
        "filename": file.path.rpartition("/")[2],
        "contentType": file.content_type,
        "sizeBytes": file.size_bytes,
        "sha256": file.sha256,
    }
    if file.rows is not None:
        entry["rows"] = file.rows
    return entry


def _manifest_attachment(one: Attached) -> dict[str, Any]:
    return {
        "file": one.file,
        "filename": one.filename,
        "contentType": one.content_type,
        "sizeBytes": one.size_bytes,
        "sha256": one.sha256,
    }


def _stored(part: WrittenPart) -> StoredFile:
    return StoredFile(part.path, PARQUET_TYPE, part.size_bytes, part.sha256, part.rows)


def _stored_document(path: str, content: bytes) -> StoredFile:
    return StoredFile(path, JSON_TYPE, len(content), sha256(content).hexdigest())


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
