"""A held version from its making to its end, as subscribers see it: D5.1, D5.2, D6, D7 and page 003 on holds."""

from dataclasses import replace

import pytest
from tests.pipeline.publishing import DATASET, Publisher, table

from ploti_server.domain.versions import VersionStatus
from ploti_server.pipeline.release import ReleaseRefused

FULL, HALF, LESS = table(range(40)), table(range(20)), table(range(19))
GROWN = table(range(41))
OTHER_COLUMN = table(range(40), header="k,w")


@pytest.fixture
def publisher(tmp_path):
    return Publisher(tmp_path, key=("k",))


def statuses(publisher, *numbers):
    return [str(publisher.version(number).status) for number in numbers]


def test_a_newer_version_replaces_a_held_one_and_leaves_a_gap(publisher):
    subscription = publisher.subscribe()
    assert publisher.outcome(FULL) == ("released", 1)
    assert publisher.outcome(HALF) == ("held", 2)
    assert publisher.outcome(LESS) == ("held", 3)
    assert publisher.outcome(GROWN) == ("released", 4)
    assert statuses(publisher, 2, 3) == ["superseded", "superseded"]
    assert publisher.chain() == [(1, None), (4, 1)]
    assert publisher.log(subscription, "version", "previousVersion", "reason") == [
        ("added", None, None, None),
        ("resync_required", 1, None, "first_version"),
        ("delayed", 1, None, "data_check"),
        ("delayed", 1, None, "data_check"),
        ("updated", 4, 1, None),
    ]


@pytest.fixture(scope="module")
def gaps(tmp_path_factory):
    """Versions 2 discarded, 3 replaced by a newer one, 5 released again and rebuilt."""
    publisher = Publisher(tmp_path_factory.mktemp("gaps"), key=("k",))
    publisher.outcome(FULL)
    publisher.outcome(HALF)
    publisher.discard()
    publisher.outcome(LESS)
    publisher.outcome(GROWN)
    publisher.outcome(FULL)
    publisher.release_again(5)
    return publisher


def test_version_numbers_increase_but_can_skip(gaps):
    numbers = [number for number, _ in gaps.chain()]
    assert numbers == sorted(set(numbers))
    assert set(numbers) < set(range(1, 7))
    assert len(numbers) < numbers[-1]


def test_a_discarded_a_replaced_and_a_rebuilt_version_leave_a_gap(gaps):
    assert statuses(gaps, 2, 3, 5) == ["discarded", "superseded", "released_again"]
    assert [number for number, _ in gaps.chain()] == [1, 4, 6]


def test_each_version_names_the_one_that_its_changes_apply_to(gaps):
    assert gaps.chain() == [(1, None), (4, 1), (6, 5)]
    held = {row["_ploti_record_id"]: row["v"] for row in gaps.rows(1)}
    for row in gaps.rows(4, "changes"):
        held[row["_ploti_record_id"]] = row["v"]
    assert held == {row["_ploti_record_id"]: row["v"] for row in gaps.rows(4)}


def test_after_a_discarded_version_the_next_one_follows_from_the_one_that_is_held_by_subscribers(publisher):
    subscription = publisher.subscribe()
    publisher.outcome(FULL)
    publisher.outcome(HALF)
    assert publisher.discard() == 2
    assert publisher.outcome(GROWN) == ("released", 3)
    assert publisher.chain() == [(1, None), (3, 1)]
    assert publisher.log(subscription, "version", "previousVersion")[-2:] == [("delayed", 1, None), ("updated", 3, 1)]
    assert publisher.version(3).counts.added == 1


def test_a_state_that_equals_the_released_one_ends_a_hold_without_a_version_or_an_event(publisher):
    subscription = publisher.subscribe()
    publisher.outcome(FULL)
    publisher.outcome(HALF)
    before = publisher.log(subscription)
    assert publisher.outcome(FULL) == ("unchanged", 1)
    assert statuses(publisher, 2) == ["superseded"]
    assert publisher.log(subscription) == before
    with pytest.raises(ReleaseRefused):
        publisher.release()


def test_a_state_that_would_build_the_held_version_again_makes_nothing_new_and_names_the_hold(publisher):
    subscription = publisher.subscribe()
    publisher.outcome(FULL)
    publisher.outcome(HALF)
    again = publisher.check(HALF)
    assert (again.outcome, again.version, again.facts["open"]["version"]) == ("unchanged", 1, 2)
    assert statuses(publisher, 2) == ["held"]
    assert [name for name, *_ in publisher.log(subscription)].count("delayed") == 1
    with publisher.ports.store.read() as records:
        assert records.catalog.refresh(DATASET).last_checked_at == publisher.clock.now()


def test_a_state_that_would_build_a_discarded_version_again_makes_nothing_new(publisher):
    subscription = publisher.subscribe()
    publisher.outcome(FULL)
    publisher.outcome(HALF)
    publisher.discard()
    assert publisher.outcome(HALF) == ("unchanged", 1)
    assert statuses(publisher, 2) == ["discarded"]
    assert [name for name, *_ in publisher.log(subscription)].count("delayed") == 1


UNDECODABLE = FULL.replace("7,x7\n", "7,x7,beyond\n", 1)
WITHOUT_7 = FULL.replace("7,x7\n", "", 1)


@pytest.mark.parametrize("discarded", [False, True], ids=["held", "discarded"])
def test_a_source_that_is_fixed_unblocks_the_feed_though_it_delivers_the_same_rows(publisher, discarded):
    publisher.outcome(FULL)
    assert publisher.outcome(UNDECODABLE) == ("held", 2)
    if discarded:
        publisher.discard()
    assert publisher.outcome(UNDECODABLE) == ("unchanged", 1)
    assert publisher.outcome(WITHOUT_7) == ("released", 3)
    assert publisher.version(3).counts.removed == 1
    assert statuses(publisher, 2) == ["discarded" if discarded else "superseded"]


def test_limits_that_let_a_held_state_through_release_it_at_the_next_check(publisher):
    publisher.outcome(FULL)
    assert publisher.outcome(HALF) == ("held", 2)
    publisher.define(review=replace(publisher.dataset.review, max_row_drop=0.9))
    assert publisher.outcome(HALF) == ("released", 3)


def test_delayed_is_sent_once_per_held_version_and_to_a_subscription_that_joins_while_it_waits(publisher):
    publisher.outcome(FULL)
    publisher.outcome(HALF)
    since = publisher.version(2).built_at
    late = publisher.subscribe()
    publisher.outcome(HALF)
    assert publisher.log(late, "version", "reason") == [("added", 1, None), ("delayed", 1, "data_check")]
    publisher.outcome(LESS)
    publisher.release()
    joined_after = publisher.subscribe()
    assert [name for name, *_ in publisher.log(late)] == ["added", "delayed", "delayed", "updated"]
    assert [name for name, *_ in publisher.log(joined_after)] == ["added"]
    with publisher.ports.store.read() as records:
        (sent,) = records.events.after(late, 1, 1)
    assert sent.data["since"] == f"{since:%Y-%m-%dT%H:%M:%S}.000Z"


def test_the_version_of_delayed_is_null_where_nothing_was_released_yet(publisher):
    subscription = publisher.subscribe()
    assert publisher.outcome("k,v\n1,a\n1,b\n") == ("held", 1)
    assert publisher.log(subscription, "version", "reason") == [("added", None, None), ("delayed", None, "data_check")]
    assert publisher.release() == 1
    assert publisher.log(subscription, "version", "reason")[-1] == ("resync_required", 1, "first_version")


def test_schema_changed_comes_before_its_version_s_event_and_names_the_same_version(publisher):
    subscription = publisher.subscribe()
    publisher.outcome(FULL)
    assert publisher.outcome(table(range(40), "k,v,n", "{0},x{0},{0}")) == ("released", 2)
    assert publisher.outcome(OTHER_COLUMN) == ("held", 3)
    publisher.release()
    assert publisher.log(subscription, "version", "schemaVersion", "reason")[2:] == [
        ("schema_changed", 2, "1.1", None),
        ("updated", 2, "1.1", None),
        ("delayed", 2, None, "schema_review"),
        ("schema_changed", 3, "2.0", None),
        ("resync_required", 3, "2.0", "schema_changed"),
    ]


def test_schema_changed_is_never_sent_for_a_first_version(publisher):
    subscription = publisher.subscribe()
    publisher.outcome("k,v\n1,a\n1,b\n")
    publisher.outcome("k,w\n1,a\n2,b\n")
    assert [name for name, *_ in publisher.log(subscription)] == ["added", "delayed", "resync_required"]


def test_a_discarded_version_burns_no_schema_number(publisher):
    publisher.outcome(FULL)
    publisher.outcome(OTHER_COLUMN)
    assert publisher.version(2).schema_version == "2.0"
    publisher.discard()
    publisher.outcome(table(range(40), "k,v,n", "{0},x{0},{0}"))
    assert publisher.version(3).schema_version == "1.1"
    publisher.outcome(OTHER_COLUMN)
    assert publisher.version(4).schema_version == "2.0"


@pytest.mark.parametrize(
    ("key", "state", "reason", "known_by"),
    [
        ((), FULL, "key_columns_changed", "v"),
        (("v",), table(range(40), row="1{0},x{0}"), "key_columns_changed", "v"),
        (("k",), OTHER_COLUMN, "schema_changed", "k"),
        (("k",), table(range(40), "v,w", "x{0},{0}"), "key_columns_changed", "v"),
    ],
    ids=["key dropped", "key changed", "column renamed", "key column gone"],
)
def test_a_breaking_change_is_a_resync_in_which_matched_records_keep_their_ids(publisher, key, state, reason, known_by):
    publisher.outcome(FULL)
    publisher.define(key=key)
    assert publisher.outcome(state) == ("held", 2)
    publisher.release()
    held = publisher.version(2)
    assert (held.resync_reason, held.schema_version, held.counts) == (reason, "2.0", None)
    assert held.files_of("changes") == ()
    assert publisher.ids(1, known_by) == publisher.ids(2, known_by)


def test_a_key_pinned_for_the_first_time_and_an_added_column_still_have_changes_to_apply(publisher):
    publisher.define(key=())
    subscription = publisher.subscribe()
    publisher.outcome(FULL)
    publisher.define(key=("k",))
    assert publisher.outcome(FULL) == ("released", 2)
    assert publisher.outcome(table(range(41), "k,v,n", "{0},x{0},{0}")) == ("released", 3)
    pinned, wider = publisher.version(2), publisher.version(3)
    assert (pinned.schema_change.kind, pinned.schema_change.key_changed, pinned.schema_version) == (
        "additive",
        True,
        "1.1",
    )
    assert (wider.schema_change.kind, wider.schema_version) == ("additive", "1.2")
    assert [len(version.files_of("changes")) for version in (pinned, wider)] == [1, 1]
    assert [name for name, *_ in publisher.log(subscription)][-4:] == ["schema_changed", "updated"] * 2
    assert publisher.ids(1, "k") == publisher.ids(2, "k")


def test_when_several_reasons_apply_the_first_of_the_order_is_the_hold_s(publisher):
    subscription = publisher.subscribe()
    publisher.outcome(FULL)
    publisher.outcome(table(range(5), header="k,w"))
    assert publisher.version(2).reasons == ("schema_review", "data_check")
    assert publisher.log(subscription, "reason")[-1] == ("delayed", "schema_review")


def test_a_held_discarded_or_superseded_version_never_touches_the_ledger(publisher):
    publisher.outcome(FULL)
    first = publisher.ids(1, "k")
    publisher.outcome(HALF)
    publisher.discard()
    publisher.outcome(LESS)
    assert publisher.outcome(FULL) == ("unchanged", 1)
    publisher.outcome(GROWN)
    assert publisher.ids(4, "k").items() >= first.items()
    assert publisher.version(4).facts["returned"] == 0


def test_releasing_a_version_with_doubled_and_null_keys_delivers_those_rows_with_ids_by_content(publisher):
    publisher.outcome(FULL)
    assert publisher.outcome(FULL + "7,other\n,nobody\n") == ("held", 2)
    publisher.release()
    rows = publisher.rows(2)
    assert len({row["_ploti_record_id"] for row in rows}) == len(rows) == 42
    kept = {row["_ploti_record_id"] for row in rows if row["k"] != 7}
    assert kept >= {id_ for k, id_ in publisher.ids(1, "k").items() if k not in (7, "7")}
    assert publisher.outcome(FULL + "7,other\n,nobody\n") == ("unchanged", 2)


def test_a_check_that_failed_publishes_nothing_and_does_not_move_the_refresh(publisher):
    subscription = publisher.subscribe()
    publisher.outcome(FULL)
    with publisher.ports.store.read() as records:
        before = records.catalog.refresh(DATASET)
    assert publisher.outcome("") == ("failed", 1)
    with publisher.ports.store.read() as records:
        assert records.catalog.refresh(DATASET) == before
        assert records.versions.newest_number(DATASET) == 1
    assert len(publisher.log(subscription)) == 2
    publisher.outcome(HALF)
    assert publisher.outcome("") == ("failed", 1)
    assert publisher.version(2).status is VersionStatus.HELD


def test_a_hold_ends_by_itself_once_so_many_further_checks_agree_on_the_same_state_or_another(publisher):
    publisher.define(review=replace(publisher.dataset.review, release_after_agreeing_checks=2))
    subscription = publisher.subscribe()
    publisher.outcome(FULL)
    assert publisher.outcome(HALF) == ("held", 2)
    assert publisher.outcome(HALF) == ("unchanged", 1)
    assert publisher.version(2).agreeing_checks == 1
    assert publisher.outcome(table(range(5))) == ("held", 3)
    assert publisher.version(3).agreeing_checks == 0
    assert publisher.outcome("") == ("failed", 1)
    assert publisher.outcome(table(range(6))) == ("held", 4)
    assert publisher.outcome(LESS) == ("released", 5)
    assert publisher.version(5).note == "released by itself: 2 further checks found the same"
    assert statuses(publisher, 2, 3, 4) == ["superseded"] * 3
    publisher.define(review=replace(publisher.dataset.review, release_after_agreeing_checks=1))
    assert [publisher.outcome(table(range(2))) for _ in range(2)] == [("held", 6), ("released", 6)]
    assert publisher.chain() == [(1, None), (5, 1), (6, 5)]
    names = [name for name, *_ in publisher.log(subscription)]
    assert names[2:] == ["delayed", "delayed", "delayed", "updated", "delayed", "updated"]


def rules(publisher, number):
    return [hold["rule"] for hold in publisher.version(number).facts["holds"]]


def test_a_lost_header_is_a_breaking_schema_change_and_a_state_without_records_is_none(publisher):
    publisher.outcome(FULL)
    assert publisher.outcome(FULL.partition("\n")[2]) == ("held", 2)
    assert publisher.version(2).reasons[0] == "schema_review"
    assert publisher.outcome("k,v\n") == ("held", 3)
    assert (publisher.version(3).reasons, publisher.version(3).schema_change) == (("data_check",), None)
    assert rules(publisher, 3) == ["zero_rows", "row_drop"]


def test_an_absent_key_column_drops_the_key_and_is_no_null_key_until_all_are_back(publisher):
    publisher.outcome(FULL)
    assert publisher.outcome(table(range(40), "v", "x{0}")) == ("held", 2)
    assert (rules(publisher, 2), publisher.version(2).facts["null_keys"]) == (["breaking_schema"], 0)
    publisher.release()
    assert publisher.version(2).schema.key_columns == ()
    assert publisher.outcome(FULL) == ("released", 3)
    back = publisher.version(3)
    assert (back.schema.key_columns, back.schema_change.key_changed, back.schema_version) == (("k",), True, "2.1")
    assert publisher.ids(1, "v") == publisher.ids(2, "v") == publisher.ids(3, "v")
