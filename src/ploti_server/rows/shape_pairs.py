"""Pairs left-over rows that agree in all other values and whose shapes are the same within the tolerance (D3.4)."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import shapely

from ploti.contract.files import GEOMETRY, RECORD_ID
from ploti_server.rows.geometry import same_shapes
from ploti_server.rows.match import ROW
from ploti_server.rows.shapes_equal import TOLERANCE
from ploti_server.rows.sql import staged_schema

CELL_DEGREES: Final = 1e-6
"""Width of the cells in which the lower left corners of two equal shapes must meet; far above the tolerance."""

_X, _Y = "_x", "_y"


def cells_schema(label: str, type_: pa.DataType) -> pa.Schema:
    """Give the schema of a table of labels and cells."""
    return staged_schema({label: type_, _X: pa.int64(), _Y: pa.int64()})


def corner_cells(batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, spread: bool) -> Iterator[pa.RecordBatch]:
    """Give the cell of each shape's lower left corner; with `spread` every cell within the tolerance of it."""
    reach = (-TOLERANCE, TOLERANCE) if spread else (0.0,)
    for batch in batches:
        shapes = shapely.from_wkb(batch.column(GEOMETRY).to_numpy(zero_copy_only=False))
        west, south, _, _ = shapely.bounds(shapes).T
        near = [(_cells(west + x), _cells(south + y)) for x in reach for y in reach]
        for place, (x, y) in enumerate(near):
            fresh = np.ones(len(x), dtype=np.bool_)
            for earlier_x, earlier_y in near[:place]:
                fresh &= (x != earlier_x) | (y != earlier_y)
            labels = batch.column(0).filter(pa.array(fresh))
            yield pa.RecordBatch.from_arrays([labels, pa.array(x[fresh]), pa.array(y[fresh])], schema=schema)


def _cells(degrees: np.ndarray) -> np.ndarray:
    return np.floor(degrees / CELL_DEGREES).astype(np.int64)


def shapes_to_place(rows: str, label: str, left: str) -> str:
    """Give the labels and shapes of left-over rows that have one."""
    return (
        f"SELECT t.{label}, t.{GEOMETRY} FROM {rows} t JOIN {left} f ON t.{label} = f.{label}"
        f" WHERE t.{GEOMETRY} IS NOT NULL"
    )


def near_pairs(cells: tuple[str, str], values: tuple[str, str], rows: tuple[str, str]) -> str:
    """Give both shapes of pairs that agree in the other values and meet in a cell; each tuple is old, new."""
    return (
        f"SELECT p.{ROW}, p.{RECORD_ID}, o.{GEOMETRY} AS _old, n.{GEOMETRY} AS _new FROM ("
        f"SELECT DISTINCT cn.{ROW}, co.{RECORD_ID} FROM {cells[1]} cn"
        f" JOIN {cells[0]} co ON cn.{_X} = co.{_X} AND cn.{_Y} = co.{_Y}"
        f" JOIN {values[1]} vn ON cn.{ROW} = vn.{ROW} JOIN {values[0]} vo ON co.{RECORD_ID} = vo.{RECORD_ID}"
        f" WHERE vn._h1 = vo._h1 AND vn._h2 = vo._h2) p"
        f" JOIN {rows[0]} o ON p.{RECORD_ID} = o.{RECORD_ID} JOIN {rows[1]} n ON p.{ROW} = n.{ROW}"
    )


def same_pairs(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give `schema`'s columns of the pairs whose shapes `_old` and `_new` are the same."""
    for batch in batches:
        same = same_shapes(batch.column("_old"), batch.column("_new"))
        yield batch.select(schema.names).filter(same).cast(schema)


def in_assigning_order(pairs: str, entries: str, rows: str, order: list[str]) -> str:
    """Give pairs in the order in which they are assigned: the record that came first, then the new row's values."""
    seniority = ("e.first_version", "e.ordinal", f"p.{RECORD_ID}")
    columns = ", ".join(f"{expression} ASC NULLS LAST" for expression in (*seniority, *order))
    return (
        f"SELECT p.{ROW}, p.{RECORD_ID} FROM {pairs} p LEFT JOIN {entries} e ON p.{RECORD_ID} = e.{RECORD_ID}"
        f" JOIN {rows} t ON p.{ROW} = t.{ROW} ORDER BY {columns}"
    )


def one_to_one(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give each pair, in the order they come, whose old id and new row are both still free."""
    rows_taken: set[int] = set()
    ids_taken: set[str] = set()
    for batch in batches:
        free = []
        rows: list[Any] = batch.column(ROW).to_pylist()
        ids: list[Any] = batch.column(RECORD_ID).to_pylist()
        for row, id_ in zip(rows, ids, strict=True):
            free.append(row not in rows_taken and id_ not in ids_taken)
            if free[-1]:
                rows_taken.add(row)
                ids_taken.add(id_)
        yield batch.filter(pa.array(free, pa.bool_())).cast(schema)
