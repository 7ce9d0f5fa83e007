"""Notices by the operator's own command and address."""

import json
import shlex
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ploti_server.adapters.notifier import OwnNotifier
from ploti_server.domain.notices import Notify

TOLD = {"text": "größe ☂; $(touch x) `see`", "version": 3}


def command(code):
    return shlex.join([sys.executable, "-c", code])


def test_a_command_gets_the_notice_as_json_on_its_input(tmp_path):
    file = tmp_path / "got"
    kept = command(f"import sys; open({str(file)!r}, 'wb').write(sys.stdin.buffer.read())")
    assert OwnNotifier(Notify(command=kept)).send(TOLD) is None
    assert json.loads(file.read_text(encoding="utf-8")) == TOLD


@pytest.mark.parametrize(
    ("run", "trouble"),
    [
        (command("raise SystemExit(3)"), "notify_command ended with 3"),
        ("/no/such/program --x", "notify_command cannot be run: "),
        ("unclosed 'quote", "notify_command cannot be run: No closing quotation"),
        (command("import time; time.sleep(9)"), "notify_command did not end within 0.3 seconds"),
    ],
)
def test_a_command_that_fails_is_told(run, trouble):
    assert OwnNotifier(Notify(command=run), command_seconds=0.3).send(TOLD).startswith(trouble)


@pytest.fixture
def receiver():
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.server.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(self.server.status)
            self.end_headers()

        def log_message(self, *_):
            """Stay silent."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.got, server.status = [], 204
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("status", "trouble"), [(204, None), (500, "notify_url answered 500"), (302, "answered 302")])
def test_an_address_gets_the_notice_as_a_post(receiver, status, trouble):
    receiver.status = status
    told = OwnNotifier(Notify(url=f"http://127.0.0.1:{receiver.server_port}/hook")).send(TOLD)
    assert receiver.got == [TOLD]
    assert told is None if trouble is None else trouble in told


def test_an_address_that_is_not_there_is_told():
    assert OwnNotifier(Notify(url="http://127.0.0.1:9/")).send(TOLD) == "notify_url cannot be reached: ConnectError"
