"""SIGKILL at each named step of replacing ids and releasing again: the next worker ends as if nothing had happened."""

import os
import shutil
import signal
from collections import Counter

import pytest
from tests.e2e.forge import forging
from tests.e2e.test_kills_publisher import DATASET, STATES, published, publisher

pytestmark = pytest.mark.goals


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


@pytest.mark.parametrize("verb", ["replace", "again"])
def test_after_a_kill_the_next_worker_ends_as_if_nothing_had_happened(run, verb, tmp_path):
    before = tmp_path / "before" / "home"
    publisher(before)
    for earlier, file in (("check", STATES[0]), ("release", None), ("check", STATES[1])):
        assert run(before, earlier, file)[0] is None
    unharmed = tmp_path / "unharmed" / "home"
    shutil.copytree(before, unharmed)
    status, told = run(unharmed, verb)
    assert status is None
    expected, steps = published(unharmed), Counter(told.split())
    assert [number for number, *_ in expected["released"]] == ([1] if verb == "replace" else [])
    assert [number for number, *_ in expected["held"]] == [4]
    assert {"act.before_commit", "act.queued", "build.files_stored", "release.committed"} <= steps.keys()
    kills = [(step, hit) for step, hits in steps.items() for hit in sorted({1, hits})]
    for step, hit in kills:
        home = tmp_path / f"{step}-{hit}" / "home"
        shutil.copytree(before, home)
        status, _ = run(home, verb, step=step, hit=hit)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        published(home)
        assert run(home, verb if step == "act.before_commit" else "work")[0] is None
        assert published(home) == expected, step
    print(f"{verb}: {len(kills)} kills")
