"""Long proofs for `make goals`: every story into each kind of file, and syncs killed on first, second and last hit."""

import pytest
from tests.sync.kits import GeoPackageKit, ParquetKit
from tests.sync.test_sync_duckdb_stories import DuckKit

from ploti.testing.targets import STORIES, check_killed, check_story, steps_of

pytestmark = pytest.mark.goals


@pytest.mark.parametrize("each_time", [True, False], ids=["each-turn", "at-its-end"])
@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("kit", [GeoPackageKit, ParquetKit], ids=["geopackage", "parquet"])
def test_a_story_ends_at_its_tables(kit, name, each_time, tmp_path):
    check_story(STORIES[name], kit(tmp_path), each_time=each_time)


@pytest.mark.parametrize("name", ["new_column", "leaves_while_away", "ids_replaced", "expired_cursor"])
@pytest.mark.parametrize("kit", [DuckKit, GeoPackageKit, ParquetKit], ids=["duckdb", "geopackage", "parquet"])
def test_a_sync_killed_at_any_hit_of_a_step_goes_on_where_it_was(kit, name, tmp_path):
    def fresh(label):
        folder = tmp_path / label
        folder.mkdir()
        return kit(folder)

    steps = steps_of(STORIES[name], fresh("steps"))
    for step in sorted(set(steps)):
        for hit in sorted({1, min(2, steps.count(step)), steps.count(step)}):
            check_killed(STORIES[name], fresh(f"{step}-{hit}"), step, hit)
