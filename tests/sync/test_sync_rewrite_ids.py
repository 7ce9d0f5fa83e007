"""`--rewrite-ids` takes a user's own columns along where versions replace record ids, through every map."""

import sqlite3
from contextlib import closing

import duckdb
import psycopg
import pytest
from tests.sync.kits import GeoPackageKit, ParquetKit
from tests.sync.test_sync_duckdb_stories import DuckKit
from tests.sync.test_sync_postgresql_stories import PostgresKit

from ploti import Client
from ploti._http import Retries
from ploti.sync.loop import resync, sync
from ploti.sync.target import SyncError, reach_nothing
from ploti.testing.feed import SUBSCRIPTION, Feed, record_id
from ploti.testing.stories import PERMITS, A, permits
from ploti.testing.targets import check_rows


class Duck(DuckKit):
    def run(self, *statements):
        with duckdb.connect(str(self.path)) as db:
            return [db.execute(sql.format(key="", schema="main")).fetchall() for sql in statements][-1]


class GeoPackage(GeoPackageKit):
    def run(self, *statements):
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            key = f"REFERENCES {A}(_ploti_record_id)"
            return [db.execute(sql.format(key=key, schema="main")).fetchall() for sql in statements][-1]


class Postgres(PostgresKit):
    def run(self, *statements):
        with psycopg.connect(self.url) as db:
            key = f"REFERENCES {self.schema}.{A} DEFERRABLE"
            done = [db.execute(sql.format(key=key, schema=self.schema).encode()) for sql in statements][-1]
            return done.fetchall() if done.description else None


@pytest.fixture(params=["duckdb", "geopackage", "postgresql"])
def kit(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if request.param == "postgresql":
        return Postgres(request.getfixturevalue("postgres_database"))
    return {"duckdb": Duck, "geopackage": GeoPackage}[request.param](tmp_path)


@pytest.fixture
def feed():
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(20)))
    return feed


@pytest.fixture
def client(feed):
    with Client(**feed.api.client_options, retries=Retries(attempts=1)) as client:
        yield client


def move(feed, **moved):
    """Replace ids: by number before, number after; the others keep theirs, and record 19 goes."""
    numbers = {*range(19), *(int(name[1:]) for name in moved)}
    after = {record_id(number): record_id(moved.get(f"r{number}", number)) for number in numbers}
    rows = {after.get(id_, id_): row for id_, row in feed.current(A).rows.items() if id_ != record_id(19)}
    feed.reload(A, rows, "record_ids_changed", id_map=after)


ORDERS = (
    "CREATE TABLE {schema}.orders (n INTEGER, permit TEXT {key})",
    f"INSERT INTO {{schema}}.orders VALUES (1, '{record_id(1)}'), (2, '{record_id(2)}'), (3, NULL)",
    f"INSERT INTO {{schema}}.orders VALUES (4, '{record_id(2)}')",
)


def ordered(kit):
    return dict(kit.run("SELECT n, permit FROM {schema}.orders"))


@pytest.mark.parametrize("again", [False, True], ids=["sync", "resync"])
def test_ids_that_a_user_keeps_follow_every_map_on_the_way(kit, feed, client, again):
    sync(client, SUBSCRIPTION, kit.open(reach_nothing))
    kit.run(*ORDERS)
    move(feed, r1=2, r2=1)
    move(feed, r1=100)
    if again:
        resync(client, kit.open(reach_nothing), A, rewrite_ids=["orders.permit"])
    else:
        assert not sync(client, SUBSCRIPTION, kit.open(reach_nothing), rewrite_ids=["orders.permit"]).behind
    check_rows(feed, kit, A, 3)
    assert ordered(kit) == {1: record_id(2), 2: record_id(100), 3: None, 4: record_id(100)}
    sync(client, SUBSCRIPTION, kit.open(reach_nothing), rewrite_ids=["orders.permit"])
    assert ordered(kit)[2] == record_id(100)


def test_ids_whose_map_went_with_a_version_released_again_are_asked_for(kit, feed, client):
    """Version 2 replaced ids and is listed no more, version 4 replaces one of them once more."""
    sync(client, SUBSCRIPTION, kit.open(reach_nothing))
    kit.run(*ORDERS)
    kit.run("CREATE TABLE {schema}.notes (n INTEGER, about TEXT)")
    kit.run(f"INSERT INTO {{schema}}.notes VALUES (1, 'none of ours'), (2, '{record_id(999)}'), (3, '{record_id(3)}')")
    kit.run(f"INSERT INTO {{schema}}.notes VALUES (4, 'rec_{'x' * 200}'), (5, 'rec_ ?/')")
    move(feed, r1=101, r2=102)
    feed.api.keep(A, 2, "released_again")
    feed.reload(A, feed.current(A).rows, "previous_unavailable", version=3, previous=2)
    move(feed, r102=202)
    columns = ["orders.permit", "notes.about"]
    (report,) = sync(client, SUBSCRIPTION, kit.open(reach_nothing), rewrite_ids=columns).datasets
    assert (report.held.state, report.held.version) == ("ok", 4)
    check_rows(feed, kit, A, 4)
    assert ordered(kit) == {1: record_id(101), 2: record_id(202), 3: None, 4: record_id(202)}
    kept = dict(kit.run("SELECT n, about FROM {schema}.notes"))
    assert kept == {1: "none of ours", 2: record_id(999), 3: record_id(3), 4: f"rec_{'x' * 200}", 5: "rec_ ?/"}


@pytest.mark.parametrize("kit", ["geopackage"], indirect=True)
def test_a_dataset_stays_behind_while_nobody_tells_what_became_of_its_ids(kit, feed, client):
    sync(client, SUBSCRIPTION, kit.open(reach_nothing))
    kit.run(*ORDERS)
    move(feed, r1=101)
    feed.api.keep(A, 2, "released_again")
    feed.reload(A, feed.current(A).rows, "previous_unavailable", version=3, previous=2)
    feed.api.fail_next("/records$", 500)
    report = sync(client, SUBSCRIPTION, kit.open(reach_nothing), rewrite_ids=["orders.permit"])
    assert [(each.held.state, each.held.version) for each in report.behind] == [("behind", 1)]
    assert ordered(kit)[1] == record_id(1)
    assert not sync(client, SUBSCRIPTION, kit.open(reach_nothing), rewrite_ids=["orders.permit"]).behind
    assert ordered(kit)[1] == record_id(101)


@pytest.mark.parametrize("kit", ["geopackage"], indirect=True)
def test_resync_asks_for_ids_that_a_run_without_the_column_passed_over(kit, feed, client):
    sync(client, SUBSCRIPTION, kit.open(reach_nothing))
    kit.run(*(each.replace("{key}", "") for each in ORDERS))
    move(feed, r1=101)
    sync(client, SUBSCRIPTION, kit.open(reach_nothing))
    assert ordered(kit)[1] == record_id(1)
    resync(client, kit.open(reach_nothing), A, rewrite_ids=["orders.permit"])
    assert ordered(kit)[1] == record_id(101)


def test_a_column_that_is_not_there_blocks_before_anything_moves(kit, feed, client):
    sync(client, SUBSCRIPTION, kit.open(reach_nothing))
    move(feed, r1=2, r2=1)
    (report,) = sync(client, SUBSCRIPTION, kit.open(reach_nothing), rewrite_ids=["orders.permit"]).datasets
    assert (report.held.state, report.held.version) == ("blocked", 1)
    assert "no orders.permit of text to rewrite ids in" in report.held.reason
    sync(client, SUBSCRIPTION, kit.open(reach_nothing))
    check_rows(feed, kit, A, 2)


@pytest.mark.parametrize("kit", ["duckdb", "postgresql"], indirect=True)
def test_a_column_that_holds_no_text_blocks_too(kit, feed, client):
    sync(client, SUBSCRIPTION, kit.open(reach_nothing))
    kit.run(*ORDERS)
    move(feed, r1=101)
    (report,) = sync(client, SUBSCRIPTION, kit.open(reach_nothing), rewrite_ids=["orders.n"]).behind
    assert "no orders.n of text to rewrite ids in" in report.held.reason


@pytest.mark.parametrize("name", ["orders", ".x", "orders.", "_ploti_sync.cursor"])
def test_a_name_that_is_no_column_of_the_users_is_refused(tmp_path, client, name):
    with pytest.raises(SyncError, match=r"orders\.permit_id"):
        sync(client, SUBSCRIPTION, Duck(tmp_path).open(reach_nothing), rewrite_ids=[name])


def test_a_folder_has_no_columns_to_rewrite(tmp_path, feed, client):
    kit = ParquetKit(tmp_path)
    sync(client, SUBSCRIPTION, kit.open(reach_nothing))
    move(feed, r1=2, r2=1)
    (report,) = sync(client, SUBSCRIPTION, kit.open(reach_nothing), rewrite_ids=["orders.permit"]).datasets
    assert report.held.state == "blocked"
