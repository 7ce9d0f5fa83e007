"""What a workspace's coverage reaches: counties, their states, each state's counties, and `us` (page 000, D10.3)."""

from collections.abc import Iterable
from functools import lru_cache

from ploti_server.domain.datasets import Dataset
from ploti_server.domain.places import NATION, PLACE_KINDS, Place, counties_of, place_named, places, state_counties


def coverage_problems(coverage: Iterable[str]) -> tuple[str, ...]:
    """Tell which entries of a coverage are neither a county nor a state's counties."""
    return tuple(
        f"'{entry}' is not a county or a state's counties: use ids like fl-county-orange or fl-counties"
        for entry in coverage
        if (place := place_named(entry)) is None or place.kind not in ("county", "state_counties")
    )


def covered_counties(coverage: Iterable[str]) -> frozenset[str]:
    """Resolve a coverage to county ids; `<state>-counties` is every county of the state (D10.3)."""
    counties: set[str] = set()
    for entry in coverage:
        place = places()[entry]
        counties |= counties_of(place.state) if place.kind == "state_counties" and place.state else {entry}
    return frozenset(counties)


def states_of(counties: Iterable[str]) -> frozenset[str]:
    """Give the states that have a county among these."""
    return frozenset(state for county in counties if (state := places()[county].state) is not None)


def is_covered(place: Place, counties: frozenset[str]) -> bool:
    """Tell whether a place lies in a coverage: a state with a county of it, `us` with any county (D10.1)."""
    if place.kind == "county":
        return place.id in counties
    if place.kind == "us":
        return bool(counties)
    return place.state in states_of(counties)


def covered_places(counties: frozenset[str]) -> tuple[Place, ...]:
    """List the places of a coverage: its counties, their states, each state's counties as one place, and `us`."""
    if not counties:
        return ()
    states = states_of(counties)
    listed = [place for place in places().values() if place.id in counties or place.kind != "county"]
    found = [place for place in listed if place.kind == "us" or place.state in states]
    return tuple(sorted(found, key=lambda place: (PLACE_KINDS.index(place.kind), place.id)))


def lies_in(dataset: Dataset, place: Place, counties: frozenset[str] | None) -> bool:
    """Tell whether a dataset belongs to a place; `<state>-counties` holds the covered counties only, without the
    state's own records, and with `counties` None every county of the state (D10.1)."""
    if place.kind != "state_counties" or place.state is None:
        return place.id in dataset.places
    of_state = counties_of(place.state)
    return not dataset.places.isdisjoint(of_state if counties is None else of_state & counties)


@lru_cache(maxsize=256)
def reached_places(place_ids: tuple[str, ...], counties: frozenset[str] | None) -> frozenset[str]:
    """Give every filed or covered place that these name, `<state>-counties` as in `lies_in`; unknown ids name none."""
    reached: set[str] = set()
    for place in map(place_named, place_ids):
        if place is not None and place.kind == "state_counties" and place.state is not None:
            of_state = counties_of(place.state)
            reached |= of_state if counties is None else of_state & counties
        elif place is not None:
            reached.add(place.id)
    return frozenset(reached)


def places_holding(dataset: Dataset, counties: frozenset[str]) -> frozenset[str]:
    """Give the ids of every place that a dataset counts toward, `<state>-counties` once over its covered counties."""
    own = dataset.places
    return own | {state_counties(state) for state in states_of(own & counties)}


def in_coverage(dataset: Dataset, counties: frozenset[str]) -> bool:
    """Tell whether a dataset is in a coverage; one without a place is in every coverage (D10.3)."""
    own = dataset.places
    if not own:
        return True
    if NATION in own and counties:
        return True
    return not own.isdisjoint(counties) or not own.isdisjoint(states_of(counties))
