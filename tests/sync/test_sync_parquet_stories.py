"""The folder of GeoParquet passes the suite for targets; tables are read with pyarrow, through `current`."""

from datetime import UTC, datetime

import pyarrow.dataset
import pytest
from tests.sync.test_sync_geopackage_stories import ABOUT_ROWS

from ploti.sync.targets import open_target
from ploti.testing.targets import STORIES, check_killed, check_story, steps_of


class ParquetKit:
    def __init__(self, folder):
        self.path = folder / "records"

    def open(self, reach):
        return open_target(f"parquet:///{self.path}", reach=reach)

    def rows(self, dataset_id):
        table = pyarrow.dataset.dataset(self.path / dataset_id / "current").to_table()
        rows = table.to_pylist()
        own = [name for name in table.column_names if not name.startswith("_ploti_")]
        by_id = {row["_ploti_record_id"]: {name: _utc(row[name]) for name in own} for row in rows}
        assert len(by_id) == len(rows), "a record id is there twice"
        return by_id


def _utc(value):
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@pytest.fixture
def kit(tmp_path):
    return ParquetKit(tmp_path)


@pytest.mark.parametrize("name", ABOUT_ROWS)
def test_a_story_synced_at_each_turn_ends_at_its_tables(name, kit):
    check_story(STORIES[name], kit)


@pytest.mark.parametrize("name", ["new_column"])
def test_a_story_synced_at_its_end_only_ends_at_the_loaded_versions(name, kit):
    check_story(STORIES[name], kit, each_time=False)


OWN_STEPS = ("before_commit", "after_commit")  # each one, on first, second and last hit: `make goals`


def test_a_sync_killed_at_any_step_goes_on_where_it_was(tmp_path):
    (tmp_path / "steps").mkdir()
    story = STORIES["new_column"]
    steps = steps_of(story, ParquetKit(tmp_path / "steps"))
    for name in OWN_STEPS:
        folder = tmp_path / name
        folder.mkdir()
        check_killed(story, ParquetKit(folder), f"sync.{name}", steps.count(f"sync.{name}"))
