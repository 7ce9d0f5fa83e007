"""Attachments in a folder: a folder for each dataset, files under safe names, an index of what each is (F079).

`FOLDER/<dataset>/attachments.json` names the version and each attachment's `file`, `path` and `sha256`: a row finds the
file that its cell names, `document:<sha256>`, there. Only files that the index names are ever replaced or removed.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

from ploti._client import Client
from ploti._download import download_file, has_sha256, safe_name
from ploti.contract.files import LINKS_PER_CALL
from ploti.contract.resources import AttachmentLink, FileLink, SignedFile
from ploti.errors import BadAnswer, NotDelivered, NotFound, PlotiError, Reload
from ploti.sync.perform import stops_all
from ploti.sync.plan import Held
from ploti.sync.target import Progress

INDEX: Final = "attachments.json"
_SHA256: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class AttachmentsReport:
    """What became of one dataset's folder; `problem` says why it is not up to date."""

    dataset_id: str
    version: int
    files: int = 0
    fetched: int = 0
    removed: int = 0
    problem: str | None = None


@dataclass(frozen=True)
class _Index:
    """What a dataset's folder holds of ours, `path` and `sha256` by attachment, and the version that it has whole."""

    version: int | None = None
    files: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def paths(self) -> dict[str, None]:
        """The names of our files, in order."""
        return {path: None for path, _ in self.files.values()}


def follow_attachments(
    client: Client, held: Iterable[Held], folder: Path, progress: Progress
) -> tuple[AttachmentsReport, ...]:
    """Bring a folder's attachments to the versions that a target holds; datasets that have them already are left out.

    One dataset's trouble is in its report; raises what concerns all alike, as an API out of reach.
    """
    reports: list[AttachmentsReport] = []
    for each in held:
        if each.version is None or not each.followed:
            continue
        place = folder / safe_name(each.dataset_id)
        index = _read_index(place)
        if index.version == each.version and all((place / name).is_file() for name in index.paths):
            continue
        try:
            listed = _listed(client, each.dataset_id, each.version)
            done = save_attachments(client, each.dataset_id, each.version, listed, place, progress=progress)
            if done != AttachmentsReport(each.dataset_id, each.version):
                reports.append(done)
        except (NotDelivered, NotFound, Reload) as gone:
            reports.append(AttachmentsReport(each.dataset_id, each.version, problem=gone.message))
    return tuple(reports)


def _listed(client: Client, dataset_id: str, version: int) -> Sequence[AttachmentLink]:
    """List a version's attachments; by name where it is the last of its MAJOR and past retention (D12.1)."""
    versions = client.feeds.datasets.versions
    try:
        return versions.get(dataset_id, version)["files"]["attachments"]
    except Reload:
        with TemporaryDirectory(prefix="ploti-") as folder:
            manifest: Any = json.loads(versions.download(dataset_id, version, "manifest.json", folder).read_bytes())
        names = [str(one["file"]) for one in manifest["attachments"]]
        found: list[AttachmentLink] = []
        for start in range(0, len(names), LINKS_PER_CALL):
            found += versions.links(dataset_id, version, files=names[start : start + LINKS_PER_CALL])["files"]
        if len(found) < len(names):
            raise
        return found


def save_attachments(
    client: Client,
    dataset_id: str,
    version: int,
    listed: Sequence[AttachmentLink],
    place: Path,
    *,
    progress: Progress,
    whole: bool = True,
) -> AttachmentsReport:
    """Have attachments in a folder, checked and under safe names.

    With `whole`, they are all that the version has, and what the folder has of another version goes.
    """
    place.mkdir(parents=True, exist_ok=True)
    index = _read_index(place)
    names = _names(listed, place, index)
    missing = [one for one in listed if not has_sha256(place / names[one["file"]], one["sha256"])]
    progress.began(dataset_id, "attachments", sum(one["sizeBytes"] for one in missing))
    try:
        problem = _fetch(client, dataset_id, version, [(one, place / names[one["file"]]) for one in missing], progress)
    finally:
        progress.ended()
    had = [one for one in listed if (place / names[one["file"]]).is_file()]
    got = {one["file"]: (names[one["file"]], one["sha256"]) for one in had}
    kept = _Index(version if whole and problem is None else None, got if whole else index.files | got)
    gone = [path for path in index.paths if path not in kept.paths]
    left = {file: told for file, told in index.files.items() if told[0] in gone and file not in kept.files}
    _write_index(place, replace(kept, version=None, files=left | kept.files))
    for path in gone:
        (place / path).unlink(missing_ok=True)
    _write_index(place, kept)
    return AttachmentsReport(dataset_id, version, len(had), len(missing), len(gone), problem)


def _fetch(
    client: Client, dataset_id: str, version: int, wanted: Iterable[tuple[AttachmentLink, Path]], progress: Progress
) -> str | None:
    """Download files; gives what was wrong with the first that could not be had."""
    problem: str | None = None
    for one, path in wanted:
        sign = partial(_sign, client, dataset_id, version, one["file"])
        try:
            download_file(client.http, sign, cast(FileLink, one), path, progress.moved)
        except PlotiError as trouble:
            if stops_all(trouble):
                raise
            problem = problem or f"{one['file']}: {trouble.message}"
    return problem


def _sign(client: Client, dataset_id: str, version: int, file: str) -> SignedFile:
    files = client.feeds.datasets.versions.links(dataset_id, version, files=[file])["files"]
    if not files:
        raise NotFound(f"Version {version} of {dataset_id} has no file {file!r} left.", code="not_found", field="file")
    return files[0]


def _names(listed: Sequence[AttachmentLink], place: Path, index: _Index) -> dict[str, str]:
    """Give each attachment a name of its own in the folder; a file of somebody else's keeps its name."""
    given: dict[str, str] = {}
    taken: dict[str, str] = {INDEX: ""}
    for one in listed:
        sha256 = one["sha256"]
        if not _SHA256.fullmatch(sha256):
            raise BadAnswer(f"The API gave {one['file']!r} the checksum {sha256!r}: report it.", code="bad_answer")
        plain = Path(safe_name(one["filename"]))
        for name in (plain.name, f"{plain.stem}-{sha256[:12]}{plain.suffix}", f"{sha256}{plain.suffix}"):
            free = taken.get(name.casefold(), sha256) == sha256
            path = place / name
            ours = name in index.paths or not path.exists() or has_sha256(path, sha256)
            if free and ours:
                break
        given[one["file"]] = name
        taken[name.casefold()] = sha256
    return given


def _read_index(place: Path) -> _Index:
    try:
        read: Any = json.loads((place / INDEX).read_text("utf-8"))
        files = {str(e["file"]): (str(e["path"]), str(e["sha256"])) for e in read["attachments"]}
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return _Index()
    return _Index(read.get("version"), {file: told for file, told in files.items() if safe_name(told[0]) == told[0]})


def _write_index(place: Path, index: _Index) -> None:
    """Replace the index at once."""
    entries = [{"file": file, "path": path, "sha256": sha256} for file, (path, sha256) in index.files.items()]
    written = place / f"{INDEX}.partial"
    written.write_text(json.dumps({"version": index.version, "attachments": entries}, indent=1), "utf-8")
    written.replace(place / INDEX)
