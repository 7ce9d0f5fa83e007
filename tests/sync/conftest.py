"""Fixtures for sync targets: a PostgreSQL server with PostGIS, which the other tests' wheel lacks; a folder."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest


def _debian_postgres():
    """Find the newest PostgreSQL of Debian's that has PostGIS; gives the folder of its programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/lib/postgis-3.so"))
    if not found:
        pytest.fail(
            "The PostGIS tests need a PostgreSQL with PostGIS, which `make test` installs where it may. As root: "
            "apt-get install -y --no-install-recommends postgresql-postgis"
        )
    return found[-1].parents[1] / "bin"


@pytest.fixture(scope="session")
def postgis_url():
    """The address of a server with PostGIS in a template database, as long as the tests of this process."""
    programs, folder = _debian_postgres(), Path(tempfile.mkdtemp(prefix="ploti-gis-", dir="/tmp"))
    owner = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    shutil.chown(folder, owner)

    def run(program, *arguments):
        subprocess.run(
            [programs / program, *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL,
            user=owner if os.geteuid() == 0 else None,
        )  # fmt: skip

    data = folder / "data"
    run("initdb", "-D", data, "-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
    settings = f"-k {folder} -c listen_addresses= -c fsync=off -c full_page_writes=off"
    run("pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", settings, "start")
    try:
        url = f"postgresql://postgres@/postgres?host={folder}"
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("CREATE SEQUENCE test_databases")
            admin.execute("CREATE DATABASE gis_template")
        with psycopg.connect(url.replace("/postgres?", "/gis_template?"), autocommit=True) as template:
            template.execute("CREATE EXTENSION postgis")
        yield url
    finally:
        run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)


@pytest.fixture
def postgis_database(postgis_url):
    """The address of an empty database with PostGIS, for one test."""
    with psycopg.connect(postgis_url, autocommit=True) as admin:
        number = admin.execute("SELECT nextval('test_databases')").fetchone()[0]
        name = f"t{number}"
        admin.execute(f"CREATE DATABASE {name} TEMPLATE gis_template")
        try:
            yield postgis_url.replace("/postgres?", f"/{name}?")
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def open_folder():
    """A folder that every user may go into."""
    folder = Path(tempfile.mkdtemp(prefix="ploti-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)
