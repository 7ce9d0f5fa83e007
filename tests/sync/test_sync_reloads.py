"""What sync applies and when it reloads: page 001 on the consumer's side, through calls, files and a table."""

import duckdb
import pytest

from ploti import Client, Retries
from ploti.sync.loop import sync
from ploti.sync.targets import open_target
from ploti.testing.feed import SUBSCRIPTION, Feed, record_id
from ploti.testing.stories import PERMITS, A, permit, permits

VERSIONS = f"/v1/feeds/datasets/{A}/versions"


class Reader:
    """A table that follows a feed of one dataset, loaded at its first version."""

    def __init__(self, folder):
        self.feed = Feed()
        self.feed.add(A, PERMITS, permits(*range(10)))
        self.path = folder / "t.duckdb"
        self.follow()

    def follow(self):
        """Sync; gives what was done for the dataset, and keeps the calls that it took in `calls`."""
        self.feed.api.requests.clear()
        with Client(**self.feed.api.client_options, retries=Retries(attempts=1)) as client:
            (report,) = sync(client, SUBSCRIPTION, open_target(f"duckdb:///{self.path}")).datasets
        self.calls = [request.path for request in self.feed.api.requests]
        return report

    def sql(self, statement):
        with duckdb.connect(str(self.path)) as db:
            return db.execute(statement).fetchall()

    def values(self):
        """Give each record's value by the number in its id, a list as long as it is often there."""
        found = {}
        for id_, value in self.sql(f"SELECT _ploti_record_id, value FROM {A}"):
            found.setdefault(id_, []).append(value)
        return found


@pytest.fixture
def reader(tmp_path):
    return Reader(tmp_path)


def test_an_added_record_is_inserted(reader):
    reader.feed.update(A, put={record_id(40): permit(40, 7.0)})
    before = reader.values()
    assert reader.follow().moved.added == 1
    assert reader.values() == {**before, record_id(40): [7.0]}


def test_a_changed_record_is_replaced(reader):
    reader.feed.update(A, put={record_id(3): permit(3, 7.0)})
    before = reader.values()
    assert reader.follow().moved.changed == 1
    assert reader.values() == {**before, record_id(3): [7.0]}


def test_a_removed_record_is_deleted(reader):
    reader.feed.update(A, drop=[record_id(3)])
    before = reader.values()
    assert reader.follow().moved.removed == 1
    assert reader.values() == {id_: value for id_, value in before.items() if id_ != record_id(3)}


def test_an_update_on_any_other_version_reads_the_current_one_and_loads_its_snapshot(reader):
    reader.feed.update(A, put=permits(40))
    reader.feed.api.state.subscriptions[SUBSCRIPTION].events.pop()
    reader.feed.update(A, put=permits(41))
    report = reader.follow()
    assert (report.reloaded, report.held.version) == (True, 3)
    wanted = [f"/v1/feeds/datasets/{A}", f"{VERSIONS}/3", f"/files/{A}/3/1/snapshot/part-0000.parquet"]
    assert [call for call in reader.calls if call in wanted] == wanted
    assert len(reader.values()) == 12


@pytest.mark.parametrize(("sent", "gone"), [("changes", "pruned"), ("reload", "released_again")])
def test_a_version_that_answers_410_is_a_reload(reader, sent, gone):
    if sent == "changes":
        reader.feed.update(A, put=permits(40))
    else:
        reader.feed.reload(A, permits(*range(9)), "previous_unavailable")
    reader.feed.reload(A, permits(*range(5)), "previous_unavailable")
    reader.feed.api.state.subscriptions[SUBSCRIPTION].events.pop()
    reader.feed.api.keep(A, 2, gone)
    report = reader.follow()
    assert f"{VERSIONS}/2" in reader.calls
    assert (report.reloaded, report.held.version, len(reader.values())) == (True, 3, 5)


def test_after_a_410_it_loads_the_current_version_and_continues_from_there(reader):
    reader.feed.update(A, put=permits(40))
    reader.feed.update(A, put=permits(41))
    reader.feed.api.keep(A, 2, "pruned")
    report = reader.follow()
    assert (report.reloaded, report.held.version, len(reader.values())) == (True, 3, 12)
    assert reader.calls.index(f"/v1/feeds/datasets/{A}") < reader.calls.index(f"{VERSIONS}/3")
    reader.feed.update(A, put=permits(42))
    report = reader.follow()
    assert (report.reloaded, report.held.version, report.moved.added) == (False, 4, 1)


def test_a_cursor_whose_events_are_gone_is_a_reload_from_the_manifest(reader):
    reader.feed.update(A, put=permits(40))
    reader.feed.api.prune_events(SUBSCRIPTION, reader.feed.api.state.subscriptions[SUBSCRIPTION].newest)
    report = reader.follow()
    assert f"/v1/feeds/subscriptions/{SUBSCRIPTION}/manifest" in reader.calls
    assert (report.reloaded, report.held.version, len(reader.values())) == (True, 2, 11)
