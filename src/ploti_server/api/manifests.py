"""`GET /v1/feeds/subscriptions/{subscription}/manifest`: what to load, and the last event in it (page 000, D8.4).

The first page brings the membership up to date; later pages list the same moment, the cursor of that event, without
touching anything. With `asOf` nothing is touched at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import resources
from ploti.contract.events import event_id
from ploti_server.api.answers import answer
from ploti_server.api.documented import answers
from ploti_server.api.kept import keeps_snapshot
from ploti_server.api.links import Context, Links
from ploti_server.api.pages import give_cursor, read_cursor
from ploti_server.api.queries import Caller, Cursor, PlainNumber
from ploti_server.api.routes import Routes, caller_of
from ploti_server.api.shapes import dataset_status, standing_of, standings_of
from ploti_server.domain.access import Access, Refused, access_of
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.events import LoggedEvent
from ploti_server.domain.log import (
    HOLDING_EVENTS,
    as_of_number,
    expired_as_of,
    held_as_of,
    later_events,
)
from ploti_server.domain.membership import Moves
from ploti_server.domain.retention import offered
from ploti_server.domain.status import Standing
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.pipeline.membership import PlanTopics, bring_up_to_date, pending_moves
from ploti_server.pipeline.subscriptions import owned_subscription, plan_of
from ploti_server.ports import Records

_LISTING: Final = "manifest"
_PER_PAGE_MOST: Final = 200
CURSOR_LIFE: Final = timedelta(hours=1)
_EVENTS_AT_ONCE: Final = 1_000


@dataclass(frozen=True)
class _Point:
    """The moment that a manifest's pages share, and where this page starts."""

    event: int
    opened_at: datetime
    after: str = ""


@dataclass(frozen=True)
class _Asked:
    subscription: str
    limit: int | None
    as_of: str | None

    @property
    def bound(self) -> dict[str, str | None]:
        return {"subscription": self.subscription, "asOf": self.as_of}


@dataclass(frozen=True)
class _Entry:
    """A dataset at the version to load; `is_kept` tells whether the snapshot's files are there."""

    dataset: Dataset
    version: Version | None
    standing: Standing
    is_kept: bool = True


def manifest_routes(context: Context) -> APIRouter:
    """Declare the route."""
    routes = Routes(context, "Subscriptions")

    def get_manifest(
        request: Request,
        subscription: str,
        as_of: Annotated[str | None, Query(alias="asOf", description="An earlier manifest's eventCursor.")] = None,
        limit: Annotated[int | None, Query(ge=1, le=_PER_PAGE_MOST), PlainNumber] = None,
        cursor: Cursor = None,
    ) -> Response:
        """Bring the subscription's datasets up to date and list them with links, or as they were at `asOf`."""
        caller, asked = caller_of(request), _Asked(subscription, limit, as_of)
        plan = plan_of(context.ports, caller.workspace)
        if cursor is None and as_of is None:
            point, entries = _first_page(context, caller, asked, plan)
        else:
            given = _read_point(context, asked, cursor) if cursor is not None else None
            point, entries = _page_then(context, caller, asked, plan, given)
        checked = [_checked(context, asked, entry) for entry in entries[: asked.limit]]
        return answer(_shape(context.links(request), asked, point, checked, more=len(checked) < len(entries)))

    path = "/v1/feeds/subscriptions/{subscription}/manifest"
    refused = ("not_found", "busy", "expired", "plan_unavailable")
    routes.add("GET", path, get_manifest, answers(resources.SubscriptionManifest, *refused), strict=True)
    return routes.router


def _read_point(context: Context, asked: _Asked, cursor: str) -> _Point:
    event, opened, after = read_cursor(_LISTING, asked.bound, cursor, (int, int, str))
    opened_at = datetime.fromtimestamp(opened / 1000, UTC)
    if context.ports.clock.now() >= opened_at + CURSOR_LIFE:
        message = "This manifest's cursor has expired: ask for the manifest again without a cursor."
        raise Refused("invalid_input", message, "cursor")
    return _Point(event, opened_at, after)


def _first_page(context: Context, caller: Caller, asked: _Asked, plan: PlanTopics) -> tuple[_Point, list[_Entry]]:
    ports = context.ports
    now = ports.clock.now()
    with ports.store.read() as records:
        found = owned_subscription(records, caller.workspace.id, asked.subscription)
        if pending_moves(records, found, plan) == Moves():
            return _Point(records.events.newest(found.id), now), _entries_now(records, found, asked.limit)
    with ports.store.write() as records:
        found = owned_subscription(records, caller.workspace.id, asked.subscription)
        bring_up_to_date(records, found, plan, now)
        return _Point(records.events.newest(found.id), now), _entries_now(records, found, asked.limit)


def _entries_now(records: Records, subscription: Subscription, limit: int | None) -> list[_Entry]:
    held = records.subscriptions.joined(subscription.id)
    listed = held if limit is None else held[: limit + 1]
    standings, known = standings_of(records, listed), {each.id: each for each in records.catalog.datasets()}
    entries: list[_Entry] = []
    for dataset_id in listed:
        dataset = known.get(dataset_id)
        if dataset is None:
            raise LookupError(f"{subscription.id} holds {dataset_id}, which is in no catalog")
        standing = standings[dataset_id]
        entries.append(_Entry(dataset, standing.current, standing))
    return entries


def _page_then(
    context: Context, caller: Caller, asked: _Asked, plan: PlanTopics, given: _Point | None
) -> tuple[_Point, list[_Entry]]:
    """List a page as of an event: the one that `asOf` names, or the one that the first page reflected."""
    now = context.ports.clock.now()
    with context.ports.store.read() as records:
        found = owned_subscription(records, caller.workspace.id, asked.subscription)
        workspace = records.workspaces.get(found.workspace_id) or caller.workspace
        access = access_of(workspace, plan)
        ends = records.events.ends(found.id)
        if asked.as_of is not None:
            number = as_of_number(asked.as_of, ends)
            point = given or _Point(number, now)
            return point, _entries_as_of(records, found, access, point, asked.limit)
        point = given or _Point(ends.newest, now)
        return point, _entries_then(records, found, access, point, asked.limit)


def _entries_as_of(
    records: Records, subscription: Subscription, access: Access, point: _Point, limit: int | None
) -> list[_Entry]:
    """List what was held as of an event and is still delivered, each at the version that the log had reached (D7.4)."""
    held = held_as_of(records.events.last_of_each(subscription.id, point.event, HOLDING_EVENTS))
    still = set(records.subscriptions.joined(subscription.id))
    entries: list[_Entry] = []
    for dataset_id in sorted(one for one in held if one in still and one > point.after):
        dataset, number = records.catalog.dataset(dataset_id), held[dataset_id]
        if dataset is None or not access.delivers(dataset):
            continue
        version = None if number is None else records.versions.get(dataset_id, number)
        if version is not None and version.status is VersionStatus.RELEASED_AGAIN:
            raise expired_as_of(f"Version {number} of {dataset_id} has been released again under a new number")
        entries.append(_Entry(dataset, version, standing_of(records, dataset_id)))
        if limit is not None and len(entries) > limit:
            break
    return entries


def _checked(context: Context, asked: _Asked, entry: _Entry) -> _Entry:
    """Look whether a version's snapshot is there; raises `Refused` where `asOf` reached one past retention."""
    version, current = entry.version, entry.standing.current
    is_current = version is not None and current is not None and current.number == version.number
    version = None if version is None else offered(version, is_current=is_current)
    if version is None or keeps_snapshot(context.ports.files, version):
        return entry if version is entry.version else replace(entry, version=version)
    if asked.as_of is not None and not is_current:
        raise expired_as_of(f"The snapshot of version {version.number} of {entry.dataset.id} is no longer kept")
    return replace(entry, is_kept=False)


def _entries_then(
    records: Records, subscription: Subscription, access: Access, point: _Point, limit: int | None
) -> list[_Entry]:
    """List what was held at the point and still is, each at the version that was current then."""
    ends = records.events.ends(subscription.id)
    if point.event > ends.newest or not ends.keeps_all_after(point.event):
        raise Refused("invalid_input", "This manifest's cursor has expired: ask for the manifest again.", "cursor")
    later = later_events(_events_after(records, subscription.id, point.event))
    entries: list[_Entry] = []
    for dataset_id in records.subscriptions.joined(subscription.id):
        dataset = records.catalog.dataset(dataset_id)
        since = later.get(dataset_id)
        if dataset_id <= point.after or dataset is None or not access.delivers(dataset):
            continue
        if since is not None and not since.was_held:
            continue
        standing = standing_of(records, dataset_id)
        version = standing.current
        if since is not None and since.first_version is not None:
            before = records.versions.released(dataset_id, before=since.first_version, newest_first=True, limit=1)
            version = before[0] if before else None
        entries.append(_Entry(dataset, version, standing))
        if limit is not None and len(entries) > limit:
            break
    return entries


def _events_after(records: Records, subscription_id: str, number: int) -> Iterator[LoggedEvent]:
    while events := records.events.after(subscription_id, number, _EVENTS_AT_ONCE):
        yield from events
        number = events[-1].number


def _shape(
    links: Links, asked: _Asked, point: _Point, listed: list[_Entry], *, more: bool
) -> resources.SubscriptionManifest:
    opened = int(point.opened_at.timestamp() * 1000)
    after: list[str | int] = [point.event, opened, listed[-1].dataset.id] if more else []
    return {
        "subscriptionId": asked.subscription,
        "eventCursor": event_id(point.event),
        "datasets": [_listed(links, e.version) for e in listed if e.version is not None and e.is_kept],
        "unavailable": [_unavailable(entry) for entry in listed if entry.version is None or not entry.is_kept],
        "nextCursor": give_cursor(_LISTING, asked.bound, after) if more else None,
    }


def _listed(links: Links, version: Version) -> resources.ManifestDataset:
    return {
        "datasetId": version.dataset_id,
        "keyed": bool(version.schema.key_columns),
        "version": version.number,
        "schemaVersion": version.schema_version,
        "files": links.files(version),
    }


def _unavailable(entry: _Entry) -> resources.UnavailableDataset:
    if entry.version is not None:
        return {"datasetId": entry.dataset.id, "version": entry.version.number, "reason": "rebuilding"}
    reason = dataset_status(entry.dataset, entry.standing)
    return {"datasetId": entry.dataset.id, "reason": "building" if reason == "available" else reason}
