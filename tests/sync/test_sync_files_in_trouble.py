"""A file that sync cannot use, read or write: one line names it and says what to do, and nothing of it is lost."""

import os
import resource
import signal
import sqlite3
import threading
from contextlib import closing, contextmanager, suppress

import duckdb
import pytest
from tests.sync.deliveries import Files, held, rows_of
from tests.sync.kits import GeoPackageKit
from tests.sync.test_sync_duckdb_stories import DuckKit

from ploti import Client, PlotiError, Retries
from ploti.sync.loop import following, repair, resync, sync, verify
from ploti.sync.target import StepRefused, TargetBusy, TargetUnusable, reach_nothing
from ploti.sync.targets import open_target
from ploti.testing.feed import Feed
from ploti.testing.stories import PERMITS, A, permits
from ploti.testing.targets import check_rows, sync_feed

KITS = {"duckdb": DuckKit, "geopackage": GeoPackageKit}
SCHEMES = {"duckdb": "duckdb", "geopackage": "sqlite"}


@pytest.fixture(params=KITS)
def kind(request):
    return request.param


@pytest.fixture
def kit(kind, tmp_path):
    return KITS[kind](tmp_path)


@pytest.fixture
def feed():
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(50)))
    return feed


def ways_to_use(feed, kit):
    """Each thing that can be done with a target, by the command that does it."""
    client = Client(**feed.api.client_options)
    return {
        "sync": lambda: sync_feed(feed, kit),
        "status": lambda: following(kit.open(reach_nothing)),
        "verify": lambda: verify(client, kit.open(reach_nothing)),
        "repair": lambda: repair(client, kit.open(reach_nothing)),
        "resync": lambda: resync(client, kit.open(reach_nothing), A),
    }


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def garble(path):
    content = path.read_bytes()
    path.write_bytes(content[:8192] + bytes(len(content) - 8192))


def of_another_kind(path):
    path.unlink()
    if path.suffix == ".duckdb":
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE mine (x)")
    else:
        duckdb.connect(str(path)).close()


UNUSABLE = [
    ("garbage", lambda path: path.write_bytes(b"not a database" * 1000), "no database of this kind"),
    ("a few bytes", lambda path: path.write_bytes(b"not"), "no database of this kind"),
    ("another kind", of_another_kind, "no database of this kind"),
    ("cut in its head", lambda path: cut(path, 100), "it is damaged"),
    ("cut in the middle", lambda path: cut(path, path.stat().st_size // 2), "it is damaged"),
    ("zeros", garble, "it is damaged"),
]


@pytest.mark.parametrize(("spoil", "why"), [row[1:] for row in UNUSABLE], ids=[row[0] for row in UNUSABLE])
def test_a_file_that_is_none_or_damaged_is_named_and_stays(kit, feed, spoil, why):
    sync_feed(feed, kit)
    spoil(kit.path)
    before = kit.path.read_bytes()
    for use in ways_to_use(feed, kit).values():
        with pytest.raises(TargetUnusable) as told:
            use()
        assert f"Cannot use {kit.path}: {why}" in str(told.value) or f"{kit.path}: it is {why}" in str(told.value)
        assert "delete" in str(told.value)
        assert kit.path.read_bytes() == before
    kit.path.unlink()
    assert not sync_feed(feed, kit).behind
    check_rows(feed, kit, A, 1)


@pytest.mark.parametrize("name", ["catalog.yaml", "linked/catalog.yaml", "../here/catalog.yaml"])
def test_a_file_that_is_none_is_named_alike_however_it_is_written(kind, tmp_path, monkeypatch, name):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "linked").symlink_to(folder)
    (folder / "catalog.yaml").write_text("datasets:\n- permits\n")
    target = open_target(f"{SCHEMES[kind]}:///{name}")
    with pytest.raises(
        TargetUnusable, match=rf"Cannot use {name}: it is no database of this kind .*: name another file"
    ):
        target.status()
    with Client(api_key="ploti_x", base_url="http://127.0.0.1:9") as client, pytest.raises(TargetUnusable):
        repair(client, target)
    assert {each.name for each in folder.iterdir()} == {"catalog.yaml", "linked"}


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("parquet:///{}", "name another folder, as parquet:///records"),
        ("parquet:///{}/not/yet", "name another folder, as parquet:///records"),
        ("duckdb:///{}/records.duckdb", "name another file, as duckdb:///records.duckdb"),
        ("sqlite:///{}/not/yet.gpkg", "name another file, as sqlite:///records.gpkg"),
    ],
)
def test_a_file_is_no_folder(tmp_path, url, told):
    path = tmp_path / "catalog.yaml"
    path.write_text("datasets:\n- permits\n")
    with pytest.raises(TargetUnusable, match=f"{path} is a file: {told}"):
        open_target(url.format(path))


@pytest.mark.parametrize("url", ["duckdb:///{}/records.duckdb", "sqlite:///{}/records.gpkg", "parquet:///{}/records"])
@pytest.mark.parametrize("place", ["here", "not/yet/here"])
def test_where_nothing_is_nothing_is_left(tmp_path, url, place):
    (tmp_path / "here").mkdir()
    target = open_target(url.format(tmp_path / place))
    with Client(api_key="ploti_x", base_url="http://127.0.0.1:9", retries=Retries(attempts=1)) as client:
        for use in (
            lambda: repair(client, target),
            lambda: resync(client, target, A),
            lambda: sync(client, "sub_a", target),
        ):
            with pytest.raises(PlotiError):
                use()
            assert [each.name for each in tmp_path.rglob("*")] == ["here"]


@pytest.mark.parametrize("scheme", ["duckdb", "sqlite", "parquet"])
def test_runs_that_come_and_go_where_nothing_is_keep_each_other_away(tmp_path, scheme):
    """A run may open a lock that another one takes away: then it takes the one that is there."""
    inside, most, lock = [], [], threading.Lock()

    def come_and_go():
        target = open_target(f"{scheme}:///{tmp_path / 'deep' / 'target'}")
        for _ in range(200):
            with suppress(TargetBusy, TargetUnusable), target.lock():
                with lock:
                    inside.append(1)
                    most.append(len(inside))
                with lock:
                    inside.pop()

    runs = [threading.Thread(target=come_and_go) for _ in range(4)]
    for each in runs:
        each.start()
    for each in runs:
        each.join()
    assert max(most) == 1


def test_a_folder_is_no_file(kind, tmp_path):
    with pytest.raises(TargetUnusable, match=f"{tmp_path} is a folder: name a file in it, as {SCHEMES[kind]}:///"):
        open_target(f"{SCHEMES[kind]}:///{tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_no_bytes_is_like_none_and_is_filled(kit, feed):
    """As `mktemp` makes one, or a copy that broke off; there is nothing in it to lose."""
    kit.path.touch()
    assert kit.open(reach_nothing).state().subscription_id is None
    assert kit.open(reach_nothing).status() == []
    assert kit.path.stat().st_size == 0
    assert not sync_feed(feed, kit).behind
    check_rows(feed, kit, A, 1)


def test_a_log_of_a_file_that_is_gone_is_named(tmp_path, feed):
    kit = DuckKit(tmp_path)
    log = tmp_path / "records.duckdb.wal"
    log.write_bytes(b"committed")
    with pytest.raises(TargetUnusable, match=f"{log} belongs to a file that is gone: bring that back or delete it"):
        sync_feed(feed, kit)
    assert log.read_bytes() == b"committed"
    log.unlink()
    assert not sync_feed(feed, kit).behind


def test_a_part_that_is_cut_is_no_trouble_of_the_file(kit, feed, tmp_path):
    delivery = Files(tmp_path).snapshot(1, rows_of(500))
    cut(delivery.snapshot[0], 400)
    with pytest.raises(StepRefused):
        kit.open(reach_nothing).load(delivery, held(1), None)


# no room, no right


@contextmanager
def little_room(size):
    """Let no file grow beyond a size, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_without_room_the_run_stops_and_the_next_goes_right(kit, feed):
    sync_feed(feed, kit)
    version = feed.reload(A, permits(*range(100, 1_600)), "previous_unavailable")
    before = kit.open(reach_nothing).state()
    with (
        little_room(100_000),
        pytest.raises(TargetUnusable, match=r"Cannot use .*, then run sync again"),
    ):
        sync_feed(feed, kit)
    assert kit.open(reach_nothing).state() == before
    check_rows(feed, kit, A, 1)
    assert not sync_feed(feed, kit).behind
    check_rows(feed, kit, A, version)


def test_without_room_for_a_first_file_nothing_is_left_of_it(tmp_path, feed):
    kit = DuckKit(tmp_path)
    with little_room(4096), pytest.raises(TargetUnusable, match=r"Cannot use .*, then run sync again"):
        sync_feed(feed, kit)
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == []
    assert not sync_feed(feed, kit).behind


@contextmanager
def as_one_who_may_not():
    """Go on as a user who is not root, where the tests are root's: root may write anything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("locked", ["file", "folder"])
def test_a_file_or_folder_that_may_not_be_written_is_named(kind, open_folder, feed, locked):
    kit = KITS[kind](open_folder)
    sync_feed(feed, kit)
    feed.update(A, put=permits(99))
    lock = next(each for each in open_folder.iterdir() if each.name.endswith(".sync-lock"))
    lock.chmod(0o666)
    kit.path.chmod(0o444 if locked == "file" else 0o666)
    open_folder.chmod(0o777 if locked == "file" else 0o555)
    with as_one_who_may_not(), pytest.raises(TargetUnusable, match=f"Cannot use {kit.path}: .*may read and write it"):
        kit.open(reach_nothing).record("sub_a", None, [])
    check_rows(feed, kit, A, 1)
    open_folder.chmod(0o755)
    kit.path.chmod(0o644)
    assert not sync_feed(feed, kit).behind
    check_rows(feed, kit, A, 2)
