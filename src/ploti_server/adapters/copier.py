"""Copies files that stand beside a source: from this machine's disk, or from public web addresses (D5.9, D14.4)."""

import http.client
import os
import shutil
import ssl
import time
from pathlib import Path
from stat import S_ISREG
from typing import Final
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from ploti_server.adapters.connect import Connector, Resolve, begin_answer, resolve, send_all, trouble_of
from ploti_server.domain.addresses import AddressRefused, Target, read_target
from ploti_server.domain.attachments import is_web
from ploti_server.ports import CopyFailed

SECONDS: Final = 600.0
BYTES_MOST: Final = 4_000_000_000
REDIRECTS_MOST: Final = 5
_BLOCK: Final = 1 << 18
_OK, _NOT_MODIFIED = 200, 304


class FileCopier:
    """`Copier`; safe to use from threads. `seconds` is what one copy over the network may take in all."""

    def __init__(
        self,
        allow_loopback: bool = False,
        *,
        seconds: float = SECONDS,
        bytes_most: int = BYTES_MOST,
        look_up: Resolve = resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow_loopback, self._seconds, self._bytes_most = allow_loopback, seconds, bytes_most
        self._connector = Connector(allow_loopback, plain=True, look_up=look_up, tls=tls)

    def copy(self, address: str, target: Path, validator: str | None) -> str | None:
        """Copy a file; see `Copier`."""
        if is_web(address):
            return self._download(address, target, validator)
        try:
            found = Path(address).stat()
            if not S_ISREG(found.st_mode):
                raise CopyFailed("it is no file")
            if found.st_size > self._bytes_most:
                raise CopyFailed(f"it has more than {self._bytes_most} bytes")
            now = _last_written(found)
            if now != validator:
                shutil.copyfile(address, target)
                if _last_written(Path(address).stat()) != now:
                    raise CopyFailed("it was written while it was copied")
        except (OSError, ValueError) as error:
            raise CopyFailed(f"it cannot be read: {getattr(error, 'strerror', None) or error}") from error
        return now

    def _download(self, address: str, target: Path, validator: str | None) -> str | None:
        ends = time.monotonic() + self._seconds
        try:
            for _ in range(REDIRECTS_MOST + 1):
                moved, held = self._ask(address, target, validator, ends)
                if moved is None:
                    return held
                address = moved
        except TimeoutError as error:
            raise CopyFailed(f"it did not come whole within {self._seconds:g} seconds") from error
        except (AddressRefused, OSError, http.client.HTTPException, UnicodeError) as error:
            raise CopyFailed(trouble_of(error)) from error
        raise CopyFailed(f"it is redirected more than {REDIRECTS_MOST} times")

    def _ask(self, address: str, target: Path, validator: str | None, ends: float) -> tuple[str | None, str | None]:
        """Ask one address; gives where it moved to, else what to ask with the next time."""
        to = read_target(_encoded(address), self._allow_loopback, plain=True)
        with self._connector.open(to, ends) as connection:
            send_all(connection, _request(to, validator), ends)
            response = begin_answer(connection, ends, "GET")
            try:
                location = response.getheader("location")
                if response.status in (301, 302, 303, 307, 308) and location:
                    return urljoin(address, location), None
                if response.status == _NOT_MODIFIED and validator is not None:
                    return None, validator
                if response.status != _OK:
                    raise CopyFailed(f"the answer is {response.status}")
                if response.getheader("content-encoding", "identity").lower() != "identity":
                    raise CopyFailed("it came packed, which was not asked for")
                self._pour(response, target)
                return None, _validator(response)
            finally:
                response.close()

    def _pour(self, response: http.client.HTTPResponse, target: Path) -> None:
        written = 0
        with target.open("wb") as out:
            while block := response.read(_BLOCK):
                written += len(block)
                if written > self._bytes_most:
                    raise CopyFailed(f"it has more than {self._bytes_most} bytes")
                out.write(block)
        if response.length:
            raise CopyFailed(f"it ended {response.length} bytes early")


def _last_written(found: os.stat_result) -> str:
    return f"{found.st_size}:{found.st_mtime_ns}"


def _encoded(address: str) -> str:
    """Percent-encode what an address may not hold as it stands, and leave its fragment out."""
    parts = urlsplit(address.strip())
    path, query = (quote(text, safe="%/:=&?~#+!$,;'@()*[]") for text in (parts.path, parts.query))
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


def _request(target: Target, validator: str | None) -> bytes:
    name = "if-none-match" if validator is not None and validator.endswith('"') else "if-modified-since"
    asked = [f"{name}: {validator}"] if validator is not None else []
    head = (f"host: {target.authority}", "accept-encoding: identity", "connection: close", "user-agent: ploti", *asked)
    return "\r\n".join([f"GET {target.path} HTTP/1.1", *head, "", ""]).encode("ascii")


def _validator(response: http.client.HTTPResponse) -> str | None:
    """Give what tells whether a file has changed: its ETag, else when it was last modified."""
    for name in ("etag", "last-modified"):
        value = response.getheader(name)
        if value and value.isascii() and value.isprintable():
            return value
    return None
