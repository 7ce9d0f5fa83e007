"""What a user's SQL can write into `_ploti_sync` and `_ploti_datasets`: the next sync puts it right, or says how to."""

import duckdb
import pytest
from tests.sync.test_sync_duckdb_stories import DuckKit

from ploti import Client
from ploti.sync.loop import repair, sync, verify
from ploti.sync.target import command, reach_nothing
from ploti.testing.feed import SUBSCRIPTION, Feed
from ploti.testing.stories import PERMITS, A, permits
from ploti.testing.targets import check_rows, sync_feed


@pytest.fixture
def kit(tmp_path):
    return DuckKit(tmp_path)


@pytest.fixture
def feed(kit):
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(5)))
    sync_feed(feed, kit)
    return feed


def query(kit, sql):
    with duckdb.connect(str(kit.path)) as db:
        return db.execute(sql).fetchall()


SCHEMAS = ["garbage", "[1]", "{}", '{"columns": [{"name": "x", "type": "other"}]}', "[" * 100_000]
HEALED = [
    *(f"UPDATE _ploti_datasets SET schema = '{text}'" for text in SCHEMAS),
    "UPDATE _ploti_datasets SET state = 'other'",
    "UPDATE _ploti_datasets SET loaded_version = NULL, position = NULL, rows = NULL",
    "INSERT INTO _ploti_datasets (dataset_id, state) VALUES (NULL, 'ok')",
    "UPDATE _ploti_sync SET cursor = 'garbage'",
]


@pytest.mark.parametrize("sql", HEALED, ids=[sql[:60] for sql in HEALED])
def test_the_next_sync_puts_it_right(kit, feed, sql):
    query(kit, sql)
    feed.update(A, put=permits(9))
    assert not sync_feed(feed, kit).behind
    check_rows(feed, kit, A, 2)
    assert kit.open(reach_nothing).digest(A, []).records == 6


@pytest.mark.parametrize("schema", SCHEMAS[:2])
def test_a_schema_that_is_none_is_told_by_verify_and_brought_back_by_repair(kit, feed, schema):
    query(kit, f"UPDATE _ploti_datasets SET schema = '{schema}'")
    with Client(**feed.api.client_options) as client:
        (found,) = verify(client, kit.open(reach_nothing))
        assert found.problem == f"the schema in _ploti_datasets was changed by hand: {command('repair')} brings it back"
        assert repair(client, kit.open(reach_nothing))[0].after.equal


@pytest.mark.parametrize("choice", ["garbage", "[]", '{"some": ["units"]}'])
def test_a_choice_of_columns_that_is_none_asks_for_another(kit, feed, choice):
    query(kit, f"UPDATE _ploti_datasets SET chosen_columns = '{choice}'")
    feed.update(A, put=permits(9))
    (held,) = sync_feed(feed, kit).behind
    assert held.held.reason.endswith("was changed by hand: choose again with --columns or --without")
    with Client(**feed.api.client_options) as client:
        assert not sync(client, SUBSCRIPTION, kit.open(reach_nothing), columns=[f"{A}=*"]).behind
    check_rows(feed, kit, A, 2)
