"""Serves a create with an Idempotency-Key once at a time in this process, and gives first answers again (D8.2)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from starlette.responses import Response

from ploti_server.api.answers import JSON_TYPE
from ploti_server.domain.idempotency import Remembered, in_progress

REPLAYED: Final = "Idempotent-Replayed"


class InProgress:
    """The keys whose first request this process is serving; between processes the workspace's lock decides."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._keys: set[tuple[str, str, str]] = set()

    @contextmanager
    def serving(self, workspace_id: str, route: str, key: str) -> Iterator[None]:
        """Serve the one request with a key; raises `Refused` `idempotency_in_progress` for a second."""
        name = (workspace_id, route, key)
        with self._turn:
            if name in self._keys:
                raise in_progress()
            self._keys.add(name)
        try:
            yield
        finally:
            with self._turn:
                self._keys.discard(name)


def replay(remembered: Remembered) -> Response:
    """Give a first answer again: its body and status, no `ETag`."""
    headers = {"Cache-Control": "no-store", REPLAYED: "true"}
    return Response(remembered.answer, remembered.status, headers, JSON_TYPE)
