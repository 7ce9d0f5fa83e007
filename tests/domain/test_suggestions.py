"""What measured columns suggest for the catalog, a row for each rule."""

from dataclasses import replace

import pytest

from ploti_server.domain.suggestions import (
    ColumnFacts,
    PlaceSuggestion,
    likely_pairs,
    pairs_to_try,
    place_of,
    single_keys,
    volatile_of,
)


def column(name, type_="string", distinct=100, nulls=0, **facts):
    return ColumnFacts(name, name.upper(), type_, 100, nulls, distinct, **facts)


COUNTED = column("n", "integer", least=1, most=100)


@pytest.mark.parametrize(
    ("found", "is_key", "doubt"),
    [
        (column("permit"), True, False),
        (column("permit", "integer", least=7, most=900), True, False),
        (column("permit", distinct=99), False, False),
        (column("permit", distinct=99, nulls=1), False, False),
        (column("value", "number"), False, False),
        (column("issued", "timestamp"), False, False),
        (COUNTED, True, True),
        (replace(COUNTED, least=0, most=99), True, True),
        (replace(COUNTED, least=2, most=101), True, False),
        (replace(COUNTED, most=101), True, False),
        (column("objectid", "integer", least=500, most=900), True, True),
        (replace(column("only"), rows=1, distinct=1), False, False),
    ],
    ids=[
        "unique and never null",
        "integers too",
        "one value twice",
        "one null",
        "a measure is no key",
        "a moment alone is none",
        "counts rows from 1",
        "counts rows from 0",
        "numbers from elsewhere",
        "with a gap",
        "called like a row number",
        "one row tells nothing",
    ],
)
def test_a_key_is_unique_and_never_null(found, is_key, doubt):
    keys = single_keys([found])
    assert bool(keys) is is_key
    assert bool(keys and keys[0].doubt) is doubt
    assert volatile_of([found]) == ((found.name,) if doubt else ())


def test_keys_whose_name_names_a_thing_come_first_and_row_numbers_last():
    keys = single_keys([COUNTED, column("title"), column("permit_no"), column("objectid")])
    assert [key.columns for key in keys] == [("permit_no",), ("title",), ("n",), ("objectid",)]


def test_pairs_are_tried_among_whole_columns_that_could_be_unique_together():
    columns = [
        column("permit", distinct=60),
        column("kind", distinct=2),
        column("line", "integer", distinct=50),
        column("constant", distinct=1),
        column("holes", distinct=60, nulls=3),
        column("value", "number", distinct=90),
        column("unique"),
    ]
    assert pairs_to_try(columns) == (("permit", "kind"), ("permit", "line"), ("kind", "line"))
    assert pairs_to_try([column("a", distinct=9), column("b", distinct=9)]) == ()
    assert len(pairs_to_try([column(f"c{n}", distinct=60) for n in range(30)])) == 28


def test_a_pair_without_a_name_that_names_a_thing_may_be_chance():
    assert likely_pairs([("owner", "issued"), ("permit_no", "line")]) == (("permit_no", "line"),)
    assert likely_pairs([("owner", "issued")]) == (("owner", "issued"),)


def number(name, least, most):
    return column(name, "number", least=least, most=most)


@pytest.mark.parametrize(
    ("columns", "place"),
    [
        ([number("lat", 28, 29), number("lon", -82, -81)], PlaceSuggestion("lon", "lat", crs="EPSG:4326")),
        ([number("x_coord", 2e6, 3e6), number("y_coord", 1e6, 2e6)], PlaceSuggestion("x_coord", "y_coord")),
        (
            [number("site_longitude", -1, 1), number("site_latitude", 0, 91)],
            PlaceSuggestion("site_longitude", "site_latitude"),
        ),
        ([column("lat"), column("lon")], None),
        (
            [column("lat", some=("42.5", "1")), column("lng", some=("-1.5", "7"))],
            PlaceSuggestion("lng", "lat", crs="EPSG:4326"),
        ),
        ([number("lat", None, None), number("lon", None, None)], None),
        ([number("lat", 28, 29)], None),
        ([column("the_geom", some=("POINT (1 2)", "MULTIPOLYGON Z (((0 0 0"))], PlaceSuggestion(wkt="the_geom")),
        ([column("shape", some=("POINT (1 2)", "Point of sale"))], None),
    ],
    ids=[
        "degrees",
        "projected",
        "beyond the pole",
        "texts",
        "texts that are numbers",
        "no value",
        "one alone",
        "well-known text",
        "other text",
    ],
)
def test_coordinates_are_told_by_name_type_and_range(columns, place):
    assert place_of(columns) == place


@pytest.mark.parametrize(("name", "volatile"), [("exported_at", True), ("data_as_of", True), ("issued_at", False)])
def test_times_of_reading_are_volatile(name, volatile):
    assert volatile_of([column(name, "timestamp", distinct=1)]) == ((name,) if volatile else ())
