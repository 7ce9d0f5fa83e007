"""The folder of files on a disk that fails, a program that dies, and threads that come between (D5.3, I14)."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ploti_server.adapters.files_local import Disk, LocalFiles

CALLS = ("write", "sync", "sync_folder", "link", "make_folder", "unlink")


class ScriptedDisk(Disk):
    """A disk that writes down its calls, and fails at the n-th (counted from 1)."""

    def __init__(self, fail_at=None, error=errno.EIO):
        self.calls = []
        self.fail_at = fail_at
        self.error = error

    def _call(self, name, *given):
        self.calls.append((name, *given))
        if len(self.calls) == self.fail_at:
            raise OSError(self.error, os.strerror(self.error))
        return getattr(Disk, name)(self, *given)


for _name in CALLS:
    setattr(ScriptedDisk, _name, lambda self, *given, _name=_name: self._call(_name, *given))


def make_files(folder, disk=None):
    return LocalFiles(folder / "files", disk)


def put_as_bytes(files, folder):
    files.put_bytes("a/b/new", b"new bytes")


def put_as_file(files, folder):
    made = folder / "made"
    made.write_bytes(b"new bytes")
    files.put("a/b/new", made)


def visible(folder):
    root = folder / "files"
    return {path: b"".join(make_files(folder).read(path)) for path in make_files(folder).paths("")} | {
        f"left in {p.parent.name}": p.name for p in (root / ".incoming").iterdir()
    }


@pytest.mark.parametrize("put", [put_as_bytes, put_as_file])
class TestOrder:
    def test_bytes_are_synced_before_the_name_and_the_name_before_the_answer(self, tmp_path, put):
        disk = ScriptedDisk()
        put(make_files(tmp_path, disk), tmp_path)
        names = [name for name, *_ in disk.calls if name not in ("write", "unlink")]
        assert names == [
            "sync",
            "make_folder",
            "sync_folder",
            "make_folder",
            "sync_folder",
            "link",
            "sync_folder",
        ]
        root = tmp_path / "files"
        synced = [given[0] for name, *given in disk.calls if name == "sync_folder"]
        assert synced == [root, root / "a", root / "a/b"]

    def test_second_writer_of_the_same_bytes_syncs_too(self, tmp_path, put):
        put_as_bytes(make_files(tmp_path), tmp_path)
        disk = ScriptedDisk()
        put(make_files(tmp_path, disk), tmp_path)
        names = [name for name, *_ in disk.calls if name not in ("write", "unlink")]
        assert names == ["sync", "link", "sync", "sync_folder"]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("put", [put_as_bytes, put_as_file])
def test_each_call_may_fail(tmp_path, put, error):
    """The n-th call fails, for every n: a clean error, the old state whole, and the next attempt works."""
    counting = ScriptedDisk()
    put(make_files(tmp_path / "counted", counting), tmp_path)
    assert len(counting.calls) >= 8
    for number, (name, *_) in enumerate(counting.calls, 1):
        folder = tmp_path / str(number)
        make_files(folder).put_bytes("old", b"old bytes")
        with pytest.raises(OSError, match=os.strerror(error)):
            put(make_files(folder, ScriptedDisk(number, error)), folder)
        kept = visible(folder)
        assert kept.pop("old") == b"old bytes"
        if name == "unlink":  # the last step: everything was stored before
            kept.pop("left in .incoming", None)
            assert kept.pop("a/b/new") == b"new bytes"
        assert kept == {}
        put(make_files(folder), folder)
        make_files(folder).sweep()
        assert visible(folder) == {"old": b"old bytes", "a/b/new": b"new bytes"}


def test_file_whose_sync_failed_is_not_offered_again(tmp_path):
    made = tmp_path / "made"
    made.write_bytes(b"rows")
    with pytest.raises(OSError, match="Input/output"):
        make_files(tmp_path, ScriptedDisk(1)).put("a", made)
    assert not made.exists()
    assert visible(tmp_path) == {}


def test_file_on_another_disk_is_copied(tmp_path):
    class TwoDisks(ScriptedDisk):
        def link(self, source, target):
            if source.parent.name != ".incoming":
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            return super().link(source, target)

    made = tmp_path / "made"
    made.write_bytes(b"rows" * 200_000)
    make_files(tmp_path, TwoDisks()).put("a/b", made)
    assert visible(tmp_path) == {"a/b": b"rows" * 200_000}
    assert not made.exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from ploti_server.adapters.files_local import Disk, LocalFiles

class Killed(Disk):
    def link(self, source, target):
        if sys.argv[2] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().link(source, target)
        os.kill(os.getpid(), signal.SIGKILL)

LocalFiles(Path(sys.argv[1]), Killed()).put_bytes("a/b", b"bytes")
"""


@pytest.mark.parametrize(("moment", "stored"), [("before", {}), ("after", {"a/b": b"bytes"})])
def test_killed_writer_leaves_nothing_half_and_is_swept_away(tmp_path, moment, stored):
    died = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "files"), moment], check=False)
    assert died.returncode == -9
    left = list((tmp_path / "files/.incoming").iterdir())
    assert len(left) == 1
    files = make_files(tmp_path)
    assert {path: b"".join(files.read(path)) for path in files.paths("")} == stored
    assert files.sweep() == 1
    assert files.sweep() == 0
    files.put_bytes("a/b", b"bytes")
    assert visible(tmp_path) == {"a/b": b"bytes"}


def test_sweep_leaves_what_is_being_written(tmp_path):
    class Slow(Disk):
        def link(self, source, target):
            assert make_files(tmp_path).sweep() == 0
            super().link(source, target)

    make_files(tmp_path, Slow()).put_bytes("a", b"x")
    assert visible(tmp_path) == {"a": b"x"}


def test_folders_go_when_empty_and_come_back_between(tmp_path):
    """One thread removes the only file of a folder while another puts one there."""
    files = make_files(tmp_path)
    failures = []

    def churn(number):
        try:
            for turn in range(60):
                files.put_bytes(f"a/b/{number}-{turn}", b"x")
                files.remove(f"a/b/{number}-{turn}")
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=churn, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [p.name for p in Path(tmp_path / "files").iterdir()] == [".incoming"]
