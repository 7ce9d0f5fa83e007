"""SIGKILL round asks and holds that end by themselves: the next worker ends as if nothing had happened (D4.9, D6.3).

Here at the step that turns each story; `tests/goals/test_asks_killed.py` kills every story at every step.
"""

import os
import shutil
import signal
from collections import Counter

import pytest
from tests.e2e.forge import forging
from tests.e2e.test_kills_publisher import published
from tests.empty_store import put_empty_home

from ploti_server.app import build_ports
from ploti_server.domain.catalog import parse_catalog
from ploti_server.domain.settings import Settings
from ploti_server.domain.subscriptions import Selection
from ploti_server.pipeline.catalog import apply_catalog
from ploti_server.pipeline.subscriptions import create_subscription
from ploti_server.pipeline.workspaces import create_workspace

DATASET = "ds_names"
CATALOG = """
topics: [{id: t, name: T}]
datasets:
  - id: ds_names
    title: Names
    place: fl
    topic: t
    source: {kind: file, url: names.csv}
    review: {release_after_agreeing_checks: 1}
"""
STATES = {
    "first": {number: f"name {number},street {number}" for number in range(5)},
    "edited": {number: f"name {number},{'avenue' if number in {1, 2} else 'street'} {number}" for number in range(5)},
    "narrow": {number: f"name {number}" for number in range(5)},
    "narrow again": {number: f"name {number}" for number in range(6)},
}
NOTHING = "nothing"
BEFORE = {
    "released": (NOTHING, {"verb": "check", "file": "first", "hours": 0}),
    "waiting": ("released", {"verb": "check", "file": "edited", "hours": 1, "agent": "silent"}),
    "asked again": ("waiting", {"verb": "work", "hours": 25, "agent": "silent"}),
    "silent": ("asked again", {"verb": "work", "hours": 49, "agent": "silent"}),
    "answered": ("waiting", {"verb": "answer", "hours": 2, "agent": "silent"}),
    "held": ("released", {"verb": "check", "file": "narrow", "hours": 1}),
}
"""How each story begins: after which other, by what."""

STORIES = {
    "the agent is asked": BEFORE["waiting"],
    "the agent answers": ("waiting", {"verb": "work", "hours": 25, "agent": "same"}),
    "the agent is asked again": BEFORE["asked again"],
    "the time is up": BEFORE["silent"],
    "a person judges": BEFORE["answered"],
    "a person ends the wait": ("answered", {"verb": "finish", "hours": 3, "agent": "silent"}),
    "a person ends the hold's ask": ("silent", {"verb": "finish", "hours": 50, "agent": "silent"}),
    "the hold ends by itself": ("held", {"verb": "check", "file": "narrow", "hours": 2}),
    "the hold ends with another state": ("held", {"verb": "check", "file": "narrow again", "hours": 2}),
}
TOLD = {
    "the agent is asked": ([], "waiting", "resync_required"),
    "the agent answers": ([1, 2], None, "updated"),
    "the agent is asked again": ([], "waiting", "resync_required"),
    "the time is up": ([], "held", "delayed"),
    "a person judges": ([], "waiting", "resync_required"),
    "a person ends the wait": ([1, 2], None, "updated"),
    "a person ends the hold's ask": ([1, 3], None, "updated"),
    "the hold ends by itself": ([1, 2], None, "resync_required"),
    "the hold ends with another state": ([1, 3], None, "resync_required"),
}
"""Which versions are released in the end, how one stands that is not, and the last event."""

TURNING = {
    "the agent answers": "consult.answered",
    "a person ends the hold's ask": "answer.kept",
    "the hold ends by itself": "release.before_commit",
}
"""Where it matters most; the other steps are killed in the long runs."""

UNQUEUED = ("check.state_copied", "check.state_stored", "check.before_commit", "answer.before_commit")
"""Steps before which nothing stands: whoever ordered it has to say it again."""


class Publishers:
    """Homes at the beginning of each story, made when first asked for, and orders to a process that can be killed."""

    def __init__(self, folder, ordered):
        self.folder, self.ordered, self.made = folder, ordered, {}
        for name, rows in STATES.items():
            header = "name" if name.startswith("narrow") else "name,street"
            (folder / f"{name}.csv").write_text("\n".join([header, *rows.values()]) + "\n")

    def before(self, name):
        if name in self.made:
            return self.made[name]
        home = self.folder / name / "home"
        if name == NOTHING:
            put_empty_home(home)
            ports = build_ports(Settings.of(home=home))
            (self.folder / "names.csv").touch()
            apply_catalog(ports, parse_catalog(CATALOG, self.folder / "catalog.yaml"))
            workspace = create_workspace(ports, "team", ["fl-counties"], None)
            create_subscription(ports, workspace, Selection("Florida", ("fl",), (), ()))
        else:
            earlier, order = BEFORE[name]
            shutil.copytree(self.before(earlier), home)
            assert self.run(home, order)[0] is None
        self.made[name] = home
        return home

    def run(self, home, order, **kill):
        """Run an order; gives its wait status and what it told."""
        trace = home.with_name("trace")
        trace.unlink(missing_ok=True)
        file = str(self.folder / f"{order['file']}.csv") if "file" in order else None
        asked = order | {"home": str(home), "dataset": DATASET, "file": file, "trace": str(trace)} | kill
        return self.ordered(asked), trace.read_text() if trace.exists() else ""

    def check_kills(self, story, place, wanted=None):
        """Kill a story's order at one step, or at every one; gives how many kills it survived."""
        begins, order = STORIES[story]
        unharmed = place / "unharmed" / "home"
        shutil.copytree(self.before(begins), unharmed)
        status, told = self.run(unharmed, order)
        assert status is None
        expected, steps = standing(unharmed), Counter(told.split())
        released, status, event = TOLD[story]
        assert [number for number, *_ in expected["released"]] == (released or [1])
        assert [how for _, how, *_ in expected["held"]] == ([status] if status else [])
        assert expected["log"][-1][0].endswith(event)
        kills = [(step, hit) for step, hits in steps.items() for hit in sorted({1, hits})]
        kills = [(step, hit) for step, hit in kills if wanted in (None, step)]
        for step, hit in kills:
            home = place / f"{step}-{hit}" / "home"
            shutil.copytree(self.before(begins), home)
            status, _ = self.run(home, order, step=step, hit=hit)
            assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
            standing(home)
            again = order if step in UNQUEUED else order | {"verb": "work"}
            assert self.run(home, again)[0] is None
            assert standing(home) == expected, (story, step, hit)
        return len(kills)


def standing(home):
    """What subscribers see, and how the asks stand."""
    ports = build_ports(Settings.of(home=home))
    with ports.store.read() as records:
        asks = [(ask.number, ask.due_at, len(ask.pairs), ask.given) for ask in records.asks.of_dataset(DATASET, 9)]
    return published(home, DATASET) | {"asks": asks}


@pytest.fixture(scope="module")
def publishers(tmp_path_factory):
    with forging("tests.e2e.killed") as ordered:
        yield Publishers(tmp_path_factory.mktemp("asks"), ordered)


@pytest.mark.parametrize("story", TURNING)
def test_after_a_kill_the_next_worker_ends_as_if_nothing_had_happened(story, publishers, tmp_path):
    assert publishers.check_kills(story, tmp_path, TURNING[story]) > 0
