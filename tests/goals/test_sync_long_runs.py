"""Long proofs for `make goals`: every story into each kind of file, and syncs into each target killed at each step."""

import re
import sys

import pytest
from tests.sync.kits import GeoPackageKit, ParquetKit
from tests.sync.test_sync_consumers import KITS
from tests.sync.test_sync_history import KITS as KITS_WITH_HISTORY
from tests.sync.test_sync_history import as_of
from tests.sync.test_sync_postgresql_stories import PostgresKit

from ploti.testing.stories import A
from ploti.testing.targets import STORIES, check_killed, check_story, steps_of

pytestmark = pytest.mark.goals


@pytest.mark.parametrize("each_time", [True, False], ids=["each-turn", "at-its-end"])
@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("kit", [GeoPackageKit, ParquetKit], ids=["geopackage", "parquet"])
def test_a_story_ends_at_its_tables(kit, name, each_time, tmp_path):
    check_story(STORIES[name], kit(tmp_path), each_time=each_time)


@pytest.fixture
def fresh(request, kind, tmp_path, monkeypatch):
    """Gives a fresh database of a kind by a label."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if issubclass(kind, PostgresKit):
        address = request.getfixturevalue("postgres_database")
        return lambda label: kind(address, re.sub("[^a-z0-9]", "_", label))

    def made(label):
        folder = tmp_path / label
        folder.mkdir()
        return kind(folder)

    return made


def killed_everywhere(fresh, name):
    """Kill syncs of a story at the first, second and last hit of each step; gives each database in the end."""
    steps = steps_of(STORIES[name], fresh("steps"))
    for step in sorted(set(steps)):
        for hit in sorted({1, min(2, steps.count(step)), steps.count(step)}):
            kit = fresh(f"{step}-{hit}")
            check_killed(STORIES[name], kit, step, hit)
            yield kit


@pytest.mark.parametrize("kind", KITS.values(), ids=KITS)
@pytest.mark.parametrize("name", ["new_column", "leaves_while_away", "ids_replaced", "expired_cursor"])
def test_a_sync_killed_at_any_hit_of_a_step_goes_on_where_it_was(fresh, name):
    assert list(killed_everywhere(fresh, name))


@pytest.mark.parametrize("kind", KITS_WITH_HISTORY.values(), ids=KITS_WITH_HISTORY)
@pytest.mark.parametrize("name", ["changes", "new_column"])
def test_a_history_goes_on_after_each_kill_without_a_state_twice(fresh, name):
    for kit in killed_everywhere(fresh, name):
        rows, past = kit.rows(A), kit.past(A)
        held = as_of(past, sys.maxsize)
        assert held.keys() == rows.keys()
        assert {id_: {name: held[id_][name] for name in row} for id_, row in rows.items()} == rows
