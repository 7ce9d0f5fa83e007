"""JSON, newline JSON and GeoJSON: where records are, kinds of values, shapes (D2.10, D14; F017, F023, F060)."""

import gzip
import itertools
import json

import numpy as np
import pytest
import shapely

from ploti_server.domain.datasets import Dataset, GeometryColumns, SourceSpec
from ploti_server.domain.states import StateUnreadable
from ploti_server.rows.raw import Kind
from ploti_server.sources import open_state
from ploti_server.sources.json_records import FORMS_MOST, NO_OBJECT
from ploti_server.sources.json_stream import JsonStream


@pytest.fixture
def opened(tmp_path):
    def open_text(content, records=None, name="state", **more):
        path = tmp_path / "raw"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return open_state(path, name, Dataset("ds_t", "T", SourceSpec("file", "t", records), **more))

    return open_text


def table(raw):
    """Give each column's texts by name."""
    batches = list(raw.batches())
    return {c.name: [t for b in batches for t in b.column(c.id).text.to_pylist()] for c in raw.columns}


RECORDS = '[{"a": 1, "b": "x"}, {"a": 2, "b": null}]'
EXPECTED = {"a": ["1", "2"], "b": ["x", None]}


@pytest.mark.parametrize(
    ("content", "records"),
    [
        (RECORDS, None),
        (RECORDS, "not.needed"),
        (RECORDS.encode("utf-16"), None),
        ("\ufeff" + RECORDS, None),
        (gzip.compress(RECORDS.encode(), mtime=0), None),
        (f'{{"count": 2, "rows": {RECORDS}, "names": ["x"], "empty": []}}', None),
        (f'{{"rows": {RECORDS}, "more": [{{"z": 1}}]}}', "rows"),
        (f'{{"more": [1], "data": {{"x": 1, "rows": {RECORDS}}}, "z": 1}}', "data.rows"),
        (f'{{"data.rows": {RECORDS}}}', "data.rows"),
        (f'{{"errors": {RECORDS}}}', "errors"),
        (f'{{"errors": [], "rows": {RECORDS}}}', None),
        ('{"a": 1, "b": "x"}\n{"a": 2, "b": null}\n', None),
        ('\x1e{"a": 1,\n "b": "x"}\n\x1e{"a": 2, "b": null}', None),
    ],
)
def test_where_the_records_are(opened, content, records):
    assert table(opened(content, records)) == EXPECTED


def test_one_line_of_newline_json_by_its_name(opened):
    assert table(opened('{"a": 1}', name="x.ndjson")) == {"a": ["1"]}


@pytest.mark.parametrize(
    ("content", "records", "reason"),
    [
        ('{"error": {"code": 500}}', None, "source.records"),
        ('{"a": [{"x": 1}], "b": [{"x": 1}]}', None, "several"),
        ('{"errors": [{"message": "no token"}]}', None, "error message"),
        ('{"error": [], "Errors": [{"code": 1}]}', None, "error message"),
        ('{"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [1, 2]}]}', None, "shape"),
        ('{"type": "Point", "coordinates": [1, 2]}', None, "shape"),
        ('{"geometryType": "esriGeometryPoint", "features": [{"attributes": {"a": 1}}]}', None, "Esri"),
        ('{"spatialReference": {}, "fields": [{"name": "a"}], "features": [{"attributes": {}}]}', None, "Esri"),
        ('{"rows": null}', "rows", "no list"),
        ('{"other": [{"a": 1}]}', "rows", "no `rows`"),
        ('[{"a": 1}, {"a": 2', None, "breaks off"),
        ('[{"a": 1}', None, "breaks off"),
        ('[{"a": 1},', None, "breaks off"),
        ('{"rows": [{"a": 1}]', None, "breaks off"),
        ('{"rows": [{"a": 1}], "total"', "rows", "missing|breaks off"),
        ('[{"a": 1}] trailing', None, "follows"),
        ('[{"a": nope}]', None, "cannot be read"),
        ("[1, 2, 3]", None, "no objects"),
        ("[" * 100_000, None, "deep"),
        ('[{"a": ' + "[" * 100_000 + "]" * 100_000 + "}]", None, "deep"),
        ('{"a": ' * 100_000, None, "deep"),
    ],
)
def test_what_is_no_list_of_records_is_refused_with_a_reason(opened, content, records, reason):
    with pytest.raises(StateUnreadable, match=reason):
        table(opened(content, records))


@pytest.mark.parametrize(
    ("content", "records", "features"),
    [
        ('{"rows": [], "total": 0}', "rows", False),
        ('{"rows": []}', None, False),
        ("[]", None, False),
        ('{"type": "FeatureCollection", "features": []}', None, True),
    ],
)
def test_a_state_without_records_says_nothing_about_columns(opened, content, records, features):
    raw = opened(content, records)
    assert (raw.columns, raw.has_records, raw.has_shapes) == ((), False, features)


def test_columns_are_members_that_some_record_has(opened):
    raw = opened('[{"a": 1}, {"a": null, "b": null}]')
    assert [(c.name, c.position, c.optional) for c in raw.columns] == [("a", 1, False), ("b", 2, True)]
    assert raw.by_member


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_order_of_columns_does_not_hang_on_the_order_of_records(opened, order):
    records = [{"a": 1, "b": 2, "d": 4}, {"d": 4}, {"a": 1, "b": 2, "c": 3, "d": 4}, {"a": 1, "e": 5}]
    raw = opened(json.dumps([records[at] for at in order]))
    assert [column.name for column in raw.columns] == ["a", "b", "e", "c", "d"]


def test_columns_of_more_forms_of_records_than_are_kept_are_counted_right(opened):
    raw = opened(json.dumps([{"a": 1, f"x{number}": 1} for number in range(FORMS_MOST + 2)] + [{"a": 1}]))
    assert len(raw.columns) == FORMS_MOST + 3
    assert [(c.name, c.optional) for c in raw.columns[:2]] == [("a", False), ("x0", True)]


KINDS = [
    ('"x"', "x", Kind.STRING),
    ("12", "12", Kind.INTEGER),
    ("12.0", "12.0", Kind.NUMBER),
    ("1e2", "100.0", Kind.NUMBER),
    ("1e400", None, Kind.NUMBER),
    ("NaN", None, Kind.NUMBER),
    ("-Infinity", None, Kind.NUMBER),
    ("9223372036854775807", "9223372036854775807", Kind.INTEGER),
    ("9223372036854775808", "9223372036854775808", Kind.STRING),
    ("9" * 5000, "9" * 5000, Kind.STRING),
    ("true", "true", Kind.BOOLEAN),
    ('{"b": 1, "a": [1.50, "é"]}', '{"a":[1.5,"é"],"b":1}', Kind.NESTED),
    ('{"a": 1, "a": 2}', '{"a":2}', Kind.NESTED),
    ("[NaN]", "[null]", Kind.NESTED),
    (r'"\ud800"', "\ufffd", Kind.STRING),
    (r'"\ud83c\udfe0"', "🏠", Kind.STRING),
    ('"a\tb"', "a\tb", Kind.STRING),
]


@pytest.mark.parametrize(("value", "text", "kind"), KINDS)
def test_text_and_kind_of_a_value(opened, value, text, kind):
    (batch,) = opened(f'[{{"a": {value}}}, {{"a": null}}]').batches()
    assert batch.column("a").text.to_pylist() == [text, None]
    assert batch.column("a").kinds == {kind}
    (batch,) = opened(f'[{{"a": {value}}}, {{"b": 1}}, {{"a": false}}, {{"a": []}}]').batches()
    assert batch.column("a").text.to_pylist() == [text, None, "false", "[]"]
    assert batch.column("a").kind_of.tolist() == [kind, Kind.NULL, Kind.BOOLEAN, Kind.NESTED]


def test_the_last_of_equal_members_counts(opened):
    assert table(opened('[{"a": 1, "a": 2}]')) == {"a": ["2"]}


def test_what_is_no_object_is_missing(opened):
    raw = opened('[{"a": 1}, null, 5, {"a": 2}]')
    batches = list(raw.batches())
    assert [(r.row, r.reason, r.value) for b in batches for r in b.rejects] == [
        (2, NO_OBJECT, "null"),
        (3, NO_OBJECT, "5"),
    ]
    assert sum(b.missing for b in batches) == 2
    assert [n for b in batches for n in b.numbers.tolist()] == [1, 4]


def test_dotted_names_reach_into_objects(opened):
    content = '[{"id": {"n": 7}, "place": {"at": {"lng": "-81.5"}}}, {"id": {"n": 8}, "place": null}]'
    raw = opened(content, key=("id.n",), columns={"place.at.lng": "number"})
    assert table(raw)["id.n"] == ["7", "8"]
    assert table(raw)["place.at.lng"] == ["-81.5", None]


def collection(*features, **members):
    return json.dumps({"type": "FeatureCollection", "features": list(features)} | members)


def feature(geometry, properties=None, **members):
    return {"type": "Feature", "geometry": geometry, "properties": properties} | members


POINT = {"type": "Point", "coordinates": [-81, 28.5]}
SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("geometry", "wkt"),
    [
        (None, None),
        (POINT, "POINT (-81 28.5)"),
        ({"type": "Point", "coordinates": [1, 2, 3]}, "POINT (1 2)"),
        ({"type": "Point", "coordinates": []}, "POINT EMPTY"),
        ({"type": "MultiPoint", "coordinates": [[1, 2], [3, 4, 5]]}, "MULTIPOINT ((1 2), (3 4))"),
        ({"type": "LineString", "coordinates": [[1, 2], [3, 4, 5]]}, "LINESTRING (1 2, 3 4)"),
        ({"type": "MultiLineString", "coordinates": [[[1, 2], [3, 4]]]}, "MULTILINESTRING ((1 2, 3 4))"),
        ({"type": "Polygon", "coordinates": [SQUARE]}, "POLYGON ((0 0, 1 0, 1 1, 0 1, 0 0))"),
        ({"type": "Polygon", "coordinates": [SQUARE[:-1]]}, "POLYGON ((0 0, 1 0, 1 1, 0 1, 0 0))"),
        ({"type": "Polygon", "coordinates": []}, "POLYGON EMPTY"),
        ({"type": "MultiPolygon", "coordinates": [[SQUARE]]}, "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 1, 0 0)))"),
        (
            {"type": "GeometryCollection", "geometries": [POINT, POINT]},
            "GEOMETRYCOLLECTION (POINT (-81 28.5), POINT (-81 28.5))",
        ),
    ],
)
def test_shapes(opened, geometry, wkt):
    raw = opened(collection(feature(geometry, {"a": 1}), feature(POINT)))
    (batch,) = raw.batches()
    assert raw.has_shapes
    assert batch.rejects == ()
    got = batch.shapes[0]
    assert (None if got is None else shapely.to_wkt(got, trim=True)) == wkt
    assert shapely.to_wkt(batch.shapes[1], trim=True) == "POINT (-81 28.5)"


@pytest.mark.parametrize(
    "geometry",
    [
        {"type": "Point", "coordinates": ["x", "y"]},
        {"type": "Point", "coordinates": [1]},
        {"type": "Point"},
        {"type": "Polygon", "coordinates": [[[0, 0], [1]]]},
        {"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]},
        {"type": "Polygon", "coordinates": 5},
        {"type": "Curve", "coordinates": []},
        {"type": None},
        "POINT (1 2)",
        [1, 2],
        {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": ["a", 1]}]},
    ],
)
def test_a_broken_shape_is_null_and_listed(opened, geometry):
    (batch,) = opened(collection(feature(POINT), feature(geometry, {"a": 1}))).batches()
    assert batch.shapes[1] is None
    assert [(reject.row, reject.column) for reject in batch.rejects] == [(2, "geometry")]
    assert batch.missing == 0
    assert len(batch.numbers) == 2


@pytest.mark.parametrize(
    ("members", "crs"),
    [
        ({}, ("OGC:CRS84",)),
        (
            {"crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::2263"}}},
            ("urn:ogc:def:crs:EPSG::2263",),
        ),
        ({"crs": None}, ()),
        ({"crs": {"type": "link", "properties": {"href": "http://x"}}}, ()),
    ],
)
def test_the_crs_that_a_collection_names(opened, members, crs):
    assert opened(collection(feature(POINT), **members)).crs == crs


@pytest.mark.parametrize(
    ("features", "names"),
    [
        ([feature(POINT, {"x": 1}, id=5)], ["x", "id"]),
        ([feature(POINT, {"x": 1}, id=5), feature(POINT, {"id": 2})], ["id", "x", "feature_id"]),
        (
            [feature(POINT, {"geometry": "lot line", "id": "x", "OBJECTID": 1}, id=1)],
            ["geometry", "id", "OBJECTID", "feature_id"],
        ),
        ([feature(POINT, None)], []),
    ],
)
def test_a_feature_s_own_id_is_a_column(opened, features, names):
    assert [column.name for column in opened(collection(*features)).columns] == names


def test_newline_features_and_a_list_of_features(opened):
    lines = "\n".join(json.dumps(feature(POINT, {"a": n})) for n in range(3))
    assert opened(lines).has_shapes
    assert table(opened(lines)) == {"a": ["0", "1", "2"]}
    assert opened(json.dumps([feature(POINT, {"a": 1})])).has_shapes


def test_coordinates_of_a_table_are_read_by_their_dotted_names(opened, tmp_path):
    path = tmp_path / "raw"
    path.write_text('[{"at": {"x": 1, "y": 2}}]')
    source = SourceSpec("file", "t", geometry=GeometryColumns(x="at.x", y="at.y"))
    assert table(open_state(path, None, Dataset("ds_t", "T", source)))["at.y"] == ["2"]


def test_many_records_come_in_batches_and_can_be_read_again(opened):
    records = [{"n": n, "text": "x" * (n % 7)} for n in range(45_000)]
    raw = opened(json.dumps(records))
    for _ in range(2):
        batches = list(raw.batches())
        assert [len(batch.numbers) for batch in batches] == [20_000, 20_000, 5_000]
        assert np.concatenate([batch.numbers for batch in batches]).tolist() == list(range(1, 45_001))
    assert table(raw)["n"] == [str(n) for n in range(45_000)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_pieces_of_any_size_give_the_same(size):
    text = ' [ {"a": 12, "b": [true, null, -1.5e3]}, {"a": "x\\"y\\u00e9"}, 7 , [] , 123456 ] '
    stream = JsonStream(iter([text[i : i + size] for i in range(0, len(text), size)]))
    assert list(stream.items()) == json.loads(text)
    assert stream.peek() == ""
