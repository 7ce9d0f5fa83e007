"""Files that are delivered with a dataset: their names, where they are read from, and when they changed (D5.9)."""

import mimetypes
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, urljoin, urlsplit

from ploti.contract.files import DOCUMENT_PREFIX

UNKNOWN_TYPE: Final = "application/octet-stream"
_WEB: Final = ("http", "https")
_TYPES: Final = mimetypes.MimeTypes(())
"""Python's own table, never the machine's: the same file has the same type everywhere."""
_UNSAFE: Final = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]')
_DEVICE: Final = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)", re.IGNORECASE)
_NAME_LONGEST: Final = 120
_TOLD_MOST: Final = 20


@dataclass(frozen=True)
class Attached:
    """An attachment of a version; `path` is where its bytes lie in the file store."""

    file: str
    filename: str
    content_type: str
    size_bytes: int
    sha256: str
    path: str


@dataclass(frozen=True)
class Copied:
    """What was last copied from an address, and what its server said to ask with whether that still holds."""

    sha256: str
    validator: str | None = None


@dataclass(frozen=True)
class Attachments:
    """The attachments of a version, as they are kept beside its files.

    `copies` goes by address. `left_out` says why an attachment, or the file of an address, could not be copied.
    """

    listed: tuple[Attached, ...] = ()
    copies: dict[str, Copied] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def named(self, sha256: str) -> Attached | None:
        """Find an attachment by its bytes."""
        return next((one for one in self.listed if one.sha256 == sha256), None)


def attachments_prefix(dataset_id: str) -> str:
    """Name the folder of a dataset's attachments, with the slash that ends it."""
    return f"{dataset_id}/attachments/"


def attachment_path(dataset_id: str, sha256: str, number: int, attempt: int) -> str:
    """Name the stored copy of some bytes that a build makes; later versions list the same one (D5.9)."""
    return f"{attachments_prefix(dataset_id)}{sha256}/{number}-{attempt}"


def document_name(sha256: str) -> str:
    """Give the name that the cells of a document column hold."""
    return DOCUMENT_PREFIX + sha256


def document_address(source: str, cell: str) -> str | None:
    """Give the address that a cell of a document column names beside its source; None where it names none.

    A cell comes from a stranger: it names a web address, or a file below the folder of a source that is a local file,
    no hidden one.
    """
    try:
        scheme = urlsplit(cell).scheme.lower()
        web = urlsplit(source).scheme.lower() in _WEB
    except ValueError:
        return None
    if scheme in _WEB:
        return cell
    if web:
        return urljoin(source, cell) if not scheme else None
    inside = PurePosixPath(cell)
    if not cell or "\0" in cell or "\\" in cell or inside.is_absolute():
        return None
    if any(part.startswith(".") for part in inside.parts):
        return None
    return str(PurePosixPath(source).parent / inside)


def is_web(address: str) -> bool:
    """Tell whether an address is read over the network."""
    return address[:8].lower().startswith(("http://", "https://"))


def filename_of(address: str) -> str:
    """Name a download after its address, in a way that is safe on every system (D8.7)."""
    path = unquote(urlsplit(address).path) if is_web(address) else address
    name = _UNSAFE.sub("_", path.replace("\\", "/").rstrip("/").rpartition("/")[2]).strip(". ")
    printable = "".join(character if character.isprintable() else "_" for character in name)
    if _DEVICE.match(printable):
        printable = f"_{printable}"
    stem, dot, ending = printable.rpartition(".")
    if len(printable) > _NAME_LONGEST and dot and len(ending) < 16:
        printable = stem[: _NAME_LONGEST - len(ending) - 1] + dot + ending
    return printable[:_NAME_LONGEST] or "file"


def content_type_of(filename: str) -> str:
    """Tell a file's type by its name."""
    return _TYPES.guess_type(filename.lower(), strict=True)[0] or UNKNOWN_TYPE


def in_wire_order(listed: Iterable[Attached]) -> tuple[Attached, ...]:
    """Order attachments by name, those of rows last; of several of one name the first stays."""
    found = {one.file: one for one in reversed(tuple(listed))}
    return tuple(sorted(found.values(), key=lambda one: (one.file.startswith(DOCUMENT_PREFIX), one.file)))


def told_of(attachments: Attachments) -> dict[str, object]:
    """Give the facts about attachments that staff see; nothing where there is nothing to tell."""
    shown = dict(sorted(attachments.left_out.items())[:_TOLD_MOST])
    facts = {"attachments": len(attachments.listed), "left_out": len(attachments.left_out), "left_out_because": shown}
    return facts if attachments.listed or attachments.left_out else {}


def have_changed(before: Attachments, now: Attachments) -> bool:
    """Tell whether a version is due for its attachments' sake; a file that could not be copied now makes none."""
    told = [{(a.file, a.sha256) for a in one.listed if a.file not in now.left_out} for one in (before, now)]
    return told[0] != told[1]
