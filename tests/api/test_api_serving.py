"""What the server does itself: it demands a short head and all of a request in time, and sends files."""

import asyncio
import json
import random
import socket
import threading
import time
from contextlib import contextmanager
from datetime import timedelta

import pytest
import uvicorn
from uvicorn.server import ServerState

from ploti_server.adapters.links import LinkSigner
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


NO_REQUEST = [
    b"nonsense\r\n\r\n",
    b"GET /healthz HTTP/9.9\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


@pytest.mark.parametrize("sent", NO_REQUEST, ids=["words", "version", "length", "tls"])
def test_what_is_no_request_is_refused_with_an_error_like_any_other(sent):
    async def act():
        protocol, wire, _ = await connect(ok)
        protocol.data_received(sent)
        assert "no request" in refusal_of(wire)
        assert wire.is_closing()

    asyncio.run(act())


@pytest.mark.parametrize(("over", "answered"), [(0, True), (1, False)])
def test_head_may_have_just_as_many_bytes_as_said(over, answered):
    async def act():
        protocol, wire, _ = await connect(ok)
        long = HEAD + b"X-Long: "
        protocol.data_received(long + b"x" * (HEAD_BYTES - len(long) - 4 + over) + b"\r\n\r\n")
        await asyncio.sleep(0.01)  # the application's turn
        if answered:
            assert wire.sent.startswith(b"HTTP/1.1 200")
        else:
            assert "too long" in refusal_of(wire)

    asyncio.run(act())


def test_head_of_too_many_bytes_is_refused():
    async def act():
        protocol, wire, _ = await connect(ok)
        protocol.data_received(HEAD + b"X-Long: ")
        protocol.data_received(b"x" * HEAD_BYTES)
        assert "too long" in refusal_of(wire)

    asyncio.run(act())


PART = random.Random(0).randbytes(6_000_000)
PATH = "ds_orange/versions/1/1/snapshot/part-0000.parquet"


@contextmanager
def running(api):
    """Serve from a thread; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(uvicorn.Config(api, http=LimitedRequest, log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)  # nothing tells when a server has started
        yield bound.getsockname()[1]
        server.should_exit = True
        thread.join(timeout=20)


@pytest.fixture
def part(served):
    """A link to a part of six million bytes, and the port that it is served at."""
    served.ports.files.put_bytes(PATH, PART)
    kind = "application/vnd.apache.parquet"
    link = LinkSigner(b"s" * 32).sign(PATH, "part.parquet", kind, served.clock.now() + timedelta(hours=1))
    with running(served.client.app) as port:
        yield link, port


def ask(connection, link, *lines):
    connection.sendall("\r\n".join([f"GET {link} HTTP/1.1", "Host: x", *lines, "", ""]).encode())


def answer_of(connection, before=b"", slow=0.0):
    """Read one answer; gives status, body and what came after it."""
    content = before
    while b"\r\n\r\n" not in content:
        content += connection.recv(65_536)
    head, _, body = content.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    time.sleep(slow)  # the server has to wait for this reader
    while len(body) < length:
        body += connection.recv(1 << 20)
    return int(head[9:12]), body[:length], body[length:]


class TestFiles:
    @pytest.mark.parametrize("slow", [0.0, 0.3], ids=["read at once", "read late"])
    def test_file_arrives_whole_and_the_connection_serves_on(self, part, slow):
        link, port = part
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            for lines, status, expected in (
                ([], 200, PART),
                (["Range: bytes=1000000-4999999"], 206, PART[1_000_000:5_000_000]),
                (["Range: bytes=-1"], 206, PART[-1:]),
            ):
                ask(connection, link, *lines)
                assert answer_of(connection, slow=slow)[:2] == (status, expected)

    def test_requests_sent_ahead_are_answered_in_their_order(self, part):
        link, port = part
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            ask(connection, link)
            ask(connection, link, "Range: bytes=0-9")
            ask(connection, "/healthz")
            first = answer_of(connection)
            second = answer_of(connection, first[2])
            third = answer_of(connection, second[2])
        assert [first[:2], second[:2], third[1]] == [(200, PART), (206, PART[:10]), b'{"status":"ok"}']

    def test_reader_that_goes_away_hinders_nobody(self, part, caplog):
        link, port = part
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            ask(connection, link)
            connection.recv(1_000)
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            ask(connection, link)
            assert answer_of(connection)[:2] == (200, PART)
        assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []

    def test_file_that_became_shorter_ends_the_connection(self, part, served):
        link, port = part
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            ask(connection, link)
            connection.recv(1_000)
            with served.ports.files.local(PATH).open("r+b") as file:
                file.truncate(10)
            have = 1_000
            while block := connection.recv(1 << 20):
                have += len(block)
        assert have < len(PART)
