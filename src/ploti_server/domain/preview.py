"""What a subscription would deliver, counted and listed before there is one (page 000, D8.8)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, get_args

from ploti_server.domain.access import Access, Refused
from ploti_server.domain.coverage import lies_in
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.membership import names_by_place
from ploti_server.domain.places import Place, place_named
from ploti_server.domain.subscriptions import Selection

MatchedBy = Literal["places", "datasets"]
Sort = Literal["place", "title", "updated"]
NO_TOPIC: Final = "none"
SEARCH_LONGEST: Final = 200
PAGE_MOST: Final = 200
_CHOICES: Final = {"matchedBy": get_args(MatchedBy), "sort": get_args(Sort)}
NARROWING: Final = ("q", "place", "topic", "matchedBy", "sort", "limit", "cursor")


@dataclass(frozen=True)
class Match:
    """A dataset that would be delivered, and what names it."""

    dataset: Dataset
    by: tuple[MatchedBy, ...]


@dataclass(frozen=True)
class Narrowing:
    """Which of the matches a page lists, and in what order."""

    q: str | None = None
    place: str | None = None
    topic: str | None = None
    matched_by: MatchedBy | None = None
    sort: Sort = "place"
    limit: int = 100
    cursor: str | None = None


def read_narrowing(given: Mapping[str, Any]) -> Narrowing:
    """Read what narrows a preview; raises `Refused` `invalid_input` for a wrong value."""
    for name, value in given.items():
        if name == "limit":
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= PAGE_MOST:
                raise _refuse(name, f"Give 'limit' as a whole number from 1 to {PAGE_MOST}.")
        elif not isinstance(value, str) or (name != "cursor" and len(value) > SEARCH_LONGEST):
            raise _refuse(name, f"Give '{name}' as a text of at most {SEARCH_LONGEST} characters.")
        elif name in _CHOICES and value not in _CHOICES[name]:
            raise _refuse(name, f"Give '{name}' as one of {', '.join(_CHOICES[name])}.")
    named = {"matched_by" if name == "matchedBy" else name: value for name, value in given.items()}
    return Narrowing(**named)


def _refuse(field: str, message: str) -> Refused:
    return Refused("invalid_input", message, field)


def matches_of(selection: Selection, datasets: Iterable[Dataset], access: Access) -> tuple[Match, ...]:
    """List the datasets that a subscription to this would deliver now, each once."""
    found: list[Match] = []
    for dataset in datasets:
        by: list[MatchedBy] = []
        if access.delivers(dataset):
            by += ["places"] if names_by_place(selection, dataset, access.counties) else []
            by += ["datasets"] if dataset.id in selection.dataset_ids else []
        if by:
            found.append(Match(dataset, tuple(by)))
    return tuple(found)


@dataclass(frozen=True)
class Totals:
    """Counts of all matches; `by_place` is by the id of the place that each is filed under."""

    total: int
    matched_by: dict[MatchedBy, int]
    by_topic: tuple[tuple[str | None, int], ...]
    by_place: tuple[tuple[str | None, int], ...]


def totals_of(matches: Iterable[Match]) -> Totals:
    """Count matches, most first in each table, none last among equals."""
    found = tuple(matches)
    by: Counter[MatchedBy] = Counter(one for match in found for one in match.by)
    return Totals(
        len(found),
        {one: by[one] for one in get_args(MatchedBy)},
        _most_first(Counter(match.dataset.topic for match in found)),
        _most_first(Counter(match.dataset.filed_place for match in found)),
    )


def _most_first(counted: Counter[str | None]) -> tuple[tuple[str | None, int], ...]:
    return tuple(sorted(counted.items(), key=lambda item: (-item[1], item[0] is None, item[0] or "")))


def keeps(narrowing: Narrowing, match: Match, counties: frozenset[str]) -> bool:
    """Tell whether a match is listed: every word of `q` in its title ignoring case, topic, place and what names it.

    `place` means where a dataset is filed, as in `byPlace`; `<state>-counties` any covered county of the state.
    """
    dataset = match.dataset
    title = dataset.title.casefold()
    topic = NO_TOPIC if dataset.topic is None else dataset.topic
    return (
        all(word in title for word in (narrowing.q or "").casefold().split())
        and narrowing.topic in (None, topic)
        and (narrowing.matched_by is None or narrowing.matched_by in match.by)
        and _is_filed(dataset, place_named(narrowing.place), counties)
    )


def _is_filed(dataset: Dataset, place: Place | None, counties: frozenset[str]) -> bool:
    if place is None:
        return True
    if place.kind == "state_counties":
        return lies_in(dataset, place, counties)
    return dataset.filed_place == place.id


def order_of(sort: Sort, dataset: Dataset, released_at: datetime | None) -> list[str | int]:
    """Give what a listing is ordered by, unique for each dataset (D8.3); `updated` has the newest first."""
    if sort == "place":
        return [dataset.filed_place or "~", dataset.title.casefold(), dataset.id]
    if sort == "title":
        return [dataset.title.casefold(), dataset.id]
    return [0 if released_at is None else -int(released_at.timestamp() * 1000), dataset.id]
