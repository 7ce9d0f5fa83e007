"""What a subscriber is told in the life of a dataset: tests for sentences of page 003 on holds, reloads and order."""

from datetime import timedelta

import pytest
from tests.pipeline.publishing import DATASET, Publisher, table

from ploti.contract.events import RESYNC_REASONS
from ploti_server.domain.checks import Refresh
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.notice import notice_stale
from ploti_server.worker import new_owner, work_one

FULL, HALF, GROWN = table(range(40)), table(range(20)), table(range(41))
WIDER = table(range(41), "k,v,n", "{0},x{0},{0}")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    publisher = Publisher(tmp_path_factory.mktemp("published"), key=("k",))
    publisher.outcome(FULL)
    return publisher


@pytest.fixture
def publisher(published, tmp_path):
    """One version of a keyed dataset that was sent."""
    return published.copy(tmp_path)


@pytest.fixture
def subscription(publisher):
    """A subscription whose log begins with the dataset's `added`."""
    return publisher.subscribe()


def told(publisher, subscription, *names):
    return publisher.log(subscription, *names)[1:]


def current(publisher):
    with publisher.ports.store.read() as records:
        return records.versions.current(DATASET).number


class TestReload:
    def test_a_dataset_added_before_its_first_version_gets_it_as_a_resync(self, tmp_path):
        publisher = Publisher(tmp_path)
        subscription = publisher.subscribe()
        assert publisher.log(subscription, "version") == [("added", None)]
        publisher.outcome(FULL)
        assert told(publisher, subscription, "version", "reason") == [("resync_required", 1, "first_version")]

    def test_a_minor_change_on_its_own_arrives_as_updated(self, publisher, subscription):
        assert publisher.outcome(WIDER) == ("released", 2)
        assert publisher.version(2).schema_version == "1.1"
        assert [name for name, *_ in told(publisher, subscription)] == ["schema_changed", "updated"]

    def test_each_resync_has_one_of_the_reasons(self, publisher, subscription):
        publisher.replace_ids()
        publisher.release_again(2)
        publisher.define(drop=("v",))
        publisher.outcome(FULL)
        publisher.release()
        reasons = [reason for name, reason in told(publisher, subscription, "reason") if name == "resync_required"]
        assert reasons == ["record_ids_changed", "previous_unavailable", "schema_changed"]
        assert set(reasons) <= set(RESYNC_REASONS)

    def test_schema_change_is_measured_from_the_last_version_released(self, publisher, subscription):
        publisher.outcome(table(range(40), "k,w"))
        publisher.discard()
        publisher.outcome(WIDER)
        with publisher.ports.store.read() as records:
            (event,) = records.events.after(subscription, 0, 9, ["feed.dataset.schema_changed"])
        change = event.data["schemaChange"]
        assert (change["previousSchemaVersion"], change["kind"], change["removed"]) == ("1.0", "additive", [])
        assert [column["name"] for column in change["added"]] == ["n"]


class TestHeld:
    @pytest.fixture
    def held(self, publisher, subscription):
        """The second version is held; gives when it was built."""
        assert publisher.outcome(HALF) == ("held", 2)
        return publisher.version(2).built_at

    def test_nothing_more_arrives_until_the_hold_ends(self, publisher, subscription, held):
        before = publisher.log(subscription)
        assert before[-1] == ("delayed",)
        publisher.outcome(HALF)
        publisher.outcome("")
        with publisher.ports.store.write() as records:
            now = publisher.clock.now()
            records.catalog.put_refresh(DATASET, Refresh(now, now - timedelta(days=2)))
        assert notice_stale(publisher.ports) == ()
        assert publisher.log(subscription) == before
        publisher.release()
        assert told(publisher, subscription)[1:] == [("updated",)]

    def test_its_version_is_the_one_that_is_held_by_subscribers_and_stays_current(self, publisher, subscription, held):
        assert told(publisher, subscription, "version") == [("delayed", 1)]
        assert current(publisher) == 1
        publisher.release()
        assert current(publisher) == 2

    def test_since_is_when_the_held_version_was_built(self, publisher, subscription):
        file = publisher.folder / "half.csv"
        file.write_text(HALF)
        check = take_state(publisher.ports, DATASET, GivenState(file))
        publisher.clock.advance(hours=2)
        work_one(publisher.ports, new_owner(), check.id)
        since = f"{publisher.clock.now():%Y-%m-%dT%H:%M:%S}.000Z"
        publisher.clock.advance(hours=5)
        late = publisher.subscribe()
        assert told(publisher, subscription, "since") == told(publisher, late, "since") == [("delayed", since)]

    def test_released_it_is_sent_as_usual_after_a_change_of_its_schema(self, publisher, subscription, held):
        publisher.release()
        assert told(publisher, subscription, "version")[1:] == [("updated", 2)]
        publisher.outcome(table(range(20), "k,w"))
        publisher.release()
        assert told(publisher, subscription, "version")[3:] == [("schema_changed", 3), ("resync_required", 3)]

    def test_discarded_the_delay_ends_without_any_event_while_the_source_stays(self, publisher, subscription, held):
        before = publisher.log(subscription)
        publisher.discard()
        assert publisher.outcome(HALF) == ("unchanged", 1)
        assert publisher.log(subscription) == before
        assert publisher.outcome(GROWN) == ("released", 3)
        assert told(publisher, subscription, "version", "previousVersion")[1:] == [("updated", 3, 1)]


@pytest.mark.parametrize(
    ("first", "second", "fields"),
    [
        (WIDER, GROWN, {}),
        ("k,v\n1,10\n2,20\n", "k,v\n1,10\n2,x\n", {}),
        (FULL, FULL, {"key": ("v",)}),
    ],
    ids=["a column removed", "a column retyped", "the key changed"],
)
def test_what_would_break_a_consumer_is_held_as_schema_review(tmp_path, first, second, fields):
    publisher = Publisher(tmp_path, key=("k",))
    subscription = publisher.subscribe()
    publisher.outcome(first)
    publisher.define(**fields)
    assert publisher.outcome(second) == ("held", 2)
    assert publisher.log(subscription, "reason")[-1] == ("delayed", "schema_review")


@pytest.mark.parametrize(
    "state",
    [HALF, FULL + "7,again\n", FULL + ",nobody\n", table(range(100, 140), row="{0},y{0}")],
    ids=["far fewer rows", "a key twice", "a key without a value", "ids turned over"],
)
def test_what_looks_wrong_for_the_source_is_held_as_data_check(publisher, subscription, state):
    assert publisher.outcome(state) == ("held", 2)
    assert told(publisher, subscription, "reason") == [("delayed", "data_check")]


class TestOrder:
    def test_versions_of_a_dataset_reach_subscribers_in_order(self, publisher, subscription):
        """A worker that is slow with one state is not overtaken by another with the next."""

        def take(number):
            file = publisher.folder / f"{number}.csv"
            file.write_text(table(range(number)))
            publisher.clock.advance(hours=1)
            return take_state(publisher.ports, DATASET, GivenState(file)).id

        first, now = take(41), publisher.clock.now()
        with publisher.ports.store.write() as records:
            assert records.checks.claim("slow:1:x", now, now + timedelta(hours=2), first)
        second = take(42)
        assert work_one(publisher.ports, new_owner()) is None
        assert work_one(publisher.ports, new_owner(), second) is None
        publisher.clock.advance(hours=1)
        done = [work_one(publisher.ports, new_owner()) for _ in range(2)]
        assert [(check.id, check.version) for check in done] == [(first, 2), (second, 3)]
        assert told(publisher, subscription, "version") == [("updated", 2), ("updated", 3)]

    def test_previous_version_is_the_same_on_updated_events_and_with_the_versions(self, publisher, subscription):
        publisher.outcome(HALF)
        publisher.discard()
        for state in (GROWN, table(range(43))):
            publisher.outcome(state)
        chain = told(publisher, subscription, "version", "previousVersion")
        followed = [(version, previous) for name, version, previous in chain if name == "updated"]
        assert followed == publisher.chain()[1:] == [(3, 1), (4, 3)]
