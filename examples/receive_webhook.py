"""Receive a subscription's events: verify each delivery, drop repeats, answer at once, work afterwards.

    pip install ploti standardwebhooks
    PLOTI_WEBHOOK_SECRET=whsec_... python receive_webhook.py inbox.db 8000

`inbox.db` keeps which events were applied. Put a server with TLS in front. Replace `apply` with your own work; it runs
in the transaction that marks the event as applied.
"""

import json
import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

BODY_BYTES_MOST = 1_000_000


class Inbox:
    """Events that came in and whether they were applied, each once by (subscriptionId, id)."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._arrived = threading.Event()
        with self._open() as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS inbox (subscription TEXT, id TEXT, event TEXT, applied INTEGER DEFAULT 0, "
                "PRIMARY KEY (subscription, id))"
            )

    def put(self, event: dict[str, Any]) -> None:
        """Keep an event unless it is there already; it is on disk when this returns."""
        with self._open() as database:
            database.execute(
                "INSERT OR IGNORE INTO inbox (subscription, id, event) VALUES (?, ?, ?)",
                (event["subscriptionId"], event["id"], json.dumps(event)),
            )
        self._arrived.set()

    def apply_waiting(self) -> int:
        """Apply what waits, each subscription's events in order of their ids; gives how many."""
        done = 0
        while True:
            with self._open() as database:
                database.execute("BEGIN IMMEDIATE")
                row = database.execute(
                    "SELECT subscription, id, event FROM inbox WHERE applied = 0 ORDER BY subscription, id LIMIT 1"
                ).fetchone()
                if row is None:
                    return done
                apply(database, json.loads(row[2]))
                database.execute("UPDATE inbox SET applied = 1 WHERE subscription = ? AND id = ?", row[:2])
            done += 1

    def work(self) -> None:
        """Apply events as they arrive, for ever."""
        while True:
            self._arrived.wait()
            self._arrived.clear()
            self.apply_waiting()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction: committed at the end of the block, rolled back by an exception."""
        with closing(sqlite3.connect(self._path, timeout=30)) as database, database:
            yield database


def apply(database: sqlite3.Connection, event: dict[str, Any]) -> None:
    """Do the work of one event: here, remember each dataset's newest version. A late event never goes back."""
    database.execute("CREATE TABLE IF NOT EXISTS held (dataset TEXT PRIMARY KEY, version INTEGER)")
    version = event["data"].get("version")
    if event["type"] in ("feed.dataset.added", "feed.dataset.updated", "feed.dataset.resync_required") and version:
        database.execute(
            "INSERT INTO held VALUES (?, ?) "
            "ON CONFLICT (dataset) DO UPDATE SET version = max(version, excluded.version)",
            (event["data"]["datasetId"], version),
        )


def handler(inbox: Inbox, webhook: Webhook) -> type[BaseHTTPRequestHandler]:
    """Make the handler of requests, which are verified with the webhook's secret."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            if length > BODY_BYTES_MOST:
                self._answer(413)
                return
            body = self.rfile.read(length)
            try:
                event = webhook.verify(body, dict(self.headers.items()))
            except (WebhookVerificationError, ValueError):
                self._answer(401)
                return
            if event["type"] != "ping":
                inbox.put(event)
            self._answer(204)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    return Handler


def main() -> None:
    """Receive until stopped."""
    inbox = Inbox(sys.argv[1])
    inbox.apply_waiting()
    threading.Thread(target=inbox.work, daemon=True).start()
    webhook = Webhook(os.environ["PLOTI_WEBHOOK_SECRET"])
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), handler(inbox, webhook))
    print(f"receiving on port {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
