"""`ploti-server serve` as a process: it answers, and ends cleanly when told to (D13)."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from ploti_server.cli import main


def _get(url, key=None):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def _served_at(process):
    """Wait for the line that names the address."""
    for line in process.stderr:
        if "running on http" in line:
            return line.split("running on ")[1].split()[0]
    raise AssertionError("the server ended before it served")


def test_served_home_answers_with_its_key_and_stops_on_the_signal(tmp_path, capsys):
    home = ["--home", str(tmp_path / "home"), "--json"]
    main(["workspace", "create", "acme", "--coverage", "fl-counties", *home])
    capsys.readouterr()
    main(["key", "create", "--workspace", "acme", "--member", "ann", *home])
    key = json.loads(capsys.readouterr().out)["key"]
    command = [sys.executable, "-c", "import sys; from ploti_server.cli import main; sys.exit(main())"]
    process = subprocess.Popen(
        [*command, "serve", "--port", "0", *home],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        address = _served_at(process)
        assert _get(f"{address}/v1/feeds/datasets", key) == {"datasets": [], "nextCursor": None}
        with pytest.raises(urllib.error.HTTPError) as refused:
            _get(f"{address}/v1/feeds/datasets")
        with refused.value as answer:
            assert (answer.code, json.load(answer)["error"]["code"]) == (401, "unauthenticated")
        process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        assert process.wait(timeout=30) in (0, -signal.SIGTERM)
        assert time.monotonic() - started < 20
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture
def serving(tmp_path, capsys):
    """A served home folder with a workspace: the process, its host and port, and a key."""
    home = ["--home", str(tmp_path / "home"), "--json"]
    main(["workspace", "create", "acme", "--coverage", "fl-counties", *home])
    capsys.readouterr()
    main(["key", "create", "--workspace", "acme", "--member", "ann", *home])
    key = json.loads(capsys.readouterr().out)["key"]
    command = [sys.executable, "-c", "import sys; from ploti_server.cli import main; sys.exit(main())"]
    process = subprocess.Popen(
        [*command, "serve", "--no-work", "--port", "0", *home],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        host, port = _served_at(process).removeprefix("http://").split(":")
        yield process, (host, int(port)), key
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def _head(method, path, key, length):
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


def _answer(connection):
    content = b""
    while block := connection.recv(65_536):
        content += block
    head, _, body = content.partition(b"\r\n\r\n")
    return head.decode(), body


def _subscribe(address, key):
    body = json.dumps({"places": ["fl"]}).encode()
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(_head("POST", "/v1/feeds/subscriptions", key, len(body)) + body)
        return json.loads(_answer(connection)[1])["id"]


def test_request_that_is_being_served_is_answered_before_the_server_stops_and_one_that_waits_ends(serving):
    process, address, key = serving
    body = json.dumps({"places": ["fl"]}).encode()
    events = f"/v1/feeds/subscriptions/{_subscribe(address, key)}/events"
    with (
        socket.create_connection(address, timeout=20) as connection,
        socket.create_connection(address, timeout=20) as waiting,
    ):
        waiting.sendall(_head("GET", f"{events}?wait=30", key, 0))
        connection.sendall(_head("POST", "/v1/feeds/subscriptions/preview", key, len(body)) + body[:5])
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
        connection.sendall(body[5:])
        head, answer = _answer(connection)
        assert json.loads(_answer(waiting)[1]) == {"events": [], "nextCursor": "evt_000000000000"}
    assert head.startswith("HTTP/1.1 200")
    assert json.loads(answer)["total"] == 0
    assert process.wait(timeout=20) in (0, -signal.SIGTERM)


def _long_head(address, start):
    """Send a head without an end, piece by piece, until the server answers."""
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(start)
        for _ in range(200):
            if select.select([connection], [], [], 0.01)[0]:
                return connection.recv(65_536)
            connection.sendall(b"x" * 10_000)
    raise AssertionError("the server took two megabytes of head")


def test_log_is_lines_of_json_without_keys_and_a_head_without_end_is_refused(serving):
    process, address, key = serving
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(_head("GET", "/v1/topics?nonsense=secret", key, 0))
        head, _ = _answer(connection)
    assert head.startswith("HTTP/1.1 400")
    for start in (b"GET /v1/topics HTTP/1.1\r\nX-Long: ", b"GET /v1/topics?"):
        refused = _long_head(address, start)
        assert refused.startswith(b"HTTP/1.1 400")
        assert json.loads(refused.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_input"
    process.send_signal(signal.SIGTERM)
    lines = process.stderr.read().splitlines()
    process.wait(timeout=20)
    (request,) = [line for line in map(json.loads, lines) if line["event"] == "request"]
    assert (request["path"], request["status"], request["member"]) == ("/v1/topics", 400, "ann")
    assert f"x-request-id: {request['requestId']}" in head.lower()
    assert not any(key in line or "nonsense" in line for line in lines)
