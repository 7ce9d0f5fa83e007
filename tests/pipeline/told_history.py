"""Tells a random history to a publisher, and what came of it to the rules of `chain_rules.py`."""

import random
from dataclasses import replace
from hashlib import sha256

from tests.pipeline.chain_rules import Chain
from tests.pipeline.publishing import DATASET, Publisher
from tests.pipeline.random_source import SHAPE, VOLATILE, Source

from ploti_server.adapters.engine import DuckDBEngine
from ploti_server.domain.datasets import GeometryColumns, MatchingLimits, SourceSpec
from ploti_server.domain.replacements import Replacement, ReplacementRefused
from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.act import release_again, replace_ids
from ploti_server.pipeline.follow import last_sent
from ploti_server.pipeline.release import ReleaseRefused
from ploti_server.testing import MemoryStore

MEMORY_MB = 512


class Telling:
    """One telling of a history. With a `seed` rows, and columns where their order says nothing, come shuffled."""

    def __init__(self, history, folder, seed=None):
        self.source = Source(history)
        self.chance = None if seed is None else random.Random(seed)
        self.staff = random.Random(history.seed)
        geometry = GeometryColumns(wkt=SHAPE) if history.shapes else None
        self.publisher = Publisher(
            folder,
            MemoryStore() if history.stored == "memory" else None,
            source=SourceSpec("file", "x.csv", geometry=geometry, crs=("EPSG:4326",)),
            matching=MatchingLimits(agent=history.agent),
            volatile=(VOLATILE,) if history.volatile else (),
            key=self.source.key,
        )
        engine = DuckDBEngine(MEMORY_MB, 1 if seed is None else 2)
        self.publisher.ports = replace(self.publisher.ports, engine=engine)
        self.subscription = self.publisher.subscribe()
        self.chain = Chain(folder / "home" / "files", DATASET, volatile=(VOLATILE,))
        self.states, self.outcomes, self.known = {}, [], set()
        for number, step in enumerate(history.steps, 1):
            self._step(number, *step)
        self.log = self.events()

    def events(self):
        with self.publisher.ports.store.read() as records:
            return [(e.number, e.type, e.data) for e in records.events.after(self.subscription, 0, 500)]

    def files(self):
        """Give the checksum of every file of every version, those that were never sent among them."""
        root = self.publisher.folder / "home" / "files" / DATASET / "versions"
        found = (path for path in root.rglob("*") if path.is_file())
        return {str(path.relative_to(root)): sha256(path.read_bytes()).hexdigest() for path in found}

    def _step(self, number, acts, hold, staff):
        for name, seed in acts if number > 1 else ():
            getattr(self.source, name)(random.Random(seed))
        state = self.source.state(number)
        self.publisher.define(key=state.key)
        done = self.publisher.check(state.text(self.chance, self.known))
        assert done.outcome in ("released", "held", "unchanged"), (done.outcome, done.reason)
        self._came(done.outcome, done.version, state)
        if done.outcome == "unchanged" and "open" not in done.facts:
            self._look()
            self.chain.check_nothing_new(state)
        if done.outcome == "released":
            self._look()
            self.chain.check_something_new()
        if done.outcome == "held" and hold != "leave":
            getattr(self.publisher, hold)()
        self._look()
        if staff != "nothing":
            try:
                getattr(self, staff)()
            except (ReplacementRefused, ReleaseRefused) as refused:
                self.outcomes.append(str(refused).partition(":")[0])
            self._look()

    def _came(self, outcome, version, state):
        self.outcomes.append((outcome, version))
        if outcome in ("released", "held"):
            self.states[version] = replace(state, key=self.publisher.dataset.key)

    def _look(self):
        """Show the rules what subscribers see now."""
        with self.publisher.ports.store.read() as records:
            current = records.versions.current(DATASET)
            held = records.versions.in_status(DATASET, [VersionStatus.HELD])
        self.chain.look(self.events(), self.states, current and current.number, [one.number for one in held])
        self.known = set(self.chain.known)

    def _base(self):
        with self.publisher.ports.store.read() as records:
            held = records.versions.in_status(DATASET, [VersionStatus.HELD])
            return last_sent(records, DATASET), held[-1] if held else None

    def replace(self):
        self._replace(Replacement())

    def named(self):
        base, _ = self._base()
        ids = sorted(self.publisher.ids(base.number, "_ploti_record_id")) if base else []
        if ids:
            self._replace(Replacement(dict.fromkeys(self.staff.sample(ids, min(2, len(ids))))))

    def _replace(self, replacement):
        base, held = self._base()
        queued = replace_ids(self.publisher.ports, DATASET, replacement)
        self._built(queued, [base, held])

    def again(self):
        base, held = self._base()
        target = self.staff.choice([one for one in (base, held) if one is not None] or [None])
        if target is None:
            return
        queued = release_again(self.publisher.ports, DATASET, target.number)
        if target is base:
            self.chain.taken_back(base.number)
        self._built(queued, [target, held])

    def discard(self):
        self.publisher.discard()

    def _built(self, queued, of):
        for (outcome, version), built in zip(self.publisher.work(queued), of, strict=False):
            self._came(outcome, version, self.states[built.number])
