"""Some columns of a dataset: chosen once, kept, changed by loading again, compared and repaired exactly (D11.8)."""

import json
from contextlib import contextmanager

import pytest
from tests.sync.test_sync_consumers import FEWER, KITS

from ploti import Client, Retries
from ploti.sync.columns import choices_of
from ploti.sync.loop import repair, resync, sync, verify
from ploti.sync.target import SyncError, reach_nothing
from ploti.testing.feed import SUBSCRIPTION, Feed, record_id
from ploti.testing.stories import A

COLUMNS = {"number": "string", "value": "number", "owner": "string", "geometry": "geometry"}
POINT = bytes.fromhex("0101000000000000000000F03F0000000000000040")


@pytest.fixture(params=FEWER)
def kit(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    at = request.getfixturevalue("postgres_database") if request.param == "postgresql" else tmp_path
    return KITS[request.param](at)


def row(number, **more):
    return {"number": f"P-{number}", "value": number + 0.5, "owner": f"o{number}", "geometry": POINT} | more


def rows(*numbers):
    return {record_id(number): row(number) for number in numbers}


@pytest.fixture
def feed():
    feed = Feed()
    feed.add(A, COLUMNS, rows(*range(5)))
    return feed


@contextmanager
def client_of(feed):
    with Client(**feed.api.client_options, retries=Retries(attempts=1)) as client:
        yield client


def follow(feed, kit, **choice):
    """Sync, and compare: the table has these columns of its version's rows; gives the report of the dataset."""
    with client_of(feed) as client:
        reports = sync(client, SUBSCRIPTION, kit.open(reach_nothing), **choice).datasets
        held = kit.open(reach_nothing).state().datasets[A]
        (found,) = verify(client, kit.open(reach_nothing))
    assert found.equal, found
    return held, reports[0] if reports else None


def check(feed, kit, version, names):
    wanted = feed.snapshots[A][version].rows
    assert kit.rows(A) == {id_: {name: values.get(name) for name in names} for id_, values in wanted.items()}


def test_chosen_columns_follow_every_kind_of_version_and_a_new_choice_loads_again(kit, feed):
    held, _ = follow(feed, kit, columns=[f"{A}=number,owner"])
    check(feed, kit, 1, ["number", "owner"])
    assert json.loads(held.columns) == {"only": ["number", "owner"]}
    wider = {**COLUMNS, "note": "string"}
    one = {record_id(1): row(1, owner="new", note="n")}
    feed.update(A, put=one, columns=wider, drop=[record_id(2)], fill=lambda id_: {"note": id_}, constants={"value": 1})
    _, report = follow(feed, kit)
    assert (report.reloaded, report.moved.changed) == (False, 1)
    check(feed, kit, 2, ["number", "owner"])
    _, report = follow(feed, kit, without=[f"{A}=owner"])
    assert (report.reloaded, report.held.version, report.held.state) == (True, 2, "ok")
    check(feed, kit, 2, ["number", "value", "geometry", "note"])
    feed.update(A, put={record_id(9): row(9, note="x")})
    assert not follow(feed, kit, without=[f"{A}=owner"])[1].reloaded
    check(feed, kit, 3, ["number", "value", "geometry", "note"])
    held, report = follow(feed, kit, columns=[f"{A}=*"])
    assert (held.columns, report.reloaded) == (None, True)
    check(feed, kit, 3, list(wider))


def test_what_is_wrong_in_a_chosen_column_is_found_and_put_right(tmp_path, feed):
    import duckdb

    kit = KITS["duckdb"](tmp_path)
    follow(feed, kit, without=[f"{A}=owner"])
    with duckdb.connect(str(kit.path)) as db:
        db.execute(f"UPDATE {A} SET value = 9 WHERE number = 'P-1'")
        db.execute(f"DELETE FROM {A} WHERE number = 'P-2'")
    with client_of(feed) as client:
        assert not verify(client, kit.open(reach_nothing))[0].equal
        (done,) = repair(client, kit.open(reach_nothing))
        assert (done.after.equal, done.moved.added, done.moved.changed) == (True, 1, 1)
        check(feed, kit, 1, ["number", "value", "geometry"])
        resync(client, kit.open(reach_nothing), A)
    check(feed, kit, 1, ["number", "value", "geometry"])
    feed.api.keep(A, 1, "pruned")
    with client_of(feed) as client:
        assert "past retention" in verify(client, kit.open(reach_nothing))[0].problem


def test_a_column_that_is_not_there_leaves_the_table_as_it_was(tmp_path, feed):
    kit = KITS["duckdb"](tmp_path)
    follow(feed, kit, columns=[f"{A}=number"])
    held, report = follow(feed, kit, columns=[f"{A}=number,phone"])
    assert (held.state, report.held.reason) == (
        "behind", "it has no column 'phone' to choose: it has number, value, owner, geometry",
    )  # fmt: skip
    check(feed, kit, 1, ["number"])
    assert follow(feed, kit)[0].state == "ok"
    narrower = {"value": "number", "owner": "string"}
    feed.reload(A, {record_id(1): {"value": 1.0, "owner": "x"}}, "schema_changed", columns=narrower)
    with client_of(feed) as client:
        sync(client, SUBSCRIPTION, kit.open(reach_nothing), on_major="apply")
    assert kit.rows(A) == {record_id(1): {}}


def test_a_paused_dataset_gets_other_columns_and_stays_paused(tmp_path, feed):
    kit = KITS["duckdb"](tmp_path)
    follow(feed, kit)
    feed.reload(A, {record_id(1): {"value": 1.0}}, "schema_changed", columns={"value": "number"})
    assert follow(feed, kit)[0].state == "paused"
    held, report = follow(feed, kit, without=[f"{A}=owner"])
    assert (held.state, held.version, report.reloaded) == ("paused", 1, True)
    check(feed, kit, 1, ["number", "value", "geometry"])


@pytest.mark.parametrize(
    ("only", "without"),
    [(["number"], []), ([f"{A}="], []), ([f"{A}=*,a"], []), ([], [f"{A}=*"]), ([f"{A}=a"], [f"{A}=b"]), (["=a"], [])],
)
def test_a_choice_that_is_none_is_refused(only, without):
    with pytest.raises(SyncError, match="columns"):
        choices_of(only, without)


def test_a_dataset_that_the_subscription_has_not_is_told(tmp_path, feed):
    with pytest.raises(SyncError, match="no dataset ds_typo"):
        follow(feed, KITS["duckdb"](tmp_path), columns=["ds_typo=number"])


def test_a_choice_is_taken_where_the_log_begins_later(tmp_path, feed):
    kit = KITS["duckdb"](tmp_path)
    follow(feed, kit)
    feed.add("ds_other", COLUMNS, rows(1))
    feed.update("ds_other", put=rows(2))
    feed.api.prune_events(SUBSCRIPTION, feed.api.state.subscriptions[SUBSCRIPTION].newest)
    choose(feed, kit, columns=[f"{A}=number"])
    check(feed, kit, 1, ["number"])


def test_a_choice_is_taken_where_a_first_load_ended_early(tmp_path, feed):
    kit = KITS["duckdb"](tmp_path)
    feed.add("ds_other", COLUMNS, rows(1))

    reached = []

    def end(step):
        reached.append(step)
        if reached.count("sync.before_commit") == 3:  # the books, a dataset, the other one
            raise KeyboardInterrupt

    with client_of(feed) as client, pytest.raises(KeyboardInterrupt):
        sync(client, SUBSCRIPTION, kit.open(end))
    choose(feed, kit, columns=[f"{A}=number"])
    check(feed, kit, 1, ["number"])


def choose(feed, kit, **choice):
    with client_of(feed) as client:
        sync(client, SUBSCRIPTION, kit.open(reach_nothing), **choice)
