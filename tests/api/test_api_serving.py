"""What the server demands of a request before the application sees it: a short head, all of it in time."""

import asyncio
import json

import pytest
import uvicorn
from uvicorn.server import ServerState

from ploti_server.api.serving import HEAD_BYTES, REQUEST_SECONDS, LimitedRequest

HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/feeds/subscriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


class Timers:
    """A loop whose time is moved by the test."""

    def __init__(self, loop):
        self._loop, self._due, self.now = loop, [], 0.0

    def __getattr__(self, name):
        return getattr(self._loop, name)

    def call_later(self, seconds, act):
        self._due.append((self.now + seconds, act, timer := asyncio.TimerHandle(0, act, (), self._loop)))
        return timer

    def wait(self, seconds):
        self.now += seconds
        ready = [one for one in self._due if one[0] <= self.now]
        self._due = [one for one in self._due if one[0] > self.now]
        for _, act, timer in ready:
            if not timer.cancelled():
                act()


class Wire(asyncio.Transport):
    """What the server writes."""

    def __init__(self):
        super().__init__()
        self.sent, self.closed = b"", False

    def write(self, data):
        self.sent += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed


async def connect(serve):
    """Open a connection to a server of `serve`; gives its protocol, what it writes, and its time."""
    timers, wire = Timers(asyncio.get_running_loop()), Wire()
    config = uvicorn.Config(serve, log_config=None)
    config.load()
    protocol = LimitedRequest(config, ServerState(), {}, timers)
    protocol.connection_made(wire)
    return protocol, wire, timers


async def ok(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def refusal_of(wire):
    head, _, body = wire.sent.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert wire.closed
    return json.loads(body)["error"]["message"]


def test_connection_without_a_request_is_closed_without_an_answer():
    async def act():
        _, wire, timers = await connect(ok)
        timers.wait(REQUEST_SECONDS - 1)
        assert not wire.closed
        timers.wait(1)
        assert (wire.closed, wire.sent) == (True, b"")

    asyncio.run(act())


@pytest.mark.parametrize("start", [HEAD, POST + b"12345"], ids=["head", "body"])
def test_dripped_request_is_refused_however_often_a_byte_comes(start):
    async def act():
        protocol, wire, timers = await connect(ok)
        protocol.data_received(start)
        for _ in range(4):
            timers.wait(REQUEST_SECONDS / 5)
            protocol.data_received(b"x")
            await asyncio.sleep(0)
            assert not wire.closed
        timers.wait(REQUEST_SECONDS / 5)
        assert "too slowly" in refusal_of(wire)

    asyncio.run(act())


def test_second_request_has_its_own_time_and_one_that_is_served_has_none():
    async def act():
        protocol, wire, timers = await connect(ok)
        for _ in range(2):
            protocol.data_received(HEAD)
            timers.wait(REQUEST_SECONDS - 1)
            protocol.data_received(b"\r\n")
            timers.wait(1)
            await asyncio.sleep(0.01)  # the application's turn
            assert not wire.closed
        assert wire.sent.count(b"HTTP/1.1 200") == 2

    asyncio.run(act())


def test_head_of_too_many_bytes_is_refused():
    async def act():
        protocol, wire, _ = await connect(ok)
        protocol.data_received(HEAD + b"X-Long: ")
        protocol.data_received(b"x" * HEAD_BYTES)
        assert "too long" in refusal_of(wire)

    asyncio.run(act())
