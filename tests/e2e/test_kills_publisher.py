"""SIGKILL at each named step of check and release, first and last hit: nothing is lost, doubled or half visible."""

import json
import os
import shutil
import signal
from collections import Counter

import pytest
from tests.e2e.forge import REPO, forging
from tests.e2e.independent import PublishedVersion, folders

from ploti_server.app import build_ports
from ploti_server.domain.catalog import parse_catalog
from ploti_server.domain.settings import Settings
from ploti_server.domain.subscriptions import Selection
from ploti_server.pipeline.catalog import apply_catalog
from ploti_server.pipeline.subscriptions import create_subscription
from ploti_server.pipeline.workspaces import create_workspace

DEMO = REPO / "src" / "ploti_server" / "demo" / "data"
DATASET = "ds_fl_counties"
STATES = sorted((DEMO / "fl_counties").glob("0*.geojson"))


def publisher(home):
    ports = build_ports(Settings.of(home=home))
    apply_catalog(ports, parse_catalog((DEMO / "catalog.yaml").read_text(), DEMO / "catalog.yaml"))
    workspace = create_workspace(ports, "team", ["fl-counties"], None)
    create_subscription(ports, workspace, Selection("Florida", ("fl",), (), ()))
    return ports


@pytest.fixture(scope="module")
def run():
    """Runs a verb in a process of its own; gives its wait status and what it told."""
    with forging("tests.e2e.killed") as ordered:

        def run(home, verb, file=None, **kill):
            trace = home.with_name("trace")
            trace.unlink(missing_ok=True)
            order = {"home": str(home), "verb": verb, "dataset": DATASET, "file": file and str(file)}
            status = ordered(order | {"trace": str(trace)} | kill)
            return status, trace.read_text() if trace.exists() else ""

        yield run


@pytest.fixture(scope="module")
def before(run, tmp_path_factory):
    """A home with one released version and one held one."""
    home = tmp_path_factory.mktemp("before") / "home"
    publisher(home)
    for verb, file in (("check", STATES[0]), ("release", None), ("check", STATES[1])):
        assert run(home, verb, file)[0] is None
    return home


@pytest.fixture(scope="module")
def unharmed(run, before, tmp_path_factory):
    """By verb, the steps and what is published in the end where nothing is killed."""
    told = {}
    for verb, file in (("check", STATES[2]), ("release", None)):
        home = tmp_path_factory.mktemp(f"unharmed-{verb}") / "home"
        shutil.copytree(before, home)
        status, steps = run(home, verb, file)
        assert status is None
        told[verb] = (Counter(steps.split()), published(home))
    return told


def published(home, dataset=DATASET):
    """All that subscribers can see: released versions with their files' checksums, and the log without its times."""
    ports = build_ports(Settings.of(home=home))
    with ports.store.read() as records:
        versions = records.versions.released(dataset)
        held = records.versions.in_status(dataset, ("held", "building", "waiting"))
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
    "check.state_copied", "check.state_stored", "check.before_commit", "check.queued", "build.begun",
    "build.state_read", "consult.answered", "consult.kept", "build.matched", "build.parts_written",
    "build.part_stored", "build.files_stored", "build.computed", "release.before_commit", "release.committed",
    "build.ended",
)  # fmt: skip
RELEASE_STEPS = ("release.before_commit", "release.committed")


def test_every_named_step_of_the_publisher_is_killed_here(unharmed):
    assert set(unharmed["check"][0]) == set(CHECK_STEPS)
    assert set(unharmed["release"][0]) == set(RELEASE_STEPS)


@pytest.mark.parametrize(
    ("verb", "step"), [*(("check", s) for s in CHECK_STEPS), *(("release", s) for s in RELEASE_STEPS)]
)
def test_after_a_kill_the_same_command_again_ends_as_if_nothing_had_happened(
    run, before, unharmed, tmp_path, verb, step
):
    """At the first arrival at the step and at the last, where that is another one."""
    steps, expected = unharmed[verb]
    file = STATES[2] if verb == "check" else None
    for hit in sorted({1, steps[step]}):
        home = tmp_path / str(hit) / "home"
        shutil.copytree(before, home)
        status, _ = run(home, verb, file, step=step, hit=hit)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        _nothing_half_visible(home)
        status, told = run(home, verb, file)
        assert status is None
        assert ("is held" in told) == (verb == "release" and step == "release.committed")
        assert published(home) == expected


def _nothing_half_visible(home):
    for folder in folders(home / "files", DATASET).values():
        json.loads((folder / "manifest.json").read_bytes())
    published(home)
