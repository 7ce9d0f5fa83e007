"""Signed links of the fake API and the answers to them: expiry, Range and If-Range (D8.6)."""

import hashlib
import hmac
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import cast
from urllib.parse import quote, urlencode

from ploti.contract.files import LINK_SECONDS
from ploti.contract.resources import AttachmentLink, FileLink, SignedFile, VersionFiles
from ploti.testing.fake_http import FakeAnswer, FakeRequest, Refusal
from ploti.testing.fake_state import FakeState, FakeVersion, StoredFile, wire_time

_PREFIX = "/files/"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class FakeLinks:
    """Signs links to a version's files and serves them; `expire` makes every link so far worthless."""

    def __init__(self, state: FakeState, clock: Callable[[], datetime]) -> None:
        self._state, self._clock = state, clock
        self._generation = 0
        self.lifetime = timedelta(seconds=LINK_SECONDS)

    def expire(self) -> None:
        """Make every link that was given so far answer as one past its hour."""
        self._generation += 1

    @property
    def expires_at(self) -> str:
        """When a link given now ends."""
        return wire_time(self._clock() + self.lifetime)

    def url(self, version: FakeVersion, name: str) -> str:
        """Sign a link to one file of a version."""
        path = f"{_PREFIX}{version.dataset_id}/{version.number}/{version.attempt}/{name}"
        expires = str(int((self._clock() + self.lifetime).timestamp()))
        query = urlencode({"expires": expires, "signature": self._signature(path, expires)})
        return f"{self._state.base_url}{quote(path)}?{query}"

    def file(self, version: FakeVersion, file: StoredFile) -> FileLink:
        """Give a part or document with its link."""
        return cast(FileLink, {"path": file.path, **file.facts, "url": self.url(version, file.path)})

    def attachment(self, version: FakeVersion, file: StoredFile) -> AttachmentLink:
        """Give an attachment with its link."""
        return self.signed(version, file)

    def signed(self, version: FakeVersion, file: StoredFile) -> SignedFile:
        """Give a file asked for by name with its link."""
        return cast(SignedFile, {"file": file.path, **file.facts, "url": self.url(version, file.path)})

    def files(self, version: FakeVersion, *, snapshot_only: bool = False) -> VersionFiles:
        """Give every file of a version with links, each key always there (D5.3)."""

        def parts(kind: str) -> list[FileLink]:
            return [self.file(version, file) for path, file in version.files.items() if path.startswith(f"{kind}/")]

        return {
            "snapshot": parts("snapshot"),
            "changes": [] if snapshot_only else parts("changes"),
            "backfill": [] if snapshot_only else parts("backfill"),
            "idMap": [] if snapshot_only else parts("id-map"),
            "schema": self.file(version, version.files["schema.json"]),
            "manifest": self.file(version, version.files["manifest.json"]),
            "attachments": [self.attachment(version, file) for file in version.attachments.values()],
            "expiresAt": self.expires_at,
        }

    def handles(self, request: FakeRequest) -> bool:
        """Tell whether a request is for a signed link."""
        return request.path.startswith(_PREFIX)

    def serve(self, request: FakeRequest) -> FakeAnswer:
        """Answer a signed link; raises Refusal with one text for a forged, misused or expired one."""
        if request.method not in {"GET", "HEAD"}:
            raise Refusal("method_not_allowed", "A link answers GET and HEAD.")
        query = dict(request.query)
        expires, signature = query.get("expires", ""), query.get("signature", "")
        good = hmac.compare_digest(self._signature(request.path, expires).encode(), signature.encode())
        if not good or len(request.query) != 2 or self._clock().timestamp() >= int(expires):
            raise Refusal("not_allowed", "This link is not valid any more: ask for a fresh one.")
        return _ranged(self._find(request.path), request)

    def _find(self, path: str) -> StoredFile:
        dataset_id, number, attempt, name = path.removeprefix(_PREFIX).split("/", 3)
        dataset = self._state.datasets.get(dataset_id)
        version = dataset.versions.get(int(number)) if dataset else None
        file = version.named(name) if version and str(version.attempt) == attempt else None
        if file is None:
            raise Refusal("not_found", "This file is gone: ask for fresh links.")
        return file

    def _signature(self, path: str, expires: str) -> str:
        secret = f"fake secret {self._generation}".encode()
        return hmac.new(secret, f"GET\n{path}\n{expires}".encode(), hashlib.sha256).hexdigest()


def _ranged(file: StoredFile, request: FakeRequest) -> FakeAnswer:
    """Answer the whole file or the range asked for; a stale If-Range gets the whole file."""
    size = len(file.content)
    etag = f'"{file.sha256}"'
    headers = {
        "content-type": file.content_type,
        "etag": etag,
        "accept-ranges": "bytes",
        "cache-control": "no-store",
        "content-disposition": f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
    }
    wanted = _RANGE.fullmatch(request.headers.get("range", ""))
    if wanted is None or request.headers.get("if-range", etag) != etag:
        return FakeAnswer(200, file.content, headers)
    start, last = int(wanted[1]), min(int(wanted[2] or size - 1), size - 1)
    if start >= size or last < start:
        refusal = Refusal("range_not_satisfiable", "Ask for a range inside the file.").answer()
        return FakeAnswer(416, refusal.body, {**refusal.headers, "content-range": f"bytes */{size}"})
    part = {**headers, "content-range": f"bytes {start}-{last}/{size}"}
    return FakeAnswer(206, file.content[start : last + 1], part)
