"""What went wrong for others, as small states through whole checks; each test names its row of the field log."""

import json

import pytest
from tests.pipeline.publishing import Publisher, table

from ploti_server.domain.datasets import GeometryColumns, SourceSpec


@pytest.fixture
def publisher(tmp_path):
    return Publisher(tmp_path)


def columns(publisher, number):
    return {column.name: (column.type, column.source_name) for column in publisher.version(number).schema.columns}


def features(*given, **members):
    listed = [{"type": "Feature", "properties": properties, "geometry": shape} for properties, shape in given]
    return json.dumps({"type": "FeatureCollection", "features": listed} | members)


def test_f007_leading_zeros_stay_and_tell_records_apart(publisher):
    publisher.define(key=("parcel_id",))
    publisher.outcome("parcel_id,v\n00123,a\n00124,b\n01001,c\n")
    assert publisher.outcome("parcel_id,v\n00123,a\n00124,b\n01001,c\n123,d\n") == ("released", 2)
    assert [row["parcel_id"] for row in publisher.rows(2, "changes")] == ["123"]
    assert {row["parcel_id"] for row in publisher.rows(2)} == {"00123", "00124", "01001", "123"}


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "unkeyed"])
def test_f008_ids_that_look_like_numbers_stay_as_they_are_written(publisher, key):
    publisher.define(key=key)
    written = ["12E12", "0047583311587E590003", "123456789012345678901", "1.0", "1.00"]
    assert publisher.outcome("id\n" + "".join(f"{id_}\n" for id_ in written)) == ("released", 1)
    assert sorted(row["id"] for row in publisher.rows(1)) == sorted(written)


@pytest.mark.parametrize("row", ["1,532000,1530000", "1,-81,28\n2,532000,1530000"], ids=["all", "one of two"])
def test_f021_metres_without_a_crs_are_not_released_as_degrees(publisher, row):
    publisher.define(source=SourceSpec("file", "x.csv", geometry=GeometryColumns(x="x", y="y")))
    done = publisher.check(f"id,x,y\n{row}\n")
    assert done.outcome == "failed"
    assert "CRS" in done.reason
    assert "`crs`" in done.reason


@pytest.mark.parametrize("name", ["parcels.geojson", "parcels.csv", "parcels.json"])
def test_f022_a_file_that_names_another_to_open_is_refused_by_its_content(publisher, name):
    vrt = "<OGRVRTDataSource><OGRVRTLayer><SrcDataSource>/etc/passwd</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>"
    done = publisher.check(vrt, name)
    assert done.outcome == "failed"
    assert "virtual file" in done.reason
    assert "passwd" not in done.reason


def test_f023_a_property_called_geometry_and_one_called_id_stay_beside_shape_and_feature_id(publisher):
    given = {"geometry": "lot line", "id": "x", "OBJECTID": 1}
    state = json.loads(features((given, {"type": "Point", "coordinates": [-81, 28]})))
    state["features"][0]["id"] = 1
    publisher.outcome(json.dumps(state), "x.geojson")
    (row,) = publisher.rows(1)
    assert (row["source_geometry"], row["id"], row["objectid"], row["feature_id"]) == ("lot line", "x", 1, 1)
    assert row["geometry"] is not None
    assert columns(publisher, 1)["source_geometry"] == ("string", "geometry")


def test_f024_reserved_names_of_the_source_are_delivered_beside_the_envelope_under_names_that_stay(publisher):
    publisher.outcome("_ploti_record_id,_PLOTI_VERSION,_ploti_op,x\n1,2,3,4\n")
    assert publisher.outcome("x,_ploti_op,_PLOTI_VERSION,_ploti_record_id\n4,3,2,1\n5,6,7,8\n") == ("released", 2)
    assert publisher.version(2).schema_change is None
    row = next(row for row in publisher.rows(2) if row["x"] == 4)
    own = {name: value for name, value in row.items() if name.startswith("source_")}
    assert own == {"source__ploti_record_id": 1, "source__ploti_version": 2, "source__ploti_op": 3}
    assert (row["_ploti_version"], row["_ploti_record_id"][:4]) == (2, "rec_")


def test_f026_columns_of_one_name_keep_their_own_values(publisher):
    publisher.outcome("a,b,a\n1,2,3\n")
    (row,) = publisher.rows(1)
    assert (row["a"], row["b"], row["a_2"]) == (1, 2, 3)


def test_f027_a_number_that_looks_whole_later_stays_a_number(publisher):
    publisher.define(key=("id",))
    publisher.outcome("id,valuation\na,10.5\nb,11\n")
    assert publisher.outcome("id,valuation\na,10\nb,11\nc,12\n") == ("released", 2)
    assert publisher.version(2).schema_change is None
    publisher.define(columns={"valuation": "integer"})
    assert publisher.outcome("id,valuation\na,10\nb,11\nc,12\n") == ("held", 3)
    assert (publisher.version(3).reasons, publisher.version(3).schema_version) == (("schema_review",), "2.0")


def test_f033_a_publisher_who_renumbers_everything_and_goes_back_keeps_every_id(publisher):
    publisher.define(key=("k",))
    states = [table(range(1, 51), "k,name,n", letter + "{0},name{0},{0}7") for letter in "ABA"]
    assert [publisher.outcome(state) for state in states] == [("released", 1), ("released", 2), ("released", 3)]
    assert publisher.ids(1, "k") == publisher.ids(3, "k")
    assert publisher.ids(1, "name") == publisher.ids(2, "name")
    assert [publisher.version(number).row_count for number in (1, 2, 3)] == [50, 50, 50]


def test_f033_where_the_numbers_alone_tell_records_apart_it_is_held_and_going_back_brings_every_id_back(publisher):
    publisher.define(key=("k",))
    there, elsewhere = (table(range(1, 51), "k,name", letter + "{0},permit") for letter in "AB")
    assert [publisher.outcome(state) for state in (there, elsewhere)] == [("released", 1), ("held", 2)]
    assert publisher.version(2).reasons == ("data_check",)
    publisher.release()
    assert publisher.outcome(there) == ("held", 3)
    publisher.release()
    assert publisher.ids(3, "k") == publisher.ids(1, "k")


def test_f034_equal_rows_are_matched_one_to_one_and_the_elder_survives(publisher):
    publisher.outcome("a,b\nx,1\ny,2\n")
    publisher.outcome("a,b\nx,1\nx,1\ny,2\n")
    publisher.outcome("a,b\nx,1\ny,2\n")
    counts = [publisher.version(number).counts for number in (2, 3)]
    assert [(c.added, c.changed, c.removed) for c in counts] == [(1, 0, 0), (0, 0, 1)]
    assert publisher.ids(1, "a") == publisher.ids(3, "a")


SQUARE = [[-81, 28], [-80.9, 28], [-80.9, 28.1], [-81, 28.1], [-81, 28]]
OTHER = [[x + 1, y] for x, y in SQUARE]
SAME_SHAPES = {
    "started elsewhere": ([[*SQUARE[2:-1], *SQUARE[:3]]], [[SQUARE], [OTHER]]),
    "other direction": ([SQUARE[::-1]], [[SQUARE[::-1]], [OTHER]]),
    "closing point repeated": ([[*SQUARE, SQUARE[-1]]], [[SQUARE], [OTHER]]),
    "parts in another order": ([SQUARE], [[OTHER], [SQUARE]]),
    "noise of a billionth": ([[[x + 1e-9, y - 1e-9] for x, y in SQUARE]], [[SQUARE], [OTHER]]),
}


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "unkeyed"])
@pytest.mark.parametrize("shapes", SAME_SHAPES.values(), ids=SAME_SHAPES)
def test_f035_the_same_polygons_drawn_otherwise_make_no_change_and_keep_their_bytes(publisher, key, shapes):
    def state(polygon, parts, last):
        return features(
            ({"id": 1}, {"type": "Polygon", "coordinates": polygon}),
            ({"id": 2}, {"type": "MultiPolygon", "coordinates": parts}),
            ({"id": last}, {"type": "Polygon", "coordinates": [OTHER]}),
        )

    publisher.define(key=key)
    publisher.outcome(state([SQUARE], [[SQUARE], [OTHER]], 3), "x.geojson")
    assert publisher.outcome(state(*shapes, 3), "x.geojson") == ("unchanged", 1)
    assert publisher.outcome(state(*shapes, 4), "x.geojson") == ("released", 2)
    first, second = ({row["id"]: row["geometry"] for row in publisher.rows(number)} for number in (1, 2))
    assert (first[1], first[2]) == (second[1], second[2])
    assert {row["id"] for row in publisher.rows(2, "changes") if row["_ploti_op"] == "upsert"} == {4}


def test_f038_blank_null_and_outer_space_are_one_rule_there_and_back(publisher):
    publisher.define(key=("k",))
    for cell in ("A", " A", "A\t", "\u00a0A\u3000"):
        assert publisher.outcome(f"k,v\n1,{cell}\n2,z\n")[1] == 1
    for cell in ("", " ", '""', "\u2003"):
        assert publisher.outcome(f"k,v\n1,{cell}\n2,z\n")[1] == 2
    assert publisher.outcome("k,v\n1,A\n2,z\n") == ("released", 3)
    first, third = ([(row["k"], row["v"]) for row in publisher.rows(number)] for number in (1, 3))
    assert first == third


def test_f040_a_null_in_one_part_of_a_combined_key_is_held(publisher):
    publisher.define(key=("book", "page"))
    subscription = publisher.subscribe()
    assert publisher.outcome("book,page,v\n1,,a\n1,,b\n2,3,c\n") == ("held", 1)
    assert publisher.log(subscription, "reason") == [("added", None), ("delayed", "data_check")]


def test_f041_a_column_that_became_all_empty_keeps_its_type_in_every_part(publisher):
    publisher.define(key=("k",))
    publisher.outcome("k,d\na,\nb,3.5\n")
    assert publisher.outcome("k,d\na,\nb,\n") == ("released", 2)
    assert columns(publisher, 2)["d"] == ("number", "d")
    assert publisher.version(2).schema_change is None


def test_f042_far_off_dates_stay_and_the_year_zero_is_null(publisher):
    publisher.outcome("k,d\n1,9999-12-31\n2,0001-01-01\n3,1600-02-29\n4,0000-00-00\n")
    assert {row["k"]: row["d"] and row["d"].isoformat() for row in publisher.rows(1)} == {
        1: "9999-12-31",
        2: "0001-01-01",
        3: "1600-02-29",
        4: None,
    }


def test_f048_no_rows_deletes_alone_and_shapes_that_are_all_null_are_versions_like_any_other(publisher):
    points = [({"id": n}, {"type": "Point", "coordinates": [-81, n]}) for n in range(5)]
    publisher.outcome(features(*points), "x.geojson")
    assert publisher.outcome(features(*points[:3]), "x.geojson") == ("released", 2)
    assert {row["_ploti_op"] for row in publisher.rows(2, "changes")} == {"delete"}
    assert publisher.outcome(features(), "x.geojson") == ("held", 3)
    publisher.release()
    assert publisher.rows(3) == []
    assert publisher.outcome(features(({"id": 8}, None), ({"id": 9}, None)), "x.geojson") == ("released", 4)
    assert [(row["geometry"], row["_ploti_bbox"]) for row in publisher.rows(4)] == [(None, None), (None, None)]
    assert publisher.version(4).schema_version == "1.1"


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ('[{"k":"a","v":NaN},{"k":"b","v":Infinity},{"k":"c","v":-Infinity},{"k":"d","v":1.5}]', "x.json"),
        ("k,v\na,NaN\nb,Infinity\nc,-Infinity\nd,1.5\n", "x.csv"),
    ],
)
def test_f060_what_is_no_number_is_null_in_a_number_column(publisher, state, name):
    publisher.outcome(state, name)
    assert {row["k"]: row["v"] for row in publisher.rows(1)} == {"a": None, "b": None, "c": None, "d": 1.5}


def test_f070_any_header_becomes_a_plain_name(publisher):
    header = [
        "group",
        '"a""b"',
        '"x""; drop table t;--"',
        "%s",
        ":p",
        "",
        '"line\nbreak"',
        "select",
        "1st",
        "Name",
        "NAME",
    ]
    publisher.outcome(",".join(header) + "\n" + ",".join(str(n) for n in range(len(header))) + "\n")
    (row,) = publisher.rows(1)
    own = {name: value for name, value in row.items() if not name.startswith("_ploti_")}
    assert list(own.values()) == list(range(len(header)))
    assert list(own) == [
        "group",
        "a_b",
        "x_drop_table_t",
        "s",
        "p",
        "column_6",
        "line_break",
        "select",
        "c_1st",
        "name",
        "name_2",
    ]
