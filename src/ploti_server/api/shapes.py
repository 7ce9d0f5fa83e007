"""Domain values as the API's resources (page 000, 001, 003, 004)."""

from collections.abc import Collection
from pathlib import Path

from ploti.contract import resources
from ploti.contract.files import GEOMETRY, SRID
from ploti_server.domain.checks import Refresh
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.places import place_named
from ploti_server.domain.schema import Schema
from ploti_server.domain.status import Standing, status_of
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.domain.wire import wire_column, wire_counts, wire_license, wire_schema_change, wire_time
from ploti_server.pipeline.check import public_source
from ploti_server.ports import Records


def standing_of(records: Records, dataset_id: str) -> Standing:
    """Gather what a dataset's resource shows beside its definition."""
    return standings_of(records, [dataset_id])[dataset_id]


def standings_of(records: Records, dataset_ids: Collection[str]) -> dict[str, Standing]:
    """Gather the same of several datasets at once."""
    currents = records.versions.currents(dataset_ids)
    refreshes = records.catalog.refreshes(dataset_ids)
    without = [one for one in dataset_ids if one not in currents]
    held = {version.dataset_id for version in records.versions.in_status(None, [VersionStatus.HELD])} if without else ()
    standings = {one: Standing(version, refreshes.get(one, Refresh())) for one, version in currents.items()}
    for one in without:
        standings[one] = Standing(
            current=None,
            refresh=refreshes.get(one, Refresh()),
            is_subscribed=bool(records.subscriptions.holding(one)),
            is_held=one in held,
            last_check=records.checks.last_of(one),
        )
    return standings


def has_source(dataset: Dataset) -> bool:
    """Tell whether a dataset's source is an address or a file that is there; to be asked outside a transaction."""
    return public_source(dataset) is not None or Path(dataset.source.url).exists()


def dataset_status(dataset: Dataset, standing: Standing) -> resources.DatasetStatus:
    """Give a dataset's status, looking at its source only where that matters."""
    return status_of(standing, standing.current is not None or has_source(dataset))


def dataset_shape(dataset: Dataset, standing: Standing) -> resources.Dataset:
    """Shape a dataset; key and geometry are those of the current version."""
    current = standing.current
    key = list(current.schema.key_columns) if current else []
    last, due = standing.refresh.last_checked_at, standing.refresh.next_check_by
    return {
        "id": dataset.id,
        "dataAtlasId": dataset.data_atlas_id,
        "title": dataset.title,
        "description": dataset.description,
        "place": filed_place(dataset.filed_place),
        "topic": dataset.topic,
        "source": {"publisher": dataset.publisher, "url": public_source(dataset)},
        "license": wire_license(dataset.license),
        "keyed": bool(key),
        "keyColumns": key,
        "geometry": _geometry(current.schema) if current else None,
        "current": _current(current) if current else None,
        "status": dataset_status(dataset, standing),
        "refresh": {
            "lastCheckedAt": wire_time(last) if last else None,
            "nextCheckBy": wire_time(due) if due else None,
        },
    }


def filed_place(place_id: str | None) -> resources.DatasetPlace:
    """Shape the place that a dataset is filed under; one filed nowhere is in every coverage, like `us` (D10.3)."""
    place = place_named(place_id)
    if place is None or place.kind == "state_counties":
        return {"id": None, "name": None, "kind": "us"}
    return {"id": place.id, "name": place.name, "kind": place.kind}


def _geometry(schema: Schema) -> resources.GeometryInfo | None:
    for column in schema.columns:
        if column.name == GEOMETRY:
            return {"type": column.geometry_type or "Geometry", "srid": SRID}
    return None


def _released_at(version: Version) -> str:
    if version.released_at is None:
        raise ValueError(f"version {version.number} of {version.dataset_id} is not released")
    return wire_time(version.released_at)


def _current(version: Version) -> resources.CurrentVersion:
    return {
        "version": version.number,
        "schemaVersion": version.schema_version,
        "publishedAt": _released_at(version),
        "rowCount": version.row_count,
    }


def version_shape(version: Version) -> resources.Version:
    """Shape a released version, without its files."""
    return {
        "datasetId": version.dataset_id,
        "version": version.number,
        "previousVersion": version.previous_version,
        "schemaVersion": version.schema_version,
        "publishedAt": _released_at(version),
        "sourceUrl": version.source_url,
        "fetchedAt": wire_time(version.fetched_at) if version.fetched_at else None,
        "rowCount": version.row_count,
        "counts": wire_counts(version.counts) if version.counts and version.resync_reason is None else None,
        "resyncRequired": version.resync_reason is not None,
        "recordIdsChanged": version.record_ids_changed,
    }


def schema_shape(dataset: Dataset, version: Version, first: Version) -> resources.Schema:
    """Shape a version's own schema, given the first version that had it; spellings move under one number (D2.1)."""
    return {
        "datasetId": dataset.id,
        "schemaVersion": version.schema_version,
        "firstVersion": first.number,
        "keyColumns": list(version.schema.key_columns),
        "columns": [wire_column(column) for column in version.schema.columns],
        "changeFromPrevious": wire_schema_change(first.schema_change) if first.schema_change else None,
        "license": wire_license(dataset.license),
    }


def subscription_shape(subscription: Subscription) -> resources.Subscription:
    """Shape a subscription."""
    return {
        "id": subscription.id,
        "name": subscription.name,
        "places": list(subscription.places),
        "topics": list(subscription.topics),
        "datasetIds": list(subscription.dataset_ids),
        "revision": subscription.revision,
        "createdAt": wire_time(subscription.created_at),
        "updatedAt": wire_time(subscription.updated_at),
    }
