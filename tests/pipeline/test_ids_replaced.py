"""Ids replaced by staff, as subscribers see it (D4.12, D5.2, page 001 "When record ids are replaced")."""

import json

import pytest
from tests.pipeline.publishing import DATASET, Publisher, table

from ploti_server.api.shapes import version_shape
from ploti_server.domain.replacements import Replacement, ReplacementRefused
from ploti_server.pipeline.act import replace_ids
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.trace import trace

FULL, HALF, GROWN = table(range(40)), table(range(20)), table(range(41))
DOUBLED = FULL + "7,other\n"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    publisher = Publisher(tmp_path_factory.mktemp("published"), key=("k",))
    publisher.outcome(FULL)
    return publisher


@pytest.fixture
def publisher(published, tmp_path):
    """One version that was sent."""
    return published.copy(tmp_path)


@pytest.fixture(scope="module")
def doubled_once(tmp_path_factory):
    publisher = Publisher(tmp_path_factory.mktemp("doubled"), key=("k",))
    publisher.outcome(DOUBLED)
    publisher.release()
    publisher.replace_ids()
    return publisher


@pytest.fixture
def doubled(doubled_once, tmp_path):
    """A version that replaces ids and is held, as its key is doubled."""
    return doubled_once.copy(tmp_path)


def manifest(publisher, number):
    version = publisher.version(number)
    return json.loads(b"".join(publisher.ports.files.read(f"{version.folder}/manifest.json")))


def id_map(publisher, number):
    rows = publisher.rows(number, "id-map")
    assert {row["_ploti_dataset_id"] for row in rows} <= {DATASET}
    return {row["_ploti_previous_record_id"]: row["_ploti_record_id"] for row in rows}


@pytest.fixture(scope="module")
def replaced(published, tmp_path_factory):
    """The same after all ids were replaced, a further state, and one id replaced alone."""
    publisher = published.copy(tmp_path_factory.mktemp("replaced"))
    publisher.subscription, publisher.before = publisher.subscribe(), publisher.refresh()
    assert publisher.replace_ids() == [("released", 2)]
    publisher.after = publisher.refresh()
    assert publisher.outcome(GROWN) == ("released", 3)
    assert publisher.replace_ids({publisher.ids(3, "k")["0"]: None}) == [("released", 4)]
    return publisher


def test_a_version_that_replaces_ids_is_a_reload_and_says_so(replaced):
    version = replaced.version(2)
    assert (version.record_ids_changed, version.counts, version.files_of("changes")) == (True, None, ())
    told = manifest(replaced, 2)
    assert (told["recordIdsChanged"], told["resyncRequired"], told["counts"]) == (True, True, None)
    shape = version_shape(version)
    assert (shape["recordIdsChanged"], shape["resyncRequired"]) == (True, True)
    assert (replaced.before, version.fetched_at) == (replaced.after, replaced.version(1).fetched_at)


def test_it_arrives_as_a_resync_for_the_reason_of_the_ids(replaced):
    sent = ("resync_required", 2, "record_ids_changed", "1.0")
    assert replaced.log(replaced.subscription, "version", "reason", "schemaVersion")[1] == sent


def test_its_id_map_lists_both_ids_and_the_dataset_for_every_record_carried(replaced):
    (part,) = replaced.version(2).files_of("id-map")
    assert part.path in {file["path"] for file in manifest(replaced, 2)["files"]}
    rows = replaced.rows(2, "id-map")
    assert {tuple(row) for row in rows} == {("_ploti_previous_record_id", "_ploti_record_id", "_ploti_dataset_id")}
    old, new = replaced.ids(1, "k"), replaced.ids(2, "k")
    assert id_map(replaced, 2) == {old[k]: new[k] for k in old}
    assert not set(old.values()) & set(new.values())
    assert id_map(replaced, 4) == {replaced.ids(3, "k")[k]: id_ for k, id_ in replaced.ids(4, "k").items()}


def test_later_versions_carry_the_new_ids(replaced):
    counts = {"added": 1, "changed": 0, "removed": 0}
    sent = replaced.log(replaced.subscription, "version", "previousVersion", "counts")[2]
    assert sent == ("updated", 3, 2, counts)
    assert replaced.ids(3, "k").items() > replaced.ids(2, "k").items()
    assert (replaced.version(3).id_epoch, replaced.version(3).record_ids_changed) == (1, False)
    assert id_map(replaced, 3) == {}


def test_named_ids_are_replaced_and_the_map_holds_all_that_are_carried(publisher):
    first = publisher.ids(1, "k")
    publisher.outcome(GROWN.replace("7,x7\n", ""))
    second = publisher.ids(2, "k")
    assert publisher.replace_ids({second["40"]: first["7"], second["0"]: None}) == [("released", 3)]
    ids = publisher.ids(3, "k")
    assert ids["40"] == first["7"]
    assert ids["0"] not in {*first.values(), *second.values()}
    assert id_map(publisher, 3) == {second[k]: ids[k] for k in second}
    assert {k for k in second if second[k] != ids[k]} == {"0", "40"}
    assert (publisher.version(3).facts["replaced"], publisher.version(3).id_epoch) == (2, 0)


def test_a_held_version_gives_way_and_its_state_comes_again_under_a_higher_number(publisher):
    subscription = publisher.subscribe()
    assert publisher.outcome(HALF) == ("held", 2)
    assert publisher.replace_ids() == [("released", 3), ("held", 4)]
    assert str(publisher.version(2).status) == "superseded"
    assert publisher.log(subscription, "version", "reason")[1:] == [
        ("delayed", 1, "data_check"),
        ("resync_required", 3, "record_ids_changed"),
        ("delayed", 3, "data_check"),
    ]
    publisher.release()
    assert publisher.chain() == [(1, None), (3, 1), (4, 3)]
    assert set(publisher.ids(4, "k").values()) < set(publisher.ids(3, "k").values())
    assert publisher.version(4).fetched_at == publisher.version(2).fetched_at


def test_a_replacement_that_is_held_is_owed_by_the_version_that_takes_its_place(doubled):
    assert doubled.version(2).reasons == ("data_check",)
    with pytest.raises(ReplacementRefused, match="version 2 of ds_x replaces ids already"):
        doubled.replace_ids()
    assert doubled.outcome(FULL) == ("released", 3)
    assert doubled.version(3).resync_reason == "record_ids_changed"
    assert not set(doubled.ids(3, "v").values()) & set(doubled.ids(1, "v").values())


def test_a_replacement_that_was_discarded_is_owed_no_more_and_can_be_asked_for_again(doubled):
    doubled.discard()
    assert doubled.replace_ids() == [("held", 3)]
    doubled.discard()
    assert doubled.outcome(FULL) == ("released", 4)
    assert not doubled.version(4).record_ids_changed


def test_a_newer_state_waits_for_a_replacement_that_is_queued(publisher):
    (act,) = replace_ids(publisher.ports, DATASET, Replacement())
    state = publisher.folder / "state.csv"
    state.write_text(GROWN)
    newer = take_state(publisher.ports, DATASET, GivenState(state))
    assert publisher.work([act, newer]) == [("released", 2), ("released", 3)]
    assert (publisher.version(2).record_ids_changed, publisher.version(3).counts.added) == (True, 1)


def test_ids_are_replaced_with_a_schema_change_for_the_reason_of_the_ids(publisher):
    subscription = publisher.subscribe()
    publisher.define(drop=("v",))
    assert publisher.replace_ids() == [("held", 2)]
    publisher.release()
    assert publisher.version(2).resync_reason == "record_ids_changed"
    assert publisher.log(subscription, "version", "reason")[2:] == [
        ("schema_changed", 2, None),
        ("resync_required", 2, "record_ids_changed"),
    ]


def test_a_map_that_does_not_fit_the_ledger_is_refused_before_anything_is_queued(publisher):
    first = publisher.ids(1, "k")
    with pytest.raises(ReplacementRefused, match=f"{first['1']} is carried by a record now"):
        publisher.replace_ids({first["0"]: first["1"]})
    with publisher.ports.store.read() as records:
        assert records.checks.open_of(DATASET) == ()


def test_nothing_to_replace_is_refused(tmp_path):
    with pytest.raises(ReplacementRefused, match="no version of ds_x was released yet"):
        Publisher(tmp_path).replace_ids()


@pytest.mark.parametrize(("column", "says"), [("nothing", "there is no column"), ("w", "w cannot make ids: 2 rows")])
def test_columns_that_make_no_ids_are_refused_before_anything_is_queued(tmp_path, column, says):
    publisher = Publisher(tmp_path, key=("k",))
    publisher.outcome("k,w\n1,a\n2,a\n3,b\n")
    with publisher.ports.store.read() as records:
        before = records.checks.last_of(DATASET)
    with pytest.raises(ReplacementRefused, match=says):
        publisher.replace_ids(key=(column,))
    with publisher.ports.store.read() as records:
        assert (records.checks.open_of(DATASET), records.checks.last_of(DATASET)) == ((), before)


def test_a_column_that_is_named_twice_makes_ids_like_once(tmp_path):
    publisher = Publisher(tmp_path, key=("k",))
    publisher.outcome("k,v\n1,a\n2,b\n")
    once = publisher.copy(tmp_path / "once")
    assert publisher.replace_ids(key=("k", "K")) == once.replace_ids(key=("k",)) == [("released", 2)]
    assert publisher.ids(2, "k") == once.ids(2, "k")


def test_the_ledger_tells_what_became_of_any_old_id(tmp_path):
    publisher = Publisher(tmp_path, key=("k",))
    publisher.outcome("k,v\n1,a\n2,b\n3,c\n")
    publisher.outcome("k,v\n1,a\n2,b\n")
    publisher.replace_ids()
    publisher.outcome("k,v\n1,a\n4,d\n")
    ids = {number: publisher.ids(number, "v") for number in range(1, 5)}
    told = {
        name: (t.status, t.first_version, t.last_version, t.replaced_by, t.current_id)
        for name, id_ in {
            "gone": ids[1]["c"],
            "replaced": ids[1]["a"],
            "current": ids[4]["a"],
            "replaced, then gone": ids[1]["b"],
            "new": ids[4]["d"],
        }.items()
        if (t := trace(publisher.ports, DATASET, id_))
    }
    assert told == {
        "gone": ("removed", 1, 1, None, None),
        "replaced": ("replaced_by", 1, 2, ids[4]["a"], ids[4]["a"]),
        "current": ("current", 3, 4, None, ids[4]["a"]),
        "replaced, then gone": ("replaced_by", 1, 2, ids[3]["b"], None),
        "new": ("current", 4, 4, None, ids[4]["d"]),
    }
    assert trace(publisher.ports, DATASET, "rec_nobody") is None
