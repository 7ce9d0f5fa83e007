"""A workspace's subscriptions: create, list, read, delete (page 000)."""

from typing import Annotated, Final, Literal, NotRequired

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import resources
from ploti.contract._typed import TypedDict
from ploti_server.api.answers import answer, read_answer
from ploti_server.api.documented import answers, body
from ploti_server.api.links import Context
from ploti_server.api.pages import give_cursor, read_cursor
from ploti_server.api.queries import Cursor, Limit200, parse_body, read_body, require_admin
from ploti_server.api.routes import Routes, caller_of
from ploti_server.api.shapes import subscription_shape
from ploti_server.domain.subscriptions import Subscription, read_selection
from ploti_server.pipeline.subscriptions import create_subscription, delete_subscription, owned_subscription

_LISTING: Final = "subscriptions"
_CREATE_REFUSALS: Final = ("outside_coverage", "not_deliverable", "limit_reached", "busy", "plan_unavailable")


class SubscriptionBody(TypedDict):
    """What a subscription names: at least one place or dataset."""

    name: NotRequired[str]
    places: NotRequired[list[str]]
    topics: NotRequired[list[str]]
    datasetIds: NotRequired[list[str]]


class Deleted(TypedDict):
    """The answer to a delete."""

    deleted: Literal[True]


def etag_of(subscription: Subscription) -> str:
    """Give a subscription's ETag: its quoted revision (D8.5)."""
    return f'"{subscription.revision}"'


def subscription_routes(context: Context) -> APIRouter:
    """Declare the routes."""
    routes = Routes(context, "Subscriptions")
    ports = context.ports

    def create(request: Request, content: Annotated[bytes, Depends(read_body)]) -> Response:
        """Create a subscription; its datasets join at once."""
        caller = caller_of(request)
        require_admin(caller)
        created = create_subscription(ports, caller.workspace, read_selection(parse_body(content)))
        return answer(subscription_shape(created), 201, {"ETag": etag_of(created)})

    def list_all(
        request: Request,
        limit: Limit200 = 100,
        cursor: Cursor = None,
    ) -> Response:
        """List the workspace's subscriptions, oldest first."""
        workspace = caller_of(request).workspace
        bound = {"workspace": workspace.id}
        with ports.store.read() as records:
            found = records.subscriptions.of_workspace(workspace.id)
        if cursor is not None:
            last = read_cursor(_LISTING, bound, cursor, (str, str))
            found = tuple(s for s in found if _place_in_list(s) > last)
        more = len(found) > limit
        page: resources.SubscriptionPage = {
            "subscriptions": [subscription_shape(subscription) for subscription in found[:limit]],
            "nextCursor": give_cursor(_LISTING, bound, _place_in_list(found[limit - 1])) if more else None,
        }
        return read_answer(request, page)

    def get_one(request: Request, subscription: str) -> Response:
        """Read one of the workspace's subscriptions; the ETag is its quoted revision."""
        with ports.store.read() as records:
            found = owned_subscription(records, caller_of(request).workspace.id, subscription)
        return read_answer(request, subscription_shape(found), etag_of(found))

    def delete(request: Request, subscription: str) -> Response:
        """Delete a subscription: its events stop, and links for its datasets are signed no longer."""
        caller = caller_of(request)
        require_admin(caller)
        delete_subscription(ports, caller.workspace.id, subscription)
        deleted: Deleted = {"deleted": True}
        return answer(deleted)

    everything, one = "/v1/feeds/subscriptions", "/v1/feeds/subscriptions/{subscription}"
    created = answers(resources.Subscription, *_CREATE_REFUSALS, status=201)
    routes.add("POST", everything, create, created, status=201, body=body(SubscriptionBody))
    routes.add("GET", everything, list_all, answers(resources.SubscriptionPage))
    routes.add("GET", one, get_one, answers(resources.Subscription, "not_found"))
    routes.add("DELETE", one, delete, answers(Deleted, "not_found", "busy"))
    return routes.router


def _place_in_list(subscription: Subscription) -> list[str | int]:
    return [subscription.created_at.isoformat(), subscription.id]
