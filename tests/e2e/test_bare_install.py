"""A wheel installed without extras into an environment of its own: the SDK and command work, nothing heavy comes along.

One test, as building and installing is what takes its time.
"""

import os
import socket
import subprocess
import sys
import tomllib
import zipfile

from tests.e2e.serving import REPO

INSTALL_SECONDS = 300
NOT_INSTALLED = ("duckdb", "pyarrow", "pydantic", "fastapi", "sqlalchemy", "numpy", "uvicorn", "shapely")


def test_a_bare_install_brings_the_sdk_and_the_command_and_names_the_extra_that_sync_needs(tmp_path):
    wheel, version = _built_wheel(tmp_path)
    python = _bare_environment(tmp_path, wheel)
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PLOTI_API_KEY": "ploti_" + "k" * 32, "PLOTI_API_URL": f"http://127.0.0.1:{_dead_port()}",
    }  # fmt: skip

    def run(*line):
        return subprocess.run(
            line, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )

    def ploti(*arguments):
        return run(python.with_name("ploti"), *arguments)

    found = "import importlib.util as u, json, sys; print(json.dumps([n for n in sys.argv[1:] if u.find_spec(n)]))"
    assert run(python, "-c", found, *NOT_INSTALLED).stdout.strip() == "[]"
    assert run(python, "-c", "import ploti; print(ploti.__version__)").stdout.strip() == version
    assert run(python, "-c", "import ploti; [getattr(ploti, name) for name in ploti.__all__]").returncode == 0

    help_ = ploti("--help")
    assert (help_.returncode, help_.stderr) == (0, "")
    assert all(name in help_.stdout for name in ("feeds", "places", "sync", "login"))
    assert ploti("sync", "--help").returncode == 0
    told = ploti("version")
    assert (told.returncode, told.stderr) == (0, "")
    assert version in told.stdout

    places = ploti("places")
    assert (places.returncode, places.stdout) == (1, "")
    (line,) = places.stderr.strip().splitlines()
    assert environment["PLOTI_API_URL"] in line

    synced = ploti("sync", "sub_aaaaaaaaaaaaaaaa", "--to", "duckdb:///x.duckdb")
    assert (synced.returncode, synced.stdout) == (1, "")
    (line,) = synced.stderr.strip().splitlines()
    assert 'pip install "ploti[sync]"' in line
    assert not list(tmp_path.glob("x.duckdb*"))


def _built_wheel(folder):
    """Build the project's wheel; gives its path and version."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "dist", REPO],
        check=True, timeout=INSTALL_SECONDS,
    )  # fmt: skip
    (wheel,) = (folder / "dist").glob("ploti-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert {name.partition("/")[0] for name in names if not name.startswith("ploti-")} == {"ploti", "ploti_server"}
    assert "ploti/py.typed" in names
    version = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return wheel, version


def _bare_environment(folder, wheel):
    """Install the wheel without extras; gives the environment's Python."""
    subprocess.run([sys.executable, "-m", "venv", folder / "bare"], check=True, timeout=INSTALL_SECONDS)
    python = folder / "bare" / "bin" / "python"
    line = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel]
    subprocess.run(line, check=True, timeout=INSTALL_SECONDS)
    return python


def _dead_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
