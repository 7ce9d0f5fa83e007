"""The sender against real sockets: what it sends, whom it calls, and how long it waits (D9.1, reliability 15 to 29)."""

import socket
import ssl
import threading
import time

import pytest
from tests.adapters.receiver import CERTIFICATE, Receiver, drip

from ploti_server.adapters.sender import HttpSender

OK = b"HTTP/1.1 204 No Content\r\n\r\n"
BODY = '{"id":"evt_000000000001","x":"ü"}'.encode()
HEADERS = {"content-type": "application/json", "webhook-id": "msg_1"}
LIMIT = 0.6


def send(receiver, sender=None, path="/hooks?a=b", scheme="http", host="127.0.0.1"):
    sender = sender or HttpSender(allow_loopback=True, seconds=LIMIT)
    return sender.send(f"{scheme}://{host}:{receiver.port}{path}", HEADERS, BODY)


@pytest.fixture
def canary():
    """A port that nobody may call."""
    with Receiver(OK).running() as receiver:
        yield receiver
        assert receiver.connections == 0


def test_the_request_is_a_post_of_exactly_the_body():
    with Receiver(OK).running() as receiver:
        answer = send(receiver)
    assert (answer.status, answer.problem, answer.is_success) == (204, None, True)
    head, _, body = receiver.requests[0].partition(b"\r\n\r\n")
    assert body == BODY
    assert head.split(b"\r\n") == [
        b"POST /hooks?a=b HTTP/1.1",
        b"host: 127.0.0.1:%d" % receiver.port,
        b"content-length: %d" % len(BODY),
        b"connection: close",
        b"content-type: application/json",
        b"webhook-id: msg_1",
    ]


@pytest.mark.parametrize("status", [200, 202, 299, 400, 404, 410, 413, 429, 500, 503, 599])
def test_the_receivers_status_is_told(status):
    with Receiver(b"HTTP/1.1 %d X\r\ncontent-length: 2\r\n\r\nhi" % status).running() as receiver:
        assert send(receiver).status == status


def test_retry_after_is_told():
    with Receiver(b"HTTP/1.1 503 X\r\nRetry-After: 120\r\n\r\n").running() as receiver:
        assert send(receiver).retry_after == "120"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("place", ["http://169.254.169.254/latest", "http://127.0.0.1:{port}/x", "/hooks/"])
def test_a_redirect_is_not_followed_and_its_status_is_told(canary, status, place):
    """F063, F064."""
    content = f"HTTP/1.1 {status} X\r\nLocation: {place.format(port=canary.port)}\r\n\r\nsecret"
    with Receiver(content.encode()).running() as receiver:
        answer = send(receiver)
    assert (answer.status, answer.problem, answer.is_success) == (status, "redirects are not followed", False)
    assert receiver.connections == 1


def test_nothing_of_an_answers_body_is_kept():
    """F063."""
    with Receiver(b"HTTP/1.1 500 secret words\r\nX-Secret: words\r\n\r\nsecret words").running() as receiver:
        assert "secret" not in repr(send(receiver))


class TestTime:
    @pytest.mark.parametrize(
        "answer",
        [
            drip(OK, 0.05),
            drip(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + b"x" * 1000, 0.01),
            drip(b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0.01),
            drip(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 90, 0.01),
            lambda _, stopped: stopped.wait(5),
        ],
        ids=["head", "body", "continue", "headers", "silent"],
    )
    def test_a_slow_drip_ends_with_the_time_for_all_of_it(self, answer):
        with Receiver(answer).running() as receiver:
            began = time.monotonic()
            told = send(receiver)
            assert LIMIT - 0.1 <= time.monotonic() - began < LIMIT + 0.5
        assert (told.status, told.problem) == (None, "no whole answer within 0.6 seconds")

    def test_a_receiver_that_does_not_read_ends_in_time(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            began = time.monotonic()
            told = HttpSender(allow_loopback=True, seconds=LIMIT).send(url, HEADERS, b"x" * 20_000_000)
            assert time.monotonic() - began < LIMIT + 0.5
        assert told.problem == "no whole answer within 0.6 seconds"

    def test_tls_that_never_begins_ends_in_time(self):
        with Receiver(lambda _, stopped: stopped.wait(5)).running() as receiver:
            began = time.monotonic()
            told = send(receiver, scheme="https", host="localhost")
            assert time.monotonic() - began < LIMIT + 0.5
        assert told.problem == "no whole answer within 0.6 seconds"

    def test_a_name_that_is_looked_up_for_ever_ends_in_time(self):
        release = threading.Event()

        def look_up(host, port):
            release.wait(5)
            return ["8.8.8.8"]

        began = time.monotonic()
        told = HttpSender(seconds=LIMIT, look_up=look_up).send("https://hooks.example/", HEADERS, BODY)
        release.set()
        assert time.monotonic() - began < LIMIT + 0.5
        assert told.problem == "no whole answer within 0.6 seconds"

    def test_fifteen_seconds_unless_told(self):
        assert HttpSender()._seconds == 15.0


def test_an_endless_body_is_read_for_64_kb():
    sent = []

    def answer(connection, stopped):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not stopped.is_set():
            sent.append(connection.send(b"x" * 65536))

    with Receiver(answer).running() as receiver:
        began = time.monotonic()
        assert send(receiver).status == 200
        assert time.monotonic() - began < LIMIT
    assert sum(sent) < 20_000_000


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "the answer is not HTTP|connection failed"),
        (b"SSH-2.0-x\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 101 + b"\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 200 " + b"x" * 70_000, "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "the answer is not HTTP"),
    ],
)
def test_an_answer_that_makes_no_sense_is_a_failure(answer, problem):
    with Receiver(answer).running() as receiver:
        told = send(receiver)
    assert told.status is None
    assert any(one in told.problem for one in problem.split("|"))


def test_nobody_there_is_a_failure():
    with Receiver(OK).running() as receiver:
        pass
    told = send(receiver)
    assert (told.status, told.problem) == (None, "the connection failed: connection refused")


def test_an_unknown_name_is_a_failure():
    def look_up(host, port):
        raise socket.gaierror(-2, "x")

    told = HttpSender(look_up=look_up).send("https://hooks.example/", HEADERS, BODY)
    assert (told.status, told.problem) == (None, "the host's name is not known")


class TestWhomItCalls:
    @pytest.mark.parametrize(
        "found",
        [["127.0.0.1"], ["::1"], ["8.8.8.8", "127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], ["::ffff:127.0.0.1"], []],
    )
    def test_a_name_that_leads_inside_is_not_called(self, canary, found):
        sender = HttpSender(seconds=LIMIT, look_up=lambda *_: found)
        told = send(canary, sender, scheme="https", host="hooks.example")
        assert told.status is None
        assert told.problem.startswith("not sent: the host's name leads to")

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]"])
    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_this_machine_is_not_called_in_any_spelling(self, canary, host, scheme):
        told = send(canary, HttpSender(seconds=LIMIT), scheme=scheme, host=host)
        assert told.problem.startswith("not sent: ")

    @pytest.mark.parametrize("host", ["hooks.localhost", "hooks.example"])
    @pytest.mark.parametrize("found", [["8.8.8.8"], ["10.0.0.1"], ["127.0.0.1", "8.8.8.8"]])
    def test_in_development_http_goes_to_this_machine_alone(self, canary, found, host):
        sender = HttpSender(allow_loopback=True, seconds=LIMIT, look_up=lambda *_: found)
        assert send(canary, sender, host=host).problem.startswith("not sent: ")

    def test_a_name_is_looked_up_once_and_the_checked_address_is_called(self, canary):
        """A second look-up would lead elsewhere: rebinding."""
        asked = []

        def look_up(host, port):
            asked.append(host)
            return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

        with Receiver(OK).running() as receiver:
            sender = HttpSender(True, seconds=LIMIT, look_up=look_up)
            assert send(receiver, sender, host="hooks.localhost").status == 204
        assert asked == ["hooks.localhost"]
        assert b"host: hooks.localhost:%d\r\n" % receiver.port in receiver.requests[0]

    def test_an_address_that_does_not_answer_leaves_time_for_the_next(self):
        sender = HttpSender(True, seconds=LIMIT, look_up=lambda *_: ["::1", "127.0.0.1"])
        with Receiver(OK).running() as receiver:
            assert send(receiver, sender, host="hooks.localhost").status == 204


class TestTls:
    def sender(self, trusted=True):
        context = ssl.create_default_context(cafile=CERTIFICATE) if trusted else None
        return HttpSender(True, seconds=3, look_up=lambda *_: ["127.0.0.1"], tls=context)

    def test_a_certificate_for_the_name_is_accepted(self):
        with Receiver(OK, tls=True).running() as receiver:
            assert send(receiver, self.sender(), scheme="https", host="hooks.example").status == 204

    @pytest.mark.parametrize(("trusted", "host"), [(True, "other.example"), (False, "hooks.example")])
    def test_another_certificate_is_refused_before_anything_is_sent(self, trusted, host):
        with Receiver(OK, tls=True).running() as receiver:
            told = send(receiver, self.sender(trusted), scheme="https", host=host)
        assert told.status is None
        assert told.problem.startswith("the certificate does not hold: ")
        assert b"POST" not in b"".join(receiver.requests)

    def test_a_receiver_without_tls_is_a_failure(self):
        def answer(connection, _):
            connection.sendall(OK)

        with Receiver(answer).running() as receiver:
            told = HttpSender(True, seconds=LIMIT, look_up=lambda *_: ["127.0.0.1"]).send(
                f"https://hooks.example:{receiver.port}/", HEADERS, BODY
            )
        assert told.status is None
