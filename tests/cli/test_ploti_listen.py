"""`ploti listen`, `events --follow`, `sync --follow`, `doctor` and `completion`."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import duckdb
import pytest
from standardwebhooks import Webhook as Receiving
from standardwebhooks.webhooks import WebhookVerificationError

import ploti
from ploti._http import Http
from ploti.cli.command import run
from ploti.cli.doctor import _clock
from ploti.testing.feed import SUBSCRIPTION, Feed, record_id

A = "ds_orange_permits"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
COLUMNS = {"number": "string"}


@pytest.fixture
def feed(tmp_path, monkeypatch):
    feed = Feed()
    feed.add(A, COLUMNS, {record_id(1): {"number": "1"}})
    monkeypatch.chdir(tmp_path)
    for name, value in {"XDG_CONFIG_HOME": tmp_path, "APPDATA": tmp_path, "PLOTI_API_KEY": feed.api.api_key}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("PLOTI_WEBHOOK_SECRET", raising=False)
    with feed.api.serve() as url:
        monkeypatch.setenv("PLOTI_API_URL", url)
        yield feed


def command(line):
    return run(shlex.split(line))


@contextmanager
def receiver(answers=()):
    """A receiver that verifies as the docs and the Standard Webhooks library do, and notes the events.

    `answers` are statuses to give instead.
    """
    got, left = [], list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            try:
                Receiving(SECRET).verify(body, dict(self.headers))
                got.append((ploti.webhooks.verify(body, self.headers, SECRET), self.headers["webhook-id"]))
                status = left.pop(0) if left else 204
            except (ploti.BadSignature, WebhookVerificationError):
                status = 401
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hooks", got
        server.shutdown()


def test_events_arrive_signed_in_order_and_each_with_an_id_of_its_own(feed, capsys):
    with receiver() as (url, got):
        line = f"listen {SUBSCRIPTION} --forward-to {url} --once --secret {SECRET} --cursor evt_000000000000"
        assert command(line) == 0
    assert [event for event, _ in got] == feed.api.state.subscriptions[SUBSCRIPTION].events
    assert len({id_ for _, id_ in got}) == 2
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == f"evt_000000000002  resync_required  {A} 1  204"
    assert SECRET not in shown.out + shown.err


def test_what_is_not_accepted_is_told_and_the_next_goes_on(feed, capsys):
    with receiver([500]) as (url, got):
        line = f"listen {SUBSCRIPTION} --forward-to {url} --once --cursor evt_000000000000 --secret {SECRET} --json"
        assert command(line) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["status"], first["accepted"], second["accepted"], len(got)) == (500, False, True, 2)
    assert command(f"listen {SUBSCRIPTION} --forward-to http://127.0.0.1:9 --once --cursor evt_000000000001") == 1
    shown = capsys.readouterr()
    assert "not accepted: " in shown.out
    assert "Signing secret for this run: whsec_" in shown.err


def test_an_event_is_sent_again_until_it_is_accepted_and_the_cursor_to_go_on_with_is_told(feed, capsys):
    with receiver([500, 302, 200, 500]) as (url, got):
        line = f"listen {SUBSCRIPTION} --forward-to {url} --once --secret {SECRET}"
        assert command(f"{line} --cursor evt_000000000000 --events added --retry") == 0
        assert [(event["id"], id_) for event, id_ in got] == [("evt_000000000001", got[0][1])] * 3
        shown = capsys.readouterr()
        assert [line.split("  ")[-1] for line in shown.out.splitlines()] == [
            "not accepted: 500",
            "not accepted: 302",
            "200",
        ]
        assert shown.err.splitlines()[-1] == "Go on with --cursor evt_000000000001"
        feed.api.hold(A)
        assert command(f"{line} --cursor evt_000000000001") == 1
        assert capsys.readouterr().err.splitlines()[-1] == "Go on with --cursor evt_000000000001"
        assert command(f"{line} --cursor evt_000000000001") == 0
        assert capsys.readouterr().err.splitlines()[-1] == "Go on with --cursor evt_000000000003"


def test_only_new_events_and_only_the_types_named_unless_more_is_asked(feed, monkeypatch, capsys):
    monkeypatch.setenv("PLOTI_WEBHOOK_SECRET", SECRET)
    with receiver() as (url, got):
        assert command(f"listen {SUBSCRIPTION} --forward-to {url} --once") == 0
        feed.api.prune_events(SUBSCRIPTION, 1)
        assert command(f"listen {SUBSCRIPTION} --forward-to {url} --once") == 0
        assert got == []
        feed.api.prune_events(SUBSCRIPTION, 0)
        options = "--once --cursor evt_000000000000 --events added"
        assert command(f"listen {SUBSCRIPTION} --forward-to {url} {options}") == 0
    assert [event["type"] for event, _ in got] == ["feed.dataset.added"]
    assert command(f"listen {SUBSCRIPTION} --forward-to localhost:8080") == 1


@contextmanager
def running(line):
    """A command that goes on until it is stopped by ctrl-C; its lines as they come."""
    command_line = [sys.executable, "-m", "ploti.cli", *shlex.split(line)]
    with subprocess.Popen(command_line, stdout=-1, stderr=subprocess.DEVNULL, text=True) as process:
        yield process.stdout
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


@pytest.mark.parametrize(
    "options",
    [
        *(
            f"--forward-to {bad}"
            for bad in ("localhost:80", "http://[::1", "http://a..b/x", "http://h:99999", "ftp://h")
        ),
        "--forward-to 'http://ex ample'",
        "--forward-to http://h --secret 'no secret!'",
    ],
)
def test_an_address_or_secret_that_is_none_is_told_before_anything_is_sent(feed, capsys, options):
    assert command(f"listen {SUBSCRIPTION} {options}") == 1
    assert capsys.readouterr().err.startswith("Error: Give ")
    assert feed.api.requests == []


def test_a_proxy_that_is_none_is_told_before_anything_is_sent(feed, monkeypatch, capsys):
    monkeypatch.setenv("HTTPS_PROXY", "foo://127.0.0.1:1")
    assert command(f"listen {SUBSCRIPTION} --forward-to https://hooks.example --secret {SECRET}") == 1
    assert capsys.readouterr().err.startswith("Error: Give the proxy's address")
    assert feed.api.requests == []


def test_events_are_followed_line_by_line(feed):
    with running(f"feeds subscriptions events {SUBSCRIPTION} --follow --json") as lines:
        assert [json.loads(next(lines))["id"] for _ in range(2)] == ["evt_000000000001", "evt_000000000002"]
        feed.api.hold(A)
        assert json.loads(next(lines))["type"] == "feed.dataset.delayed"


def test_a_database_follows_until_it_is_stopped(feed, tmp_path):
    with running(f"sync {SUBSCRIPTION} --to duckdb:///x.duckdb --follow --json") as lines:
        first = json.loads(next(lines))
        feed.update(A, put={record_id(2): {"number": "2"}})
        second = json.loads(next(lines))
    assert [report["datasets"][0]["version"] for report in (first, second)] == [1, 2]
    with duckdb.connect(tmp_path / "x.duckdb", read_only=True) as db:
        assert db.execute(f"SELECT number FROM {A} ORDER BY 1").fetchall() == [("1",), ("2",)]


def test_doctor_finds_all_well_and_never_shows_the_key(feed, capsys):
    assert command("doctor") == 0
    out = capsys.readouterr().out
    for told in ("ploti ", "extra sync", "duckdb", "PLOTI_API_KEY", "answers and takes the key", "agrees"):
        assert told in out
    assert feed.api.api_key not in out


def spoil_login(feed, monkeypatch):
    monkeypatch.delenv("PLOTI_API_KEY")
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "ploti" / "login.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"url": os.environ["PLOTI_API_URL"], "key": feed.api.api_key}))
    path.chmod(0o644)


ILLS = [
    (lambda feed, monkeypatch: feed.api.revoke_key(feed.api.api_key), "API", "refuses the key"),
    (lambda feed, monkeypatch: monkeypatch.delenv("PLOTI_API_KEY"), "key", "ploti login"),
    (lambda feed, monkeypatch: monkeypatch.setenv("PLOTI_API_URL", "http://127.0.0.1:9"), "API", "127.0.0.1:9"),
    (lambda feed, monkeypatch: monkeypatch.setenv("PLOTI_API_URL", "ftp://x"), "settings", "http"),
    (lambda feed, monkeypatch: feed.api.fail_next("subscriptions", 500), "API", "Refused"),
    (lambda feed, monkeypatch: feed.api.answer_next("subscriptions", {"up": True}), "API", "no answer of the API"),
    (lambda feed, monkeypatch: feed.api.fail_next("subscriptions", 403, "not_allowed"), "API", "this key read feeds"),
    (lambda feed, monkeypatch: monkeypatch.setattr("tempfile.tempdir", "/proc"), "disk", "TMPDIR"),
    (spoil_login, "key", "chmod 600"),
    (
        lambda *made: (spoil_login(*made), made[1].setenv("PLOTI_API_URL", "http://127.0.0.1:9")),
        "key",
        "stored one is for",
    ),
]


@pytest.mark.parametrize(("spoil", "check", "told"), ILLS)
def test_doctor_names_what_is_wrong(feed, monkeypatch, capsys, spoil, check, told):
    spoil(feed, monkeypatch)
    assert command("doctor --json") == 1
    wrong = [each for each in json.loads(capsys.readouterr().out) if each["ok"] is False]
    assert (wrong[0]["check"], told in wrong[0]["says"]) == (check, True)


@pytest.mark.parametrize(
    ("skew", "ok", "told"),
    [
        (None, None, "not known"),
        (59.0, True, "agrees"),
        (-3600.0, False, "3,600 seconds ahead of"),
        (61, False, "behind"),
    ],
)
def test_doctor_looks_at_the_clock(skew, ok, told):
    found = _clock(skew)
    assert (found["ok"], told in found["says"]) == (ok, True)


def test_the_clock_is_told_from_any_answer(feed):
    late = Http(os.environ["PLOTI_API_URL"], feed.api.api_key, clock=lambda: datetime.now(UTC) - timedelta(hours=1))
    late.get("/v1/topics")
    late.close()
    assert late.skew == pytest.approx(3600, abs=5)


def test_a_shell_completes_commands_and_options(capsys):
    assert command("completion bash") == 0
    script = capsys.readouterr().out
    for word in ("subscriptions", "--forward-to", "rotate", "--on-major", "pause"):
        assert word in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
@pytest.mark.parametrize(
    "line", ["fpath=($PWD $fpath); autoload -Uz _ploti; _ploti", "source ./_ploti; ${_ploti_is[1]}"]
)
def test_zsh_completes_by_the_script_where_it_looks_and_where_it_is_sourced(tmp_path, capsys, line):
    """Its own functions need a terminal: here they tell that they were called."""
    assert command("completion zsh") == 0
    (tmp_path / "_ploti").write_text(capsys.readouterr().out)
    told = "_arguments() { print completing; }; compdef() { _ploti_is=($1); [[ $2 == ploti ]] }; "
    done = subprocess.run(["zsh", "-fc", told + line], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "completing"


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes_commands_without_the_files_of_the_folder(tmp_path, capsys):
    assert command("completion fish") == 0
    (tmp_path / "ploti.fish").write_text(capsys.readouterr().out)
    for line, shown in (("ploti feeds ", ["attachments", "datasets", "subscriptions"]), ("ploti changes --to ", [])):
        asked = ["fish", "--no-config", "-c", f"source ploti.fish; complete -C '{line}'"]
        done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert [each.split("\t")[0] for each in done.stdout.splitlines()] == shown
