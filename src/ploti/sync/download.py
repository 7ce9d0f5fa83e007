"""A version's files fetched beside the target: resumed, checked, links renewed, never two builds mixed (D11.6).

A file is kept under its `sha256`, first as `<sha256>.partial`; only whole and checked bytes get the plain name, and one
that an earlier run left is checked again: the machine may have gone down before its disk had all of it.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

from ploti._client import Client
from ploti._download import Fetch, GivenUp
from ploti.contract.files import LINKS_PER_CALL, PART_BYTES
from ploti.contract.resources import FileLink, Schema, SignedFile, VersionFiles, VersionManifest
from ploti.errors import Reload
from ploti.sync.target import Delivery, Progress, Reach, StepRefused, reach_nothing

PART_BYTES_MOST: Final = 4 * PART_BYTES
"""No part is read beyond this, whatever the API announces."""
DOCUMENT_BYTES_MOST: Final = 64 * 1024 * 1024
"""The same for `schema.json` and `manifest.json`."""
_SHA256: Final = re.compile("[0-9a-f]{64}")

_SCHEMA_MEMBERS: Final = ("datasetId", "schemaVersion", "columns")
_MANIFEST_MEMBERS: Final = ("datasetId", "version", "rowCount", "files", "constants", "volatileColumns", "digest")

Wanted = Literal["snapshot", "changes"]


class BuildChanged(StepRefused):
    """The version was built again while it was being fetched; fetching it anew gives one whole build."""


@dataclass(frozen=True)
class Downloads:
    """Fetches versions into a folder; `sleep` and `clock` are in seconds."""

    client: Client
    folder: Path
    progress: Progress = field(default_factory=Progress)
    reach: Reach = reach_nothing
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def delivery(self, dataset_id: str, version: int, files: VersionFiles, wanted: Wanted) -> Delivery:
        """Fetch what a load or the changes of a version need.

        Raises StepRefused for files that are not what was announced, BuildChanged where the version was built again,
        RetryLater where the files cannot be had now, Reload where they are gone.
        """
        parts = files["snapshot"] if wanted == "snapshot" else [*files["changes"], *files["backfill"]]
        documents = [files["schema"], files["manifest"]]
        self.progress.began(dataset_id, wanted, sum(file["sizeBytes"] for file in parts))
        fetching = Fetching(self, dataset_id, version, {file["path"]: file for file in (*documents, *parts)})
        schema = cast(Schema, _document(fetching.get(files["schema"], DOCUMENT_BYTES_MOST), _SCHEMA_MEMBERS))
        manifest = cast(
            VersionManifest, _document(fetching.get(files["manifest"], DOCUMENT_BYTES_MOST), _MANIFEST_MEMBERS)
        )
        _check_documents(dataset_id, version, schema, manifest, parts)
        paths = {file["path"]: fetching.get(file, PART_BYTES_MOST) for file in parts}
        return Delivery(
            dataset_id=dataset_id,
            version=version,
            schema=schema,
            row_count=manifest["rowCount"],
            constants={} if wanted == "snapshot" else manifest["constants"],
            snapshot=_of_kind(paths, "snapshot"),
            changes=_of_kind(paths, "changes"),
            backfill=_of_kind(paths, "backfill"),
        )

    def id_map(self, dataset_id: str, version: int) -> tuple[Path, ...]:
        """Fetch the parts of a version's id map, which is kept past the version's retention (D12.3).

        Raises Reload where it is gone, as with a version that was released again.
        """
        sign = self.client.feeds.datasets.versions.links
        documents = sign(dataset_id, version, files=["manifest.json"])["files"]
        if not documents:
            raise Reload(f"The id map of version {version} is gone: load the current one.", code="expired")
        listed = self.manifest(dataset_id, version, _linked(documents[0]))["files"]
        names = [file["path"] for file in listed if file["path"].startswith("id-map/")]
        signed = [_linked(file) for file in sign(dataset_id, version, files=names)["files"]] if names else []
        if not names or len(signed) < len(names):
            raise Reload(f"The id map of version {version} is gone: load the current one.", code="expired")
        fetching = Fetching(self, dataset_id, version, {file["path"]: file for file in signed})
        return tuple(fetching.get(file, PART_BYTES_MOST) for file in signed)

    def manifest(self, dataset_id: str, version: int, file: FileLink) -> VersionManifest:
        """Fetch a version's `manifest.json` alone."""
        fetching = Fetching(self, dataset_id, version, {file["path"]: file})
        return cast(VersionManifest, _document(fetching.get(file, DOCUMENT_BYTES_MOST), _MANIFEST_MEMBERS))

    def drop(self, delivery: Delivery) -> None:
        """Remove the parts of a version that is in its table."""
        for path in delivery.paths:
            path.unlink(missing_ok=True)

    def drop_all(self) -> None:
        """Remove everything that was fetched."""
        if self.folder.exists():
            shutil.rmtree(self.folder)


@dataclass
class Fetching:
    """The files of one version on their way, with the links that hold now."""

    downloads: Downloads
    dataset_id: str
    version: int
    links: dict[str, FileLink]

    def get(self, file: FileLink, most: int) -> Path:
        """Give the path of a file's checked bytes, downloading what is missing."""
        sha256, size, path = file["sha256"], file["sizeBytes"], file["path"]
        if not _SHA256.fullmatch(sha256) or not 0 <= size <= most:
            raise StepRefused(f"{path} is announced with {size} bytes and sha256 {sha256!r}: refused")
        whole = self.downloads.folder / sha256
        fetch = Fetch(
            self.downloads.client.http,
            path,
            size,
            sha256,
            link=lambda: self.links[path]["url"],
            renew=self._renew,
            moved=self.downloads.progress.moved,
            sleep=self.downloads.sleep,
            clock=self.downloads.clock,
        )
        try:
            fetched = fetch.into(whole)
        except GivenUp as given_up:
            raise StepRefused(f"{path}: {given_up.problem.message}") from given_up
        if fetched:
            self.downloads.reach("sync.part_downloaded")
        return whole

    def _renew(self) -> None:
        """Ask for fresh links to every file that is not here yet; raises BuildChanged for other bytes."""
        missing = [path for path, link in self.links.items() if not (self.downloads.folder / link["sha256"]).exists()]
        versions = self.downloads.client.feeds.datasets.versions
        for start in range(0, len(missing), LINKS_PER_CALL):
            names = missing[start : start + LINKS_PER_CALL]
            for fresh in versions.links(self.dataset_id, self.version, files=names)["files"]:
                self._take(fresh)
        self.downloads.reach("sync.links_renewed")

    def _take(self, fresh: SignedFile) -> None:
        link = self.links.get(fresh["file"])
        if link is None:
            return
        if fresh["sha256"] != link["sha256"]:
            raise BuildChanged(f"version {self.version} was built again while it was fetched")
        link = cast(FileLink, {**link, "url": fresh["url"]})
        self.links[fresh["file"]] = link


def files_by_name(downloads: Downloads, dataset_id: str, version: int) -> VersionFiles:
    """Give links to a version's snapshot by name, where the version itself is past retention (D12.1).

    Raises Reload where the snapshot is gone too.
    """
    sign = downloads.client.feeds.datasets.versions.links
    documents = {
        file["file"]: file for file in sign(dataset_id, version, files=["schema.json", "manifest.json"])["files"]
    }
    if len(documents) < 2:
        raise Reload("The version is past retention: load the current one.", code="expired")
    manifest = downloads.manifest(dataset_id, version, _linked(documents["manifest.json"]))
    names = [file["path"] for file in manifest["files"] if file["path"].startswith("snapshot/")]
    parts: list[FileLink] = []
    for start in range(0, len(names), LINKS_PER_CALL):
        signed = sign(dataset_id, version, files=names[start : start + LINKS_PER_CALL])
        if signed["missing"]:
            raise Reload("The version's snapshot is past retention: load the current one.", code="expired")
        parts += [_linked(file) for file in signed["files"]]
    return {
        "snapshot": parts,
        "changes": [],
        "backfill": [],
        "idMap": [],
        "schema": _linked(documents["schema.json"]),
        "manifest": _linked(documents["manifest.json"]),
        "attachments": [],
        "expiresAt": "",
    }


def _linked(file: SignedFile) -> FileLink:
    return cast(FileLink, {**file, "path": file["file"]})


def _document(path: Path, members: Sequence[str]) -> dict[str, Any]:
    """Read a JSON document that was fetched and has these members."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as problem:
        raise StepRefused("schema.json or manifest.json of the version is not JSON") from problem
    if not isinstance(value, dict) or not all(member in value for member in members):
        raise StepRefused(f"schema.json or manifest.json of the version lacks one of {', '.join(members)}")
    return value


def _check_documents(
    dataset_id: str, version: int, schema: Schema, manifest: VersionManifest, parts: Sequence[FileLink]
) -> None:
    """Refuse documents of another version, and parts that the version manifest does not list: another build."""
    if manifest["datasetId"] != dataset_id or manifest["version"] != version or schema["datasetId"] != dataset_id:
        raise StepRefused(f"the files of version {version} are those of another version")
    listed = {file["path"]: file["sha256"] for file in manifest["files"]}
    if any(listed.get(part["path"]) != part["sha256"] for part in parts):
        raise BuildChanged(f"version {version} was built again while it was fetched")


def _of_kind(paths: dict[str, Path], kind: str) -> tuple[Path, ...]:
    return tuple(path for name, path in sorted(paths.items()) if name.startswith(f"{kind}/"))
