"""`GET /v1/feeds/datasets` and `/{dataset}`: the datasets that a workspace's subscriptions could deliver (page 000)."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import resources
from ploti_server.api.answers import read_answer
from ploti_server.api.documented import DATASET_REFUSALS, answers
from ploti_server.api.links import Context
from ploti_server.api.pages import give_cursor, read_cursor
from ploti_server.api.queries import Cursor, Limit200, PlainMoment
from ploti_server.api.reach import access_for, covered_place, reach_dataset, require_topic
from ploti_server.api.routes import Routes, caller_of
from ploti_server.api.shapes import dataset_shape, standing_of, standings_of
from ploti_server.domain.access import OUTSIDE_COVERAGE, Access
from ploti_server.domain.coverage import lies_in
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.places import Place
from ploti_server.domain.status import Standing
from ploti_server.domain.wire import wire_time
from ploti_server.pipeline.subscriptions import owned_subscription
from ploti_server.ports import Records

_LISTING: Final = "datasets"


@dataclass(frozen=True)
class _Filters:
    place: Place | None
    topic: str | None
    subscription: str | None
    since: datetime | None

    def bound(self, workspace_id: str) -> dict[str, Any]:
        return {
            "workspace": workspace_id,
            "place": self.place and self.place.id,
            "topic": self.topic,
            "subscription": self.subscription,
            "updatedSince": self.since and wire_time(self.since),
        }


def dataset_routes(context: Context) -> APIRouter:
    """Declare the routes."""
    routes = Routes(context, "Datasets")

    def list_datasets(
        request: Request,
        *,
        place: Annotated[str | None, Query(description="Only datasets that apply to this place.")] = None,
        topic: Annotated[str | None, Query(description="Only datasets filed under this topic.")] = None,
        subscription: Annotated[str | None, Query(description="Only datasets that this subscription holds.")] = None,
        since: Annotated[
            datetime | None,
            Query(alias="updatedSince", description="Only datasets whose current version was released then or later."),
            PlainMoment,
        ] = None,
        limit: Limit200 = 100,
        cursor: Cursor = None,
    ) -> Response:
        """List the datasets that the workspace's subscriptions could deliver, by id."""
        caller = caller_of(request)
        access = access_for(context, caller)
        filters = _Filters(covered_place(place, access), topic, subscription, since)
        bound = filters.bound(caller.workspace.id)
        after = read_cursor(_LISTING, bound, cursor, (str,))[0] if cursor is not None else ""
        with context.ports.store.read() as records:
            require_topic(records, topic)
            candidates = _matching(records, access, filters, caller.workspace.id)
            found = _page(records, (d for d in candidates if d.id > after), filters.since, limit + 1)
        more = len(found) > limit
        listed = found[:limit]
        body: resources.DatasetPage = {
            "datasets": [dataset_shape(dataset, standing) for dataset, standing in listed],
            "nextCursor": give_cursor(_LISTING, bound, [listed[-1][0].id]) if more else None,
        }
        return read_answer(request, body)

    def get_dataset(request: Request, dataset: str) -> Response:
        """Read one dataset that can be delivered to the workspace."""
        access = access_for(context, caller_of(request))
        with context.ports.store.read() as records:
            found = reach_dataset(records, access, dataset)
            standing = standing_of(records, found.id)
        return read_answer(request, dataset_shape(found, standing))

    refused = ("not_found", OUTSIDE_COVERAGE, "plan_unavailable")
    routes.add("GET", "/v1/feeds/datasets", list_datasets, answers(resources.DatasetPage, *refused))
    routes.add("GET", "/v1/feeds/datasets/{dataset}", get_dataset, answers(resources.Dataset, *DATASET_REFUSALS))
    return routes.router


def _matching(records: Records, access: Access, filters: _Filters, workspace_id: str) -> Iterator[Dataset]:
    held: frozenset[str] | None = None
    if filters.subscription is not None:
        held = frozenset(
            records.subscriptions.joined(owned_subscription(records, workspace_id, filters.subscription).id)
        )
    for dataset in records.catalog.datasets():
        if (
            access.delivers(dataset)
            and (held is None or dataset.id in held)
            and (filters.topic is None or dataset.topic == filters.topic)
            and (filters.place is None or lies_in(dataset, filters.place, access.counties))
        ):
            yield dataset


def _page(
    records: Records, candidates: Iterator[Dataset], since: datetime | None, most: int
) -> list[tuple[Dataset, Standing]]:
    """Take datasets in order until there are enough; `since` is inclusive (D8.3)."""
    found: list[tuple[Dataset, Standing]] = []
    while len(found) < most and (some := list(islice(candidates, most))):
        standings = standings_of(records, [dataset.id for dataset in some])
        found += [(one, standings[one.id]) for one in some if _is_since(standings[one.id], since)]
    return found[:most]


def _is_since(standing: Standing, since: datetime | None) -> bool:
    released = standing.current.released_at if standing.current else None
    return since is None or (released is not None and released >= since)
