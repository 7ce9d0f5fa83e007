"""Why a version is to be loaded anew: the order of reasons of page 003."""

import pytest

from ploti_server.domain.release import resync_reason
from ploti_server.domain.schema import SchemaChange, SchemaVersion

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
)
def test_the_first_reason_that_applies_is_given(facts, reason):
    assert resync_reason(**facts) == reason
