"""A workspace's webhooks: create, list, read, delete, test, rotate (page 003, D9.3, D9.4)."""

from typing import Annotated, Final

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import webhooks as wire
from ploti_server.api.answers import answer, read_answer
from ploti_server.api.documented import answers, body
from ploti_server.api.links import Context
from ploti_server.api.pages import give_cursor, read_cursor
from ploti_server.api.queries import Caller, Cursor, Limit200, parse_body, read_body, require_permission
from ploti_server.api.routes import FEEDS, Routes, caller_of
from ploti_server.api.subscriptions import Deleted
from ploti_server.domain.webhooks import Webhook, read_webhook
from ploti_server.domain.wire import wire_time
from ploti_server.pipeline.deliver import hooks_of
from ploti_server.pipeline.webhooks import (
    create_webhook,
    delete_webhook,
    no_webhook,
    owned_webhook,
    rotate_secret,
    test_webhook,
)
from ploti_server.ports import Ports

PERMISSION: Final = "webhooks"
_LISTING: Final = "webhooks"
_ALL: Final = "/v1/webhooks"
_ONE: Final = f"{_ALL}/{{webhook}}"


def webhook_routes(context: Context) -> APIRouter:
    """Declare the routes; each needs the permission for webhooks."""
    routes = Routes(context, "Webhooks", PERMISSION)
    _declare_create(routes, context.ports)
    _declare_reads(routes, context.ports)
    _declare_changes(routes, context.ports)
    return routes.router


def _declare_create(routes: Routes, ports: Ports) -> None:
    def create_hook(request: Request, content: Annotated[bytes, Depends(read_body)]) -> Response:
        """Create a webhook for a subscription's events; its secret is shown this once."""
        caller = caller_of(request)
        require_permission(caller, FEEDS)
        wanted = read_webhook(parse_body(content), hooks_of(ports).allow_loopback)
        made = create_webhook(ports, caller.workspace.id, caller.member, wanted)
        created: wire.NewWebhook = {**webhook_shape(made.webhook), "secret": made.text}
        return answer(created, 201)

    made = answers(wire.NewWebhook, "not_found", "busy", "limit_reached", status=201)
    routes.add("POST", _ALL, create_hook, made, status=201, body=body(wire.WebhookCreate))


def _declare_reads(routes: Routes, ports: Ports) -> None:
    def list_hooks(request: Request, limit: Limit200 = 100, cursor: Cursor = None) -> Response:
        """List the workspace's webhooks, oldest first; none for a key without the `feeds` permission."""
        caller = caller_of(request)
        bound = {"workspace": caller.workspace.id}
        with ports.store.read() as records:
            found = records.webhooks.of_workspace(caller.workspace.id) if FEEDS in caller.permissions else ()
        if cursor is not None:
            last = read_cursor(_LISTING, bound, cursor, (str, str))
            found = tuple(one for one in found if _place_in_list(one) > last)
        more = len(found) > limit
        page: wire.WebhookPage = {
            "webhooks": [webhook_shape(one) for one in found[:limit]],
            "nextCursor": give_cursor(_LISTING, bound, _place_in_list(found[limit - 1])) if more else None,
        }
        return read_answer(request, page)

    def get_hook(request: Request, webhook: str) -> Response:
        """Read one webhook."""
        workspace_id = workspace_of(caller_of(request), webhook)
        with ports.store.read() as records:
            found = owned_webhook(records, workspace_id, webhook)
        return read_answer(request, webhook_shape(found))

    routes.add("GET", _ALL, list_hooks, answers(wire.WebhookPage))
    routes.add("GET", _ONE, get_hook, answers(wire.Webhook, "not_found"))


def _declare_changes(routes: Routes, ports: Ports) -> None:
    def delete_hook(request: Request, webhook: str) -> Response:
        """Delete a webhook: nothing is sent to it any more."""
        delete_webhook(ports, workspace_of(caller_of(request), webhook), webhook)
        deleted: Deleted = {"deleted": True}
        return answer(deleted)

    def test_hook(request: Request, webhook: str) -> Response:
        """Send one signed ping now and tell what came back."""
        came = test_webhook(ports, workspace_of(caller_of(request), webhook), webhook)
        told: wire.WebhookTest = {"delivered": came.is_success, "status": came.status, "problem": came.problem}
        return answer(told)

    def rotate(request: Request, webhook: str) -> Response:
        """Make a new secret, shown this once; the one before it signs too for a day."""
        made = rotate_secret(ports, workspace_of(caller_of(request), webhook), webhook)
        until = made.webhook.secrets[1].until
        if until is None:
            raise ValueError(f"the old secret of {webhook} has no end")
        told: wire.WebhookSecret = {"id": webhook, "secret": made.text, "previousUntil": wire_time(until)}
        return answer(told)

    routes.add("DELETE", _ONE, delete_hook, answers(Deleted, "not_found"))
    routes.add("POST", f"{_ONE}/test", test_hook, answers(wire.WebhookTest, "not_found"), strict=True)
    routes.add("POST", f"{_ONE}/rotate", rotate, answers(wire.WebhookSecret, "not_found"))


def workspace_of(caller: Caller, webhook_id: str) -> str:
    """Give the caller's workspace; a key without the `feeds` permission sees no webhook (D9.3)."""
    if FEEDS not in caller.permissions:
        raise no_webhook(webhook_id)
    return caller.workspace.id


def _place_in_list(webhook: Webhook) -> list[str | int]:
    return [webhook.created_at.isoformat(), webhook.id]


def webhook_shape(webhook: Webhook) -> wire.Webhook:
    """Shape a webhook; its secret is not in it."""
    return {
        "id": webhook.id,
        "url": webhook.url,
        "subscriptionId": webhook.subscription_id,
        "events": None if webhook.types is None else list(webhook.types),
        "member": webhook.member,
        "status": "on" if webhook.off_at is None else "off",
        "offReason": webhook.off_reason,
        "offAt": wire_time(webhook.off_at) if webhook.off_at else None,
        "failingSince": wire_time(webhook.failing_since) if webhook.failing_since else None,
        "createdAt": wire_time(webhook.created_at),
    }
