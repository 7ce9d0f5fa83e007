"""Checks by schedule: what is due and can be read is checked, one dataset's trouble does not stop the others (D7.9)."""

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.empty_store import put_empty_home

from ploti_server.api.shapes import dataset_shape, standing_of
from ploti_server.app import build_ports
from ploti_server.cli import main
from ploti_server.domain.datasets import Dataset, SourceSpec, Topic
from ploti_server.domain.settings import Settings
from ploti_server.domain.subscriptions import Selection
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.schedule import FAILED_AGAIN_AFTER, due_datasets, queue_due
from ploti_server.pipeline.subscriptions import create_subscription
from ploti_server.pipeline.workspaces import create_workspace
from ploti_server.testing import FixedClock
from ploti_server.worker import UPKEEP, Upkeep, new_owner, run, work_one


@pytest.fixture
def clock():
    return FixedClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def ports(tmp_path, clock):
    """A publisher of three datasets: one whose file is there, one without a file, one read from an address."""
    ports = build_ports(Settings.of(home=put_empty_home(tmp_path / "home")), clock=clock)
    urls = {"ds_file": tmp_path / "file.csv", "ds_gone": tmp_path / "gone.csv", "ds_web": "https://x.example.org/a.csv"}
    with ports.store.write() as records:
        records.catalog.put_topics([Topic("t", "T")])
        for dataset_id, url in urls.items():
            dataset = Dataset(dataset_id, dataset_id, SourceSpec("file", str(url)), place="fl", topic="t")
            records.catalog.put_dataset(dataset)
    (tmp_path / "file.csv").write_text("k,v\n1,a\n")
    return ports


def subscribe(ports):
    workspace = create_workspace(ports, "acme", ["fl-counties"], None)
    return create_subscription(ports, workspace, Selection("fl", ("fl",), (), ()))


def test_what_comes_due_between_two_rounds_is_queued_at_once_and_looked_at_once(ports, clock):
    upkeep = Upkeep(tuple(piece for piece in UPKEEP if piece[1] is queue_due))
    upkeep.look_after(ports)
    clock.advance(seconds=5)
    upkeep.look_after(ports)
    begun = dict(upkeep.begun)
    assert last_check(ports) is None
    subscribe(ports)
    clock.advance(seconds=1)
    upkeep.look_after(ports)
    assert last_check(ports).status == "queued"
    for _ in range(9):
        clock.advance(seconds=2)
        upkeep.look_after(ports)
    assert upkeep.begun[queue_due] - begun[queue_due] == timedelta(seconds=8), "one look more, not one for each second"


def last_check(ports, dataset_id="ds_file"):
    with ports.store.read() as records:
        return records.checks.last_of(dataset_id)


def queued(ports):
    return [check.dataset_id for check in queue_due(ports)]


def test_a_source_is_checked_on_schedule_while_a_subscription_includes_its_dataset(ports, clock):
    assert queued(ports) == []
    subscribe(ports)
    assert due_datasets(ports) == ("ds_file", "ds_gone", "ds_web")
    assert queued(ports) == ["ds_file"]
    assert queued(ports) == []
    assert work_one(ports, new_owner()).outcome == "released"
    assert queued(ports) == []
    clock.advance(hours=23, minutes=59)
    assert queued(ports) == []
    clock.advance(minutes=1)
    assert queued(ports) == ["ds_file"]
    assert work_one(ports, new_owner()).outcome == "unchanged"


def test_files_are_built_once_a_subscription_includes_the_dataset_and_current_is_null_until_sent(ports):
    def shown():
        with ports.store.read() as records:
            found = dataset_shape(records.catalog.dataset("ds_file"), standing_of(records, "ds_file"))
        return found["current"] and found["current"]["version"], found["status"]

    queue_due(ports)
    assert (work_one(ports, new_owner()), shown()) == (None, (None, "not_built"))
    subscribe(ports)
    queue_due(ports)
    assert shown() == (None, "building")
    work_one(ports, new_owner())
    assert shown() == (1, "available")


def test_a_check_that_finds_nothing_new_publishes_nothing_and_moves_when_it_was_last_checked(ports, clock):
    subscription = subscribe(ports).id
    for expected in ("released", "unchanged"):
        queue_due(ports)
        read_at = clock.now()
        clock.advance(hours=1)
        assert work_one(ports, new_owner()).outcome == expected
        with ports.store.read() as records:
            assert records.catalog.refresh("ds_file").last_checked_at == read_at
            assert [version.number for version in records.versions.released("ds_file")] == [1]
            versions = [
                e.data["version"] for e in records.events.after(subscription, 0, 9) if e.dataset_id == "ds_file"
            ]
        assert versions == [None, 1]
        clock.advance(days=1)


def test_a_check_that_failed_is_tried_again_after_a_while(ports, clock, tmp_path):
    subscribe(ports)
    (tmp_path / "file.csv").write_text("")
    assert queued(ports) == ["ds_file"]
    assert work_one(ports, new_owner()).outcome == "failed"
    clock.advance(minutes=FAILED_AGAIN_AFTER / timedelta(minutes=1) - 1)
    assert queued(ports) == []
    (tmp_path / "file.csv").write_text("k,v\n1,a\n")
    clock.advance(minutes=1)
    assert queued(ports) == ["ds_file"]
    assert work_one(ports, new_owner()).outcome == "released"


def test_a_source_that_is_written_while_it_is_read_is_no_state(ports, clock, tmp_path):
    subscribe(ports)
    assert queued(ports) == ["ds_file"]
    assert work_one(ports, new_owner()).outcome == "released"
    clock.advance(days=1)
    file = tmp_path / "file.csv"

    def write_on(step):
        if step == "check.state_copied":
            file.write_text("k,v\n1,a\n2,b\n")

    file.write_text("k,v\n")
    assert [check.outcome for check in queue_due(replace(ports, reach=write_on))] == ["failed"]
    assert "was written while it was read" in last_check(ports).reason
    clock.advance(minutes=FAILED_AGAIN_AFTER / timedelta(minutes=1))
    assert queued(ports) == ["ds_file"]
    done = work_one(ports, new_owner())
    assert (done.outcome, done.facts["added"], done.facts["removed"]) == ("released", 1, 0)


def test_a_state_that_was_given_moves_the_next_check(ports, clock, tmp_path):
    subscribe(ports)
    take_state(ports, "ds_file", GivenState(tmp_path / "file.csv"))
    assert queued(ports) == []
    work_one(ports, new_owner())
    assert queued(ports) == []


def test_a_working_server_looks_at_the_schedule_by_itself(ports):
    subscribe(ports)
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(ports, stop))
    thread.start()
    try:
        for _ in range(200):
            if (check := last_check(ports)) is not None and check.outcome is not None:
                break
            stop.wait(0.1)
    finally:
        stop.set()
        thread.join()
    assert last_check(ports).outcome == "released"


def test_one_source_that_cannot_be_read_does_not_stop_the_others(ports, capsys, tmp_path):
    subscribe(ports)
    code = main(["check", "--all-due", "--json", "--home", str(ports.home)])
    told = {one["dataset"]: (one["outcome"], one["reason"]) for one in json.loads(capsys.readouterr().out)}
    assert code == 1
    assert told["ds_file"] == ("released", None)
    assert told["ds_gone"] == ("failed", f"cannot read the state {tmp_path / 'gone.csv'}: No such file or directory")
    assert told["ds_web"][0] == "failed"
    assert "--state" in told["ds_web"][1]
    assert last_check(ports, "ds_gone").reason == told["ds_gone"][1]
