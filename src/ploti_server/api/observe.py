"""Around every request: its id, the headers about limits, the access log and the metrics.

The log has neither queries nor headers nor bodies, so that no key, signature or secret gets into it.
"""

import logging
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ploti_server.api.dispatch import WAITED
from ploti_server.api.limits import limit_headers
from ploti_server.api.metrics import Metrics

LOG: Final = logging.getLogger("ploti_server.access")
REQUEST_ID: Final = "X-Request-Id"
_GIVEN: Final = re.compile(rb"[A-Za-z0-9._:-]{1,100}")
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})


@dataclass
class _Answered:
    """What is known of an answer once it is sent."""

    status: int = 500
    size: int = 0
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started


class Observed:
    """Wraps the whole application, the answer to its own faults too."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        request_id = state["request_id"] = _request_id(scope)
        answered = _Answered()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered.status = message["status"]
                own = {REQUEST_ID: request_id, **limit_headers(state)}
                message["headers"] = [
                    *message.get("headers", ()),
                    *((name.lower().encode(), value.encode()) for name, value in own.items()),
                ]
            elif message["type"] == "http.response.body":
                answered.size += len(message.get("body", b""))
            await send(message)

        with self._metrics.in_flight():
            try:
                await self._app(scope, receive, answer)
            except Exception:
                LOG.exception("a request failed", extra={"fields": _named(scope, state)})
                raise
            finally:
                self._note(scope, state, answered)

    def _note(self, scope: Scope, state: dict[str, Any], answered: _Answered) -> None:
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        waited = state.get(WAITED, 0.0)
        seconds = max(answered.seconds - waited, 0.0)
        self._metrics.note(method, route, answered.status, seconds)
        if scope["path"] in _QUIET and answered.status < 400:
            return
        if LOG.isEnabledFor(logging.INFO):
            told = {"status": answered.status, "ms": round(seconds * 1000, 1), "bytes": answered.size}
            if waited:
                told["waitedMs"] = round(waited * 1000)
            LOG.info("request", extra={"fields": _named(scope, state) | told})


def _request_id(scope: Scope) -> str:
    """Take the id that the caller or a proxy gave, where it is a plain one, else make one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _GIVEN.fullmatch(value):
            return str(value.decode("ascii"))
    return f"req_{secrets.token_hex(8)}"


def _named(scope: Scope, state: dict[str, Any]) -> dict[str, Any]:
    """Name a request and who made it, by ids alone."""
    caller = state.get("caller")
    who = {} if caller is None else {"workspace": caller.workspace.id, "member": caller.member, "key": caller.key_id}
    return {"requestId": state["request_id"], "method": scope["method"], "path": scope["path"], **who}
