"""Real histories followed by sync into DuckDB: after each state the table is the newest snapshot (I1, D11.8)."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from tests.e2e.independent import SyncedTable, arrived_by
from tests.e2e.serving import DEMO_NAMES, Publisher, ploti, serving, serving_command, states_of

from ploti import Client
from ploti.sync.loop import resync, sync, verify
from ploti.sync.targets import open_target
from ploti_server.pipeline.check import GivenState

HISTORIES = (
    *DEMO_NAMES, "sa_building_permits", "vt_rutland_zoning", "toronto_short_term_rentals", "calfire_incidents",
)  # fmt: skip
SKIPPING = 4


@dataclass
class Follower:
    """A target that follows one dataset's subscription, and when each of its records arrived."""

    publisher: Publisher
    client: Client
    subscription: str
    database: object
    on_major: str = "apply"
    arrived: dict = field(default_factory=dict)
    version: int | None = None
    compared: int = 0

    def sync(self, on_major=None):
        return sync(self.client, self.subscription, self.target, on_major=on_major or self.on_major)

    @property
    def target(self):
        return open_target(f"duckdb:///{self.database}")

    def follow(self, name, released, on_major=None):
        """Sync once and compare the table with the newest version that it may take; gives that version's number."""
        report = self.sync(on_major)
        assert not report.behind
        newest = self._newest_accepted(name, released, on_major or self.on_major)
        table = SyncedTable(self.database, f"ds_{name}")
        assert table.version == newest
        if newest is None:
            return None
        reloaded = any(each.reloaded for each in report.datasets)
        due = [number for number in released if (self.version or 0) < number <= newest]
        if reloaded:
            self.arrived = arrived_by(self.publisher.published(name, newest), {}, reloaded=True)
        else:
            for number in due:
                self.arrived = arrived_by(self.publisher.published(name, number), self.arrived, reloaded=False)
        table.check_equals(self.publisher.published(name, newest), self.arrived)
        paused = newest != released[-1]
        assert table.state == ("paused" if paused else "ok")
        self.version = newest
        self.compared += 1
        return newest

    def _newest_accepted(self, name, released, on_major):
        if on_major == "apply" or not released:
            return released[-1] if released else None
        majors = {number: self._major(name, number) for number in released}
        first = majors[self.version or released[0]]
        return max(number for number, major in majors.items() if major == first)

    def _major(self, name, number):
        return self.publisher.published(name, number).manifest["schemaVersion"].split(".")[0]

    def check_verified(self):
        found = verify(self.client, self.target)
        assert [(each.version, each.equal, each.problem) for each in found] == [(self.version, True, None)]


@pytest.mark.parametrize("name", HISTORIES)
def test_a_table_equals_the_newest_snapshot_after_each_state_however_seldom_it_syncs(name, tmp_path):
    publisher = Publisher(tmp_path / "home", (name,))
    states = states_of(name)
    released = []
    with serving(publisher) as url, Client(publisher.key, url) as client:
        subscription = publisher.subscribe(name)

        def follower(called, on_major="apply"):
            return Follower(publisher, client, subscription, tmp_path / f"{called}.duckdb", on_major)

        each, seldom, late = map(follower, ("each", "seldom", "late"))
        pausing = follower("pausing", "pause")
        for at, state in enumerate(states, 1):
            number = publisher.publish(name, state)
            released += [number] if number else []
            each.follow(name, released)
            if number and publisher.published(name, number).manifest["resyncRequired"]:
                pausing.follow(name, released)
            if at % SKIPPING == 0 or at == len(states):
                each.check_verified()
                seldom.follow(name, released)
            if at > len(states) // 2 and at % 2 == 0:
                late.follow(name, released)
        late.follow(name, released)
        pausing.follow(name, released, on_major="apply")
        for one in (each, seldom, late, pausing):
            assert one.version == released[-1]
            one.check_verified()
    assert each.compared == len(states)
    tables = sum(one.compared for one in (each, seldom, late, pausing))
    print(f"{name}: {len(states)} states, {len(released)} versions, {tables} tables compared with snapshots")


SINGLES_CATALOG = """
topics: [{id: places-boundaries, name: Places}]
datasets:
  - id: ds_singles
    title: Columns with one value
    topic: places-boundaries
    source: {kind: file, url: singles/latest}
    key: [id]
    columns: {day: date, moment: timestamp}
"""
SINGLES = (
    {"text": "A", "whole": 7, "share": 0.1, "on": True, "nested": ["a", {"b": 1}], "day": "0001-01-01",
     "moment": "2024-05-31T23:59:59.000001Z"},
    {"text": "O'Neil \n\u00e9", "whole": 2**53 + 1, "share": 0.1 + 0.2, "on": False, "nested": {"c": None, "b": [2]},
     "day": "9999-12-31", "moment": "1969-12-31T23:59:59.999999Z"},
    dict.fromkeys(("text", "whole", "share", "on", "nested", "day", "moment")),
    {"text": "", "whole": -(2**63), "share": 5e-324, "on": True, "nested": "plain", "day": "2024-02-29",
     "moment": "2024-02-29T00:00:00Z"},
)  # fmt: skip
"""Columns that have one value in every row, by state: the rows that stay get the new one without being changes."""


def test_a_value_that_every_row_has_moves_in_rows_that_no_change_names(tmp_path):
    (tmp_path / "catalog.yaml").write_text(SINGLES_CATALOG, encoding="utf-8")
    publisher = Publisher(tmp_path / "home", ("singles",), tmp_path / "catalog.yaml")
    released, moved = [], set()
    with serving(publisher) as url, Client(publisher.key, url) as client:
        follower = Follower(publisher, client, publisher.subscribe(), tmp_path / "singles.duckdb")
        for at, single in enumerate(SINGLES):
            rows = [{"id": f"k{number}", "name": f"n{number % 7}", **single} for number in range(at, 40 + at)]
            file = tmp_path / f"{at}-2024-01-0{at + 1}.json"
            file.write_text(json.dumps(rows), encoding="utf-8")
            released.append(publisher.publish("singles", GivenState(file, datetime(2024, 1, 1 + at, tzinfo=UTC))))
            published = publisher.published("singles", released[-1])
            follower.follow("singles", released)
            follower.check_verified()
            if at:
                moved |= published.manifest["constants"].keys()
                assert published.manifest["counts"] == {"added": 1, "changed": 0, "removed": 1}
                assert set(follower.arrived.values()) == set(released[: at + 1])
    assert moved == SINGLES[0].keys()


def test_a_dataset_kept_back_at_a_major_change_waits_while_the_others_go_on(tmp_path):
    names = ("fl_counties", "fl_courts")
    publisher = Publisher(tmp_path / "home", names)
    counties, courts = map(states_of, names)
    target = open_target(f"duckdb:///{tmp_path}/both.duckdb")
    with serving(publisher) as url, Client(publisher.key, url) as client:
        subscription = publisher.subscribe()
        publisher.publish("fl_counties", counties[0])
        publisher.publish("fl_courts", courts[0])
        assert not sync(client, subscription, target).behind
        publisher.publish("fl_counties", counties[1])
        for county_state, court_state in zip((*counties[2:], None), courts[1:4], strict=True):
            newest = publisher.publish("fl_courts", court_state)
            report = sync(client, subscription, target)
            states = {each.dataset_id: each.held.state for each in report.datasets}
            assert states == {"ds_fl_counties": "paused", "ds_fl_courts": "ok"}
            SyncedTable(tmp_path / "both.duckdb", "ds_fl_counties").check_equals(publisher.published("fl_counties", 1))
            SyncedTable(tmp_path / "both.duckdb", "ds_fl_courts").check_equals(publisher.published("fl_courts", newest))
            if county_state is not None:
                last = publisher.publish("fl_counties", county_state)
        report = resync(client, target, "ds_fl_counties")
        assert (report.from_version, report.held.version, report.held.state) == (1, last, "ok")
        SyncedTable(tmp_path / "both.duckdb", "ds_fl_counties").check_equals(publisher.published("fl_counties", last))
        assert not sync(client, subscription, target).datasets
        assert all(each.equal for each in verify(client, target))


def test_the_command_follows_a_served_history_state_by_state(tmp_path):
    name = "fl_courts"
    publisher = Publisher(tmp_path / "home", (name,))
    subscription = publisher.subscribe(name)
    to = ("--to", f"duckdb:///{tmp_path}/courts.duckdb")
    arrived = {}
    with serving_command(publisher.home, tmp_path / "serve.log") as url:
        for state in states_of(name):
            number = publisher.publish(name, state)
            report = ploti(url, publisher.key, "sync", subscription, *to)
            (moved,) = report["datasets"]
            assert (moved["version"], moved["state"]) == (number, "ok")
            published = publisher.published(name, number)
            arrived = arrived_by(published, arrived, reloaded=moved["reloaded"])
            SyncedTable(tmp_path / "courts.duckdb", f"ds_{name}").check_equals(published, arrived)
        (verified,) = ploti(url, publisher.key, "sync", "verify", *to)
        assert (verified["equal"], verified["version"], verified["records"]) == (True, number, 218)
        (status,) = ploti(url, publisher.key, "sync", "status", *to)
        assert (status["version"], status["state"], status["rows"]) == (number, "ok", 218)
        assert ploti(url, publisher.key, "sync", subscription, *to)["datasets"] == []
