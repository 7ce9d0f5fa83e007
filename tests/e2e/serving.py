"""A publisher of real histories with its API on a loopback port, and what a subscriber needs to follow it."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvicorn
from tests.e2e.independent import PublishedVersion
from tests.empty_store import put_empty_home

from ploti_server.api import make_api
from ploti_server.app import build_ports, build_signer
from ploti_server.domain.catalog import parse_catalog
from ploti_server.domain.settings import Settings
from ploti_server.domain.subscriptions import Selection
from ploti_server.pipeline.catalog import apply_catalog
from ploti_server.pipeline.check import take_state
from ploti_server.pipeline.history import history_states
from ploti_server.pipeline.release import release_held
from ploti_server.pipeline.subscriptions import create_subscription
from ploti_server.pipeline.workspaces import create_key, create_workspace
from ploti_server.worker import new_owner, work_through

REPO = Path(__file__).parents[2]
DEMO = REPO / "src" / "ploti_server" / "demo" / "data"
MAIN = REPO.parent / "shared" / "data" / "main"
DEMO_NAMES = ("fl_airports", "fl_counties", "fl_courts", "fl_places")
COVERAGE = ["fl-counties", "tx-county-bexar", "vt-county-rutland", "ca-counties"]
START_SECONDS = 60.0
COMMAND_SECONDS = 120.0


def source_of(name):
    """The folder that holds a history and the catalog beside it."""
    return DEMO if name in DEMO_NAMES else MAIN


def states_of(name):
    """A history's states, oldest first."""
    folder = source_of(name) / name
    return list(history_states(str(folder), None, folder))


@dataclass
class Publisher:
    """A publisher in a home folder, with the catalogs of some histories and one workspace that may see them all.

    `catalog` is a file of other datasets than the real histories'.
    """

    home: Path
    names: tuple[str, ...]
    catalog: Path | None = None
    ports: object = None
    owner: str = field(default_factory=new_owner)
    key: str = ""
    workspace: object = None

    def __post_init__(self):
        roomy = {"requests_per_minute": 1_000_000, "strict_requests_per_minute": 1_000_000}
        self.settings = replace(Settings.of(home=self.home), **roomy)
        if self.ports is None:
            put_empty_home(self.home)
            self.ports = build_ports(self.settings)
        files = [source_of(name) / "catalog.yaml" for name in self.names] if self.catalog is None else [self.catalog]
        for file in dict.fromkeys(files):
            apply_catalog(self.ports, parse_catalog(file.read_text(encoding="utf-8"), file))
        self.workspace = create_workspace(self.ports, "team", COVERAGE, None)
        self.key = create_key(self.ports, "team", "reader", "admin").text
        text = "\n".join(f"{name} = {value}" for name, value in roomy.items())
        (self.home / "settings.toml").write_text(text, encoding="utf-8")

    def subscribe(self, *names):
        """Subscribe to histories by name; gives the subscription's id."""
        ids = tuple(f"ds_{name}" for name in names or self.names)
        return create_subscription(self.ports, self.workspace, Selection("all", dataset_ids=ids)).id

    def publish(self, name, state):
        """Check a state and release what it becomes; gives the new version's number, None where there is none."""
        dataset_id = f"ds_{name}"
        check = work_through(self.ports, self.owner, take_state(self.ports, dataset_id, state).id)
        if check.outcome == "held":
            return release_held(self.ports, dataset_id).number
        return check.version if check.outcome == "released" else None

    def published(self, name, number):
        """A released version as the file store has it."""
        with self.ports.store.read() as records:
            version = records.versions.get(f"ds_{name}", number)
        return PublishedVersion(self.home / "files" / version.folder)


@contextmanager
def serving(publisher, around=lambda api: api):
    """Serve a publisher's API from a thread of this process; gives its address."""
    api = around(make_api(publisher.ports, publisher.settings, build_signer(publisher.ports)))
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(api, log_level="warning", access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, args=([bound],), name="api", daemon=True)
    thread.start()
    try:
        until = time.monotonic() + START_SECONDS
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        assert server.started
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=START_SECONDS)
        bound.close()
        assert not thread.is_alive()


@contextmanager
def serving_command(home, log):
    """Serve a home folder with `ploti-server serve --no-work`, a process of its own; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    line = [beside("ploti-server"), "serve", "--home", home, "--port", str(port), "--no-work"]
    with log.open("w") as out, subprocess.Popen(line, stdout=out, stderr=out) as server:
        try:
            _wait_for(server, f"http://127.0.0.1:{port}", log)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(timeout=START_SECONDS)


def _wait_for(server, url, log):
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/openapi.json", timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    raise AssertionError(f"the server did not start: {log.read_text()}")


def beside(name):
    """A command that is installed beside the running Python."""
    return str(Path(sys.executable).with_name(name))


def ploti(url, key, *arguments, status=0):
    """Run the `ploti` command with `--json`; gives what it printed."""
    environment = os.environ | {"PLOTI_API_URL": url, "PLOTI_API_KEY": key}
    done = subprocess.run(
        [beside("ploti"), *map(str, arguments), "--json"],
        env=environment, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS,
    )  # fmt: skip
    assert done.returncode == status, done.stderr or done.stdout
    return json.loads(done.stdout)
