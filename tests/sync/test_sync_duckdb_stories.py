"""The DuckDB target passes the suite for targets; tables are read with plain DuckDB SQL."""

from datetime import UTC, datetime

import duckdb
import pytest

from ploti.sync.targets import open_target
from ploti.testing.targets import STORIES, check_killed, check_story, steps_of


class DuckKit:
    def __init__(self, folder):
        self.path = folder / "records.duckdb"

    def open(self, reach):
        return open_target(f"duckdb:///{self.path}", reach=reach)

    def rows(self, dataset_id):
        with duckdb.connect(str(self.path), read_only=True) as db:
            db.execute("SET TimeZone = 'UTC'")
            found = db.execute(f'SELECT * FROM "{dataset_id}"')
            names = [column[0] for column in found.description]
            rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        own = [name for name in names if not name.startswith("_ploti_")]
        by_id = {row["_ploti_record_id"]: {name: _utc(row[name]) for name in own} for row in rows}
        assert len(by_id) == len(rows), "a record id is there twice"
        return by_id


def _utc(value):
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@pytest.fixture
def kit(tmp_path):
    return DuckKit(tmp_path)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_synced_at_each_turn_ends_at_its_tables(name, kit):
    check_story(STORIES[name], kit)


AT_THE_END = ("changes", "new_column", "skipped_numbers", "leaves_and_returns", "expired_cursor", "major_paused")


@pytest.mark.parametrize("name", AT_THE_END)
def test_a_story_synced_at_its_end_only_ends_at_the_loaded_versions(name, kit):
    check_story(STORIES[name], kit, each_time=False)


KILLED = ("new_column", "leaves_while_away")


@pytest.mark.parametrize("name", KILLED)
def test_a_sync_killed_at_any_step_goes_on_where_it_was(name, tmp_path):
    (tmp_path / "steps").mkdir()
    steps = steps_of(STORIES[name], DuckKit(tmp_path / "steps"))
    for step in sorted(set(steps)):
        for hit in sorted({1, steps.count(step)}):
            folder = tmp_path / f"{step}-{hit}"
            folder.mkdir()
            check_killed(STORIES[name], DuckKit(folder), step, hit)
