"""Delivering under a virtual clock, on each store: schedule, ends, signatures, side by side (page 003, D9, G12)."""

import json
import random
import threading
import time
from collections import Counter, defaultdict
from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest
from standardwebhooks import Webhook as Receiving
from standardwebhooks.webhooks import WebhookVerificationError

from ploti.contract import events as wire
from ploti_server.domain.access import Refused
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.deliveries import STEPS, Answer
from ploti_server.domain.events import NewEvent, wire_event
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.webhooks import WebhookRequest
from ploti_server.pipeline.deliver import PER_WEBHOOK, SLOTS, deliver_due
from ploti_server.pipeline.subscriptions import delete_subscription
from ploti_server.pipeline.webhooks import (
    create_webhook,
    delete_webhook,
    rotate_secret,
    send_again,
)
from ploti_server.pipeline.webhooks import test_webhook as ping
from ploti_server.pipeline.workspaces import add_member, create_key, create_workspace, remove_member, revoke_key
from ploti_server.ports import Hooks, Ports
from ploti_server.testing import FakeAgent, FakePlans, FakeSender, FixedClock, MemoryFiles, MemoryStore

URL = "https://acme.example/hooks/ploti"
BASE = "https://feeds.example.org"


class Scene:
    """A workspace with subscriptions, webhooks and a receiver that answers as it is told."""

    def __init__(self, store, tmp_path):
        self.store, self.clock = store, FixedClock()
        self.answer = Answer(204)
        self.sent = []
        self._turn = threading.Lock()
        self.ports = Ports(
            store=store,
            files=MemoryFiles(),
            engine=None,
            open_state=None,
            agent=FakeAgent(),
            plans=FakePlans(),
            clock=self.clock,
            home=tmp_path,
            hooks=Hooks(FakeSender(self._receive), b"k" * 64, BASE),
        )
        self.workspace = create_workspace(self.ports, "w", ["fl-counties"], None)
        self.key = create_key(self.ports, "w", "ann", "admin").key
        with store.write() as records:
            for number in range(8):
                records.catalog.put_dataset(Dataset(f"ds_{number}", "X", SourceSpec("file", "x")))
        self.subscribe("sub_1")
        self.secrets = {}

    def subscribe(self, name):
        now = self.clock.now()
        with self.store.write() as records:
            records.subscriptions.put(Subscription(name, self.workspace.id, "N", ("fl",), (), (), 1, now, now))

    def hook(self, of="sub_1", types=None, url=URL):
        made = create_webhook(self.ports, self.workspace.id, "ann", WebhookRequest(url, of, types))
        self.secrets[made.webhook.id] = made.text
        return made.webhook.id

    def log(self, count=1, to="sub_1", datasets=8, kind=wire.UPDATED):
        path = "/v1/feeds/datasets/ds_0/versions/1"
        made = [
            NewEvent(
                kind, f"ds_{n % datasets}", {"datasetId": f"ds_{n % datasets}", "n": n, "links": {"version": path}}
            )
            for n in range(count)
        ]
        with self.store.write() as records:
            return records.events.append(to, made, self.clock.now())

    def _receive(self, url, headers, body):
        with self._turn:
            self.sent.append((self.clock.now(), url, headers, body))
        return self.answer(url, headers, body) if callable(self.answer) else self.answer

    def deliver(self):
        return deliver_due(self.ports, "me")

    def run_until_quiet(self, most=200):
        """Deliver and move the clock to the next due moment until nothing waits."""
        for _ in range(most):
            self.deliver()
            due = [d.due_at for d in self.deliveries() if d.due_at is not None]
            if not due:
                return
            self.clock.set(max(min(due), self.clock.now()) + timedelta(milliseconds=1))
        raise AssertionError("something always waits")

    def deliveries(self, *webhooks):
        with self.store.read() as records:
            named = webhooks or [w.id for w in records.webhooks.of_workspace(self.workspace.id)]
            return [d for name in named for d in records.deliveries.of_webhook(name, 5000)]

    def webhook(self, webhook_id):
        with self.store.read() as records:
            return records.webhooks.get(webhook_id)

    @property
    def bodies(self):
        return [json.loads(body) for *_, body in self.sent]


@pytest.fixture
def scene(store, tmp_path):
    return Scene(store, tmp_path)


def test_a_delivery_is_sent_at_once_and_only_once_where_it_succeeds(scene):
    scene.hook()
    scene.log(3)
    assert scene.deliver() == 3
    assert scene.deliver() == 0
    assert sorted(event["id"] for event in scene.bodies) == [wire.event_id(n) for n in (1, 2, 3)]
    assert {d.status for d in scene.deliveries()} == {"delivered"}


def test_the_body_is_the_logs_entry_byte_for_byte_with_the_public_address_in_its_links(scene):
    scene.hook()
    scene.log()
    scene.deliver()
    with scene.store.read() as records:
        (entry,) = records.events.after("sub_1", 0, 10)
    (*_, body) = scene.sent[0]
    assert body == msgspec.json.encode(wire_event(entry, BASE))
    event = json.loads(body)
    assert list(event) == ["id", "type", "timestamp", "subscriptionId", "data"]
    assert event["data"]["links"] == {"version": BASE + "/v1/feeds/datasets/ds_0/versions/1"}


def test_failed_deliveries_are_retried_six_times_at_growing_intervals_over_a_day_and_a_half(scene):
    scene.hook()
    scene.log()
    scene.answer = Answer(500)
    scene.run_until_quiet()
    times = [at for at, *_ in scene.sent]
    assert len(times) == 7
    waits = [after - before for before, after in pairwise(times)]
    assert waits == sorted(waits)
    for wait, step in zip(waits, STEPS, strict=True):
        assert 0.9 <= wait / step <= 1.101
    assert timedelta(days=1.3) < times[-1] - times[0] < timedelta(days=1.7)
    (ended,) = scene.deliveries()
    assert (ended.status, ended.end_reason) == ("ended", "gave_up")
    assert scene.webhook(ended.webhook_id).off_at is None


def test_webhook_id_names_the_delivery_through_its_retries_and_not_the_event(scene):
    scene.hook()
    scene.hook()
    scene.log(2)
    scene.answer = Answer(500)
    scene.run_until_quiet()
    ids = Counter((headers["webhook-id"], json.loads(body)["id"]) for *_, headers, body in scene.sent)
    assert sorted(ids.values()) == [7, 7, 7, 7]
    assert {d.id for d in scene.deliveries()} == {delivery for delivery, _ in ids}
    assert Counter(event for _, event in ids) == {wire.event_id(1): 2, wire.event_id(2): 2}


def test_413_ends_that_delivery_alone(scene):
    scene.hook()
    scene.log(2)
    scene.answer = lambda *request: Answer(413 if b"evt_000000000001" in request[2] else 204)
    scene.run_until_quiet()
    assert len(scene.sent) == 2
    assert {(d.number, d.status, d.end_reason) for d in scene.deliveries()} == {
        (1, "ended", "too_large"),
        (2, "delivered", None),
    }


def test_410_turns_the_webhook_off_and_nothing_more_is_sent_to_it(scene):
    webhook = scene.hook()
    scene.log(20, datasets=1)
    scene.answer = Answer(410)
    scene.run_until_quiet()
    scene.log(5)
    scene.run_until_quiet()
    assert len(scene.sent) == 1
    assert Counter(d.end_reason for d in scene.deliveries()) == {"gone": 1, "webhook_off": 19}
    assert scene.webhook(webhook).off_reason == "gone"
    with pytest.raises(Refused, match="410"):
        send_again(scene.ports, scene.workspace.id, webhook, scene.deliveries()[0].id)


def test_redirects_are_failures_that_the_owner_sees_and_the_event_stays_in_the_log(scene):
    """F064."""
    scene.hook()
    scene.log()
    scene.answer = Answer(308, "redirects are not followed")
    scene.deliver()
    (shown,) = scene.deliveries()
    assert (shown.answer_status, shown.answer_problem, shown.status) == (308, "redirects are not followed", "pending")
    with scene.store.read() as records:
        assert len(records.events.after("sub_1", 0, 10)) == 1


def test_a_webhook_whose_every_delivery_fails_for_five_days_is_turned_off_and_says_so(scene):
    webhook = scene.hook()
    scene.answer = Answer(None, "x")
    began = scene.clock.now()
    while scene.webhook(webhook).off_at is None:
        scene.log()
        scene.deliver()
        scene.clock.advance(hours=12)
    assert scene.webhook(webhook).off_at - began == timedelta(days=5)
    assert scene.webhook(webhook).off_reason == "failing"
    scene.run_until_quiet()
    assert {d.status for d in scene.deliveries()} == {"ended"}


class TestStops:
    def pending(self, scene):
        webhook = scene.hook()
        scene.answer = Answer(500)
        scene.log(3)
        scene.deliver()
        scene.sent.clear()
        scene.answer = Answer(204)
        return webhook

    def test_when_its_member_leaves_the_workspace(self, scene):
        webhook = self.pending(scene)
        remove_member(scene.ports, "w", "ann")
        scene.log(2)
        scene.run_until_quiet()
        assert scene.sent == []
        assert scene.webhook(webhook).off_reason == "member_left"
        assert {d.end_reason for d in scene.deliveries()} == {"webhook_off"}

    def test_and_stays_off_when_the_member_comes_back(self, scene):
        webhook = self.pending(scene)
        remove_member(scene.ports, "w", "ann")
        add_member(scene.ports, "w", "ann", "admin")
        scene.log()
        scene.run_until_quiet()
        assert scene.sent == []
        with pytest.raises(Refused, match="has left"):
            ping(scene.ports, scene.workspace.id, webhook)

    def test_other_members_webhooks_go_on(self, scene):
        self.pending(scene)
        add_member(scene.ports, "w", "bob", "member")
        made = create_webhook(scene.ports, scene.workspace.id, "bob", WebhookRequest(URL, "sub_1", None)).webhook
        remove_member(scene.ports, "w", "ann")
        scene.log()
        scene.run_until_quiet()
        assert [headers["webhook-id"] for *_, headers, _ in scene.sent] == [d.id for d in scene.deliveries(made.id)]

    def test_when_its_subscription_is_deleted(self, scene):
        webhook = self.pending(scene)
        delete_subscription(scene.ports, scene.workspace.id, "sub_1")
        scene.clock.advance(days=1)
        scene.deliver()
        assert scene.sent == []
        assert scene.webhook(webhook) is None

    def test_when_it_is_deleted(self, scene):
        webhook = self.pending(scene)
        delete_webhook(scene.ports, scene.workspace.id, webhook)
        scene.log()
        scene.clock.advance(days=1)
        scene.deliver()
        assert scene.sent == []

    def test_not_when_the_key_that_made_it_is_revoked(self, scene):
        self.pending(scene)
        revoke_key(scene.ports, scene.key.id)
        scene.run_until_quiet()
        assert len(scene.sent) == 3

    def test_a_member_who_left_meanwhile_makes_none(self, scene):
        remove_member(scene.ports, "w", "ann")
        with pytest.raises(Refused) as refused:
            scene.hook()
        assert refused.value.code == "unauthenticated"


class TestSigning:
    def verify(self, scene, webhook, secret=None, at=-1):
        *_, headers, body = scene.sent[at]
        return Receiving(secret or scene.secrets[webhook]).verify(body, headers)

    @pytest.fixture
    def now(self, scene):
        """The library reads the machine's clock."""
        scene.clock.set(scene.clock.now().fromtimestamp(time.time(), tz=scene.clock.now().tzinfo))

    def test_each_delivery_verifies_with_the_secret_returned_at_creation(self, scene, now):
        webhook = scene.hook()
        scene.log(5)
        scene.deliver()
        for at in range(5):
            assert self.verify(scene, webhook, at=at)["subscriptionId"] == "sub_1"

    def test_another_webhooks_secret_does_not_verify(self, scene, now):
        one, other = scene.hook(), scene.hook(types=(wire.REMOVED,))
        scene.log()
        scene.deliver()
        assert self.verify(scene, one)
        with pytest.raises(WebhookVerificationError):
            self.verify(scene, other)

    def test_the_ping_is_signed_in_the_same_way(self, scene, now):
        webhook = scene.hook()
        assert ping(scene.ports, scene.workspace.id, webhook) == Answer(204)
        body = self.verify(scene, webhook)
        assert list(body) == ["id", "type", "timestamp", "data"]
        assert (body["type"], body["data"]) == ("ping", {})
        assert scene.deliveries() == []

    def test_a_410_to_a_ping_turns_the_webhook_off_too(self, scene, now):
        webhook = scene.hook()
        scene.answer = Answer(410)
        ping(scene.ports, scene.workspace.id, webhook)
        assert scene.webhook(webhook).off_reason == "gone"

    def test_rotating_signs_with_old_and_new_for_a_day(self, scene, now):
        webhook = scene.hook()
        old = scene.secrets[webhook]
        new = rotate_secret(scene.ports, scene.workspace.id, webhook).text
        assert new != old
        scene.log()
        scene.deliver()
        assert self.verify(scene, webhook, old) == self.verify(scene, webhook, new)
        scene.clock.advance(days=1)
        scene.log()
        scene.deliver()
        (*_, headers, _) = scene.sent[-1]
        assert headers["webhook-signature"].count("v1,") == 1

    def test_rotating_twice_ends_the_first(self, scene, now):
        webhook = scene.hook()
        texts = [scene.secrets[webhook]] + [
            rotate_secret(scene.ports, scene.workspace.id, webhook).text for _ in range(2)
        ]
        scene.log()
        scene.deliver()
        with pytest.raises(WebhookVerificationError):
            self.verify(scene, webhook, texts[0])
        assert self.verify(scene, webhook, texts[1])
        assert self.verify(scene, webhook, texts[2])

    def test_the_store_does_not_hold_the_secret(self, scene):
        webhook = scene.hook()
        assert scene.secrets[webhook].startswith("whsec_")
        assert scene.secrets[webhook].removeprefix("whsec_") not in repr(scene.webhook(webhook))

    def test_a_server_with_another_key_says_so_and_sends_nothing(self, scene):
        webhook = scene.hook()
        scene.log()
        other = Ports(**vars(scene.ports) | {"hooks": Hooks(scene.ports.hooks.sender, b"other" * 9, BASE)})
        deliver_due(other, "me")
        assert scene.sent == []
        (shown,) = scene.deliveries(webhook)
        assert "webhooks_key" in shown.answer_problem


class TestSendAgain:
    def test_an_ended_delivery_goes_out_at_once_under_its_id(self, scene):
        webhook = scene.hook()
        scene.log()
        scene.answer = Answer(413)
        scene.deliver()
        (ended,) = scene.deliveries()
        scene.answer = Answer(200)
        send_again(scene.ports, scene.workspace.id, webhook, ended.id)
        scene.deliver()
        assert [headers["webhook-id"] for *_, headers, _ in scene.sent] == [ended.id] * 2
        assert scene.sent[0][3] == scene.sent[1][3]
        assert scene.deliveries()[0].status == "delivered"

    def test_a_delivered_one_can_be_sent_again(self, scene):
        webhook = scene.hook()
        scene.log()
        scene.deliver()
        send_again(scene.ports, scene.workspace.id, webhook, scene.deliveries()[0].id)
        assert scene.deliver() == 1

    def test_one_that_is_being_sent_is_busy(self, scene):
        webhook = scene.hook()
        scene.log()
        with scene.store.write() as records:
            (claimed,) = records.deliveries.claim(
                "other", scene.clock.now(), scene.clock.now() + timedelta(hours=1), 1, 1
            )
        with pytest.raises(Refused) as refused:
            send_again(scene.ports, scene.workspace.id, webhook, claimed.id)
        assert refused.value.code == "busy"

    def test_another_webhooks_delivery_is_not_found(self, scene):
        one, other = scene.hook(), scene.hook()
        scene.log()
        for webhook, delivery in ((one, scene.deliveries(other)[0].id), (one, "msg_x")):
            with pytest.raises(Refused) as refused:
                send_again(scene.ports, scene.workspace.id, webhook, delivery)
            assert refused.value.code == "not_found"


class TestCrash:
    def test_what_was_in_the_air_is_sent_again_after_its_lease(self, scene):
        """At least once: the receiver had it, the crash lost the outcome; the id in the body is the same (I12, I14)."""

        class Killed(BaseException):
            pass

        def crash(url, headers, body):
            raise Killed

        scene.hook()
        scene.log()
        scene.answer = crash
        with pytest.raises(Killed):
            scene.deliver()
        scene.answer = Answer(500)
        assert scene.deliver() == 0
        scene.clock.advance(minutes=1)
        assert scene.deliver() == 1
        scene.answer = Answer(204)
        scene.run_until_quiet()
        assert scene.deliveries()[0].status == "delivered"
        assert [event["id"] for event in scene.bodies] == [wire.event_id(1)] * 3

    @pytest.mark.parametrize("step", ["deliver.before_commit", "deliver.claimed"])
    def test_a_stop_at_each_step_loses_nothing(self, scene, step):
        class Killed(BaseException):
            pass

        def reach(name):
            if name == step:
                raise Killed

        scene.hook()
        scene.log(3)
        with pytest.raises(Killed):
            deliver_due(Ports(**vars(scene.ports) | {"reach": reach}), "other")
        scene.clock.advance(minutes=1)
        scene.run_until_quiet()
        assert {event["id"] for event in scene.bodies} == {wire.event_id(n) for n in (1, 2, 3)}
        assert {d.status for d in scene.deliveries()} == {"delivered"}

    def test_an_outcome_that_comes_after_the_webhook_was_deleted_is_dropped(self, scene):
        webhook = scene.hook()
        scene.log()

        def answer(*_):
            delete_webhook(scene.ports, scene.workspace.id, webhook)
            return Answer(500)

        scene.answer = answer
        assert scene.deliver() == 1
        assert scene.webhook(webhook) is None

    def test_told_to_stop_it_records_what_is_in_the_air_and_begins_nothing(self, scene):
        scene.hook()
        scene.log(8, datasets=1)
        stop = threading.Event()

        def answer(*_):
            stop.set()
            return Answer(204)

        scene.answer = answer
        assert deliver_due(scene.ports, "me", stop) == 1
        assert Counter(d.status for d in scene.deliveries()) == {"delivered": 1, "pending": 7}


class TestSideBySide:
    def test_one_slow_receiver_does_not_hold_up_the_rest(self, store, tmp_path):
        scene = Scene(store, tmp_path)
        slow = scene.hook(url="https://slow.example/")
        scene.subscribe("sub_2")
        scene.hook("sub_2", url="https://fast.example/")
        scene.log(60)
        scene.log(60, to="sub_2")
        release, fast = threading.Event(), threading.Event()
        count = Counter()

        def answer(url, *_):
            if "slow" in url:
                assert release.wait(30)
                return Answer(204)
            count["fast"] += 1
            if count["fast"] == 60:
                fast.set()
            return Answer(204)

        scene.answer = answer
        working = threading.Thread(target=scene.deliver)
        working.start()
        assert fast.wait(20)
        assert sum("slow" in url for _, url, *_ in scene.sent) <= PER_WEBHOOK
        release.set()
        working.join()
        assert {d.status for d in scene.deliveries(slow)} == {"delivered"}

    def test_events_of_one_dataset_arrive_in_order_while_all_is_well(self, scene):
        scene.hook()
        scene.log(40, datasets=3)
        scene.answer = lambda *_: time.sleep(random.random() / 200) or Answer(204)
        scene.deliver()
        seen = defaultdict(list)
        for event in scene.bodies:
            seen[event["data"]["datasetId"]].append(event["id"])
        assert all(ids == sorted(ids) for ids in seen.values())
        assert sum(map(len, seen.values())) == 40

    def test_thousands_of_due_deliveries_all_arrive_side_by_side(self, store, tmp_path):
        """G12: 2,000 deliveries (400 on a database), every one delivered or ended by rule."""
        scene, each = Scene(store, tmp_path), 80 if isinstance(store, MemoryStore) else 16
        for number in range(25):
            scene.subscribe(f"sub_h{number}")
            scene.hook(f"sub_h{number}")
            scene.log(each, to=f"sub_h{number}")
        flying, most, turn = Counter(), Counter(), threading.Lock()

        def answer(url, headers, body):
            with turn:
                flying["all"] += 1
                most["all"] = max(most["all"], flying["all"])
            time.sleep(0.002)
            with turn:
                flying["all"] -= 1
            fails = body.startswith(b'{"id":"evt_00000000001') and scene.clock.now() == began
            return Answer(500 if fails else 204)

        scene.answer, began = answer, scene.clock.now()
        assert scene.deliver() == 25 * each
        scene.clock.advance(seconds=53)
        assert scene.deliver() == 0
        scene.clock.advance(seconds=14)
        assert scene.deliver() == 25 * (min(each, 19) - 9)
        assert {d.status for d in scene.deliveries()} == {"delivered"}
        assert len({(e["subscriptionId"], e["id"]) for e in scene.bodies}) == 25 * each
        assert 4 <= most["all"] <= SLOTS
