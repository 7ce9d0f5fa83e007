"""Places and coverage (page 000 "Places", D10.1, D10.3)."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ploti_server.domain.coverage import (
    coverage_problems,
    covered_counties,
    covered_places,
    in_coverage,
    is_covered,
    lies_in,
    places_holding,
)
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.places import counties_of, place_named, places, slug

FLORIDA = frozenset({"fl-county-orange", "fl-county-seminole"})


def dataset(place=None, *covers):
    return Dataset(id="ds_x", title="X", source=SourceSpec("file", "x"), place=place, covers=covers)


@pytest.mark.parametrize(
    ("place_id", "name", "kind", "state"),
    [
        ("fl-county-orange", "Orange County", "county", "fl"),
        ("md-county-baltimore", "Baltimore County", "county", "md"),
        ("md-county-baltimore-city", "Baltimore city", "county", "md"),
        ("mo-county-st-louis", "St. Louis County", "county", "mo"),
        ("mo-county-st-louis-city", "St. Louis city", "county", "mo"),
        ("mn-county-st-louis", "St. Louis County", "county", "mn"),
        ("va-county-richmond-city", "Richmond city", "county", "va"),
        ("va-county-alexandria", "Alexandria city", "county", "va"),
        ("va-county-james-city", "James City County", "county", "va"),
        ("va-county-charles-city", "Charles City County", "county", "va"),
        ("nv-county-carson-city", "Carson City", "county", "nv"),
        ("nm-county-dona-ana", "Doña Ana County", "county", "nm"),
        ("pr-county-mayaguez", "Mayagüez Municipio", "county", "pr"),
        ("la-county-lasalle", "LaSalle Parish", "county", "la"),
        ("tx-county-la-salle", "La Salle County", "county", "tx"),
        ("md-county-prince-georges", "Prince George's County", "county", "md"),
        ("ak-county-juneau", "Juneau City and Borough", "county", "ak"),
        ("ak-county-chugach", "Chugach Census Area", "county", "ak"),
        ("ct-county-fairfield", "Fairfield County", "county", "ct"),
        ("ct-county-capitol", "Capitol Planning Region", "county", "ct"),
        ("dc-county-district-of-columbia", "District of Columbia", "county", "dc"),
        ("gu-county-guam", "Guam", "county", "gu"),
        ("fl", "Florida", "state", "fl"),
        ("dc", "District of Columbia", "state", "dc"),
        ("vi", "U.S. Virgin Islands", "state", "vi"),
        ("fl-counties", "Every covered county in Florida", "state_counties", "fl"),
        ("us", "United States", "us", None),
    ],
)
def test_built_in_place_has_its_id_name_kind_and_state(place_id, name, kind, state):
    place = place_named(place_id)
    assert (place.name, place.kind, place.state) == (name, kind, state)


def test_every_county_of_both_vintages_and_every_state_is_a_place(shared):
    rows = list(csv.DictReader((shared / "demo" / "us_counties.csv").open(encoding="utf-8")))
    kinds = [place.kind for place in places().values()]
    assert kinds.count("county") == len(rows) == 3243
    assert kinds.count("state") == kinds.count("state_counties") == 56
    assert kinds.count("us") == 1
    assert sum(len(counties_of(row.id)) for row in places().values() if row.kind == "state") == 3243


def test_every_id_is_plain_ascii_and_belongs_to_its_state():
    for place in places().values():
        assert slug(place.id) == place.id
        assert place.state is None or place.id.split("-")[0] == place.state


@given(st.text())
def test_slug_is_stable_and_safe_for_any_name(name):
    made = slug(name)
    assert slug(made) == made
    assert made.isascii()
    assert not set(made) - set("abcdefghijklmnopqrstuvwxyz0123456789-")


class TestCoverage:
    def test_coverage_names_counties_or_a_states_counties(self):
        assert covered_counties(["fl-county-orange"]) == {"fl-county-orange"}
        assert covered_counties(["fl-counties"]) == counties_of("fl")
        assert len(covered_counties(["fl-counties", "fl-county-orange", "ny-county-kings"])) == 68

    @pytest.mark.parametrize("entry", ["fl", "us", "florida", "fl-county-nowhere", "FL-county-orange", ""])
    def test_coverage_refuses_anything_else_naming_what_to_use(self, entry):
        assert "fl-counties" in coverage_problems([entry, "fl-counties"])[0]

    @pytest.mark.parametrize(
        ("place_id", "covered"),
        [
            ("fl-county-orange", True),
            ("fl-county-lake", False),
            ("fl", True),
            ("ny", False),
            ("fl-counties", True),
            ("ny-counties", False),
            ("us", True),
        ],
    )
    def test_state_is_covered_when_a_county_of_it_is_and_us_with_any(self, place_id, covered):
        assert is_covered(place_named(place_id), FLORIDA) is covered

    def test_nothing_is_covered_without_a_county(self):
        assert not is_covered(place_named("us"), frozenset())
        assert covered_places(frozenset()) == ()

    def test_covered_places_are_counties_states_their_counties_and_us(self):
        listed = [place.id for place in covered_places(FLORIDA | {"ny-county-kings"})]
        counties = ["fl-county-orange", "fl-county-seminole", "ny-county-kings"]
        assert listed == [*counties, "fl", "ny", "fl-counties", "ny-counties", "us"]

    @pytest.mark.parametrize(
        ("held", "inside"),
        [
            (dataset("fl-county-orange"), True),
            (dataset("fl-county-lake"), False),
            (dataset(None, "fl-county-lake", "fl-county-seminole"), True),
            (dataset("fl"), True),
            (dataset("ny"), False),
            (dataset("us"), True),
            (dataset(), True),
        ],
    )
    def test_dataset_is_in_coverage_by_any_of_its_places_and_always_without_one(self, held, inside):
        assert in_coverage(held, FLORIDA) is inside


class TestBelonging:
    @pytest.mark.parametrize(
        ("held", "place_id", "belongs"),
        [
            (dataset("fl-county-orange"), "fl-county-orange", True),
            (dataset("fl-county-orange"), "fl", False),
            (dataset("fl-county-orange"), "fl-counties", True),
            (dataset("fl-county-lake"), "fl-counties", False),
            (dataset("fl"), "fl", True),
            (dataset("fl"), "fl-counties", False),
            (dataset("us"), "us", True),
            (dataset("us"), "fl", False),
            (dataset(None, "fl-county-orange", "fl-county-seminole"), "fl-county-seminole", True),
            (dataset("fl-county-orange", "fl-county-seminole"), "fl-county-seminole", True),
            (dataset(), "us", False),
        ],
    )
    def test_state_counties_hold_the_covered_counties_without_statewide_records(self, held, place_id, belongs):
        assert lies_in(held, place_named(place_id), FLORIDA) is belongs

    def test_dataset_counts_toward_each_of_its_places_and_once_toward_the_states_counties(self):
        held = dataset(None, "fl-county-orange", "fl-county-seminole")
        assert places_holding(held, FLORIDA) == {"fl-county-orange", "fl-county-seminole", "fl-counties"}
