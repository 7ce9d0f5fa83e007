"""A publisher who went on from a backup: what was loaded of the versions that are no more is found and replaced."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import duckdb
import psycopg
import pytest
from tests.sync.test_sync_columns import client_of

from ploti.errors import BadAnswer
from ploti.sync.loop import sync, verify
from ploti.sync.target import Progress
from ploti.sync.targets import open_target
from ploti.testing.fake_api import FakeApi
from ploti.testing.feed import SUBSCRIPTION, Feed
from ploti.testing.stories import PERMITS, A, B, permits


@pytest.fixture(params=["duckdb", "geopackage", "parquet", "postgresql"])
def place(request, tmp_path, monkeypatch):
    """An address, and what asks the tables there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "x"
    match request.param:
        case "duckdb":
            return f"duckdb:///{file}", lambda: duckdb.connect(str(file))
        case "geopackage":
            return f"sqlite:///{file}", lambda: closing(sqlite3.connect(file, isolation_level=None))
        case "parquet":
            return f"parquet:///{file}", lambda: duckdb.connect(str(file / "views.duckdb"))
    address = request.getfixturevalue("postgres_database")
    return address, lambda: psycopg.connect(address, autocommit=True)


def backup(day=0):
    """What the backup has: two datasets in their first versions, and what the second got since."""
    feed = Feed(FakeApi(clock=lambda: datetime.now(UTC) + timedelta(days=day)))
    feed.add(A, PERMITS, permits(1, 2))
    feed.add(B, PERMITS, permits(1, 2))
    feed.update(B, put=permits(3))
    return feed


def follow(feed, address, **more):
    """One more sync; gives the ids of the datasets that were loaded anew, and the lines told."""
    lines = Lines()
    with client_of(feed) as client:
        report = sync(client, SUBSCRIPTION, open_target(address, **more), progress=lines)
        assert not report.behind
        assert all(each.equal for each in verify(client, open_target(address)))
    return [each.held.dataset_id for each in report.datasets if each.reloaded], lines.told


class Lines(Progress):
    def __init__(self):
        self.told = []

    def line(self, text):
        self.told.append(text)


def numbers(connect, table):
    with connect() as db:
        return sorted(row[0] for row in db.execute(f"SELECT units FROM {table}").fetchall())


def restored(since):
    """What the publisher has that lost versions and went on from its backup."""
    feed = backup(day=1)
    for number in range(since):
        feed.update(A, put=permits(20 + number))
    return feed


@pytest.mark.parametrize(("lost", "since"), [(1, 0), (3, 0), (3, 1), (2, 2), (1, 4)], ids=str)
def test_versions_that_are_no_more_are_replaced_however_far_the_log_went_on(place, lost, since):
    address, connect = place
    feed = backup()
    follow(feed, address)
    for number in range(lost):
        feed.update(A, put=permits(10 + number))
    follow(feed, address)
    assert numbers(connect, A) == [1, 2, *range(10, 10 + lost)]
    feed = restored(since)
    assert follow(feed, address) == (
        [A, B], ["The publisher went on from a backup: every dataset is loaded again."]
    )  # fmt: skip
    assert numbers(connect, A) == [1, 2, *range(20, 20 + since)]
    feed.update(A, put=permits(30))
    assert follow(feed, address) == ([], [])
    assert numbers(connect, A) == [1, 2, *range(20, 20 + since), 30]


def test_a_backup_older_than_what_a_first_load_brought_is_found_as_well(place):
    address, connect = place
    feed = backup()
    feed.update(A, put=permits(10))
    follow(feed, address)
    feed = restored(3)
    assert follow(feed, address)[0] == [A, B]
    assert numbers(connect, A) == [1, 2, 20, 21, 22]


def test_the_past_of_rows_goes_on(place):
    address, connect = place
    feed = backup()
    feed.update(A, put=permits(10))
    follow(feed, address, history=True)
    feed = restored(1)
    follow(feed, address, history=True)
    feed.update(A, put=permits(30))
    follow(feed, address, history=True)
    with connect() as db:
        rows = db.execute(f"SELECT units, _ploti_valid_to_version IS NULL FROM {A}_history ORDER BY units").fetchall()
    assert [tuple(map(int, row)) for row in rows] == [(1, 1), (2, 1), (10, 0), (20, 1), (30, 1)]


def test_where_the_last_event_is_past_retention_nothing_is_loaded_again(place):
    address, connect = place
    feed = backup()
    follow(feed, address)
    feed.api.prune_events(SUBSCRIPTION, 3)
    assert follow(feed, address) == ([], [])
    feed.update(A, put=permits(10))
    assert follow(feed, address) == ([], [])
    assert numbers(connect, A) == [1, 2, 10]


def test_a_dataset_that_cannot_be_loaded_then_is_loaded_by_a_later_run(place):
    address, connect = place
    feed = backup()
    feed.update(A, put=permits(10))
    follow(feed, address)
    feed = restored(1)
    feed.api.keep(A, 2, "rebuilding")
    with client_of(feed) as client:
        report = sync(client, SUBSCRIPTION, open_target(address))
        assert [each.held.dataset_id for each in report.behind] == [A]
    assert numbers(connect, A) == [1, 2, 10]
    feed.api.rebuild(A, 2)
    with client_of(feed) as client:
        assert not sync(client, SUBSCRIPTION, open_target(address)).behind
    assert numbers(connect, A) == [1, 2, 20]


@pytest.mark.parametrize("known", [False, True], ids=["never chosen", "chosen before"])
def test_a_dataset_that_was_not_chosen_meanwhile_follows_the_new_log_once_it_is(place, known):
    address, connect = place
    feed = backup()
    for number in range(10, 15):
        feed.update(A, put=permits(number))
        feed.update(B, put=permits(number))
    choose(feed, address, *[B] if known else [A])
    choose(feed, address, A)
    feed = restored(1)
    choose(feed, address, A)
    choose(feed, address)
    feed.update(B, put=permits(60))
    choose(feed, address)
    assert numbers(connect, B) == [1, 2, 3, 60]


def test_a_dataset_that_was_not_chosen_and_that_the_backup_has_not_is_left(place):
    address, connect = place
    feed = backup()
    feed.add("ds_new", PERMITS, permits(7))
    choose(feed, address)
    choose(feed, address, A)
    choose(restored(0), address)
    held = open_target(address).state().datasets["ds_new"]
    assert (held.state, held.reason) == ("left", "not in the subscription any more")
    assert numbers(connect, "ds_new") == [7]


def choose(feed, address, *datasets):
    with client_of(feed) as client:
        return sync(client, SUBSCRIPTION, open_target(address), datasets=datasets)


def test_a_dataset_that_left_before_comes_back_by_the_new_log(place):
    address, connect = place
    feed = backup()
    choose(feed, address)
    for number in range(10, 15):
        feed.update(A, put=permits(number))
    feed.api.change_dataset(B, covered=False)
    choose(feed, address)
    feed = backup(day=1)
    feed.api.change_dataset(B, covered=False)
    choose(feed, address)
    feed.api.change_dataset(B, covered=True)
    feed.update(B, put=permits(60))
    choose(feed, address)
    assert numbers(connect, B) == [1, 2, 3, 60]


def test_a_dataset_before_a_major_change_is_loaded_again_as_well(place):
    address, connect = place

    def changed(feed, number):
        feed.update(A, put=permits(number))
        feed.reload(A, {}, "schema_changed", columns={"number": "string"})

    feed = backup()
    choose(feed, address)
    changed(feed, 10)
    choose(feed, address)
    feed = backup(day=1)
    changed(feed, 20)
    (report,) = [each for each in choose(feed, address).datasets if each.dataset_id == A]
    assert (report.held.version, report.held.state) == (2, "paused")
    assert numbers(connect, A) == [1, 2, 20]


def test_a_log_that_lacks_the_manifests_event_again_and_again_is_told(place):
    address, _ = place
    feed = backup()
    follow(feed, address)
    feed.update(A, put=permits(10))
    follow(feed, address)
    body = b'{"error": {"code": "invalid_input", "message": "no such cursor", "field": "cursor"}}'
    feed.api.fail_next("/events", 400, body=body, times=9)
    with pytest.raises(BadAnswer, match="lacks the event that the manifest names: report it"):
        choose(feed, address)
