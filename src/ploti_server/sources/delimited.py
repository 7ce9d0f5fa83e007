"""CSV and its kin: delimiter sniffed, every value as untyped text, ragged rows listed (D2.4, D5.7, D14.1)."""

import csv
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as arrow_csv

from ploti.contract.values import clean_text
from ploti_server.domain.columns import SourceColumn
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.states import StateUnreadable
from ploti_server.rows.raw import SHORT_ROW, Array, Kind, RawBatch, RawColumn, RawState, Reject
from ploti_server.sources.content import Content, decoder

DELIMITERS: Final = ",;\t|"
BATCH_ROWS: Final = 20_000
BLOCK_BYTES: Final = 4 << 20
MAX_BLOCK_BYTES: Final = 1 << 30
"""A row's bytes at most."""
MAX_HEADER: Final = 4 << 20
SHOWN: Final = 1_000
"""Characters of a rejected row that are kept for staff."""

_TOLD_DELIMITER: Final = re.compile(r"sep=([,;\t|])[ ;,\t|]*(?:\r\n|\n|\r)", re.IGNORECASE)
"""A first line that tells spreadsheets the delimiter."""

LONG_ROW: Final = "row has a value beyond the header: left out"

_TEXT: Final = frozenset({Kind.TEXT})


@dataclass(frozen=True)
class Layout:
    """How a delimited text is laid out; `body` is where the first row begins, in characters after the mark."""

    delimiter: str
    columns: tuple[SourceColumn, ...]
    body: int


def open_delimited(content: Content, _: Dataset) -> RawState:
    """Open a delimited text; raises `StateUnreadable` where there is no header or a quote is never closed."""
    layout = _layout(content)
    _refuse_broken_quotes(content, layout)
    return RawState(
        columns=layout.columns,
        batches=lambda: _batches(content, layout),
        encoding=content.encoding,
        format="delimited",
    )


def _layout(content: Content) -> Layout:
    head = ""
    for piece in content.text():
        head += piece
        if len(head) >= MAX_HEADER:
            break
    told = _TOLD_DELIMITER.match(head)
    delimiter = told[1] if told else _delimiter(head[: 1 << 18])
    stream = io.StringIO(head, newline="")
    stream.seek(told.end() if told else 0)
    header = _first_row(stream, delimiter)
    if header is None:
        raise StateUnreadable("there is no header line with column names")
    body = stream.tell()
    _refuse_title(header)
    if len(header) == 1 and not stream.read(1):
        raise StateUnreadable("the state is one line without columns: is it a message instead of the table?")
    return Layout(delimiter, _columns(header), body)


def _refuse_title(header: list[str]) -> None:
    """Refuse a first line with one text and empty cells beside it: the names stand below such a title."""
    named = [text for cell in header if (text := clean_text(cell))]
    if len(header) > 2 and len(named) == 1:
        raise StateUnreadable(
            f"the first line names one of {len(header)} columns ({named[0][:60]!r}): it reads like a title above the"
            " column names; give the file without it"
        )


def _first_row(stream: io.StringIO, delimiter: str) -> list[str] | None:
    csv.field_size_limit(MAX_BLOCK_BYTES)
    rows = csv.reader(stream, delimiter=delimiter)
    try:
        return next((row for row in rows if any(clean_text(cell) for cell in row)), None)
    except csv.Error as error:
        raise StateUnreadable(f"the header line cannot be read: {error}") from error


def _delimiter(head: str) -> str:
    """Choose the delimiter that cuts the first rows into the most columns, the same number in most of them."""
    best, best_score = ",", (0.0, 0)
    for delimiter in DELIMITERS:
        rows = [row for row in _some_rows(head, delimiter) if row]
        width = len(rows[0]) if rows else 1
        same = sum(len(row) == width for row in rows) / max(len(rows), 1)
        score = (round(same, 1), width) if width > 1 else (0.0, 0)
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _some_rows(head: str, delimiter: str, limit: int = 100) -> Iterator[list[str]]:
    csv.field_size_limit(MAX_BLOCK_BYTES)
    rows = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter)
    try:
        for _, row in zip(range(limit), rows, strict=False):
            yield row
    except csv.Error:
        return


def _columns(header: list[str]) -> tuple[SourceColumn, ...]:
    """Name the columns as the header does; a name that comes again is a column of its own (F026)."""
    times: dict[str, int] = {}
    columns = []
    for position, cell in enumerate(header, start=1):
        name = clean_text(cell) or ""
        times[name] = times.get(name, 0) + 1
        id_ = f"\0{position}" if not name else name if times[name] == 1 else f"{name}\0{times[name]}"
        columns.append(SourceColumn(id_, name, position))
    return tuple(columns)


@dataclass
class _Ragged:
    """Rows that have another number of values than the header, as Arrow's reader tells of them."""

    layout: Layout
    encoding: str
    numbers: list[int] = field(default_factory=list)
    kept: list[tuple[int, list[str]]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    missing: int = 0
    unclosed: int | None = None

    def __call__(self, row: Any) -> Literal["skip"]:
        """Note a row and skip it."""
        width = len(self.layout.columns)
        self.numbers.append(row.number)
        try:
            reader = csv.reader(io.StringIO(row.text, newline=""), delimiter=self.layout.delimiter, strict=True)
            cells = next(reader, [])
        except csv.Error:
            if self.unclosed is None and row.text.count('"') % 2:
                self.unclosed = row.number
            loose = csv.reader(io.StringIO(row.text, newline=""), delimiter=self.layout.delimiter)
            cells = next(loose, [])
        if len(cells) > width and any(clean_text(cell) for cell in cells[width:]):
            self.missing += 1
            self.rejects.append(Reject(row.number, None, LONG_ROW, row.text[:SHOWN]))
            return "skip"
        if len(cells) < width:
            self.rejects.append(Reject(row.number, None, SHORT_ROW, row.text[:SHOWN]))
        self.kept.append((row.number, (cells + [""] * width)[:width]))
        return "skip"

    def take(self) -> RawBatch | None:
        """Give what was noted since the last time."""
        if not self.kept and not self.rejects:
            return None
        kept, rejects, missing = self.kept, tuple(self.rejects), self.missing
        self.kept, self.rejects, self.missing = [], [], 0
        numbers = np.array([number for number, _ in kept], dtype=np.int64)
        texts: list[Array] = [
            pa.array([cells[i] or None for _, cells in kept], pa.string()) for i in range(len(self.layout.columns))
        ]
        return _raw_batch(self.layout, numbers, texts, rejects, missing)


def _batches(content: Content, layout: Layout) -> Iterator[RawBatch]:
    """Read all rows; a row longer than a block is read again with larger blocks."""
    block_bytes, given = BLOCK_BYTES, 0
    while True:
        ragged = _Ragged(layout, content.encoding)
        try:
            for batch in _read(content, layout, ragged, block_bytes, given):
                given = max(given, int(batch.numbers.max())) if len(batch.numbers) else given
                yield batch
            return
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise StateUnreadable(f"the rows cannot be read: {error}") from error
            block_bytes *= 8
            if block_bytes > MAX_BLOCK_BYTES:
                raise StateUnreadable("a row is larger than 1 GB: is a quote never closed?") from error


def _read(content: Content, layout: Layout, ragged: _Ragged, block_bytes: int, given: int) -> Iterator[RawBatch]:
    """Read rows after number `given` with one size of block."""
    body: Any = _Body(content, layout.body)
    if body.at_end:
        return
    names = [column.id for column in layout.columns]
    reader = arrow_csv.open_csv(
        body,
        read_options=arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=block_bytes),
        parse_options=arrow_csv.ParseOptions(
            delimiter=layout.delimiter, newlines_in_values=True, invalid_row_handler=ragged
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
        ),
    )
    numbering = _Numbering()
    for batch in reader:
        numbers = numbering.next(batch.num_rows, ragged.numbers)
        yield from _pieces(layout, numbers, batch.columns, given)
        if (noted := _after(ragged.take(), given)) is not None:
            yield noted
        _refuse_unclosed(ragged)
    if (noted := _after(ragged.take(), given)) is not None:
        yield noted
    _refuse_unclosed(ragged)


def _after(batch: RawBatch | None, given: int) -> RawBatch | None:
    """Leave out of a batch of ragged rows what was given before."""
    if batch is None or given == 0:
        return batch
    keep = batch.numbers > given
    columns = {
        id_: RawColumn(column.text.filter(pa.array(keep)), column.kinds) for id_, column in batch.columns.items()
    }
    rejects = tuple(reject for reject in batch.rejects if reject.row > given)
    missing = sum(reject.reason == LONG_ROW for reject in rejects)
    return RawBatch(batch.numbers[keep], columns, rejects=rejects, missing=missing)


def _refuse_unclosed(ragged: _Ragged) -> None:
    if ragged.unclosed is not None:
        raise StateUnreadable(f"a quote that opens in row {ragged.unclosed} is never closed: what follows is lost")


def _pieces(layout: Layout, numbers: npt.NDArray[np.int64], texts: list[Array], given: int) -> Iterator[RawBatch]:
    start = int(np.searchsorted(numbers, given, side="right"))
    for first in range(start, len(numbers), BATCH_ROWS):
        part = slice(first, first + BATCH_ROWS)
        yield _raw_batch(layout, numbers[part], [text[part] for text in texts])


def _raw_batch(
    layout: Layout,
    numbers: npt.NDArray[np.int64],
    texts: list[Array],
    rejects: tuple[Reject, ...] = (),
    missing: int = 0,
) -> RawBatch:
    columns = {column.id: RawColumn(text, _TEXT) for column, text in zip(layout.columns, texts, strict=True)}
    return RawBatch(numbers, columns, rejects=rejects, missing=missing)


@dataclass
class _Numbering:
    """Gives each whole row its number in the source, with the ragged rows counted."""

    reached: int = 0
    passed: int = 0

    def next(self, rows: int, ragged: list[int]) -> npt.NDArray[np.int64]:
        ahead = np.array(ragged[self.passed :], dtype=np.int64)
        numbers = np.arange(self.reached + 1, self.reached + 1 + rows + len(ahead), dtype=np.int64)
        numbers = numbers[~np.isin(numbers, ahead)][:rows]
        if rows:
            self.reached = int(numbers[-1])
        self.passed += int((ahead < self.reached).sum())
        return numbers


class _Body(io.RawIOBase):
    """The rows' text as UTF-8 bytes, from a place after the header on."""

    def __init__(self, content: Content, start: int) -> None:
        super().__init__()
        self._blocks = _utf8(content, start)
        self._rest = memoryview(b"")
        self.at_end = not self._fill()

    def _fill(self) -> bool:
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return False
            self._rest = memoryview(block)
        return True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Give the next bytes, fewer than asked for only at the end."""
        parts = []
        while (size < 0 or size > 0) and self._fill():
            part = self._rest if size < 0 else self._rest[:size]
            parts.append(part)
            self._rest = self._rest[len(part) :]
            size -= len(part) if size > 0 else 0
        return b"".join(parts)


def _utf8(content: Content, start: int) -> Iterator[bytes]:
    if content.encoding == "utf-8":
        yield from _bytes_after(content, start)
        return
    for piece in content.text():
        if start < len(piece):
            yield piece[start:].encode("utf-8", "replace")
        start = max(0, start - len(piece))


def _bytes_after(content: Content, start: int) -> Iterator[bytes]:
    """Give the bytes after a number of characters, decoding no more than these."""
    decode = decoder("utf-8")
    for block in content.blocks():
        if start == 0:
            yield block
            continue
        piece = decode(block, False)
        if start < len(piece):
            yield block[len(block) - len(piece[start:].encode()) - _pending(block) :]
            start = 0
        else:
            start -= len(piece)


def _pending(block: bytes) -> int:
    """Count the bytes of a character that is cut at a block's end."""
    for length in range(1, min(4, len(block)) + 1):
        byte = block[-length]
        if byte >= 0xC0:
            need = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return length if need > length else 0
        if byte < 0x80:
            return 0
    return 0


def _refuse_broken_quotes(content: Content, layout: Layout) -> None:
    """Refuse a text in which a quote that is never closed, or closed in the wrong row, would merge rows.

    Where quotes open and close in pairs nothing is looked at closer.
    """
    if not content.encoding.startswith(("utf-16", "utf-32")) and _quotes_pair(content, layout):
        return
    csv.field_size_limit(MAX_BLOCK_BYTES)
    lines = _Lines(content)
    rows = csv.reader(lines, delimiter=layout.delimiter, strict=True)
    before = 0
    while True:
        before = lines.given
        try:
            next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            at_end = "unexpected end" in str(error)
            if at_end or lines.given > before + 1:
                raise StateUnreadable(
                    f"a quote that opens in line {before + 1} is not closed in its row: rows would run together"
                ) from error


class _Lines:
    """Lines of a text, counted; line ends stay."""

    def __init__(self, content: Content) -> None:
        self._pieces = content.text()
        self._lines: list[str] = []
        self._cut = ""
        self.given = 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        while not self._lines:
            piece = next(self._pieces, None)
            if piece is None:
                if not self._cut:
                    raise StopIteration
                self._lines, self._cut = [self._cut], ""
            else:
                lines = io.StringIO(self._cut + piece, newline="").readlines()
                self._cut = lines.pop() if lines else ""
                self._lines = lines[::-1]
        self.given += 1
        return self._lines.pop()


def _quotes_pair(content: Content, layout: Layout) -> bool:
    """Tell whether as many quotes stand after a delimiter or line end as before one, and their number is even."""
    opens = closes = total = 0
    edges = np.zeros(256, dtype=np.bool_)
    edges[[ord(layout.delimiter), 10, 13]] = True
    carried = b"\n"
    for block in itertools.chain(content.blocks(), [b"\n"]):
        data = np.frombuffer(carried + block, dtype=np.uint8)
        places = np.flatnonzero(data[1:-1] == 34) + 1
        total += len(places)
        opens += int(edges[data[places - 1]].sum())
        closes += int(edges[data[places + 1]].sum())
        carried = data[-2:].tobytes()
    return total % 2 == 0 and opens == closes
