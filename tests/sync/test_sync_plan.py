"""What sync does next: one row per sentence of page 003, page 001 and D11.4."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ploti.contract.events import event_id
from ploti.sync.plan import (
    Apply,
    Held,
    Leave,
    Load,
    Pass,
    Pause,
    State,
    Wait,
    after,
    after_manifest,
    catch_up,
    decide,
    next_step,
    notices,
    plan,
)

D = "ds_a"
HELD = Held(D, version=41, schema_version="2.1", accepted_major=2, state="ok", rows=1000, position=10)
NEW = Held(D)
LEFT = Held(D, version=41, schema_version="2.1", accepted_major=2, state="left", rows=1000, position=10)
LEAVING = Held(D, version=41, schema_version="2.1", accepted_major=2, state="leaving", rows=1000, position=10)
PAUSED = Held(D, version=41, schema_version="2.1", accepted_major=2, state="paused", rows=1000, position=10)


def event(number, type_, **data):
    return {
        "id": event_id(number),
        "type": f"feed.dataset.{type_}",
        "timestamp": "2026-10-18T06:13:02.000Z",
        "subscriptionId": "sub_a",
        "data": {"datasetId": D, **data},
    }


def updated(number, version, previous, schema="2.1", rows=3):
    counts = {"added": rows, "changed": 0, "removed": 0}
    data = {"version": version, "previousVersion": previous, "schemaVersion": schema, "counts": counts}
    return event(number, "updated", **data)


def resync(number, version, reason="previous_unavailable", schema="2.1"):
    return event(number, "resync_required", version=version, reason=reason, schemaVersion=schema)


def schema_changed(number, version, schema):
    return event(number, "schema_changed", version=version, schemaVersion=schema, schemaChange={})


def added(number, version, schema="2.1"):
    return event(number, "added", version=version, schemaVersion=schema if version else None)


def removed(number, reason="left_coverage"):
    return event(number, "removed", reason=reason)


HOLE = "another previous version than the held one"
BELOW = "at or below the held version"
ONE_EVENT = [
    ("an update on the held version is applied", HELD, updated(11, 42, 41), Apply(D, 42, 41, 11)),
    ("numbers may skip as long as the chain holds", HELD, updated(11, 50, 41), Apply(D, 50, 41, 11)),
    ("any other previous version is a reload from the current one", HELD, updated(11, 43, 42), Load(D, None, HOLE, 11)),
    ("also where nothing is held", NEW, updated(1, 42, 41), Load(D, None, HOLE, 1)),
    ("an update at the held version is skipped", HELD, updated(11, 41, 40), Pass(D, BELOW, 11)),
    ("an update below the held version is skipped", HELD, updated(11, 40, 39), Pass(D, BELOW, 11)),
    ("a reload at the held version is skipped", HELD, resync(11, 41), Pass(D, BELOW, 11)),
    ("a schema change at the held version is skipped", HELD, schema_changed(11, 41, "3.0"), Pass(D, BELOW, 11)),
    ("an event handled before is skipped", HELD, updated(10, 42, 41), Pass(D, "handled before", 10)),
    ("a reload loads the version that it names", HELD, resync(11, 42), Load(D, 42, "previous_unavailable", 11)),
    (
        "replaced ids are a reload too",
        HELD,
        resync(11, 42, "record_ids_changed"),
        Load(D, 42, "record_ids_changed", 11),
    ),
    ("a first version is loaded", NEW, resync(2, 1, "first_version", "1.0"), Load(D, 1, "first_version", 2)),
    (
        "a MINOR change waits for its version's event, which brings the columns",
        HELD,
        schema_changed(11, 42, "2.2"),
        Pass(D, "its version's own event brings the columns", 11),
    ),
    (
        "a MAJOR change pauses",
        HELD,
        schema_changed(11, 42, "3.0"),
        Pause(D, "version 42 has schema 3.0, the table follows 2.x", 11),
    ),
    (
        "the reload of a MAJOR change pauses by itself",
        HELD,
        resync(11, 42, "schema_changed", "3.0"),
        Pause(D, "version 42 has schema 3.0, the table follows 2.x", 11),
    ),
    (
        "changes on top of a MAJOR that is not accepted keep the pause",
        PAUSED,
        updated(11, 44, 43, "3.1"),
        Pause(D, "version 44 has schema 3.1, the table follows 2.x", 11),
    ),
    ("a dataset joins at a version", NEW, added(1, 7), Load(D, 7, "joined the subscription", 1)),
    ("a dataset joins without a version", NEW, added(1, None), Wait(D, "no released version yet", 1)),
    ("joining again replaces the rows kept", LEFT, added(11, 41), Load(D, 41, "joined the subscription", 11)),
    ("even by a lower version", LEFT, added(11, 40), Load(D, 40, "joined the subscription", 11)),
    ("a join that the manifest already loaded is skipped", HELD, added(11, 41), Pass(D, BELOW, 11)),
    ("a join before the version held is skipped", HELD, added(11, None), Pass(D, BELOW, 11)),
    ("joining again without a version keeps the rows", LEFT, added(11, None), Wait(D, "no released version yet", 11)),
    (
        "joining again under another MAJOR pauses",
        LEFT,
        added(11, 50, "3.0"),
        Pause(D, "version 50 has schema 3.0, the table follows 2.x", 11),
    ),
    ("a dataset leaves", HELD, removed(11, "plan_changed"), Leave(D, "plan_changed", 11)),
    ("after a refusal, events are skipped", LEAVING, updated(11, 42, 41), Pass(D, "left the subscription", 11)),
    ("up to the dataset's removed", LEAVING, removed(12), Leave(D, "left_coverage", 12)),
    (
        "stale moves no rows",
        HELD,
        event(11, "stale", reason="check_overdue", lastCheckedAt=None),
        Pass(D, "says nothing about rows", 11),
    ),
    (
        "delayed moves no rows",
        HELD,
        event(11, "delayed", version=41, reason="data_check", since="2026-10-18T06:00:00.000Z"),
        Pass(D, "says nothing about rows", 11),
    ),
]


@pytest.mark.parametrize(("held", "one", "step"), [row[1:] for row in ONE_EVENT], ids=[row[0] for row in ONE_EVENT])
def test_one_event(held, one, step):
    assert decide(held, one, "pause") == step


def test_only_a_load_and_applied_changes_move_the_held_version():
    for _, held, one, _ in ONE_EVENT:
        step = decide(held, one, "pause")
        expected = (step.version or 99) if isinstance(step, Load | Apply) else held.version
        assert after(held, step, current=99).version == expected


def test_an_unknown_event_type_is_never_passed_over():
    with pytest.raises(AssertionError, match="renamed"):
        decide(HELD, event(11, "renamed", version=42, schemaVersion="2.1"), "pause")


def test_a_malformed_event_id_is_refused():
    with pytest.raises(ValueError, match="evt_x"):
        decide(HELD, {**removed(11), "id": "evt_x"}, "pause")


@pytest.mark.parametrize("one", [schema_changed(11, 42, "3.0"), resync(11, 42, "schema_changed", "3.0")])
def test_nothing_pauses_where_major_changes_are_applied(one):
    assert not isinstance(decide(HELD, one, "apply"), Pause)


MANY_EVENTS = [
    ("no event, no step", HELD, [], []),
    ("only old events, no step", HELD, [updated(9, 40, 39), updated(10, 41, 40)], []),
    (
        "a chain is applied in order",
        HELD,
        [updated(11, 42, 41), updated(12, 43, 42)],
        [Apply(D, 42, 41, 11), Apply(D, 43, 42, 12)],
    ),
    (
        "a chain is applied in its order and what is at or below the held version skipped",
        HELD,
        [updated(11, 40, 39), updated(12, 41, 40), updated(13, 50, 41), updated(14, 51, 50)],
        [Apply(D, 50, 41, 13), Apply(D, 51, 50, 14)],
    ),
    (
        "after a reload its events at or below that version are skipped",
        replace(HELD, version=45),
        [updated(11, 42, 41), schema_changed(12, 44, "2.2"), resync(13, 44), updated(14, 45, 44)],
        [Pass(D, BELOW, 14)],
    ),
    (
        "a chain of more changes than rows is one load of its last version",
        HELD,
        [updated(11, 42, 41, rows=600), updated(12, 43, 42, rows=600)],
        [Load(D, 43, "cheaper than its changes", 12)],
    ),
    (
        "one version is applied however large",
        HELD,
        [updated(11, 42, 41, rows=6000)],
        [Apply(D, 42, 41, 11)],
    ),
    (
        "a reload goes to the newest version of the log",
        HELD,
        [updated(11, 42, 41), resync(12, 43), updated(13, 44, 43)],
        [Load(D, 44, "previous_unavailable", 13)],
    ),
    (
        "a MINOR change is applied with its version",
        HELD,
        [schema_changed(11, 42, "2.2"), updated(12, 42, 41, "2.2")],
        [Apply(D, 42, 41, 12)],
    ),
    (
        "MINOR changes are applied by themselves and a MAJOR change holds the dataset where it is",
        HELD,
        [schema_changed(11, 42, "2.2"), updated(12, 42, 41, "2.2"), resync(13, 43, "schema_changed", "3.0")],
        [Apply(D, 42, 41, 12), Pause(D, "version 43 has schema 3.0, the table follows 2.x", 13)],
    ),
    (
        "what came before a MAJOR change is applied before the pause",
        HELD,
        [updated(11, 42, 41), schema_changed(12, 43, "3.0"), resync(13, 43, "schema_changed", "3.0")],
        [
            Apply(D, 42, 41, 11),
            Pause(D, "version 43 has schema 3.0, the table follows 2.x", 12),
            Pause(D, "version 43 has schema 3.0, the table follows 2.x", 13),
        ],
    ),
    (
        "a hole in the chain is one reload from the current version",
        HELD,
        [updated(11, 42, 41), updated(12, 44, 43), updated(13, 45, 44)],
        [Load(D, None, HOLE, 13)],
    ),
    (
        "what a dataset did before it left is moot",
        HELD,
        [updated(11, 42, 41), removed(12)],
        [Leave(D, "left_coverage", 12)],
    ),
    (
        "leaving and joining again loads the newest version",
        HELD,
        [updated(11, 42, 41), removed(12), added(13, 42), updated(14, 43, 42)],
        [Leave(D, "left_coverage", 12), Load(D, 43, "joined the subscription", 14)],
    ),
    (
        "events of a dataset that left are skipped",
        LEFT,
        [updated(11, 42, 41), resync(12, 43)],
        [Pass(D, "left the subscription", 12)],
    ),
    (
        "up to its joining again",
        LEFT,
        [updated(11, 42, 41), added(12, 43), updated(13, 44, 43)],
        [Load(D, 44, "joined the subscription", 13)],
    ),
    (
        "a dataset that joins without a version waits for its first",
        NEW,
        [added(1, None), resync(2, 1, "first_version", "1.0"), updated(3, 2, 1, "1.0")],
        [Load(D, 2, "first_version", 3)],
    ),
]


@pytest.mark.parametrize(("held", "events", "steps"), [row[1:] for row in MANY_EVENTS], ids=[r[0] for r in MANY_EVENTS])
def test_many_events(held, events, steps):
    assert plan(held, events, current=45) == steps


MANIFEST = [
    ("a dataset not held is loaded", NEW, 5, "1.0", Load(D, 5, "listed in the manifest", 20)),
    ("a newer version is loaded", HELD, 42, "2.1", Load(D, 42, "listed in the manifest", 20)),
    ("the held version stays", HELD, 41, "2.1", Pass(D, BELOW, 20)),
    ("a lower version than the held one is not loaded", HELD, 40, "2.1", Pass(D, BELOW, 20)),
    ("a dataset that left is loaded anew", LEFT, 41, "2.1", Load(D, 41, "listed in the manifest", 20)),
    (
        "another MAJOR pauses",
        HELD,
        42,
        "3.0",
        Pause(D, "version 42 has schema 3.0, the table follows 2.x", 20),
    ),
]


@pytest.mark.parametrize(
    ("held", "version", "schema", "step"), [row[1:] for row in MANIFEST], ids=[row[0] for row in MANIFEST]
)
def test_a_manifest(held, version, schema, step):
    assert after_manifest(held, version, schema, 20, "pause") == step


def current(version, schema="2.1"):
    return {"version": version, "schemaVersion": schema, "publishedAt": "2026-10-18T06:13:02.000Z", "rowCount": 1}


def listed(version, previous, schema="2.1", *, reload=False):
    return {"version": version, "previousVersion": previous, "schemaVersion": schema, "resyncRequired": reload}


BEHIND = Held(D, version=41, schema_version="2.1", accepted_major=2, state="behind", position=10)
CATCHING = "catching up with the current version"
CATCH_UP = [
    ("at the current version nothing is to do", current(41), [], Pass(D, "at the current version", 10)),
    ("above it neither", current(40), [], Pass(D, "at the current version", 10)),
    ("the chain is followed", current(43), [listed(42, 41), listed(43, 42)], Apply(D, 42, 41, 10)),
    ("a chain with a hole is a load", current(43), [listed(43, 42)], Load(D, 43, CATCHING, 10)),
    ("so is a reload in it", current(42), [listed(42, 41, reload=True)], Load(D, 42, CATCHING, 10)),
    (
        "the last version of the accepted MAJOR comes first",
        current(44, "3.0"),
        [listed(43, 42), listed(44, 43, "3.0", reload=True)],
        Load(D, 43, "the last version of the accepted MAJOR schema", 10),
    ),
    (
        "then the pause",
        current(44, "3.0"),
        [listed(44, 41, "3.0", reload=True)],
        Pause(D, "version 44 has schema 3.0, the table follows 2.x", 10),
    ),
    ("without a current version it waits", None, [], Wait(D, "no released version yet", 10)),
]


@pytest.mark.parametrize(("now", "versions", "step"), [row[1:] for row in CATCH_UP], ids=[row[0] for row in CATCH_UP])
def test_catching_up(now, versions, step):
    assert catch_up(BEHIND, now, versions, "pause") == step


EXIT_STATES = [
    ("at the newest version", "ok", None, False),
    ("nothing released yet", "waiting", "no released version yet", False),
    ("refused, its removal is still to come", "leaving", "not delivered", False),
    ("no longer followed", "left", "unsubscribed", False),
    ("not brought up to date", "behind", "its files are being rebuilt", True),
    ("blocked by a table of the user's", "blocked", "a table ds_a that sync did not make is there already", True),
    ("blocked by a view of the user's", "blocked", "the view totals needs the column value", True),
    ("paused before a MAJOR change", "paused", None, False),
]


@pytest.mark.parametrize(
    ("state", "reason", "behind"), [row[1:] for row in EXIT_STATES], ids=[row[0] for row in EXIT_STATES]
)
def test_what_counts_as_behind(state, reason, behind):
    assert replace(BEHIND, state=state, reason=reason).behind is behind


def test_each_state_has_its_exit_code_told():
    assert {state for _, state, *_ in EXIT_STATES} == set(get_args(State))


def test_a_pause_before_a_major_change_is_not_behind():
    step = catch_up(BEHIND, current(44, "3.0"), [listed(44, 41, "3.0", reload=True)], "pause")
    assert not after(BEHIND, step).behind


def test_catching_up_follows_a_major_where_it_is_applied():
    versions = [listed(44, 41, "3.0", reload=True)]
    assert catch_up(PAUSED, current(44, "3.0"), versions, "apply") == Load(D, 44, CATCHING, 10)


@pytest.mark.parametrize(
    ("one", "line"),
    [
        (
            event(11, "stale", reason="check_overdue", lastCheckedAt="2026-10-18T06:00:00.000Z"),
            "the source is overdue, last read 2026-10-18T06:00:00.000Z",
        ),
        (
            event(11, "stale", reason="check_overdue", lastCheckedAt=None),
            "the source is overdue, last read never",
        ),
        (event(11, "delayed", reason="data_check"), "the next version is held for review (data_check)"),
    ],
)
def test_what_moves_no_rows_is_told(one, line):
    assert notices([one]) == (line,)


DELAYED = event(11, "delayed", reason="data_check")
STALE = event(12, "stale", reason="check_overdue", lastCheckedAt=None)
REPLACED = "version 42 replaced record ids; see its map, or `datasets record` for one"
HELD_BACK, OVERDUE = "the next version is held for review (schema_review)", "the source is overdue, last read never"


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([], ()),
        ([DELAYED, updated(12, 42, 41)], ()),
        ([DELAYED, schema_changed(12, 42, "3.0"), resync(13, 42)], ()),
        ([DELAYED, removed(12)], ()),
        ([DELAYED, event(12, "delayed", reason="schema_review")], (HELD_BACK,)),
        ([STALE, event(13, "delayed", reason="schema_review")], (HELD_BACK,)),
        ([updated(11, 42, 41), event(12, "delayed", reason="schema_review"), STALE], (HELD_BACK, OVERDUE)),
        ([STALE, {**STALE, "id": event_id(13)}], (OVERDUE,)),
        ([resync(11, 42, "record_ids_changed"), updated(12, 43, 42)], (REPLACED,)),
        ([resync(11, 42, "record_ids_changed"), {**STALE, "id": event_id(12)}], (REPLACED, OVERDUE)),
    ],
)
def test_the_hold_ends_and_is_told_no_longer(events, told):
    """Page 003: its usual `updated` or `resync_required` follows, or a newer version replaces it."""
    assert notices(events) == told


@st.composite
def logs(draw):
    """A log as a server writes it: chains, reloads, MAJOR changes, leaving and joining."""
    events, version, major, member = [], 41, 2, True
    for number in range(11, 11 + draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["update", "update", "reload", "major", "leave", "join"]))
        if member and kind in {"update", "reload", "major"}:
            previous, version = version, version + draw(st.integers(1, 3))
            major += kind == "major"
            schema = f"{major}.0"
            made = (
                updated(number, version, previous, schema) if kind == "update" else resync(number, version, "x", schema)
            )
        elif member:
            made, member = removed(number), False
        else:
            made, member = added(number, version, f"{major}.0"), True
        events.append(made)
    return events, version, major, member


@given(logs(), st.sampled_from(["pause", "apply"]))
def test_a_log_read_to_its_end_reaches_its_end(log, on_major):
    events, version, major, member = log
    held = HELD
    for step in plan(HELD, events, on_major, current=version):
        held = after(held, step, version)
    assert held.position == (10 + len(events) if events else 10)
    if not member:
        assert held.state == "left"
    elif on_major == "apply" or major == 2:
        assert (held.version, held.state) == (version, "ok")
    else:
        assert held.state == "paused"


@given(logs(), st.data())
def test_replaying_any_part_of_a_log_asks_for_nothing(log, data):
    events, version, _, _ = log
    held = HELD
    for step in plan(HELD, events, "apply", current=version):
        held = after(held, step, version)
    again = events[data.draw(st.integers(0, len(events))) :]
    assert next_step(held, again, "apply") is None
