"""A target named by a symbolic link: one lock for both names, a first load behind the link, no loops."""

import pytest
from tests.sync.test_sync_columns import client_of

from ploti.sync.loop import sync
from ploti.sync.target import TargetBusy, TargetUnusable
from ploti.sync.targets import open_target
from ploti.testing.feed import SUBSCRIPTION, Feed
from ploti.testing.stories import PERMITS, A, permits


@pytest.fixture(params=["duckdb", "sqlite", "parquet"])
def scheme(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return request.param


@pytest.fixture
def feed():
    feed = Feed()
    feed.add(A, PERMITS, permits(1, 2))
    return feed


def follow(feed, address):
    with client_of(feed) as client:
        return sync(client, SUBSCRIPTION, open_target(address))


def test_a_run_by_the_link_waits_for_nobody_else_than_one_by_the_name(scheme, feed, tmp_path):
    (tmp_path / "data").mkdir()
    address, link = f"{scheme}:///{tmp_path}/data/records", tmp_path / "link"
    follow(feed, address)
    link.symlink_to(tmp_path / "data" / "records")
    with open_target(address).lock(), pytest.raises(TargetBusy):
        follow(feed, f"{scheme}:///{link}")
    feed.update(A, put=permits(3))
    follow(feed, f"{scheme}:///{link}")
    assert [each.held.version for each in open_target(address).status()] == [2]
    assert link.is_symlink()
    assert not [each.name for each in tmp_path.iterdir() if each.name.startswith("link") and each != link]


def test_a_first_load_makes_what_the_link_points_to(scheme, feed, tmp_path):
    link = tmp_path / "link"
    link.symlink_to("later")
    follow(feed, f"{scheme}:///{link}")
    assert link.is_symlink()
    assert [each.held.version for each in open_target(f"{scheme}:///{tmp_path}/later").status()] == [1]


@pytest.mark.parametrize("name", ["loop", "with%00nothing", "x" * 300])
def test_a_path_that_leads_nowhere_is_refused_with_its_reason(scheme, feed, tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(TargetUnusable):
        follow(feed, f"{scheme}:///{tmp_path}/{name}")
