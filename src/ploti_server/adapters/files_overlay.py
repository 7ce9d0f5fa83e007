"""Files that are read from one store and written to another, so that a build can be tried without a trace."""

from collections.abc import Iterator
from pathlib import Path

from ploti_server.ports import Files, FileStat


class OverlayFiles:
    """`Files` over a store that is never written to."""

    def __init__(self, below: Files, above: Files) -> None:
        self._below, self._above = below, above

    def put(self, path: str, local: Path) -> None:
        """Take over a finished local file."""
        self._above.put(path, local)

    def put_bytes(self, path: str, content: bytes) -> None:
        """Store bytes."""
        self._above.put_bytes(path, content)

    def stat(self, path: str) -> FileStat | None:
        """Tell a file's size; None where there is no such file."""
        return self._of(path).stat(path)

    def read(self, path: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Give a file's bytes in blocks."""
        return self._of(path).read(path, start, length)

    def local(self, path: str) -> Path:
        """Give a local file with the bytes."""
        return self._of(path).local(path)

    def paths(self, prefix: str) -> Iterator[str]:
        """List the stored paths that begin with a prefix, in order."""
        return iter(sorted({*self._below.paths(prefix), *self._above.paths(prefix)}))

    def remove(self, path: str) -> None:
        """Delete a file that was written here."""
        self._above.remove(path)

    def sweep(self) -> int:
        """Remove what was left unfinished here."""
        return self._above.sweep()

    def presigned(self, path: str, filename: str, content_type: str, seconds: int) -> str | None:
        """Give a link signed by the storage itself, where it signs any."""
        return self._of(path).presigned(path, filename, content_type, seconds)

    def _of(self, path: str) -> Files:
        return self._below if self._above.stat(path) is None else self._above
