"""Real histories followed into PostgreSQL: after each state the table is the newest snapshot (I1, D11.8)."""

import json
from datetime import UTC, datetime

import psycopg
import pytest
from tests.e2e.serving import Publisher, serving, states_of

from ploti import Client
from ploti.sync.loop import sync, verify
from ploti.sync.targets import open_target


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def check_equals(url, name, published):
    """Compare a table with a snapshot read by pyarrow, value by value, volatile columns aside."""
    types = {column["name"]: column["type"] for column in published.schema["columns"]}
    own = published.own
    listed = ["_ploti_record_id", *(_read(column, types[column]) for column in own)]
    with psycopg.connect(url) as db:
        db.execute("SET TimeZone = 'UTC'")
        found = db.execute(f'SELECT {", ".join(listed)} FROM feeds."ds_{name}"'.encode()).fetchall()
    rows = {id_: dict(zip(own, map(_plain, values), strict=True)) for id_, *values in found}
    assert len(rows) == len(found)
    wanted = published.rows()
    assert rows.keys() == wanted.keys()
    for id_, row in wanted.items():
        assert rows[id_] == {column: _delivered(row[column], types[column]) for column in own}


def _read(column, type_):
    quoted = '"' + column.replace('"', '""') + '"'
    return f"ST_AsBinary({quoted}, 'NDR')" if type_ == "geometry" else quoted


def _plain(value):
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _delivered(value, type_):
    if value is None:
        return None
    return json.loads(value) if type_ == "json" else _plain(value)


LONG = [
    pytest.param(name, marks=pytest.mark.goals) for name in ("vt_rutland_zoning", "calfire_incidents", "fl_airports")
]


@pytest.mark.parametrize("name", ["fl_counties", "fl_courts", *LONG])
def test_a_table_equals_the_newest_snapshot_after_each_state(name, postgis_database, tmp_path):
    publisher, versions = Publisher(tmp_path / "home", (name,)), []
    with serving(publisher) as url, Client(publisher.key, url) as client:
        subscription = publisher.subscribe(name)
        for state in states_of(name):
            number = publisher.publish(name, state)
            versions += [number] if number else []
            target = open_target(f"{postgis_database}&schema=feeds")
            report = sync(client, subscription, target, on_major="apply")
            assert not report.behind
            check_equals(postgis_database, name, publisher.published(name, versions[-1]))
            found = verify(client, target)
            assert [(each.version, each.equal, each.problem) for each in found] == [(versions[-1], True, None)]
    assert len(versions) > 3
