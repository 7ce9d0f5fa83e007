"""Long proofs for `make goals`: every story into each kind of file, and syncs into each target killed at each step."""

import re

import pytest
from tests.sync.kits import GeoPackageKit, ParquetKit
from tests.sync.test_sync_consumers import KITS
from tests.sync.test_sync_postgresql_stories import PostgresKit

from ploti.testing.targets import STORIES, check_killed, check_story, steps_of

pytestmark = pytest.mark.goals


@pytest.mark.parametrize("each_time", [True, False], ids=["each-turn", "at-its-end"])
@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("kit", [GeoPackageKit, ParquetKit], ids=["geopackage", "parquet"])
def test_a_story_ends_at_its_tables(kit, name, each_time, tmp_path):
    check_story(STORIES[name], kit(tmp_path), each_time=each_time)


@pytest.fixture(params=KITS)
def fresh(request, tmp_path, monkeypatch):
    """Gives a fresh database of a kind by a label."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if request.param == "postgresql":
        address = request.getfixturevalue("postgres_database")
        return lambda label: PostgresKit(address, re.sub("[^a-z0-9]", "_", label))

    def made(label):
        folder = tmp_path / label
        folder.mkdir()
        return KITS[request.param](folder)

    return made


@pytest.mark.parametrize("name", ["new_column", "leaves_while_away", "ids_replaced", "expired_cursor"])
def test_a_sync_killed_at_any_hit_of_a_step_goes_on_where_it_was(fresh, name):
    steps = steps_of(STORIES[name], fresh("steps"))
    for step in sorted(set(steps)):
        for hit in sorted({1, min(2, steps.count(step)), steps.count(step)}):
            check_killed(STORIES[name], fresh(f"{step}-{hit}"), step, hit)
