"""Repeating a create safely: what is kept of an Idempotency-Key's first answer, and when it is given again (D8.2)."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from ploti_server.domain.access import Refused

HEADER: Final = "Idempotency-Key"
KEPT: Final = timedelta(days=1)
_LONGEST: Final = 255


@dataclass(frozen=True)
class Remembered:
    """The first answer to a key of a workspace on one route; `answer` is its JSON text."""

    workspace_id: str
    route: str
    key: str
    body_hash: str
    status: int
    answer: str
    created_at: datetime


def read_idempotency_key(values: Sequence[str]) -> str | None:
    """Read the header's values; raises `Refused` for more than one, an empty or a too long one."""
    if not values:
        return None
    key = values[0]
    if len(values) > 1 or not 0 < len(key) <= _LONGEST or not key.isascii() or not key.isprintable():
        message = f"Send one {HEADER} of 1 to {_LONGEST} printable ASCII characters."
        raise Refused("invalid_input", message, HEADER)
    return key


def hash_of_body(body: Any) -> str:
    """Give a checksum that is the same for the same JSON, however its members are ordered and spaced."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def answer_again(remembered: Remembered | None, body_hash: str, now: datetime) -> Remembered | None:
    """Give the answer to repeat, None where the key is new or older than a day; raises `Refused` for another body."""
    if remembered is None or remembered.created_at + KEPT <= now:
        return None
    if remembered.body_hash != body_hash:
        message = f"This {HEADER} was sent with another body before: use a new one for this request."
        raise Refused("idempotency_conflict", message, HEADER)
    return remembered


def in_progress() -> Refused:
    """Say that the first request with a key has not been answered yet."""
    message = f"The first request with this {HEADER} is still being served: send this one again in a moment."
    return Refused("idempotency_in_progress", message, HEADER)
