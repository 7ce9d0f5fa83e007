"""Whatever a history holds: changes lead from version to version (I3), ids stay (I7), row order decides nothing."""

import tempfile
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipeline.match_story import Story, check_chain

SETTINGS = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))

TYPES = {
    "k": "string",
    "n": "number",
    "i": "integer",
    "v": "string",
    "d": "date",
    "t": "timestamp",
    "b": "boolean",
}
VALUES = {
    "k": st.sampled_from([None, "1", "2", "3", "4", "5", "6", "7"]),
    "n": st.sampled_from([None, 0.0, 0.1 + 0.2, 1e22]),
    "i": st.sampled_from([None, 1, 2]),
    "v": st.sampled_from([None, "r", "s"]),
    "d": st.sampled_from([None, date(1, 1, 1), date(2026, 1, 1)]),
    "t": st.sampled_from([None, datetime(2026, 1, 1, 1, 2, 3, 4, UTC)]),
    "b": st.sampled_from([None, True]),
}
row = st.fixed_dictionaries(VALUES)
columns = st.sets(st.sampled_from(["n", "i", "v", "d", "t", "b"]), min_size=1).map(sorted)


@st.composite
def histories(draw):
    """Three states of few values, so that keys repeat, contents repeat, records go and come back."""
    rows = st.lists(row, max_size=7)
    first = draw(rows)
    states = [first]
    for _ in range(2):
        kept = draw(st.lists(st.sampled_from(first), max_size=5)) if first else []
        states.append([*kept, *draw(st.lists(row, max_size=4))])
    return [(state, ["k", *draw(columns)]) for state in states]


def tell(history, key, seed, folder, threads=1):
    story = Story(folder, seed=seed, threads=threads)
    previous = None
    for rows, names in history:
        types = {name: TYPES[name] for name in names}
        version = story.next(rows, types, key=key, volatile=["v"])
        check_chain(previous, version)
        if previous is not None and version.state.rows:
            _check_matches(previous, version)
        previous = version
    return story.versions


def _check_matches(previous, version):
    """One to one; a key that is whole and unique in both versions keeps its id (D4.4)."""
    gone = {r["_ploti_record_id"] for r in version.of("removed")}
    assert set(previous.records()) - set(version.records()) == gone
    if version.schema.key_columns:
        old, new = _by_key(previous), _by_key(version)
        for value in old.keys() & new.keys():
            if len(old[value]) == len(new[value]) == 1 and value is not None:
                assert old[value] == new[value]


def _by_key(version):
    found = {}
    for r in version.snapshot:
        found.setdefault(r["k"], []).append(r["_ploti_record_id"])
    return found


@pytest.mark.parametrize("key", [["k"], []], ids=["keyed", "unkeyed"])
@SETTINGS
@given(history=histories(), seed=st.integers(0, 9))
def test_histories(key, history, seed):
    check_history(key, history, seed)


def check_history(key, history, seed):
    """Tell a history twice, in another row order and with other threads: the same tables, and every chain holds."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        told = tell(history, key, None, Path(one))
        again = tell(history, key, seed, Path(other), threads=2)
    for a, b in zip(told, again, strict=True):
        for name in ("snapshot", "changes", "backfill", "ledger"):
            assert _sorted(getattr(a, name)) == _sorted(getattr(b, name))


def _sorted(rows):
    return sorted(tuple(sorted((k, repr(v)) for k, v in r.items() if k != "_ploti_hilbert")) for r in rows)


@pytest.mark.parametrize("key", [["k"], []], ids=["keyed", "unkeyed"])
@SETTINGS
@given(rows=st.lists(row, min_size=1, max_size=9), seed=st.integers(0, 9))
def test_same_rows_again_change_nothing(key, rows, seed):
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder))
        first = story.next(rows, TYPES, key=key, volatile=["v"])
        story.seed = seed
        second = story.next(rows, TYPES, key=key, volatile=["v"])
    content = [r for r in rows if any(r[n] is not None for n in TYPES if n != "v" and n not in _single(rows))]
    if content:
        assert second.counts == (0, 0, 0)
        assert not second.matched.state_changed
        assert first.records() == second.records()


def _single(rows):
    return {n for n in TYPES if len(rows) >= 2 and len({repr(r[n]) for r in rows}) == 1}
