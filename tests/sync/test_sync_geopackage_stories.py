"""The GeoPackage target passes the suite for targets; tables are read with plain SQL over sqlite3."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime

import pytest

from ploti.contract.files import ENVELOPE
from ploti.sync.targets import open_target
from ploti.testing.targets import STORIES, check_killed, check_story, steps_of


class GeoPackageKit:
    def __init__(self, folder):
        self.path = folder / "records.gpkg"

    def open(self, reach):
        return open_target(f"sqlite:///{self.path}", reach=reach)

    def rows(self, dataset_id):
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            told = db.execute("SELECT schema FROM _ploti_datasets WHERE dataset_id = ?", [dataset_id]).fetchone()[0]
            found = db.execute(f'SELECT * FROM "{dataset_id}"')
            names = [column[0] for column in found.description]
            rows = [dict(zip(names, row, strict=True)) for row in found]
        types = {column["name"]: column["type"] for column in json.loads(told)["columns"]}
        assert len({row["fid"] for row in rows}) == len(rows)
        by_id = {
            row["_ploti_record_id"]: {name: value_of(row[name], type_) for name, type_ in types.items()} for row in rows
        }
        assert len(by_id) == len(rows), "a record id is there twice"
        assert set(names) - types.keys() == {"fid", *ENVELOPE}
        return by_id


def value_of(value, type_):
    """Give a stored value as Python's; a shape without the header of 40 bytes."""
    if value is None:
        return None
    match type_:
        case "date":
            return date.fromisoformat(value)
        case "timestamp":
            return datetime.fromisoformat(value).astimezone(UTC)
        case "boolean":
            return {0: False, 1: True}[value]
        case "geometry":
            return value[40:]
        case _:
            return value


ABOUT_ROWS = (
    "first_load", "changes", "new_column", "major_paused", "hostile_names", "extreme_values", "constants_of_every_type",
)  # fmt: skip
"""Stories in which targets differ; every story is told to every target by `make goals`."""


@pytest.fixture
def kit(tmp_path):
    return GeoPackageKit(tmp_path)


@pytest.mark.parametrize("name", ABOUT_ROWS)
def test_a_story_synced_at_each_turn_ends_at_its_tables(name, kit):
    check_story(STORIES[name], kit)


AT_THE_END = ("new_column",)


@pytest.mark.parametrize("name", AT_THE_END)
def test_a_story_synced_at_its_end_only_ends_at_the_loaded_versions(name, kit):
    check_story(STORIES[name], kit, each_time=False)


OWN_STEPS = ("before_commit", "after_commit")  # each one, on first, second and last hit: `make goals`


def test_a_sync_killed_at_any_step_goes_on_where_it_was(tmp_path):
    (tmp_path / "steps").mkdir()
    story = STORIES["new_column"]
    steps = steps_of(story, GeoPackageKit(tmp_path / "steps"))
    for name in OWN_STEPS:
        folder = tmp_path / name
        folder.mkdir()
        check_killed(story, GeoPackageKit(folder), f"sync.{name}", steps.count(f"sync.{name}"))
