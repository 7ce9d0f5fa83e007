"""`GET /v1/files/...`: delivers a file to whoever has its signed link: no key, ranges, CORS, never cached (D8.6)."""

import hashlib
import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, BinaryIO, Final
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ploti_server.adapters.links import PREFIX, SignedTarget
from ploti_server.api.answers import refusal
from ploti_server.api.documented import file_answers, file_parameters
from ploti_server.api.links import Context
from ploti_server.domain.access import Refused

_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE | re.ASCII)
_ANY_ORIGIN: Final = {"Access-Control-Allow-Origin": "*"}
_EXPOSED: Final = "Accept-Ranges, Content-Disposition, Content-Length, Content-Range, ETag"
_PREFLIGHT: Final = {
    **_ANY_ORIGIN,
    "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
    "Access-Control-Allow-Headers": "Range, If-Range",
    "Access-Control-Max-Age": "3600",
    "Allow": "GET, HEAD, OPTIONS",
}


SEND_FILE: Final = "ploti.sendfile"
"""What a server that sends a part of a file itself puts into a request's state; it is called once the head is sent."""
SENT: Final = "ploti.sent"
"""Bytes of an answer's body that went past this application."""
SendFile = Callable[[BinaryIO, int, int], Coroutine[Any, Any, None]]


class Unsatisfiable(Exception):
    """A range that lies outside the file."""


def file_routes(context: Context) -> APIRouter:
    """Declare the route."""
    router = APIRouter(tags=["Files"])

    def download(request: Request) -> Response:
        """Deliver the file that a signed link names, whole or the range asked for."""
        path = request.scope["raw_path"].decode("ascii", "replace").partition("?")[0]
        query = request.scope["query_string"].decode("ascii", "replace")
        target = context.signer.verify(path, query, context.ports.clock.now(), request.method)
        if target is None:
            message = "This link was altered or has expired: ask for the version again to get a fresh one."
            return refusal(Refused("not_allowed", message), _ANY_ORIGIN)
        stat = context.ports.files.stat(target.path)
        if stat is None:
            message = "This file is no longer kept: load the dataset's current version."
            return refusal(Refused("not_found", message), _ANY_ORIGIN)
        return _deliver(context, request, target, stat.size_bytes)

    def preflight() -> Response:
        """Allow pages of any origin to read files."""
        return Response(status_code=204, headers=_PREFLIGHT)

    address = PREFIX + "{path:path}"
    described = {"parameters": file_parameters()}
    router.add_api_route(
        address, download, methods=["GET"], responses=file_answers(), response_model=None, openapi_extra=described
    )
    router.add_api_route(address, download, methods=["HEAD"], response_model=None, include_in_schema=False)
    router.add_api_route(address, preflight, methods=["OPTIONS"], response_model=None, include_in_schema=False)
    return router


def _deliver(context: Context, request: Request, target: SignedTarget, size: int) -> Response:
    headers = _headers(target)
    try:
        wanted = _wanted(request, headers["ETag"], size)
    except Unsatisfiable:
        message = f"The file has {size} bytes: ask for a range inside it."
        return refusal(Refused("range_not_satisfiable", message), {**_ANY_ORIGIN, "Content-Range": f"bytes */{size}"})
    start, end = wanted or (0, size)
    headers["Content-Length"] = str(end - start)
    if wanted is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    status = 200 if wanted is None else 206
    if request.method == "HEAD":
        return Response(b"", status, headers, target.content_type)
    send_file: SendFile | None = request.scope["state"].get(SEND_FILE)
    try:
        if send_file is not None:
            file = context.ports.files.local(target.path).open("rb")
            sending = partial(send_file, file, start, end - start)
            return FileAnswer(file, sending, status_code=status, headers=headers, media_type=target.content_type)
        blocks = context.ports.files.read(target.path, start, end - start)
    except FileNotFoundError:
        return refusal(Refused("not_found", "This file is no longer kept: load the current version."), _ANY_ORIGIN)
    return StreamingResponse(blocks, status, headers, target.content_type)


class FileAnswer(Response):
    """A part of a file that the server sends without reading it; its headers tell how long it is."""

    def __init__(self, file: BinaryIO, send: Callable[[], Coroutine[Any, Any, None]], **options: Any) -> None:
        super().__init__(None, **options)
        self._file, self._send = file, send

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # an ASGI application
        """Send the answer."""
        with self._file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._send()
        await send({"type": "http.response.body", "body": b"", SENT: int(self.headers["content-length"])})


def _headers(target: SignedTarget) -> dict[str, str]:
    """Give a file's headers; its path names its bytes for ever, so the ETag is made of the path (D5.3)."""
    plain = target.filename.encode("ascii", "replace").decode().replace("\\", "_").replace('"', "_")
    return {
        **_ANY_ORIGIN,
        "Access-Control-Expose-Headers": _EXPOSED,
        "Accept-Ranges": "bytes",
        "Cache-Control": "no-store",
        "Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(target.filename, safe='')}",
        "ETag": f'"{hashlib.sha256(target.path.encode()).hexdigest()[:32]}"',
        "X-Content-Type-Options": "nosniff",
    }


def _wanted(request: Request, etag: str, size: int) -> tuple[int, int] | None:
    """Give the one range asked for, as start and end; None for the whole file.

    A malformed header, several ranges, or an `If-Range` for other bytes mean the whole file. Raises `Unsatisfiable`.
    """
    found = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if found is None or found.group(1, 2) == ("", "") or request.headers.get("if-range", etag) != etag:
        return None
    first, last = found.groups()
    if not first:
        if int(last) == 0 or size == 0:
            raise Unsatisfiable
        return max(size - int(last), 0), size
    if last and int(last) < int(first):
        return None
    if int(first) >= size:
        raise Unsatisfiable
    return int(first), min(int(last) + 1, size) if last else size
