"""Copies a dataset's attachments for a build, and names documents in its rows (D5.9).

One stored copy serves every version that lists the same bytes. A copy that cannot be had leaves its file out; a row
whose document was copied before keeps that one's name, so that no row flaps.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute

from ploti_server.domain.attachments import (
    Attached,
    Attachments,
    Copied,
    attachment_path,
    attachments_prefix,
    content_type_of,
    document_address,
    document_name,
    filename_of,
    in_wire_order,
    is_web,
)
from ploti_server.domain.columns import find_column
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.versions import ATTACHMENTS_FILE, Version, VersionStatus
from ploti_server.ports import CopyFailed, Files, Ports
from ploti_server.rows.raw import Array, RawBatch, RawState

AT_ONCE: Final = 8
"""Files that one build copies at a time."""


def attachments_of(files: Files, version: Version | None) -> Attachments:
    """Read which attachments a version has; none where nothing is kept of them."""
    if version is None or all(file.path != ATTACHMENTS_FILE for file in version.staff_files):
        return Attachments()
    try:
        return msgspec.json.decode(b"".join(files.read(f"{version.folder}/{ATTACHMENTS_FILE}")), type=Attachments)
    except FileNotFoundError:
        return Attachments()


def attach(
    ports: Ports, dataset: Dataset, version: Version, before: Attachments, raw: RawState, *, folder: Path
) -> tuple[RawState, Attachments]:
    """Copy the files of a dataset and of its rows; gives the state with the names of documents in their cells.

    `before` is what the version has that is followed.
    """
    columns = [column.id for name in dataset.documents if (column := find_column(raw.columns, name)) is not None]
    if not columns and not dataset.attachments:
        return raw, Attachments()
    cells = _cells(raw, columns, dataset.source.url, ports.rehearsed or ports.home)
    expected = {one.url: one.sha256 for one in dataset.attachments if one.sha256 is not None}
    copying = _Copying(ports, version, before, expected, folder)
    with ThreadPoolExecutor(AT_ONCE, "copies") as pool:
        addresses = sorted({*cells.values(), *(one.url for one in dataset.attachments)})
        tried = dict(zip(addresses, pool.map(copying.copy, addresses), strict=True))
    listed, left_out = _named(dataset, tried)
    names: dict[str, str] = {}
    for cell, address in sorted(cells.items()):
        got = tried[address]
        if got.problem is not None:
            left_out[address] = got.problem
        if got.bytes is not None:
            names[cell] = document_name(got.bytes.sha256)
            listed.append(replace(got.bytes, file=names[cell]))
    copies = {address: got.copied for address, got in tried.items() if got.copied is not None}
    state = replace(raw, batches=lambda: _with_names(raw, columns, names)) if names else raw
    return state, Attachments(in_wire_order(listed), copies, left_out)


@dataclass(frozen=True)
class _Tried:
    """What became of one address: the bytes that are delivered for it, and why they are not fresh ones."""

    bytes: Attached | None = None
    copied: Copied | None = None
    problem: str | None = None


@dataclass(frozen=True)
class _Copying:
    """Copies addresses for one build."""

    ports: Ports
    version: Version
    before: Attachments
    expected: Mapping[str, str]
    folder: Path

    def copy(self, address: str) -> _Tried:
        """Copy an address into the file store, unless its bytes are there."""
        known = self.before.copies.get(address)
        kept = self._kept(known)
        target = self.folder / f"copy-{sha256(address.encode(errors='surrogatepass')).hexdigest()}"
        try:
            is_same = known is not None and kept is not None and self.expected.get(address, kept.sha256) == kept.sha256
            validator = self.ports.copier.copy(address, target, known.validator if known and is_same else None)
            if not target.exists():
                return _Tried(kept, known)
            with target.open("rb") as file:
                digest = file_digest(file, "sha256").hexdigest()
            if self.expected.get(address, digest) != digest:
                raise CopyFailed(f"the copy has sha256 {digest}, not the one that the catalog tells")
            size = target.stat().st_size
            path = self._stored(digest, size, target)
        except CopyFailed as failed:
            return _Tried(kept, known if kept else None, str(failed))
        finally:
            target.unlink(missing_ok=True)
        filename = filename_of(address)
        attached = Attached("", filename, content_type_of(filename), size, digest, path)
        return _Tried(attached, Copied(digest, validator))

    def _kept(self, known: Copied | None) -> Attached | None:
        found = self.before.named(known.sha256) if known is not None else None
        return found if found is not None and self._is_stored(found.path, found.size_bytes) else None

    def _is_stored(self, path: str, size: int) -> bool:
        stat = self.ports.files.stat(path)
        return stat is not None and stat.size_bytes == size

    def _stored(self, digest: str, size: int, local: Path) -> str:
        """Give where these bytes lie: the copy that a kept version lists, put back where it was lost, or a new one."""
        listed = self.before.named(digest) or _listed_by_others(self.ports, self.version.dataset_id, digest)
        if listed is not None and self._is_stored(listed.path, size):
            return listed.path
        path = attachment_path(self.version.dataset_id, digest, self.version.number, self.version.attempt)
        if listed is not None and self.ports.files.stat(listed.path) is None:
            path = listed.path
        if self.ports.files.stat(path) is None:
            self.ports.files.put(path, local)
            self.ports.reach("build.copy_stored")
        return path


def _listed_by_others(ports: Ports, dataset_id: str, sha256: str) -> Attached | None:
    """Find bytes among the attachments of any version that still keeps them; looked for only where they are stored."""
    if next(iter(ports.files.paths(f"{attachments_prefix(dataset_id)}{sha256}/")), None) is None:
        return None
    with ports.store.read() as records:
        versions = records.versions.in_status(dataset_id, (VersionStatus.RELEASED, VersionStatus.HELD))
    kept = (attachments_of(ports.files, v) for v in reversed(versions) if "snapshot" not in v.expired)
    return next((found for one in kept if (found := one.named(sha256)) is not None), None)


def _named(dataset: Dataset, tried: Mapping[str, _Tried]) -> tuple[list[Attached], dict[str, str]]:
    """Give the catalog's own attachments; one that could not be copied now is left out."""
    listed: list[Attached] = []
    left_out: dict[str, str] = {}
    for one in dataset.attachments:
        got = tried[one.url]
        if got.bytes is None or got.problem is not None:
            left_out[one.file] = got.problem or ""
        else:
            listed.append(replace(got.bytes, file=one.file))
    return listed, left_out


def _cells(raw: RawState, columns: Sequence[str], source: str, home: Path) -> dict[str, str]:
    """Give the address of each cell that names one."""
    texts = {text for batch in raw.batches() for id_ in columns for text in _distinct(batch, id_)}
    found = ((text, document_address(source, text.strip())) for text in texts)
    return {text: address for text, address in found if address is not None and _is_open(address, source, home)}


def _is_open(address: str, source: str, home: Path) -> bool:
    """Tell whether a cell may name a file, wherever links lead: below the source's folder, and none of the server's.

    Nor the source itself, which has the columns that are kept back.
    """
    if is_web(address):
        return True
    file, itself, folder, own = (
        Path(os.path.realpath(place)) for place in (address, source, Path(source).parent, home)
    )
    return file.is_relative_to(folder) and not file.is_relative_to(own) and file != itself


def _distinct(batch: RawBatch, id_: str) -> Iterable[str]:
    values: list[str | None] = pa.compute.unique(batch.column(id_).text).to_pylist()
    return [value for value in values if value]


def _with_names(raw: RawState, columns: Sequence[str], names: Mapping[str, str]) -> Iterator[RawBatch]:
    for batch in raw.batches():
        given = {id_: batch.columns[id_] for id_ in columns if id_ in batch.columns}
        named = {id_: replace(column, text=_replaced(column.text.to_pylist(), names)) for id_, column in given.items()}
        yield replace(batch, columns=batch.columns | named)


def _replaced(values: list[str | None], names: Mapping[str, str]) -> Array:
    return pa.array([None if value is None else names.get(value, value) for value in values], pa.string())
