"""`GET /v1/feeds/subscriptions/{subscription}/events`: a subscription's log from a cursor (page 003)."""

from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import events as event_contract
from ploti.contract.events import event_id, event_number
from ploti_server.api.answers import read_bytes, tag_of
from ploti_server.api.dispatch import Waiting
from ploti_server.api.documented import answers
from ploti_server.api.links import Context
from ploti_server.api.queries import CALLER, Limit500, PlainNumber, identify
from ploti_server.api.routes import Routes, caller_of
from ploti_server.domain.events import sent_body
from ploti_server.domain.log import read_types, start_of
from ploti_server.pipeline.subscriptions import no_subscription

_WAIT = "Seconds to wait for an event where there is none after the cursor yet."


@dataclass(frozen=True)
class _Asked:
    subscription: str
    cursor: str | None
    limit: int
    types: tuple[str, ...] | None


def event_routes(context: Context) -> APIRouter:
    """Declare the route."""
    routes = Routes(context, "Events")

    def list_events(
        request: Request,
        subscription: str,
        *,
        cursor: Annotated[str | None, Query(description="The last event that was applied, or an eventCursor.")] = None,
        limit: Limit500 = event_contract.EVENTS_PER_PAGE,
        types: Annotated[str | None, Query(description="Event types, joined by commas.")] = None,
        wait: Annotated[int, Query(ge=0, le=event_contract.WAIT_SECONDS_MOST, description=_WAIT), PlainNumber] = 0,
    ) -> Response | Waiting:
        """List the events after a cursor, in order; the next cursor moves on even where the filter leaves none."""
        return _read(context, request, _Asked(subscription, cursor, limit, read_types(types)), wait)

    path = "/v1/feeds/subscriptions/{subscription}/events"
    routes.add("GET", path, list_events, answers(event_contract.EventPage, "not_found", "expired"), quick=True)
    return routes.router


def _read(context: Context, request: Request, asked: _Asked, wait: float) -> Response | Waiting:
    number = event_number(asked.cursor or "") or 0
    with context.ports.store.glance() as records:
        page = records.events.page(asked.subscription, number, asked.limit, asked.types)
    if page is None or page.workspace_id != caller_of(request).workspace.id:
        raise no_subscription(asked.subscription)
    ends, bodies = page.ends, page.bodies
    start = start_of(asked.cursor, ends)
    last = bodies.last if bodies.count == asked.limit else ends.newest
    if not bodies.count and wait > 0:
        return _wait(context, request, replace(asked, cursor=event_id(last)), last, wait)
    base = context.base(request)
    known = (base, asked.subscription, str(start), str(last), str(bodies.count), *(asked.types or ()))
    content = b'{"events":[%s],"nextCursor":"%s"}' % (sent_body(bodies.text, base), event_id(last).encode())
    return read_bytes(request, content, tag_of("\0".join(known).encode()))


def _wait(context: Context, request: Request, asked: _Asked, last: int, wait: float) -> Waiting:
    """Wait for an event after the newest; the key is looked at again by then."""

    def look(left: float) -> Response | Waiting:
        request.scope["state"][CALLER] = identify(context.ports, request)
        return _read(context, request, asked, left)

    return Waiting(context.watch, asked.subscription, last, wait, look)
