"""Serves the API's own routes before the framework's chain of layers, of which their plain handlers need none."""

import re
from collections.abc import Iterable
from typing import Final

from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ploti_server.api.answers import refusal
from ploti_server.api.dispatch import Dispatched, Serve
from ploti_server.domain.access import Refused

_FAULT: Final = "Something went wrong on the server: try again, and tell the operator if it stays."


class Direct:
    """Takes the requests of `Dispatched` routes and leaves all others to the framework.

    HEAD is answered as GET; the server leaves the body out.
    """

    def __init__(self, framework: ASGIApp, routes: Iterable[Dispatched]) -> None:
        self._framework = framework
        self._served: dict[tuple[str, int], list[tuple[re.Pattern[str], Dispatched, Serve]]] = {}
        for route in routes:
            methods = route.methods or set()
            for method in methods | {"HEAD"} if "GET" in methods else methods:
                place = (method, route.path.count("/"))
                self._served.setdefault(place, []).append((route.path_regex, route, route.get_route_handler()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        serve = self._found(scope)
        if serve is None:
            await self._framework(scope, receive, send)
            return
        try:
            response = await serve(Request(scope, receive, send))
        except (Refused, RequestValidationError) as error:
            response = answer_to(error)
        except Exception as error:  # answered, then raised for the log as the framework does
            await answer_to(error)(scope, receive, send)
            raise
        await response(scope, receive, send)

    def _found(self, scope: Scope) -> Serve | None:
        if scope["type"] != "http" or scope.get("root_path"):
            return None
        path: str = scope["path"]
        for pattern, route, serve in self._served.get((scope["method"], path.count("/")), ()):
            found = pattern.match(path)
            if found is not None:
                scope["route"], scope["path_params"] = route, found.groupdict()
                return serve
        return None


def answer_to(error: Exception) -> Response:
    """Give the answer to a refusal, to parameters that cannot be read, or to a fault of the program."""
    if isinstance(error, Refused):
        return refusal(error)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        name = str(first["loc"][-1])
        wrong = str(first["msg"]).removeprefix("Value error, ")
        return refusal(Refused("invalid_input", f"'{name}': {wrong[:1].lower()}{wrong[1:]}.", name))
    return refusal(Refused("internal_error", _FAULT))
