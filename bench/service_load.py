"""Sends mixed reads at a fixed rate over plain sockets, and notes how long each took from when it was due."""

import json
import random
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

CONNECTIONS = 24
PAGE = 100
WARM_UP = 8.0
EVENT_IDS = re.compile(rb'\{"id":"evt_([0-9]{12})"')


@dataclass
class Seen:
    """What one connection saw: seconds by kind of read, statuses, and pages whose events were not in a row."""

    seconds: list[tuple[str, float]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    gaps: int = 0


class Connection:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get(self, path: str, key: str) -> tuple[int, bytes]:
        """Send a GET and give status and body."""
        self.ask(path, key)
        return self.answer()

    def ask(self, path: str, key: str) -> None:
        """Send a GET."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode())

    def answer(self) -> tuple[int, bytes]:
        """Give status and body of the next answer."""
        head, content = b"", b""
        while b"\r\n\r\n" not in content:
            content += self._block()
        head, _, body = content.partition(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: ([0-9]+)", head)[1])
        parts, have = [body], len(body)
        while have < length:
            parts.append(self._block())
            have += len(parts[-1])
        return int(head[9:12]), b"".join(parts)

    def post(self, body: bytes) -> None:
        """Post a body and wait for the answer."""
        head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)
        self._block()

    def download(self, path: str) -> int:
        """Get a file and let go of it; gives its size."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        content = b""
        while b"\r\n\r\n" not in content:
            content += self._block()
        head, _, body = content.partition(b"\r\n\r\n")
        size, have = int(re.search(rb"(?i)content-length: ([0-9]+)", head)[1]), len(body)
        while have < size:
            have += len(self._block())
        return size

    def _block(self) -> bytes:
        block = self._socket.recv(262_144)
        if not block:
            raise ConnectionError("the server closed the connection")
        return block


@dataclass
class Reader:
    """Chooses reads: 70 % pages of events, 20 % versions with their links, 10 % lists."""

    access: dict
    chance: random.Random
    cursors: dict[str, int] = field(default_factory=dict)

    def next(self) -> tuple[str, str, str, str]:
        """Give the kind of the next read, its path, key and subscription."""
        workspace = self.chance.choice(self.access["workspaces"])
        subscription = self.chance.choice(workspace["subscriptions"])
        dataset = self.chance.choice(self.access["datasets"])
        drawn = self.chance.random()
        if drawn < 0.7:
            cursor = self.cursors.setdefault(subscription, self.chance.randrange(self.access["events"]))
            path = f"/v1/feeds/subscriptions/{subscription}/events?cursor=evt_{cursor:012d}"
            return "events", path, workspace["key"], subscription
        if drawn < 0.9:
            path = f"/v1/feeds/datasets/{dataset}/versions/{self.access['version']}"
            return "version", path, workspace["key"], subscription
        path = self.chance.choice(
            ["/v1/feeds/datasets", f"/v1/feeds/datasets/{dataset}/versions", "/v1/places", "/v1/feeds/subscriptions"]
        )
        return "list", path, workspace["key"], subscription

    def follows(self, subscription: str, page: bytes) -> bool:
        """Move on in a log, from its end to somewhere else; tells whether the page's events were in a row."""
        before = self.cursors.pop(subscription)
        numbers = [int(number) for number in EVENT_IDS.findall(page)]
        if len(numbers) == PAGE and self.chance.random() < 0.9:
            self.cursors[subscription] = numbers[-1]
        elif numbers or self.chance.random() < 0.5:
            self.cursors[subscription] = numbers[-1] if numbers else before
        return numbers == list(range(before + 1, before + 1 + len(numbers)))


def load(home: Path, port: int, rate: float, seconds: float) -> list[Seen]:
    """Read at a rate for a time, and `WARM_UP` seconds before that are not counted; gives what each connection saw."""
    access = json.loads((home / "access.json").read_text())
    started = time.perf_counter() + 0.5
    seen = [Seen() for _ in range(CONNECTIONS)]

    def read(number: int) -> None:
        connection, reader = Connection(port), Reader(access, random.Random(number))
        for turn in range(number, int(rate * (WARM_UP + seconds)), CONNECTIONS):
            due = started + turn / rate
            time.sleep(max(due - time.perf_counter(), 0))  # reads come at a rate, whatever answers take
            kind, path, key, subscription = reader.next()
            status, body = connection.get(path, key)
            if turn >= rate * WARM_UP:
                seen[number].seconds.append((kind, time.perf_counter() - due))
            seen[number].statuses.append(status)
            if kind == "events" and status == 200 and not reader.follows(subscription, body):
                seen[number].gaps += 1

    threads = [threading.Thread(target=read, args=[number]) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen
