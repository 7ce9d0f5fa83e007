"""`GET /v1/places` and `GET /v1/topics`: what can be named, within the workspace's coverage (page 000)."""

from collections import Counter
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import resources
from ploti_server.api.answers import read_answer
from ploti_server.api.documented import answers
from ploti_server.api.links import Context
from ploti_server.api.routes import Routes, caller_of
from ploti_server.domain.access import Access, Refused, access_of
from ploti_server.domain.coverage import covered_counties, covered_places, places_holding
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.places import Place, place_named
from ploti_server.pipeline.subscriptions import plan_of

Flag = Literal["true", "false"]


def place_routes(context: Context) -> APIRouter:
    """Declare the routes."""
    routes = Routes(context, "Places and topics", permission=None)

    def list_places(
        request: Request,
        state: Annotated[str | None, Query(description="Only places of this state, like `fl`.")] = None,
        kind: Annotated[resources.PlaceKind | None, Query()] = None,
        deliverable: Annotated[Flag, Query(description="Count only datasets that can be delivered.")] = "false",
    ) -> Response:
        """List the places of the workspace's coverage, with how many datasets each holds."""
        workspace = caller_of(request).workspace
        _require_state(state)
        only = deliverable == "true"
        access = access_of(workspace, plan_of(context.ports, workspace)) if only else None
        counties = covered_counties(workspace.coverage)
        with context.ports.store.read() as records:
            datasets = records.catalog.datasets()
        counted = _count(datasets, counties, access)
        listed = [p for p in covered_places(counties) if kind in (None, p.kind) and state in (None, p.state)]
        return read_answer(request, {"places": [_place_shape(place, counted) for place in listed]})

    def list_topics(request: Request) -> Response:
        """List the topics that datasets are filed under."""
        with context.ports.store.read() as records:
            topics = records.catalog.topics()
        return read_answer(request, {"topics": [{"id": topic.id, "name": topic.name} for topic in topics]})

    routes.add("GET", "/v1/places", list_places, answers(resources.PlaceList, "plan_unavailable"))
    routes.add("GET", "/v1/topics", list_topics, answers(resources.TopicList))
    return routes.router


def _require_state(state: str | None) -> None:
    place = place_named(state)
    if state is not None and (place is None or place.kind != "state"):
        raise Refused("invalid_input", f"'{state}' is not a state: use an id like fl.", "state")


def _count(
    datasets: tuple[Dataset, ...], counties: frozenset[str], access: Access | None
) -> dict[str, Counter[str | None]]:
    """Count the datasets of each place by topic: all that are not retired, or with `access` those it delivers."""
    counted: dict[str, Counter[str | None]] = {}
    for dataset in datasets:
        if not dataset.retired if access is None else access.delivers(dataset):
            for place_id in places_holding(dataset, counties):
                counted.setdefault(place_id, Counter())[dataset.topic] += 1
    return counted


def _place_shape(place: Place, counted: dict[str, Counter[str | None]]) -> resources.Place:
    topics = counted.get(place.id, Counter())
    return {
        "id": place.id,
        "name": place.name,
        "kind": place.kind,
        "state": place.state,
        "datasetCount": topics.total(),
        "datasetCounts": {topic: topics[topic] for topic in sorted(t for t in topics if t is not None)},
    }
