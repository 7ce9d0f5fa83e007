"""How a route is declared: its checks come first, its answer and refusals are documented, it answers bytes."""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Depends
from starlette.requests import Request

from ploti_server.api.links import Context
from ploti_server.api.queries import Caller, identify, require_known_parameters, require_permission

FEEDS = "feeds"


def caller_of(request: Request) -> Caller:
    """Give who asks, as the route's checks found."""
    caller: Caller = request.state.caller
    return caller


class Routes:
    """The routes of one subject; each asks for a key, then for its permission, then looks at the parameters."""

    def __init__(self, context: Context, tag: str, permission: str | None = FEEDS) -> None:
        def check(request: Request) -> None:
            request.state.caller = identify(context.ports, request)
            if permission is not None:
                require_permission(request.state.caller, permission)
            require_known_parameters(request)

        self.router = APIRouter(tags=[tag], dependencies=[Depends(check)])

    def add(
        self,
        method: str,
        paths: str | Sequence[str],
        handler: Callable[..., Any],
        responses: dict[int | str, dict[str, Any]],
        *,
        status: int = 200,
        body: dict[str, Any] | None = None,
    ) -> None:
        """Declare a handler under one path or several; the first is the current one, the others older."""
        listed = [paths] if isinstance(paths, str) else list(paths)
        for place, path in enumerate(listed):
            self.router.add_api_route(
                path,
                handler,
                methods=[method],
                responses=responses,
                response_model=None,
                status_code=status,
                openapi_extra=body,
                operation_id=f"{handler.__name__}{'_older' if place else ''}",
                deprecated=bool(place) or None,
                summary=(handler.__doc__ or "").strip().partition("\n")[0],
            )
