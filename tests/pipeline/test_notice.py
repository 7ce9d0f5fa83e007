"""`feed.dataset.stale`: a day past the due check, once for each missed one, to whoever holds the dataset (D7.8)."""

from datetime import timedelta

import pytest
from tests.pipeline.test_membership import BOTH, TOPICS, dataset, make_ports, subscribe

from ploti_server.domain.catalog import Catalog
from ploti_server.domain.checks import Refresh
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.pipeline.catalog import apply_catalog
from ploti_server.pipeline.notice import notice_stale
from ploti_server.pipeline.release import discard_held
from ploti_server.pipeline.subscriptions import delete_subscription
from ploti_server.pipeline.workspaces import create_workspace, set_workspace
from ploti_server.testing import FakePlans, MemoryStore
from ploti_server.worker import Upkeep

DAY = timedelta(days=1)


@pytest.fixture
def ports(tmp_path):
    made = make_ports(MemoryStore(), tmp_path)
    apply_catalog(made, Catalog(TOPICS, BOTH))
    create_workspace(made, "w", ["fl-counties"], None)
    return made


def checked(ports, dataset_id, next_check_by, last=None):
    with ports.store.write() as records:
        records.catalog.put_refresh(dataset_id, Refresh(last, next_check_by))


def stale_of(ports, subscription_id):
    with ports.store.read() as records:
        found = records.events.after(subscription_id, 0, 100, ["feed.dataset.stale"])
    return [event.data for event in found]


def test_source_a_day_past_its_due_check_is_reported_once_with_when_it_was_checked_last(ports):
    subscription = subscribe(ports, "fl", topics=["permits"])
    now = ports.clock.now()
    checked(ports, "ds_a", now + DAY, last=now)
    ports.clock.advance(days=2, milliseconds=-1)
    assert notice_stale(ports) == ()
    ports.clock.advance(milliseconds=1)
    assert notice_stale(ports) == ("ds_a",)
    ports.clock.advance(days=30)
    assert notice_stale(ports) == ()
    last = now.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    assert stale_of(ports, subscription) == [{"datasetId": "ds_a", "reason": "check_overdue", "lastCheckedAt": last}]


def test_each_missed_check_is_reported_once(ports):
    subscription = subscribe(ports, "fl", topics=["permits"])
    for _ in range(2):
        checked(ports, "ds_a", ports.clock.now(), last=ports.clock.now())
        ports.clock.advance(days=1)
        assert notice_stale(ports) == ("ds_a",)
        ports.clock.advance(days=3)
        assert notice_stale(ports) == ()
    assert len(stale_of(ports, subscription)) == 2


def test_source_never_checked_is_stale_a_day_after_it_was_subscribed_to(ports):
    subscription = subscribe(ports, "fl", topics=["permits"])
    ports.clock.advance(days=1)
    assert notice_stale(ports) == ("ds_a",)
    assert stale_of(ports, subscription)[0]["lastCheckedAt"] is None


def test_every_holder_is_told_and_no_one_else(ports):
    holders = [subscribe(ports, "fl"), subscribe(ports, ids=["ds_a"])]
    other = subscribe(ports, "fl", topics=["zoning"])
    ports.clock.advance(days=1)
    assert notice_stale(ports) == ("ds_a", "ds_b")
    assert [len(stale_of(ports, one)) for one in (*holders, other)] == [2, 1, 1]


@pytest.mark.parametrize("why", ["no longer held", "retired", "version held for review"])
def test_nothing_is_sent_of_a_dataset_that_is(ports, why):
    subscription = subscribe(ports, "fl", topics=["permits"])
    ports.clock.advance(days=1)
    if why == "no longer held":
        delete_subscription(ports, _workspace(ports), subscription)
    if why == "retired":
        with ports.store.write() as records:
            records.catalog.put_dataset(dataset("ds_a", retired=True))
    if why == "version held for review":
        with ports.store.write() as records:
            records.versions.put(Version("ds_a", 1, 1, VersionStatus.HELD, 1, reasons=("data_check",)))
    assert notice_stale(ports) == ()
    assert stale_of(ports, subscription) == []


def test_source_is_reported_once_the_hold_has_ended(ports):
    subscription = subscribe(ports, "fl", topics=["permits"])
    with ports.store.write() as records:
        records.versions.put(Version("ds_a", 1, 1, VersionStatus.HELD, 1, reasons=("data_check",)))
    ports.clock.advance(days=1)
    assert notice_stale(ports) == ()
    discard_held(ports, "ds_a")
    assert notice_stale(ports) == ("ds_a",)
    assert len(stale_of(ports, subscription)) == 1


def _workspace(ports):
    with ports.store.read() as records:
        return records.workspaces.named("w").id


class TestUpkeep:
    """What a worker looks after beside the builds."""

    def test_memberships_left_as_they_were_are_asked_again_within_minutes(self, ports):
        subscription = subscribe(ports, "fl")
        upkeep = Upkeep()
        upkeep.look_after(ports)
        plans: FakePlans = ports.plans
        plans.available = False
        _, waiting = set_workspace(ports, "w", topics=["permits"])
        assert waiting == (subscription,)
        plans.available = True
        upkeep.look_after(ports)
        assert _held(ports, subscription) == ("ds_a", "ds_b")
        ports.clock.advance(minutes=3)
        upkeep.look_after(ports)
        assert _held(ports, subscription) == ("ds_a",)

    def test_a_piece_that_breaks_down_holds_up_no_other(self, ports):
        def breaks(_):
            raise ValueError("broken")

        subscription = subscribe(ports, "fl", topics=["permits"])
        ports.clock.advance(days=1)
        upkeep = Upkeep(pieces=((DAY, breaks), (DAY, notice_stale)))
        upkeep.look_after(ports)
        assert len(stale_of(ports, subscription)) == 1


def _held(ports, subscription_id):
    with ports.store.read() as records:
        return records.subscriptions.joined(subscription_id)
