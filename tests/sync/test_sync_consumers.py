"""The product's own targets as consumers: each story over HTTP, and a kill in the middle of a page."""

import pytest
from tests.sync.kits import GeoPackageKit, ParquetKit
from tests.sync.test_sync_duckdb_stories import DuckKit
from tests.sync.test_sync_postgresql_stories import PostgresKit

from ploti import Client, Retries
from ploti.contract.events import EVENT_TYPES, REMOVED, RESYNC_REASONS, RESYNC_REQUIRED
from ploti.contract.files import CHANGE, OP, RECORD_ID, part_path
from ploti.sync.loop import sync
from ploti.sync.target import reach_nothing
from ploti.testing.consumers import STORIES, check_consumer
from ploti.testing.feed import SUBSCRIPTION, Feed, changes_part, record_id
from ploti.testing.stories import PERMITS, A, permit, permits
from ploti.testing.targets import check_killed, check_rows, sync_feed

KITS = {"duckdb": DuckKit, "geopackage": GeoPackageKit, "parquet": ParquetKit, "postgresql": PostgresKit}
ONCE = Retries(attempts=2, first_wait=0, longest_wait=0)


FEWER = [pytest.param(name, marks=() if name in {"parquet", "postgresql"} else pytest.mark.goals) for name in KITS]
"""The targets that differ most, in each run of the tests; all of them are a goal."""


@pytest.fixture(params=KITS)
def kit(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    at = request.getfixturevalue("postgres_database") if request.param == "postgresql" else tmp_path
    return KITS[request.param](at)


class Consumer:
    """`sync` into a kit's database."""

    def __init__(self, kit):
        self.kit = kit

    def run(self, url, api_key, subscription_id):
        with Client(api_key, url, retries=ONCE) as client:
            sync(client, subscription_id, self.kit.open(reach_nothing))

    def rows(self, dataset_id):
        held = self.kit.open(reach_nothing).state().datasets.get(dataset_id)
        return None if held is None or held.version is None else self.kit.rows(dataset_id)


QUICK = ("ids_replaced",)
"""Told to each target in each run of the tests; all stories are a goal."""


@pytest.mark.parametrize("kit", FEWER, indirect=True)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.goals) for name in STORIES]
)
def test_each_target_passes_the_suite_for_consumers(kit, name):
    check_consumer(STORIES[name], Consumer(kit))


@pytest.mark.goals
def test_the_stories_play_every_event_and_every_reason():
    seen = set()
    for story in STORIES.values():
        feed = Feed()
        for _ in story(feed):
            pass
        events = feed.api.state.subscriptions[SUBSCRIPTION].events
        seen |= {(event["type"], event["data"].get("reason")) for event in events}
    assert {type_ for type_, _ in seen} == set(EVENT_TYPES)
    assert {reason for type_, reason in seen if type_ == RESYNC_REQUIRED} == set(RESYNC_REASONS)
    assert {reason for type_, reason in seen if type_ == REMOVED} >= {"left_coverage", "no_longer_deliverable"}


@pytest.mark.parametrize("key", [(), ("number",)], ids=["unkeyed", "keyed"])
def test_every_upsert_is_insert_or_replace_in_keyed_and_unkeyed_datasets_alike(kit, key):
    """Whatever it is told as: `added` where the table holds the record already, `changed` where it does not."""
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(10)), key=key)
    sync_feed(feed, kit)
    put = {record_id(3): permit(3, 7.0), record_id(40): permit(40)}
    lines = [
        {RECORD_ID: id_, **row, OP: "upsert", CHANGE: change}
        for (id_, row), change in zip(put.items(), ("added", "changed"), strict=True)
    ]
    feed.update(A, put=put, files={part_path("changes", 0): changes_part(feed.current(A).schema, lines)})
    (report,) = sync_feed(feed, kit).datasets
    assert (report.reloaded, report.held.version) == (False, 2)
    check_rows(feed, kit, A, 2)


FIVE = tuple(f"ds_{letter}" for letter in "abcde")


def test_a_page_that_was_killed_in_its_middle_is_finished(kit):
    """F052: after the third of five events is in its table, before the cursor is stored."""

    def page_of_five(feed):
        for dataset_id in FIVE:
            feed.add(dataset_id, PERMITS, permits(*range(3)))
        sync_feed(feed, kit)
        for dataset_id in FIVE:
            feed.update(dataset_id, put=permits(9))
        yield dict.fromkeys(FIVE, (2, "ok"))

    check_killed(page_of_five, kit, "sync.after_commit", 3)
