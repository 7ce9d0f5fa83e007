"""Opening a database: its tables, its settings, other layouts, other addresses, forked processes."""

import json
import os
import sqlite3
import threading
from datetime import UTC, datetime

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, make_url, text

from ploti_server.adapters import migrations
from ploti_server.adapters.migrations import UnknownLayout
from ploti_server.adapters.store import open_store
from ploti_server.adapters.store_tables import metadata
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.events import LoggedEvent, added, stored_body
from ploti_server.domain.settings import Settings
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.domain.workspaces import Workspace

DATASET = Dataset("ds_a", "A", SourceSpec("csv", "x"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
VERSION = Version("ds_a", 3, 1, VersionStatus.RELEASED, 1)
COUNTS = {"call_counts"}
"""Tables of raw SQL, which SQLite has none of."""


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request, tmp_path):
    """The address of an empty database, on each of the two."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/er/store.sqlite"
    return request.getfixturevalue("postgres_database")


def engine_of(url):
    parsed = make_url(url)
    driver = "postgresql+psycopg" if parsed.get_backend_name() == "postgresql" else parsed.drivername
    return create_engine(parsed.set(drivername=driver))


def test_migrations_make_exactly_the_tables(empty_url):
    open_store(empty_url).close()
    engine = engine_of(empty_url)
    with engine.connect() as connection:
        options = {"include_name": lambda name, *_: name not in COUNTS}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
        counts = COUNTS if engine.dialect.name == "postgresql" else set()
        assert set(inspect(connection).get_table_names()) == {*metadata.tables, *counts, "alembic_version"}
    engine.dispose()


def test_head_is_the_newest_migration_and_all_are_known():
    with create_engine("sqlite://").connect() as connection:
        scripts = ScriptDirectory.from_config(migrations.configuration(connection))
    assert isinstance(migrations.configuration(connection), Config)
    assert scripts.get_heads() == [migrations.HEAD]
    assert sorted(script.revision for script in scripts.walk_revisions()) == sorted(migrations.KNOWN)


def test_opening_again_keeps_what_is_stored(empty_url):
    store = open_store(empty_url)
    with store.write() as records:
        records.catalog.put_dataset(DATASET)
    store.close()
    again = open_store(empty_url)
    with again.read() as records:
        assert records.catalog.datasets() == (DATASET,)
    again.close()


def test_layout_of_a_newer_program_is_refused_and_left_alone(empty_url):
    open_store(empty_url).close()
    engine = engine_of(empty_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    known = f"layout 9999, this program knows layouts up to {migrations.HEAD}; install the newer"
    with pytest.raises(UnknownLayout, match=known):
        open_store(empty_url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "9999"
    engine.dispose()


def test_events_of_an_older_layout_get_the_body_that_is_written_today(empty_url):
    event = LoggedEvent("sub_1", 7, "feed.dataset.added", "ds_a", NOW, added("ds_a", VERSION).data)
    other = LoggedEvent("sub_1", 8, "feed.dataset.removed", "ds_a", NOW, {"datasetId": "ds_a", "reason": 'é\x01"x'})
    store = open_store(empty_url)
    with store.write() as records:
        records.workspaces.put(Workspace("w1", "Lee", (), None, NOW))
        records.subscriptions.put(Subscription("sub_1", "w1", "N", (), (), (), 1, NOW, NOW))
    store.close()
    engine = engine_of(empty_url)
    with engine.begin() as connection:
        command.stamp(migrations.configuration(connection), "0005")
        connection.execute(text("ALTER TABLE events RENAME COLUMN body TO data"))
        moment = int(NOW.timestamp()) * 1_000_000
        for one in (event, other):
            values = {"n": one.number, "type": one.type, "at": moment, "data": json.dumps(one.data)}
            insert = "INSERT INTO events VALUES ('sub_1', :n, :type, 'ds_a', :at, :data)"
            connection.execute(text(insert), values)
    engine.dispose()
    again = open_store(empty_url)
    with again.read() as records:
        assert records.events.after("sub_1", 0, 10) == (event, other)
        assert records.events.page("sub_1", 0, 10).bodies.text == f"{stored_body(event)},{stored_body(other)}"
    again.close()


def test_many_open_an_empty_database_at_once(empty_url):
    failures = []

    def open_and_write(number):
        try:
            store = open_store(empty_url)
            with store.write() as records:
                records.catalog.put_dataset(Dataset(f"ds_{number}", "A", SourceSpec("csv", "x")))
            store.close()
        except Exception as error:  # noqa: BLE001  # whatever a thread meets fails the test
            failures.append(error)

    threads = [threading.Thread(target=open_and_write, args=[n]) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    store = open_store(empty_url)
    with store.read() as records:
        assert len(records.catalog.datasets()) == 6
    store.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("store.sqlite", "is not a database address; use sqlite:///PATH or postgresql://"),
        ("", "is not a database address"),
        ("sqlite://", "cannot hold the metadata; use sqlite:///PATH of a file"),
        ("sqlite:///:memory:", "cannot hold the metadata"),
        ("mysql://root:secret@localhost/ploti", "'mysql://root:\\*\\*\\*@localhost/ploti' cannot hold the metadata"),
    ],
)
def test_other_addresses_are_refused(url, message):
    with pytest.raises(ValueError, match=message):
        open_store(url)


def test_sqlite_is_set_up_for_several_processes(tmp_path):
    url = f"sqlite:///{tmp_path}/store.sqlite"
    store = open_store(url)
    with store._engine.connect() as connection:
        values = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert values == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}
    store.close()


def test_sqlite_writer_takes_its_lock_at_the_begin(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/store.sqlite")
    with store.write():
        other = sqlite3.connect(tmp_path / "store.sqlite", timeout=0, isolation_level=None)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.close()
    store.close()


def test_forked_process_uses_connections_of_its_own(store_url):
    store = open_store(store_url)
    with store.write() as records:
        records.catalog.put_dataset(DATASET)
    with store.read() as before:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with store.write() as records:
                    records.catalog.put_dataset(Dataset("ds_b", "B", SourceSpec("csv", "x")))
                store.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert before.catalog.dataset("ds_a") == DATASET
    with store.read() as records:
        assert [d.id for d in records.catalog.datasets()] == ["ds_a", "ds_b"]
    store.close()


def test_home_folder_with_odd_characters(tmp_path):
    home = tmp_path / "a home? %41 ü#1"
    store = open_store(Settings.of(home).database_url)
    with store.read() as records:
        assert records.catalog.datasets() == ()
    assert (home / "ploti.db").exists()
    store.close()
