"""Cursors of lists: opaque, and bound to the list and filters that they came from (D8.3)."""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ploti_server.domain.access import Refused

_BOUND: Final = 12


def _binding(listing: str, filters: Mapping[str, Any]) -> str:
    named = sorted((name, value) for name, value in filters.items() if value is not None)
    return hashlib.sha256(msgspec.json.encode([listing, named])).hexdigest()[:_BOUND]


def give_cursor(listing: str, filters: Mapping[str, Any], after: list[str | int]) -> str:
    """Make the cursor of the page that follows `after`."""
    content = msgspec.json.encode([_binding(listing, filters), *after])
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def read_cursor(listing: str, filters: Mapping[str, Any], cursor: str, kinds: tuple[type, ...]) -> list[Any]:
    """Read what a page follows; raises `Refused` `invalid_input` for a cursor that this list never gave."""
    try:
        content = msgspec.json.decode(base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise unusable_cursor() from None
    if not isinstance(content, list) or len(content) != len(kinds) + 1 or content[0] != _binding(listing, filters):
        raise unusable_cursor()
    after: list[Any] = content[1:]
    if any(type(value) is not kind for value, kind in zip(after, kinds, strict=True)):
        raise unusable_cursor()
    return after


def unusable_cursor() -> Refused:
    """Refuse a cursor."""
    message = "This cursor does not belong to this list and these filters: start again without a cursor."
    return Refused("invalid_input", message, "cursor")
