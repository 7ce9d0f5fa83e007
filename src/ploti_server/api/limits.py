"""Counts each authenticated call of a key and refuses those beyond its limits (D8.5)."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request

from ploti_server.api.links import Context
from ploti_server.domain.access import Refused
from ploti_server.domain.limits import EVERY_CALL, STRICT, Allowance, Limit, allowance_of

_HEADERS = "limit_headers"


class CallCounter:
    """Counts the calls of a route: each in the limit of every call, those of a strict one in the stricter limit too."""

    def __init__(self, context: Context, *, strict: bool) -> None:
        self._ports = context.ports
        every = Limit(EVERY_CALL, context.settings.requests_per_minute)
        self._limits = (every, Limit(STRICT, context.settings.strict_requests_per_minute)) if strict else (every,)
        self._names = tuple(limit.name for limit in self._limits)

    def count(self, request: Request, key_id: str) -> None:
        """Count a call of a key; raises `Refused` `rate_limited`. What is left goes with any answer."""
        now = self._ports.clock.now()
        allowance = allowance_of(self._limits, self._ports.store.count_calls(key_id, self._names, now))
        headers = allowance.headers(now)
        sent = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        request.scope["state"][_HEADERS] = sent
        if allowance.exceeded:
            raise Refused("rate_limited", _message(allowance, headers["Retry-After"]))


def limit_headers(state: Mapping[str, Any]) -> Sequence[tuple[bytes, bytes]]:
    """Give the headers about limits that belong to a request's answer, none where no key was found."""
    found: Sequence[tuple[bytes, bytes]] = state.get(_HEADERS, ())
    return found


def _message(allowance: Allowance, seconds: str) -> str:
    beyond = {one.name for one in allowance.exceeded}
    limit = next(limit for limit in allowance.limits if limit.name in beyond)
    kind = "calls that search widely or start work" if limit.name == STRICT else "calls"
    return f"This key has made its {limit.most} {kind} of this minute: wait {seconds} seconds."
