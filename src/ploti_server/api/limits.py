"""Counts each authenticated call of a key and refuses those beyond its limits (D8.5)."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from ploti_server.api.links import Context
from ploti_server.domain.access import Refused
from ploti_server.domain.limits import EVERY_CALL, STRICT, Allowance, Limit, allowance_of

_HEADERS = "limit_headers"


def count_call(context: Context, request: Request, key_id: str, *, strict: bool) -> None:
    """Count a call of a key, in the stricter limit too where asked; raises `Refused` `rate_limited`.

    What is left goes with the answer, whatever it will be.
    """
    limits = [Limit(EVERY_CALL, context.settings.requests_per_minute)]
    if strict:
        limits.append(Limit(STRICT, context.settings.strict_requests_per_minute))
    now = context.ports.clock.now()
    counted = context.ports.store.count_calls(key_id, [limit.name for limit in limits], now)
    allowance = allowance_of(limits, counted)
    headers = allowance.headers(now)
    setattr(request.state, _HEADERS, headers)
    if allowance.exceeded:
        raise Refused("rate_limited", _message(allowance, headers["Retry-After"]))


def limit_headers(state: Mapping[str, Any]) -> Mapping[str, str]:
    """Give the headers about limits that belong to a request's answer, none where no key was found."""
    found: Mapping[str, str] = state.get(_HEADERS, {})
    return found


def _message(allowance: Allowance, seconds: str) -> str:
    beyond = {one.name for one in allowance.exceeded}
    limit = next(limit for limit in allowance.limits if limit.name in beyond)
    kind = "calls that search widely or start work" if limit.name == STRICT else "calls"
    return f"This key has made its {limit.most} {kind} of this minute: wait {seconds} seconds."
