"""One batch of a state into delivered columns: types, text, shapes, and what cannot be delivered (D2, D3, D5.7).

A pure function of the batch and the plan; an engine maps it over all batches.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from ploti.contract.files import GEOMETRY
from ploti.contract.values import ColumnType
from ploti_server.rows.curves import shapes_from_wkt
from ploti_server.rows.geometry import Shapes, normalise_points, normalise_shapes, normalise_text, promote
from ploti_server.rows.raw import Array, RawBatch
from ploti_server.rows.text import clean, pc
from ploti_server.rows.types import ARROW_TYPES, Held, fit, hold

ROW: Final = "_ploti_row"
HILBERT: Final = "_ploti_hilbert"
SHOWN: Final = 1_000
"""Characters of a value that are kept with a reject."""

_REJECT_FIELDS: Final[list[tuple[str, Any]]] = [
    ("row", pa.int64()),
    ("column", pa.string()),
    ("reason", pa.string()),
    ("value", pa.string()),
]
REJECTS: Final = pa.schema(_REJECT_FIELDS)
BROKEN_WKT: Final = "well-known text cannot be read"


@dataclass(frozen=True)
class PlannedColumn:
    """A delivered column: where its values come from (None for none, all null), and as what they are read.

    A `declared` type takes any spelling and never misfits (D2.3).
    """

    name: str
    type: ColumnType
    source_id: str | None
    declared: bool = False


@dataclass(frozen=True)
class PlannedShapes:
    """Where shapes come from: the source's own, or columns by source id. `kind` is the pinned kind, if any."""

    x: str | None = None
    y: str | None = None
    wkt: str | None = None
    crs: tuple[str, ...] = ()
    repair: bool = True
    kind: str | None = None


@dataclass(frozen=True)
class Plan:
    """How a state is delivered. `unnamed` are nameless columns left out because they hold nothing (D2.1)."""

    columns: tuple[PlannedColumn, ...]
    zone: str
    shapes: PlannedShapes | None = None
    unnamed: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of what `normalise` gives."""
        fields: list[tuple[str, Any]] = [(ROW, pa.int64())]
        if self.shapes is not None:
            fields.append((HILBERT, pa.int64()))
        return pa.schema(fields + [(column.name, ARROW_TYPES[column.type]) for column in self.columns])


@dataclass(frozen=True)
class Normalised:
    """A delivered batch. `misfits` are columns whose type does not hold the batch: then the rest counts for nothing."""

    batch: pa.RecordBatch
    rejects: pa.RecordBatch
    misfits: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()
    repaired: int = 0
    missing: int = 0


@dataclass
class _Rejects:
    """Rejects of a batch on their way into columns."""

    rows: list[int]
    columns: list[str | None]
    reasons: list[str]
    values: list[str | None]

    def add(self, row: int, column: str | None, reason: str, value: str | None) -> None:
        self.rows.append(row)
        self.columns.append(column)
        self.reasons.append(reason)
        self.values.append(value and value[:SHOWN])

    def table(self) -> pa.RecordBatch:
        return pa.record_batch([self.rows, self.columns, self.reasons, self.values], schema=REJECTS)


def normalise(raw: RawBatch, plan: Plan) -> Normalised:
    """Deliver one batch; raises `UndeclaredCrs` or `UnknownCrs` for shapes that cannot be placed (D3.3)."""
    rejects = _Rejects([], [], [], [])
    for given in raw.rejects:
        rejects.add(given.row, given.column, given.reason, given.value)
    misfits = [id_ for id_ in plan.unnamed if pc.any(clean(raw.column(id_).text).is_valid()).as_py()]
    delivered: dict[str, Array] = {ROW: pa.array(raw.numbers)}
    for column in plan.columns:
        if column.type == "geometry":
            continue
        held = _read_column(raw, column, plan.zone)
        delivered[column.name] = held.values
        if column.declared:
            _list_cells(raw, column, held, rejects)
        elif not held.whole:
            misfits.append(column.name)
    if misfits:
        return Normalised(_empty(plan), rejects.table(), tuple(misfits))
    if plan.shapes is None:
        return Normalised(_in_order(delivered, plan), rejects.table(), missing=raw.missing)
    placed = _placed(raw, plan, delivered, rejects)
    delivered[GEOMETRY] = promote(placed.wkb, plan.shapes.kind)
    delivered[HILBERT] = placed.hilbert
    batch = _in_order(delivered, plan)
    return Normalised(batch, rejects.table(), (), placed.kinds, placed.repaired, raw.missing)


def has_multipoints(raw: RawBatch, planned: PlannedShapes) -> bool:
    """Tell whether a batch has a multipoint, or a collection that may become one."""
    shapes = _shapes(raw, planned, _Rejects([], [], [], []))
    return bool(np.isin(shapely.get_type_id(shapes), _MULTIPOINT_OR_COLLECTION).any())


def kinds_of_shapes(raw: RawBatch, planned: PlannedShapes) -> frozenset[str]:
    """Give the kinds that a batch's shapes are delivered as."""
    return _placed_shapes(raw, planned, _Rejects([], [], [], []))[0].kinds


_MULTIPOINT_OR_COLLECTION: Final = (4, 7)


def _read_column(raw: RawBatch, column: PlannedColumn, zone: str) -> Held:
    if column.source_id is None:
        rows = len(raw.numbers)
        return Held(pa.nulls(rows, ARROW_TYPES[column.type]), np.zeros(rows, dtype=np.bool_))
    read = fit if column.declared else hold
    return read(raw.column(column.source_id), column.type, zone)


def _list_cells(raw: RawBatch, column: PlannedColumn, held: Held, rejects: _Rejects) -> None:
    """List the cells that a declared type cannot hold."""
    if held.whole or column.source_id is None:
        return
    text = raw.column(column.source_id).text
    for index in np.flatnonzero(held.misfits):
        value = text[int(index)].as_py()
        rejects.add(int(raw.numbers[index]), column.name, f"value is no {column.type}: left empty", value)


def _in_order(delivered: dict[str, Array], plan: Plan) -> pa.RecordBatch:
    return pa.record_batch([delivered[name] for name in plan.schema.names], schema=plan.schema)


def _empty(plan: Plan) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(0, field.type) for field in plan.schema], schema=plan.schema)


def _placed(raw: RawBatch, plan: Plan, delivered: Mapping[str, Array], rejects: _Rejects) -> Shapes:
    """Place a batch's shapes and list those that have no place."""
    planned = plan.shapes or PlannedShapes()
    if planned.wkt is None and planned.x is not None and planned.y is not None:
        x, y = (_coordinate(raw, plan, id_, delivered) for id_ in (planned.x, planned.y))
        placed = normalise_points(x, y, planned.crs)
        shown = [_shown(shapely.Point(x[index].as_py(), y[index].as_py())) for index, _ in placed.rejects]
    else:
        placed, shapes = _placed_shapes(raw, planned, rejects)
        shown = [_shown(shapes[index]) for index, _ in placed.rejects]
    for (index, reason), text in zip(placed.rejects, shown, strict=True):
        rejects.add(int(raw.numbers[index]), GEOMETRY, reason, text)
    return placed


def _coordinate(raw: RawBatch, plan: Plan, id_: str, delivered: Mapping[str, Array]) -> Array:
    """Read a coordinate, or take the values that are delivered of its column as numbers."""
    for column in plan.columns:
        if column.source_id == id_ and column.type == "number" and column.declared:
            return delivered[column.name]
    return fit(raw.column(id_), "number", plan.zone).values


def _placed_shapes(raw: RawBatch, planned: PlannedShapes, rejects: _Rejects) -> tuple[Shapes, npt.NDArray[np.object_]]:
    """Place a batch's own shapes or those of its text; gives them also as the source has them."""
    if planned.wkt is None:
        shapes = _shapes(raw, planned, rejects)
        return normalise_shapes(shapes, planned.crs, planned.repair), shapes
    texts = clean(raw.column(planned.wkt).text)
    return normalise_text(texts, lambda left: _read_text(raw, left, rejects), planned.crs, planned.repair)


def _shapes(raw: RawBatch, planned: PlannedShapes, rejects: _Rejects) -> npt.NDArray[np.object_]:
    """Give a batch's shapes as the source has them."""
    if planned.wkt is not None:
        return _read_text(raw, clean(raw.column(planned.wkt).text), rejects)
    return raw.shapes if raw.shapes is not None else np.full(len(raw.numbers), None, dtype=object)


def _read_text(raw: RawBatch, texts: Array, rejects: _Rejects) -> npt.NDArray[np.object_]:
    """Read well-known text; what is none is null and listed."""
    bare = pc.replace_substring_regex(texts, pattern="(?i)^SRID=[0-9]+;", replacement="")
    shapes, broken = shapes_from_wkt(bare.to_numpy(zero_copy_only=False))
    for index in broken:
        rejects.add(int(raw.numbers[index]), GEOMETRY, BROKEN_WKT, bare[index].as_py())
    return shapes


def _shown(shape: Any) -> str | None:
    """Write a shape for staff."""
    return None if shape is None else str(shapely.to_wkt(shape, rounding_precision=9))[:SHOWN]
