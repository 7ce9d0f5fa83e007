"""JSON states: a list of objects, an object that holds one, newline JSON, and GeoJSON (D2.10, D14.1)."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from ploti_server.domain.columns import SourceColumn
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.states import StateUnreadable
from ploti_server.rows.raw import Array, Kind, RawBatch, RawColumn, RawState, Reject
from ploti_server.rows.types import json_text, plain_text
from ploti_server.sources.content import Content
from ploti_server.sources.geojson import BROKEN_SHAPE, SHAPES, crs_of, shapes_of
from ploti_server.sources.json_stream import JsonStream, LongDigits

BATCH_ROWS: Final = 20_000
BATCH_CHARACTERS: Final = 16 << 20
SHOWN: Final = 1_000
FORMS_MOST: Final = 10_000

NO_OBJECT: Final = "record is no object: left out"
FEATURE_ID: Final = "\0id"
"""Source column id of a GeoJSON feature's own id."""

Record = dict[str, Any]
Form = Literal["list", "lines", "member"]


@dataclass(frozen=True)
class _Layout:
    """Where the records are: the whole list, one value a line, or a member of the object by its path."""

    form: Form
    path: tuple[str, ...] = ()
    features: bool = False
    crs: tuple[str, ...] = ()


def open_json(content: Content, dataset: Dataset, file_name: str | None) -> RawState:
    """Open a JSON state and read it through once, for its columns and that it is whole.

    Raises `StateUnreadable` where it breaks off, is no JSON, or has no list of records.
    """
    layout = _layout(content, dataset.source.records, file_name)
    paths = _dotted_names(dataset)
    seen = _look_through(content, layout, paths)
    if seen.records == 0 and seen.strange:
        raise StateUnreadable("the JSON list holds no objects: records have to be objects with named members")
    return RawState(
        columns=seen.columns(),
        batches=lambda: _batches(content, layout, paths),
        has_shapes=layout.features,
        has_records=seen.records > 0,
        by_member=True,
        crs=layout.crs,
        encoding=content.encoding,
        format="geojson" if layout.features else "json",
    )


def _layout(content: Content, records: str | None, file_name: str | None) -> _Layout:
    stream = JsonStream(content.text())
    if stream.peek() == "[":
        return _list_layout(stream)
    outline = _outline(stream, records)
    if stream.peek():
        return _Layout("lines", features=outline.type == "Feature", crs=crs_of(None, given=False))
    if outline.type == "FeatureCollection" and "features" in outline.lists:
        crs = crs_of(outline.crs, given=outline.has_crs)
        return _Layout("member", ("features",), features=True, crs=crs)
    if records is not None:
        return _Layout("member", tuple(records.split(".")))
    if (file_name or "").lower().removesuffix(".gz").endswith((".ndjson", ".jsonl", ".geojsonl", ".geojsonseq")):
        return _Layout("lines", features=outline.type == "Feature", crs=crs_of(None, given=False))
    return _Layout("member", (outline.only_list(),))


def _list_layout(stream: JsonStream) -> _Layout:
    """A bare list is taken as it is; a list of features alone is GeoJSON too."""
    first = next(stream.items(), None)
    features = isinstance(first, dict) and first.get("type") == "Feature" and "geometry" in first
    return _Layout("list", features=features, crs=crs_of(None, given=False) if features else ())


_ESRI: Final = {"geometryType", "spatialReference", "objectIdFieldName", "displayFieldName", "exceededTransferLimit"}
_ERRORS: Final = ("error", "errors")
"""Members that tell what went wrong, never records unless the catalog names them."""


@dataclass
class _Outline:
    """Members of the outermost object: which are lists of objects, and what a feature collection says."""

    lists: dict[str, int] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    type: Any = None
    crs: Any = None
    has_crs: bool = False

    def only_list(self) -> str:
        """Name the only member that is a list of objects; raises `StateUnreadable` otherwise."""
        if "features" in self.lists and self.members & _ESRI:
            raise StateUnreadable("this is Esri JSON, which is not read: ask the service for GeoJSON (`f=geojson`)")
        if self.type in SHAPES:
            raise StateUnreadable("this is a GeoJSON shape alone, not a table of records: give features")
        filled = [name for name, length in self.lists.items() if length]
        names = filled or list(self.lists)
        if len(names) == 1 and names[0].lower() not in _ERRORS:
            return names[0]
        if len(names) < 2:
            raise StateUnreadable(
                "the JSON is an object without a list of records: is it an error message? Else name the member that"
                " holds them as `source.records`"
            )
        told = ", ".join(sorted(names))
        raise StateUnreadable(f"the JSON has several lists of records ({told}): name one of them as `source.records`")


def _outline(stream: JsonStream, records: str | None) -> _Outline:
    """Read through the outermost object; the named member is looked for when records are read."""
    outline = _Outline()
    for name in stream.members():
        outline.members.add(name)
        if stream.peek() != "[":
            value = stream.value()
            if name == "type":
                outline.type = value
            if name == "crs":
                outline.crs, outline.has_crs = value, True
            continue
        length, objects = 0, True
        for item in stream.items():
            length += 1
            objects = objects and (isinstance(item, dict) or name == records)
        if objects or name == "features":
            outline.lists[name] = length
    return outline


def _values(content: Content, layout: _Layout) -> Iterator[tuple[Any, int]]:
    """Give each record as decoded, with the number of characters read so far."""
    stream = JsonStream(content.text())
    if layout.form == "lines":
        while stream.peek():
            yield stream.value(), stream.read
        return
    if layout.form == "member":
        yield from _member_values(stream, layout.path)
    else:
        yield from ((item, stream.read) for item in stream.items())
    if stream.peek():
        raise StateUnreadable(f"something follows the end of the JSON, after {stream.read:,} characters")


def _member_values(stream: JsonStream, path: tuple[str, ...]) -> Iterator[tuple[Any, int]]:
    """Walk down to the member and give its elements; the rest of the object is read to its end."""
    wanted = ".".join(path)
    found = False
    for name in stream.members():
        if found or name not in (path[0], wanted):
            stream.value()
        elif name != wanted and stream.peek() == "{":
            found = True
            yield from _member_values(stream, path[1:])
        elif name == wanted and stream.peek() == "[":
            found = True
            yield from ((item, stream.read) for item in stream.items())
        else:
            stream.value()
            raise StateUnreadable(f"`{wanted}` is no list of records: correct `source.records`, or see what it says")
    if not found:
        raise StateUnreadable(f"the JSON has no `{wanted}`, which is to hold the records")


def _dotted_names(dataset: Dataset) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Give the catalog's names that may reach into objects (D2.10)."""
    shape = dataset.source.geometry
    names = {*dataset.key, *dataset.columns, *dataset.volatile, *dataset.documents}
    names |= {name for name in (shape and shape.x, shape and shape.y, shape and shape.wkt) if name}
    return tuple((name, tuple(name.split("."))) for name in sorted(names) if "." in name)


Paths = tuple[tuple[str, tuple[str, ...]], ...]


def _flat(value: Any, features: bool, paths: Paths) -> tuple[Record | None, Any]:
    """Give a record's members and its geometry; None for what is no record."""
    if not isinstance(value, dict):
        return None, None
    geometry = None
    if features:
        geometry = value.get("geometry")
        properties = value.get("properties")
        record = dict(properties) if isinstance(properties, dict) else {}
        if "id" in value:
            record[FEATURE_ID] = value["id"]
    else:
        record = value
    for name, path in paths:
        if name not in record and (reached := _reach(record, path)) is not _NOWHERE:
            record[name] = reached
    return record, geometry


_NOWHERE: Final = object()


def _reach(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return _NOWHERE
        value = value[name]
    return value


@dataclass
class _Seen:
    """What one reading found: how many records have each member, and its last place in any of them."""

    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, int] = field(default_factory=dict)
    forms: Counter[tuple[str, ...]] = field(default_factory=Counter)
    records: int = 0
    strange: int = 0

    def take(self, record: Record) -> None:
        """Count a record in; those with the same members are counted as one form first."""
        self.records += 1
        self.forms[tuple(record)] += 1
        if len(self.forms) > FORMS_MOST:
            self._fold()

    def _fold(self) -> None:
        for form, count in self.forms.items():
            for place, id_ in enumerate(form):
                self.counts[id_] += count
                self.places[id_] = max(place, self.places.get(id_, 0))
        self.forms.clear()

    def columns(self) -> tuple[SourceColumn, ...]:
        """Give the columns as the fullest records order them, whatever the order of records (D4.1).

        One that some record left out is optional.
        """
        self._fold()
        ordered = sorted(self.counts, key=lambda id_: (self.places[id_], -self.counts[id_], id_))
        return tuple(
            SourceColumn(id_, self._name(id_), position, optional=self.counts[id_] < self.records)
            for position, id_ in enumerate(ordered, start=1)
        )

    def _name(self, id_: str) -> str:
        """A feature's own id is `id`, unless a property is called so (D2.10)."""
        if id_ == FEATURE_ID:
            return "feature_id" if "id" in self.counts else "id"
        return plain_text(id_)


def _look_through(content: Content, layout: _Layout, paths: Paths) -> _Seen:
    seen = _Seen()
    for value, _ in _values(content, layout):
        record, _ = _flat(value, layout.features, paths)
        if record is None:
            seen.strange += 1
        else:
            seen.take(record)
    return seen


def _batches(content: Content, layout: _Layout, paths: Paths) -> Iterator[RawBatch]:
    batch = _Batch(layout.features)
    for number, (value, read) in enumerate(_values(content, layout), start=1):
        record, geometry = _flat(value, layout.features, paths)
        batch.add(number, record, geometry, value)
        if len(batch.numbers) >= BATCH_ROWS or read - batch.started > BATCH_CHARACTERS:
            yield batch.finish()
            batch = _Batch(layout.features, started=read)
    if batch.numbers or batch.rejects:
        yield batch.finish()


@dataclass
class _Batch:
    """Records on their way into columns; `started` is where in the text the first one began."""

    features: bool
    started: int = 0
    numbers: list[int] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    geometries: list[Any] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)

    def add(self, number: int, record: Record | None, geometry: Any, value: Any) -> None:
        """Take a record in; one that is none is listed."""
        if record is None:
            self.rejects.append(Reject(number, None, NO_OBJECT, json_text(value)[:SHOWN]))
            return
        self.numbers.append(number)
        self.records.append(record)
        self.geometries.append(geometry)

    def finish(self) -> RawBatch:
        """Give the batch by columns."""
        missing = len(self.rejects)
        names = dict.fromkeys(name for record in self.records for name in record)
        columns = {name: _column([record.get(name) for record in self.records]) for name in names}
        shapes = None
        if self.features:
            shapes, broken = shapes_of(self.geometries)
            for place in broken:
                shown = json_text(self.geometries[place])[:SHOWN]
                self.rejects.append(Reject(self.numbers[place], "geometry", BROKEN_SHAPE, shown))
        return RawBatch(np.array(self.numbers, dtype=np.int64), columns, shapes, tuple(self.rejects), missing)


def _column(values: list[Any]) -> RawColumn:
    """Give texts and kinds of one column's values."""
    types = set(map(type, values)) - {type(None)}
    if len(types) == 1 and (writer := _WRITERS.get(types.pop())) is not None:
        column = writer(values)
        if column is not None:
            return column
    told = [_told(value) for value in values]
    kinds = np.array([kind for _, kind in told], dtype=np.int8)
    found = frozenset(Kind(kind) for kind in set(kinds.tolist())) - {Kind.NULL}
    texts = _texts([text for text, _ in told])
    return RawColumn(texts, found, kinds if len(found) > 1 else None)


def _told(value: Any) -> tuple[str | None, Kind]:
    """Give one value's text and kind."""
    match value:
        case None:
            return None, Kind.NULL
        case bool():
            return ("true" if value else "false"), Kind.BOOLEAN
        case int():
            return str(value), (Kind.INTEGER if -(2**63) <= value < 2**63 else Kind.STRING)
        case float():
            return (repr(value) if math.isfinite(value) else None), Kind.NUMBER
        case str():
            return value, Kind.STRING
        case _:
            return _nested(value), Kind.NESTED


def _nested(value: Any) -> str:
    try:
        return json_text(value)
    except RecursionError as error:
        raise StateUnreadable("a JSON value nests too deeply to be written again") from error


def _texts(texts: list[str | None]) -> Array:
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        return pa.array([None if text is None else plain_text(text) for text in texts], pa.string())


def _integers(values: list[Any]) -> RawColumn | None:
    try:
        return RawColumn(pa.array(values, pa.int64()).cast(pa.string()), frozenset({Kind.INTEGER}))
    except (OverflowError, pa.ArrowInvalid):
        return None


def _numbers(values: list[Any]) -> RawColumn:
    texts = [repr(value) if value is not None and math.isfinite(value) else None for value in values]
    return RawColumn(pa.array(texts, pa.string()), frozenset({Kind.NUMBER}))


_WRITERS: Final[dict[type, Callable[[list[Any]], RawColumn | None]]] = {
    str: lambda values: RawColumn(_texts(values), frozenset({Kind.STRING})),
    LongDigits: lambda values: RawColumn(_texts(values), frozenset({Kind.STRING})),
    int: _integers,
    float: _numbers,
    bool: lambda values: RawColumn(pa.array(values, pa.bool_()).cast(pa.string()), frozenset({Kind.BOOLEAN})),
}
"""Fast ways for columns of one type; None where a value needs a closer look."""
