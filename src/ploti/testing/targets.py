"""The suite that every sync target passes: stories synced step by step, at the end only, and killed on the way.

Give a `Kit` for the target; read its rows there with the database's own means, never with the target's code.
"""

import os
import signal
from collections.abc import Callable
from typing import Final, Protocol

from ploti._client import Client
from ploti._http import Retries
from ploti.contract.digest import Value
from ploti.sync.download import Downloads
from ploti.sync.loop import Repaired, SyncReport, repair, sync, verify
from ploti.sync.target import Reach, Target, reach_nothing
from ploti.testing.feed import SUBSCRIPTION, Feed
from ploti.testing.stories import PERMITS, STORIES, ZONES, A, B, Expected, Story, permits, zones

__all__ = ["STORIES", "Kit", "check_killed", "check_repaired", "check_rows", "check_story", "steps_of", "sync_feed"]

_QUICK: Final = Retries(attempts=2, first_wait=0.0, longest_wait=0.0)


class Kit(Protocol):
    """A fresh database for one test."""

    def open(self, reach: Reach) -> Target:
        """Give the target on the database."""

    def rows(self, dataset_id: str) -> dict[str, dict[str, Value]]:
        """Read a table by record id, own columns only, as Python values; shapes as WKB, times in UTC."""


def sync_feed(feed: Feed, kit: Kit, reach: Reach = reach_nothing) -> SyncReport:
    """Sync a feed into a kit's database, without waiting between retries."""
    target = kit.open(reach)
    with Client(**feed.api.client_options, retries=_QUICK) as client:
        downloads = Downloads(client, target.downloads, reach=reach, sleep=lambda _: None)
        return sync(client, SUBSCRIPTION, target, reach=reach, downloads=downloads)


def check_story(story: Story, kit: Kit, *, each_time: bool = True) -> None:
    """Sync at each turn of a story, or at its end only, and check what the database holds then."""
    feed, expected = Feed(), None
    for expected in story(feed):
        if each_time:
            sync_feed(feed, kit)
            _check_all(feed, kit, expected)
    assert expected is not None, "the story ended before it began"
    sync_feed(feed, kit)
    _check_all(feed, kit, expected if each_time else None)
    with Client(**feed.api.client_options) as client:
        held = kit.open(reach_nothing).state().datasets
        for found in verify(client, kit.open(reach_nothing)):
            if held[found.dataset_id].followed:
                assert found.equal, found


def _check_all(feed: Feed, kit: Kit, expected: Expected | None) -> None:
    held = kit.open(reach_nothing).state().datasets
    if expected is not None:
        assert {name: (each.version, each.state) for name, each in held.items()} == expected
    for name, each in held.items():
        if each.version is not None:
            check_rows(feed, kit, name, each.version)


def check_rows(feed: Feed, kit: Kit, dataset_id: str, version: int) -> None:
    """Check a table against the snapshot of a version, value by value (I1)."""
    found = kit.rows(dataset_id)
    wanted = feed.snapshots[dataset_id][version]
    columns = [column["name"] for column in wanted.schema["columns"]]
    assert found.keys() == wanted.rows.keys()
    for id_, row in wanted.rows.items():
        assert found[id_] == {name: row.get(name) for name in columns}, f"{dataset_id} {id_}"


def check_repaired(kit: Kit, spoil: Callable[[str], object]) -> Repaired:
    """Sync, spoil rows of a table with `spoil(dataset_id)`, repair, and check every table; gives what was done."""
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(60)))
    feed.add(B, ZONES, zones(*range(5)))
    sync_feed(feed, kit)
    feed.update(A, put=permits(70))
    sync_feed(feed, kit)
    spoil(A)
    target = kit.open(reach_nothing)
    with Client(**feed.api.client_options, retries=_QUICK) as client:
        found = {each.dataset_id: each for each in verify(client, target)}
        assert found[A].buckets, "the spoilt rows were not found"
        assert found[B].equal
        done = {each.after.dataset_id: each for each in repair(client, target)}
        assert done[A].before.buckets == found[A].buckets
        assert done[B].moved is None
        check_rows(feed, kit, A, 2)
        check_rows(feed, kit, B, 1)
        assert all(each.equal for each in verify(client, target))
        assert [each.moved for each in repair(client, target)] == [None, None]
    return done[A]


def steps_of(story: Story, kit: Kit) -> list[str]:
    """Name the steps that syncing a story reaches, in order, with repeats."""
    reached: list[str] = []
    feed = Feed()
    for _ in story(feed):
        sync_feed(feed, kit, reached.append)
    return reached


def check_killed(story: Story, kit: Kit, step: str, hit: int) -> None:
    """Kill a sync of a story at the `hit`-th time that it reaches a step.

    Each table is then that of its loaded version as before, and the next sync ends at the right tables.
    """
    feed, left = Feed(), hit
    for expected in story(feed):
        if left > 0:
            left = _in_child(feed, kit, step, left)
            _check_all(feed, kit, None)
        sync_feed(feed, kit)
        _check_all(feed, kit, expected)
    assert left == 0, f"{step} was reached {hit - left} times only"


def _in_child(feed: Feed, kit: Kit, step: str, left: int) -> int:
    """Sync in a forked child that kills itself at a step; gives how many hits are still to come."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _sync_and_die(feed, kit, _killer(step, left, writing))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        seen = len(pipe.read())
    status = os.waitpid(child, 0)[1]
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed == (seen == left), "the child ended by itself before the step, or in trouble"
    return left - seen


def _killer(step: str, left: int, pipe: int) -> Reach:
    seen = 0

    def reached(name: str) -> None:
        nonlocal seen
        if name == step:
            seen += 1
            os.write(pipe, b".")
            if seen == left:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached


def _sync_and_die(feed: Feed, kit: Kit, reach: Reach) -> None:
    """Sync in the child and leave without running anything of the parent's."""
    code = 1
    try:
        sync_feed(feed, kit, reach)
        code = 0
    finally:
        os._exit(code)
