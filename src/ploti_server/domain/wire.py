"""Domain values in the wire's words: camelCase names, times in UTC with milliseconds and `Z` (D1.4)."""

from datetime import UTC, datetime

from ploti.contract import resources
from ploti_server.domain.datasets import License
from ploti_server.domain.schema import Column, SchemaChange
from ploti_server.domain.versions import Counts


def wire_time(moment: datetime) -> str:
    """Write a moment like `2026-10-18T06:12:40.000Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def wire_column(column: Column) -> resources.Column:
    """Write a column; what is absent is left out."""
    wire: resources.Column = {"name": column.name, "type": column.type, "nullable": column.nullable}
    if column.description is not None:
        wire["description"] = column.description
    if column.source_name != column.name:
        wire["sourceName"] = column.source_name
    if column.geometry_type is not None:
        wire["geometryType"] = column.geometry_type
    if column.volatile:
        wire["volatile"] = True
    return wire


def wire_schema_change(change: SchemaChange) -> resources.SchemaChange:
    """Write what a version changed in the schema."""
    return {
        "kind": change.kind,
        "previousSchemaVersion": str(change.previous),
        "added": [wire_column(column) for column in change.added],
        "removed": list(change.removed),
        "retyped": [{"name": r.name, "from": r.from_, "to": r.to} for r in change.retyped],
        "nullabilityChanged": [{"name": n.name, "from": n.from_, "to": n.to} for n in change.nullability],
        "keyColumnsChanged": change.key_changed,
    }


def wire_counts(counts: Counts) -> resources.Counts:
    """Write the rows of a changes file by kind."""
    return {"added": counts.added, "changed": counts.changed, "removed": counts.removed}


def wire_license(license_: License | None) -> resources.License | None:
    """Write a licence."""
    return None if license_ is None else {"id": license_.id, "attribution": license_.attribution, "url": license_.url}
