"""A table or a line of the books that is lost is told alike by every target, and brought back by the next sync."""

import json
import shutil

import pytest
from tests.sync.kits import ParquetKit
from tests.sync.test_sync_repair import Duck, GeoPackage, Postgres

from ploti import Client
from ploti.sync.loop import repair, verify
from ploti.sync.target import reach_nothing
from ploti.testing.feed import SUBSCRIPTION, Feed
from ploti.testing.stories import PERMITS, ZONES, A, B, permits, zones
from ploti.testing.targets import check_rows, sync_feed


class Parquet(ParquetKit):
    def lose_table(self):
        shutil.rmtree(self.path / A)

    def lose_line(self):
        book = self.path / "_ploti_sync.json"
        told = json.loads(book.read_text())
        told["notes"].pop(A, None)
        book.write_text(json.dumps(told))


class InDatabase:
    def lose_table(self):
        self.execute(f"DROP TABLE {{schema}}.{A}")

    def lose_line(self):
        self.execute(f"DELETE FROM {{schema}}._ploti_datasets WHERE dataset_id = '{A}'")


class LosingDuck(InDatabase, Duck):
    pass


class LosingGeoPackage(InDatabase, GeoPackage):
    pass


class LosingPostgres(InDatabase, Postgres):
    pass


KITS = {"duckdb": LosingDuck, "geopackage": LosingGeoPackage, "parquet": Parquet, "postgresql": LosingPostgres}
TOLD = f"the table {A} is gone: `ploti sync repair --to ...` brings it back"


@pytest.fixture(params=KITS)
def kit(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    at = request.getfixturevalue("postgres_database") if request.param == "postgresql" else tmp_path
    return KITS[request.param](at)


@pytest.fixture
def feed(kit):
    """A feed that is synced into the kit, its first dataset at its second version."""
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(6)))
    feed.add(B, ZONES, zones(*range(3)))
    sync_feed(feed, kit)
    feed.update(A, put=permits(70))
    sync_feed(feed, kit)
    return feed


def told(kit, feed):
    """Give what `status` and `verify` say is wrong."""
    with Client(**feed.api.client_options) as client:
        unequal = {each.dataset_id: each.problem for each in verify(client, kit.open(reach_nothing)) if not each.equal}
    behind = {each.held.dataset_id: each.held.reason for each in kit.open(reach_nothing).status() if each.held.behind}
    return behind, unequal


def test_a_lost_table_is_told_and_the_next_sync_or_repair_brings_it_back(kit, feed):
    kit.lose_table()
    assert told(kit, feed) == ({A: TOLD}, {A: TOLD})
    (report,) = sync_feed(feed, kit).datasets
    assert (report.dataset_id, report.reloaded, report.held.version, report.held.state) == (A, True, 2, "ok")
    assert told(kit, feed) == ({}, {})
    check_rows(feed, kit, A, 2)
    kit.lose_table()
    with Client(**feed.api.client_options) as client:
        assert [each.after.equal for each in repair(client, kit.open(reach_nothing))] == [True, True]
    assert told(kit, feed) == ({}, {})
    assert not sync_feed(feed, kit).datasets


def test_a_lost_table_of_a_dataset_that_paused_is_brought_back_to_its_version(kit, feed):
    feed.reload(A, permits(*range(9)), "first_version", columns={"number": "string"})
    assert sync_feed(feed, kit).datasets[0].held.state == "paused"
    kit.lose_table()
    assert told(kit, feed)[0] == {A: TOLD}
    (report,) = sync_feed(feed, kit).datasets
    assert (report.reloaded, report.held.version, report.held.state) == (True, 2, "paused")
    assert told(kit, feed) == ({}, {})
    check_rows(feed, kit, A, 2)


def test_a_lost_table_that_cannot_be_brought_back_leaves_its_dataset_behind(kit, feed):
    kit.lose_table()
    feed.api.keep(A, 2, "rebuilding")
    assert "being rebuilt" in sync_feed(feed, kit).behind[0].held.reason
    assert told(kit, feed)[0] == {A: TOLD}
    feed.api.rebuild(A, 2)
    assert not sync_feed(feed, kit).behind
    assert told(kit, feed) == ({}, {})


def test_a_dataset_that_the_books_forgot_is_told_or_taken_up_again(kit, feed):
    kit.lose_line()
    if isinstance(kit, InDatabase):
        (report,) = sync_feed(feed, kit).behind
        assert f"a table {A} that sync did not make is there already: rename or drop it" in report.held.reason
    kit.lose_table()
    kit.lose_line()
    assert A not in kit.open(reach_nothing).state().datasets
    (report,) = sync_feed(feed, kit).datasets
    assert (report.dataset_id, report.held.version, report.held.state) == (A, 2, "ok")
    assert told(kit, feed) == ({}, {})
    feed.update(A, put=permits(71))
    assert [each.reloaded for each in sync_feed(feed, kit).datasets] == [False]
    check_rows(feed, kit, A, 3)


def test_a_lost_table_is_brought_back_where_the_log_begins_later_too(kit, feed):
    kit.lose_table()
    feed.update(B, put=zones(9))
    feed.update(B, put=zones(10))
    feed.api.prune_events(SUBSCRIPTION, feed.api.state.subscriptions[SUBSCRIPTION].newest)
    sync_feed(feed, kit)
    assert told(kit, feed) == ({}, {})
    check_rows(feed, kit, A, 2)
    check_rows(feed, kit, B, 3)
