"""States as delivered: names, types, pins, nulls, keys, shapes, rejects (D2, D3.3, D5.7, D6.1; F023 to F042)."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
import shapely

from ploti_server.domain.datasets import Dataset, GeometryColumns, SourceSpec
from ploti_server.domain.schema import Schema, SchemaVersion, change_between
from ploti_server.domain.states import StateUnreadable
from ploti_server.pipeline.read import read_state
from ploti_server.rows.geometry import UndeclaredCrs
from ploti_server.rows.types import ARROW_TYPES
from ploti_server.sources import open_state

DATASET = Dataset("ds_t", "T", SourceSpec("file", "t"))
POINTS = replace(DATASET, source=SourceSpec("file", "t", geometry=GeometryColumns(x="x", y="y"), crs=("EPSG:4326",)))


class MemoryTables:
    """Tables that stay in memory; a table that broke off has no name."""

    def __init__(self):
        self.tables = {}

    def map_batches(self, name, batches, schema):
        assert name not in self.tables
        batches = list(batches)
        assert all(batch.schema.equals(schema) for batch in batches)
        self.tables[name] = pa.Table.from_batches(batches, schema)


class Reader:
    """Reads one state after another, each with the schema of the one before."""

    def __init__(self, folder):
        self.folder = folder
        self.previous, self.known = None, ()

    def __call__(self, content, dataset=DATASET):
        path = self.folder / "raw"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.tables = MemoryTables()
        self.read = read_state(open_state(path, "state", dataset), dataset, self.previous, self.known, self.tables)
        self.change = self.previous and change_between(self.previous, self.read.schema, SchemaVersion(1, 0))
        self.previous, self.known = self.read.schema, self.read.known_columns
        new = self.tables.tables["new"]
        assert new.num_rows == self.read.rows
        assert len(set(new["_ploti_row"].to_pylist())) == new.num_rows
        assert [f.name for f in new.schema if f.name[0] != "_"] == [
            c.name for c in self.read.schema.columns if c.name[0] != "_"
        ]
        for column in self.read.schema.columns:
            assert new.schema.field(column.name).type == ARROW_TYPES[column.type]
            assert new[column.name].null_count == self.read.nulls[column.name]
            assert column.nullable or not self.read.nulls[column.name]
        return self.read

    def values(self, column):
        return self.tables.tables["new"][column].to_pylist()

    def rejects(self):
        return [(r["row"], r["column"], r["value"]) for r in self.tables.tables["rejects"].to_pylist()]

    @property
    def types(self):
        return {column.name: column.type for column in self.read.schema.columns}

    @property
    def kind(self):
        return self.change and self.change.kind


@pytest.fixture
def read(tmp_path):
    return Reader(tmp_path)


def as_json(*records):
    return json.dumps(list(records))


def test_first_reading(read):
    state = read(
        "id,N ame,when,at,ok,n,d\n1,x,2020-01-01,2020-01-01T00:00Z,true,1.5,\n2,,2020-01-02,2020-01-01T01:00,false,2,\n"
    )
    assert read.types == {
        "id": "integer",
        "n_ame": "string",
        "when": "date",
        "at": "timestamp",
        "ok": "boolean",
        "n": "number",
        "d": "string",
    }
    assert [c.name for c in state.schema.columns if c.nullable] == ["n_ame", "d"]
    assert {c.name: c.source_name for c in state.schema.columns}["n_ame"] == "N ame"
    assert read.values("when") == [date(2020, 1, 1), date(2020, 1, 2)]
    assert read.values("at")[1] == datetime(2020, 1, 1, 1, tzinfo=UTC)
    assert state.singles == {"d": None}
    assert state.encoding == "utf-8"


def test_key_columns_from_text_stay_text(read):
    keyed = replace(DATASET, key=("ID",))
    ids = ["12E12", "0047583311587E590003", "123456789012345678901", "1.0", "1.00", "7"]
    state = read("ID,v\n" + "".join(f"{id_},1\n" for id_ in ids), keyed)
    assert read.values("id") == ids
    assert state.schema.key_columns == ("id",)
    read("ID,v\n7,1\n", keyed)
    assert read.types["id"] == "string"
    assert read.change is None


def test_leading_zeros_stay_text(read):
    read("parcel_id\n00123\n00124\n01001\n")
    read("parcel_id\n00123\n00124\n01001\n123\n")
    assert read.change is None
    assert read.values("parcel_id") == ["00123", "00124", "01001", "123"]


@pytest.mark.parametrize(
    ("first", "second", "kind", "retyped"),
    [
        ("10.5\n11", "10\n11\n12", None, []),
        ("1\n2", "1\n2.5", "breaking", [("v", "integer", "number")]),
        ("1\n2", "1\n007", "breaking", [("v", "integer", "string")]),
        ("1\n2", "1\n1.0", "breaking", [("v", "integer", "number")]),
        ("1\n2", "x\ny", "breaking", [("v", "integer", "string")]),
        ("x\ny", "1\n2", None, []),
        ("2020-01-01", "2020-01-02\nsoon", "breaking", [("v", "date", "string")]),
        ("2020-01-01", "2020-01-02T00:00", "breaking", [("v", "date", "timestamp")]),
        ("2020-01-01", "2020-01-02\n0000-00-00", "additive", []),
        ("1.5", "2.5\nNaN\ninf", "additive", []),
        ("Paris", "Nan", None, []),
        ("true", "false\nTRUE", "breaking", [("v", "boolean", "string")]),
    ],
)
def test_pinned_types(read, first, second, kind, retyped):
    read(f"v,w\n{first.replace(chr(10), ',a' + chr(10))},a\n")
    read(f"v,w\n{second.replace(chr(10), ',a' + chr(10))},a\n")
    assert read.kind == kind
    assert [(r.name, r.from_, r.to) for r in (read.change.retyped if read.change else ())] == retyped


@pytest.mark.parametrize(
    ("first", "second", "retyped"),
    [
        ((1, 2), (1, 62.0), []),
        ((1, 2), (1, 62.5), [("integer", "number")]),
        ((1.5,), (1, 2), []),
        ((62.0,), (62,), []),
        ((1,), ("12063",), [("integer", "string")]),
        ((1,), (1, "x"), [("integer", "string")]),
        (("x",), (1, 62.0, True, None), []),
        (("x",), ("x", [1]), [("string", "json")]),
        (({"a": 1},), ("x", 1), []),
        ((None,), (5,), []),
        ((True,), (0,), [("boolean", "integer")]),
        ((2**63 - 1,), (2**63,), [("integer", "string")]),
    ],
)
def test_pinned_types_of_json(read, first, second, retyped):
    read(as_json(*({"v": value, "w": 1} for value in first)))
    read(as_json(*({"v": value, "w": 1} for value in second)))
    assert [(r.from_, r.to) for r in (read.change.retyped if read.change else ())] == retyped


def test_mixed_scalars_are_text_and_mixed_nested_is_json(read):
    read(
        as_json(
            {"a": 1, "b": [2, 1]},
            {"a": "x", "b": {"z": 1, "y": "\u0065\u0301"}},
            {"a": 62.0, "b": "t"},
            {"a": True, "b": 5},
        )
    )
    assert read.types == {"a": "string", "b": "json"}
    assert read.values("a") == ["1", "x", "62.0", "true"]
    assert read.values("b") == ["[2,1]", '{"y":"é","z":1}', '"t"', "5"]


def test_text_in_json_stays_text_unless_declared(read):
    read(as_json({"a": "1", "b": "2020-01-01", "c": "2"}), replace(DATASET, columns={"c": "integer"}))
    assert read.types == {"a": "string", "b": "string", "c": "integer"}
    assert read.values("c") == [2]


def test_a_declared_type_never_retypes(read):
    declared = replace(DATASET, columns={"V": "integer", "missing": "date"}, volatile=("w", "gone"), drop=("secret",))
    state = read("V,w,secret\n1,a,s\nabc,b,s\n007,c,s\n", replace(declared, drop=("secret", "other")))
    assert read.types == {"v": "integer", "w": "string"}
    assert read.values("v") == [1, None, 7]
    assert read.rejects() == [(2, "v", "abc")]
    assert state.rejects == {"value is no integer: left empty": 1}
    assert sorted(state.misnamed) == ["gone", "missing", "other"]
    assert [c.name for c in state.schema.columns if c.volatile] == ["w"]
    assert read.tables.tables["new"].schema.names == ["_ploti_row", "v", "w"]
    read("V,w,secret\nxyz,a,s\n", declared)
    assert read.change is None


def test_text_has_one_rule_there_and_back(read):
    states = ['k,v\n1,""\n2,A\n3,B\n', "k,v\n1, \n2,A \n3,B\n", "k,v\n1,\n2,\u00a0A\n3,B\n"]
    tables = []
    for state in (*states, *states[::-1]):
        read(state)
        tables.append(read.values("v"))
        assert read.change is None
    assert tables == [[None, "A", "B"]] * 6


def test_far_dates_and_the_null_date(read):
    read("d\n9999-12-31\n0001-01-01\n1600-02-29\n0000-00-00\n")
    assert read.values("d") == [date(9999, 12, 31), date(1, 1, 1), date(1600, 2, 29), None]


def test_a_column_all_null_in_a_later_state_keeps_its_type(read):
    read("d,e\n3.5,1\n")
    read("d,e\n,1\n,2\n")
    assert read.types["d"] == "number"
    assert read.kind == "additive"
    read("d,e\n3.5,1\n")
    assert read.change is None


@pytest.mark.parametrize("broken", [0, 25_000, 45_000])
def test_types_follow_from_all_values_in_any_batch(read, broken):
    rows = [f"{'x' if n == broken else n},{n}\n" for n in range(50_000)]
    read("v,n\n" + "".join(rows))
    assert read.types == {"v": "string", "n": "integer"}
    read.previous = Schema(tuple(replace(c, type="integer") for c in read.previous.columns))
    read("v,n\n" + "".join(rows))
    assert [(r.name, r.to) for r in read.change.retyped] == [("v", "string")]
    assert read.read.rows == 50_000


def test_names_stay_with_their_source_column(read):
    read("SE_CAD,Permit No,x\n1,2,3\n")
    read("x,se_cad,PERMIT_NO\n3,1,2\n")
    assert read.change is None
    assert [c.name for c in read.read.schema.columns] == ["se_cad", "permit_no", "x"]
    assert [c.source_name for c in read.read.schema.columns] == ["se_cad", "PERMIT_NO", "x"]
    assert read.values("permit_no") == [2]


def test_two_spellings_in_one_state_are_two_columns(read):
    read("SE_CAD,x\n1,0\n")
    read("se_cad,SE_CAD,x\n5,1,0\n")
    assert [c.name for c in read.read.schema.columns] == ["se_cad", "x", "se_cad_2"]
    assert (read.values("se_cad"), read.values("se_cad_2")) == ([1], [5])
    assert read.kind == "additive"


def test_duplicate_headers_are_columns_of_their_own(read):
    read("a,b,a\n1,2,3\n")
    assert [read.values(name) for name in ("a", "b", "a_2")] == [[1], [2], [3]]


def test_reserved_names(read):
    read("_ploti_record_id,_PLOTI_VERSION,_ploti_op,geometry,x\n1,2,3,4,5\n")
    names = [c.name for c in read.read.schema.columns]
    assert names == ["source__ploti_record_id", "source__ploti_version", "source__ploti_op", "source_geometry", "x"]
    read("x,_ploti_op,_PLOTI_VERSION,_ploti_record_id,geometry\n5,3,2,1,4\n")
    assert [c.name for c in read.read.schema.columns] == names
    assert read.change is None


def test_a_nameless_column_counts_once_it_has_a_value(read):
    read("a,,b\n1,,2\n")
    assert read.types == {"a": "integer", "b": "integer"}
    read("a,,b\n1, ,2\n")
    assert read.change is None
    read("a,,b\n1,5,2\n")
    assert [c.name for c in read.read.schema.columns] == ["a", "b", "column_2"]
    assert read.kind == "additive"
    read("a,,b\n1,,2\n")
    assert read.change is None
    assert read.values("column_2") == [None]


def test_a_first_nameless_column_keeps_its_place(read):
    read("a,,b\n1,5,2\n")
    assert [c.name for c in read.read.schema.columns] == ["a", "column_2", "b"]


def test_columns_added_later_are_nullable_and_last(read):
    read("a,b\n1,2\n")
    read("c,b,a\n3,2,1\n")
    assert [(c.name, c.nullable) for c in read.read.schema.columns] == [("a", False), ("b", False), ("c", True)]
    read("c,a\n3,1\n")
    assert read.change.removed == ("b",)
    read("b,c,a\n2,3,1\n")
    assert [(c.name, c.nullable) for c in read.read.schema.columns] == [("a", False), ("b", True), ("c", True)]


def test_a_member_that_some_record_left_out_stays(read):
    read(as_json({"a": 1, "opt": "x"}, {"a": 2}))
    assert {c.name: c.optional for c in read.read.schema.columns} == {"a": False, "opt": True}
    for _ in range(2):
        read(as_json({"a": 1}, {"a": 2}))
        assert read.change is None
        assert read.values("opt") == [None, None]
    assert read.read.singles["opt"] is None


def test_a_member_that_every_record_had_is_removed(read):
    read(as_json({"a": 1, "all": None}, {"a": 2, "all": None}))
    read(as_json({"a": 1}, {"a": 2}))
    assert read.change.removed == ("all",)


def test_a_state_without_records_keeps_schema_and_key(read):
    keyed = replace(POINTS, key=("a",))
    read(as_json({"a": "1", "x": 1, "y": 2}), keyed)
    before = read.previous
    state = read("[]", keyed)
    assert (state.schema, state.rows, read.change) == (before, 0, None)
    assert read.tables.tables["new"].schema.names == ["_ploti_row", "_ploti_hilbert", "a", "x", "y", "geometry"]


def test_a_first_state_without_records(read):
    assert read("[]").schema == Schema(())
    state = read(as_json({"a": 1}))
    assert [(c.name, c.nullable) for c in state.schema.columns] == [("a", True)]


def test_a_header_without_rows(read):
    state = read("a,b\n", replace(DATASET, key=("a",)))
    assert (state.rows, state.schema.key_columns, state.singles) == (0, ("a",), {})
    assert all(column.nullable for column in state.schema.columns)


def test_a_key_that_spells_a_column_in_two_ways_has_it_once(read):
    assert read("id,v\na,1\n", replace(DATASET, key=("id", "ID"))).schema.key_columns == ("id",)
    assert read("id,ID\na,1\n", replace(DATASET, key=("id", "ID"))).schema.key_columns == ("id", "id_2")


def test_a_key_is_dropped_while_a_column_of_it_is_absent(read):
    keyed = replace(DATASET, key=("Book", "Page"))
    assert read("Book,Page\n1,2\n3,\n", keyed).schema.key_columns == ("book", "page")
    state = read("Book,x\n1,2\n", keyed)
    assert state.schema.key_columns == ()
    assert state.misnamed == ("Page",)
    assert read.change.key_changed
    assert read("BOOK,page\n1,2\n", keyed).schema.key_columns == ("book", "page")


def test_ragged_rows(read):
    state = read("a,b\n1,2\n3\n4,5,6\n7,8\n")
    assert read.values("a") == [1, 7, 3]
    assert (state.rows, state.missing_rows, sum(state.rejects.values())) == (3, 1, 2)
    assert read.rejects() == [(2, None, "3"), (3, None, "4,5,6")]


def test_a_state_without_any_whole_row_is_refused(read):
    with pytest.raises(StateUnreadable, match="none of 2 rows"):
        read("# title\na,b\n1,2\n")


def test_points_from_columns(read):
    state = read("id,x,y\na,-81.5,28.5\nb,,28.5\nc,,\nd,28.5,-181\ne,abc,1\n", POINTS)
    assert read.types["x"] == "number"
    assert read.values("x") == [-81.5, None, None, 28.5, None]
    shapes = [wkb and shapely.from_wkb(wkb).wkt for wkb in read.values("geometry")]
    assert shapes == ["POINT (-81.5 28.5)", None, None, None, None]
    assert [key is None for key in read.values("_ploti_hilbert")] == [False, True, True, True, True]
    assert {(row, column) for row, column, _ in read.rejects()} == {(4, "geometry"), (5, "x")}
    geometry = state.schema.column("geometry")
    assert (geometry.type, geometry.geometry_type, geometry.nullable) == ("geometry", "Point", True)
    assert [c.name for c in state.schema.columns] == ["id", "x", "y", "geometry"]


def test_coordinates_that_are_text_in_json_are_numbers(read):
    read(as_json({"x": "28.18", "y": "-82.68"}), POINTS)
    assert read.types == {"x": "number", "y": "number", "geometry": "geometry"}


def test_dropped_coordinates_still_give_points(read):
    read("id,x,y\na,1,2\n", replace(POINTS, drop=("x", "y")))
    assert read.types == {"id": "string", "geometry": "geometry"}
    assert shapely.from_wkb(read.values("geometry")[0]).wkt == "POINT (1 2)"


def test_coordinates_that_a_state_lacks_are_told_and_remove_the_shape(read):
    read("id,x,y\na,1,2\n", POINTS)
    state = read("id,x\na,1\n", POINTS)
    assert state.misnamed == ("y",)
    assert set(read.change.removed) == {"y", "geometry"}


def test_shapes_from_well_known_text(read):
    wkt = replace(DATASET, source=SourceSpec("file", "t", geometry=GeometryColumns(wkt="WKT"), crs=("EPSG:4326",)))
    state = read('WKT,n\n"POINT Z (1 2 3)",1\n"SRID=4326;POINT (3 4)",2\nnonsense,3\n,4\nPOINT EMPTY,5\n', wkt)
    assert [wkb and shapely.from_wkb(wkb).wkt for wkb in read.values("geometry")] == [
        "POINT (1 2)",
        "POINT (3 4)",
        None,
        None,
        None,
    ]
    assert read.rejects() == [(3, "geometry", "nonsense")]
    assert state.schema.column("geometry").source_name == "WKT"
    read('WKT,n\n"POINT (1 2)",1\n', wkt)
    assert read.change is None


def test_curves_and_surfaces_of_well_known_text_are_made_linear(read):
    wkt = replace(DATASET, source=SourceSpec("file", "t", geometry=GeometryColumns(wkt="w"), crs=("EPSG:4326",)))
    curves = ["CURVEPOLYGON (CIRCULARSTRING (0 0, 2 0, 0 0))", "TIN (((0 0, 0 1, 1 1, 0 0)))", "CIRCULARSTRING (0 0)"]
    read("\n".join(["w;n", *(f"{text};{n}" for n, text in enumerate([*curves, "POINT (1 2)"]))]), wkt)
    shapes = [wkb and shapely.from_wkb(wkb).geom_type for wkb in read.values("geometry")]
    assert shapes == ["MultiPolygon", "MultiPolygon", None, "Point"]
    assert read.rejects() == [(3, "geometry", curves[2])]


def collection(*geometries, crs=None):
    features = [{"type": "Feature", "properties": {"n": i}, "geometry": g} for i, g in enumerate(geometries)]
    return json.dumps({"features": features, "type": "FeatureCollection"} | ({"crs": crs} if crs else {}))


POINT = {"type": "Point", "coordinates": [1, 2]}
MULTIPOINT = {"type": "MultiPoint", "coordinates": [[1, 2], [3, 4]]}
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}


@pytest.mark.parametrize(
    ("states", "kinds"),
    [
        ([[POINT], [POINT]], ["Point", "Point"]),
        ([[POINT, MULTIPOINT], [POINT]], ["MultiPoint", "MultiPoint"]),
        ([[SQUARE], [SQUARE, POINT]], ["MultiPolygon", "Geometry"]),
        ([[SQUARE, POINT], [SQUARE]], ["Geometry", "Geometry"]),
        ([[None], [POINT]], [None, "Point"]),
        ([[POINT], [None]], ["Point", "Point"]),
    ],
)
def test_kinds_of_shapes(read, states, kinds):
    for geometries, kind in zip(states, kinds, strict=True):
        state = read(collection(*geometries))
        assert state.schema.column("geometry").geometry_type == kind
        if kind == "MultiPoint":
            assert {shapely.from_wkb(wkb).geom_type for wkb in read.values("geometry")} == {"MultiPoint"}


def test_a_source_without_crs_that_cannot_be_degrees_is_refused(read):
    undeclared = replace(POINTS, source=replace(POINTS.source, crs=()))
    with pytest.raises(UndeclaredCrs):
        read("x,y\n532000,1530000\n", undeclared)
    read("x,y\n1,2\n", undeclared)
    assert read.read.rows == 1


def test_a_named_crs_is_projected(read):
    crs = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::3857"}}
    read(collection({"type": "Point", "coordinates": [-9016958.5, 3305842.5]}, crs=crs))
    point = shapely.from_wkb(read.values("geometry")[0])
    assert (round(point.x, 2), round(point.y, 2)) == (-81.0, 28.45)


def test_a_broken_shape_is_listed_once(read):
    state = read(collection(POINT, {"type": "Point", "coordinates": [None, 1]}, {"type": "Polygon", "coordinates": 5}))
    assert [wkb is None for wkb in read.values("geometry")] == [False, True, True]
    assert sorted((row, column) for row, column, _ in read.rejects()) == [(2, "geometry"), (3, "geometry")]
    assert (state.rows, state.missing_rows) == (3, 0)


def test_reading_again_gives_the_same(read):
    content = "a,b\n" + "".join(f"{n},{n % 7}\n" for n in range(30_000))
    first = read(content)
    rows = read.tables.tables["new"]
    second = read(content)
    assert read.tables.tables["new"].equals(rows)
    assert replace(second, known_columns=()) == replace(first, known_columns=())


@pytest.mark.parametrize("content", ["[" * 100_000, '[{"a": 1}, {"a"', b"", b"<html></html>"])
def test_what_cannot_be_read_whole_leaves_no_table(read, content):
    with pytest.raises(StateUnreadable):
        read(content)
    assert not hasattr(read, "read")
