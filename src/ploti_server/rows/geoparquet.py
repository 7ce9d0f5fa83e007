"""Writer of a version's Parquet and GeoParquet parts: same rows in, same bytes out (D5.3, D5.4).

GeoParquet 1.1.0 with plain WKB, which every common reader opens; a box of each shape stands in `_ploti_bbox`.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyproj

from ploti.contract.files import (
    CHANGE,
    CHANGED_COLUMNS,
    DATASET_ID,
    DELETE_REASON,
    FETCHED_AT,
    GEOMETRY,
    MATCH,
    OP,
    PART_BYTES,
    PLACE_ID,
    RESERVED_PREFIX,
    ROW_GROUP_ROWS,
    SOURCE_URL,
    SRID,
    VERSION,
    FileKind,
    part_path,
)
from ploti_server.rows.wkb_bounds import boxes_and_kinds

BBOX: Final = "_ploti_bbox"
"""Last column of a file with shapes: each shape's box in float32, rounded outwards; null without a shape."""

GROUP_BYTES: Final = 32_000_000
"""Rows of one group hold so many bytes at most, so that whoever reads wide rows or large shapes needs little memory."""

_PLAIN_BYTES: Final = 8
"""What a value counts that is neither text nor bytes."""

_ZSTD_LEVEL: Final = 3
_SIDES: Final = ("xmin", "ymin", "xmax", "ymax")
_BBOX_TYPE: Final = pa.struct([pa.field(side, pa.float32(), nullable=False) for side in _SIDES])
_CONSTANTS: Final = (DATASET_ID, PLACE_ID, VERSION, SOURCE_URL, FETCHED_AT, OP, CHANGE, DELETE_REASON, MATCH)
_COLUMN_OVERHEAD: Final = 2_000
"""Bytes that a column takes in a row group beside its values, at most: page headers, statistics, footer entry."""


@dataclass(frozen=True)
class WrittenPart:
    """A finished local file; `path` is its name inside the version."""

    path: str
    local: Path
    size_bytes: int
    sha256: str
    rows: int


def write_parts(
    batches: Iterable[pa.RecordBatch],
    *,
    kind: FileKind,
    schema: pa.Schema,
    folder: Path,
    geometry_type: str | None,
    metadata: Mapping[str, str],
    part_bytes: int = PART_BYTES,
) -> tuple[WrittenPart, ...]:
    """Stream rows into the parts of one kind under `folder`, at least one part even without rows (D5.3, D5.4).

    Row groups have exactly `ROW_GROUP_ROWS` rows, fewer only where these hold more than `GROUP_BYTES`; a part ends
    before the group that could pass `part_bytes`. Raises `ValueError` where a batch has another schema or a shape
    another kind than `geometry_type` names.
    """
    groups = _groups(batches, schema)
    first = next(groups, schema.empty_table())
    layout = _Layout(kind, schema, folder, geometry_type, dict(metadata), _dictionary_columns(first))
    finished: list[WrittenPart] = []
    part = _Part(layout, 0)
    try:
        for group in chain([first] if first.num_rows else [], groups):
            if part.rows and part.size + _at_most(group) > part_bytes:
                finished.append(part.finish())
                part = _Part(layout, len(finished))
            part.write(group)
        finished.append(part.finish())
    finally:
        part.close()
    return tuple(finished)


@dataclass(frozen=True)
class _Layout:
    """What all parts of one kind have in common."""

    kind: FileKind
    schema: pa.Schema
    folder: Path
    geometry_type: str | None
    metadata: dict[str, str]
    dictionary_columns: list[str]

    @property
    def has_shapes(self) -> bool:
        return GEOMETRY in self.schema.names

    @property
    def file_schema(self) -> pa.Schema:
        return self.schema.append(self.box_field) if self.has_shapes else self.schema

    @property
    def box_field(self) -> "pa.Field[Any]":
        """The column of boxes, which may be null where shapes may, and only there."""
        return pa.field(BBOX, _BBOX_TYPE, nullable=self.schema.field(GEOMETRY).nullable)


class _Part:
    """One open part: its file, and the box and kinds of the shapes in it so far."""

    def __init__(self, layout: _Layout, number: int) -> None:
        self._layout = layout
        self._path = part_path(layout.kind, number)
        local = layout.folder / self._path
        local.parent.mkdir(parents=True, exist_ok=True)
        self._file = _HashedFile(local)
        self._writer = _open_writer(self._file, layout)
        self._groups = 0
        self._box = np.array([np.inf, np.inf, -np.inf, -np.inf])
        self._kinds: set[str] = set()
        self.rows = 0

    @property
    def size(self) -> int:
        """Bytes so far, with those that the footer will take."""
        return self._file.size + self._groups * len(self._layout.file_schema) * _COLUMN_OVERHEAD // 4

    def write(self, group: pa.Table) -> None:
        """Add one row group."""
        self._writer.write_table(self._with_boxes(group), row_group_size=max(group.num_rows, 1))
        self._groups += 1
        self.rows += group.num_rows

    def finish(self) -> WrittenPart:
        """Write the footer, wait until the disk has the file, and tell its size and hash."""
        metadata = dict(self._layout.metadata)
        if self._layout.has_shapes:
            metadata["geo"] = _geo(self._box, self._kinds)
        self._writer.add_key_value_metadata(metadata)
        self._writer.close()
        self._file.sync()
        return WrittenPart(self._path, self._file.path, self._file.size, self._file.sha256, self.rows)

    def close(self) -> None:
        """Let go of the file, finished or not."""
        self._file.close()

    def _with_boxes(self, group: pa.Table) -> pa.Table:
        if not self._layout.has_shapes:
            return group
        shapes: Any = group.column(GEOMETRY).chunk(0)
        boxes, kinds = boxes_and_kinds(shapes)
        self._note_kinds(kinds)
        there = ~np.isnan(boxes[:, 0])
        if there.any():
            low, high = boxes[there, :2].min(axis=0), boxes[there, 2:].max(axis=0)
            self._box = np.concatenate((np.minimum(self._box[:2], low), np.maximum(self._box[2:], high)))
        return group.append_column(self._layout.box_field, _covering(boxes, there))

    def _note_kinds(self, kinds: frozenset[str]) -> None:
        declared = self._layout.geometry_type
        if declared not in (None, "Geometry") and not kinds <= {declared}:
            raise ValueError(f"shapes of the kinds {', '.join(sorted(kinds))} in a column of {declared}")
        self._kinds |= kinds


def _open_writer(file: Any, layout: _Layout) -> pq.ParquetWriter:
    dictionary: Any = layout.dictionary_columns
    return pq.ParquetWriter(
        file,
        layout.file_schema,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=dictionary,
        write_statistics=_statistics_columns(layout.file_schema),
    )


class _HashedFile:
    """A local file that is hashed and counted while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._file = path.open("wb")
        self._hash = hashlib.sha256()

    @property
    def closed(self) -> bool:
        """Tell whether the file is finished or given up."""
        return self._file.closed

    @property
    def sha256(self) -> str:
        """Hash of the bytes so far, in hex."""
        return self._hash.hexdigest()

    def write(self, data: Any) -> int:
        """Append bytes; those that a given-up writer still sends are dropped."""
        view = memoryview(data)
        if self.closed:
            return view.nbytes
        self._hash.update(view)
        self._file.write(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Give the place of the next byte."""
        return self.size

    def flush(self) -> None:
        """Hand what is buffered to the system."""
        if not self.closed:
            self._file.flush()

    def sync(self) -> None:
        """Close the file once the disk has it."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Cut a stream of batches of any sizes into row groups, each in one piece."""
    held = schema.empty_table()
    for batch in batches:
        if not batch.schema.equals(schema):
            raise ValueError(f"a batch has the columns {batch.schema}, not those of the file")
        held = pa.concat_tables([held, pa.Table.from_batches([batch])])
        while rows := _complete_rows(held):
            yield held.slice(0, rows).combine_chunks()
            held = held.slice(rows)
    if held.num_rows:
        yield held.combine_chunks()


def _complete_rows(held: pa.Table) -> int:
    """Tell how many of the first rows make a whole group, 0 while more may come.

    Depends on the rows alone: their number, that of their columns, and the lengths of texts and shapes.
    """
    head = held.slice(0, ROW_GROUP_ROWS)
    plain = _PLAIN_BYTES * head.num_columns
    if head.nbytes + plain * head.num_rows > GROUP_BYTES:
        lengths = np.full(head.num_rows, plain, dtype=np.int64)
        for column in head.columns:
            if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
                lengths += np.asarray(_lengths(column))
        fitting = int(np.searchsorted(np.cumsum(lengths), GROUP_BYTES, side="right"))
        if fitting < head.num_rows:
            return max(fitting, 1)
    return head.num_rows if head.num_rows == ROW_GROUP_ROWS else 0


def _lengths(column: Any) -> Any:
    return pc.binary_length(column).fill_null(0).to_numpy()


def _at_most(group: pa.Table) -> int:
    """Bound a group's bytes in the file: what compression cannot shrink takes its plain size and the headers."""
    boxes = 17 * group.num_rows if GEOMETRY in group.column_names else 0
    return (group.nbytes + boxes) * 102 // 100 + (len(group.columns) + 4) * _COLUMN_OVERHEAD


def _dictionary_columns(first: pa.Table) -> list[str]:
    """Name the columns with a dictionary: envelope columns with few values, and own ones whose first group repeats.

    Own columns qualify when a value stands in eight rows or more on average, judged by the first row group, so the same
    rows always give the same choice.
    """
    named: list[str] = [name for name in _CONSTANTS if name in first.column_names]
    if CHANGED_COLUMNS in first.column_names:
        named.append(f"{CHANGED_COLUMNS}.list.element")
    own = [name for name in first.column_names if name != GEOMETRY and not name.startswith(RESERVED_PREFIX)]
    return named + [name for name in own if _repeats(first.column(name))]


def _repeats(column: Any) -> bool:
    if pa.types.is_boolean(column.type):
        return False
    return bool(pc.count_distinct(column, mode="all").as_py() * 8 <= len(column))


def _statistics_columns(schema: pa.Schema) -> list[str]:
    """Leave out shapes, whose bytes have no order that a reader could use."""
    plain = [field.name for field in schema if field.name not in (GEOMETRY, BBOX, CHANGED_COLUMNS)]
    return plain + [f"{BBOX}.{side}" for side in _SIDES if BBOX in schema.names]


def _covering(boxes: npt.NDArray[np.float64], there: npt.NDArray[np.bool_]) -> pa.StructArray:
    """Round boxes outwards to float32; null where there is no shape (D5.4)."""
    filled = np.where(there[:, None], boxes, 0.0)
    near = filled.astype(np.float32)
    low = np.where(near > filled, np.nextafter(near, np.float32(-np.inf)), near)
    high = np.where(near < filled, np.nextafter(near, np.float32(np.inf)), near)
    sides = [pa.array(values) for values in (low[:, 0], low[:, 1], high[:, 2], high[:, 3])]
    return pa.StructArray.from_arrays(sides, fields=list(_BBOX_TYPE), mask=pa.array(~there))


def _geo(box: npt.NDArray[np.float64], kinds: set[str]) -> str:
    """Write the GeoParquet metadata of one part; without a shape it has no box (D5.4)."""
    column: dict[str, Any] = {
        "encoding": "WKB",
        "geometry_types": sorted(kinds),
        "crs": _crs(),
        "covering": {"bbox": {side: [BBOX, side] for side in _SIDES}},
    }
    if kinds:
        column["bbox"] = [float(side) for side in box]
    return json.dumps({"version": "1.1.0", "primary_column": GEOMETRY, "columns": {GEOMETRY: column}})


@lru_cache(maxsize=1)
def _crs() -> dict[str, Any]:
    """Give EPSG:4326 as PROJJSON; GeoParquet has x before y, so lon/lat, whatever axis order a CRS names."""
    return dict(pyproj.CRS.from_epsg(SRID).to_json_dict())
