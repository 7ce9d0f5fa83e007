"""Reads a state into the engine's tables `new` and `rejects`: columns, names, types, shapes, measures (D2, D5.7).

A state is first read with the types of the last released schema. Only where these do not hold it, or a column is new,
its values are looked through for types and it is read once more.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from ploti.contract.digest import canonical_value
from ploti.contract.files import GEOMETRY
from ploti.contract.values import ColumnType
from ploti_server.domain.columns import SourceColumn, delivered_names, find_column, in_order, known_after
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.schema import Column, KnownColumn, Schema
from ploti_server.domain.states import StateRead, StateUnreadable
from ploti_server.ports import Tables
from ploti_server.rows.geometry import geometry_type
from ploti_server.rows.normalise import (
    REJECTS,
    Normalised,
    Plan,
    PlannedColumn,
    PlannedShapes,
    has_multipoints,
    kinds_of_shapes,
    normalise,
)
from ploti_server.rows.profile import ColumnProfile
from ploti_server.rows.raw import Array, Kind, RawState
from ploti_server.rows.text import pc

NEW: Final = "new"
REJECTS_TABLE: Final = "rejects"


def read_state(
    raw: RawState, dataset: Dataset, previous: Schema | None, known: tuple[KnownColumn, ...], tables: Tables
) -> StateRead:
    """Deliver a state into the tables `new` and `rejects` and tell what it is (see `StateRead`).

    `previous` is the last released schema, `known` every column that a released version had. Raises `StateUnreadable`
    where the state breaks off, nothing in it can be decoded, or its shapes cannot be placed.
    """
    if not raw.has_records:
        return _without_records(raw, previous, known, tables)
    layout = _lay_out(raw, dataset, previous, known)
    plan = _pinned_plan(layout, dataset, previous)
    if plan is not None:
        try:
            return _deliver(raw, layout, plan, previous, tables)
        except _Misfit:
            pass  # read again below, with types that hold every value
    layout, plan = _inferred_plan(raw, layout, dataset, previous)
    return _deliver(raw, layout, plan, previous, tables)


class _Misfit(Exception):
    """A planned type does not hold the state."""


@dataclass(frozen=True)
class _Layout:
    """Which source columns are delivered, under which names, and what the catalog says of them.

    `sources` goes by delivered name in the state's order; None stands for a column that stays, all null (D2.10).
    `unnamed` are nameless columns that count only where they hold a value, with the names that they would have.
    """

    sources: dict[str, SourceColumn | None]
    known: tuple[KnownColumn, ...]
    key: tuple[str, ...]
    declared: Mapping[str, ColumnType]
    volatile: frozenset[str]
    shapes: PlannedShapes | None
    shape_source: str
    misnamed: tuple[str, ...]
    unnamed: Mapping[SourceColumn, str]


def _lay_out(raw: RawState, dataset: Dataset, previous: Schema | None, known: tuple[KnownColumn, ...]) -> _Layout:
    roles = _Roles(raw.columns)
    dropped = {column.id for name in dataset.drop if (column := roles.find(name))}
    shapes, shape_source = _shapes(raw, dataset, roles)
    if shapes is not None and shapes.wkt is not None:
        dropped.add(shapes.wkt)
    released = {column.name for column in previous.columns} if previous else set()
    names = delivered_names([column for column in raw.columns if column.id not in dropped], known)
    named = {column: names[column.id] for column in raw.columns if column.id in names}
    unnamed = {column: name for column, name in named.items() if not column.name and name not in released}
    sources: dict[str, SourceColumn | None] = {name: column for column, name in named.items() if column not in unnamed}
    sources |= {column.name: None for column in _stay(raw, previous, sources)}
    declared = _declared(dataset, roles, names, shapes)
    key_columns = [roles.find(name) for name in dataset.key]
    key = [names[column.id] for column in key_columns if column is not None and column.id in names]
    volatile = frozenset(names[c.id] for name in dataset.volatile if (c := roles.find(name)) and c.id in names)
    for name in dataset.documents:
        roles.find(name)
    return _Layout(
        sources=sources,
        known=known,
        key=tuple(dict.fromkeys(key)) if len(key) == len(dataset.key) else (),
        declared=declared,
        volatile=volatile,
        shapes=shapes,
        shape_source=shape_source,
        misnamed=tuple(roles.lacking),
        unnamed=unnamed,
    )


@dataclass
class _Roles:
    """Finds the catalog's columns in the state and remembers the names that it lacks (D2.9)."""

    columns: tuple[SourceColumn, ...]
    lacking: dict[str, None] = field(default_factory=dict)

    def find(self, name: str) -> SourceColumn | None:
        found = find_column(self.columns, name)
        if found is None:
            self.lacking[name] = None
        return found


def _shapes(raw: RawState, dataset: Dataset, roles: _Roles) -> tuple[PlannedShapes | None, str]:
    """Tell where shapes come from, and the source's name for them."""
    given = dataset.source.geometry
    crs, repair = dataset.source.crs, dataset.source.repair
    if given is not None and given.wkt is not None and (wkt := roles.find(given.wkt)):
        return PlannedShapes(wkt=wkt.id, crs=crs, repair=repair), wkt.source_name
    if given is not None and given.x is not None and given.y is not None:
        x, y = roles.find(given.x), roles.find(given.y)
        if x is not None and y is not None:
            return PlannedShapes(x=x.id, y=y.id, crs=crs, repair=repair), GEOMETRY
    if raw.has_shapes:
        return PlannedShapes(crs=crs or raw.crs, repair=repair), GEOMETRY
    return None, GEOMETRY


def _declared(
    dataset: Dataset, roles: _Roles, names: Mapping[str, str], shapes: PlannedShapes | None
) -> dict[str, ColumnType]:
    """Give the types that the catalog tells; coordinates are numbers where it tells nothing else (D2.10)."""
    declared: dict[str, ColumnType] = {}
    for id_ in (shapes.x, shapes.y) if shapes is not None else ():
        if id_ is not None and id_ in names:
            declared[names[id_]] = "number"
    for spelling, type_ in dataset.columns.items():
        column = roles.find(spelling)
        if column is not None and column.id in names and type_ != "geometry":
            declared[names[column.id]] = type_
    return declared


def _stay(raw: RawState, previous: Schema | None, present: Mapping[str, object]) -> list[Column]:
    """Give the columns that no record has and that stay, as some record left them out before (D2.10)."""
    if previous is None or not raw.by_member:
        return []
    return [column for column in previous.columns if column.optional and column.name not in present]


def _pinned_plan(layout: _Layout, dataset: Dataset, previous: Schema | None) -> Plan | None:
    """Plan without a look at the values; None where the type of a column or the kind of shapes is not known yet."""
    types: dict[str, ColumnType] = {}
    for name in layout.sources:
        pinned = _pinned(previous, name)
        if name not in layout.declared and pinned is None:
            return None
        types[name] = layout.declared.get(name) or pinned or "string"
    shapes = layout.shapes
    kind = _kind(previous)
    if shapes is not None and shapes.x is None and kind is None:
        return None
    return _plan(layout, dataset, types, kind)


def _inferred_plan(raw: RawState, layout: _Layout, dataset: Dataset, previous: Schema | None) -> tuple[_Layout, Plan]:
    """Look through all values: pinned types where they hold, else inferred ones, and nameless columns with a value."""
    profiles = {column.id: ColumnProfile(dataset.timezone) for column in layout.unnamed}
    for name, source in layout.sources.items():
        if name not in layout.declared and source is not None:
            profiles[source.id] = ColumnProfile(dataset.timezone, _pinned(previous, name))
    for batch in raw.batches():
        for id_, profile in profiles.items():
            if id_ in batch.columns:
                profile.see(batch.columns[id_])
    valued = {column: name for column, name in layout.unnamed.items() if profiles[column.id].valued}
    sources = layout.sources | {name: column for column, name in valued.items()}
    layout = replace(
        layout,
        sources=dict(sorted(sources.items(), key=lambda source: _position(source[1]))),
        unnamed={column: name for column, name in layout.unnamed.items() if column not in valued},
    )
    types = {name: _type(layout, name, source, profiles, previous) for name, source in layout.sources.items()}
    return layout, _plan(layout, dataset, types, _kind(previous) or _first_kind(raw, layout))


def _position(column: SourceColumn | None) -> int:
    """Give a column's place in the state; one that is not there comes last."""
    return column.position if column is not None else 1 << 30


def _type(
    layout: _Layout,
    name: str,
    source: SourceColumn | None,
    profiles: Mapping[str, ColumnProfile],
    previous: Schema | None,
) -> ColumnType:
    """Decide a column's type: declared, else pinned where it holds every value, else inferred (D2.3, D2.4)."""
    pinned = _pinned(previous, name)
    if name in layout.declared:
        return layout.declared[name]
    if source is None:
        return pinned or "string"
    profile = profiles[source.id]
    if pinned is not None and profile.holds_pinned:
        return pinned
    return "string" if name in layout.key and Kind.TEXT in profile.kinds else profile.inferred


def _pinned(previous: Schema | None, name: str) -> ColumnType | None:
    column = previous.column(name) if previous is not None else None
    return column.type if column is not None else None


def _kind(previous: Schema | None) -> str | None:
    """Give the kind of shapes that the last released schema has."""
    column = previous.column(GEOMETRY) if previous is not None else None
    return column.geometry_type if column is not None else None


def _first_kind(raw: RawState, layout: _Layout) -> str | None:
    """Tell whether a first state's points have to be multipoints, as some are (D3.1)."""
    shapes = layout.shapes
    if shapes is None or shapes.x is not None:
        return None
    if not any(has_multipoints(batch, shapes) for batch in raw.batches()):
        return None
    return geometry_type({kind for batch in raw.batches() for kind in kinds_of_shapes(batch, shapes)}, None)


def _plan(layout: _Layout, dataset: Dataset, types: Mapping[str, ColumnType], kind: str | None) -> Plan:
    planned = {
        name: PlannedColumn(name, types[name], source.id if source else None, declared=name in layout.declared)
        for name, source in layout.sources.items()
    }
    if layout.shapes is not None:
        planned[GEOMETRY] = PlannedColumn(GEOMETRY, "geometry", None)
    names = [(name, _source_name(layout, name)) for name in planned]
    order = in_order(planned, known_after(layout.known, names))
    return Plan(
        columns=tuple(planned[name] for name in order),
        zone=dataset.timezone,
        shapes=layout.shapes and replace(layout.shapes, kind=kind),
        unnamed=tuple(column.id for column in layout.unnamed),
    )


def _source_name(layout: _Layout, name: str) -> str:
    source = layout.sources.get(name)
    if source is not None:
        return source.source_name
    kept = next((column.source_name for column in layout.known if column.name == name), name)
    return layout.shape_source if name == GEOMETRY else kept


@dataclass
class _Measures:
    """What is counted while a state is delivered."""

    plan: Plan
    rows: int = 0
    missing: int = 0
    repaired: int = 0
    nulls: Counter[str] = field(default_factory=Counter)
    kinds: set[str] = field(default_factory=set)
    reasons: Counter[str] = field(default_factory=Counter)
    rejects: list[pa.RecordBatch] = field(default_factory=list)
    singles: dict[str, Any] = field(default_factory=dict)

    def add(self, read: Normalised) -> None:
        """Count a delivered batch in."""
        self.missing += read.missing
        self.repaired += read.repaired
        self.kinds |= read.kinds
        if read.rejects.num_rows:
            self.rejects.append(read.rejects)
            self.reasons.update(str(reason) for reason in read.rejects["reason"].to_pylist())
        batch = read.batch
        if batch.num_rows == 0:
            return
        if self.rows == 0:
            self.singles = {column.name: batch[column.name][0] for column in self.plan.columns}
        self.rows += batch.num_rows
        for column in self.plan.columns:
            self.nulls[column.name] += batch[column.name].null_count
        for name in list(self.singles):
            if not _all_are(batch[name], self.singles[name]):
                del self.singles[name]


def _all_are(values: Array, single: Any) -> bool:
    """Tell whether every value is the one; null counts as a value."""
    if not single.is_valid:
        return bool(values.null_count == len(values))
    return values.null_count == 0 and bool(pc.all(pc.equal(values, single)).as_py())


def _deliver(raw: RawState, layout: _Layout, plan: Plan, previous: Schema | None, tables: Tables) -> StateRead:
    """Read a state by a plan into the engine's tables; raises `_Misfit` where a type does not hold it."""
    measures = _Measures(plan)
    tables.map_batches(NEW, _delivered(raw, plan, measures), plan.schema)
    if measures.rows == 0 and measures.missing:
        raise StateUnreadable(
            f"none of {measures.missing:,} rows can be decoded: {', '.join(sorted(measures.reasons))}"
        )
    tables.map_batches(REJECTS_TABLE, iter(measures.rejects), REJECTS)
    columns = tuple(_column(column, layout, measures, previous) for column in plan.columns)
    return StateRead(
        schema=Schema(columns, layout.key),
        known_columns=known_after(layout.known, [(column.name, column.source_name) for column in columns]),
        rows=measures.rows,
        nulls={column.name: measures.nulls[column.name] for column in plan.columns},
        singles={
            column.name: canonical_value(measures.singles[column.name].as_py(), column.type)
            for column in plan.columns
            if column.name in measures.singles
        },
        rejects=dict(sorted(measures.reasons.items())),
        missing_rows=measures.missing,
        repaired_shapes=measures.repaired,
        misnamed=layout.misnamed,
        encoding=raw.encoding,
    )


def _delivered(raw: RawState, plan: Plan, measures: _Measures) -> Iterator[pa.RecordBatch]:
    for batch in raw.batches():
        read = normalise(batch, plan)
        if read.misfits:
            raise _Misfit(", ".join(read.misfits))
        measures.add(read)
        yield read.batch


def _column(planned: PlannedColumn, layout: _Layout, measures: _Measures, previous: Schema | None) -> Column:
    """Describe a delivered column; nullable where it was, where it came later, or where a value is null (D2.7)."""
    before = previous.column(planned.name) if previous is not None else None
    later = previous is not None and before is None
    empty = measures.nulls[planned.name] > 0 or (measures.rows == 0 and before is None)
    source = layout.sources.get(planned.name)
    optional = source.optional if source is not None else before is not None and before.optional
    kind = geometry_type(measures.kinds, before.geometry_type if before else None)
    return Column(
        name=planned.name,
        type=planned.type,
        nullable=later or empty or (before is not None and before.nullable),
        source_name=_source_name(layout, planned.name),
        volatile=planned.name in layout.volatile,
        geometry_type=kind if planned.type == GEOMETRY else None,
        description=before.description if before else None,
        optional=optional,
    )


def _without_records(
    raw: RawState, previous: Schema | None, known: tuple[KnownColumn, ...], tables: Tables
) -> StateRead:
    """A state that says nothing about columns: schema and key stay, no rows (D2.10)."""
    schema = previous or Schema(())
    shapes = PlannedShapes() if schema.column(GEOMETRY) is not None else None
    plan = Plan(tuple(PlannedColumn(column.name, column.type, None) for column in schema.columns), "UTC", shapes)
    tables.map_batches(NEW, iter(()), plan.schema)
    tables.map_batches(REJECTS_TABLE, iter(()), REJECTS)
    nulls = {column.name: 0 for column in schema.columns}
    return StateRead(schema=schema, known_columns=known, rows=0, nulls=nulls, encoding=raw.encoding)
