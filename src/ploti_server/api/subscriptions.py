"""A workspace's subscriptions: create, list, read, change, delete (page 000)."""

from typing import Annotated, Any, Final, Literal, NotRequired

import msgspec
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import resources
from ploti.contract._typed import TypedDict
from ploti_server.api.answers import answer, read_answer
from ploti_server.api.documented import answers, body, header_parameter
from ploti_server.api.idempotency import InProgress, replay
from ploti_server.api.links import Context
from ploti_server.api.pages import give_cursor, read_cursor
from ploti_server.api.queries import Cursor, Limit200, parse_body, read_body, require_admin
from ploti_server.api.routes import Routes, caller_of
from ploti_server.api.shapes import subscription_shape
from ploti_server.domain.idempotency import HEADER, Remembered, hash_of_body, read_idempotency_key
from ploti_server.domain.subscriptions import (
    Subscription,
    etag_of,
    read_change,
    read_selection,
    read_tags,
    require_revision,
)
from ploti_server.domain.workspaces import Workspace
from ploti_server.pipeline.subscriptions import (
    Once,
    change_subscription,
    create_once,
    create_subscription,
    delete_subscription,
    earlier_answer,
    owned_subscription,
)
from ploti_server.ports import Ports

_LISTING: Final = "subscriptions"
_CREATED: Final = 201
_ALL: Final = "/v1/feeds/subscriptions"
_ONE: Final = f"{_ALL}/{{subscription}}"
_CREATE: Final = f"POST {_ALL}"
_CHECKED: Final = ("outside_coverage", "not_deliverable", "busy", "plan_unavailable")
_CREATE_REFUSALS: Final = (*_CHECKED, "limit_reached", "idempotency_conflict", "idempotency_in_progress")
_CHANGE_REFUSALS: Final = ("not_found", "precondition_failed", *_CHECKED)


class SubscriptionBody(TypedDict):
    """What a subscription names: at least one place or dataset."""

    name: NotRequired[str]
    places: NotRequired[list[str]]
    topics: NotRequired[list[str]]
    datasetIds: NotRequired[list[str]]


class ChangeBody(SubscriptionBody):
    """The fields to replace; `revision` is the one that the subscription was read with, unless If-Match says it."""

    revision: NotRequired[int]


class Deleted(TypedDict):
    """The answer to a delete."""

    deleted: Literal[True]


def subscription_routes(context: Context) -> APIRouter:
    """Declare the routes."""
    routes = Routes(context, "Subscriptions")
    _declare_create(routes, context.ports)
    _declare_reads(routes, context.ports)
    _declare_changes(routes, context.ports)
    return routes.router


def _declare_create(routes: Routes, ports: Ports) -> None:
    in_progress = InProgress()

    def create(request: Request, content: Annotated[bytes, Depends(read_body)]) -> Response:
        """Create a subscription; its datasets join at once. With an Idempotency-Key, once however often it is sent."""
        caller = caller_of(request)
        require_admin(caller)
        key = read_idempotency_key(request.headers.getlist(HEADER))
        sent = parse_body(content)
        if key is None:
            return _created(create_subscription(ports, caller.workspace, read_selection(sent)))
        once = Once(_CREATE, key, hash_of_body(sent), _CREATED, _answer_text)
        with in_progress.serving(caller.workspace.id, once.route, key):
            return _create_once(ports, caller.workspace, sent, once)

    created = answers(resources.Subscription, *_CREATE_REFUSALS, status=_CREATED)
    described = body(SubscriptionBody) | header_parameter(HEADER, "The same for every repeat of this create.")
    routes.add("POST", _ALL, create, created, status=_CREATED, body=described, strict=True)


def _declare_reads(routes: Routes, ports: Ports) -> None:
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

    routes.add("GET", _ALL, list_all, answers(resources.SubscriptionPage))
    routes.add("GET", _ONE, get_one, answers(resources.Subscription, "not_found"))


def _declare_changes(routes: Routes, ports: Ports) -> None:
    def change(request: Request, subscription: str, content: Annotated[bytes, Depends(read_body)]) -> Response:
        """Replace the fields that are sent, from the revision that the subscription was read at."""
        caller = caller_of(request)
        require_admin(caller)
        wanted = read_change(parse_body(content))
        tags = read_tags(_joined(request, "if-match")) if wanted.revision is None else None
        require_revision(wanted, tags)
        changed = change_subscription(ports, caller.workspace, subscription, wanted, tags)
        return answer(subscription_shape(changed), headers={"ETag": etag_of(changed)})

    def delete(request: Request, subscription: str) -> Response:
        """Delete a subscription: its events stop, and links for its datasets are signed no longer."""
        caller = caller_of(request)
        require_admin(caller)
        delete_subscription(ports, caller.workspace.id, subscription)
        deleted: Deleted = {"deleted": True}
        return answer(deleted)

    changes = answers(resources.Subscription, *_CHANGE_REFUSALS)
    described = body(ChangeBody) | header_parameter("If-Match", "The ETag that the subscription was read with.")
    routes.add("PATCH", _ONE, change, changes, body=described, strict=True)
    routes.add("DELETE", _ONE, delete, answers(Deleted, "not_found", "busy"))


def _created(subscription: Subscription) -> Response:
    return answer(subscription_shape(subscription), _CREATED, {"ETag": etag_of(subscription)})


def _create_once(ports: Ports, workspace: Workspace, sent: Any, once: Once) -> Response:
    before = earlier_answer(ports, workspace.id, once)
    made = before or create_once(ports, workspace, read_selection(sent), once)
    return replay(made) if isinstance(made, Remembered) else _created(made)


def _answer_text(subscription: Subscription) -> str:
    return msgspec.json.encode(subscription_shape(subscription)).decode()


def _joined(request: Request, header: str) -> str | None:
    """Give a header that may be sent in several lines."""
    values = request.headers.getlist(header)
    return ", ".join(values) if values else None


def _place_in_list(subscription: Subscription) -> list[str | int]:
    return [subscription.created_at.isoformat(), subscription.id]
