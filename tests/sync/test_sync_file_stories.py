"""The GeoPackage and the folder of GeoParquet pass the suite for targets; tables are read by other programs."""

import pytest
from tests.sync.kits import GeoPackageKit, ParquetKit

from ploti.testing.targets import STORIES, check_killed, check_story, steps_of

pytestmark = pytest.mark.parametrize("kit", [GeoPackageKit, ParquetKit], ids=["geopackage", "parquet"])

ABOUT_ROWS = (
    "first_load", "changes", "new_column", "major_paused", "hostile_names", "extreme_values", "constants_of_every_type",
)  # fmt: skip
"""Stories in which targets differ; every story is told to every target by `make goals`."""


@pytest.mark.parametrize("name", ABOUT_ROWS)
def test_a_story_synced_at_each_turn_ends_at_its_tables(name, kit, tmp_path):
    check_story(STORIES[name], kit(tmp_path))


@pytest.mark.parametrize("name", ["new_column"])
def test_a_story_synced_at_its_end_only_ends_at_the_loaded_versions(name, kit, tmp_path):
    check_story(STORIES[name], kit(tmp_path), each_time=False)


OWN_STEPS = ("before_commit", "after_commit")  # each one, on first, second and last hit: `make goals`


def test_a_sync_killed_at_any_step_goes_on_where_it_was(kit, tmp_path):
    (tmp_path / "steps").mkdir()
    story = STORIES["new_column"]
    steps = steps_of(story, kit(tmp_path / "steps"))
    for name in OWN_STEPS:
        folder = tmp_path / name
        folder.mkdir()
        check_killed(story, kit(folder), f"sync.{name}", steps.count(f"sync.{name}"))
