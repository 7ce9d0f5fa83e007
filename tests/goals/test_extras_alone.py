"""Each extra installed alone into an environment of its own does what it is for."""

import os
import subprocess
import tomllib

import psycopg
import pytest
from tests.e2e.serving import REPO
from tests.e2e.test_bare_install import INSTALL_SECONDS, _built_wheel

from ploti.testing.feed import SUBSCRIPTION, Feed, record_id

pytestmark = pytest.mark.goals
D = "ds_trees"
READ = "import ploti; print(len(ploti.feeds.datasets.versions.read('ds_trees', as_='{as_}')))"
ROWS = "import ploti; print(ploti.feeds.datasets.versions.read('ds_trees', as_='duckdb').fetchall()[0][6])"
ALONE = {
    "arrow": ["-c", READ.format(as_="arrow")],
    "pandas": ["-c", READ.format(as_="pandas")],
    "polars": ["-c", READ.format(as_="polars")],
    "sync": ["-c", ROWS],
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return _built_wheel(tmp_path_factory.mktemp("wheel"))[0]


@pytest.fixture
def address():
    feed = Feed()
    feed.add(D, {"kind": "string"}, {record_id(1): {"kind": "1"}})
    with feed.api.serve() as url:
        yield {"PLOTI_API_KEY": feed.api.api_key, "PLOTI_API_URL": url}


def installed(folder, wheel, extra):
    subprocess.run(["python3", "-m", "venv", folder / "alone"], check=True, timeout=INSTALL_SECONDS)
    python = folder / "alone" / "bin" / "python"
    line = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[{extra}]"]
    subprocess.run(line, check=True, timeout=INSTALL_SECONDS)
    return python


def run(python, arguments, folder, address):
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **address}
    done = subprocess.run(
        [python, *arguments], env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("extra", ALONE)
def test_an_extra_reads_rows_alone(extra, wheel, address, tmp_path):
    python = installed(tmp_path, wheel, extra)
    assert run(python, ALONE[extra], tmp_path, address).strip() == "1"
    said = run(python, ["-m", "ploti.cli", "doctor"], tmp_path, address)
    assert f"extra {extra} " in said
    assert f'"ploti[{extra}]"' not in said


def test_the_extra_for_sync_looks_and_follows_alone(wheel, address, tmp_path):
    python = installed(tmp_path, wheel, "sync")
    for line in (
        f"sync {SUBSCRIPTION} --to duckdb:///x.duckdb",
        f"sync {SUBSCRIPTION} --to sqlite:///x.gpkg",
        f"feeds datasets export {D} --to x.csv",
        f"changes {SUBSCRIPTION} --since 1d",
    ):
        assert D in run(python, ["-m", "ploti.cli", *line.split()], tmp_path, address)


def test_the_extra_for_postgresql_follows_alone(wheel, address, tmp_path, postgres_database):
    python = installed(tmp_path, wheel, "postgres")
    for line in (f"sync {SUBSCRIPTION} --to {postgres_database}", f"sync verify --to {postgres_database}"):
        assert D in run(python, ["-m", "ploti.cli", *line.split()], tmp_path, address)
    with psycopg.connect(postgres_database) as db:
        assert db.execute(f"SELECT kind FROM {D}").fetchall() == [("1",)]
    assert "extra postgres " in run(python, ["-m", "ploti.cli", "doctor"], tmp_path, address)


def test_the_extra_for_publishing_makes_a_home_alone(wheel, tmp_path):
    server = installed(tmp_path, wheel, "server").with_name("ploti-server")
    home = ["--home", str(tmp_path / "home")]
    run(server, ["workspace", "create", "team", "--coverage", "fl-counties", *home], tmp_path, {})
    assert "team" in run(server, ["workspace", "list", *home], tmp_path, {})


TESTED = {*ALONE, "postgres", "server"}
WITH_OTHERS = {"spark": "one more engine of a publisher", "bench": "peers to measure with", "dev": "all that is above"}


def test_every_extra_is_tested_here_or_goes_with_others():
    told = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert told.keys() == TESTED | WITH_OTHERS.keys()
