"""Random histories of a real publisher, followed into every kind of target through faults: each table is a version's.

Syncs are killed at their named steps, answers fail or break off, links expire, two syncs meet, and some are left out
for a while. After each the table is the snapshot of its loaded version, value by value; at the end one more sync is
enough.
"""

import json
import os
import random
import signal
import sqlite3
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from tests.e2e.forge import forging
from tests.e2e.independent import PublishedVersion, folders
from tests.e2e.serving import serving
from tests.pipeline.publishing import DATASET
from tests.pipeline.random_source import histories
from tests.pipeline.told_history import Telling
from tests.sync.test_sync_consumers import KITS

from ploti_server.domain.settings import Settings
from ploti_server.pipeline.workspaces import create_key

pytestmark = pytest.mark.goals
HISTORIES = 30
STEPS = (
    "sync.manifest_read", "sync.events_read", "sync.links_renewed", "sync.part_downloaded", "sync.opened",
    "sync.staged", "sync.rows_written", "sync.before_commit", "sync.after_commit", "sync.cursor_stored",
)  # fmt: skip
ACTS = ("skip", "plain", "troubled", "troubled", "killed", "killed", "killed", "troubled and killed", "two at once")
FAULTS = {"file": ("expired link", "gone", "failing", "busy", "cut"), "call": ("failing", "busy", "too many", "cut")}
ANSWERS = {
    "expired link": (403, "not_allowed"),
    "gone": (410, "expired"),
    "failing": (500, "internal_error"),
    "busy": (503, "plan_unavailable"),
    "too many": (429, "rate_limited"),
    "expired cursor": (410, "expired"),
}


class Cut(Exception):
    """An answer breaks off."""


class Troubled:
    """The API, of which a `share` of all answers fail or break off."""

    def __init__(self, api):
        self.api, self.share, self.chance, self.told = api, 0.0, random.Random(), Counter()

    async def __call__(self, scope, receive, send):
        if self.chance.random() >= self.share:
            await self.api(scope, receive, send)
            return
        path = scope["path"]
        faults = FAULTS["file" if path.startswith("/v1/files/") else "call"]
        fault = self.chance.choice((*faults, "expired cursor") if path.endswith("/events") else faults)
        self.told[fault] += 1
        if fault == "cut":
            try:
                await self.api(scope, receive, self._cutting(send))
            except Cut:
                return
        else:
            status, code = ANSWERS[fault]
            body = json.dumps({"error": {"code": code, "message": "Trouble: try again."}}).encode()
            headers = [(b"content-type", b"application/json"), (b"retry-after", b"0")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    def _cutting(self, send):
        async def sent(message):
            body = message.get("body", b"")
            if message["type"] == "http.response.body" and body:
                await send(message | {"body": body[: len(body) // 2], "more_body": True})
                raise Cut
            await send(message)

        return sent


class Follower:
    """One target, and what happens to the syncs into it."""

    def __init__(self, name, kit, tally):
        self.name, self.kit, self.tally = name, kit, tally

    @property
    def address(self):
        if self.name == "postgresql":
            return f"{self.kit.url}&schema={self.kit.schema}"
        return f"{'sqlite' if self.name == 'geopackage' else self.name}:///{self.kit.path}"

    def held(self):
        """The loaded version and the state, read from the target's own books; None where nothing was loaded."""
        query = f"SELECT loaded_version, state FROM _ploti_datasets WHERE dataset_id = '{DATASET}'"
        if self.name == "postgresql":
            with psycopg.connect(self.kit.url) as db:
                there = db.execute("SELECT to_regclass(%s)", [f"{self.kit.schema}._ploti_datasets"]).fetchone()[0]
                query = query.replace("_ploti_datasets", f"{self.kit.schema}._ploti_datasets")
                found = db.execute(query.encode()).fetchone() if there else None
        elif self.name == "parquet":
            book = self.kit.path / DATASET / "current" / "_ploti.json"
            held = json.loads(book.read_text(encoding="utf-8"))["held"] if book.exists() else {}
            found = (held["version"], held["state"]) if held else None
        elif not self.kit.path.exists():
            found = None
        elif self.name == "duckdb":
            with duckdb.connect(str(self.kit.path), read_only=True) as db:
                there = db.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = '_ploti_datasets'").fetchone()
                found = db.execute(query).fetchone() if there else None
        else:
            with closing(sqlite3.connect(f"file:{self.kit.path}?mode=ro", uri=True)) as db:
                there = db.execute("SELECT 1 FROM sqlite_master WHERE name = '_ploti_datasets'").fetchone()
                found = db.execute(query).fetchone() if there else None
        return found if found and found[0] is not None else None

    def check_whole(self, files):
        """The table is the snapshot of its loaded version, volatile columns aside."""
        held = self.held()
        if held is None:
            return None
        published = PublishedVersion(folders(files, DATASET)[held[0]])
        own = set(published.own)
        rows = {
            id_: {name: value for name, value in row.items() if name in own}
            for id_, row in self.kit.rows(DATASET).items()
        }
        due = {id_: {name: _utc(value) for name, value in row.items()} for id_, row in published.rows().items()}
        assert rows == due
        self.tally["tables compared"] += 1
        return held


def _utc(value):
    return value.astimezone(UTC) if isinstance(value, datetime) else value


class Followed(Telling):
    """A history that is told on a real clock, with its API served, and followed by each target after each step."""

    def __init__(self, history, folder, stack, ordered, followers, tally):
        self.stack, self.ordered, self.followers, self.tally = stack, ordered, followers, tally
        self.chances = random.Random(history.seed)
        self.url = None
        super().__init__(history, folder)
        self.finish()

    def _step(self, number, *step):
        if self.url is None:
            self._serve()
        self.publisher.clock.set(max(datetime.now(UTC), self.publisher.clock.now()))
        super()._step(number, *step)
        for follower in self.followers:
            self._follow(follower, self.chances.choice(ACTS))

    def _serve(self):
        self.publisher.settings = replace(
            Settings.of(home=self.publisher.folder / "home", environment={}),
            requests_per_minute=1_000_000,
            strict_requests_per_minute=1_000_000,
        )
        self.key = create_key(self.publisher.ports, "acme", "reader", "admin").text
        self.files = self.publisher.folder / "home" / "files"

        def troubled(api):
            self.api = Troubled(api)
            return self.api

        self.url = self.stack.enter_context(serving(self.publisher, troubled))

    def _order(self, follower, ordered=None, **more):
        trace = self.publisher.folder / f"{follower.name}-{len(more)}.trace"
        trace.unlink(missing_ok=True)
        order = {"target": follower.address, "url": self.url, "key": self.key, "trace": str(trace), "first_wait": 0.01}
        return (ordered or self.ordered[0])(order | {"subscription": self.subscription} | more)

    def _follow(self, follower, act):
        self.tally[act] += 1
        if act == "skip":
            return
        self.api.share = 0.25 if "troubled" in act else 0.0
        killed = self._kill(follower) if "killed" in act else {}
        if act == "two at once":
            self._two_at_once(follower)
        else:
            status = self._order(follower, **killed)
            code = 0 if status is None else os.waitstatus_to_exitcode(status)
            assert code in (0, 1, -signal.SIGKILL)
            assert code != -signal.SIGKILL or killed
            if code == -signal.SIGKILL:
                self.tally[follower.name, killed["step"], killed["hit"]] += 1
        self.tally.update(self.api.told)
        self.api.told.clear()
        self.api.share = 0.0
        follower.check_whole(self.files)

    def _kill(self, follower):
        """Choose the step and hit at which killing this kind of target was tried least so far."""
        tries = [(self.tally["tried", follower.name, step, hit], step, hit) for step in STEPS for hit in (1, 2)]
        _, step, hit = min(tries)
        self.tally["tried", follower.name, step, hit] += 1
        return {"step": step, "hit": hit}

    def _two_at_once(self, follower):
        ended = []
        beside = threading.Thread(
            target=lambda: ended.append(self._order(follower, self.ordered[1], linger=0.05, second=True))
        )
        beside.start()
        ended.append(self._order(follower, linger=0.05))
        beside.join()
        codes = [0 if status is None else os.waitstatus_to_exitcode(status) for status in ended]
        assert set(codes) <= {0, 1}
        assert 0 in codes or self._is_taken_back

    @property
    def _is_taken_back(self):
        """Whether the newest version that was sent was taken back, so that a target may be left with it."""
        return not self.chain.sent or self.chain.sent[-1].number in self.chain.again

    def finish(self):
        """One more sync is enough: each table is the newest version."""
        for follower in self.followers:
            status = self._order(follower)
            held = follower.check_whole(self.files)
            if not self._is_taken_back:
                assert status is None
                assert held == (self.chain.sent[-1].number, "ok")
            self.tally["ends"] += 1


def test_every_table_is_a_version_whatever_happens(postgres_database, monkeypatch, tmp_path, record_property):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tally = Counter()
    with forging("tests.e2e.killed_sync") as one, forging("tests.e2e.killed_sync") as other:

        @settings(max_examples=HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))
        @given(history=histories())
        def follow(history):
            tally["histories"] += 1
            schema = f"feeds_{tally['histories']}"
            with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
                kits = {kind: Kit(Path(name)) for kind, Kit in KITS.items() if kind != "postgresql"}
                kits["postgresql"] = KITS["postgresql"](postgres_database, schema)
                followers = [Follower(kind, kit, tally) for kind, kit in kits.items()]
                Followed(replace(history, stored="memory"), Path(name), stack, (one, other), followers, tally)

        follow()
    kills = {key: count for key, count in tally.items() if isinstance(key, tuple) and key[0] in KITS}
    for kind in KITS:
        own = {step for name, step, _ in kills if name == kind}
        record_property(
            "figure", f"{kind}: {sum(n for k, n in kills.items() if k[0] == kind)} kills at {len(own)} steps"
        )
    told = ", ".join(f"{count:,} {what}" for what, count in tally.items() if isinstance(what, str))
    record_property("figure", told)
