"""The PostgreSQL target passes the suite for targets; tables are read with plain SQL over psycopg."""

import json
from datetime import UTC, datetime

import psycopg
import pytest

from ploti.sync.targets import open_target
from ploti.testing.targets import STORIES, check_killed, check_story, steps_of


class PostgresKit:
    """A schema of a database; shapes are read as the server has them, as bytes or by PostGIS."""

    def __init__(self, url, schema="feeds"):
        self.url, self.schema = url, schema

    def open(self, reach):
        return open_target(f"{self.url}&schema={self.schema}", reach=reach)

    def rows(self, dataset_id):
        with psycopg.connect(self.url) as db:
            db.execute("SET TimeZone = 'UTC'")
            found = db.execute(f'SELECT * FROM {self.schema}."{dataset_id}"'.encode())
            types = {column.name: column.type_code for column in found.description}
            rows = [dict(zip(types, row, strict=True)) for row in found]
        by_id = {}
        for row in rows:
            own = {name: value for name, value in row.items() if not name.startswith("_ploti_")}
            by_id[row["_ploti_record_id"]] = {name: _value(value) for name, value in own.items()}
        assert len(by_id) == len(rows), "a record id is there twice"
        return by_id


def _value(value):
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return value


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def kit(postgres_database):
    return PostgresKit(postgres_database)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_synced_at_each_turn_ends_at_its_tables(name, kit):
    check_story(STORIES[name], kit)


AT_THE_END = ("changes", "new_column", "skipped_numbers", "leaves_and_returns", "expired_cursor", "major_paused")


@pytest.mark.parametrize("name", AT_THE_END)
def test_a_story_synced_at_its_end_only_ends_at_the_loaded_versions(name, kit):
    check_story(STORIES[name], kit, each_time=False)


OWN_STEPS = ("opened", "staged", "rows_written", "before_commit", "after_commit", "cursor_stored")


def test_a_sync_killed_at_any_step_goes_on_where_it_was(postgres_database):
    story = STORIES["new_column"]
    steps = steps_of(story, PostgresKit(postgres_database, "steps"))
    for name in OWN_STEPS:
        step = f"sync.{name}"
        for hit in (1, steps.count(step)):
            check_killed(story, PostgresKit(postgres_database, f"{name}_{hit}"), step, hit)
