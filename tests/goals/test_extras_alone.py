"""Each extra installed alone into an environment of its own does what it is for."""

import os
import subprocess

import pytest
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
