"""What the service is measured beside; a page of events from the same rows: a bare server, and FastAPI with pydantic.

Neither knows keys, limits, subscriptions or logs; both are given more than the service has.
"""

import asyncio
import json
import os
import re
import socket
import sqlite3
import sys
from pathlib import Path
from typing import Any

PART = "ds_bench/versions/1/1/snapshot/part-0000.parquet"
PAGE = "SELECT number, body FROM events WHERE subscription_id = ? AND number > ? ORDER BY number LIMIT 100"
ASKED = re.compile(rb"GET /v1/feeds/subscriptions/(sub_[a-z0-9]+)/events\?cursor=evt_([0-9]{12}) ")


def rows(database: sqlite3.Connection, subscription: str, number: int) -> list[tuple[int, str]]:
    """Read a page's rows."""
    return database.execute(PAGE, (subscription, number)).fetchall()


def bare(home: str, port: str) -> None:
    """Serve joined bodies over a protocol that knows one kind of request."""
    import uvloop

    database = sqlite3.connect(f"{home}/ploti.db", isolation_level=None)

    class Page(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            asked = ASKED.match(data)
            found = rows(database, asked[1].decode(), int(asked[2])) if asked else []
            bodies = ",".join([body for _, body in found]).replace("\x01", "http://x").encode()
            content = b'{"events":[%s],"nextCursor":"evt_%012d"}' % (bodies, found[-1][0] if found else 0)
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content)
            self.transport.write(head + content)

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Page, "127.0.0.1", int(port))
        await server.serve_forever()

    uvloop.run(serve())


def fastapi(home: str, port: str) -> None:
    """Serve models that FastAPI checks and writes."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Event(BaseModel):
        id: str
        type: str
        timestamp: str
        subscriptionId: str
        data: dict[str, Any]

    class Page(BaseModel):
        events: list[Event]
        nextCursor: str

    api = FastAPI()
    file = Path(home, "ploti.db")

    @api.get("/v1/feeds/subscriptions/{subscription}/events")
    def list_events(subscription: str, cursor: str = "evt_000000000000") -> Page:
        database = sqlite3.connect(file, isolation_level=None)
        found = rows(database, subscription, int(cursor[4:]))
        database.close()
        events = [Event(**json.loads(body.replace("\x01", "http://x"))) for _, body in found]
        return Page(events=events, nextCursor=events[-1].id if events else cursor)

    uvicorn.run(api, host="127.0.0.1", port=int(port), log_level="error")


def sendfile(home: str, port: str) -> None:
    """Send a part to whoever asks for anything, with nothing but sendfile."""
    with socket.create_server(("127.0.0.1", int(port))) as listener, Path(home, "files", PART).open("rb") as part:
        size = os.fstat(part.fileno()).st_size
        while True:
            connection, _ = listener.accept()
            while connection.recv(65_536):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
                connection.sendfile(part, 0)


def sink(_home: str, port: str) -> None:
    """Take every POST of a small body."""
    import uvloop

    class Taken(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.data = transport, b""

        def data_received(self, data: bytes) -> None:
            self.data += data
            head, end, body = self.data.partition(b"\r\n\r\n")
            if end and len(body) >= int(re.search(rb"(?i)content-length: ([0-9]+)", head)[1]):
                self.data = b""
                self.transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Taken, "127.0.0.1", int(port), backlog=1_000)
        await server.serve_forever()

    uvloop.run(serve())


if __name__ == "__main__":
    {"bare": bare, "fastapi": fastapi, "sendfile": sendfile, "sink": sink}[sys.argv[1]](*sys.argv[2:])
