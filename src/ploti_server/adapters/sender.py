"""Sends to receivers that strangers chose: public addresses only, no redirects, 15 seconds in all (D9.1, D9.2).

A host's name is looked up once, every address that comes back is checked, and the connection goes to a checked one.
TLS is verified against the name.
"""

import http.client
import io
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ploti_server.domain.addresses import Address, AddressRefused, Target, check_answers, is_loopback, read_target
from ploti_server.domain.deliveries import Answer

SECONDS: Final = 15.0
ANSWER_BYTES_MOST: Final = 64 * 1024
Resolve = Callable[[str, int], list[str]]


def resolve(host: str, port: int) -> list[str]:
    """Look a host's name up; raises `OSError` where it is not known."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class HttpSender:
    """`Sender` over http.client; safe to use from threads. With `allow_loopback`, this machine may be called (D9.1)."""

    def __init__(
        self,
        allow_loopback: bool = False,
        *,
        seconds: float = SECONDS,
        look_up: Resolve = resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow_loopback, self._seconds, self._look_up = allow_loopback, seconds, look_up
        self._tls = tls

    def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """POST a body and tell what came back; every trouble is an answer with its problem."""
        ends = time.monotonic() + self._seconds
        try:
            target = read_target(url, self._allow_loopback)
            addresses = self._checked(target, ends)
            with _connected(addresses, target.port, ends) as plain:
                return self._exchange(plain, target, headers, body, ends)
        except AddressRefused as refused:
            return Answer(None, f"not sent: {refused}")
        except TimeoutError:
            return Answer(None, f"no whole answer within {self._seconds:g} seconds")
        except ssl.SSLCertVerificationError as error:
            return Answer(None, f"the certificate does not hold: {error.verify_message}")
        except ssl.SSLError:
            return Answer(None, "the TLS connection failed")
        except socket.gaierror:
            return Answer(None, "the host's name is not known")
        except http.client.HTTPException:
            return Answer(None, "the answer is not HTTP")
        except (OSError, UnicodeError) as error:
            return Answer(None, f"the connection failed: {_told(error)}")

    def _checked(self, target: Target, ends: float) -> tuple[Address, ...]:
        found = check_answers(_in_time(lambda: self._look_up(target.host, target.port), ends), self._allow_loopback)
        if target.scheme == "http" and not all(is_loopback(address) for address in found):
            raise AddressRefused("the address has to begin with https://")
        return found

    def _exchange(
        self, plain: socket.socket, target: Target, headers: Mapping[str, str], body: bytes, ends: float
    ) -> Answer:
        plain.settimeout(_left(ends))
        with self._secured(plain, target) as secured:
            head = {"host": target.authority, "content-length": str(len(body)), "connection": "close", **headers}
            lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
            _send_all(secured, "\r\n".join(lines).encode("ascii") + body, ends)
            return _read_answer(secured, ends)

    def _secured(self, plain: socket.socket, target: Target) -> socket.socket:
        if target.scheme == "http":
            return plain
        if self._tls is None:
            self._tls = ssl.create_default_context()  # read at first use: commands that send nothing start sooner
        return self._tls.wrap_socket(plain, server_hostname=target.host)


def _read_answer(connection: socket.socket, ends: float) -> Answer:
    """Read an answer's head, and up to 64 kB of its body, which is thrown away unseen (F063)."""
    response = http.client.HTTPResponse(_Source(connection, ends), method="POST")  # type: ignore[arg-type]
    try:
        response.begin()
        response.read(ANSWER_BYTES_MOST)
        problem = "redirects are not followed" if 300 <= response.status < 400 else None
        return Answer(response.status, problem, response.getheader("retry-after"))
    finally:
        response.close()


def _left(ends: float) -> float:
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _in_time(work: Callable[[], list[str]], ends: float) -> list[str]:
    """Do what cannot be interrupted, and wait for it no longer than there is time."""
    answer: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            answer.put(work())
        except Exception as error:  # noqa: BLE001  # raised again by whoever waits
            answer.put(error)

    threading.Thread(target=run, name="look-up", daemon=True).start()
    try:
        found = answer.get(timeout=_left(ends))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(found, Exception):
        raise found
    return found


def _connected(addresses: tuple[Address, ...], port: int, ends: float) -> socket.socket:
    """Connect to the first checked address that answers, by number, so that no name is looked up again."""
    for number, address in enumerate(addresses, 1):
        try:
            left = _left(ends)
            share = left if number == len(addresses) else left / 2
            return socket.create_connection((str(address), port), timeout=share)
        except OSError:
            if number == len(addresses):
                raise
    raise AddressRefused("the host's name leads to no public address")


def _send_all(connection: socket.socket, content: bytes, ends: float) -> None:
    rest = memoryview(content)
    while rest:
        connection.settimeout(_left(ends))
        rest = rest[connection.send(rest) :]


class _Source(io.RawIOBase):
    """What HTTPResponse reads from: no single read waits longer than there is time for the whole."""

    def __init__(self, connection: socket.socket, ends: float) -> None:
        self._connection, self._ends = connection, ends

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002
        """Give itself as a buffered file."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has come, waiting for it while there is time."""
        self._connection.settimeout(_left(self._ends))
        return self._connection.recv_into(buffer)


def _told(error: Exception) -> str:
    return (getattr(error, "strerror", None) or type(error).__name__).lower()
