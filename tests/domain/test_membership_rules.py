"""Who joins and leaves a subscription and why; a dataset's status (page 000, 003, D7.3, D7.9)."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ploti.contract.events import REMOVED_REASONS
from ploti_server.domain.access import Access
from ploti_server.domain.checks import Check, CheckStatus, Refresh
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.membership import Leaving, covers, due_at_once, moves, reason_of_leaving
from ploti_server.domain.status import Standing, status_of
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.versions import Version, VersionStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FLORIDA = Access(frozenset({"fl-county-orange", "fl-county-seminole"}))


def dataset(place, dataset_id="ds_x", topic="permits", **fields):
    return Dataset(id=dataset_id, title="X", source=SourceSpec("file", "x"), place=place, topic=topic, **fields)


def subscription(*places, topics=(), ids=()):
    return Subscription("sub_1", "ws", "s", places, tuple(topics), tuple(ids), 1, NOW, NOW)


@pytest.mark.parametrize(
    ("named", "held", "included"),
    [
        (subscription("fl-county-orange"), dataset("fl-county-orange"), True),
        (subscription("fl-county-orange"), dataset(None, covers=("fl-county-seminole", "fl-county-orange")), True),
        (subscription("fl-county-seminole"), dataset("fl-county-orange"), False),
        (subscription("fl"), dataset("fl"), True),
        (subscription("fl"), dataset("fl-county-orange"), False),
        (subscription("fl-counties"), dataset("fl-county-orange"), True),
        (subscription("fl-counties"), dataset("fl-county-lake"), False),
        (subscription("fl-counties"), dataset("fl"), False),
        (subscription("us"), dataset("us"), True),
        (subscription("fl", "us"), dataset("us"), True),
        (subscription("fl-county-orange", topics=["zoning"]), dataset("fl-county-orange"), False),
        (subscription("fl-county-orange", topics=["permits"]), dataset("fl-county-orange"), True),
        (subscription("fl-county-orange", topics=["permits"]), dataset("fl-county-orange", topic=None), False),
        (subscription("fl-county-orange"), dataset("fl-county-orange", topic=None), True),
        (subscription(ids=["ds_x"], topics=["zoning"]), dataset("fl"), True),
        (subscription(ids=["ds_x"]), dataset(None), True),
        (subscription("fl", "fl-counties", "us"), dataset(None), False),
        (subscription("fl-county-orange"), dataset("fl-county-orange", deliverable=False), False),
        (subscription(ids=["ds_x"]), dataset("fl", retired=True), False),
        (subscription(ids=["ds_x"]), dataset("ny"), False),
    ],
)
def test_subscription_covers_deliverable_datasets_of_its_places_and_topics_and_those_named_alone(named, held, included):
    assert covers(named, held, FLORIDA) is included


NEWLY_OUT = Access(frozenset({"fl-county-seminole"}))
NO_PERMITS = frozenset({"zoning"})


@pytest.mark.parametrize(
    ("named", "held", "access", "reason"),
    [
        (subscription("fl-county-orange"), dataset("fl-county-orange"), FLORIDA, None),
        (subscription("fl-county-orange"), None, FLORIDA, "no_longer_deliverable"),
        (subscription("fl-county-orange"), dataset("fl-county-orange", retired=True), FLORIDA, "no_longer_deliverable"),
        (subscription("fl"), dataset("ny", deliverable=False), NEWLY_OUT, "no_longer_deliverable"),
        (subscription("fl-county-orange"), dataset("fl-county-lake"), FLORIDA, "subscription_changed"),
        (subscription("fl-county-orange"), dataset("ny-county-kings"), FLORIDA, "subscription_changed"),
        (
            subscription("fl-county-orange", topics=["permits"]),
            dataset("fl-county-orange", topic="zoning"),
            FLORIDA,
            "subscription_changed",
        ),
        (subscription("fl-county-orange"), dataset("fl-county-orange"), NEWLY_OUT, "left_coverage"),
        (subscription("fl-counties"), dataset("fl-county-orange"), NEWLY_OUT, "left_coverage"),
        (
            subscription("fl-counties"),
            dataset(None, covers=("fl-county-orange", "ny-county-kings")),
            Access(frozenset({"ny-county-kings", "fl-county-seminole"})),
            "left_coverage",
        ),
        (
            subscription("fl-county-orange"),
            dataset("fl-county-orange"),
            replace(NEWLY_OUT, topics=NO_PERMITS),
            "left_coverage",
        ),
        (
            subscription("fl-county-orange"),
            dataset("fl-county-orange"),
            replace(FLORIDA, topics=NO_PERMITS),
            "plan_changed",
        ),
        (
            subscription("fl-county-orange"),
            dataset("fl-county-orange", topic=None),
            replace(FLORIDA, topics=NO_PERMITS),
            "plan_changed",
        ),
        (
            subscription("fl-county-orange"),
            dataset(None, covers=("fl-county-orange", "fl-county-seminole")),
            NEWLY_OUT,
            None,
        ),
    ],
)
def test_reason_of_leaving_is_the_first_that_holds(named, held, access, reason):
    assert reason_of_leaving(named, held, access) == reason


def test_moves_are_in_id_order_and_empty_once_made():
    stored = [dataset("fl", "ds_b"), dataset("fl", "ds_a"), dataset("ny", "ds_gone")]
    decided = moves(subscription("fl", "ny"), {"ds_gone", "ds_unknown"}, stored, FLORIDA)
    assert decided.joining == ("ds_a", "ds_b")
    assert decided.leaving == (Leaving("ds_gone", "left_coverage"), Leaving("ds_unknown", "no_longer_deliverable"))
    again = moves(subscription("fl", "ny"), {"ds_a", "ds_b"}, stored, FLORIDA)
    assert (again.joining, again.leaving) == ((), ())


PLACES = ["fl-county-orange", "fl-county-lake", "fl", "fl-counties", "us", "ny-county-kings"]
FILINGS = [None, "fl-county-orange", "fl-county-lake", "fl", "us", "ny-county-kings"]


@given(
    st.builds(
        lambda places, topics, ids: subscription(*places, topics=topics, ids=ids),
        st.lists(st.sampled_from(PLACES), unique=True),
        st.lists(st.sampled_from(["permits", "zoning"]), unique=True),
        st.sampled_from([[], ["ds_x"]]),
    ),
    st.builds(
        dataset,
        st.sampled_from(FILINGS),
        topic=st.sampled_from([None, "permits", "zoning"]),
        retired=st.booleans(),
        deliverable=st.booleans(),
    ),
    st.builds(
        Access,
        st.frozensets(st.sampled_from(["fl-county-orange", "fl-county-lake", "ny-county-kings"])),
        st.sampled_from([None, frozenset({"permits"})]),
    ),
)
def test_dataset_has_a_reason_to_leave_exactly_where_it_is_not_covered(named, held, access):
    reason = reason_of_leaving(named, held, access)
    assert (reason is None) is covers(named, held, access)
    assert reason in (None, *REMOVED_REASONS)


def test_first_subscription_makes_a_check_due_and_keeps_the_last_one():
    before = Refresh(NOW, None)
    assert due_at_once(before, NOW) == Refresh(NOW, NOW)


RELEASED = Version("ds_x", 1, 1, VersionStatus.RELEASED, 1)


def check(status, state="0" * 64):
    return Check(1, "ds_x", status, NOW, NOW, state_sha256=state)


@pytest.mark.parametrize(
    ("standing", "has_source", "status"),
    [
        (Standing(RELEASED, Refresh()), False, "available"),
        (Standing(None, Refresh()), True, "not_built"),
        (Standing(None, Refresh(), is_held=True), True, "not_built"),
        (Standing(None, Refresh(), is_subscribed=True), True, "building"),
        (Standing(None, Refresh(), True, last_check=check(CheckStatus.BUILDING)), True, "building"),
        (Standing(None, Refresh(), True, is_held=True), True, "held"),
        (Standing(None, Refresh(), True, last_check=check(CheckStatus.FAILED)), True, "failed"),
        (Standing(None, Refresh(), True, last_check=check(CheckStatus.FAILED)), False, "failed"),
        (Standing(None, Refresh(), True, last_check=check(CheckStatus.FAILED, None)), True, "failed"),
        (Standing(None, Refresh(), True, last_check=check(CheckStatus.FAILED, None)), False, "awaiting_release"),
        (Standing(None, Refresh(), True), False, "awaiting_release"),
    ],
)
def test_status_says_why_nothing_is_released(standing, has_source, status):
    assert status_of(standing, has_source) == status
