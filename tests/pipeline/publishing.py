"""A publisher of one dataset and its subscribers, led state by state on a clock that is moved."""

import shutil
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow.parquet as pq
from tests.empty_store import put_empty_home

from ploti_server.app import build_ports
from ploti_server.domain.datasets import Dataset, SourceSpec, Topic
from ploti_server.domain.replacements import Replacement
from ploti_server.domain.settings import Settings
from ploti_server.domain.subscriptions import Selection
from ploti_server.pipeline.act import release_again, replace_ids
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.release import discard_held, release_held
from ploti_server.pipeline.subscriptions import create_subscription
from ploti_server.pipeline.workspaces import create_workspace
from ploti_server.testing import FixedClock
from ploti_server.worker import new_owner, work_one

DATASET = "ds_x"


class Publisher:
    """Publishes states of one dataset through the real stores and engine."""

    def __init__(self, folder, store=None, **fields):
        self.folder, self.clock = folder, FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.ports = build_ports(Settings.of(home=put_empty_home(folder / "home")), clock=self.clock)
        if store is not None:
            self.ports = replace(self.ports, store=store)
        source = SourceSpec("file", "x.csv")
        self.dataset = Dataset(**{"id": DATASET, "title": "X", "source": source, "place": "fl", "topic": "t"} | fields)
        with self.ports.store.write() as records:
            records.catalog.put_topics([Topic("t", "T")])
        self.define()
        self.workspace = create_workspace(self.ports, "acme", ["fl-counties"], None)

    def copy(self, folder):
        """Give a publisher with the same past in another folder, so that tests can share how a story begins."""
        shutil.copytree(self.folder / "home", folder / "home")
        other = copy(self)
        other.folder, other.clock = folder, FixedClock(self.clock.now())
        other.ports = build_ports(Settings.of(home=folder / "home"), clock=other.clock)
        return other

    def define(self, **fields):
        """Change the dataset's definition."""
        self.dataset = replace(self.dataset, **fields)
        with self.ports.store.write() as records:
            records.catalog.put_dataset(self.dataset)

    def subscribe(self):
        """Let a new subscription include the dataset; gives its id."""
        return create_subscription(self.ports, self.workspace, Selection("fl", ("fl",), (), ())).id

    def check(self, content, name="state.csv"):
        """Check a state an hour later; gives the check."""
        self.clock.advance(hours=1)
        file = self.folder / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return work_one(self.ports, new_owner(), take_state(self.ports, DATASET, GivenState(file)).id)

    def outcome(self, content, name="state.csv"):
        """Check a state; gives its outcome and the version it made or left current."""
        done = self.check(content, name)
        return done.outcome, done.version

    def release(self):
        """Release the held version a minute later; gives its number."""
        self.clock.advance(minutes=1)
        return release_held(self.ports, DATASET).number

    def discard(self):
        """Discard the held version; gives its number."""
        return discard_held(self.ports, DATASET).number

    def replace_ids(self, named=None, key=()):
        """Replace all ids or those named, and build what that queues; gives each outcome and version."""
        self.clock.advance(minutes=1)
        return self.work(replace_ids(self.ports, DATASET, Replacement(named, key)))

    def release_again(self, number):
        """Take a version back and build what that queues; gives each outcome and version."""
        self.clock.advance(minutes=1)
        return self.work(release_again(self.ports, DATASET, number))

    def work(self, checks):
        """Build queued checks; gives each outcome and version."""
        done = [work_one(self.ports, new_owner(), check.id) for check in checks]
        return [(check.outcome, check.version) for check in done]

    def version(self, number):
        """Give a version in any status."""
        with self.ports.store.read() as records:
            return records.versions.get(DATASET, number)

    def refresh(self):
        """Tell when the source was last read and is due."""
        with self.ports.store.read() as records:
            return records.catalog.refresh(DATASET)

    def chain(self):
        """List released versions with the version that each follows, as subscribers see them."""
        with self.ports.store.read() as records:
            return [(version.number, version.previous_version) for version in records.versions.released(DATASET)]

    def log(self, subscription, *names):
        """Give a subscription's events: the type's last word, then the members of its data that are named."""
        with self.ports.store.read() as records:
            events = records.events.after(subscription, 0, 500)
        return [(event.type.rpartition(".")[2], *(event.data.get(name) for name in names)) for event in events]

    def rows(self, number, kind="snapshot"):
        """Read a version's rows with pyarrow."""
        version = self.version(number)
        files = [self.ports.files.local(f"{version.folder}/{file.path}") for file in version.files_of(kind)]
        return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]

    def ids(self, number, column):
        """Give the record id of each value of a column."""
        return {row[column]: row["_ploti_record_id"] for row in self.rows(number)}


def table(numbers, header="k,v", row="{0},x{0}"):
    """Write a CSV with a row for each number."""
    return "\n".join([header, *(row.format(number) for number in numbers)]) + "\n"
