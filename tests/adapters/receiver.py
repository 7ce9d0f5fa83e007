"""A receiver on a loopback port that reads one request a connection and then does what a test says, byte by byte."""

import socket
import ssl
import threading
from contextlib import contextmanager
from pathlib import Path

CERTIFICATE = Path(__file__).with_name("hooks_example.pem")
"""A self-signed certificate for hooks.example with its key; made for these tests, worth nothing elsewhere."""


def read_request(connection):
    """Read a request's head and body."""
    content = b""
    while b"\r\n\r\n" not in content:
        block = connection.recv(65536)
        if not block:
            return content
        content += block
    head, _, body = content.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    length = int(lengths[0]) if lengths else 0
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


class Receiver:
    """Counts connections, keeps requests, and answers with bytes or a function over the open connection."""

    def __init__(self, answer, tls=False):
        self._answer, self._tls = answer, tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self._listener.getsockname()[1]
        self.connections, self.requests = 0, []
        self.stopped = threading.Event()

    @contextmanager
    def running(self):
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.stopped.set()
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            thread.join()

    def _accept(self):
        while not self.stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection):
        try:
            if self._tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(CERTIFICATE)
                connection = context.wrap_socket(connection, server_side=True)
            with connection:
                self.requests.append(read_request(connection))
                if callable(self._answer):
                    self._answer(connection, self.stopped)
                else:
                    connection.sendall(self._answer)
        except OSError:
            connection.close()


def drip(content, seconds):
    """Answer a byte at a time."""

    def answer(connection, stopped):
        for byte in content:
            if stopped.wait(seconds):
                return
            connection.sendall(bytes([byte]))

    return answer
