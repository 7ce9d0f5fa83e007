"""Ids replaced and a version released again, from a real publisher to readers' tables (page 001)."""

import pytest
from tests.e2e.independent import SyncedTable
from tests.e2e.serving import Publisher, serving

from ploti import Client
from ploti.errors import Reload
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
