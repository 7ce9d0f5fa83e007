"""`GET /v1/feeds/subscriptions/{subscription}/events`: a subscription's log from a cursor (page 003)."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import events as event_contract
from ploti.contract.events import event_id
from ploti_server.api.answers import read_answer
from ploti_server.api.documented import answers
from ploti_server.api.links import Context
from ploti_server.api.queries import Limit500
from ploti_server.api.routes import Routes, caller_of
from ploti_server.domain.events import wire_event
from ploti_server.domain.log import LogEnds, read_types, start_of
from ploti_server.pipeline.subscriptions import owned_subscription


def event_routes(context: Context) -> APIRouter:
    """Declare the route."""
    routes = Routes(context, "Events")

    def list_events(
        request: Request,
        subscription: str,
        cursor: Annotated[str | None, Query(description="The last event that was applied, or an eventCursor.")] = None,
        limit: Limit500 = event_contract.EVENTS_PER_PAGE,
        types: Annotated[str | None, Query(description="Event types, joined by commas.")] = None,
    ) -> Response:
        """List the events after a cursor, in order; the next cursor moves on even where the filter leaves none."""
        wanted = read_types(types)
        with context.ports.store.read() as records:
            found = owned_subscription(records, caller_of(request).workspace.id, subscription)
            ends = LogEnds(records.events.newest(found.id), records.events.oldest(found.id))
            start = start_of(cursor, ends)
            events = records.events.after(found.id, start, limit, wanted)
        last = events[-1].number if len(events) == limit else ends.newest
        base = context.base(request)
        page: event_contract.EventPage = {
            "events": [wire_event(event, base) for event in events],
            "nextCursor": event_id(last),
        }
        return read_answer(request, page)

    path = "/v1/feeds/subscriptions/{subscription}/events"
    routes.add("GET", path, list_events, answers(event_contract.EventPage, "not_found", "expired"))
    return routes.router
