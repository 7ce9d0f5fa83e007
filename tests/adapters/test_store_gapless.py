"""Each log is gapless, and nobody sees a later event before an earlier one (D7.2, I2), whoever writes and reads."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.adapters import appending
from tests.adapters.store_rows import HOUR, NOW, WORKSPACE, check, dataset, event, subscription

from ploti_server.adapters.store import open_store


@pytest.fixture
def opened(store_url):
    store = open_store(store_url)
    with store.write() as records:
        records.workspaces.put(WORKSPACE)
        for name in ("ds_a", "ds_b", "ds_c"):
            records.catalog.put_dataset(dataset(name))
        for name in ("sub_1", "sub_2"):
            records.subscriptions.put(subscription(name))
    yield store
    store.close()


class Follower:
    """Polls a log as a consumer does, from its own cursor, until it is told to stop."""

    def __init__(self, store, subscription_id):
        self.store, self.subscription_id = store, subscription_id
        self.seen = []
        self.stop = threading.Event()

    def run(self):
        while True:
            last = self.stop.is_set()
            with self.store.read() as records:
                newest = records.events.newest(self.subscription_id)
                cursor = self.seen[-1] if self.seen else 0
                page = records.events.after(self.subscription_id, cursor, 50)
                assert [e.number for e in page] == list(range(cursor + 1, min(newest, cursor + 50) + 1))
            self.seen += [e.number for e in page]
            if last and not page:
                return self.seen


class OutOfOrder:
    """A log that a sequence could give: event 2 is committed before event 1."""

    @contextmanager
    def read(self):
        yield SimpleNamespace(
            events=SimpleNamespace(newest=lambda _: 2, after=lambda *_: (SimpleNamespace(number=2),)),
        )


def test_follower_notices_a_later_event_before_an_earlier_one():
    with pytest.raises(AssertionError):
        Follower(OutOfOrder(), "sub_1").run()


def follow_while(store, work):
    """Do the work under four followers; gives what they saw and what the work gave."""
    followers = [Follower(store, f"sub_{n % 2 + 1}") for n in range(4)]
    with ThreadPoolExecutor(len(followers)) as pool:
        following = [pool.submit(follower.run) for follower in followers]
        try:
            result = work()
        finally:
            for follower in followers:
                follower.stop.set()
        return [future.result() for future in following], result


def test_threads_append_with_aborts(opened):
    def work():
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda seed: appending.append(opened, seed, 30), range(4)))

    seen, written = follow_while(opened, work)
    for name, followed in (("sub_1", seen[0::2]), ("sub_2", seen[1::2])):
        committed = [numbers for one in written for numbers in one[name]]
        whole = list(range(1, len(committed) + 1))
        assert sorted(committed) == whole
        assert all(one[name] == sorted(one[name]) for one in written)
        assert followed == [whole, whole]


def test_processes_append_with_aborts(opened, store_url):
    command = [sys.executable, appending.__file__, store_url]

    def work():
        writers = [
            subprocess.Popen([*command, str(seed), "40"], cwd=Path(__file__).parents[2], env={"PYTHONPATH": "src:."})
            for seed in range(2)
        ]
        return [writer.wait(120) for writer in writers]

    seen, codes = follow_while(opened, work)
    assert codes == [0, 0]
    for one in seen:
        assert len(one) > 30
        assert one == list(range(1, len(one) + 1))


def test_a_reader_between_two_commits_sees_no_gap_and_no_later_event_first(opened):
    """F049: one release numbers its event first and commits last; whoever polls meanwhile loses neither."""
    follower, numbered, commit = Follower(opened, "sub_1"), threading.Event(), threading.Event()

    def slow():
        with opened.write() as records:
            records.events.append("sub_1", [event()], NOW)
            numbered.set()
            assert commit.wait(30)

    def quick():
        assert numbered.wait(30)
        with opened.write() as records:
            records.events.append("sub_1", [event()], NOW)

    with ThreadPoolExecutor(3) as pool:
        following = pool.submit(follower.run)
        writers = [pool.submit(slow), pool.submit(quick)]
        assert numbered.wait(30)
        time.sleep(0.05)  # a moment in which the quick one could commit and be read, were it let
        assert follower.seen == []
        commit.set()
        for writer in writers:
            writer.result()
        follower.stop.set()
        assert following.result() == [1, 2]


def test_one_writer_at_a_time_numbers_a_log(opened, store_url):
    """A second writer of the same log waits for the first, and takes the numbers after it."""
    order = []
    with opened.write() as first:
        first.events.append("sub_1", [event()], NOW)

        def second():
            with opened.write() as records:
                order.append([e.number for e in records.events.append("sub_1", [event()], NOW)])

        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        assert order == []
    thread.join(30)
    assert order == [[2]]


def test_postgresql_try_lock_answers_at_once_where_another_has_it(postgres_store_url):
    store = open_store(postgres_store_url)
    with store.write() as records:
        records.workspaces.put(WORKSPACE)
        records.subscriptions.put(subscription("sub_1"))
        records.subscriptions.put(subscription("sub_2"))
    with store.write() as first, store.write() as second:
        assert first.subscriptions.try_lock("sub_1")
        assert not second.subscriptions.try_lock("sub_1")
        assert second.subscriptions.try_lock("sub_2")
        second.subscriptions.put(subscription("sub_3"))
    with store.write() as records:
        assert records.subscriptions.try_lock("sub_1")
        assert records.subscriptions.get("sub_3") is not None
    store.close()


def test_postgresql_append_holds_the_lock(postgres_store_url):
    store = open_store(postgres_store_url)
    with store.write() as records:
        records.workspaces.put(WORKSPACE)
        records.subscriptions.put(subscription("sub_1"))
    with store.write() as first, store.write() as second:
        first.events.append("sub_1", [event()], NOW)
        assert not second.subscriptions.try_lock("sub_1")
    store.close()


def test_postgresql_locked_dataset_makes_others_wait_but_not_its_references(postgres_store_url):
    store = open_store(postgres_store_url)
    with store.write() as records:
        for name in ("ds_a", "ds_b"):
            records.catalog.put_dataset(dataset(name))
        records.workspaces.put(WORKSPACE)
        records.subscriptions.put(subscription("sub_1"))
    locked = threading.Event()

    def lock_too():
        with store.write() as records:
            records.catalog.lock(["ds_b", "ds_a"])
            locked.set()

    with store.write() as first:
        first.catalog.lock(["ds_a"])
        thread = threading.Thread(target=lock_too)
        thread.start()
        assert not locked.wait(0.3)
        with store.write() as other:
            other.subscriptions.join("sub_1", "ds_a")
            other.catalog.put_refresh("ds_a", other.catalog.refresh("ds_a"))
    assert locked.wait(30)
    thread.join()
    store.close()


def test_locks_in_any_given_order_never_deadlock(opened):
    def lock(turn):
        names = ["ds_a", "ds_b", "ds_c"]
        with opened.write() as records:
            records.catalog.lock(names[turn % 3 :] + names[: turn % 3])
            records.events.append("sub_1", [event()], NOW)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lock, range(60)))
    with opened.read() as records:
        assert records.events.newest("sub_1") == 60


def test_workers_claim_each_check_once_one_of_a_dataset_at_a_time(opened):
    """Six workers, three datasets, ten checks each, while checks are added."""
    busy, done, failures = set(), [], []
    guard = threading.Lock()
    added = threading.Event()

    def add():
        for _ in range(10):
            for name in ("ds_a", "ds_b", "ds_c"):
                with opened.write() as records:
                    records.checks.add(check(name))
        added.set()

    def finish(claimed):
        with guard:
            done.append((claimed.dataset_id, claimed.id))
            busy.discard(claimed.dataset_id)
        with opened.write() as records:
            records.checks.put(claimed.__class__(**{**vars(claimed), "status": "done"}))

    def work(owner):
        while True:
            last = added.is_set()
            with opened.write() as records:
                claimed = records.checks.claim(owner, NOW, NOW + HOUR)
            if claimed is None:
                with opened.read() as records:
                    if last and not any(records.checks.open_of(name) for name in ("ds_a", "ds_b", "ds_c")):
                        return
                continue
            with guard:
                if claimed.dataset_id in busy:
                    failures.append(claimed)
                busy.add(claimed.dataset_id)
            finish(claimed)

    with ThreadPoolExecutor(7) as pool:
        running = [pool.submit(add), *(pool.submit(work, f"w{n}") for n in range(6))]
        for future in running:
            future.result()
    assert failures == []
    for name in ("ds_a", "ds_b", "ds_c"):
        in_order = [number for of, number in done if of == name]
        assert len(in_order) == 10
        assert in_order == sorted(in_order)


def test_secret_is_the_same_for_all_who_ask_at_once(opened):
    def ask(number):
        with opened.write() as records:
            return records.secrets.get_or_put("links", str(number))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(16)))) == 1
