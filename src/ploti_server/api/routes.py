"""How a route is declared: its checks come first, its answer and refusals are documented, it answers bytes.

A call with a key is counted whatever becomes of it (D8.5).
"""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Depends
from starlette.requests import Request

from ploti_server.api.dispatch import Dispatched
from ploti_server.api.limits import CallCounter
from ploti_server.api.links import Context
from ploti_server.api.queries import (
    CALLER,
    Caller,
    identify,
    require_known_parameters,
    require_permission,
    require_plain_text,
)

FEEDS = "feeds"


def caller_of(request: Request) -> Caller:
    """Give who asks, as the route's checks found."""
    caller: Caller = request.scope["state"][CALLER]
    return caller


class Routes:
    """The routes of one subject; each asks for a key, counts it, asks for its permission, looks at the parameters."""

    def __init__(self, context: Context, tag: str, permission: str | None = FEEDS) -> None:
        self._context, self._permission = context, permission
        self.router = APIRouter(tags=[tag], route_class=Dispatched)

    def _check(self, strict: bool) -> Callable[[Request], None]:
        calls = CallCounter(self._context, strict=strict)

        def check(request: Request) -> None:
            caller = request.scope["state"][CALLER] = identify(self._context.ports, request)
            calls.count(request, caller.key_id)
            if self._permission is not None:
                require_permission(caller, self._permission)
            require_known_parameters(request)
            require_plain_text(request)

        return check

    def add(
        self,
        method: str,
        paths: str | Sequence[str],
        handler: Callable[..., Any],
        responses: dict[int | str, dict[str, Any]],
        *,
        status: int = 200,
        body: dict[str, Any] | None = None,
        strict: bool = False,
        quick: bool = False,
    ) -> None:
        """Declare a handler under one path or several; the first is the current one, the others older.

        A `strict` one counts toward the stricter limit too. A `quick` one does a few short reads: where the store
        answers those at once, no thread is used for it.
        """
        listed = [paths] if isinstance(paths, str) else list(paths)
        for place, path in enumerate(listed):
            self.router.add_api_route(
                path,
                handler,
                methods=[method],
                dependencies=[Depends(self._check(strict))],
                responses=responses,
                response_model=None,
                status_code=status,
                openapi_extra=body,
                operation_id=f"{handler.__name__}{'_older' if place else ''}",
                deprecated=bool(place) or None,
                summary=(handler.__doc__ or "").strip().partition("\n")[0],
            )
            route = self.router.routes[-1]
            if isinstance(route, Dispatched):
                route.quick = quick and self._context.ports.store.answers_at_once
