"""What a hand, a copy or a backup took from a folder of GeoParquet is told and brought back (D11.5)."""

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from tests.sync.kits import ParquetKit
from tests.sync.test_sync_files_in_trouble import as_one_who_may_not, little_room
from tests.sync.test_sync_parquet_target import read_views

from ploti import Client
from ploti.sync.loop import repair, verify
from ploti.sync.target import RowsDiffer, StepRefused, TargetUnusable, reach_nothing
from ploti.sync.targets._folder_trouble import in_step, on_disk
from ploti.testing.feed import SUBSCRIPTION, Feed
from ploti.testing.stories import PERMITS, ZONES, A, B, permits, zones
from ploti.testing.targets import check_rows, sync_feed


def table_gone(kit):
    shutil.rmtree(kit.path / A)


def current_of(kit):
    return kit.path / A / "current"


def parts_gone(kit):
    for part in current_of(kit).glob("*.parquet"):
        part.unlink()


def part_of(kit, folder="."):
    return next((current_of(kit) / folder).glob("*.parquet"))


def cut_off(kit):
    part_of(kit).write_bytes(part_of(kit).read_bytes()[:500])


def state_garbled(kit):
    (current_of(kit) / "_ploti.json").write_text('{"turn": 2')


def state_without_a_member(kit):
    file = current_of(kit) / "_ploti.json"
    file.write_text(json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name != "held"}))


def older_state_restored(kit):
    newest = current_of(kit).resolve()
    older = next(each for each in (kit.path / A).iterdir() if each not in {newest, current_of(kit)})
    current_of(kit).unlink()
    current_of(kit).symlink_to(older.name)
    shutil.rmtree(newest)


LOSSES = [
    ("the dataset's folder", table_gone, f"the table {A} is gone"),
    ("the parts", parts_gone, f"the table {A} has parts that are gone or damaged"),
    ("the end of a part", cut_off, f"the table {A} has parts that are gone or damaged"),
    ("the state file", lambda kit: (current_of(kit) / "_ploti.json").unlink(), f"the table {A} is gone"),
    ("the state file's content", state_garbled, f"the table {A} is gone"),
    ("a member of the state file", state_without_a_member, f"the table {A} is gone"),
    ("the newest state", lambda kit: shutil.rmtree(current_of(kit).resolve()), f"the table {A} is gone"),
    ("all but the state before", older_state_restored, f"the table {A} is an older one than was here"),
]


@pytest.fixture
def kit(tmp_path):
    return ParquetKit(tmp_path)


@pytest.fixture
def feed(kit):
    """A feed that is synced into the kit, its first dataset at its second version."""
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(6)))
    feed.add(B, ZONES, zones(*range(3)))
    sync_feed(feed, kit)
    feed.update(A, put=permits(70))
    sync_feed(feed, kit)
    return feed


def behind(kit):
    return {each.held.dataset_id: each.held.reason for each in kit.open(reach_nothing).status() if each.held.behind}


def unequal(kit, feed):
    with Client(**feed.api.client_options) as client:
        return {each.dataset_id: each.problem for each in verify(client, kit.open(reach_nothing)) if not each.equal}


@pytest.mark.parametrize(("lose", "why"), [row[1:] for row in LOSSES], ids=[row[0] for row in LOSSES])
def test_a_loss_is_told_and_the_next_sync_brings_the_table_back(kit, feed, lose, why):
    lose(kit)
    told = {A: f"{why}: `ploti sync repair --to ...` brings it back"}
    assert behind(kit) == told
    assert unequal(kit, feed) == told
    (report,) = sync_feed(feed, kit).datasets
    assert (report.dataset_id, report.reloaded, report.held.version, report.held.state) == (A, True, 2, "ok")
    assert behind(kit) == unequal(kit, feed) == {}
    check_rows(feed, kit, A, 2)
    assert not sync_feed(feed, kit).datasets


@pytest.mark.parametrize("lose", [table_gone, older_state_restored])
def test_a_repair_brings_a_lost_table_back(kit, feed, lose):
    lose(kit)
    with Client(**feed.api.client_options) as client:
        done = {each.after.dataset_id: each for each in repair(client, kit.open(reach_nothing))}
    assert done[A].after.equal
    assert done[A].before.spoilt
    assert done[B].moved is None
    assert behind(kit) == unequal(kit, feed) == {}
    table_gone(kit)
    assert A in behind(kit)
    assert [each.held.version for each in sync_feed(feed, kit).datasets] == [2]


def test_a_table_lost_in_a_first_load_that_broke_off_is_loaded_again(kit):
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(6)))
    feed.add(B, ZONES, zones(*range(3)))
    sync_feed(feed, kit)
    kit.open(reach_nothing).record(SUBSCRIPTION, None, ())
    table_gone(kit)
    assert not sync_feed(feed, kit).behind
    assert unequal(kit, feed) == {}


def spoil(part, start, length):
    content = bytearray(part.read_bytes())
    content[start : start + length] = bytes(255 - each for each in content[start : start + length])
    part.write_bytes(content)


@pytest.mark.parametrize(("start", "length"), [(4, 40), (100, 900), (-200, 40)], ids=["head", "rows", "foot"])
def test_a_part_that_is_damaged_inside_is_found_by_verify_and_brought_back(kit, feed, start, length):
    spoil(part_of(kit), start, length)
    assert unequal(kit, feed)[A].endswith("gone or damaged: `ploti sync repair --to ...` brings it back")
    assert not sync_feed(feed, kit).datasets
    with Client(**feed.api.client_options) as client:
        assert repair(client, kit.open(reach_nothing), [A])[0].after.equal
    spoil(part_of(kit), start, length)
    feed.update(A, put=permits(71))
    assert not sync_feed(feed, kit).behind
    check_rows(feed, kit, A, 3)


def test_a_damaged_history_is_named_with_what_to_do(tmp_path):
    kit, feed = Keeping(tmp_path), Feed()
    feed.add(A, PERMITS, permits(*range(6)))
    sync_feed(feed, kit)
    spoil(part_of(kit, "_history"), 300, 200)
    feed.update(A, put=permits(71))
    (report,) = sync_feed(feed, kit).behind
    assert report.held.reason.startswith(f"parts in {current_of(kit) / '_history'} are damaged: put copies")
    (current_of(kit) / "_history").rename(tmp_path / "moved")
    assert not sync_feed(feed, kit).behind
    check_rows(feed, kit, A, 2)


# a state that is there, and no link to it


def copied_with_links_followed(kit):
    shutil.copytree(kit.path, kit.path.with_name("copy"))
    shutil.rmtree(kit.path)
    kit.path.with_name("copy").rename(kit.path)


def copied_and_only_that_kept(kit):
    copied_with_links_followed(kit)
    for each in (kit.path / A).glob("v*"):
        shutil.rmtree(each)


def stopped_while_a_copy_became_a_link(kit):
    copied_with_links_followed(kit)
    current_of(kit).rename(kit.path / A / ".making")


UNLINKED = [
    ("the link gone", lambda kit: current_of(kit).unlink()),
    ("a copy in which links were followed", copied_with_links_followed),
    ("such a copy without the states", copied_and_only_that_kept),
    ("stopped while a copy was made a link", stopped_while_a_copy_became_a_link),
]


@pytest.mark.parametrize("lose", [row[1] for row in UNLINKED], ids=[row[0] for row in UNLINKED])
def test_a_link_that_is_none_any_more_is_made_again_and_nothing_is_loaded(kit, lose):
    kit = Keeping(kit.path.parent)
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(6)))
    sync_feed(feed, kit)
    feed.update(A, put=permits(70))
    sync_feed(feed, kit)
    lose(kit)
    assert not sync_feed(feed, kit).datasets
    assert current_of(kit).readlink().name == "v2-2"
    assert not [each for each in (kit.path / A).iterdir() if each.name not in {"current", "v1-1", "v2-2"}]
    assert behind(kit) == unequal(kit, feed) == {}
    check_rows(feed, kit, A, 2)
    with duckdb.connect(str(kit.path / "views.duckdb"), read_only=True) as db:
        assert db.execute(f"SELECT count(*) FROM {A}").fetchall() == [(7,)]
        assert db.execute(f"SELECT count(DISTINCT _ploti_valid_from_version) FROM {A}_history").fetchall() == [(2,)]


class Keeping(ParquetKit):
    """One that keeps a history, which no API can give again."""

    def open(self, reach):
        return replace(super().open(reach), history=True)


# something of the user's own


def own_file(path):
    path.write_text("mine")
    return path


def own_folder(path):
    path.mkdir()
    return own_file(path / "notes.txt")


OWN = [
    ("a file in place of current", "current", own_file),
    ("a folder in place of current", "current", own_folder),
    ("a file in place of the next current", "current.new", own_file),
    ("a folder called almost like a state", "v2_mine", own_folder),
    ("a file called like a state", "v9-9", own_file),
]


@pytest.mark.parametrize(("name", "make"), [row[1:] for row in OWN], ids=[row[0] for row in OWN])
def test_what_is_the_users_own_is_named_and_stays(kit, feed, name, make):
    if name == "current":
        current_of(kit).unlink()
    own = make(kit.path / A / name)
    feed.update(A, put=permits(71))
    (report,) = sync_feed(feed, kit).behind
    assert report.held.reason == f"{kit.path / A} has {name}, which sync did not make: move it away"
    if name == "current":
        with Client(**feed.api.client_options) as client:
            (done,) = repair(client, kit.open(reach_nothing), [A])
        assert f"has {name}, which sync did not make" in done.after.problem
    assert own.read_text() == "mine"
    shutil.move(kit.path / A / name, kit.path / "mine")
    assert not sync_feed(feed, kit).behind
    check_rows(feed, kit, A, 3)


def test_a_copy_that_has_something_more_stays_and_is_named(kit, feed):
    copied_with_links_followed(kit)
    own_file(current_of(kit) / "notes.txt")
    feed.update(A, put=permits(71))
    assert "has current, which sync did not make" in sync_feed(feed, kit).behind[0].held.reason
    assert (current_of(kit) / "notes.txt").read_text() == "mine"


def test_a_folder_in_place_of_the_views_or_of_a_state_is_named(kit, feed):
    (kit.path / "views.duckdb").unlink()
    own_folder(kit.path / "views.duckdb")
    with pytest.raises(TargetUnusable, match=r"Cannot use .*/views\.duckdb: Is a directory"):
        sync_feed(feed, kit)
    shutil.rmtree(kit.path / "views.duckdb")
    (current_of(kit) / "_ploti.json").unlink()
    own_folder(current_of(kit) / "_ploti.json")
    assert A in behind(kit)
    assert not sync_feed(feed, kit).behind


def test_a_book_that_is_none_is_made_anew_once_it_is_moved_away(kit, feed):
    book = kit.path / "_ploti_sync.json"
    before = kit.open(reach_nothing).state()
    book.write_text("{")
    for use in (kit.open(reach_nothing).state, kit.open(reach_nothing).status, lambda: sync_feed(feed, kit)):
        with pytest.raises(TargetUnusable, match="move it away: the next sync makes it anew"):
            use()
    book.unlink()
    assert not sync_feed(feed, kit).datasets
    assert kit.open(reach_nothing).state().cursor == before.cursor
    assert behind(kit) == unequal(kit, feed) == {}


def test_a_file_in_place_of_the_datasets_folder_is_named(kit, feed):
    table_gone(kit)
    own_file(kit.path / A)
    assert "is a file that sync did not make: move it away" in sync_feed(feed, kit).behind[0].held.reason


# no room, no right


@pytest.mark.parametrize("room", [0, 1_000, 9_000, 60_000])
def test_without_room_the_run_stops_and_the_next_goes_right(kit, feed, room):
    feed.reload(A, permits(*range(100, 400)), "previous_unavailable")
    before = kit.open(reach_nothing).state().cursor
    with little_room(room), pytest.raises(TargetUnusable, match=r"Cannot use .*no room is left.*, then run sync again"):
        sync_feed(feed, kit)
    assert list(kit.path.rglob("*.new*")) == []
    check_rows(feed, kit, A, kit.open(reach_nothing).state().datasets[A].version)
    assert read_views(kit.path).keys() == {A, B}
    assert before == kit.open(reach_nothing).state().cursor or A in behind(kit)
    assert not sync_feed(feed, kit).behind
    check_rows(feed, kit, A, 3)
    assert read_views(kit.path)[A] == 300


TROUBLE = [
    (OSError(errno.ENOSPC, "No space left on device", "/f/p"), TargetUnusable, "Cannot use /f/p: no room is left"),
    (OSError(errno.EROFS, "Read-only file system", "/f/p"), TargetUnusable, "Cannot use /f/p: Read-only file system"),
    (
        PermissionError(errno.EACCES, "Permission denied", "/f/p"),
        StepRefused,
        "Cannot use /f/p: Permission denied: see",
    ),
    (FileExistsError(errno.EEXIST, "File exists", "/f/p"), StepRefused, "Cannot use /f/p: File exists: see to it"),
    (OSError(errno.EIO, "Input/output error"), TargetUnusable, "Cannot use /f: Input/output error: see to it"),
    (duckdb.IOException('Could not write file "p": No space left on device'), TargetUnusable, "no room is left"),
    (duckdb.OutOfMemoryException("memory"), duckdb.OutOfMemoryException, "memory"),
    (duckdb.InvalidInputException("No magic bytes"), RowsDiffer, "damaged"),
]


@pytest.mark.parametrize(("error", "kind", "told"), TROUBLE, ids=[f"{each[0]}"[:30] for each in TROUBLE])
def test_what_the_disk_refuses_ends_the_run_only_where_all_would_meet_it(error, kind, told):
    with pytest.raises(kind, match=told) as raised, in_step(Path("/f"), RowsDiffer("damaged")):
        raise error
    assert type(raised.value) is kind
    if isinstance(error, OSError):
        with pytest.raises(TargetUnusable, match=told), on_disk(Path("/f")):
            raise error


def test_a_dataset_whose_folder_may_not_be_written_does_not_hold_up_the_others(open_folder, feed):
    kit = ParquetKit(open_folder)
    sync_feed(feed, kit)
    feed.update(A, put=permits(71))
    feed.update(B, put=zones(8))
    for each in (kit.path, *kit.path.rglob("*")):
        each.chmod(0o777)
    (kit.path / A).chmod(0o555)
    with as_one_who_may_not():
        (report,) = sync_feed(feed, kit).behind
    assert report.dataset_id == A
    assert f"Cannot use {kit.path / A}" in report.held.reason
    assert "see that this user may read and write it" in report.held.reason
    check_rows(feed, kit, B, 2)
    (kit.path / A).chmod(0o777)
    assert not sync_feed(feed, kit).behind
    check_rows(feed, kit, A, 3)
