"""The README's own example runs as it stands: catalog, check, workspace, key, serve, subscribe, sync, verify."""

import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

REPO = Path(__file__).parents[2]
BLOCKS = re.findall(r"```bash\n(.*?)```", (REPO / "README.md").read_text(), re.DOTALL)
PERMITS = "permit_number,status,lon,lat\nB1,issued,-81.38,28.54\nB2,applied,-81.39,28.55\n"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def shell(script, folder, environment):
    done = subprocess.run(
        ["bash", "-euc", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_example_with_your_own_data_runs_as_it_is_written(tmp_path):
    publish, follow = BLOCKS
    (tmp_path / "permits.csv").write_text(PERMITS)
    port = str(free_port())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PLOTI_SERVER_PORT": port, "PLOTI_API_URL": f"http://127.0.0.1:{port}"}
    install, rest = publish.split("\n", 1)
    assert install == 'pip install "ploti[server]"'
    before, serve, after = rest.rpartition("ploti-server serve")
    assert (serve, after.strip()) == ("ploti-server serve", "")
    shown = shell(before, tmp_path, environment)
    assert "released version 1, 2 rows" in shown
    key = re.search(r"ploti_[A-Za-z0-9]{32}", shown)[0]
    server = subprocess.Popen(["bash", "-c", f"exec {serve}"], cwd=tmp_path, env=environment)
    try:
        _wait(int(port))
        lines = follow.strip().split("\n")
        environment |= {"PLOTI_API_KEY": key}
        assert lines[0] == "export PLOTI_API_KEY=ploti_..."
        subscription = re.search(r"sub_[a-z2-7]+", shell(lines[1], tmp_path, environment))[0]
        shell(lines[2].replace("sub_...", subscription), tmp_path, environment)
        assert "equal" in shell(lines[3], tmp_path, environment)
        (tmp_path / "permits.csv").write_text(PERMITS.replace("applied", "issued"))
        checked = shell("ploti-server check ds_my_permits", tmp_path, environment)
        assert "+0 ~1 -0" in checked or "unchanged" in checked  # the server may have read the new file before
        shell(lines[2].replace("sub_...", subscription), tmp_path, environment)
        assert "equal" in shell(lines[3], tmp_path, environment)
        assert re.search("changed +B2 +status", shell(lines[4].replace("sub_...", subscription), tmp_path, environment))
        assert "2 rows" in shell(lines[5], tmp_path, environment)
        with closing(sqlite3.connect(tmp_path / "export.gpkg")) as db:
            assert db.execute("SELECT count(*) FROM ds_my_permits WHERE status = 'issued'").fetchall() == [(2,)]
    finally:
        server.terminate()
        server.wait(timeout=30)


def _wait(port):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server did not start")
