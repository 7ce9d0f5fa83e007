"""Random histories of states, holds, replaced ids and versions released again, and a plain subscriber (I3 to I7).

The subscriber keeps rows by id from the files alone, as page 001 tells it to.
"""

import json
import random
from dataclasses import dataclass, field

import pytest
from tests.pipeline.publishing import DATASET, Publisher

from ploti_server.domain.replacements import Replacement, ReplacementRefused
from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.act import release_again, replace_ids
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.follow import last_sent
from ploti_server.pipeline.release import ReleaseRefused
from ploti_server.pipeline.trace import trace
from ploti_server.worker import new_owner, work_one

pytestmark = pytest.mark.goals
OWN = ("k", "v", "w")
ACTS = ("state", "state", "doubled", "release", "discard", "replace", "named", "again", "work")


@dataclass
class Subscriber:
    """Rows by record id, the version they are of, and how far the log was read."""

    publisher: Publisher
    subscription: str
    rows: dict = field(default_factory=dict)
    version: int | None = None
    read: int = 0
    ids_of_keys: dict = field(default_factory=dict)

    def follow(self):
        with self.publisher.ports.store.read() as records:
            events = records.events.after(self.subscription, self.read, 500)
        for event in events:
            self.read = event.number
            number = event.data.get("version")
            if number is None or (self.version is not None and number <= self.version):
                continue
            if self._version(number).status is VersionStatus.RELEASED_AGAIN:
                continue
            if event.type == "feed.dataset.updated" and event.data["previousVersion"] == self.version:
                self._apply(number)
            elif event.type in ("feed.dataset.updated", "feed.dataset.resync_required"):
                self._load(number)

    def _version(self, number):
        return self.publisher.version(number)

    def _load(self, number):
        version, before = self._version(number), self.rows
        rows = {row["_ploti_record_id"]: self._own(row) for row in self.publisher.rows(number)}
        if version.record_ids_changed and version.previous_version == self.version:
            read = self.publisher.rows(number, "id-map")
            moved = {row["_ploti_previous_record_id"]: row["_ploti_record_id"] for row in read}
            assert len(moved) == len(set(moved.values())) == len(read)
            assert moved.keys() <= before.keys()
            assert set(moved.values()) <= rows.keys()
            before = {moved[id_]: row for id_, row in before.items() if id_ in moved}
            assert not (rows.keys() - moved.values()) & self.rows.keys()
        elif version.previous_version == self.version:
            assert version.resync_reason in ("previous_unavailable", "schema_changed", "first_version")
        if version.previous_version == self.version:
            self._check_kept(before, rows)
        self.rows, self.version = rows, number

    def _check_kept(self, before, rows):
        """A key that is whole and unique on both sides keeps its id, or the one that the map gives it (I7)."""
        old, new = _unique(before), _unique(rows)
        for key in old.keys() & new.keys():
            assert old[key] == new[key]

    def _apply(self, number):
        before = dict(self.rows)
        changes = self.publisher.rows(number, "changes")
        for row in changes:
            id_ = row["_ploti_record_id"]
            if row["_ploti_op"] == "delete":
                del self.rows[id_]
            else:
                assert (id_ in self.rows) == (row["_ploti_change"] == "changed")
                self.rows[id_] = self._own(row)
        for row in self.publisher.rows(number, "backfill"):
            self._set(row.pop("_ploti_record_id"), row)
        version = self._version(number)
        told = json.loads(b"".join(self.publisher.ports.files.read(f"{version.folder}/manifest.json")))
        for id_ in self.rows:
            self._set(id_, told["constants"])
        assert self.rows == {row["_ploti_record_id"]: self._own(row) for row in self.publisher.rows(number)}
        self._check_kept(before, self.rows)
        self.version = number

    def _set(self, id_, values):
        self.rows[id_] = tuple((dict(zip(OWN, self.rows[id_], strict=True)) | values).values())

    @staticmethod
    def _own(row):
        return tuple(row.get(name) for name in OWN)


def _unique(rows):
    keys = {}
    for id_, (key, *_) in rows.items():
        keys.setdefault(key, []).append(id_)
    return {key: ids[0] for key, ids in keys.items() if len(ids) == 1 and key is not None}


class Walk:
    """A dataset to which random things happen."""

    def __init__(self, folder, seed):
        self.chance = random.Random(seed)
        self.publisher = Publisher(folder, key=("k",))
        self.subscriber = Subscriber(self.publisher, self.publisher.subscribe())
        self.cells = {f"k{number}": f"v{number}" for number in range(6)}
        self.sent = []

    def step(self):
        act = self.chance.choice(ACTS)
        try:
            getattr(self, act)()
        except (ReleaseRefused, ReplacementRefused):
            return
        self.check()

    def work(self):
        while work_one(self.publisher.ports, new_owner()) is not None:
            pass

    def state(self, extra=""):
        for key in self.chance.sample(sorted(self.cells), min(2, len(self.cells))):
            self.cells[key] = f"v{self.chance.randrange(9)}"
        if self.chance.random() < 0.5 and len(self.cells) > 3:
            del self.cells[self.chance.choice(sorted(self.cells))]
        self.cells[f"k{self.chance.randrange(12)}"] = "new"
        lines = [f"{key},{value}" for key, value in self.cells.items()]
        self.chance.shuffle(lines)
        self.publisher.clock.advance(hours=1)
        file = self.publisher.folder / "state.csv"
        wide = self.chance.random() < 0.2
        ends = [",1" if wide else "" for _ in lines]
        text = ("k,v,w\n" if wide else "k,v\n") + "".join(f"{a}{b}\n" for a, b in zip(lines, ends, strict=True)) + extra
        file.write_text(text)
        self._take(file)

    def _take(self, file):
        take_state(self.publisher.ports, DATASET, GivenState(file))
        if self.chance.random() < 0.8:
            self.work()

    def doubled(self):
        self.state(f"{next(iter(self.cells))},again\n")

    def release(self):
        self.publisher.release()

    def discard(self):
        self.publisher.discard()

    def replace(self):
        replace_ids(self.publisher.ports, DATASET, Replacement())
        self._later()

    def named(self):
        with self.publisher.ports.store.read() as records:
            base = last_sent(records, DATASET)
        ids = sorted(self.publisher.ids(base.number, "_ploti_record_id")) if base else []
        if ids:
            named = dict.fromkeys(self.chance.sample(ids, min(2, len(ids))))
            replace_ids(self.publisher.ports, DATASET, Replacement(named))
            self._later()

    def again(self):
        with self.publisher.ports.store.read() as records:
            held = records.versions.in_status(DATASET, [VersionStatus.HELD])
            base = last_sent(records, DATASET)
        target = self.chance.choice([one for one in (*held, base) if one is not None] or [None])
        if target is not None:
            release_again(self.publisher.ports, DATASET, target.number)
            self._later()

    def _later(self):
        if self.chance.random() < 0.7:
            self.work()

    def check(self):
        with self.publisher.ports.store.read() as records:
            found = records.versions.in_status(DATASET, list(VersionStatus))
            current = records.versions.current(DATASET)
        sent = [version for version in found if version.released_at is not None]
        for before, version in zip([None, *sent], sent, strict=False):
            assert version.previous_version == (before and before.number)
            if before is not None and before.status is VersionStatus.RELEASED_AGAIN:
                assert version.resync_reason is not None
        released = [version for version in sent if version.status is VersionStatus.RELEASED]
        assert current == (released[-1] if released else None)
        again = [version for version in sent if version.status is VersionStatus.RELEASED_AGAIN]
        assert all(version.number <= sent[-1].number for version in again)
        assert len([version for version in found if version.status is VersionStatus.HELD]) <= 1
        self.subscriber.follow()

    def end(self):
        self.work()
        self.check()
        with self.publisher.ports.store.read() as records:
            base = last_sent(records, DATASET)
            assert records.checks.open_of(DATASET) == ()
        if base is not None and base.status is VersionStatus.RELEASED:
            assert self.subscriber.version == base.number
            for id_ in list(self.subscriber.rows)[:2]:
                traced = trace(self.publisher.ports, DATASET, id_)
                assert (traced.status, traced.current_id, traced.last_version) == ("current", id_, base.number)


@pytest.mark.parametrize("seed", range(60))
def test_a_subscriber_keeps_up_with_whatever_staff_do(seed, tmp_path):
    walk = Walk(tmp_path, seed)
    for _ in range(14):
        walk.step()
    walk.end()
