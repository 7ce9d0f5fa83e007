"""Puts the API together: routes, the one shape of refusals, and its description at `/openapi.json`."""

from collections.abc import Callable
from importlib.metadata import version

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ploti_server.adapters.links import LinkSigner
from ploti_server.api.answers import refusal
from ploti_server.api.attachments import attachment_routes
from ploti_server.api.datasets import dataset_routes
from ploti_server.api.deliveries import delivery_routes
from ploti_server.api.description import Api
from ploti_server.api.direct import answer_to
from ploti_server.api.dispatch import Dispatched
from ploti_server.api.events import event_routes
from ploti_server.api.files import file_routes
from ploti_server.api.links import Context
from ploti_server.api.manifests import manifest_routes
from ploti_server.api.metrics import Metrics
from ploti_server.api.operating import operating_routes
from ploti_server.api.places import place_routes
from ploti_server.api.preview import preview_routes
from ploti_server.api.records import record_routes
from ploti_server.api.schemas import schema_routes
from ploti_server.api.subscriptions import subscription_routes
from ploti_server.api.versions import version_routes
from ploti_server.api.watch import Watch
from ploti_server.api.webhooks import webhook_routes
from ploti_server.domain.access import Refused
from ploti_server.domain.settings import Settings
from ploti_server.ports import Ports

ROUTES: tuple[Callable[[Context], APIRouter], ...] = (
    place_routes,
    dataset_routes,
    version_routes,
    attachment_routes,
    record_routes,
    schema_routes,
    preview_routes,
    subscription_routes,
    manifest_routes,
    event_routes,
    webhook_routes,
    delivery_routes,
    file_routes,
)
"""One line for each subject of the API."""


def make_api(ports: Ports, settings: Settings, signer: LinkSigner) -> FastAPI:
    """Make the API over a publisher's ports."""
    context = Context(ports, settings, signer, Watch(ports.store))
    metrics = Metrics()
    api = Api(
        metrics,
        title="Ploti Data Feeds",
        version=version("ploti"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            HTTPException: _no_route,
            Exception: _failed,
        },
    )
    routers = [*(routes(context) for routes in ROUTES), operating_routes(context, metrics)]
    for router in routers:
        api.include_router(router)
    api.state.watch = context.watch
    api.state.routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    api.serve([route for route in api.state.routes if isinstance(route, Dispatched)])
    return api


async def _no_route(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 405:
        message = f"{request.method} is not possible here: see /openapi.json for what is."
        return refusal(Refused("method_not_allowed", message), {"Allow": _allowed(request)})
    if error.status_code == 404:
        return refusal(Refused("not_found", "There is nothing at this address: see /openapi.json for what there is."))
    return refusal(Refused("invalid_input", "This request cannot be understood: see /openapi.json."))


def _allowed(request: Request) -> str:
    """List the methods that an address takes, over every route that it matches."""
    routes: list[Route] = request.app.state.routes
    allowed = set().union(*(route.methods or () for route in routes if route.path_regex.match(request.scope["path"])))
    return ", ".join(sorted(allowed | {"HEAD"} if "GET" in allowed else allowed))


async def _failed(_: Request, error: Exception) -> Response:
    return answer_to(error)
