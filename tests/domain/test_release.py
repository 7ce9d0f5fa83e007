"""Why a version is to be loaded anew: the order of reasons of page 003."""

import pytest

from ploti.contract.events import RESYNC_REASONS
from ploti_server.domain.release import resync_reason
from ploti_server.domain.schema import Column, Schema, SchemaChange, SchemaVersion, change_between

ONE = SchemaVersion(1, 0)
MINOR = SchemaChange("additive", ONE)
FIRST_PIN = SchemaChange("additive", ONE, key_changed=True)
MAJOR = SchemaChange("breaking", ONE, removed=("a",))
KEY = SchemaChange("breaking", ONE, key_changed=True)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"first": False, "change": None}, None),
        ({"first": False, "change": MINOR}, None),
        ({"first": False, "change": FIRST_PIN}, None),
        ({"first": True, "change": None}, "first_version"),
        ({"first": False, "change": MAJOR}, "schema_changed"),
        ({"first": False, "change": KEY}, "key_columns_changed"),
        ({"first": False, "change": None, "previous_unavailable": True}, "previous_unavailable"),
        ({"first": False, "change": MINOR, "previous_unavailable": True}, "schema_changed"),
        ({"first": False, "change": FIRST_PIN, "previous_unavailable": True}, "key_columns_changed"),
        ({"first": False, "change": KEY, "previous_unavailable": True}, "key_columns_changed"),
        ({"first": False, "change": MAJOR, "ids_changed": True}, "record_ids_changed"),
        ({"first": True, "change": None, "ids_changed": True}, "record_ids_changed"),
    ],
    ids=[
        "nothing",
        "MINOR",
        "first pin",
        "first version",
        "MAJOR",
        "key",
        "the version before is not available",
        "and MINOR",
        "and first pin",
        "and key",
        "ids replaced with MAJOR",
        "ids replaced",
    ],
)
def test_the_first_reason_that_applies_is_given(facts, reason):
    assert resync_reason(**facts) == reason


ID, SIZE, NEW = (Column(name, "string", True, name) for name in ("id", "size", "new"))
KEYED = Schema((ID, SIZE), ("id",))


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (Schema((ID,), ("id",)), "schema_changed"),
        (Schema((ID, Column("size", "number", True, "size")), ("id",)), "schema_changed"),
        (Schema((ID, SIZE), ("size",)), "key_columns_changed"),
        (Schema((ID, SIZE)), "key_columns_changed"),
    ],
    ids=["a column removed", "a column retyped", "the key changed", "the key dropped"],
)
def test_a_major_schema_change_is_a_reload(new, reason):
    assert resync_reason(first=False, change=change_between(KEYED, new, ONE)) == reason


@pytest.mark.parametrize(
    ("before", "new"),
    [(KEYED, Schema((ID, SIZE, NEW), ("id",))), (Schema((ID, SIZE)), KEYED)],
    ids=["a column added", "a key pinned for the first time"],
)
def test_a_minor_schema_change_still_has_changes_to_apply(before, new):
    change = change_between(before, new, ONE)
    assert change is not None
    assert resync_reason(first=False, change=change) is None


FACTS = {
    "record_ids_changed": {"ids_changed": True, "first": True, "change": KEY, "previous_unavailable": True},
    "first_version": {"first": True, "change": KEY, "previous_unavailable": True},
    "previous_unavailable": {"first": False, "change": None, "previous_unavailable": True},
    "key_columns_changed": {"first": False, "change": KEY, "previous_unavailable": True},
    "schema_changed": {"first": False, "change": MAJOR, "previous_unavailable": True},
}


@pytest.mark.parametrize("reason", FACTS)
def test_it_wins_over_each_reason_after_it(reason):
    assert tuple(FACTS) == RESYNC_REASONS
    assert resync_reason(**FACTS[reason]) == reason


@pytest.mark.parametrize(
    ("major", "minor", "reason"),
    [(MAJOR, MINOR, "schema_changed"), (KEY, FIRST_PIN, "key_columns_changed")],
    ids=["schema_changed", "key_columns_changed"],
)
def test_it_is_the_reason_of_a_major_change_and_of_any_beside_another_reason(major, minor, reason):
    assert resync_reason(first=False, change=major) == reason
    assert resync_reason(first=False, change=minor, previous_unavailable=True) == reason
    assert resync_reason(first=False, change=minor) is None
