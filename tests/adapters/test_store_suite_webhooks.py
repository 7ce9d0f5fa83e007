"""What the store promises about webhooks and deliveries, over the fake, SQLite and PostgreSQL."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.adapters.store_rows import HOUR, NOW, UNKNOWN_PARENT, dataset, event, ids, subscription

from ploti.contract import events as wire
from ploti_server.domain.deliveries import Backlog, Delivery, sent_again
from ploti_server.domain.webhooks import SecretRef, Webhook
from ploti_server.domain.workspaces import Workspace

FULL = Webhook(
    "wh_1",
    "w1",
    "sub_1",
    "kim",
    "https://a.example/x?y=ü",
    (wire.ADDED, wire.UPDATED),
    (SecretRef("s1", "k1"), SecretRef("s0", "k1", NOW + HOUR)),
    NOW,
    failing_since=NOW - HOUR,
)
MINUTE = timedelta(minutes=1)


def hook(name="wh_1", of="sub_1", **parts):
    return Webhook(name, parts.pop("workspace", "w1"), of, "kim", "https://a.example", None, (), NOW, **parts)


@pytest.fixture
def hooked(filled):
    """A store with the webhook wh_1 for sub_1."""
    with filled.write() as records:
        records.webhooks.put(hook())
    return filled


def append(store, *datasets, to="sub_1", at=NOW):
    with store.write() as records:
        records.events.append(to, [event(name) for name in datasets], at)


def claim(store, limit=100, per_webhook=4, at=NOW, owner="me", lease=MINUTE):
    with store.write() as records:
        return [(d.webhook_id, d.number) for d in records.deliveries.claim(owner, at, at + lease, limit, per_webhook)]


def all_of(store, webhook="wh_1"):
    with store.read() as records:
        return records.deliveries.of_webhook(webhook, 1000)


class TestWebhooks:
    def test_come_back_as_they_were_put(self, filled):
        with filled.write() as records:
            records.webhooks.put(FULL)
        with filled.read() as records:
            assert records.webhooks.get("wh_1") == FULL
            assert records.webhooks.get("wh_2") is None

    def test_put_replaces(self, filled):
        off = replace(FULL, off_at=NOW, off_reason="gone", types=None)
        with filled.write() as records:
            records.webhooks.put(FULL)
            records.webhooks.put(off)
            assert records.webhooks.lock("wh_1") == off
            assert records.webhooks.lock("wh_2") is None

    def test_several_are_locked_by_id_and_unknown_ones_left_out(self, hooked):
        with hooked.write() as records:
            records.webhooks.put(hook("wh_2"))
            assert records.webhooks.lock_each({"wh_2", "wh_1", "wh_9"}) == {"wh_1": hook(), "wh_2": hook("wh_2")}
            assert records.webhooks.lock_each(set()) == {}
        with pytest.raises(RuntimeError), hooked.read() as records:
            records.webhooks.lock_each({"wh_1"})

    def test_of_a_workspace_oldest_first(self, filled):
        with filled.write() as records:
            records.workspaces.put(Workspace("w2", "Other", (), None, NOW))
            records.subscriptions.put(subscription("sub_2", "w2"))
            for name, at in (("wh_b", NOW), ("wh_a", NOW), ("wh_c", NOW - HOUR)):
                records.webhooks.put(replace(hook(name), created_at=at))
            records.webhooks.put(hook("wh_2", "sub_2", workspace="w2"))
            assert ids(records.webhooks.of_workspace("w1")) == ["wh_c", "wh_a", "wh_b"]

    @pytest.mark.parametrize("unknown", [{"of": "sub_9"}, {"workspace": "w9"}])
    def test_belongs_to_a_subscription_and_workspace(self, filled, unknown):
        with pytest.raises(UNKNOWN_PARENT), filled.write() as records:
            records.webhooks.put(hook(**unknown))

    def test_deliveries_of_dropped_events_go_with_them(self, hooked):
        append(hooked, "ds_a", "ds_b")
        with hooked.write() as records:
            records.events.drop_through("sub_1", 1)
        assert [delivery.number for delivery in all_of(hooked)] == [2]

    @pytest.mark.parametrize("gone", ["webhook", "subscription", "workspace"])
    def test_goes_with_its_deliveries_and_what_it_belongs_to(self, hooked, gone):
        append(hooked, "ds_a")
        with hooked.write() as records:
            records.subscriptions.put(subscription("sub_2"))
            if gone == "webhook":
                records.webhooks.remove("wh_1")
            elif gone == "subscription":
                records.subscriptions.remove("sub_1")
            else:
                records.workspaces.remove("w1")
        with hooked.read() as records:
            assert records.webhooks.get("wh_1") is None
            assert records.deliveries.of_webhook("wh_1", 10) == ()
            assert not records.deliveries.is_any_due(NOW)

    def test_put_off_ends_what_waits(self, hooked):
        append(hooked, "ds_a", "ds_b")
        claim(hooked, limit=1)
        with hooked.write() as records:
            records.webhooks.put(hook(off_at=NOW, off_reason="member_left"))
        for delivery in all_of(hooked):
            assert (delivery.status, delivery.end_reason, delivery.due_at) == ("ended", "webhook_off", None)
            assert (delivery.lease_owner, delivery.lease_until) == (None, None)


class TestQueueing:
    def test_is_in_the_transaction_of_the_events(self, hooked):
        def append_and_give_up():
            with hooked.write() as records:
                records.events.append("sub_1", [event()], NOW)
                seen.extend(records.deliveries.of_webhook("wh_1", 10))
                raise ZeroDivisionError

        seen = []
        with pytest.raises(ZeroDivisionError):
            append_and_give_up()
        assert len(seen) == 1
        assert all_of(hooked) == ()

    def test_gives_each_event_one_delivery_a_webhook_due_at_once(self, hooked):
        with hooked.write() as records:
            records.webhooks.put(hook("wh_2"))
        append(hooked, "ds_a", "ds_b")
        for name in ("wh_1", "wh_2"):
            made = all_of(hooked, name)
            assert [(d.number, d.dataset_id, d.type) for d in made] == [
                (2, "ds_b", wire.ADDED),
                (1, "ds_a", wire.ADDED),
            ]
            assert {(d.due_at, d.created_at, d.status, d.attempts, d.webhook_id) for d in made} == {
                (NOW, NOW, "pending", 0, name)
            }
        assert len({d.id for name in ("wh_1", "wh_2") for d in all_of(hooked, name)}) == 4

    def test_leaves_out_types_that_are_filtered_webhooks_that_are_off_and_other_subscriptions(self, hooked):
        with hooked.write() as records:
            records.subscriptions.put(subscription("sub_2"))
            records.webhooks.put(hook("wh_2", off_at=NOW, off_reason="gone"))
            records.webhooks.put(replace(hook("wh_3"), types=(wire.UPDATED,)))
            records.webhooks.put(hook("wh_4", "sub_2"))
        append(hooked, "ds_a")
        assert [len(all_of(hooked, f"wh_{n}")) for n in (1, 2, 3, 4)] == [1, 0, 0, 0]

    def test_what_was_logged_before_the_webhook_is_not_queued(self, filled):
        append(filled, "ds_a")
        with filled.write() as records:
            records.webhooks.put(hook())
        append(filled, "ds_b")
        assert [d.number for d in all_of(filled)] == [2]


class TestDeliveries:
    def test_come_back_as_they_were_put(self, hooked):
        append(hooked, "ds_a")
        (made,) = all_of(hooked)
        tried = replace(
            made,
            due_at=NOW + HOUR,
            attempts=3,
            attempted_at=NOW,
            answer_status=503,
            answer_problem="x",
        )
        ended = replace(tried, due_at=None, status="ended", end_reason="gave_up", answer_status=None)
        for value in (tried, ended):
            with hooked.write() as records:
                records.deliveries.put(value)
            with hooked.read() as records:
                assert records.deliveries.get(made.id) == value

    def test_put_replaces_only(self, hooked):
        unknown = Delivery("msg_9", "wh_1", "sub_1", 1, wire.ADDED, "ds_a", NOW, NOW)
        with pytest.raises(LookupError), hooked.write() as records:
            records.deliveries.put(unknown)
        with hooked.read() as records:
            assert records.deliveries.get("msg_9") is None

    def test_several_are_put_and_found_by_id(self, hooked):
        append(hooked, *["ds_a"] * 3)
        with hooked.write() as records:
            first, second, third = records.deliveries.of_webhook("wh_1", 3)[::-1]
            done = [replace(one, status="delivered", due_at=None, attempts=1) for one in (first, third)]
            records.deliveries.put(*done)
            assert records.deliveries.get_each([first.id, third.id, "msg_9"]) == {d.id: d for d in done}
            assert records.deliveries.get_each([]) == {}
        assert all_of(hooked) == (done[1], second, done[0])
        unknown = Delivery("msg_9", "wh_1", "sub_1", 9, wire.ADDED, "ds_a", NOW, NOW)
        with pytest.raises(LookupError, match="msg_9"), hooked.write() as records:
            records.deliveries.put(replace(second, attempts=7), unknown)
        assert all_of(hooked)[1] == second
        with pytest.raises(RuntimeError), hooked.read() as records:
            records.deliveries.put(second)

    def test_of_a_webhook_newest_event_first_in_pages_and_by_status(self, hooked):
        append(hooked, *["ds_a"] * 5)
        with hooked.write() as records:
            third = records.deliveries.of_webhook("wh_1", 5)[2]
            records.deliveries.put(replace(third, status="delivered", due_at=None))
        with hooked.read() as records:
            pages = [records.deliveries.of_webhook("wh_1", 2, before) for before in (None, 4, 2)]
            assert [[d.number for d in page] for page in pages] == [[5, 4], [3, 2], [1]]
            assert [d.number for d in records.deliveries.of_webhook("wh_1", 9, status="delivered")] == [3]
            assert [d.number for d in records.deliveries.of_webhook("wh_1", 2, 3, "pending")] == [2, 1]

    def test_reading_transaction_cannot_claim(self, hooked):
        append(hooked, "ds_a")
        with hooked.read() as records, pytest.raises(RuntimeError, match="opened for reading"):
            records.deliveries.claim("me", NOW, NOW + HOUR, 1, 1)


class TestClaim:
    def test_takes_what_is_due_lowest_event_first(self, hooked):
        append(hooked, "ds_b", "ds_a")
        append(hooked, "ds_c", at=NOW + HOUR)
        assert claim(hooked) == [("wh_1", 1), ("wh_1", 2)]
        assert claim(hooked) == []
        assert claim(hooked, at=NOW + HOUR) == [("wh_1", 1), ("wh_1", 2), ("wh_1", 3)]

    def test_gives_the_leased_values(self, hooked):
        append(hooked, "ds_a")
        with hooked.write() as records:
            (claimed,) = records.deliveries.claim("me", NOW, NOW + MINUTE, 1, 1)
            assert (claimed.lease_owner, claimed.lease_until) == ("me", NOW + MINUTE)
            assert records.deliveries.get(claimed.id) == claimed

    def test_a_lease_that_ran_out_is_free(self, hooked):
        append(hooked, "ds_a")
        assert claim(hooked) == [("wh_1", 1)]
        assert claim(hooked, at=NOW + MINUTE - timedelta(microseconds=1)) == []
        assert claim(hooked, at=NOW + MINUTE, owner="other") == [("wh_1", 1)]

    def test_events_of_one_dataset_go_one_after_the_other(self, hooked):
        append(hooked, "ds_a", "ds_a", "ds_b")
        assert claim(hooked) == [("wh_1", 1), ("wh_1", 3)]
        assert claim(hooked) == []
        with hooked.write() as records:
            first = next(d for d in records.deliveries.of_webhook("wh_1", 9) if d.number == 1)
            done = replace(first, status="delivered", due_at=None, lease_owner=None, lease_until=None)
            records.deliveries.put(done)
        assert claim(hooked) == [("wh_1", 2)]

    def test_an_event_that_waits_for_its_retry_does_not_hold_up_the_next(self, hooked):
        append(hooked, "ds_a", "ds_a")
        with hooked.write() as records:
            first = records.deliveries.of_webhook("wh_1", 9)[1]
            records.deliveries.put(replace(first, due_at=NOW + MINUTE, attempts=1))
        assert claim(hooked) == [("wh_1", 2)]

    def test_one_webhook_has_so_many_at_a_time(self, hooked):
        with hooked.write() as records:
            for number in range(6):
                records.catalog.put_dataset(dataset(f"ds_{number}"))
        append(hooked, *(f"ds_{number}" for number in range(6)))
        assert claim(hooked, per_webhook=4) == [("wh_1", n) for n in (1, 2, 3, 4)]
        assert claim(hooked, per_webhook=4) == []
        assert claim(hooked, per_webhook=5) == [("wh_1", 5)]

    def test_a_failing_webhook_has_one_at_a_time(self, filled):
        with filled.write() as records:
            records.webhooks.put(hook(failing_since=NOW))
        append(filled, "ds_a", "ds_b")
        assert claim(filled) == [("wh_1", 1)]
        assert claim(filled) == []

    def test_each_webhooks_first_goes_before_anothers_second(self, hooked):
        append(hooked, "ds_a", "ds_b")
        with hooked.write() as records:
            records.subscriptions.put(subscription("sub_2"))
            records.webhooks.put(hook("wh_2", "sub_2"))
            records.webhooks.put(hook("wh_3"))
        append(hooked, "ds_a", to="sub_2")
        append(hooked, "ds_b")
        assert sorted(claim(hooked, limit=3)) == [("wh_1", 1), ("wh_2", 1), ("wh_3", 3)]
        assert claim(hooked, limit=3) == [("wh_1", 2)]

    def test_a_webhook_that_is_off_gets_nothing_even_sent_again(self, hooked):
        append(hooked, "ds_a")
        with hooked.write() as records:
            records.webhooks.put(hook(off_at=NOW, off_reason="gone"))
            records.deliveries.put(sent_again(records.deliveries.of_webhook("wh_1", 1)[0], NOW))
        with hooked.read() as records:
            assert not records.deliveries.is_any_due(NOW)
        assert claim(hooked) == []

    def test_any_due_tells_whether_there_is_something(self, hooked):
        append(hooked, "ds_a")
        for at, due in ((NOW - MINUTE, False), (NOW, True)):
            with hooked.read() as records:
                assert records.deliveries.is_any_due(at) is due
        claim(hooked)
        for at, due in ((NOW, False), (NOW + MINUTE, True)):
            with hooked.read() as records:
                assert records.deliveries.is_any_due(at) is due

    def test_claimers_at_once_get_each_delivery_once(self, hooked):
        with hooked.write() as records:
            for number in range(40):
                records.catalog.put_dataset(dataset(f"ds_{number}"))
        append(hooked, *(f"ds_{number}" for number in range(40)))
        taken = []

        def take(owner):
            for _ in range(30):
                taken.extend(claim(hooked, limit=2, per_webhook=100, owner=owner))

        threads = [threading.Thread(target=take, args=[f"w{n}"]) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken += claim(hooked, per_webhook=100)
        assert sorted(taken) == [("wh_1", n) for n in range(1, 41)]


def test_backlog_counts_what_waits_what_is_due_and_webhooks_in_trouble(hooked):
    with hooked.write() as records:
        records.webhooks.put(hook("wh_2", failing_since=NOW))
        records.events.append("sub_1", [event(), event()], NOW)
        later = records.deliveries.of_webhook("wh_1", 1)[0]
        records.deliveries.put(replace(later, due_at=NOW + HOUR))
        assert records.deliveries.backlog(NOW) == Backlog(waiting=4, due=3, failing_webhooks=1, webhooks_off=0)
        records.webhooks.put(hook("wh_2", off_at=NOW, off_reason="gone", failing_since=NOW))
        assert records.deliveries.backlog(NOW) == Backlog(waiting=2, due=1, failing_webhooks=0, webhooks_off=1)
