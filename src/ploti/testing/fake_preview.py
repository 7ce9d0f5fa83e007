"""What the fake API answers to a preview: counts of all matches, and a narrowed, sorted page (page 000)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ploti.contract.resources import PlaceCount, PreviewedDataset, TopicCount
from ploti.testing.fake_http import Refusal
from ploti.testing.fake_state import FakeDataset, FakeSubscription

NARROWING = ("q", "place", "topic", "matchedBy", "sort", "limit", "cursor")
_CHOICES = {"matchedBy": ("places", "datasets"), "sort": ("place", "title", "updated")}


def matches_of(wanted: FakeSubscription, datasets: Iterable[FakeDataset]) -> list[FakeDataset]:
    """List the datasets that a subscription would deliver."""
    return [dataset for dataset in datasets if wanted.wants(dataset)]


def totals_of(wanted: FakeSubscription, matches: Sequence[FakeDataset]) -> dict[str, Any]:
    """Count all matches; what narrows the page does not touch these."""
    by = [one for dataset in matches for one in wanted.matched_by(dataset)]
    topics = {dataset.topic for dataset in matches}
    places = {dataset.place["id"]: dataset.place for dataset in matches}
    by_topic: list[TopicCount] = [{"topic": t, "count": sum(d.topic == t for d in matches)} for t in topics]
    by_place: list[PlaceCount] = [
        {
            "id": id_,
            "name": place["name"],
            "kind": place["kind"],
            "count": sum(dataset.place["id"] == id_ for dataset in matches),
        }
        for id_, place in places.items()
    ]
    return {
        "total": len(matches),
        "matchedBy": {"places": by.count("places"), "datasets": by.count("datasets")},
        "byTopic": sorted(by_topic, key=lambda item: (-item["count"], item["topic"] or "~")),
        "byPlace": sorted(by_place, key=lambda item: (-item["count"], item["id"] or "~")),
    }


def narrowed(wanted: FakeSubscription, matches: Iterable[FakeDataset], given: Mapping[str, Any]) -> list[FakeDataset]:
    """Give the matches that a page lists, in order; raises Refusal for a choice that is none."""
    for name, choices in _CHOICES.items():
        if given.get(name, choices[0]) not in choices:
            raise Refusal("invalid_input", f"Give {name} as one of {', '.join(choices)}.", name)
    words = str(given.get("q", "")).casefold().split()
    found = [
        dataset
        for dataset in matches
        if all(word in dataset.title.casefold() for word in words)
        and given.get("place") in {None, dataset.place["id"]}
        and given.get("topic") in {None, dataset.topic or "none"}
        and (given.get("matchedBy") or wanted.matched_by(dataset)[0]) in wanted.matched_by(dataset)
    ]
    return sorted(found, key=lambda dataset: _order(given.get("sort", "place"), dataset))


def _order(sort: str, dataset: FakeDataset) -> tuple[Any, ...]:
    if sort == "updated":
        current = dataset.current
        return (0.0 if current is None else -current.published_at.timestamp(), dataset.id)
    place = () if sort == "title" else (dataset.place["id"] or "~",)
    return (*place, dataset.title.casefold(), dataset.id)


def listed(wanted: FakeSubscription, dataset: FakeDataset) -> PreviewedDataset:
    """Show a dataset of the page."""
    return {"id": dataset.id, "title": dataset.title, "matchedBy": wanted.matched_by(dataset)}
