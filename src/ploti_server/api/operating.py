"""For whoever operates the server: `/healthz`, `/readyz` and `/metrics`. They need no key and show no one's data."""

import logging
from typing import Final

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from ploti_server.api.links import Context
from ploti_server.api.metrics import TEXT_TYPE, Metrics
from ploti_server.domain.versions import VersionStatus

LOG: Final = logging.getLogger(__name__)
_NOT_STORED: Final = {"Cache-Control": "no-store"}


def operating_routes(context: Context, metrics: Metrics) -> APIRouter:
    """Declare the routes; they stand outside the API's description."""
    router = APIRouter(include_in_schema=False)

    def health() -> Response:
        """Tell that the process answers."""
        return JSONResponse({"status": "ok"}, headers=_NOT_STORED)

    def ready() -> Response:
        """Tell whether the store answers, so that requests can be served."""
        try:
            with context.ports.store.read() as records:
                records.catalog.topics()
        except Exception:  # whatever keeps the store from answering means not ready
            LOG.exception("the store does not answer")
            return JSONResponse({"status": "unavailable"}, 503, _NOT_STORED)
        return JSONResponse({"status": "ready"}, headers=_NOT_STORED)

    def show_metrics() -> Response:
        """Give counts of requests and what waits, in Prometheus's text format."""
        with context.ports.store.read() as records:
            held = len(records.versions.in_status(None, [VersionStatus.HELD]))
            leased = len(records.checks.leased())
            backlog = records.deliveries.backlog(context.ports.clock.now())
        gauges = {
            "ploti_versions_held": ("Versions that wait for a person.", held),
            "ploti_checks_leased": ("Checks that a worker has taken.", leased),
            "ploti_deliveries_waiting": ("Deliveries that wait to be sent or tried again.", backlog.waiting),
            "ploti_deliveries_due": ("Deliveries that should have been sent by now.", backlog.due),
            "ploti_webhooks_failing": ("Webhooks whose last delivery failed.", backlog.failing_webhooks),
            "ploti_webhooks_off": ("Webhooks that were turned off.", backlog.webhooks_off),
        }
        return Response(metrics.text(gauges), headers=_NOT_STORED, media_type=TEXT_TYPE)

    for path, handler in (("/healthz", health), ("/readyz", ready), ("/metrics", show_metrics)):
        router.add_api_route(path, handler, methods=["GET"], response_model=None)
        router.add_api_route(path, handler, methods=["HEAD"], response_model=None, include_in_schema=False)
    return router
