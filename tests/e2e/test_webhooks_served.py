"""Webhooks through the commands alone: `ploti-server serve` as a process, a real check, the example receiver."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from ploti.cli.command import run as ploti
from ploti_server import worker
from ploti_server.app import WEBHOOKS_KEY_FILE, build_ports
from ploti_server.cli import main
from ploti_server.domain.deliveries import Answer
from ploti_server.domain.settings import Settings
from ploti_server.domain.subscriptions import Selection
from ploti_server.domain.webhooks import WebhookRequest
from ploti_server.pipeline.subscriptions import create_subscription
from ploti_server.pipeline.webhooks import create_webhook
from ploti_server.ports import Hooks, Ports
from ploti_server.testing import FakeSender

EXAMPLE = Path(__file__).parents[2] / "examples" / "receive_webhook.py"
CATALOG = """
topics: [{id: permits, name: Permits}]
datasets:
  - {id: ds_x, title: X, place: fl-county-orange, topic: permits, key: [id], source: {kind: file, url: x.csv}}
"""
SERVER = [sys.executable, "-c", "import sys; from ploti_server.cli import main; sys.exit(main())"]
PATIENCE = 60


@pytest.fixture
def publisher(tmp_path, capsys):
    """Run operator's commands on a home folder with one dataset; gives a function that answers what was printed."""
    home = tmp_path / "home"

    def command(*arguments):
        capsys.readouterr()
        assert main([*arguments, "--home", str(home), "--json"]) == 0
        return json.loads(capsys.readouterr().out or "null")

    (tmp_path / "catalog.yaml").write_text(CATALOG)
    (tmp_path / "x.csv").write_text("id,name\n1,a\n2,b\n")
    command("catalog", "apply", str(tmp_path / "catalog.yaml"))
    command("workspace", "create", "w", "--coverage", "fl-counties")
    return command


@contextmanager
def serving(home):
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "PLOTI_SERVER_WEBHOOKS_ALLOW_LOOPBACK": "true"}
    process = subprocess.Popen(
        [*SERVER, "serve", "--port", "0", "--home", str(home)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield next(line.split("running on ")[1].split()[0] for line in process.stderr if "running on http" in line)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@contextmanager
def receiving(folder, secret, port):
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLE), str(folder / "inbox.db"), str(port)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PLOTI_WEBHOOK_SECRET": secret},
        text=True,
    )
    try:
        assert process.stdout.readline().startswith("receiving")
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(look):
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("nothing came in time")


def test_a_check_reaches_a_receiver_through_the_commands_alone(publisher, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PLOTI_API_KEY", publisher("key", "create", "--workspace", "w", "--member", "me")["key"])

    def told(*arguments):
        capsys.readouterr()
        assert ploti([*arguments, "--json"]) == 0, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    with serving(tmp_path / "home") as address:
        monkeypatch.setenv("PLOTI_API_URL", address)
        subscription = told("feeds", "subscriptions", "create", "S", "--places", "fl-county-orange")["id"]
        port = free_port()
        url = f"http://127.0.0.1:{port}/hooks"
        made = told("webhooks", "create", url, "--subscription-id", subscription)
        assert ploti(["webhooks", "test", made["id"]]) == 1
        assert "connection refused" in capsys.readouterr().out
        with receiving(tmp_path, made["secret"], port):
            assert told("webhooks", "test", made["id"]) == {"delivered": True, "status": 204, "problem": None}
            publisher("check", "ds_x", "--state", str(tmp_path / "x.csv"))
            listing = ("webhooks", "deliveries", made["id"], "--status", "delivered")
            delivered = wait_for(lambda: told(*listing)["deliveries"])
        logged = told("feeds", "subscriptions", "events", subscription)["events"]
    assert [one["eventId"] for one in delivered] == [logged[-1]["id"]]
    assert logged[-1]["type"] == "feed.dataset.resync_required"
    with sqlite3.connect(tmp_path / "inbox.db") as database:
        ((kept,),) = database.execute("SELECT event FROM inbox").fetchall()
    assert json.loads(kept) == logged[-1], "links and all, whatever port it is served on"
    assert logged[-1]["data"]["version"] == 1


class TestWorker:
    @pytest.fixture
    def sending(self, publisher, tmp_path):
        """The home's publisher with a fake sender, a webhook and one delivery that is due."""
        home = tmp_path / "home"
        publisher("key", "create", "--workspace", "w", "--member", "me")
        opened = build_ports(Settings.of(home))
        sender = FakeSender()
        ports = Ports(**vars(opened) | {"hooks": Hooks(sender, b"k" * 32, "http://x")})
        self.queue(ports)
        yield ports, sender
        opened.store.close()

    def queue(self, ports):

        with ports.store.read() as records:
            workspace = records.workspaces.named("w")
        subscription = create_subscription(ports, workspace, Selection("S", ("fl-county-orange",)))
        create_webhook(ports, workspace.id, "me", WebhookRequest("https://acme.example/", subscription.id, None))

    def run(self, ports, until):
        stop = threading.Event()
        working = threading.Thread(target=worker.run, args=(ports, stop))
        working.start()
        try:
            wait_for(until)
        finally:
            stop.set()
            working.join(PATIENCE)
        assert not working.is_alive()

    def test_delivers_beside_the_builds(self, sending, publisher, tmp_path):
        ports, sender = sending
        publisher("check", "ds_x", "--state", str(tmp_path / "x.csv"))
        self.run(ports, lambda: sender.sent)
        assert json.loads(sender.sent[0][2])["type"] == "feed.dataset.resync_required"

    def test_goes_on_after_sending_broke_down(self, sending, publisher, tmp_path):
        ports, sender = sending
        publisher("check", "ds_x", "--state", str(tmp_path / "x.csv"))
        calls = []

        def reach(name):
            if name == "deliver.before_commit":
                calls.append(name)
                if len(calls) == 1:
                    raise OSError("the disk is away for a moment")

        self.run(Ports(**vars(ports) | {"reach": reach}), lambda: sender.sent)
        assert len(sender.sent) == 1

    def test_work_once_delivers_what_is_due(self, sending, publisher, tmp_path):
        ports, _ = sending
        publisher("check", "ds_x", "--state", str(tmp_path / "x.csv"))
        assert main(["work", "--once", "--home", str(tmp_path / "home")]) == 0
        with ports.store.read() as records:
            (hook,) = records.webhooks.of_workspace(records.workspaces.named("w").id)
            (tried,) = records.deliveries.of_webhook(hook.id, 10)
        assert tried.attempts == 1
        assert "webhooks_key" in tried.answer_problem

    def test_a_process_without_hooks_queues_and_sends_nothing(self, sending, publisher, tmp_path):
        ports, sender = sending
        publisher("check", "ds_x", "--state", str(tmp_path / "x.csv"))
        bare = Ports(**vars(ports) | {"hooks": None})
        seen = []

        def reach(name):
            seen.append(name)

        stop = threading.Event()
        stop.set()
        worker.run(Ports(**vars(bare) | {"reach": reach}), stop)
        assert sender.sent == []
        with ports.store.read() as records:
            assert records.deliveries.is_any_due(ports.clock.now())


class TestKey:
    def test_is_made_once_for_its_owners_eyes_and_found_again(self, tmp_path):
        keys = []
        for _ in range(2):
            ports = build_ports(Settings.of(tmp_path / "home"))
            keys.append(ports.hooks.key)
            ports.store.close()
        assert keys[0] == keys[1]
        assert len(keys[0]) == 64
        assert (tmp_path / "home" / WEBHOOKS_KEY_FILE).stat().st_mode & 0o777 == 0o600
        assert [p.name for p in (tmp_path / "home").glob("webhooks.key*")] == [WEBHOOKS_KEY_FILE]

    def test_processes_that_open_a_home_at_once_agree(self, tmp_path):
        home, keys = tmp_path / "home", []

        def open_home():
            ports = build_ports(Settings.of(home))
            keys.append(ports.hooks.key)
            ports.store.close()

        threads = [threading.Thread(target=open_home) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(keys) == 8
        assert len(set(keys)) == 1

    def test_of_the_settings_wins_and_is_not_shown(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("PLOTI_SERVER_WEBHOOKS_KEY", "k" * 40)
        ports = build_ports(Settings.of(tmp_path / "home", os.environ))
        assert ports.hooks.key == b"k" * 40
        ports.store.close()
        assert main(["settings", "--home", str(tmp_path / "home")]) == 0
        assert "kkk" not in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("settings", "base"),
        [
            ({}, "http://127.0.0.1:8731"),
            ({"port": 9000, "host": "::1"}, "http://[::1]:9000"),
            ({"public_url": "https://feeds.example.org/"}, "https://feeds.example.org"),
        ],
    )
    def test_links_carry_the_public_address(self, tmp_path, settings, base):
        ports = build_ports(Settings.of(tmp_path / "home", {}, settings))
        assert ports.hooks.public_url == base
        ports.store.close()


def test_loopback_is_closed_unless_the_setting_opens_it(tmp_path):
    for opened in (False, True):
        ports = build_ports(Settings.of(tmp_path / "home", {}, {"webhooks_allow_loopback": opened}))
        told = ports.hooks.sender.send("http://127.0.0.1:9/", {}, b"{}")
        assert told == (
            Answer(None, "the connection failed: connection refused")
            if opened
            else Answer(None, "not sent: the address has to begin with https://")
        )
        ports.store.close()
