"""What the agent finds late in records that earlier versions delivered as delete and add (D4.11)."""

from dataclasses import replace

import pytest
from tests.pipeline.publishing import DATASET, Publisher

from ploti_server.domain.datasets import MatchingLimits
from ploti_server.domain.replacements import ReplacementRefused
from ploti_server.pipeline.revisit import revisit

STREETS = ("Oak", "Elm", "Pine", "Maple", "Cedar", "Birch", "Walnut", "Ash", "Spruce", "Willow")
OWNERS = ("Hernandez", "Okafor", "Lindqvist", "Brzezinski", "Takahashi", "Delacroix", "Abernathy", "Nguyen")


def permits(numbers, edited=()):
    lines = ["address,owner,fee"]
    for n in numbers:
        street, owner = STREETS[n % 10], OWNERS[n % 8]
        address = f"{100 + 13 * n} {street} {'St' if n in edited else 'Street'}"
        lines.append(f"{address},{owner} {n},{250 + 7 * n}{5 if n in edited else 0}")
    return "\n".join(lines) + "\n"


def owners(publisher, number):
    return publisher.ids(number, "owner")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    publisher = Publisher(tmp_path_factory.mktemp("published"), matching=MatchingLimits(agent="nobody"))
    publisher.outcome(permits(range(40)))
    publisher.outcome(permits(range(40), edited=(7, 21)))
    publisher.outcome(permits(range(1, 41), edited=(7, 21)))
    assert (publisher.version(2).counts.added, publisher.version(2).counts.removed) == (2, 2)
    return publisher


@pytest.fixture
def publisher(published, tmp_path):
    """Three versions, the second without an agent: two edited records went and came."""
    return published.copy(tmp_path)


def test_ids_change_when_staff_replace_them_and_when_the_agent_finds_that_two_ids_are_one_record(publisher):
    with pytest.raises(ReplacementRefused, match="nobody judges the records of ds_x"):
        revisit(publisher.ports, DATASET)
    publisher.define(matching=replace(publisher.dataset.matching, agent="built-in"))
    finds = revisit(publisher.ports, DATASET)
    first, third = owners(publisher, 1), owners(publisher, 3)
    edited = {OWNERS[7 % 8] + " 7", OWNERS[21 % 8] + " 21"}
    assert {(find.version, find.old_id, find.record_id) for find in finds} == {
        (2, first[owner], third[owner]) for owner in edited
    }
    assert all(find.confidence >= 0.85 and "owner same" in find.explanation for find in finds)
    assert publisher.replace_ids({find.record_id: find.old_id for find in finds}) == [("released", 4)]
    fourth = owners(publisher, 4)
    assert {owner: fourth[owner] for owner in edited} == {owner: first[owner] for owner in edited}
    carried = {row["_ploti_previous_record_id"]: row["_ploti_record_id"] for row in publisher.rows(4, "id-map")}
    assert carried == {third[owner]: fourth[owner] for owner in third}
    assert revisit(publisher.ports, DATASET) == ()
    assert publisher.replace_ids() == [("released", 5)]
    assert [publisher.version(number).resync_reason for number in (4, 5)] == ["record_ids_changed"] * 2


def test_ids_that_were_replaced_since_are_found_by_the_ones_that_they_have_now(publisher):
    publisher.define(matching=replace(publisher.dataset.matching, agent="built-in"))
    publisher.replace_ids()
    fourth = owners(publisher, 4)
    found = [find.record_id for find in revisit(publisher.ports, DATASET)]
    assert len(found) == 2
    assert set(found) < set(fourth.values())


def test_versions_whose_files_are_gone_are_passed_over(publisher):
    publisher.define(matching=replace(publisher.dataset.matching, agent="built-in"))
    publisher.ports.files.remove(f"{publisher.version(1).folder}/snapshot/part-0000.parquet")
    assert revisit(publisher.ports, DATASET) == ()


def test_an_agent_that_answers_later_only_is_told(publisher):
    publisher.define(matching=replace(publisher.dataset.matching, agent="staff"))
    with pytest.raises(ReplacementRefused, match="answers later only"):
        revisit(publisher.ports, DATASET)
