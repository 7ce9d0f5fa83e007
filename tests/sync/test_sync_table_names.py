"""A scheme of names for a target's tables: kept for its life, another one refused before anything moves."""

import sqlite3
from contextlib import closing

import duckdb
import psycopg
import pytest
from tests.sync.test_sync_columns import client_of

from ploti.sync.loop import repair, sync, verify
from ploti.sync.target import TargetUnusable
from ploti.sync.targets import open_target
from ploti.testing.feed import SUBSCRIPTION, Feed
from ploti.testing.stories import PERMITS, ZONES, A, B, permits, zones

SCHEME = "county_{dataset}_now"
TABLE = f"county_{A}_now"


@pytest.fixture(params=[pytest.param("duckdb", marks=pytest.mark.goals), "geopackage", "parquet", "postgresql"])
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


def numbers(connect, table=TABLE):
    with connect() as db:
        return sorted(row[0] for row in db.execute(f"SELECT units FROM {table}").fetchall())


def follow(feed, address, **more):
    with client_of(feed) as client:
        return sync(client, SUBSCRIPTION, open_target(address, **more))


def test_tables_are_named_by_the_scheme_which_a_target_keeps(place):
    address, connect = place
    feed = Feed()
    feed.add(A, PERMITS, permits(1, 2))
    follow(feed, address, table_name=SCHEME)
    assert numbers(connect) == [1, 2]
    feed.update(A, put=permits(3))
    follow(feed, address)
    feed.reload(A, permits(3, 4), "previous_unavailable")
    follow(feed, address, table_name=SCHEME)
    assert numbers(connect) == [3, 4]
    feed.update(A, put=permits(5))
    for other in ("{dataset}", "other_{dataset}"):
        with pytest.raises(TargetUnusable, match=r"county_\{dataset\}_now: leave --table-name out"):
            follow(feed, address, table_name=other)
    assert numbers(connect) == [3, 4]
    follow(feed, address)
    with client_of(feed) as client:
        assert [each.equal for each in verify(client, open_target(address))] == [True]
        if not address.startswith("parquet"):
            with connect() as db:
                db.execute(f"DELETE FROM {TABLE} WHERE units = 4")
            assert [each.moved.added for each in repair(client, open_target(address))] == [1]
    assert numbers(connect) == [3, 4, 5]


BESIDE = ("_geo", "_history", "_record_id", "_pkey", "_geometry_idx", "_geo_", "_history__")


def test_a_dataset_may_be_called_as_what_a_target_makes_beside_the_table_of_another(place):
    address, connect = place
    feed = Feed()
    feed.add(B, ZONES, zones(1, 2))
    for end in BESIDE:
        feed.add(f"{B}{end}", PERMITS, permits(1))
    assert not follow(feed, address, history=True).behind
    for end in BESIDE:
        feed.update(f"{B}{end}", put=permits(3))
    feed.reload(B, zones(3, 4), "previous_unavailable")
    assert not follow(feed, address, history=True).behind
    for end in BESIDE:
        assert numbers(connect, f"{B}{end}_") == [1, 3]
        assert numbers(connect, f"{B}{end}__history") == [1, 3]
    with client_of(feed) as client:
        assert [each.equal for each in verify(client, open_target(address))] == [True] * (1 + len(BESIDE))


def test_a_history_and_the_books_go_by_the_name(tmp_path):
    feed = Feed()
    feed.add(A, PERMITS, permits(1, 2))
    follow(feed, f"duckdb:///{tmp_path}/x", table_name=SCHEME, history=True)
    with duckdb.connect(f"{tmp_path}/x") as db:
        assert db.execute(f"SELECT count(*) FROM {TABLE}_history").fetchall() == [(2,)]
        assert db.execute("SELECT dataset_id, table_name FROM _ploti_datasets").fetchall() == [(A, TABLE)]


@pytest.mark.parametrize(
    "scheme", ["", "x", "{dataset}{dataset}", "_ploti_{dataset}", "sqlite_{dataset}", 'a"{dataset}', "{name}"]
)
def test_a_scheme_that_names_no_tables_is_refused(tmp_path, scheme):
    feed = Feed()
    with pytest.raises(TargetUnusable, match="names no tables"):
        follow(feed, f"duckdb:///{tmp_path}/x", table_name=scheme)
    assert not (tmp_path / "x").exists()
