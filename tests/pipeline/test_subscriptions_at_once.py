"""Creates that race each other, a change of coverage, or a crash, on SQLite and PostgreSQL (D7.2, D7.3, D8.2, F059)."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.pipeline.killed_create import ONCE, SELECTION, ports_of

from ploti_server.domain.access import Refused
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.idempotency import Remembered
from ploti_server.domain.subscriptions import SUBSCRIPTIONS_MOST, Change
from ploti_server.pipeline.subscriptions import (
    change_subscription,
    create_once,
    create_subscription,
    delete_subscription,
)
from ploti_server.pipeline.workspaces import create_workspace, set_workspace

REPO = Path(__file__).parents[2]
ORANGE = Dataset("ds_orange", "Orange", SourceSpec("file", "https://x.example/a.csv"), place="fl-county-orange")


@pytest.fixture
def processes(store_url, tmp_path):
    """Makes ports as several processes on one database have them, closed at the end; there is a workspace."""
    made = []

    def make(reach=lambda _: None):
        made.append(ports_of(store_url, tmp_path, reach))
        return made[-1]

    ports = make()
    with ports.store.write() as records:
        records.catalog.put_dataset(ORANGE)
    make.workspace = create_workspace(ports, "team", ["fl-county-orange", "fl-county-lake"], None)
    yield make
    for one in made:
        one.store.close()


def in_database(ports, workspace):
    with ports.store.read() as records:
        return records.subscriptions.of_workspace(workspace.id)


def tried(act):
    try:
        return act()
    except Refused as refused:
        return refused.code


def test_creates_at_once_never_pass_the_limit_of_25(processes):
    ports = [processes() for _ in range(4)]
    for _ in range(20):
        create_subscription(ports[0], processes.workspace, SELECTION)
    with ThreadPoolExecutor(12) as pool:
        made = list(
            pool.map(
                lambda n: tried(lambda: create_subscription(ports[n % 4], processes.workspace, SELECTION)), range(24)
            )
        )
    assert made.count("limit_reached") == 19
    assert len(in_database(ports[0], processes.workspace)) == SUBSCRIPTIONS_MOST


def test_one_key_at_once_over_processes_makes_one_subscription(processes):
    ports = [processes() for _ in range(4)]
    with ThreadPoolExecutor(20) as pool:
        made = list(pool.map(lambda n: create_once(ports[n % 4], processes.workspace, SELECTION, ONCE), range(20)))
    first = [one for one in made if not isinstance(one, Remembered)]
    assert len(first) == 1
    assert {one.answer for one in made if isinstance(one, Remembered)} == {f'{{"id": "{first[0].id}"}}'}
    assert [s.id for s in in_database(ports[0], processes.workspace)] == [first[0].id]


def test_coverage_that_changes_during_a_create_waits_for_it_and_then_takes_the_datasets_out(processes):
    """The created subscription is there when the change of coverage looks for what to bring up to date."""
    changing = threading.Event()

    def reach(_):
        changing.set()
        assert not narrowed.wait(0.7)

    narrowed = threading.Event()

    def narrow():
        assert changing.wait(20)
        set_workspace(processes(), "team", ["fl-county-lake"])
        narrowed.set()

    creating = processes(reach)
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(narrow)
        made = create_subscription(creating, processes.workspace, SELECTION)
        other.result(30)
    with creating.store.read() as records:
        assert records.subscriptions.joined(made.id) == ()
        log = records.events.after(made.id, 0, 10)
    assert [(e.type, e.data.get("reason")) for e in log] == [
        ("feed.dataset.added", None),
        ("feed.dataset.removed", "left_coverage"),
    ]


def test_create_uses_the_coverage_of_its_moment_not_the_keys(processes):
    ports = processes()
    set_workspace(ports, "team", ["fl-county-lake"])
    assert tried(lambda: create_subscription(ports, processes.workspace, SELECTION)) == "outside_coverage"


def change_and_delete(ports, workspace, made):
    """Change and delete a subscription at once; gives what each came to."""
    change = Change(name="New", revision=1)
    with ThreadPoolExecutor(2) as pool:
        changed = pool.submit(tried, lambda: change_subscription(ports[0], workspace, made.id, change, None))
        deleted = pool.submit(tried, lambda: delete_subscription(ports[1], workspace.id, made.id))
    return changed.result(), deleted.result()


def test_change_never_brings_a_deleted_subscription_back(processes):
    ports = [processes() for _ in range(2)]
    for _ in range(12):
        made = create_subscription(ports[0], processes.workspace, SELECTION)
        changed, deleted = change_and_delete(ports, processes.workspace, made)
        assert (changed in ("not_found", "busy")) or changed.revision == 2
        left = in_database(ports[0], processes.workspace)
        assert left == (() if deleted is None else (changed,))
        for one in left:
            delete_subscription(ports[0], processes.workspace.id, one.id)


def test_process_killed_before_the_commit_leaves_the_key_unused(processes, store_url, tmp_path):
    command = [sys.executable, "-m", "tests.pipeline.killed_create", store_url, str(tmp_path), "team"]
    options = {"cwd": REPO, "env": {"PYTHONPATH": "src:."}, "capture_output": True, "text": True, "timeout": 60}
    killed = subprocess.run([*command, "subscription.before_commit"], check=False, **options)
    assert killed.returncode == -9
    ports = processes()
    assert in_database(ports, processes.workspace) == ()
    again = subprocess.run([*command, "none"], check=True, **options)
    assert [s.id for s in in_database(ports, processes.workspace)] == [again.stdout.strip()]
    replayed = create_once(ports, processes.workspace, SELECTION, ONCE)
    assert replayed.answer == f'{{"id": "{again.stdout.strip()}"}}'
