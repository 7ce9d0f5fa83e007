"""A webhook's deliveries: list them with their last answers, send one again (D9.4)."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract import webhooks as wire
from ploti.contract.events import event_id
from ploti_server.api.answers import answer, read_answer
from ploti_server.api.documented import answers
from ploti_server.api.links import Context
from ploti_server.api.pages import give_cursor, read_cursor
from ploti_server.api.queries import Cursor, Limit200
from ploti_server.api.routes import Routes, caller_of
from ploti_server.api.webhooks import PERMISSION, workspace_of
from ploti_server.domain.deliveries import Delivery
from ploti_server.domain.wire import wire_time
from ploti_server.pipeline.webhooks import owned_webhook, send_again

_LISTING: Final = "deliveries"


def delivery_routes(context: Context) -> APIRouter:
    """Declare the routes; each needs the permission for webhooks."""
    routes = Routes(context, "Webhooks", PERMISSION)
    ports = context.ports

    def list_deliveries(
        request: Request,
        webhook: str,
        *,
        status: Annotated[wire.DeliveryStatus | None, Query(description="Only deliveries in this status.")] = None,
        limit: Limit200 = 100,
        cursor: Cursor = None,
    ) -> Response:
        """List a webhook's deliveries with their last answers, the newest event's first."""
        workspace_id = workspace_of(caller_of(request), webhook)
        bound: dict[str, Any] = {"webhook": webhook, "status": status}
        before = read_cursor(_LISTING, bound, cursor, (int,))[0] if cursor is not None else None
        with ports.store.read() as records:
            owned_webhook(records, workspace_id, webhook)
            found = records.deliveries.of_webhook(webhook, limit + 1, before, status)
        listed = found[:limit]
        page: wire.DeliveryPage = {
            "deliveries": [delivery_shape(one) for one in listed],
            "nextCursor": give_cursor(_LISTING, bound, [listed[-1].number]) if len(found) > limit else None,
        }
        return read_answer(request, page)

    def send_delivery_again(request: Request, webhook: str, delivery: str) -> Response:
        """Send a delivery again, at once and with all its retries; its id stays."""
        queued = send_again(ports, workspace_of(caller_of(request), webhook), webhook, delivery)
        return answer(delivery_shape(queued))

    everything = "/v1/webhooks/{webhook}/deliveries"
    routes.add("GET", everything, list_deliveries, answers(wire.DeliveryPage, "not_found"))
    sent = answers(wire.Delivery, "not_found", "busy")
    routes.add("POST", f"{everything}/{{delivery}}/send", send_delivery_again, sent)
    return routes.router


def delivery_shape(delivery: Delivery) -> wire.Delivery:
    """Shape a delivery with its last answer; a receiver's own words are not in it (F063)."""
    last: wire.LastAttempt | None = None
    if delivery.attempted_at is not None:
        at = wire_time(delivery.attempted_at)
        last = {"at": at, "status": delivery.answer_status, "problem": delivery.answer_problem}
    return {
        "id": delivery.id,
        "webhookId": delivery.webhook_id,
        "eventId": event_id(delivery.number),
        "type": delivery.type,
        "datasetId": delivery.dataset_id,
        "status": delivery.status,
        "endReason": delivery.end_reason,
        "attempts": delivery.attempts,
        "lastAttempt": last,
        "nextAttemptAt": wire_time(delivery.due_at) if delivery.due_at else None,
        "createdAt": wire_time(delivery.created_at),
    }
