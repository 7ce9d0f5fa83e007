"""Signed links to a version's files, and the address that the API is reached under (D7.7, D8.6, D8.7)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from starlette.requests import Request

from ploti.contract import resources
from ploti.contract.files import LINK_SECONDS, FileKind
from ploti_server.adapters.links import LinkSigner
from ploti_server.api.kept import is_stored
from ploti_server.api.watch import Watch
from ploti_server.domain.attachments import Attached
from ploti_server.domain.settings import Settings
from ploti_server.domain.versions import StoredFile, Version
from ploti_server.domain.wire import wire_time
from ploti_server.pipeline.attach import attachments_of
from ploti_server.ports import Ports

LINK_LIFE = timedelta(seconds=LINK_SECONDS)


@dataclass(frozen=True)
class Context:
    """What every route works with."""

    ports: Ports
    settings: Settings
    signer: LinkSigner
    watch: Watch

    def base(self, request: Request) -> str:
        """Give the public address, by default the one that the request came to."""
        return self.settings.public_url or str(request.base_url).rstrip("/")

    def links(self, request: Request) -> "Links":
        """Open a set of links that expire together."""
        return Links(self, self.base(request), self.ports.clock.now() + LINK_LIFE)


@dataclass(frozen=True)
class Links:
    """Links made for one answer; all of them expire together."""

    context: Context
    base: str
    expires: datetime

    @cached_property
    def expires_at(self) -> str:
        """The moment of expiry in wire form."""
        return wire_time(self.expires)

    def file(self, folder: str, file: StoredFile) -> resources.FileLink:
        """Link one file of the version with this folder."""
        return {
            "path": file.path,
            "filename": file.filename,
            "contentType": file.content_type,
            "sizeBytes": file.size_bytes,
            "sha256": file.sha256,
            "url": self._signed(f"{folder}/{file.path}", file.filename, file.content_type),
        }

    def files(self, version: Version) -> resources.VersionFiles:
        """Link every file of a version; each kind is always there (D5.3)."""

        folder = version.folder

        def of(kind: FileKind) -> list[resources.FileLink]:
            return [self.file(folder, file) for file in version.files_of(kind)]

        return {
            "snapshot": of("snapshot"),
            "changes": of("changes"),
            "backfill": of("backfill"),
            "idMap": of("id-map"),
            "schema": of("schema")[0],
            "manifest": of("manifest")[0],
            "attachments": [self.attachment(one) for one in self._attached(version)],
            "expiresAt": self.expires_at,
        }

    def attachment(self, one: Attached) -> resources.AttachmentLink:
        """Link an attachment."""
        return {
            "file": one.file,
            "filename": one.filename,
            "contentType": one.content_type,
            "sizeBytes": one.size_bytes,
            "sha256": one.sha256,
            "url": self._signed(one.path, one.filename, one.content_type),
        }

    def _attached(self, version: Version) -> tuple[Attached, ...]:
        """Give a version's attachments, which it has as long as its snapshot (page 001)."""
        return attachments_of(self.context.ports.files, version).listed if version.files_of("snapshot") else ()

    def _signed(self, path: str, filename: str, content_type: str) -> str:
        url = self.context.ports.files.presigned(path, filename, content_type, LINK_SECONDS)
        return url or self.base + self.context.signer.sign(path, filename, content_type, self.expires)

    def named(self, version: Version, names: list[str]) -> resources.SignedFiles:
        """Link the files that are named, by path or as attachments; list names without one, or none left (page 001)."""
        store = self.context.ports.files
        known = {f.path: f for f in version.files if f.path in names and is_stored(store, version, f)}
        asked = {name for name in names if name not in known}
        attached = {a.file: a for a in (self._attached(version) if asked else ()) if a.file in asked}
        found: list[resources.SignedFile] = []
        for name in names:
            if name in known:
                link = self.file(version.folder, known[name])
                found.append(
                    {
                        "file": name,
                        "filename": link["filename"],
                        "contentType": link["contentType"],
                        "sizeBytes": link["sizeBytes"],
                        "sha256": link["sha256"],
                        "url": link["url"],
                    }
                )
            elif name in attached and store.stat(attached[name].path) is not None:
                found.append(self.attachment(attached[name]))
        given = {one["file"] for one in found}
        return {"files": found, "missing": [n for n in names if n not in given], "expiresAt": self.expires_at}
