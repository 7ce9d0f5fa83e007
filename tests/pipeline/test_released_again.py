"""A version released again, as subscribers see it (D5.2, page 001 "Versions released again")."""

from dataclasses import replace

import pytest
from tests.pipeline.publishing import DATASET, Publisher, table

from ploti_server.domain.checks import CheckKind
from ploti_server.pipeline.act import release_again
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.release import ReleaseRefused
from ploti_server.pipeline.trace import trace
from ploti_server.worker import TRIES

SNAPSHOT = "snapshot/part-0000.parquet"
FIRST = table(range(40))
SECOND = table(range(41)).replace("\n7,x7\n", "\n70,x7\n")
THIRD = table(range(1, 42)).replace("\n7,x7\n", "\n70,edited\n")
WIDER = table(range(41), "k,v,n", "{0},x{0},{0}")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    publisher = Publisher(tmp_path_factory.mktemp("published"), key=("k",))
    publisher.outcome(FIRST)
    publisher.outcome(SECOND)
    return publisher


@pytest.fixture
def publisher(published, tmp_path):
    """Two versions that were sent, the second with a record more and one under another key."""
    return published.copy(tmp_path)


def current(publisher):
    with publisher.ports.store.read() as records:
        found = records.versions.current(DATASET)
    return found and found.number


@pytest.fixture(scope="module")
def rebuilt(published, tmp_path_factory):
    """The same after the second was released again and rebuilt; `meanwhile` is what was current until then."""
    publisher = published.copy(tmp_path_factory.mktemp("rebuilt"))
    publisher.early, publisher.before = publisher.subscribe(), publisher.refresh()
    checks = release_again(publisher.ports, DATASET, 2)
    publisher.meanwhile, publisher.status, publisher.late = (
        current(publisher),
        publisher.version(2).status,
        publisher.subscribe(),
    )
    publisher.outcomes = publisher.work(checks)
    return publisher


def test_it_is_rebuilt_under_a_new_number(rebuilt):
    assert (str(rebuilt.status), rebuilt.outcomes) == ("released_again", [("released", 3)])
    assert rebuilt.chain() == [(1, None), (3, 2)]
    assert rebuilt.version(3).row_count == rebuilt.version(2).row_count
    assert (rebuilt.refresh(), rebuilt.version(3).fetched_at) == (rebuilt.before, rebuilt.version(2).fetched_at)


def test_the_rebuild_is_a_version_to_reload(rebuilt):
    version = rebuilt.version(3)
    assert (version.counts, version.files_of("changes")) == (None, ())
    for subscription in (rebuilt.early, rebuilt.late):
        assert [name for name, *_ in rebuilt.log(subscription)] == ["added", "resync_required"]


def test_its_reason_is_previous_unavailable(rebuilt):
    version = rebuilt.version(3)
    assert (version.resync_reason, version.record_ids_changed) == ("previous_unavailable", False)
    assert rebuilt.log(rebuilt.early, "version", "reason")[-1] == ("resync_required", 3, "previous_unavailable")


def test_until_it_is_sent_current_can_be_the_version_before_the_one_released_again(rebuilt):
    assert (rebuilt.meanwhile, current(rebuilt)) == (1, 3)
    assert [rebuilt.log(one, "version")[0] for one in (rebuilt.early, rebuilt.late)] == [("added", 2), ("added", 1)]


def test_a_record_that_it_matches_keeps_the_id_that_subscribers_hold(rebuilt):
    assert rebuilt.ids(3, "k") == rebuilt.ids(2, "k")
    assert rebuilt.ids(3, "k")["70"] == rebuilt.ids(1, "k")["7"]


@pytest.fixture(scope="module")
def newer(published, tmp_path_factory):
    """The same, where a newer state came before the rebuild."""
    publisher = published.copy(tmp_path_factory.mktemp("newer"))
    publisher.subscription = publisher.subscribe()
    (publisher.rebuild,) = release_again(publisher.ports, DATASET, 2)
    assert publisher.outcome(THIRD) == ("released", 3)
    return publisher


def test_a_newer_state_that_comes_first_is_the_resync_instead(newer):
    with newer.ports.store.read() as records:
        assert str(records.checks.get(newer.rebuild.id).status) == "replaced"
    assert newer.log(newer.subscription, "version", "reason")[1:] == [("resync_required", 3, "previous_unavailable")]


def test_its_records_are_matched_to_what_was_kept_of_the_version_released_again_which_it_names(newer):
    assert newer.version(3).previous_version == 2
    second, third = newer.ids(2, "k"), newer.ids(3, "k")
    assert {k: third[k] for k in third if k in second} == {k: second[k] for k in second if k in third}
    assert third["70"] == newer.ids(1, "k")["7"]


def test_a_build_that_was_under_way_is_the_resync_and_nothing_is_rebuilt_after_it(publisher):
    publisher.clock.advance(hours=1)
    state = publisher.folder / "state.csv"
    state.write_text(THIRD)
    under_way = take_state(publisher.ports, DATASET, GivenState(state))
    checks = release_again(publisher.ports, DATASET, 2)
    assert publisher.work([under_way, *checks]) == [("released", 3), ("unchanged", 3)]
    assert publisher.chain() == [(1, None), (3, 2)]


TWICE = table([*range(41), 7])
PAGE = "<html><body>portal error</body></html>"


@pytest.mark.parametrize(
    ("states", "outcomes", "number"),
    [
        ([PAGE], ["failed"], 3),
        ([TWICE], ["held"], 4),
        ([TWICE, PAGE], ["held", "failed"], 4),
        ([TWICE, table([*range(42), 7])], ["held", "held"], 5),
    ],
    ids=["it fails", "it is discarded", "it is discarded after one that fails", "what took its place is discarded"],
)
def test_where_the_newer_state_comes_to_nothing_it_is_rebuilt_after_all(publisher, states, outcomes, number):
    publisher.subscription = publisher.subscribe()
    release_again(publisher.ports, DATASET, 2)
    assert [publisher.outcome(state)[0] for state in states] == outcomes
    if "held" in outcomes:
        assert open_checks(publisher) == []
        publisher.discard()
    assert publisher.work(open_checks(publisher)) == [("released", number)]
    assert publisher.chain() == [(1, None), (number, 2)]
    assert publisher.log(publisher.subscription, "version", "reason")[-1] == (
        "resync_required",
        number,
        "previous_unavailable",
    )


def test_a_state_that_only_repeats_a_discarded_version_takes_no_rebuild_away(publisher):
    release_again(publisher.ports, DATASET, 2)
    publisher.outcome(TWICE)
    publisher.discard()
    assert publisher.outcome(TWICE) == ("unchanged", 1)
    assert publisher.work(open_checks(publisher)) == [("released", 4)]


def test_a_build_under_way_that_is_discarded_takes_no_rebuild_away(publisher):
    publisher.clock.advance(hours=1)
    state = publisher.folder / "state.csv"
    state.write_text(TWICE)
    under_way = take_state(publisher.ports, DATASET, GivenState(state))
    checks = release_again(publisher.ports, DATASET, 2)
    assert publisher.work([under_way, *checks]) == [("held", 3), ("unchanged", 1)]
    publisher.discard()
    assert publisher.work(open_checks(publisher)) == [("released", 4)]


def test_a_newer_state_whose_build_breaks_down_takes_no_rebuild_away(publisher):
    def reach(step):
        if step == "build.computed":
            raise OSError("the disk is full")

    release_again(publisher.ports, DATASET, 2)
    sound = publisher.ports
    publisher.ports = replace(sound, reach=reach)
    with pytest.raises(OSError, match="full"):
        publisher.outcome(THIRD)
    (check,) = open_checks(publisher)
    for _ in range(TRIES - 1):
        publisher.clock.advance(hours=1)
        with pytest.raises(OSError, match="full"):
            publisher.work([check])
    publisher.ports = sound
    assert publisher.work(open_checks(publisher)) == [("released", 3)]


def test_a_rebuild_that_is_discarded_itself_is_not_queued_again(publisher):
    publisher.define(drop=("v",))
    publisher.work(release_again(publisher.ports, DATASET, 2))
    publisher.discard()
    assert open_checks(publisher) == []


def open_checks(publisher):
    with publisher.ports.store.read() as records:
        return list(records.checks.open_of(DATASET))


@pytest.mark.parametrize("state", [THIRD, SECOND], ids=["another state", "the same state"])
def test_a_build_that_had_begun_is_done_anew_as_the_resync(publisher, state):
    acts = []

    def reach(step):
        if step == "build.computed" and not acts:
            acts.extend(release_again(publisher.ports, DATASET, 2))

    publisher.ports = replace(publisher.ports, reach=reach)
    assert publisher.outcome(state) == ("released", 3)
    version = publisher.version(3)
    assert (version.previous_version, version.resync_reason, version.attempt) == (2, "previous_unavailable", 2)
    assert publisher.work(acts) == [("unchanged", 3)]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"drop": ("v",)}, "schema_changed"), ({"key": ("v",)}, "key_columns_changed")],
    ids=["schema", "key"],
)
def test_the_resync_has_the_reason_of_what_else_it_changes(publisher, fields, reason):
    publisher.define(**fields)
    assert publisher.release_again(2) == [("held", 3)]
    assert publisher.version(3).resync_reason == reason


def test_a_minor_schema_change_is_the_reason_of_the_resync_too(publisher):
    subscription = publisher.subscribe()
    release_again(publisher.ports, DATASET, 2)
    assert publisher.outcome(WIDER) == ("released", 3)
    assert publisher.log(subscription, "version", "schemaVersion", "reason")[1:] == [
        ("schema_changed", 3, "1.1", None),
        ("resync_required", 3, "1.1", "schema_changed"),
    ]


def test_a_schema_that_the_version_brought_keeps_its_number_and_is_measured_from_it(publisher):
    publisher.outcome(WIDER)
    assert publisher.release_again(3) == [("released", 4)]
    version = publisher.version(4)
    assert (version.schema_version, version.schema_change, version.resync_reason) == (
        "1.1",
        None,
        "previous_unavailable",
    )


def test_a_version_that_replaced_ids_and_was_sent_is_rebuilt_without_a_map(publisher):
    publisher.replace_ids()
    assert publisher.release_again(3) == [("released", 4)]
    version = publisher.version(4)
    assert (version.resync_reason, version.files_of("id-map")) == ("previous_unavailable", ())
    assert publisher.ids(4, "k") == publisher.ids(3, "k")
    assert version.id_epoch == 1


@pytest.fixture(scope="module")
def replacing(tmp_path_factory):
    publisher = Publisher(tmp_path_factory.mktemp("replacing"), key=("k",))
    publisher.outcome(FIRST + "7,other\n")
    publisher.release()
    publisher.replace_ids()
    return publisher


@pytest.fixture
def held(replacing, tmp_path):
    """A version that replaces ids and is held, as its key is doubled."""
    return replacing.copy(tmp_path)


def test_a_version_that_was_not_sent_is_rebuilt_with_its_replacement_and_its_own_map(held):
    subscription = held.subscribe()
    assert held.release_again(2) == [("held", 3)]
    held.release()
    version = held.version(3)
    assert (version.previous_version, version.resync_reason) == (1, "record_ids_changed")
    assert len(held.rows(3, "id-map")) == 41
    assert held.log(subscription, "version", "reason")[2:] == [
        ("delayed", 1, "data_check"),
        ("resync_required", 3, "record_ids_changed"),
    ]


def test_a_newer_state_in_place_of_its_rebuild_replaces_the_ids_too(held):
    release_again(held.ports, DATASET, 2)
    assert held.outcome(FIRST) == ("released", 3)
    assert held.version(3).resync_reason == "record_ids_changed"
    assert {row["_ploti_previous_record_id"] for row in held.rows(3, "id-map")} < set(held.ids(1, "v").values())


def test_a_resync_that_also_replaces_ids_has_their_reason_and_a_map(held):
    subscription = held.subscribe()
    release_again(held.ports, DATASET, 1)
    assert held.outcome(FIRST) == ("released", 3)
    assert held.log(subscription, "version", "reason")[-1] == ("resync_required", 3, "record_ids_changed")
    assert held.version(3).previous_version == 1
    assert len(held.rows(3, "id-map")) == 40


def test_a_held_version_gives_way_and_its_state_comes_after_the_rebuild(publisher):
    publisher.outcome(table(range(20)))
    rebuild, resumed = release_again(publisher.ports, DATASET, 2)
    assert str(publisher.version(3).status) == "superseded"
    assert (rebuild.kind, rebuild.again, resumed.kind) == (CheckKind.RELEASE_AGAIN, 2, CheckKind.RESUME)
    with publisher.ports.store.read() as records:
        held, again = (records.checks.get(publisher.version(number).check_id) for number in (3, 2))
    assert (resumed.state_sha256, rebuild.state_sha256) == (held.state_sha256, again.state_sha256)
    assert resumed.fetched_at == publisher.version(3).fetched_at


def test_the_only_version_released_again_leaves_nothing_current_and_its_rebuild_is_no_first_version(tmp_path):
    publisher = Publisher(tmp_path, key=("k",))
    subscription = publisher.subscribe()
    publisher.outcome(FIRST)
    checks = release_again(publisher.ports, DATASET, 1)
    assert current(publisher) is None
    publisher.work(checks)
    assert publisher.log(subscription, "version", "reason")[-1] == ("resync_required", 2, "previous_unavailable")
    assert publisher.chain() == [(2, 1)]


@pytest.mark.parametrize("lost", [False, True], ids=["no column in common", "what was kept is lost"])
def test_when_none_of_the_kept_records_can_be_compared_the_version_is_held(tmp_path, lost):
    publisher = Publisher(tmp_path)
    publisher.outcome("a,b\n1,x\n2,y\n")
    release_again(publisher.ports, DATASET, 1)
    if lost:
        publisher.ports.files.remove(f"{publisher.version(1).folder}/snapshot/part-0000.parquet")
    done = publisher.check("a,b\n1,x\n2,y\n" if lost else "c,d\n1,x\n2,y\n")
    assert done.outcome == "held"
    assert "none_compared" in {hold["rule"] for hold in done.facts["holds"]}
    assert publisher.version(done.version).reasons[-1] == "processing"


def test_a_version_after_one_whose_snapshot_cannot_be_had_any_more_is_a_reload(publisher):
    lose(publisher, 2)
    assert publisher.outcome(SECOND + "41,x41\n") == ("held", 3)
    assert publisher.version(3).reasons == ("processing",)
    publisher.release()
    version = publisher.version(3)
    assert (version.previous_version, version.resync_reason) == (2, "previous_unavailable")
    assert version.files_of("changes") == ()


def lose(publisher, number):
    """Lose a version's snapshot for good: the states that it could be made again from are lost too."""
    for path in (*publisher.ports.files.paths(f"{DATASET}/states/"), f"{publisher.version(number).folder}/{SNAPSHOT}"):
        publisher.ports.files.remove(path)


def fates(publisher, *ids):
    """Tell what the ledger holds of records now."""
    return [str(trace(publisher.ports, DATASET, id_).status) for id_ in ids]


def test_keyed_records_keep_the_ids_that_subscribers_hold_though_the_files_to_compare_with_are_lost(publisher):
    before = publisher.ids(2, "k")
    lose(publisher, 2)
    assert publisher.outcome(THIRD + "7,back\n") == ("held", 3)
    publisher.release()
    now = publisher.ids(3, "k")
    assert {k: now[k] for k in now if k in before} == {k: before[k] for k in before if k in now}
    assert fates(publisher, before["0"], before["1"], now["41"]) == ["removed", "current", "current"]
    assert publisher.outcome(SECOND) == ("released", 4)
    assert publisher.ids(4, "k") == before


def test_no_id_is_taken_by_a_key_that_was_another_when_the_ledger_noted_it(tmp_path):
    publisher = Publisher(tmp_path, key=("a",))
    publisher.outcome("a,b\n1,2\n2,1\n")
    publisher.define(key=("b",))
    assert publisher.outcome("a,b\n1,2\n2,1\n3,3\n") == ("held", 2)
    publisher.release()
    before = publisher.ids(2, "a")
    lose(publisher, 2)
    publisher.outcome("a,b\n1,2\n2,1\n3,3\n4,4\n")
    publisher.release()
    now = publisher.ids(3, "a")
    assert now["3"] == before["3"]
    assert {now["1"], now["2"]}.isdisjoint(before.values())
    assert fates(publisher, *(before[k] for k in "123")) == ["removed", "removed", "current"]


def test_records_without_a_key_whose_files_are_lost_are_removed_in_the_ledger(tmp_path):
    publisher = Publisher(tmp_path)
    publisher.outcome("a,b\n1,x\n2,y\n")
    before = publisher.ids(1, "a")
    lose(publisher, 1)
    assert publisher.outcome("a,b\n1,x\n2,y\n3,z\n") == ("held", 2)
    publisher.release()
    now = publisher.ids(2, "a")
    assert fates(publisher, *before.values(), *now.values()) == ["removed"] * 2 + ["current"] * 3


def test_a_lost_snapshot_is_made_again_before_the_next_version_is_matched_with_it(publisher):
    publisher.ports.files.remove(f"{publisher.version(2).folder}/{SNAPSHOT}")
    assert publisher.outcome(THIRD) == ("released", 3)
    assert (publisher.version(2).attempt, publisher.version(3).resync_reason) == (2, None)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (1, "only the newest version of ds_x can be released again: version 2 is"),
        (2, None),
        (3, "ds_x has no version 3"),
    ],
)
def test_only_the_newest_version_can_be_released_again(publisher, number, told):
    if told is None:
        release_again(publisher.ports, DATASET, 2)
        told = "version 2 of ds_x was released again already"
    with pytest.raises(ReleaseRefused, match=told):
        release_again(publisher.ports, DATASET, number)
