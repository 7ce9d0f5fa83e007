"""Publishers, senders, owners and leaving members all at once, on each store: nothing is lost, nothing deadlocks."""

import json
import random
import threading
from collections import Counter

from tests.pipeline.test_deliver import Scene

from ploti.contract import events as wire
from ploti_server.domain.access import Refused
from ploti_server.domain.deliveries import Answer
from ploti_server.domain.events import NewEvent
from ploti_server.domain.webhooks import WEBHOOKS_MOST, WebhookRequest
from ploti_server.pipeline.deliver import deliver_due
from ploti_server.pipeline.webhooks import create_webhook, delete_webhook, rotate_secret
from ploti_server.pipeline.workspaces import add_member, remove_member

SUBSCRIPTIONS = [f"sub_{n}" for n in range(1, 4)]
ROUNDS = 15
LEFT_MOST = WEBHOOKS_MOST // 2
"""Webhooks of members who left that stay, turned off; they count to what a workspace may have."""


class Crowd:
    """Threads that work until the publishers are done; what any of them meets fails the test."""

    def __init__(self, scene):
        self.scene, self.failures, self.done = scene, [], threading.Event()

    def thread(self, work, *arguments):
        def run():
            try:
                work(*arguments)
            except Exception as error:  # noqa: BLE001  # whatever a thread meets fails the test
                self.failures.append(error)

        return threading.Thread(target=run)

    def publish(self, number):
        for turn in range(ROUNDS):
            with self.scene.store.write() as records:
                for subscription in SUBSCRIPTIONS:
                    event = NewEvent(wire.UPDATED, f"ds_{number}", {"datasetId": f"ds_{number}", "turn": turn})
                    records.events.append(subscription, [event], self.scene.clock.now())

    def send(self, owner):
        while not self.done.is_set():
            deliver_due(self.scene.ports, owner)

    def come_and_go(self):
        ports, workspace, chance, left = self.scene.ports, self.scene.workspace.id, random.Random(7), 0
        while not self.done.is_set():
            add_member(ports, "w", "bob", "member")
            try:
                made = create_webhook(
                    ports, workspace, "bob", WebhookRequest("https://b.example/", chance.choice(SUBSCRIPTIONS), None)
                )
            except Refused as refused:
                if refused.code != "busy":
                    raise
                continue
            rotate_secret(ports, workspace, made.webhook.id)
            if left == LEFT_MOST or chance.random() < 0.5:
                delete_webhook(ports, workspace, made.webhook.id)
            else:
                remove_member(ports, "w", "bob")
                left += 1


def test_every_event_reaches_a_webhook_that_stays_whatever_the_others_do(store, tmp_path):
    scene = Scene(store, tmp_path)
    for name in SUBSCRIPTIONS[1:]:
        scene.subscribe(name)
    stays = [scene.hook(name, url="https://stays.example/") for name in SUBSCRIPTIONS]
    scene.answer = lambda *_: Answer(204)
    crowd = Crowd(scene)
    publishers = [crowd.thread(crowd.publish, number) for number in range(2)]
    others = [crowd.thread(crowd.send, "one"), crowd.thread(crowd.send, "two"), crowd.thread(crowd.come_and_go)]
    for thread in (*publishers, *others):
        thread.start()
    for thread in publishers:
        thread.join()
    crowd.done.set()
    for thread in others:
        thread.join()
    assert crowd.failures == []
    scene.deliver()
    assert {d.status for d in scene.deliveries(*stays)} == {"delivered"}
    assert {d.status for d in scene.deliveries()} <= {"delivered", "ended"}
    arrived = Counter(
        (event["subscriptionId"], event["id"])
        for _, url, _, body in scene.sent
        if "stays" in url and (event := json.loads(body))
    )
    wanted = {(name, wire.event_id(n)) for name in SUBSCRIPTIONS for n in range(1, 2 * ROUNDS + 1)}
    assert arrived == dict.fromkeys(wanted, 1)
