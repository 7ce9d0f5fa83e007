"""Sends to receivers that strangers chose: public addresses only, no redirects, 15 seconds in all (D9.1, D9.2)."""

import http.client
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Final

from ploti_server.adapters.connect import Connector, Resolve, begin_answer, resolve, send_all, trouble_of
from ploti_server.domain.addresses import AddressRefused, Target, read_target
from ploti_server.domain.deliveries import Answer

SECONDS: Final = 15.0
ANSWER_BYTES_MOST: Final = 64 * 1024


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
        self._allow_loopback, self._seconds = allow_loopback, seconds
        self._connector = Connector(allow_loopback, look_up=look_up, tls=tls)

    def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """POST a body and tell what came back; every trouble is an answer with its problem."""
        ends = time.monotonic() + self._seconds
        try:
            target = read_target(url, self._allow_loopback)
            with self._connector.open(target, ends) as connection:
                return _exchange(connection, target, headers, body, ends)
        except AddressRefused as refused:
            return Answer(None, f"not sent: {refused}")
        except TimeoutError:
            return Answer(None, f"no whole answer within {self._seconds:g} seconds")
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            return Answer(None, trouble_of(error))


def _exchange(
    connection: socket.socket, target: Target, headers: Mapping[str, str], body: bytes, ends: float
) -> Answer:
    head = {"host": target.authority, "content-length": str(len(body)), "connection": "close", **headers}
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    send_all(connection, "\r\n".join(lines).encode("ascii") + body, ends)
    return _read_answer(connection, ends)


def _read_answer(connection: socket.socket, ends: float) -> Answer:
    """Read an answer's head, and up to 64 kB of its body, which is thrown away unseen (F063)."""
    response = begin_answer(connection, ends, "POST")
    try:
        response.read(ANSWER_BYTES_MOST)
        problem = "redirects are not followed" if 300 <= response.status < 400 else None
        return Answer(response.status, problem, response.getheader("retry-after"))
    finally:
        response.close()
