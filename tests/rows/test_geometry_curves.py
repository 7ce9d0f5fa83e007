"""Curves, triangles and surfaces made linear, and all other WKB and WKT read as it is (D3.1)."""

import csv
import struct
from pathlib import Path

import numpy as np
import pyogrio
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from ploti_server.rows.curves import shapes_from_wkb, shapes_from_wkt
from ploti_server.rows.geometry import normalise_shapes

AWKWARD = Path(__file__).parents[2].parent / "shared" / "data" / "awkward"


def read_wkt(*texts):
    return shapes_from_wkt(np.array(texts, dtype=object))


@pytest.mark.parametrize(
    ("text", "kind", "measure"),
    [
        ("CIRCULARSTRING (0 0, 1 1, 2 0)", "LineString", np.pi),
        ("CIRCULARSTRING (0 0, 1 -1, 2 0)", "LineString", np.pi),
        ("CIRCULARSTRING (0 0, 2 0, 0 0)", "LineString", 2 * np.pi),
        ("CIRCULARSTRING (0 0, 1 0, 2 0)", "LineString", 2),
        ("CIRCULARSTRING Z (0 0 9, 1 1 9, 2 0 9, 3 -1 9, 4 0 9)", "LineString", 2 * np.pi),
        ("COMPOUNDCURVE (CIRCULARSTRING (0 0, 1 1, 2 0), (2 0, 5 0))", "LineString", np.pi + 3),
        ("MULTICURVE ((0 0, 5 0), CIRCULARSTRING (0 0, 1 1, 2 0))", "MultiLineString", np.pi + 5),
        ("CURVEPOLYGON (CIRCULARSTRING (0 0, 2 0, 0 0))", "Polygon", np.pi),
        ("CURVEPOLYGON (COMPOUNDCURVE (CIRCULARSTRING (0 0, 1 1, 2 0), (2 0, 0 0)))", "Polygon", np.pi / 2),
        ("CURVEPOLYGON ((-5 -5, 5 -5, 5 5, -5 5, -5 -5), CIRCULARSTRING (0 0, 2 0, 0 0))", "Polygon", 100 - np.pi),
        (
            "MULTISURFACE (((9 0, 10 0, 10 1, 9 0)), CURVEPOLYGON (CIRCULARSTRING (0 0, 2 0, 0 0)))",
            "MultiPolygon",
            np.pi + 0.5,
        ),
        ("TRIANGLE ((0 0 0, 0 1 0, 1 1 0, 0 0 0))", "Polygon", 0.5),
        ("TIN (((0 0, 0 1, 1 1, 0 0)), ((0 0, 1 1, 1 0, 0 0)))", "MultiPolygon", 1),
        ("POLYHEDRALSURFACE Z (((0 0 0, 0 1 0, 1 1 0, 0 0 0)))", "MultiPolygon", 0.5),
        ("GEOMETRYCOLLECTION (POINT (1 2), CIRCULARSTRING (0 0, 1 1, 2 0))", "GeometryCollection", np.pi),
        ("SRID=4326;CIRCULARSTRINGZ (0 0 1, 1 1 1, 2 0 1)", "LineString", np.pi),
    ],
)
def test_a_curve_becomes_linear_and_keeps_its_measure(text, kind, measure):
    (shape,), broken = read_wkt(text)
    assert (shape.geom_type, broken) == (kind, [])
    assert (shape.area if kind.endswith("Polygon") else shape.length) == pytest.approx(measure, rel=2e-3)


@pytest.mark.parametrize("middle", [(1.0, 1.0), (0.3, 0.7), (1.0, -1.0), (5.0, 3.0), (-3.0, 0.1)])
def test_an_arc_goes_through_its_three_vertices_on_one_circle(middle):
    (line,), _ = read_wkt(f"CIRCULARSTRING (0 0, {middle[0]} {middle[1]}, 2 0)")
    vertices = shapely.get_coordinates(line)
    assert vertices[0].tolist() == [0, 0]
    assert vertices[-1].tolist() == [2, 0]
    assert list(middle) in vertices.tolist()
    y = (middle[0] ** 2 + middle[1] ** 2 - 2 * middle[0]) / (2 * middle[1])
    assert np.hypot(vertices[:, 0] - 1, vertices[:, 1] - y) == pytest.approx(np.hypot(1, y))
    assert len(np.unique(vertices, axis=0)) == len(vertices)


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        ("CURVEPOLYGON EMPTY", "POLYGON EMPTY"),
        ("CIRCULARSTRING EMPTY", "LINESTRING EMPTY"),
        ("TIN EMPTY", "MULTIPOLYGON EMPTY"),
    ],
)
def test_an_empty_curve_is_an_empty_shape(text, empty):
    (shape,), broken = read_wkt(text)
    assert (shape.wkt, broken) == (empty, [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "CIRCULARSTRING (0 0, 1 1)",
        "CURVEPOLYGON ((0 0, 1 1",
        "HELIX (0 0, 1 1, 2 2)",
        "CIRCULARSTRING (0 0, 1 1, 2 0) x",
        "MULTICURVE 5",
        "CURVEPOLYGON (POINT (1 1))",
        "CIRCULARSTRING (a b, 1 1, 2 0)",
        "MULTISURFACE (" * 5000,
    ],
)
def test_broken_text_is_told_by_its_place(text):
    shapes, broken = read_wkt("POINT (1 2)", None, text, "CIRCULARSTRING (0 0, 1 1, 2 0)")
    assert [shape and shape.geom_type for shape in shapes] == ["Point", None, None, "LineString"]
    assert broken == [2]


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("pyogrio/curve.gpkg", "MultiLineString"),
        ("pyogrio/curvepolygon.gpkg", "MultiPolygon"),
        ("pyogrio/multisurface.gpkg", "MultiPolygon"),
        ("fiona/multicurve.gml", "MultiLineString"),
        ("fiona/test_tin.shp", "MultiPolygon"),
    ],
)
def test_curves_of_real_files_are_delivered(file, kind):
    meta, table = pyogrio.read_arrow(AWKWARD / file)
    wkb = table.column(meta["geometry_name"] or "wkb_geometry").to_numpy()
    shapes, broken = shapes_from_wkb(wkb)
    found = normalise_shapes(shapes, ("EPSG:4326",))
    assert (broken, found.kinds, found.wkb.null_count) == ([], {kind}, 0)
    assert found.rejects == ()


@pytest.mark.parametrize(("file", "rows"), [("fiona/curves_line.csv", 9), ("fiona/test_tin.csv", 3)])
def test_curves_of_a_real_text_file_are_read(file, rows):
    with (AWKWARD / file).open(newline="") as lines:
        texts = [row["WKT"] for row in csv.DictReader(lines)]
    shapes, broken = read_wkt(*texts)
    assert (len(texts), broken) == (rows, [])
    assert not shapely.is_missing(shapes).any()


ARC = struct.pack("<II6d", 8, 3, 0, 0, 1, 1, 2, 0)
TURNED = struct.pack(">II6d", 8, 3, 0, 0, 1, 1, 2, 0)
ARC_Z = struct.pack("<II9d", 1008, 3, 0, 0, 7, 1, 1, 7, 2, 0, 7)
ARC_EWKB = struct.pack("<III9d", 8 | 0x80000000 | 0x20000000, 4326, 3, 0, 0, 7, 1, 1, 7, 2, 0, 7)


@pytest.mark.parametrize("wkb", [b"\x01" + ARC, b"\x00" + TURNED, b"\x01" + ARC_Z, b"\x01" + ARC_EWKB])
def test_wkb_is_read_in_any_byte_order_and_dimension(wkb):
    (shape,), broken = shapes_from_wkb(np.array([wkb], dtype=object))
    assert broken == []
    assert shape.equals(read_wkt("CIRCULARSTRING (0 0, 1 1, 2 0)")[0][0])
    assert not shape.has_z


@given(st.binary(max_size=40), st.integers(0, 60))
def test_no_bytes_break_the_reader(noise, cut):
    whole = b"\x01" + ARC
    values = np.array([whole, noise, whole[:cut], None], dtype=object)
    shapes, broken = shapes_from_wkb(values)
    assert shapes[0].geom_type == "LineString"
    assert (3 not in broken, len(shapes)) == (True, 4)
    assert all(shapely.is_missing(shapes[place]) for place in broken)


def test_plain_columns_are_read_at_once():
    column = np.array([shapely.Point(1, 2).wkb, None, shapely.box(0, 0, 1, 1).wkb], dtype=object)
    shapes, broken = shapes_from_wkb(column)
    assert ([shape and shape.geom_type for shape in shapes], broken) == (["Point", None, "Polygon"], [])
