"""SIGKILL to sync at each named step and at random moments: never a half state, one more sync is enough (I1, D11.2)."""

import asyncio
import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from tests.e2e.forge import forging
from tests.e2e.independent import SyncedTable
from tests.e2e.killed_sync import inside
from tests.e2e.serving import Publisher, beside, serving, states_of

NAMES = ("fl_counties", "fl_courts")
STEPS = {
    "first-load": (
        "sync.manifest_read", "sync.part_downloaded", "sync.links_renewed", "sync.opened", "sync.rows_written",
        "sync.before_commit", "sync.after_commit", "sync.cursor_stored", "sync.events_read",
    ),
    "changes": (
        "sync.events_read", "sync.part_downloaded", "sync.links_renewed", "sync.opened", "sync.rows_written",
        "sync.before_commit", "sync.after_commit", "sync.cursor_stored",
    ),
    "major-reload": (
        "sync.events_read", "sync.part_downloaded", "sync.links_renewed", "sync.opened", "sync.rows_written",
        "sync.before_commit", "sync.after_commit", "sync.cursor_stored",
    ),
}  # fmt: skip
PUBLISHED = {"first-load": (2, 4), "changes": (2, 4, 3, 6), "major-reload": (3, 6, 4, 7)}
"""States of the counties and courts; the first two are in the target already, but for a first load."""
KILLS = {"first-load": 14, "changes": 13, "major-reload": 13}
COMMAND_KILLS = 10
INSIDE_LEAST = 30
MORE_MOST = 40
"""Kills beyond the fifty, on a machine so busy that too few of those fell inside a download or a transaction."""
LINGER = 0.06
PIECES = 6
PAUSE = 0.02


class Awkward:
    """The API, its files coming in slow pieces or its links expired at every other try, where a test asks for it."""

    def __init__(self, api):
        self.api, self.slow, self.expiring, self.tries = api, False, False, Counter()

    async def __call__(self, scope, receive, send):
        is_file = scope["type"] == "http" and scope["path"].startswith("/v1/files/")
        if is_file and self.expiring:
            self.tries[scope["path"]] += 1
            if self.tries[scope["path"]] % 2:
                await send({"type": "http.response.start", "status": 403, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        await self.api(scope, receive, self._slowly(send) if is_file and self.slow else send)

    def _slowly(self, send):
        async def sent(message):
            body = message.get("body", b"")
            size = -(-len(body) // PIECES) or 1
            pieces = [body[at : at + size] for at in range(0, len(body), size)] or [body]
            if message["type"] != "http.response.body":
                await send(message)
                return
            for at, piece in enumerate(pieces):
                await asyncio.sleep(PAUSE)
                more = message.get("more_body", False) or at + 1 < len(pieces)
                await send({"type": "http.response.body", "body": piece, "more_body": more})

        return sent


class Stage:
    """A publisher, a subscription, and a target that has some of it, ready to be synced and killed."""

    def __init__(self, name, folder, ordered):
        self.folder, self.ordered = folder, ordered
        self.publisher = Publisher(folder / "home", NAMES)
        self.subscription = self.publisher.subscribe()
        self.states = {history: states_of(history) for history in NAMES}
        self.done = Counter()
        self.newest = {}
        self.moments = random.Random(f"{name}:{time.time_ns()}")

    def publish(self, *counts):
        for history, count in zip(NAMES, counts, strict=True):
            for state in self.states[history][self.done[history] : count]:
                self.newest[history] = self.publisher.publish(history, state) or self.newest[history]
            self.done[history] = count

    def order(self, database, **more):
        """Have the database synced; gives the wait status and what was reached."""
        trace = database.with_suffix(".trace")
        trace.unlink(missing_ok=True)
        order = {"database": str(database), "url": self.url, "key": self.publisher.key, "trace": str(trace)}
        status = self.ordered(order | {"subscription": self.subscription} | more)
        return status, trace.read_text().split() if trace.exists() else []

    def target(self, folder):
        """A fresh copy of the target as it was before."""
        folder.mkdir(parents=True, exist_ok=True)
        database = folder / "target.duckdb"
        if self.before is not None:
            database.write_bytes(self.before)
        return database

    def check_whole(self, database):
        """Every table is a released version's snapshot, and says so; nothing else is there. Counts the tables."""
        if not database.exists():
            return 0
        with duckdb.connect(str(database), read_only=True) as db:
            tables = {row[0] for row in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
            books = tables & {"_ploti_sync", "_ploti_datasets"}
            held = (
                db.execute("SELECT dataset_id FROM _ploti_datasets WHERE loaded_version IS NOT NULL") if books else None
            )
            loaded = {row[0] for row in held.fetchall()} if held else set()
        assert len(books) in (0, 2)
        assert tables - books == loaded
        for dataset_id in loaded:
            table = SyncedTable(database, dataset_id)
            table.check_equals(self.publisher.published(dataset_id.removeprefix("ds_"), table.version))
        return len(loaded)

    def check_one_more_sync(self, database):
        """Once more is enough: every table equals the newest snapshot, and nothing is left lying about."""
        status, _ = self.order(database)
        assert status is None
        self.check_newest(database)
        assert not list(database.parent.glob("*.downloads")) + list(database.parent.glob("*.new"))

    def check_newest(self, database):
        for history, number in self.newest.items():
            table = SyncedTable(database, f"ds_{history}")
            assert (table.version, table.state) == (number, "ok")
            table.check_equals(self.publisher.published(history, number))


@pytest.fixture(scope="module")
def ordered():
    with forging("tests.e2e.killed_sync") as ordered:
        yield ordered


@pytest.fixture(scope="module")
def stages(ordered, tmp_path_factory):
    """Makes a stage at its first use, and stops serving all of them in the end."""
    made, open_ones = {}, []

    def stage(name):
        if name not in made:
            one = made[name] = Stage(name, tmp_path_factory.mktemp(name), ordered)
            context = serving(one.publisher, lambda api: one.__dict__.setdefault("api", Awkward(api)))
            one.url = context.__enter__()
            open_ones.append(context)
            _prepare(one, PUBLISHED[name])
        return made[name]

    yield stage
    for context in open_ones:
        context.__exit__(None, None, None)


def _prepare(stage, published):
    stage.publish(*published[:2])
    stage.before = None
    if len(published) > 2:
        database = stage.target(stage.folder / "before")
        assert stage.order(database)[0] is None
        stage.before = database.read_bytes()
        stage.publish(*published[2:])
    stage.api.expiring = True
    unharmed = stage.target(stage.folder / "unharmed")
    status, stage.trace = stage.order(unharmed)
    stage.api.expiring = False
    assert status is None
    stage.check_newest(unharmed)


@pytest.mark.parametrize("name", STEPS)
def test_every_named_step_of_sync_is_killed_here(stages, name):
    assert {step for step in stages(name).trace if step.startswith("sync.")} == set(STEPS[name])


@pytest.mark.parametrize(("name", "step"), [(name, step) for name, steps in STEPS.items() for step in steps])
def test_a_sync_killed_at_a_step_leaves_whole_tables_and_once_more_is_enough(stages, tmp_path, name, step):
    """At the first arrival at the step and at the last, where that is another one."""
    stage = stages(name)
    for hit in sorted({1, stage.trace.count(step)}):
        database = stage.target(tmp_path / str(hit))
        stage.api.expiring, stage.api.tries = True, Counter()
        status, trace = stage.order(database, step=step, hit=hit)
        stage.api.expiring = False
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        assert trace[-1] == step
        stage.check_whole(database)
        stage.check_one_more_sync(database)


def test_a_sync_killed_at_random_moments_leaves_whole_tables_and_once_more_is_enough(stages, tmp_path):
    killed, begun = Counter(), time.monotonic()
    for name, count in KILLS.items():
        with _slow(stages(name)) as stage:
            seconds = _duration(stage, tmp_path / name)
            for at in range(count):
                killed.update(_kill_at_random(stage, tmp_path / name / str(at), seconds))
    with _slow(stages("changes")) as stage:
        seconds = _command_duration(stage, tmp_path / "command")
        for at in range(COMMAND_KILLS):
            killed.update(_kill_command_at_random(stage, tmp_path / "command" / str(at), seconds))
        seconds = _duration(stage, tmp_path / "more")
        for at in range(MORE_MOST):
            if _inside(killed) < INSIDE_LEAST:
                killed.update(_kill_at_random(stage, tmp_path / "more" / str(at), seconds))
    told = ", ".join(f"{count} {where}" for where, count in sorted(killed.items()))
    print(f"\nsyncs killed at random moments: {told}; {time.monotonic() - begun:.0f} s")
    assert killed["forked"] >= sum(KILLS.values())
    assert killed["command"] == COMMAND_KILLS
    assert _inside(killed) >= INSIDE_LEAST
    assert killed["in a transaction"] > 0


def _inside(killed):
    return killed["in a download"] + killed["in a transaction"]


@contextmanager
def _slow(stage):
    stage.api.slow = True
    try:
        yield stage
    finally:
        stage.api.slow = False


def _duration(stage, folder):
    started = time.monotonic()
    assert stage.order(stage.target(folder / "unharmed"), linger=LINGER)[0] is None
    return time.monotonic() - started


def _kill_at_random(stage, folder, most):
    """Kill a sync at some moment of its run; one that ended before that is begun again."""
    while True:
        database = stage.target(folder)
        status, trace = stage.order(database, linger=LINGER, seconds=stage.moments.uniform(0, most))
        if status is not None:
            break
        database.unlink()
        most *= 0.9
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    return ["forked", _check_killed(stage, database, inside(trace))]


def _check_killed(stage, database, where):
    stage.check_whole(database)
    stage.api.slow = False
    stage.check_one_more_sync(database)
    stage.api.slow = True
    return f"in a {where}" if where else "elsewhere"


def _command(stage, database):
    """Start `ploti sync` itself."""
    environment = os.environ | {"PLOTI_API_URL": stage.url, "PLOTI_API_KEY": stage.publisher.key}
    to = ["--to", f"duckdb:///{database}", "--on-major", "apply", "--json"]
    line = [beside("ploti"), "sync", stage.subscription, *to]
    return subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _command_duration(stage, folder):
    started = time.monotonic()
    with _command(stage, stage.target(folder / "unharmed")) as process:
        assert process.wait(timeout=60) == 0, process.stderr.read()
    return time.monotonic() - started


def _kill_command_at_random(stage, folder, most):
    """Kill the command once it works on its target; whether that was in a download its part files tell."""
    while True:
        database = stage.target(folder)
        lock = database.with_name("target.duckdb.sync-lock")
        with _command(stage, database) as process:
            while not lock.exists() and process.poll() is None:
                time.sleep(0.002)
            try:
                process.wait(timeout=stage.moments.uniform(0, most))
            except subprocess.TimeoutExpired:
                process.kill()
        if process.returncode == -signal.SIGKILL:
            break
        assert process.returncode == 0
        lock.unlink()
        most *= 0.7
    partial = list(Path(folder).glob("*.downloads/*.partial"))
    return ["command", _check_killed(stage, database, "download" if partial else None)]
