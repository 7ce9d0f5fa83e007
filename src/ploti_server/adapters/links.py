"""Signed links to stored files: `/v1/files/<path>?expires=<ms>&filename=<name>&type=<content type>&signature=<hex>`.

The signature is an HMAC-SHA256 over everything before it and the class of the method, GET and HEAD being one (D8.6).
Only the exact text that `sign` gave is taken: another order, spelling or case of it is another link.
"""

import hmac
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from urllib.parse import quote, unquote

from ploti_server.adapters.files_local import segments

PREFIX = "/v1/files/"
_READ_METHODS = ("GET", "HEAD")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_QUERY = re.compile(
    r"expires=(0|[1-9][0-9]{0,13})&filename=([A-Za-z0-9%._~-]+)&type=([A-Za-z0-9%._~-]+)&signature=([0-9a-f]{64})"
)


@dataclass(frozen=True)
class SignedTarget:
    """What a link opens: the stored path, and the headers that the answer carries."""

    path: str
    filename: str
    content_type: str
    expires_at: datetime


class LinkSigner:
    """Signs and verifies links with one secret, shared by all processes on a store."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 32:
            raise ValueError("the secret of signed links needs at least 32 bytes")
        self._keyed = hmac.new(secret, b"READ ", "sha256")

    def sign(self, path: str, filename: str, content_type: str, expires_at: datetime) -> str:
        """Give the link to a stored file, without scheme and host, valid until just before `expires_at`.

        Raises `ValueError` for a path that cannot be stored, or a name or type unfit for a header.
        """
        address, headers = _quoted(path, filename, content_type)
        unsigned = f"{address}{(expires_at - _EPOCH) // _MILLISECOND}{headers}"
        return f"{unsigned}&signature={self._signature(unsigned)}"

    def verify(self, path: str, query: str, now: datetime, method: str = "GET") -> SignedTarget | None:
        """Tell what a link opens at a moment; None, whatever the reason, for one to refuse.

        `path` and `query` are as they stand in the request line, still percent-encoded.
        """
        parsed = _QUERY.fullmatch(query)
        if parsed is None or not path.startswith(PREFIX):
            return None
        expires, filename, content_type, signature = parsed.groups()
        target = SignedTarget(
            unquote(path[len(PREFIX) :]), unquote(filename), unquote(content_type), _EPOCH + int(expires) * _MILLISECOND
        )
        expected = self._signature(f"{path}?{query[: parsed.start(4) - len('&signature=')]}")
        genuine = hmac.compare_digest(expected, signature)
        return target if genuine and method in _READ_METHODS and now < target.expires_at else None

    def _signature(self, unsigned: str) -> str:
        digest = self._keyed.copy()
        digest.update(unsigned.encode())
        return digest.hexdigest()


@lru_cache(maxsize=16_384)
def _quoted(path: str, filename: str, content_type: str) -> tuple[str, str]:
    """Write the parts of a link that stay the same each time that it is signed."""
    segments(path)
    for text in (filename, content_type):
        if not text or not text.isprintable():
            raise ValueError(f"{text!r} cannot stand in a header")
    return (
        f"{PREFIX}{quote(path)}?expires=",
        f"&filename={quote(filename, safe='')}&type={quote(content_type, safe='')}",
    )
