"""Ids replaced and a version released again, from a real publisher to readers' tables (page 001)."""

import sqlite3
from contextlib import closing

import duckdb
import psycopg
import pytest
from tests.e2e.independent import SyncedTable
from tests.e2e.serving import Publisher, serving

from ploti import Client
from ploti.errors import Reload
from ploti.look.diff import diff
from ploti.sync.loop import sync, verify
from ploti.sync.targets import open_target
from ploti_server.domain.replacements import Replacement
from ploti_server.pipeline.act import release_again, replace_ids
from ploti_server.pipeline.check import GivenState
from ploti_server.worker import work_through

CATALOG = """
topics: [{id: t, name: T}]
datasets: [{id: ds_x, title: X, topic: t, key: [k], source: {kind: file, url: x.csv}}]
"""
DATASET = "ds_x"


class Reader:
    """A table that follows the dataset."""

    def __init__(self, client, subscription, database, *, verifies):
        self.client, self.subscription, self.database, self.verifies = client, subscription, database, verifies

    def follow(self, publisher, version, *, reloaded=None):
        """Sync; the table is then the version, record by record and by digest."""
        target = open_target(f"duckdb:///{self.database}")
        reports = sync(self.client, self.subscription, target).datasets
        assert [report.reloaded for report in reports] == ([] if reloaded is None else [reloaded])
        table = SyncedTable(self.database, DATASET)
        assert (table.state, table.version) == ("ok", version)
        table.check_equals(publisher.published("x", version))
        if self.verifies and reloaded is not None:
            assert [(each.version, each.equal) for each in verify(self.client, target)] == [(version, True)]


def publish(publisher, rows):
    state = publisher.home.parent / "state.csv"
    state.write_text("k,v\n" + "".join(f"{number},x{number}\n" for number in range(rows)))
    return publisher.publish("x", GivenState(state))


def build(publisher, checks):
    return [work_through(publisher.ports, publisher.owner, check.id).version for check in checks]


def ids(publisher, number):
    return {row["k"]: id_ for id_, row in publisher.published("x", number).rows().items()}


def test_readers_keep_up_through_replaced_ids_and_a_version_released_again(tmp_path):
    (tmp_path / "catalog.yaml").write_text(CATALOG)
    publisher = Publisher(tmp_path / "home", ("x",), tmp_path / "catalog.yaml")
    subscription = publisher.subscribe()
    with serving(publisher) as url, Client(publisher.key, url) as client:
        early = Reader(client, subscription, tmp_path / "early.duckdb", verifies=True)
        seldom = Reader(client, subscription, tmp_path / "seldom.duckdb", verifies=False)
        assert publish(publisher, 20) == 1
        early.follow(publisher, 1, reloaded=True)
        assert build(publisher, replace_ids(publisher.ports, DATASET, Replacement())) == [2]
        early.follow(publisher, 2, reloaded=True)
        seldom.follow(publisher, 2, reloaded=True)
        read = client.feeds.datasets.versions.read(DATASET, 2, what="id_map").to_pylist()
        moved = {row["_ploti_previous_record_id"]: row["_ploti_record_id"] for row in read}
        assert moved == {old: ids(publisher, 2)[k] for k, old in ids(publisher, 1).items()}
        assert client.feeds.datasets.record(DATASET, next(iter(moved)))["currentId"] == next(iter(moved.values()))

        assert publish(publisher, 21) == 3
        early.follow(publisher, 3, reloaded=False)
        checks = release_again(publisher.ports, DATASET, 3)
        with pytest.raises(Reload, match="released again"):
            client.feeds.datasets.versions.get(DATASET, 3)
        assert client.feeds.datasets.get(DATASET)["current"]["version"] == 2
        early.follow(publisher, 3)

        assert build(publisher, checks) == [4]
        for reader in (early, seldom):
            reader.follow(publisher, 4, reloaded=True)
        assert ids(publisher, 4) == ids(publisher, 3)
        listed = client.feeds.datasets.versions.list(DATASET)["versions"]
        assert [(one["version"], one["previousVersion"], one["recordIdsChanged"]) for one in listed] == [
            (1, None, False),
            (2, 1, True),
            (4, 3, False),
        ]


def test_ids_that_late_readers_keep_are_what_their_records_carry_now(tmp_path, monkeypatch, postgres_database):
    """The version that replaced them was released again before the readers followed: its map answers 410."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "catalog.yaml").write_text(CATALOG)
    publisher = Publisher(tmp_path / "home", ("x",), tmp_path / "catalog.yaml")
    subscription = publisher.subscribe()
    file = tmp_path / "late"
    readers = {
        f"duckdb:///{file}.duckdb": lambda: duckdb.connect(f"{file}.duckdb"),
        f"sqlite:///{file}.gpkg": lambda: closing(sqlite3.connect(f"{file}.gpkg", isolation_level=None)),
        postgres_database: lambda: psycopg.connect(postgres_database, autocommit=True),
    }
    folder = open_target(f"parquet:///{file}")
    with serving(publisher) as url, Client(publisher.key, url) as client:
        publish(publisher, 20)
        first = ids(publisher, 1)
        sync(client, subscription, folder)
        for address, connect in readers.items():
            sync(client, subscription, open_target(address))
            with connect() as db:
                db.execute("CREATE TABLE orders (k TEXT, record TEXT)")
                for k in ("3", "4", "19"):
                    db.execute(f"INSERT INTO orders VALUES ('{k}', '{first[k]}')")
        assert build(publisher, replace_ids(publisher.ports, DATASET, Replacement())) == [2]
        assert build(publisher, release_again(publisher.ports, DATASET, 2)) == [3]
        assert publish(publisher, 19) == 4
        now, gone = ids(publisher, 4), ids(publisher, 3)["19"]
        assert not set(first.values()) & set(now.values())
        for address, connect in readers.items():
            (report,) = sync(client, subscription, open_target(address), rewrite_ids=["orders.record"]).datasets
            assert (report.held.version, report.held.state) == (4, "ok")
            with connect() as db:
                assert dict(db.execute(f"SELECT k, _ploti_record_id FROM {DATASET}").fetchall()) == now
                kept = dict(db.execute("SELECT k, record FROM orders").fetchall())
            assert kept == {"3": now["3"], "4": now["4"], "19": gone}
        (report,) = sync(client, subscription, folder, rewrite_ids=["orders.record"]).datasets
        assert (report.held.version, report.held.state) == (1, "blocked")
        (report,) = sync(client, subscription, folder).datasets
        assert (report.held.version, report.held.state) == (4, "ok")
        found = diff(client, DATASET, 1, 4)
        assert (found.counts, found.replaced) == ({"added": 0, "changed": 0, "removed": 1}, 19)
