"""Requests and answers of the fake API, and the two ways to reach it: an httpx2 transport and a loopback server."""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx2

from ploti.contract.errors import ERROR_STATUS
from ploti.contract.files import JSON_TYPE

_CHUNK = 65_536


@dataclass(frozen=True)
class FakeRequest:
    """One call as the fake saw it; header names are in lower case."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def target(self) -> str:
        """Path and query in one text, for matching and for reading in a failed test."""
        return self.path + ("?" + "&".join(f"{name}={value}" for name, value in self.query) if self.query else "")


@dataclass(frozen=True)
class FakeAnswer:
    """What goes back; `cut_after` bytes of the body the connection breaks, `dropped` breaks it before any byte.

    `wait_seconds` is how long a better answer may be waited for.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    dropped: bool = False
    delay_seconds: float = 0
    wait_seconds: float = 0


class Refusal(Exception):
    """A refusal of the error table, raised by a route and turned into an answer."""

    def __init__(self, code: str, message: str, field_: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.field = code, message, field_

    def answer(self) -> FakeAnswer:
        """Give the error body under the code's status (D1.5)."""
        detail = {"code": self.code, "message": self.message}
        if self.field is not None:
            detail["field"] = self.field
        return json_answer({"error": detail}, ERROR_STATUS[self.code])


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> FakeAnswer:
    """Give an answer with a JSON body."""
    body = json.dumps(value, ensure_ascii=False).encode()
    return FakeAnswer(status, body, {"content-type": JSON_TYPE, **(headers or {})})


Answering = Callable[[FakeRequest], FakeAnswer]


def split_target(target: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Split a request target into its decoded path and its query pairs, empty values kept."""
    parts = urlsplit(target)
    return unquote(parts.path), tuple(parse_qsl(parts.query, keep_blank_values=True))


class FakeTransport(httpx2.BaseTransport):
    """Answers an httpx2 client in the same process, without a socket."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        path, query = split_target(request.url.raw_path.decode("ascii"))
        headers = {name.lower(): value for name, value in request.headers.items()}
        answer = self._answering(FakeRequest(request.method, path, query, headers, request.read()))
        _wait(answer, request)
        if answer.dropped:
            raise httpx2.RemoteProtocolError("Server disconnected without sending a response.", request=request)
        length = {"content-length": str(len(answer.body))}
        return httpx2.Response(
            answer.status,
            headers={**length, **answer.headers},
            stream=_Body(answer, request.method),
            request=request,
        )


def _wait(answer: FakeAnswer, request: httpx2.Request) -> None:
    """Pass the delay, or the read time-out if that is shorter, as a socket would."""
    limit: float | None = request.extensions.get("timeout", {}).get("read")
    if limit is not None and answer.delay_seconds > limit:
        time.sleep(limit)
        raise httpx2.ReadTimeout("The read operation timed out.", request=request)
    time.sleep(answer.delay_seconds)


class _Body(httpx2.SyncByteStream):
    def __init__(self, answer: FakeAnswer, method: str) -> None:
        self._answer, self._method = answer, method

    def __iter__(self) -> Iterator[bytes]:
        if self._method == "HEAD":
            return
        sent = self._answer.body[: self._answer.cut_after]
        for start in range(0, len(sent), _CHUNK):
            yield sent[start : start + _CHUNK]
        if self._answer.cut_after is not None:
            raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    answering: Answering

    def _serve(self) -> None:
        path, query = split_target(self.path)
        length = int(self.headers.get("content-length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.answering(FakeRequest(self.command, path, query, headers, self.rfile.read(length)))
        time.sleep(answer.delay_seconds)
        if answer.dropped:
            self._break()
            return
        self.send_response(answer.status)
        for name, value in {"content-length": str(len(answer.body)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: answer.cut_after])
        if answer.cut_after is not None:
            self._break()

    do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

    def _break(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # named so by the library
        """Keep a test's output clean; the fake's `requests` tell what came in."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle is what the tests provoke; anything else is shown as usual."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def loopback(answering: Answering) -> Iterator[str]:
    """Serve on a free port of 127.0.0.1 in a thread and give the base address."""
    handler = type("Handler", (_Handler,), {"answering": staticmethod(answering)})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
