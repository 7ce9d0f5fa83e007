"""The example receiver over loopback: down for a virtual day, killed, and yet every event applied once (G12, F067)."""

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from ploti.contract import events as wire
from ploti_server.adapters.clock import SystemClock
from ploti_server.adapters.sender import HttpSender
from ploti_server.adapters.store import open_store
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.events import NewEvent
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.webhooks import WebhookRequest
from ploti_server.pipeline.deliver import deliver_due
from ploti_server.pipeline.webhooks import create_webhook
from ploti_server.pipeline.webhooks import test_webhook as ping
from ploti_server.pipeline.workspaces import create_key, create_workspace
from ploti_server.ports import Hooks, Ports
from ploti_server.testing import FakeAgent, FakePlans, FixedClock, MemoryFiles

EXAMPLE = Path(__file__).parents[2] / "examples" / "receive_webhook.py"
DATASETS = 3


class AtVirtualTime(Webhook):
    """The library's own verification, by the clock of the test instead of the machine's."""

    def __init__(self, secret, clock):
        super().__init__(secret)
        self._clock = clock

    def _Webhook__verify_timestamp(self, header):
        sent = datetime.fromtimestamp(int(header), UTC)
        if abs(self._clock.now() - sent) > timedelta(minutes=5):
            raise WebhookVerificationError("too old or too new")
        return sent


def example():
    spec = importlib.util.spec_from_file_location("receive_webhook", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Sending:
    """A publisher with one subscription and a webhook to a loopback port."""

    def __init__(self, folder, clock, port):
        self.store, self.clock = open_store(f"sqlite:///{folder}/store.sqlite"), clock
        self.ports = Ports(
            store=self.store,
            files=MemoryFiles(),
            engine=None,
            open_state=None,
            agent=FakeAgent(),
            plans=FakePlans(),
            clock=clock,
            home=folder,
            hooks=Hooks(HttpSender(allow_loopback=True), b"k" * 64, "https://feeds.example.org", True),
        )
        workspace = create_workspace(self.ports, "w", ["fl-counties"], None)
        create_key(self.ports, "w", "ann", "admin")
        now = clock.now()
        with self.store.write() as records:
            for number in range(DATASETS):
                records.catalog.put_dataset(Dataset(f"ds_{number}", "X", SourceSpec("file", "x")))
            records.subscriptions.put(Subscription("sub_1", workspace.id, "N", ("fl",), (), (), 1, now, now))
        url = f"http://127.0.0.1:{port}/hooks"
        self.hook = create_webhook(self.ports, workspace.id, "ann", WebhookRequest(url, "sub_1", None))
        self.versions = dict.fromkeys(range(DATASETS), 0)

    def log(self):
        """Log a new version of each dataset, each with its schema change first."""
        made = []
        for number in self.versions:
            self.versions[number] += 1
            data = {"datasetId": f"ds_{number}", "version": self.versions[number]}
            made += [NewEvent(kind, f"ds_{number}", data) for kind in (wire.SCHEMA_CHANGED, wire.UPDATED)]
        with self.store.write() as records:
            records.events.append("sub_1", made, self.clock.now())

    def deliver(self):
        return deliver_due(self.ports, "me")

    def next_due(self):
        with self.store.read() as records:
            due = [d.due_at for d in records.deliveries.of_webhook(self.hook.webhook.id, 10_000) if d.due_at]
        return min(due, default=None)

    def log_entries(self):
        with self.store.read() as records:
            return records.events.after("sub_1", 0, 10_000)


@contextmanager
def receiving(module, inbox, webhook, port):
    server = ThreadingHTTPServer(("127.0.0.1", port), module.handler(inbox, webhook))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def free_port():
    with ThreadingHTTPServer(("127.0.0.1", 0), None) as server:
        return server.server_port


def applied(path):
    with sqlite3.connect(path) as database:
        return database.execute("SELECT subscription, id, applied FROM inbox ORDER BY id").fetchall()


def test_a_receiver_that_was_down_for_a_day_ends_with_every_event_applied_once(tmp_path):
    module, clock, port = example(), FixedClock(), free_port()
    sending = Sending(tmp_path, clock, port)
    inbox = module.Inbox(str(tmp_path / "inbox.db"))
    webhook = AtVirtualTime(sending.hook.text, clock)
    with receiving(module, inbox, webhook, port):
        sending.log()
        sending.deliver()
        assert inbox.apply_waiting() == 2 * DATASETS
    back = clock.now() + timedelta(days=1)
    while clock.now() < back:
        sending.log()
        sending.deliver()
        clock.advance(hours=2)
    assert len(applied(tmp_path / "inbox.db")) == 2 * DATASETS
    with receiving(module, inbox, webhook, port):
        while (due := sending.next_due()) is not None:
            clock.set(max(due, clock.now()) + timedelta(minutes=1))
            sending.deliver()
            inbox.apply_waiting()
    logged = sending.log_entries()
    assert len(logged) == 2 * DATASETS * 13
    assert applied(tmp_path / "inbox.db") == [("sub_1", wire.event_id(e.number), 1) for e in logged]
    with sqlite3.connect(tmp_path / "inbox.db") as database:
        held = dict(database.execute("SELECT dataset, version FROM held").fetchall())
    assert held == {f"ds_{number}": version for number, version in sending.versions.items()}
    with sending.store.read() as records:
        found = records.deliveries.of_webhook(sending.hook.webhook.id, 10_000)
        assert {d.status for d in found} == {"delivered"}
        assert records.webhooks.get(sending.hook.webhook.id).failing_since is None
    sending.store.close()


def test_a_late_retry_does_not_undo_a_later_event(tmp_path):
    """F067: 43 fails, 44 arrives, 43 is retried."""
    module, clock, port = example(), FixedClock(), free_port()
    sending = Sending(tmp_path, clock, port)
    inbox = module.Inbox(str(tmp_path / "inbox.db"))
    sending.log()
    sending.deliver()
    sending.log()
    with receiving(module, inbox, AtVirtualTime(sending.hook.text, clock), port):
        while (due := sending.next_due()) is not None:
            sending.deliver()
            inbox.apply_waiting()
            clock.set(max(due, clock.now()) + timedelta(minutes=1))
    with sqlite3.connect(tmp_path / "inbox.db") as database:
        assert {version for (version,) in database.execute("SELECT version FROM held")} == {2}
    sending.store.close()


@pytest.mark.parametrize("times", [1, 3])
def test_a_repeat_is_dropped_by_subscription_and_id(tmp_path, times):
    inbox = example().Inbox(str(tmp_path / "inbox.db"))
    for _ in range(times):
        for subscription in ("sub_1", "sub_2"):
            data = {"datasetId": "ds_0", "version": 1}
            inbox.put({"id": wire.event_id(1), "type": wire.UPDATED, "subscriptionId": subscription, "data": data})
        inbox.apply_waiting()
    assert applied(tmp_path / "inbox.db") == [("sub_1", wire.event_id(1), 1), ("sub_2", wire.event_id(1), 1)]


@contextmanager
def example_running(folder, secret, port):
    command = [sys.executable, str(EXAMPLE), str(folder / "inbox.db"), str(port)]
    environment = {**os.environ, "PLOTI_WEBHOOK_SECRET": secret}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert process.stdout.readline() == f"receiving on port {port}\n"
            yield process
        finally:
            process.kill()


def test_the_example_as_it_stands_accepts_what_is_signed_and_nothing_else(tmp_path):
    port = free_port()
    sending = Sending(tmp_path, SystemClock(), port)
    with example_running(tmp_path, sending.hook.text, port):
        workspace = sending.hook.webhook.workspace_id
        assert ping(sending.ports, workspace, sending.hook.webhook.id).status == 204
        sending.log()
        assert sending.deliver() == 2 * DATASETS
        sender, url = sending.ports.hooks.sender, sending.hook.webhook.url
        body = json.dumps(
            {"id": wire.event_id(99), "type": wire.UPDATED, "subscriptionId": "sub_1", "data": {}}
        ).encode()
        forged = Webhook("whsec_" + "A" * 32).sign("msg_1", datetime.now(UTC), body.decode())
        now = str(int(datetime.now(UTC).timestamp()))
        for signature in (forged, "nonsense", ""):
            headers = {"webhook-id": "msg_1", "webhook-timestamp": now, "webhook-signature": signature}
            assert sender.send(url, headers, body).status == 401
        assert sender.send(url, {}, b"x" * 1_000_001).status == 413
    with example_running(tmp_path, sending.hook.text, port):
        pass
    assert [row[1] for row in applied(tmp_path / "inbox.db")] == [*map(wire.event_id, range(1, 2 * DATASETS + 1))]
    assert {row[2] for row in applied(tmp_path / "inbox.db")} == {1}
    sending.store.close()
