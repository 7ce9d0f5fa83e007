"""Error codes of the API and the HTTP status of each (D1.5)."""

from typing import Final, NotRequired

from ploti.contract._typed import TypedDict

ERROR_STATUS: Final[dict[str, int]] = {
    "invalid_input": 400,
    "unauthenticated": 401,
    "not_allowed": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "busy": 409,
    "idempotency_conflict": 409,
    "idempotency_in_progress": 409,
    "limit_reached": 409,
    "not_deliverable": 409,
    "not_subscribed": 409,
    "outside_coverage": 409,
    "expired": 410,
    "precondition_failed": 412,
    "range_not_satisfiable": 416,
    "rate_limited": 429,
    "internal_error": 500,
    "plan_unavailable": 503,
}


class ErrorDetail(TypedDict):
    """What went wrong; `message` says what to do next."""

    code: str
    message: str
    field: NotRequired[str]


class ErrorBody(TypedDict):
    """Body of every refusal."""

    error: ErrorDetail
