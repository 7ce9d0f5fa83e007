"""Starts a server of the bench's own on a free port."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PUBLISHER = ("-m", "bench.jobs", "serve")
_PATIENCE_SECONDS = 60.0


@contextmanager
def serving(home: Path, command: Sequence[str] = PUBLISHER) -> Iterator[tuple[int, int]]:
    """Serve a home folder until the end; gives port and process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen([sys.executable, *command, str(home), str(port)], stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)  # nothing tells when a server of another process listens
    raise RuntimeError("the server did not start")
