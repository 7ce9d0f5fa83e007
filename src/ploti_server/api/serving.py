"""The API on the network: a server that limits what comes before a body, and ends what waits once it is to stop."""

import asyncio
import gc
import os
import socket
import sys
from asyncio import TimerHandle, Transport
from functools import partial
from typing import Any, BinaryIO, Final

import uvicorn
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ploti_server.api.answers import refusal
from ploti_server.api.files import SEND_FILE
from ploti_server.domain.access import Refused

HEAD_BYTES: Final = 65_536
"""The longest address and headers of a request."""
_FIRST_LINE: Final = len("  HTTP/1.1\r\n\r\n")
_BETWEEN: Final = len(": \r\n")
_TOO_LONG: Final = f"The address and headers are too long: send at most {HEAD_BYTES} bytes."
_NO_REQUEST: Final = (
    "This is no request that HTTP/1.1 knows: send a method, an address and headers, and close the line."
)
REQUEST_SECONDS: Final = 30
"""How long a request may take to come, head and body."""
AT_ONCE: Final = 1 << 24
"""The most bytes of a file that the system is told to send in one call."""
GARBAGE: Final = (20_000, 20, 50)
"""After how many new objects garbage is looked for, and how seldom among older ones."""
STOP_SECONDS: Final = 30
"""How long requests that are being served may take to end once the server is told to stop."""


class LimitedRequest(HttpToolsProtocol):
    """HTTP/1.1 whose address and headers may have `HEAD_BYTES` together, and whose requests have to come in time."""

    _head_bytes: int | None = None
    _is_whole = False
    _late: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as the class above has it
        """Wait for the first request."""
        super().connection_made(transport)
        self._late = self.loop.call_later(REQUEST_SECONDS, self._end_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._in_time()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._head_bytes, self._is_whole = 0, False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End counting; a head that is too long ends here at the latest, and with it the connection."""
        first = len(self.parser.get_method()) + len(self.url) + _FIRST_LINE
        if first + sum(len(name) + len(value) + _BETWEEN for name, value in self.headers) > HEAD_BYTES:
            raise ValueError(_TOO_LONG)
        self._head_bytes = None
        super().on_headers_complete()
        if self.cycle is not None and self.scheme == "http":
            self.scope["state"][SEND_FILE] = partial(self._send_file, self.cycle)

    def on_message_complete(self) -> None:
        """Note that the request is there, with its body."""
        self._is_whole = True
        self._in_time()
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Take in what came, unless the head has become too long: then the connection is refused."""
        super().data_received(data)
        if self._is_whole or self.transport.is_closing():
            return
        if self._late is None:
            self._late = self.loop.call_later(REQUEST_SECONDS, self._end_late)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(_TOO_LONG)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # the class above knows no more than that it failed
        """Refuse what is no request, like every other refusal, and end the connection."""
        failed = sys.exception()
        cause = failed.__context__ if failed else None
        self._refuse(str(cause) if isinstance(cause, ValueError) else _NO_REQUEST)

    async def _send_file(self, cycle: RequestResponseCycle, file: BinaryIO, start: int, length: int) -> None:
        """Let the system send what follows an answer's head; the head has to be on its way before.

        Raises `RuntimeError` for a file that has become shorter. A caller that has gone is nobody's fault.
        """
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits(0)
            await self.flow.drain()
        if self.transport.is_closing():
            cycle.disconnected = True
            return
        receiver = os.dup(self.transport.get_extra_info("socket").fileno())
        try:
            await _sent_whole(receiver, file, start, length)
        except ConnectionError:
            cycle.disconnected = True
            self.transport.abort()
        finally:
            os.close(receiver)
            if not self.transport.is_closing():
                self.transport.set_write_buffer_limits()
        cycle.expected_content_length -= length

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end_late(self) -> None:
        """End a connection whose request does not come; one that has begun is told why, unless it is being answered."""
        if self.transport.is_closing():
            return
        if self._head_bytes or (self.cycle is not None and not self.cycle.response_started):
            self._refuse(f"The request comes too slowly: send it whole within {REQUEST_SECONDS} seconds.")
        else:
            self.transport.close()

    def _refuse(self, message: str) -> None:
        answer = refusal(Refused("invalid_input", message), {"Connection": "close"})
        head = b"".join(b"%s: %s\r\n" % header for header in answer.raw_headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n%s\r\n%s" % (head, bytes(answer.body)))
        self.transport.close()


async def _sent_whole(receiver: int, file: BinaryIO, start: int, length: int) -> None:
    """Send from threads, as reading may wait for the disk; a slow receiver is waited for without one."""
    end = start + length
    while start < end:
        try:
            sent = await run_in_threadpool(os.sendfile, receiver, file.fileno(), start, min(end - start, AT_ONCE))
        except BlockingIOError:
            await _writable(receiver)
            continue
        if sent == 0:
            raise RuntimeError("a file has become shorter while it was sent")
        start += sent


async def _writable(receiver: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(receiver, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(receiver)


class ApiServer(uvicorn.Server):
    """Serves an API until told to stop; requests that wait for events are answered then with what there is."""

    def __init__(self, api: FastAPI, **options: Any) -> None:
        """Take an API of `make_api` and further options of uvicorn, like `host` and `port`."""
        own: dict[str, Any] = {"http": LimitedRequest, "ws": "none", "access_log": False}
        own["timeout_graceful_shutdown"] = STOP_SECONDS
        super().__init__(uvicorn.Config(api, **(own | options)))
        self._watch = api.state.watch

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and leave what stays for good to itself: looking through it for garbage would halt requests."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GARBAGE)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what waits, then what is being served."""
        self._watch.stop()
        await super().shutdown(sockets)
