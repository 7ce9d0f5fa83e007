"""SIGKILL at each named step of check and release, first and last hit: nothing is lost, doubled or half visible."""

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.e2e.independent import PublishedVersion, folders

from ploti_server.app import build_ports
from ploti_server.domain.catalog import parse_catalog
from ploti_server.domain.settings import Settings
from ploti_server.domain.subscriptions import Selection
from ploti_server.pipeline.catalog import apply_catalog
from ploti_server.pipeline.subscriptions import create_subscription
from ploti_server.pipeline.workspaces import create_workspace

REPO = Path(__file__).parents[2]
DEMO = REPO / "src" / "ploti_server" / "demo" / "data"
DATASET = "ds_fl_counties"
STATES = sorted((DEMO / "fl_counties").glob("0*.geojson"))


def run(home, step, hit, verb, file="-"):
    return subprocess.run(
        [sys.executable, "-m", "tests.e2e.killed", home, step, str(hit), verb, DATASET, file],
        cwd=REPO, capture_output=True, text=True, check=False,
    )  # fmt: skip


def publisher(home):
    ports = build_ports(Settings.of(home=home))
    apply_catalog(ports, parse_catalog((DEMO / "catalog.yaml").read_text(), DEMO / "catalog.yaml"))
    workspace = create_workspace(ports, "team", ["fl-counties"], None)
    create_subscription(ports, workspace, Selection("Florida", ("fl",), (), ()))
    return ports


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A home with one released version and one held one, and the same home after each verb ran unharmed."""
    home = tmp_path_factory.mktemp("before") / "home"
    publisher(home)
    for verb, file in (("check", STATES[0]), ("release", "-"), ("check", STATES[1])):
        done = run(home, "none", 0, verb, file)
        assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(scope="module")
def unharmed(before, tmp_path_factory):
    told = {}
    for verb, file in (("check", STATES[2]), ("release", "-")):
        home = tmp_path_factory.mktemp(f"unharmed-{verb}") / "home"
        shutil.copytree(before, home)
        done = run(home, "none", 0, verb, file)
        assert done.returncode == 0, done.stderr
        told[verb] = (Counter(done.stdout.split()), published(home))
    return told


def published(home):
    """All that subscribers can see: released versions with their files' checksums, and the log without its times."""
    ports = build_ports(Settings.of(home=home))
    with ports.store.read() as records:
        versions = records.versions.released(DATASET)
        held = records.versions.in_status(DATASET, ("held", "building", "waiting"))
        (subscription,) = records.subscriptions.all()
        log = records.events.after(subscription.id, 0, 1000)
    for version in versions:
        PublishedVersion(home / "files" / version.folder).check_files()
    shown = [(v.number, v.previous_version, v.schema_version, v.counts, _parts(v)) for v in versions]
    assert [event.number for event in log] == list(range(1, len(log) + 1))
    told = [(event.type, _without_times(event.data)) for event in log]
    return {"released": shown, "held": [(v.number, str(v.status), v.reasons, _parts(v)) for v in held], "log": told}


def _parts(version):
    return sorted((f.path, f.sha256) for f in version.files if f.path.endswith(".parquet"))


def _without_times(data):
    return {key: value for key, value in data.items() if key != "since"}


CHECK_STEPS = (
    "check.state_stored", "check.before_commit", "check.queued", "build.begun", "build.state_read", "build.matched",
    "build.parts_written", "build.part_stored", "build.files_stored", "build.computed", "release.before_commit",
    "release.committed", "build.ended",
)  # fmt: skip
RELEASE_STEPS = ("release.before_commit", "release.committed")


def test_every_named_step_of_the_publisher_is_killed_here(unharmed):
    assert set(unharmed["check"][0]) == set(CHECK_STEPS)
    assert set(unharmed["release"][0]) == set(RELEASE_STEPS)


@pytest.mark.parametrize("last", [False, True], ids=["first-hit", "last-hit"])
@pytest.mark.parametrize(
    ("verb", "step"), [*(("check", s) for s in CHECK_STEPS), *(("release", s) for s in RELEASE_STEPS)]
)
def test_after_a_kill_the_same_command_again_ends_as_if_nothing_had_happened(
    before, unharmed, tmp_path, verb, step, last
):
    steps, expected = unharmed[verb]
    hit = steps[step] if last else 1
    home = tmp_path / "home"
    shutil.copytree(before, home)
    file = STATES[2] if verb == "check" else "-"
    killed = run(home, step, hit, verb, file)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    _nothing_half_visible(home)
    again = run(home, "none", 0, verb, file)
    if verb == "release" and step == "release.committed":
        assert "is held" in again.stderr
    else:
        assert again.returncode == 0, again.stderr
    assert published(home) == expected


def _nothing_half_visible(home):
    for folder in folders(home / "files", DATASET).values():
        json.loads((folder / "manifest.json").read_bytes())
    published(home)
