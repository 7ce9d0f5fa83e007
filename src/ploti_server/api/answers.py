"""Answers as JSON bytes: with an ETag and `304`, never stored where they carry links, and refusals (D1.5, D8.5)."""

import gzip
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ploti.contract.errors import ERROR_STATUS
from ploti_server.api.queries import header_of
from ploti_server.domain.access import Refused

JSON_TYPE: Final = "application/json"
_READ: Final = ((b"cache-control", b"private, no-cache"), (b"vary", b"Authorization, Accept-Encoding"))
_IS_JSON: Final = (b"content-type", JSON_TYPE.encode())
_COMPRESSED_FROM: Final = 1_000
_LEVEL: Final = 1
_CHALLENGE: Final = 'Bearer realm="ploti"'


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with JSON that no cache may keep."""
    sent = {"Cache-Control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(body), status, sent, JSON_TYPE)


def read_answer(request: Request, body: Any, etag: str | None = None) -> Response:
    """Answer a read with its ETag, by default a weak one of its bytes, or `304` where the caller has just that."""
    content = msgspec.json.encode(body)
    return read_bytes(request, content, etag or tag_of(content))


def read_bytes(request: Request, content: bytes, etag: str) -> Response:
    """Answer a read with ready JSON; a `304` varies as the whole answer does, so that a cache keeps both apart."""
    given = header_of(request, b"if-none-match")
    if given and _has(given, etag):
        return _Ready(304, b"", [(b"etag", etag.encode()), *_READ])
    sent = [(b"etag", etag.encode()), *_READ, (b"content-length", b"%d" % len(content)), _IS_JSON]
    return _Ready(200, content, sent)


class _Ready(Response):
    """An answer whose headers are written already."""

    def __init__(self, status: int, content: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.status_code, self.body, self.raw_headers, self.background = status, content, headers, None


def tag_of(content: bytes) -> str:
    """Give the weak ETag of what an answer is made of."""
    return f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'


def compressed(response: Response, request: Request) -> Response:
    """Compress a long answer of JSON where the caller takes gzip.

    One with a strong ETag, a revision that has to come back exactly, goes as it is (D8.1).
    """
    taken = header_of(request, b"accept-encoding")
    if not taken or not _takes_gzip(taken):
        return response
    headers = response.headers
    is_json, is_exact = headers.get("content-type") == JSON_TYPE, headers.get("etag", "").startswith('"')
    if not is_json or is_exact or len(response.body) < _COMPRESSED_FROM:
        return response
    response.body = gzip.compress(response.body, _LEVEL, mtime=0)
    headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(response.body))
    return response


def _takes_gzip(header: str) -> bool:
    for one in header.lower().split(","):
        name, *parameters = (part.strip().replace(" ", "") for part in one.split(";"))
        if name == "gzip":
            return not any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
    return False


def _has(header: str, tag: str) -> bool:
    given = [one.strip() for one in header.split(",")]
    return "*" in given or tag.removeprefix("W/") in [one.removeprefix("W/") for one in given]


def refusal(refused: Refused, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with a refusal in the contract's one shape."""
    detail = {"code": refused.code, "message": refused.message}
    if refused.field is not None:
        detail["field"] = refused.field
    extra = {"WWW-Authenticate": _CHALLENGE} if refused.code == "unauthenticated" else {}
    return answer({"error": detail}, ERROR_STATUS[refused.code], {**extra, **(headers or {})})
