"""How a request is served: its checks, parameters, handler and compression in one turn of a worker thread.

What it waits for, its body or events that are yet to come, is waited for without a thread.
"""

import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ploti_server.api.answers import compressed
from ploti_server.api.queries import parameters_of, read_body
from ploti_server.api.watch import Watch

WAITED = "waited"
"""Name of the seconds that a request has waited, in its state."""


Serve = Callable[[Request], Coroutine[Any, Any, Response]]


@dataclass(frozen=True)
class Waiting:
    """An answer that has nothing in it yet: `look` again once a log has an event after `number`, or in the end."""

    watch: Watch
    subscription_id: str
    number: int
    seconds: float
    look: "Callable[[float], Response | Waiting]"
    """Given the seconds that are left to wait; with none it answers."""


class Dispatched(APIRoute):
    """A route whose handlers are plain functions; each dependency is a function of the request.

    A `quick` one is served on the event loop itself: a turn of a thread would cost more than its work.
    """

    quick = False

    def get_route_handler(self) -> Serve:
        """Give what serves a request."""
        checks = [needed.call for needed in self.dependant.dependencies if needed.call not in (None, read_body)]
        body_name = next((one.name for one in self.dependant.dependencies if one.call is read_body), None)

        def check(request: Request) -> None:
            for each in checks:
                each(request)

        def handle(request: Request, sent: dict[str, Any]) -> Response | Waiting:
            return _finish(request, self.endpoint(**self._arguments(request), **sent))

        def check_and_handle(request: Request) -> Response | Waiting:
            check(request)
            return handle(request, {})

        async def serve(request: Request) -> Response:
            if self.quick:
                answer = check_and_handle(request)
                return answer if isinstance(answer, Response) else await _answer(request, answer)
            if body_name is not None:
                await run_in_threadpool(check, request)
                return await _answer(
                    request, await run_in_threadpool(handle, request, {body_name: await read_body(request)})
                )
            return await _answer(request, await run_in_threadpool(check_and_handle, request))

        return serve

    @cached_property
    def known(self) -> frozenset[str]:
        """The query parameters that the route takes."""
        return frozenset(field.alias for field in self.dependant.query_params)

    @cached_property
    def _fields(self) -> tuple[tuple[str, str, str, Any], ...]:
        """Place, name on the wire, name in the handler and field of each parameter."""
        placed = (("path", self.dependant.path_params), ("query", self.dependant.query_params))
        return tuple((place, one.alias, one.name, one) for place, fields in placed for one in fields)

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        """What parameters are that are not sent; all are plain values, which nobody can change."""
        return {field.name: field.get_default() for field in self.dependant.query_params}

    def _arguments(self, request: Request) -> dict[str, Any]:
        """Read the parameters; raises `RequestValidationError`."""
        values = self._defaults.copy()
        wrong: list[Any] = []
        sent = {"path": request.scope["path_params"], "query": dict(parameters_of(request))}
        for place, alias, name, field in self._fields:
            if alias in sent[place]:
                values[name], errors = field.validate(sent[place][alias], values, loc=(place, alias))
                wrong += errors
        if wrong:
            raise RequestValidationError(wrong)
        if self.dependant.request_param_name:
            values[self.dependant.request_param_name] = request
        return values


def _finish(request: Request, answer: Response | Waiting) -> Response | Waiting:
    return answer if isinstance(answer, Waiting) else compressed(answer, request)


async def _answer(request: Request, answer: Response | Waiting) -> Response:
    """Give an answer, once it has something in it or its time is over; the waiting itself is noted."""
    while isinstance(answer, Waiting):
        began = time.monotonic()
        await answer.watch.newer(answer.subscription_id, answer.number, answer.seconds)
        waited = time.monotonic() - began
        setattr(request.state, WAITED, getattr(request.state, WAITED, 0.0) + waited)
        left = 0.0 if answer.watch.is_stopped else max(answer.seconds - waited, 0.0)
        answer = await run_in_threadpool(_look, request, answer, left)
    return answer


def _look(request: Request, waiting: Waiting, left: float) -> Response | Waiting:
    return _finish(request, waiting.look(left))
