"""Files over others: reads see both, writes go to the upper ones only."""

from ploti_server.adapters.files_overlay import OverlayFiles
from ploti_server.testing import MemoryFiles


def test_reads_see_both_stores_and_nothing_is_written_below(tmp_path):
    below, above = MemoryFiles(), MemoryFiles()
    below.put_bytes("a/1", b"one")
    files = OverlayFiles(below, above)
    files.put_bytes("a/2", b"two")
    (tmp_path / "x").write_bytes(b"three")
    files.put("b/3", tmp_path / "x")
    assert list(files.paths("a/")) == ["a/1", "a/2"]
    assert [b"".join(files.read(path, 1)) for path in ("a/1", "a/2")] == [b"ne", b"wo"]
    assert (files.stat("a/1").size_bytes, files.stat("a/9")) == (3, None)
    assert files.local("b/3").read_bytes() == b"three"
    files.remove("a/1")
    files.remove("a/2")
    assert list(files.paths("a/")) == ["a/1"]
    assert list(below.paths("")) == ["a/1"]
    assert files.presigned("a/1", "n", "t", 1) is None
