"""What a whole run promises beside the stories: the cursor last, trouble kept to its dataset, no endless loop."""

import threading

import duckdb
import pytest

from ploti import Client, Retries
from ploti.contract.events import event_id, event_number
from ploti.errors import BadAnswer, NoAnswer, NotAllowed, NotFound, RetryLater
from ploti.sync.download import Downloads
from ploti.sync.loop import resync, sync, verify
from ploti.sync.target import Progress, SyncError
from ploti.sync.targets import open_target
from ploti.testing.feed import SUBSCRIPTION, Feed, record_id
from ploti.testing.stories import PERMITS, ZONES, A, B, permits, zones


@pytest.fixture
def feed():
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(12)), title="Permits", license_={"id": "CC0", "attribution": "x", "url": None})
    feed.add(B, ZONES, zones(1, 2))
    return feed


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.duckdb"


@pytest.fixture
def target(path):
    return open_target(f"duckdb:///{path}")


@pytest.fixture
def client(feed):
    with Client(**feed.api.client_options, retries=Retries(attempts=1)) as client:
        yield client


def states(target):
    return {name: (held.version, held.state) for name, held in target.state().datasets.items()}


def test_a_subscription_that_the_api_does_not_know_leaves_a_new_target_free_for_another(target, client, path):
    with pytest.raises(NotFound):
        sync(client, "sub_none", target)
    assert not path.exists()
    assert target.state().subscription_id is None
    assert not sync(client, SUBSCRIPTION, target).behind


def api_paths(feed):
    return [request.path for request in feed.api.requests if not request.path.startswith("/files/")]


def test_a_first_load_takes_few_calls(feed, target, client):
    sync(client, SUBSCRIPTION, target)
    subscription = f"/v1/feeds/subscriptions/{SUBSCRIPTION}"
    assert api_paths(feed) == [f"{subscription}/manifest", "/v1/feeds/datasets", f"{subscription}/events"]


def test_a_run_with_nothing_to_do_is_two_calls_and_writes_nothing(feed, path, target, client):
    sync(client, SUBSCRIPTION, target)
    feed.api.requests.clear()
    before = path.stat().st_mtime_ns
    assert sync(client, SUBSCRIPTION, target).datasets == ()
    assert len(api_paths(feed)) == 2
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("kind", ["duckdb:///{}/a.duckdb", "sqlite:///{}/a.gpkg", "parquet:///{}/a"])
def test_a_title_or_licence_that_changed_is_stored_by_the_next_run(feed, tmp_path, client, kind):
    target = open_target(kind.format(tmp_path))
    feed.add("ds_waiting", PERMITS, title="Not yet")
    sync(client, SUBSCRIPTION, target)
    assert {each.held.dataset_id: each.title for each in target.status()}["ds_waiting"] == "Not yet"
    feed.api.state.datasets[A].title = "All permits"
    feed.api.state.datasets[A].license = {"id": "ODbL", "attribution": None, "url": None}
    sync(client, SUBSCRIPTION, target)
    assert (target.infos()[A].title, target.infos()[A].license_id) == ("All permits", "ODbL")
    assert {each.held.dataset_id: each.title for each in target.status()}[A] == "All permits"


def test_the_books_say_what_the_data_is(path, target, client):
    sync(client, SUBSCRIPTION, target)
    with duckdb.connect(str(path)) as db:
        row = db.execute(
            "SELECT title, place_id, topic, publisher, license_id, loaded_version, schema_version, rows, state, "
            f"accepted_major, loaded_at IS NOT NULL FROM _ploti_datasets WHERE dataset_id = '{A}'"
        ).fetchall()
    place = ("Permits", "fl-county-orange", "development-activity", "Orange County", "CC0")
    assert row == [(*place, 1, "1.0", 12, "ok", 1, True)]


def test_downloads_are_gone_after_a_run(target, client):
    sync(client, SUBSCRIPTION, target)
    assert not target.downloads.exists()


def test_a_run_that_stops_keeps_the_cursor_and_what_was_done(feed, target, client):
    sync(client, SUBSCRIPTION, target)
    feed.update(A, put=permits(40))
    feed.update(B, put=zones(3))
    feed.api.drop_next(f"datasets/{B}/versions/2")
    with pytest.raises(NoAnswer):
        sync(client, SUBSCRIPTION, target)
    assert states(target) == {A: (2, "ok"), B: (1, "ok")}
    report = sync(client, SUBSCRIPTION, target)
    assert states(target) == {A: (2, "ok"), B: (2, "ok")}
    assert [each.dataset_id for each in report.datasets] == [B]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(401, "unauthenticated", NotAllowed), (429, "rate_limited", RetryLater), (503, "plan_unavailable", RetryLater)],
)
def test_what_every_dataset_would_meet_stops_the_run(feed, target, client, status, code, kind):
    sync(client, SUBSCRIPTION, target)
    feed.update(A, put=permits(40))
    feed.api.fail_next(f"datasets/{A}/versions/2", status, code)
    with pytest.raises(kind):
        sync(client, SUBSCRIPTION, target)
    assert states(target)[A] == (1, "ok")


def test_a_bad_answer_for_one_dataset_leaves_it_behind(feed, target, client):
    sync(client, SUBSCRIPTION, target)
    feed.update(A, put=permits(40))
    feed.update(B, put=zones(3))
    feed.api.fail_next(f"datasets/{A}/versions/2", 500, "internal_error")
    report = sync(client, SUBSCRIPTION, target)
    assert states(target) == {A: (1, "behind"), B: (2, "ok")}
    assert [each.dataset_id for each in report.behind] == [A]
    feed.update(A, put=permits(41))
    assert sync(client, SUBSCRIPTION, target).behind == ()
    assert states(target)[A] == (3, "ok")


def test_what_was_behind_follows_the_chain_rather_than_reloads(feed, target, client):
    sync(client, SUBSCRIPTION, target)
    feed.update(A, put=permits(40))
    feed.api.fail_next(f"datasets/{A}/versions/2", 500, "internal_error")
    sync(client, SUBSCRIPTION, target)
    feed.update(A, put=permits(41))
    (report,) = sync(client, SUBSCRIPTION, target).datasets
    assert (report.reloaded, report.moved.added, report.held.version) == (False, 2, 3)


def test_changes_that_name_a_record_twice_are_refused_then_reloaded_by_the_next_run(feed, target, client):
    sync(client, SUBSCRIPTION, target)
    good = feed.update(A, put=permits(40))
    broken = feed.api.state.datasets[A].versions[good].files["snapshot/part-0000.parquet"].content
    feed.api.rebuild(A, good, {"changes/part-0000.parquet": broken})
    report = sync(client, SUBSCRIPTION, target)
    assert states(target)[A] == (1, "behind")
    assert "lack the column" in report.behind[0].held.reason
    feed.reload(A, permits(1, 2), "previous_unavailable")
    sync(client, SUBSCRIPTION, target)
    assert states(target)[A] == (3, "ok")


def test_rows_that_were_lost_are_noticed_and_loaded_anew(feed, path, target, client):
    sync(client, SUBSCRIPTION, target)
    with duckdb.connect(str(path)) as db:
        db.execute(f"DELETE FROM {A} WHERE number = 'P-0003'")
    feed.update(A, put=permits(40))
    (report,) = sync(client, SUBSCRIPTION, target).datasets
    assert (report.reloaded, report.held.version, report.held.state) == (True, 2, "ok")
    assert all(each.equal for each in verify(client, target))


def test_a_users_view_in_the_way_blocks_and_goes_on_once_it_is_gone(feed, path, target, client):
    sync(client, SUBSCRIPTION, target)
    with duckdb.connect(str(path)) as db:
        db.execute(f"CREATE VIEW worth AS SELECT value FROM {A}")
    feed.reload(A, {record_id(1): {"number": "P"}}, "schema_changed", columns={"number": "string"})
    (report,) = sync(client, SUBSCRIPTION, target, on_major="apply").datasets
    assert report.held.state == "blocked"
    assert "worth" in report.held.reason
    with duckdb.connect(str(path)) as db:
        db.execute("DROP VIEW worth")
    sync(client, SUBSCRIPTION, target, on_major="apply")
    assert states(target)[A] == (2, "ok")


def test_a_paused_dataset_goes_on_to_the_last_version_of_its_major(feed, target, client):
    sync(client, SUBSCRIPTION, target)
    feed.update(A, put=permits(40))
    feed.update(A, put=permits(41))
    feed.reload(A, {record_id(1): {"number": "P"}}, "schema_changed", columns={"number": "string"})
    feed.api.fail_next(f"datasets/{A}/versions/2", 500, "internal_error")
    sync(client, SUBSCRIPTION, target)
    assert states(target)[A] == (1, "behind")
    sync(client, SUBSCRIPTION, target)
    assert states(target)[A] == (3, "paused")
    sync(client, SUBSCRIPTION, target, on_major="apply")
    assert states(target)[A] == (4, "ok")


def test_a_log_that_does_not_go_on_is_an_error_not_a_loop(feed, target, client):
    sync(client, SUBSCRIPTION, target)
    feed.update(A, put=permits(40))
    cursor = target.state().cursor
    events = feed.api.state.subscriptions[SUBSCRIPTION].events[-1:]
    feed.api.answer_next("/events", {"events": events, "nextCursor": cursor}, times=9)
    with pytest.raises(BadAnswer, match="does not go on"):
        sync(client, SUBSCRIPTION, target)
    assert target.state().cursor == cursor


def test_a_manifest_that_never_leads_to_a_log_is_an_error_not_a_loop(feed, target, client):
    sync(client, SUBSCRIPTION, target)
    feed.api.fail_next("/events", 410, "expired", times=99)
    with pytest.raises(Exception, match="Refused by the script"):
        sync(client, SUBSCRIPTION, target)
    assert len([path for path in api_paths(feed) if path.endswith("/manifest")]) == 3


def test_replaying_the_whole_log_changes_nothing(feed, path, target, client):
    sync(client, SUBSCRIPTION, target)
    feed.update(A, put=permits(40), drop=[record_id(1)])
    feed.reload(B, zones(5, 6), "previous_unavailable")
    sync(client, SUBSCRIPTION, target)
    with duckdb.connect(str(path)) as db:
        before = db.execute(f"SELECT * FROM {A} ORDER BY ALL").fetchall()
        db.execute("UPDATE _ploti_sync SET cursor = 'evt_000000000001'")
        db.execute("UPDATE _ploti_datasets SET position = 0")
    report = sync(client, SUBSCRIPTION, target)
    assert [each for each in report.datasets if each.moved is not None] == []
    with duckdb.connect(str(path)) as db:
        assert db.execute(f"SELECT * FROM {A} ORDER BY ALL").fetchall() == before
    assert states(target) == {A: (2, "ok"), B: (2, "ok")}


REFUSED = [(409, "not_subscribed"), (409, "outside_coverage"), (409, "not_deliverable"), (404, "not_found")]


@pytest.mark.parametrize(("status", "code"), REFUSED, ids=[code for _, code in REFUSED])
def test_a_version_refused_like_this_means_that_its_dataset_has_left_since(feed, target, client, status, code):
    sync(client, SUBSCRIPTION, target)
    feed.update(A, put=permits(40))
    feed.update(A, put=permits(41))
    feed.update(B, put=zones(9))
    feed.api.fail_next(f"datasets/{A}/", status, code, times=9)
    assert sync(client, SUBSCRIPTION, target).behind == ()
    assert states(target) == {A: (1, "leaving"), B: (2, "ok")}


def test_rows_of_a_dataset_that_left_stay_and_are_updated_no_longer(feed, path, target, client):
    def rows():
        with duckdb.connect(str(path)) as db:
            return db.execute(f"SELECT * FROM {A} ORDER BY ALL").fetchall()

    sync(client, SUBSCRIPTION, target)
    before = rows()
    assert len(before) == 12
    feed.api.change_dataset(A, covered=False)
    feed.update(A, put=permits(40), drop=[record_id(1)])
    sync(client, SUBSCRIPTION, target)
    assert (rows(), states(target)[A]) == (before, (1, "left"))


def test_resync_is_for_followed_datasets(feed, target, client):
    with pytest.raises(SyncError, match="not followed"):
        resync(client, target, A)
    sync(client, SUBSCRIPTION, target)
    feed.api.change_dataset(A, covered=False)
    sync(client, SUBSCRIPTION, target)
    with pytest.raises(SyncError, match="not followed"):
        resync(client, target, A)


def test_verify_tells_why_a_table_could_not_be_compared(feed, target, client):
    sync(client, SUBSCRIPTION, target)
    feed.api.change_dataset(A, covered=False)
    found = {each.dataset_id: each for each in verify(client, target)}
    assert found[B].equal
    assert not found[A].equal
    assert found[A].problem


@pytest.mark.parametrize("columns", [(), (f"{B}=zone",)], ids=["all", "some"])
def test_verify_leaves_alone_what_is_beside_the_target(feed, path, target, client, columns):
    """A sync may have it on its way, and the disk may be one to read only."""
    sync(client, SUBSCRIPTION, target, columns=columns)
    under_way = target.downloads / "0.partial"
    target.downloads.mkdir()
    under_way.write_bytes(b"half")
    there = {each: each.stat().st_mtime_ns for each in path.parent.rglob("*")}
    assert all(each.equal for each in verify(client, target))
    assert {each: each.stat().st_mtime_ns for each in path.parent.rglob("*")} == there


def test_a_table_that_a_sync_moves_on_while_it_is_compared_is_compared_with_what_it_holds_then(feed, target, client):
    sync(client, SUBSCRIPTION, target)

    class Syncs(Progress):
        left = 3

        def moved(self, count):
            if self.left:
                self.left -= 1
                feed.update(A, put=permits(40 + self.left))
                sync(client, SUBSCRIPTION, target)

    found = {each.dataset_id: each for each in verify(client, target, progress=Syncs())}
    assert (found[A].equal, found[A].version, found[B].equal) == (True, 4, True)


def spoilt(feed, path, *members, value=None, cursor=None):
    """An answer of the fake, with one member taken away, or another value in its place."""
    with Client(**feed.api.client_options) as client:
        answer = client.http.get(path, {"cursor": cursor})
    place = answer
    for member in members[:-1]:
        place = place[member]
    if value is None:
        del place[members[-1]]
    else:
        place[members[-1]] = value
    return answer


MANIFEST = f"/v1/feeds/subscriptions/{SUBSCRIPTION}/manifest"
LOG = f"/v1/feeds/subscriptions/{SUBSCRIPTION}/events"
SPOILT_ENTRIES = [
    ("a manifest entry without a version", MANIFEST, ("datasets", 0, "version"), "version"),
    ("a manifest entry with half a file", MANIFEST, ("datasets", 0, "files", "snapshot", 0, "sha256"), "sha256"),
    ("an event without its version", LOG, ("events", 1, "data", "version"), "version"),
    (
        "a version without its previous one",
        f"/v1/feeds/datasets/{A}/versions/2",
        ("previousVersion",),
        "previousVersion",
    ),
]


@pytest.mark.parametrize(
    ("address", "members", "named"), [row[1:] for row in SPOILT_ENTRIES], ids=[row[0] for row in SPOILT_ENTRIES]
)
def test_an_answer_that_lacks_something_leaves_its_dataset_behind_and_the_next_run_makes_it_good(
    feed, target, client, address, members, named
):
    cursor = None
    if address != MANIFEST:
        sync(client, SUBSCRIPTION, target)
        cursor = event_id(event_number(target.state().cursor) - 1) if address == LOG else None
        feed.update(A, put=permits(40))
    feed.update(B, put=zones(9))
    newest = 1 if address == MANIFEST else 2
    feed.api.answer_next(address, spoilt(feed, address, *members, cursor=cursor))
    report = sync(client, SUBSCRIPTION, target)
    (behind,) = report.behind
    assert (behind.dataset_id, states(target)[B]) == (A, (2, "ok"))
    assert named in behind.held.reason
    assert not sync(client, SUBSCRIPTION, target).behind
    assert states(target)[A] == (newest, "ok")


SPOILT_FRAMES = [
    ("a manifest without a cursor", MANIFEST, ("eventCursor",), None),
    ("a manifest entry without an id", MANIFEST, ("datasets", 0, "datasetId"), None),
    ("a page without events", LOG, ("events",), None),
    ("an event without an id", LOG, ("events", 0, "id"), None),
    ("an event without data", LOG, ("events", 0, "data"), "x"),
]


@pytest.mark.parametrize(
    ("address", "members", "value"), [r[1:] for r in SPOILT_FRAMES], ids=[r[0] for r in SPOILT_FRAMES]
)
def test_an_answer_that_no_dataset_can_be_told_from_stops_the_run_with_a_line(
    feed, target, client, address, members, value
):
    cursor = None
    if address == LOG:
        sync(client, SUBSCRIPTION, target)
        cursor = target.state().cursor
        feed.update(A, put=permits(40))
    feed.api.answer_next(address, spoilt(feed, address, *members, value=value, cursor=cursor))
    with pytest.raises(BadAnswer, match="not what was promised"):
        sync(client, SUBSCRIPTION, target)
    assert not sync(client, SUBSCRIPTION, target).behind


@pytest.mark.parametrize("name", ["../x", "ds_", "DS_A", "ds_a/b", "gpkg_contents", "ds_a b"])
def test_a_dataset_whose_id_no_table_can_have_is_told_and_the_others_go_on(feed, target, client, name):
    manifest = spoilt(feed, MANIFEST, "datasets", 0, "datasetId", value=name)
    feed.api.answer_next(MANIFEST, manifest)
    (behind,) = sync(client, SUBSCRIPTION, target).behind
    assert (behind.dataset_id, states(target)[B]) == (name, (1, "ok"))
    assert "its id is not one that a table can have" in behind.held.reason
    (behind,) = sync(client, SUBSCRIPTION, target).behind
    assert "its id" in behind.held.reason


def test_only_the_datasets_asked_for_are_brought_until_others_are_asked_for(feed, target, client):
    feed.add("ds_third", PERMITS, permits(1))
    sync(client, SUBSCRIPTION, target, datasets=[A])
    assert states(target) == {A: (1, "ok"), B: (None, "left"), "ds_third": (None, "left")}
    feed.update(A, put=permits(40))
    feed.update(B, put=zones(9))
    feed.add("ds_new", PERMITS, permits(1))
    feed.api.change_dataset("ds_third", covered=False)
    report = sync(client, SUBSCRIPTION, target, datasets=[A])
    assert [each.dataset_id for each in report.datasets] == [A]
    assert states(target) == {A: (2, "ok"), B: (None, "left"), "ds_third": (None, "left"), "ds_new": (None, "left")}
    sync(client, SUBSCRIPTION, target, datasets=[B])
    assert states(target)[A] == (2, "left")
    feed.update(A, put=permits(41))
    sync(client, SUBSCRIPTION, target, datasets=[B])
    assert not sync(client, SUBSCRIPTION, target).behind
    assert states(target) == {A: (3, "ok"), B: (2, "ok"), "ds_third": (None, "left"), "ds_new": (1, "ok")}
    feed.update(A, put=permits(42))
    sync(client, SUBSCRIPTION, target)
    assert states(target)[A] == (4, "ok")
    assert all(each.equal for each in verify(client, target))


def test_a_dataset_that_the_subscription_has_not_is_told(feed, target, client):
    with pytest.raises(SyncError, match="no dataset ds_typo"):
        sync(client, SUBSCRIPTION, target, datasets=[A, "ds_typo"])
    assert states(target)[A] == (1, "ok")


def test_a_first_load_fetches_several_datasets_at_once_and_keeps_trouble_to_its_own(feed, path, client):
    names = [f"ds_{at}" for at in range(6)]
    for name in names:
        feed.add(name, PERMITS, permits(1, 2))
    threads, target = set(), open_target(f"duckdb:///{path}")

    def reach(step):
        if step == "sync.part_downloaded":
            threads.add(threading.current_thread().name)

    feed.api.fail_next("^/files/ds_3/.*snapshot", 500, times=6)
    feed.api.delay_next("^/files/", 0.02, times=30)
    downloads = Downloads(client, target.downloads, reach=reach, sleep=lambda _: None)
    report = sync(client, SUBSCRIPTION, target, workers=3, downloads=downloads)
    assert [each.dataset_id for each in report.behind] == ["ds_3"]
    assert states(target) == {A: (1, "ok"), B: (1, "ok"), **dict.fromkeys(names, (1, "ok")), "ds_3": (None, "behind")}
    assert len(threads) == 3
    assert all(name.startswith("ploti-sync") for name in threads)
    assert not sync(client, SUBSCRIPTION, target, workers=3).behind
    assert not target.downloads.exists()


def test_a_run_that_stops_ends_what_is_fetched_ahead(feed, path, client):
    def stop(step):
        if step == "sync.rows_written":
            raise KeyboardInterrupt

    feed.add("ds_0", PERMITS, permits(*range(50)))
    feed.api.delay_next("^/files/ds_0/", 0.05, times=3)
    with pytest.raises(KeyboardInterrupt):
        sync(client, SUBSCRIPTION, open_target(f"duckdb:///{path}", reach=stop), workers=3)
    assert not [each for each in threading.enumerate() if each.name.startswith("ploti-sync")]
    assert not sync(client, SUBSCRIPTION, open_target(f"duckdb:///{path}"), workers=3).behind
