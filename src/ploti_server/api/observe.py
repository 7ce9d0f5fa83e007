"""Around every request: its id, the headers about limits, the access log and the metrics.

The log has neither queries nor headers nor bodies, so that no key, signature or secret gets into it.
"""

import logging
import re
import secrets
import time
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ploti_server.api.dispatch import WAITED
from ploti_server.api.files import SENT
from ploti_server.api.limits import limit_headers
from ploti_server.api.metrics import Metrics
from ploti_server.api.queries import CALLER

LOG: Final = logging.getLogger("ploti_server.access")
_REQUEST_ID: Final = b"x-request-id"
_GIVEN: Final = re.compile(rb"[A-Za-z0-9._:-]{1,100}")
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})


class _Answer:
    """Sends an answer with the headers that every answer has, and knows of it what is noted."""

    __slots__ = ("_send", "_state", "size", "started", "status")

    def __init__(self, send: Send, state: dict[str, Any]) -> None:
        self._send, self._state = send, state
        self.status, self.size = 500, 0
        self.started = time.perf_counter()

    async def send(self, message: Message) -> None:
        """Send the next part."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = ((_REQUEST_ID, self._state["request_id"].encode()), *limit_headers(self._state))
            message["headers"] = [*message.get("headers", ()), *own]
        else:
            self.size += len(message.get("body", b"")) + message.get(SENT, 0)
        await self._send(message)


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
        state["request_id"] = _request_id(scope)
        answer = _Answer(send, state)
        self._metrics.begin()
        try:
            await self._app(scope, receive, answer.send)
        except Exception:  # of any kind: it is logged with the request's id and raised again
            LOG.exception("a request failed", extra={"fields": _named(scope, state)})
            raise
        finally:
            self._note(scope, state, answer)

    def _note(self, scope: Scope, state: dict[str, Any], answer: _Answer) -> None:
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        waited = state.get(WAITED, 0.0)
        seconds = max(time.perf_counter() - answer.started - waited, 0.0)
        self._metrics.end(method, route, answer.status, seconds)
        if scope["path"] in _QUIET and answer.status < 400:
            return
        if LOG.isEnabledFor(logging.INFO):
            told = {"status": answer.status, "ms": round(seconds * 1000, 1), "bytes": answer.size}
            if waited:
                told["waitedMs"] = round(waited * 1000)
            LOG.info("request", extra={"fields": _named(scope, state) | told})


def _request_id(scope: Scope) -> str:
    """Take the id that the caller or a proxy gave, where it is a plain one, else make one."""
    for name, value in scope["headers"]:
        if name == _REQUEST_ID and _GIVEN.fullmatch(value):
            return str(value.decode("ascii"))
    return f"req_{secrets.token_hex(8)}"


def _named(scope: Scope, state: dict[str, Any]) -> dict[str, Any]:
    """Name a request and who made it, by ids alone."""
    caller = state.get(CALLER)
    who = {} if caller is None else {"workspace": caller.workspace.id, "member": caller.member, "key": caller.key_id}
    return {"requestId": state["request_id"], "method": scope["method"], "path": scope["path"], **who}
