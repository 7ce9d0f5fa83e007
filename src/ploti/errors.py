"""What can go wrong, grouped by what the caller does next.

`RetryLater` try again; `Reload` load from a current version or a manifest; `ReadAgain` read, then send the change anew;
`FixRequest` change the call; `NotAllowed` another key or permission; `NotFound` no such thing; `NotDelivered` the
dataset is not (or no longer) delivered; `LinkExpired` ask for a fresh link; `BadAnswer` the answer makes no sense;
`BadSignature` do not trust a webhook's delivery.
"""

from collections.abc import Mapping
from typing import Final


class PlotiError(Exception):
    """Anything that the SDK raises; `message` says what to do next.

    `code` is the API's error code, or the SDK's own `no_answer`, `bad_answer`, `link_expired` or `bad_signature`;
    `status` is the HTTP status, None where nothing came back; `field` names the part of the request that was refused.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int | None = None,
        request_id: str | None = None,
        field: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.status = message, code, status
        self.request_id, self.field, self.retry_after = request_id, field, retry_after

    def __str__(self) -> str:
        """Give one line: the message, then the code and the request's id where there is one."""
        told = self.code if self.request_id is None else f"{self.code}, request {self.request_id}"
        return f"{self.message} ({told})"


class RetryLater(PlotiError):
    """Nothing is wrong with the call: try again, after `retry_after` seconds where it is set."""


class NoAnswer(RetryLater):
    """No whole answer came back: the network, a time-out, or a server that is not there."""


class Reload(PlotiError):
    """What was asked for is past retention or was replaced: load the current version, or the manifest."""


class ReadAgain(PlotiError):
    """Somebody changed it in between: read it again, then send the change anew."""


class FixRequest(PlotiError):
    """The call as it stands will never do: change it."""


class NotAllowed(PlotiError):
    """The key is missing, revoked, or may not do this."""


class NotFound(PlotiError):
    """There is no such thing, or not for this workspace."""


class NotDelivered(PlotiError):
    """The dataset is outside the coverage, the plan or the subscriptions."""


class LinkExpired(PlotiError):
    """A signed link no longer answers: ask for a fresh one."""


class BadAnswer(PlotiError):
    """The answer is not one that the API gives: check the address, or report it."""


class BadSignature(PlotiError):
    """A webhook's delivery is not signed with the secret, or too old: refuse it."""


ERROR_KINDS: Final[Mapping[str, type[PlotiError]]] = {
    "invalid_input": FixRequest,
    "unauthenticated": NotAllowed,
    "not_allowed": NotAllowed,
    "not_found": NotFound,
    "method_not_allowed": FixRequest,
    "busy": RetryLater,
    "idempotency_conflict": FixRequest,
    "idempotency_in_progress": RetryLater,
    "limit_reached": FixRequest,
    "not_deliverable": NotDelivered,
    "not_subscribed": NotDelivered,
    "outside_coverage": NotDelivered,
    "expired": Reload,
    "precondition_failed": ReadAgain,
    "range_not_satisfiable": FixRequest,
    "rate_limited": RetryLater,
    "internal_error": RetryLater,
    "plan_unavailable": RetryLater,
}
"""The exception of each code of the API; the code decides, for several share a status."""

_BY_STATUS: Final[Mapping[int, type[PlotiError]]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    408: RetryLater,
    410: Reload,
    412: ReadAgain,
    429: RetryLater,
}


def error_kind(code: str | None, status: int) -> type[PlotiError]:
    """Choose the exception of a refusal: by its code, or by status where the code is unknown or missing."""
    if code is not None and code in ERROR_KINDS:
        return ERROR_KINDS[code]
    if status >= 500:
        return RetryLater
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return FixRequest if 400 <= status < 500 else BadAnswer
