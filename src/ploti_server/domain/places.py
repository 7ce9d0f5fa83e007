"""The built-in places: US counties and equivalents, states, each state's counties as one place, and `us` (D10.1).

Names come from the package's own tables (`data/us_counties.md` tells their origin); both boundary vintages are valid.
"""

import csv
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from ploti.contract.resources import PlaceKind

PLACE_KINDS: Final[tuple[PlaceKind, ...]] = ("county", "state", "state_counties", "us")
NATION: Final = "us"
_COUNTIES_SUFFIX: Final = "-counties"


@dataclass(frozen=True)
class Place:
    """A place; `state` is the id of its state, None for `us`."""

    id: str
    name: str
    kind: PlaceKind
    state: str | None


def slug(name: str) -> str:
    """Turn a name into the part of an id: ASCII, lower case, words joined by hyphens, apostrophes dropped."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"['.`]", "", plain)).strip("-")


def _rows(table: str) -> list[dict[str, str]]:
    text = (files("ploti_server.domain") / "data" / table).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _counties(rows: list[dict[str, str]]) -> Iterator[Place]:
    taken = Counter((row["state"], slug(row["base_name"])) for row in rows)
    for row in rows:
        shared = taken[row["state"], slug(row["base_name"])] > 1
        short = slug(row["name"] if shared and row["kind"] != "County" else row["base_name"])
        state = row["state"].lower()
        yield Place(f"{state}-county-{short}", row["name"], "county", state)


def _all_places() -> Iterator[Place]:
    yield Place(NATION, "United States", "us", None)
    for row in _rows("us_states.csv"):
        state = row["postal"].lower()
        yield Place(state, row["name"], "state", state)
        yield Place(state_counties(state), f"Every covered county in {row['name']}", "state_counties", state)
    yield from _counties(_rows("us_counties.csv"))


def state_counties(state: str) -> str:
    """Name the place that stands for a state's counties, like `fl-counties`."""
    return state + _COUNTIES_SUFFIX


@cache
def places() -> Mapping[str, Place]:
    """Give every place by id: `us`, then states with their counties as one place, then counties."""
    found: dict[str, Place] = {}
    for place in _all_places():
        if place.id in found:
            raise ValueError(f"two places are called {place.id}: {found[place.id].name} and {place.name}")
        found[place.id] = place
    return MappingProxyType(found)


@cache
def counties_of(state: str) -> frozenset[str]:
    """Give the ids of all counties of a state."""
    return frozenset(place.id for place in places().values() if place.kind == "county" and place.state == state)


def place_named(place_id: str | None) -> Place | None:
    """Find a place by id."""
    return places().get(place_id) if place_id is not None else None
