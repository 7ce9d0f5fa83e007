"""Delivered names and their order (D2.1, D2.8, D2.9; F023, F024, F026)."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ploti_server.domain.columns import (
    SourceColumn,
    base_name,
    delivered_names,
    find_column,
    in_order,
    known_after,
)
from ploti_server.domain.schema import KnownColumn


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("PERMIT #", "permit"),
        ("AREA (SF)", "area_sf"),
        ("RFx (Solicitation) Type", "rfx_solicitation_type"),
        ("1-Family Min. Lot", "c_1_family_min_lot"),
        ("ExternalIncidentLink", "externalincidentlink"),
        ("Größe", "grosse"),
        ("Grösse", "grosse"),
        ("AÑO", "ano"),
        ("AN\u0303O", "ano"),
        ("Œuvre d'art", "oeuvre_d_art"),
        ("_id", "_id"),
        ("__id", "__id"),
        ("geometry", "source_geometry"),
        ("GEOMETRY", "source_geometry"),
        ("_ploti_record_id", "source__ploti_record_id"),
        ("_PLOTI_VERSION", "source__ploti_version"),
        ("Column with a\nline break", "column_with_a_line_break"),
        ('x"; drop table t;--', "x_drop_table_t"),
        ("площадь", "column_7"),
        ("面積 (m2)", "m2"),
        ("%s", "s"),
        ("#", "column_7"),
        ("", "column_7"),
        ("a" * 70, "a" * 63),
    ],
)
def test_name_of_one_column(source, name):
    assert base_name(source, 7) == name


def columns(*names):
    seen = {}
    made = []
    for position, name in enumerate(names, start=1):
        seen[name] = seen.get(name, 0) + 1
        made.append(SourceColumn(f"{name}\0{seen[name]}", name, position))
    return made


def names_of(state, known=()):
    got = delivered_names(state, known)
    return [got[column.id] for column in state]


@pytest.mark.parametrize(
    ("state", "known", "names"),
    [
        (("a", "b", "a"), (), ["a", "b", "a_2"]),
        (("A", "a", "a "), (), ["a", "a_2", "a_3"]),
        (("", "x", ""), (), ["column_1", "x", "column_3"]),
        (("_ploti_record_id", "_PLOTI_RECORD_ID"), (), ["source__ploti_record_id", "source__ploti_record_id_2"]),
        (("geometry", "source_geometry"), (), ["source_geometry", "source_geometry_2"]),
        (("se_cad",), (("se_cad", "SE_CAD"),), ["se_cad"]),
        (("se_cad", "SE_CAD"), (("se_cad", "SE_CAD"),), ["se_cad_2", "se_cad"]),
        (("A",), (("a", "a"), ("a_2", "A")), ["a_2"]),
        (("a", "x", "a"), (("a", "a"), ("b", "b"), ("a_2", "a")), ["a", "x", "a_2"]),
        (("geometry",), (("geometry", "geometry"),), ["source_geometry"]),
        (("b" * 70, "b" * 71), (), ["b" * 63, "b" * 61 + "_2"]),
        (("площадь", "x"), (("column_4", "площадь"),), ["column_4", "x"]),
    ],
)
def test_names_of_a_state(state, known, names):
    assert names_of(columns(*state), [KnownColumn(*pair) for pair in known]) == names


@settings(deadline=None)
@given(st.lists(st.text(max_size=80), max_size=12))
def test_names_are_plain_unique_and_stay(headers):
    state = columns(*headers)
    names = names_of(state)
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch("_*[a-z][a-z0-9_]*|_+[0-9][a-z0-9_]*", name)
        assert len(name) <= 63
        assert name != "geometry"
        assert not name.startswith("_ploti_")
    known = known_after((), [(name, column.source_name) for name, column in zip(names, state, strict=True)])
    assert names_of(state, known) == names
    by_id = delivered_names(state[::-1], known)
    if len({column.source_name for column in state}) == len(state):
        assert [by_id[column.id] for column in state] == names


def test_order_is_that_of_first_appearance():
    known = known_after((), [("a", "A"), ("b", "B"), ("geometry", "geometry")])
    later = known_after(known, [("c", "C"), ("b", "b"), ("a", "A")])
    assert later == (
        KnownColumn("a", "A"),
        KnownColumn("b", "b"),
        KnownColumn("geometry", "geometry"),
        KnownColumn("c", "C"),
    )
    assert in_order(["c", "b", "a"], later) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("spelling", "found"), [("SE_CAD", "SE_CAD"), ("se_cad", "se_cad"), ("Se Cad", "SE_CAD"), ("other", None)]
)
def test_catalog_finds_a_column_by_spelling_then_by_name(spelling, found):
    column = find_column(columns("SE_CAD", "se_cad", ""), spelling)
    assert (column and column.name) == found
