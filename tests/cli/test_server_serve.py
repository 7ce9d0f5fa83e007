"""`ploti-server serve` as a process: it answers, and ends cleanly when told to (D13)."""

import json
import os
import signal
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
