"""Vertices of polygons in well-known text, read column by column where the text is plain (D3)."""

import io
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as arrow_csv

from ploti_server.rows.raw import Array
from ploti_server.rows.text import bytes_of, pc

_PREFIXES: Final = ("POLYGON ((", "POLYGON((", "MULTIPOLYGON (((", "MULTIPOLYGON(((")
_SMALLEST: Final = 4
"""Vertices of a closed ring, at least."""


@dataclass(frozen=True)
class TextRings:
    """Closed rings of finite vertices in a row, how many vertices each has, and the row of each in the batch."""

    rows: npt.NDArray[np.intp]
    vertices: npt.NDArray[np.float64]
    sizes: npt.NDArray[np.intp]


def rings_of_text(texts: Array) -> TextRings:
    """Read the polygons of one part and one ring that are written as the first text of a batch is.

    Text is left out where it is written in another way or wrong: a reader of all well-known text has to look at it.
    """
    first = next((text.as_py() for text in texts if text.is_valid), "")
    prefix = next((prefix for prefix in _PREFIXES if first.startswith(prefix)), None)
    if prefix is None:
        return _NO_RINGS
    rows = _rows_like(texts, prefix)
    rings = _read_rings(texts, rows, prefix)
    if rings is None:
        rows = np.intersect1d(rows, _rows_of_one_ring(texts, prefix), assume_unique=True)
        rings = _read_rings(texts, rows, prefix)
    return rings or _NO_RINGS


_NO_RINGS: Final = TextRings(np.empty(0, dtype=np.intp), np.empty((0, 2)), np.empty(0, dtype=np.intp))


def _rows_like(texts: Array, prefix: str) -> npt.NDArray[np.intp]:
    """Find the rows with the outer brackets of the first text."""
    return _rows_where(pc.and_(pc.starts_with(texts, prefix), pc.ends_with(texts, ")" * prefix.count("("))))


def _rows_of_one_ring(texts: Array, prefix: str) -> npt.NDArray[np.intp]:
    """Find the rows with as many brackets as one ring needs."""
    opening, closing = (pc.equal(pc.count_substring(texts, bracket), prefix.count("(")) for bracket in "()")
    return _rows_where(pc.and_(opening, closing))


def _rows_where(mask: Array) -> npt.NDArray[np.intp]:
    return np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))


def _read_rings(texts: Array, rows: npt.NDArray[np.intp], prefix: str) -> TextRings | None:
    """Read these rows as closed rings; None where one of them is no list of pairs."""
    if not len(rows):
        return None
    chosen = texts if len(rows) == len(texts) else texts.take(pa.array(rows, pa.int64()))
    sizes = _commas(chosen) + 1
    vertices = _vertices(chosen, prefix)
    if vertices is None or len(vertices) != sizes.sum():
        return None
    begins = np.cumsum(sizes) - sizes
    good = (sizes >= _SMALLEST) & (vertices[begins] == vertices[begins + sizes - 1]).all(axis=1)
    if not np.isfinite(vertices).all():
        good &= np.logical_and.reduceat(np.isfinite(vertices).all(axis=1), begins)
    if good.all():
        return TextRings(rows, vertices, sizes)
    return TextRings(rows[good], vertices[np.repeat(good, sizes)], sizes[good])


def _commas(texts: Array) -> npt.NDArray[np.intp]:
    data, starts, ends = bytes_of(texts)
    commas = np.flatnonzero(data == ord(","))
    return np.searchsorted(commas, ends) - np.searchsorted(commas, starts)


def _vertices(texts: Array, prefix: str) -> npt.NDArray[np.float64] | None:
    """Read `x y` pairs as lines of a table; None where a pair is written otherwise than the first."""
    depth = prefix.count("(")
    spaced = ", " in texts[0].as_py()
    inner = pc.binary_slice(texts.cast(pa.binary()), len(prefix) - spaced, -depth)
    one = pa.ListArray.from_arrays(pa.array([0, len(inner)], pa.int32()), inner)
    lines = bytes(pc.binary_join(one, b",")[0].as_buffer()).translate(_LINES)
    names = [*(["before"] if spaced else []), "x", "y"]
    types: dict[str, Any] = {"before": pa.null(), "x": pa.float64(), "y": pa.float64()}
    try:
        read = arrow_csv.read_csv(
            io.BytesIO(lines),
            read_options=arrow_csv.ReadOptions(column_names=names, use_threads=False),
            parse_options=arrow_csv.ParseOptions(delimiter=" ", quote_char=False),
            convert_options=arrow_csv.ConvertOptions(column_types=types, null_values=[""]),
        )
    except pa.ArrowInvalid:
        return None
    if read["x"].null_count or read["y"].null_count:
        return None
    return np.column_stack([read[side].to_numpy() for side in ("x", "y")])


_LINES: Final = bytes.maketrans(b"(,", b" \n")
