"""Connections to addresses that strangers chose: a name is looked up once, and only a checked address called (D9.1).

TLS is verified against the name. `ends` is the moment of the monotonic clock at which everything has to be over.
"""

import http.client
import io
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ploti_server.domain.addresses import Address, AddressRefused, Target, check_answers, is_loopback

Resolve = Callable[[str, int], list[str]]
_HTTP: Final = "http"


def resolve(host: str, port: int) -> list[str]:
    """Look a host's name up; raises `OSError` where it is not known."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Connector:
    """Opens checked connections; safe to use from threads. With `plain`, http is spoken to others than this machine."""

    def __init__(
        self,
        allow_loopback: bool = False,
        *,
        plain: bool = False,
        look_up: Resolve = resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow_loopback, self._plain, self._look_up, self._tls = allow_loopback, plain, look_up, tls

    @contextmanager
    def open(self, target: Target, ends: float) -> Iterator[socket.socket]:
        """Open a connection; raises `AddressRefused`, and the errors of sockets and TLS."""
        with _connected(self._checked(target, ends), target.port, ends) as bare:
            bare.settimeout(time_left(ends))
            with self._secured(bare, target) as secured:
                yield secured

    def _checked(self, target: Target, ends: float) -> tuple[Address, ...]:
        found = check_answers(_in_time(lambda: self._look_up(target.host, target.port), ends), self._allow_loopback)
        if target.scheme == _HTTP and not self._plain and not all(is_loopback(address) for address in found):
            raise AddressRefused("the address has to begin with https://")
        return found

    def _secured(self, plain: socket.socket, target: Target) -> socket.socket:
        if target.scheme == _HTTP:
            return plain
        if self._tls is None:
            self._tls = ssl.create_default_context()  # read at first use: commands that call nobody start sooner
        return self._tls.wrap_socket(plain, server_hostname=target.host)


def begin_answer(connection: socket.socket, ends: float, method: str) -> http.client.HTTPResponse:
    """Read the head of an answer."""
    response = http.client.HTTPResponse(_Source(connection, ends), method=method)  # type: ignore[arg-type]  # needs makefile
    try:
        response.begin()
    except BaseException:
        response.close()
        raise
    return response


def send_all(connection: socket.socket, content: bytes, ends: float) -> None:
    """Send all bytes while there is time."""
    rest = memoryview(content)
    while rest:
        connection.settimeout(time_left(ends))
        rest = rest[connection.send(rest) :]


def time_left(ends: float) -> float:
    """Give the seconds that are left; raises `TimeoutError` where none are."""
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def trouble_of(error: Exception) -> str:
    """Tell in a few words what went wrong with a call."""
    if isinstance(error, AddressRefused):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate does not hold: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return "the TLS connection failed"
    if isinstance(error, socket.gaierror):
        return "the host's name is not known"
    if isinstance(error, http.client.HTTPException):
        return "the answer is not HTTP"
    told = (getattr(error, "strerror", None) or type(error).__name__).lower()
    return f"the connection failed: {told}"


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
        found = answer.get(timeout=time_left(ends))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(found, Exception):
        raise found
    return found


def _connected(addresses: tuple[Address, ...], port: int, ends: float) -> socket.socket:
    """Connect to the first checked address that answers, by number, so that no name is looked up again."""
    for number, address in enumerate(addresses, 1):
        try:
            left = time_left(ends)
            share = left if number == len(addresses) else left / 2
            return socket.create_connection((str(address), port), timeout=share)
        except OSError:
            if number == len(addresses):
                raise
    raise AddressRefused("the host's name leads to no public address")


class _Source(io.RawIOBase):
    """What HTTPResponse reads from: no single read waits longer than there is time for the whole."""

    def __init__(self, connection: socket.socket, ends: float) -> None:
        self._connection, self._ends = connection, ends

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002  # always "rb"
        """Give itself as a buffered file."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has come, waiting for it while there is time."""
        self._connection.settimeout(time_left(self._ends))
        return self._connection.recv_into(buffer)
