"""What becomes of record ids where a part of the ledger is lost (D4.3, D5.10, page 001 "Record ids")."""

import shutil

import pytest
from tests.pipeline.publishing import DATASET, Publisher, table

from ploti_server.cli.holds import why_held
from ploti_server.pipeline.ledger_parts import LedgerLost
from ploti_server.pipeline.restore import lost_files, restore_before_build
from ploti_server.pipeline.trace import trace

STATES = (table(range(20)), table(range(1, 20)), table(range(1, 22)), table(range(2, 22)))
"""Record 0 goes with the second version, two come with the third, record 1 goes with the fourth."""
BACK = table(range(22))


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    publisher = Publisher(tmp_path_factory.mktemp("ledger"), key=("k",))
    for number, state in enumerate(STATES, 1):
        assert publisher.outcome(state) == ("released", number)
    return publisher


@pytest.fixture
def publisher(told, tmp_path):
    return told.copy(tmp_path)


def lose(publisher, *numbers, states=False):
    """Remove the folders of versions, and with `states` all that they could be made again from."""
    top = publisher.folder / "home" / "files" / DATASET
    for number in numbers:
        shutil.rmtree(top / "versions" / str(number))
    if states:
        shutil.rmtree(top / "states")


def held_for(publisher, number):
    return [hold["rule"] for hold in publisher.version(number).facts["holds"]]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_lost_part_is_made_again_with_its_bytes_where_its_state_and_the_version_before_are_kept(publisher, number):
    ids = publisher.ids(1, "k") | publisher.ids(3, "k")
    lose(publisher, number)
    assert publisher.outcome(BACK) == ("released", 5)
    assert publisher.ids(5, "k") == ids
    assert publisher.version(5).id_epoch == 0
    assert trace(publisher.ports, DATASET, ids["0"]).status == "current"
    assert (publisher.version(number).attempt, lost_files(publisher.ports, publisher.version(number))) == (2, ())


def test_of_a_version_that_was_released_again_the_part_alone_is_put_back(publisher):
    publisher.release_again(4)
    version = publisher.version(4)
    lose(publisher, 4)
    assert restore_before_build(publisher.ports, DATASET).failed == ()
    assert publisher.version(4) == version
    (kept,) = publisher.ports.files.paths(f"{DATASET}/versions/4/")
    assert kept == f"{version.folder}/ledger/part-0000.parquet"


def test_lost_parts_that_need_each_other_are_made_again_oldest_first(publisher):
    ids = publisher.ids(1, "k") | publisher.ids(3, "k")
    lose(publisher, 3, 4)
    assert publisher.outcome(BACK) == ("released", 5)
    assert publisher.ids(5, "k") == ids


def test_a_part_lost_for_good_holds_the_next_version_and_current_records_keep_their_ids(publisher):
    ids = publisher.ids(1, "k") | publisher.ids(3, "k")
    lose(publisher, 2, states=True)
    assert publisher.outcome(BACK) == ("held", 5)
    assert (held_for(publisher, 5), publisher.version(5).reasons) == (["ledger_lost"], ("processing",))
    why = why_held(publisher.version(5).facts["holds"][0], publisher.version(5).facts)["why"]
    assert "came with version 2 is lost" in why
    assert "put its folder back" in why
    now = publisher.ids(5, "k")
    assert {key for key in now if now[key] != ids[key]} == {"0"}, "of those that come back: 1 was noted after the loss"
    assert not set(now.values()) - set(ids.values()) & set(ids.values())
    assert publisher.outcome(BACK) == ("unchanged", 4)


def test_after_its_release_it_goes_on_and_is_held_for_the_same_loss_no_more(publisher):
    lose(publisher, 2, states=True)
    publisher.check(BACK)
    publisher.release()
    before = publisher.ids(5, "k")
    assert publisher.outcome(table(range(3, 24))) == ("released", 6)
    assert publisher.outcome(table(range(24))) == ("released", 7)
    after = publisher.ids(7, "k")
    assert {key: after[key] for key in before} == before
    assert len(set(after.values())) == len(after)
    lose(publisher, 6, states=True)
    assert publisher.outcome(table(range(23))) == ("held", 8)


def test_the_folder_put_back_ends_the_trouble(publisher, told):
    ids = publisher.ids(1, "k") | publisher.ids(3, "k")
    lose(publisher, 2, states=True)
    publisher.check(BACK)
    shutil.copytree(*(p.folder / "home" / "files" / DATASET / "versions" / "2" for p in (told, publisher)))
    assert publisher.outcome(BACK) == ("released", 6)
    assert publisher.ids(6, "k") == ids


def test_where_all_is_lost_the_version_is_held_and_every_id_is_new(publisher):
    ids = publisher.ids(1, "k") | publisher.ids(3, "k")
    lose(publisher, 1, 2, 3, 4, states=True)
    assert publisher.outcome(BACK) == ("held", 5)
    assert "ledger_lost" in held_for(publisher, 5)
    assert not set(publisher.ids(5, "k").values()) & set(ids.values())


def test_without_a_key_current_records_keep_their_ids_too(tmp_path):
    publisher = Publisher(tmp_path)
    for state in STATES[:3]:
        publisher.check(state)
    ids = publisher.ids(3, "k")
    lose(publisher, 1, 2, states=True)
    assert publisher.outcome(BACK) == ("held", 4)
    now = publisher.ids(4, "k")
    assert {key: now[key] for key in ids} == ids


def test_all_ids_replaced_over_a_lost_part_get_a_map_of_the_ids_that_subscribers_have(publisher):
    lose(publisher, 2)
    shutil.rmtree(publisher.folder / "home" / "files" / DATASET / "versions" / "1")
    state = publisher.folder / "home" / "files" / DATASET / "states"
    for kept in state.iterdir():
        if kept.name != _state(publisher, 4):
            shutil.rmtree(kept)
    assert publisher.replace_ids() == [("held", 5)]
    assert {row["_ploti_previous_record_id"] for row in publisher.rows(5, "id-map")} == set(
        publisher.ids(4, "k").values()
    )


def _state(publisher, number):
    with publisher.ports.store.read() as records:
        return records.checks.get(publisher.version(number).check_id).state_sha256


def test_what_became_of_an_id_is_not_told_while_a_part_is_missing(publisher):
    lose(publisher, 2)
    with pytest.raises(LedgerLost, match=r"lacks what version 2 noted.*Put its folder back"):
        trace(publisher.ports, DATASET, publisher.ids(1 + 2, "k")["5"])
    assert restore_before_build(publisher.ports, DATASET).failed == ()
    assert trace(publisher.ports, DATASET, publisher.ids(3, "k")["5"]).status == "current"


def test_a_cut_part_is_lost_too(publisher):
    version = publisher.version(1)
    (part,) = publisher.ports.files.paths(f"{version.folder}/ledger/")
    file = publisher.ports.files.local(part)
    file.write_bytes(file.read_bytes()[:-9])
    assert publisher.outcome(BACK) == ("released", 5)
    assert lost_files(publisher.ports, publisher.version(1)) == ()
