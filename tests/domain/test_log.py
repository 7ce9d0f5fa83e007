"""Cursors of the event log and looking back over it (page 003, D7.4, D7.5, D8.4)."""

from datetime import UTC, datetime

import pytest

from ploti_server.domain.access import Refused
from ploti_server.domain.events import LoggedEvent
from ploti_server.domain.log import Later, LogEnds, as_of_number, later_events, read_types, start_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cursor", "ends", "start"),
    [
        (None, LogEnds(0, None), 0),
        (None, LogEnds(5, 1), 0),
        ("evt_000000000000", LogEnds(0, None), 0),
        ("evt_000000000000", LogEnds(5, 1), 0),
        ("evt_000000000003", LogEnds(5, 1), 3),
        ("evt_000000000003", LogEnds(5, 4), 3),
        ("evt_000000000005", LogEnds(5, 1), 5),
        ("evt_000000000005", LogEnds(5, None), 5),
    ],
)
def test_cursor_is_read_from_while_every_event_after_it_is_kept(cursor, ends, start):
    assert start_of(cursor, ends) == start


@pytest.mark.parametrize(
    ("cursor", "ends", "code"),
    [
        (None, LogEnds(5, 2), "expired"),
        (None, LogEnds(5, None), "expired"),
        ("evt_000000000000", LogEnds(5, 2), "expired"),
        ("evt_000000000003", LogEnds(5, 5), "expired"),
        ("evt_000000000004", LogEnds(5, None), "expired"),
        ("evt_000000000006", LogEnds(5, 1), "invalid_input"),
        ("evt_000000000001", LogEnds(0, None), "invalid_input"),
        ("evt_1", LogEnds(5, 1), "invalid_input"),
        ("", LogEnds(5, 1), "invalid_input"),
        ("EVT_000000000001", LogEnds(5, 1), "invalid_input"),
        ("evt_00000000000١", LogEnds(5, 1), "invalid_input"),
        ("evt_000000000001\n", LogEnds(5, 1), "invalid_input"),
    ],
)
def test_cursor_is_refused_when_aged_out_or_never_given(cursor, ends, code):
    with pytest.raises(Refused) as refused:
        start_of(cursor, ends)
    assert (refused.value.code, refused.value.field) == (code, "cursor")


def test_types_are_joined_by_commas_and_known():
    assert read_types(None) is None
    assert read_types("feed.dataset.added,feed.dataset.stale,feed.dataset.added") == (
        "feed.dataset.added",
        "feed.dataset.stale",
    )
    for text in ("", "added", "feed.dataset.added,", "feed.dataset.added, feed.dataset.stale"):
        with pytest.raises(Refused):
            read_types(text)


def logged(number, kind, dataset_id, version=None):
    return LoggedEvent("sub_1", number, f"feed.dataset.{kind}", dataset_id, NOW, {"version": version})


@pytest.mark.parametrize(
    ("events", "later"),
    [
        ([("added", 4)], Later(False, None)),
        ([("added", None), ("resync_required", 1)], Later(False, 1)),
        ([("updated", 5)], Later(True, 5)),
        ([("schema_changed", 5), ("updated", 5), ("updated", 6)], Later(True, 5)),
        ([("removed", None)], Later(True, None)),
        ([("removed", None), ("added", 5), ("updated", 6)], Later(True, 6)),
        ([("delayed", 4)], Later(True, None)),
    ],
)
def test_later_events_tell_whether_a_dataset_was_held_and_what_came_first(events, later):
    log = [logged(number, kind, "ds_x", version) for number, (kind, version) in enumerate(events, 1)]
    assert later_events(log) == {"ds_x": later}


@pytest.mark.parametrize(
    ("text", "ends", "expected"),
    [
        ("evt_000000000000", LogEnds(0, None), 0),
        ("evt_000000000000", LogEnds(5, 1), 0),
        ("evt_000000000005", LogEnds(5, 1), 5),
        ("evt_000000000001", LogEnds(0, None), "invalid_input"),
        ("evt_000000000006", LogEnds(5, 1), "invalid_input"),
        ("evt_000000000006", LogEnds(5, 3), "invalid_input"),
        ("evt_5", LogEnds(5, 1), "invalid_input"),
        ("evt_000000000000", LogEnds(5, 2), "expired"),
        ("evt_000000000001", LogEnds(5, 2), "expired"),
        ("evt_000000000005", LogEnds(5, 5), "expired"),
        ("evt_000000000005", LogEnds(5, None), "expired"),
    ],
)
def test_as_of_goes_back_only_while_every_event_is_kept(text, ends, expected):
    """D7.4."""
    if isinstance(expected, int):
        assert as_of_number(text, ends) == expected
        return
    with pytest.raises(Refused) as refused:
        as_of_number(text, ends)
    assert (refused.value.code, refused.value.field) == (expected, "asOf")
