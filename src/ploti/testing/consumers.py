"""A suite for consumers of any kind: each hard case of following a feed, told turn by turn to yours over HTTP.

Give a `Consumer`: how it is run once, and how its rows are read. It may be another program. After each turn of a story
its rows must be those of the version that it should hold, value by value.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from ploti.contract.digest import Value
from ploti.testing.feed import SUBSCRIPTION, Feed
from ploti.testing.stories import STORIES, Expected, Story

__all__ = ["STORIES", "SUBSCRIPTION", "Consumer", "check_consumer"]

_RUNS_MOST: Final = 3


class Consumer(Protocol):
    """A consumer with a store of its own, fresh for each story."""

    def run(self, url: str, api_key: str, subscription_id: str) -> None:
        """Follow the subscription to the end of its log, once; the API is at `url`. It may raise and is run again."""

    def rows(self, dataset_id: str) -> Mapping[str, Mapping[str, Value]] | None:
        """Read a dataset's rows by record id, None where it holds none of it.

        Own columns only, as Python values: shapes as WKB, times in UTC.
        """


def check_consumer(story: Story, consumer: Consumer) -> None:
    """Tell a story and check after each turn what the consumer holds.

    A dataset that is in trouble, paused before a MAJOR change or gone by then may be at any version from the one
    expected on. Raises AssertionError that names the dataset, its version and the first record that is wrong.
    """
    feed = Feed()
    with feed.api.serve() as url:
        for turn, expected in enumerate(story(feed), 1):
            _run(consumer, url, feed.api.api_key)
            for dataset_id, (version, state) in expected.items():
                _check(feed, consumer, dataset_id, version, exact=state == "ok", told=f"turn {turn}: {dataset_id}")
            _check_no_more(consumer, feed, expected)


def _run(consumer: Consumer, url: str, api_key: str) -> None:
    """Run it; one that stops at trouble is run again, as a scheduler would."""
    for left in reversed(range(_RUNS_MOST)):
        try:
            consumer.run(url, api_key, SUBSCRIPTION)
            return
        except Exception:  # of any kind: it is the consumer's own; the last one is raised
            if not left:
                raise


def _check(feed: Feed, consumer: Consumer, dataset_id: str, version: int | None, *, exact: bool, told: str) -> None:
    found = consumer.rows(dataset_id)
    if version is None or (found is None and not exact):
        return
    assert found is not None, f"{told} is not held; version {version} should be"
    held = feed.snapshots[dataset_id]
    allowed = [version] if exact else [number for number in sorted(held) if number >= version]
    wrong = [_difference(feed, dataset_id, number, found) for number in allowed]
    assert None in wrong, f"{told}, version {version}: {wrong[0]}"


def _difference(feed: Feed, dataset_id: str, version: int, found: Mapping[str, Mapping[str, Value]]) -> str | None:
    """Name the first record that is not that of a version; None where all are."""
    wanted = feed.snapshots[dataset_id][version]
    names = [column["name"] for column in wanted.schema["columns"]]
    for id_ in sorted({*wanted.rows, *found}):
        if id_ not in found:
            return f"{id_} is missing"
        if id_ not in wanted.rows:
            return f"{id_} should not be there"
        row = {name: wanted.rows[id_].get(name) for name in names}
        if dict(found[id_]) != row:
            return f"{id_} is {dict(found[id_])!r}, not {row!r}"
    return None


def _check_no_more(consumer: Consumer, feed: Feed, expected: Expected) -> None:
    for dataset_id in feed.snapshots.keys() - expected.keys():
        assert not consumer.rows(dataset_id), f"{dataset_id} was never delivered"
