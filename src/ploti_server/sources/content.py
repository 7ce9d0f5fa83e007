"""What a state's bytes are: gzip, text in some encoding, and which format, by content and never by name (D14.1)."""

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal, cast

from ploti_server.domain.states import StateUnreadable

BLOCK: Final = 1 << 20
MAX_DECODED_BYTES: Final = 16 << 30
"""A state's bytes at most, after decompression."""
SUSPECT_BYTES: Final = 100 << 20
MAX_RATIO: Final = 200
"""What a gzip of more than `SUSPECT_BYTES` may unpack to, as a multiple of its size."""

Format = Literal["json", "delimited"]

_GZIP: Final = b"\x1f\x8b"
_FOREIGN: Final[dict[bytes, str]] = {
    b"PK\x03\x04": "a zip archive or XLSX workbook",
    b"PK\x05\x06": "an empty zip archive",
    b"%PDF": "a PDF document",
    b"PAR1": "a Parquet file",
    b"SQLite format 3\x00": "a SQLite or GeoPackage file",
    b"\xd0\xcf\x11\xe0": "an old Office document",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"7z\xbc\xaf": "a 7z archive",
    b"fgb\x03": "a FlatGeobuf file",
    b"\x00\x00\x27\x0a": "a shapefile's .shp alone",
    b"ARROW1": "an Arrow file",
}
"""First bytes of formats that are known and not read here."""
READ_HERE: Final = "CSV, TSV, JSON, newline JSON and GeoJSON are read, also in gzip"

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Marks and encodings; UTF-32's little-endian mark begins with UTF-16's."""
FALLBACK_ENCODING: Final = "cp1252"
MIXED_ENCODING: Final = "utf-8+cp1252"
"""UTF-8 in which rows of another make were pasted: its stray bytes are read as cp1252."""


@dataclass(frozen=True)
class Content:
    """A state's text: how to read its bytes, and what they are. `encoding` is Python's name, `skip` a mark's bytes."""

    path: Path
    layers: int
    encoding: str
    skip: int

    def blocks(self) -> Iterator[bytes]:
        """Give the unpacked bytes in blocks, without a byte order mark; raises `StateUnreadable` for a cut gzip."""
        with _unpacked(self.path, self.layers) as stream:
            stream.read(self.skip)
            yield from _read(stream)

    def text(self) -> Iterator[str]:
        """Give the text in pieces."""
        decode = decoder(self.encoding)
        for block in self.blocks():
            yield decode(block, False)
        yield decode(b"", True)


def open_content(path: Path, declared: str | None = None) -> Content:
    """Look through a whole state once: that it has bytes, unpacks to its end, is text, and in which encoding.

    A mark at its start is believed before the encoding that is `declared`, and both before what the bytes look like.

    Raises `StateUnreadable` with the reason otherwise.
    """
    layers = _gzip_layers(path)
    head = _head(path, layers)
    _refuse_foreign(head, is_wide=(declared or "").startswith(("utf-16", "utf-32")))
    mark, encoding = next(((bom, name) for bom, name in _BOMS if head.startswith(bom)), (b"", declared or "utf-8"))
    content = Content(path, layers, encoding, len(mark))
    if not _decodes(content):
        if mark:
            raise StateUnreadable(f"the bytes are not the {encoding.upper()} text that their first bytes promise")
        if declared:
            raise StateUnreadable(
                f"the bytes are not the {encoding.upper()} text that the catalog declares: correct `source.encoding`,"
                " or leave it out and let it be found out"
            )
        return Content(path, layers, MIXED_ENCODING if _is_mostly_utf8(content) else FALLBACK_ENCODING, 0)
    return content


def format_of(content: Content) -> Format:
    """Tell the format from the first character that is no white space; raises `StateUnreadable` for markup."""
    for piece in content.text():
        start = piece.lstrip(" \t\r\n\x1e\ufeff\0")
        if start:
            if start[0] == "<":
                raise StateUnreadable(f"this is {_markup(start)}, not a table of records: {READ_HERE}")
            return "json" if start[0] in "{[" else "delimited"
    raise StateUnreadable("there is nothing in the state but white space")


def decoder(encoding: str) -> Callable[[bytes, bool], str]:
    """Give an incremental decoder; cp1252 takes its five unused bytes as control characters, as browsers do."""
    if encoding == FALLBACK_ENCODING:
        return lambda block, _: block.decode("latin-1").translate(_CP1252)
    if encoding == MIXED_ENCODING:
        return codecs.getincrementaldecoder("utf-8")(_STRAY).decode
    return codecs.getincrementaldecoder(encoding)().decode


_CP1252: Final = {
    byte: bytes([byte]).decode("cp1252") for byte in range(0x80, 0xA0) if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}
_STRAY: Final = "ploti-stray-cp1252"


def _stray(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1").translate(_CP1252), error.end


codecs.register_error(_STRAY, _stray)


def _gzip_layers(path: Path) -> int:
    if path.stat().st_size == 0:
        raise StateUnreadable("the state has no bytes")
    layers = 0
    while layers <= 2 and _head(path, layers).startswith(_GZIP):
        layers += 1
    if layers > 2:
        raise StateUnreadable("the state is gzip within gzip within gzip: unpack it at the source")
    return layers


def _head(path: Path, layers: int) -> bytes:
    with _unpacked(path, layers) as stream:
        try:
            return stream.read(4096)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise StateUnreadable(f"the gzip is cut off or damaged: {error}") from error


def _unpacked(path: Path, layers: int) -> BinaryIO:
    stream: BinaryIO = path.open("rb")
    for _ in range(layers):
        stream = cast("BinaryIO", gzip.GzipFile(fileobj=stream, mode="rb"))
    return stream


def _read(stream: BinaryIO) -> Iterator[bytes]:
    try:
        while block := stream.read(BLOCK):
            yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise StateUnreadable(f"the gzip is cut off or damaged: {error}") from error


def _refuse_foreign(head: bytes, *, is_wide: bool) -> None:
    if not head:
        raise StateUnreadable("there is nothing in the gzip")
    for mark, what in _FOREIGN.items():
        if head.startswith(mark):
            raise StateUnreadable(f"this is {what}: {READ_HERE}")
    if is_wide or head.startswith(tuple(mark for mark, _ in _BOMS)):
        return
    for place, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if head[place::2].count(0) > len(head) * 0.4 and head[1 - place :: 2].count(0) == 0:
            raise StateUnreadable(f"this reads like UTF-16 without its mark: declare `source.encoding`, as {name}")
    if head[0] < 9 or head.count(0) > max(8, len(head) // 20):
        raise StateUnreadable(f"this is not text: {READ_HERE}")


def _decodes(content: Content) -> bool:
    """Read to the end: whether every byte is text in the encoding; refuses what unpacks beyond measure."""
    decode = decoder(content.encoding)
    packed = content.path.stat().st_size
    unpacked, fits = 0, True
    for block in content.blocks():
        unpacked += len(block)
        _refuse_bomb(packed, unpacked, content.layers)
        if fits:
            try:
                decode(block, False)
            except UnicodeDecodeError:
                fits = False
    try:
        return fits and decode(b"", True) is not None
    except UnicodeDecodeError:
        return False


def _is_mostly_utf8(content: Content) -> bool:
    """Tell whether more characters beyond ASCII are whole in UTF-8 than bytes stray from it."""
    decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
    strays = whole = 0
    for block in content.blocks():
        piece = decode(block, False)
        strays += len(block) - len(piece.encode())
        whole += len(piece) - len(piece.encode("ascii", "ignore"))
    return whole > strays


def _refuse_bomb(packed: int, unpacked: int, layers: int) -> None:
    ratio = layers and unpacked > SUSPECT_BYTES and unpacked > MAX_RATIO * packed
    if unpacked > MAX_DECODED_BYTES or ratio:
        raise StateUnreadable(f"the state unpacks to more than {unpacked:,} bytes, more than is taken from one")


def _markup(start: str) -> str:
    head = start[:300].lower()
    if head.startswith(("<!doctype html", "<html")) or "<html" in head:
        return "a web page (often a portal's error page)"
    return "a GDAL virtual file, which would name another" if "vrtdatasource" in head else "XML"
