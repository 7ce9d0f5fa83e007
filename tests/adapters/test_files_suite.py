"""What the file store promises in `ports.py`, sentence by sentence, over the fake and the folder."""

import hashlib
import threading

import pytest

from ploti_server.adapters.files_local import LocalFiles
from ploti_server.ports import FileStat
from ploti_server.testing import MemoryFiles

BAD_PATHS = [
    "",
    "/",
    "/etc/passwd",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../../b",
    "a/..",
    "a/./b",
    ".incoming/x",
    "a/.hidden",
    "a\\..\\b",
    "a\0b",
    "a\nb",
    "a/\x7f",
]


@pytest.fixture(params=["fake", "folder"])
def files(request, tmp_path):
    return MemoryFiles() if request.param == "fake" else LocalFiles(tmp_path / "files")


def local_file(tmp_path, content, name="made"):
    file = tmp_path / name
    file.write_bytes(content)
    return file


def content(files, path, *part):
    return b"".join(files.read(path, *part))


class TestPut:
    def test_bytes_come_back(self, files):
        files.put_bytes("ds/versions/1/1/schema.json", b"{}")
        assert content(files, "ds/versions/1/1/schema.json") == b"{}"

    def test_local_file_is_taken_over(self, files, tmp_path):
        made = local_file(tmp_path, b"rows")
        files.put("ds/a/part-0000.parquet", made)
        assert content(files, "ds/a/part-0000.parquet") == b"rows"
        assert not made.exists()

    def test_empty_and_large_files(self, files, tmp_path):
        large = hashlib.shake_256(b"x").digest(3_000_001)
        files.put_bytes("empty", b"")
        files.put("large", local_file(tmp_path, large))
        assert content(files, "empty") == b""
        assert files.stat("empty") == FileStat(0)
        assert content(files, "large") == large

    @pytest.mark.parametrize("again", ["put", "put_bytes"])
    def test_same_bytes_again_are_allowed(self, files, tmp_path, again):
        files.put_bytes("a/b", b"same")
        if again == "put":
            made = local_file(tmp_path, b"same")
            files.put("a/b", made)
            assert not made.exists()
        else:
            files.put_bytes("a/b", b"same")
        assert content(files, "a/b") == b"same"

    @pytest.mark.parametrize("other", [b"other", b"sam", b"samE", b"same!", b""])
    def test_other_bytes_are_an_error_and_change_nothing(self, files, tmp_path, other):
        files.put_bytes("a/b", b"same")
        with pytest.raises(FileExistsError, match="a/b is stored with other bytes"):
            files.put_bytes("a/b", other)
        made = local_file(tmp_path, other)
        with pytest.raises(FileExistsError, match="a/b is stored with other bytes"):
            files.put("a/b", made)
        assert made.read_bytes() == other
        assert content(files, "a/b") == b"same"
        assert list(files.paths("")) == ["a/b"]

    def test_difference_in_the_last_byte_of_many_is_seen(self, files):
        files.put_bytes("a", bytes(1_000_000) + b"0")
        with pytest.raises(FileExistsError):
            files.put_bytes("a", bytes(1_000_000) + b"1")

    @pytest.mark.parametrize("path", BAD_PATHS)
    def test_paths_outside_the_store_are_impossible(self, files, tmp_path, path):
        made = local_file(tmp_path, b"x")
        for use in (
            lambda: files.put_bytes(path, b"x"),
            lambda: files.put(path, made),
            lambda: files.stat(path),
            lambda: content(files, path),
            lambda: files.local(path),
            lambda: files.remove(path),
        ):
            with pytest.raises(ValueError, match="not a path"):
                use()
        assert made.read_bytes() == b"x"

    def test_names_of_any_script_are_kept(self, files):
        files.put_bytes("ds/états/Ω größe-☂.csv", b"x")
        assert list(files.paths("ds/é")) == ["ds/états/Ω größe-☂.csv"]

    def test_many_writers_of_one_path_agree(self, files):
        refused = []

        def write(number):
            try:
                files.put_bytes("deep/er/file", bytes([number % 2]) * 100_000)
            except FileExistsError:
                refused.append(number % 2)

        threads = [threading.Thread(target=write, args=[n]) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept = content(files, "deep/er/file")
        assert kept == bytes([kept[0]]) * 100_000
        assert sorted(refused) == [1 - kept[0]] * 4


class TestRead:
    @pytest.mark.parametrize(
        ("part", "want"),
        [
            ((), b"0123456789"),
            ((0, None), b"0123456789"),
            ((3,), b"3456789"),
            ((3, 4), b"3456"),
            ((0, 0), b""),
            ((9, 1), b"9"),
            ((8, 100), b"89"),
            ((10,), b""),
            ((11, 5), b""),
        ],
    )
    def test_part_of_a_file(self, files, part, want):
        files.put_bytes("a", b"0123456789")
        assert content(files, "a", *part) == want

    def test_part_over_several_blocks(self, files):
        whole = hashlib.shake_256(b"y").digest(1_500_000)
        files.put_bytes("a", whole)
        assert content(files, "a", 262_143, 800_002) == whole[262_143 : 262_143 + 800_002]

    @pytest.mark.parametrize("part", [(-1,), (0, -1)])
    def test_negative_part_is_an_error(self, files, part):
        files.put_bytes("a", b"x")
        with pytest.raises(ValueError, match="negative"):
            files.read("a", *part)

    @pytest.mark.parametrize("path", ["missing", "a/missing", "a", "a/b/c"])
    def test_missing_file_is_an_error_at_once(self, files, path):
        files.put_bytes("a/b", b"x")
        for use in (lambda: files.read(path), lambda: files.local(path)):
            with pytest.raises(FileNotFoundError):
                use()
        assert files.stat(path) is None

    def test_open_file_is_read_to_its_end_though_removed(self, files):
        files.put_bytes("a", bytes(600_000))
        blocks = files.read("a")
        files.remove("a")
        assert sum(len(block) for block in blocks) == 600_000

    def test_stat_tells_the_size(self, files):
        files.put_bytes("a/b", b"12345")
        assert files.stat("a/b") == FileStat(5)

    def test_local_file_has_the_bytes(self, files):
        files.put_bytes("ds/part-0000.parquet", b"rows")
        assert files.local("ds/part-0000.parquet").read_bytes() == b"rows"
        assert files.local("ds/part-0000.parquet").name == "part-0000.parquet"


class TestPaths:
    STORED = ("ds-a/x", "ds/versions/1/1/a", "ds/versions/1/2/a", "ds/versions/10/1/a", "ds/states/ff", "ds2", "é/x")

    @pytest.mark.parametrize(
        ("prefix", "want"),
        [
            (
                "",
                [
                    "ds-a/x",
                    "ds/states/ff",
                    "ds/versions/1/1/a",
                    "ds/versions/1/2/a",
                    "ds/versions/10/1/a",
                    "ds2",
                    "é/x",
                ],
            ),
            ("ds/versions/1/", ["ds/versions/1/1/a", "ds/versions/1/2/a"]),
            ("ds/versions/1", ["ds/versions/1/1/a", "ds/versions/1/2/a", "ds/versions/10/1/a"]),
            ("ds/", ["ds/states/ff", "ds/versions/1/1/a", "ds/versions/1/2/a", "ds/versions/10/1/a"]),
            ("ds2", ["ds2"]),
            ("ds2/", []),
            ("none/", []),
            ("/", []),
            ("../", []),
            ("ds/../ds", []),
            (".incoming/", []),
        ],
    )
    def test_begin_with_the_prefix_in_order(self, files, prefix, want):
        for path in reversed(self.STORED):
            files.put_bytes(path, b"x")
        assert list(files.paths(prefix)) == want

    def test_empty_store_has_none(self, files):
        assert list(files.paths("")) == []


class TestRemove:
    def test_file_is_gone_and_its_path_free(self, files):
        files.put_bytes("a/b/c", b"old")
        files.put_bytes("a/d", b"stays")
        files.local("a/b/c")
        files.remove("a/b/c")
        assert files.stat("a/b/c") is None
        assert list(files.paths("")) == ["a/d"]
        files.put_bytes("a/b/c", b"new")
        assert files.local("a/b/c").read_bytes() == b"new"

    def test_missing_file_is_nothing_to_do(self, files):
        files.remove("a/b")
        files.put_bytes("a/b", b"x")
        files.remove("a/c")
        files.remove("a/b")
        files.remove("a/b")
        assert list(files.paths("")) == []


def test_server_signs_the_links(files):
    files.put_bytes("a", b"x")
    assert files.presigned("a", "a.txt", "text/plain", 60) is None
