"""A bad machine and bad input at the operator's command: one clear line, exit code 1 or 2, never a trace (D13.6)."""

import json
import os
import socket
from contextlib import redirect_stdout

import pytest

from ploti_server.cli import main

CATALOG = "datasets: [{id: ds_x, title: X, place: fl, source: {kind: file, url: x.csv}}]"


@pytest.fixture
def run(tmp_path, capsys):
    """Run a command on a home folder; gives exit code, output and error output."""

    def command(*arguments, home="home"):
        code = main([*map(str, arguments), "--home", str(tmp_path / home)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def applied(run, tmp_path):
    file = tmp_path / "catalog.yaml"
    file.write_text(CATALOG, encoding="utf-8")
    (tmp_path / "x.csv").write_text("id,v\n1,a\n", encoding="utf-8")
    assert run("catalog", "apply", file)[0] == 0
    return run


def one_line(told, code=1):
    """Hold an answer to be a refusal in one line; gives the line."""
    assert (told[0], told[1]) == (code, "")
    (line,) = told[2].splitlines()
    assert line.startswith("ploti-server: ")
    return line


def test_a_home_that_is_no_folder(run, tmp_path):
    (tmp_path / "home").write_text("a file")
    assert "home" in one_line(run("status"))
    code, out, _ = run("status", "--json")
    assert (code, list(json.loads(out))) == (1, ["error"])


@pytest.mark.parametrize(
    "command",
    [
        "status", "doctor", "datasets list", "datasets profile ds_x", "check ds_x", "check --all-due", "work",
        "holds list", "holds show ds_x", "holds told ds_x", "judge list", "versions list ds_x", "ids show ds_x rec_1",
        "prune", "workspace list", "workspace delete w", "member add --workspace w m", "key list --workspace w",
    ],
)  # fmt: skip
def test_a_home_that_is_not_there_is_not_made(run, tmp_path, command):
    said = one_line(run(*command.split()))
    assert "there is no" in said
    if "profile" not in command:
        assert "home folder" in said
    assert not (tmp_path / "home").exists()


def test_a_look_ahead_makes_no_home(run, tmp_path):
    (tmp_path / "catalog.yaml").write_text(CATALOG, encoding="utf-8")
    (tmp_path / "x.csv").write_text("id,v\n1,a\n", encoding="utf-8")
    assert "ds_x" in run("catalog", "apply", tmp_path / "catalog.yaml", "--dry-run")[1]
    assert run("datasets", "profile", tmp_path / "x.csv")[0] == 0
    assert not (tmp_path / "home").exists()


def test_a_workspace_may_be_the_first_thing(run):
    assert run("workspace", "create", "w", "--coverage", "fl-counties")[0] == 0


def test_a_database_that_is_none(run, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "ploti.db").write_bytes(b"no database at all" * 1000)
    assert "database" in one_line(run("status"))


@pytest.mark.parametrize(
    "url",
    ["garbage", "mysql://u:hidden@h/d", "sqlite://", "postgresql://u:hidden@host:port/db", "postgresql://[u:hidden@/d"],
)
def test_an_address_that_is_no_database_s_is_told_without_its_password(run, tmp_path, url):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings.toml").write_text(f'database_url = "{url}"\n')
    line = one_line(run("status"))
    assert "database" in line
    assert "hidden" not in line


@pytest.mark.parametrize("at", ["yesterday", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "", "12"])
def test_a_time_that_is_none(applied, at):
    assert "--at" in one_line(applied("check", "ds_x", "--at", at), code=2)


def test_a_state_that_never_ends(applied, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for state in (tmp_path / "pipe", "/dev/zero", tmp_path):
        assert "state" in one_line(applied("check", "ds_x", "--state", state))


def test_a_state_whose_name_is_no_text_or_would_steer_a_terminal(applied, tmp_path):
    state = tmp_path / os.fsdecode(b"na\xffme\x1b[2J\n.csv")
    state.write_text("id,v\n1,b\n", encoding="utf-8")
    code, out, err = applied("check", "ds_x", "--state", state)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert len(out.splitlines()) == 1
    assert "\x1b" not in one_line(applied("check", "ds_x", "--state", tmp_path / os.fsdecode(b"no\xff\x1b[2Jwhere")))


@pytest.mark.parametrize("port", ["65536", "99999", "-5"])
def test_a_port_that_there_cannot_be(run, port):
    assert "--port" in one_line(run("serve", "--port", port), code=2)


def test_a_port_that_another_program_has(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "listen" in one_line(run("serve", "--port", taken.getsockname()[1]))


@pytest.mark.parametrize("trouble", ["gone", "empty"])
def test_a_source_that_cannot_be_read_is_a_failed_check(applied, tmp_path, trouble):
    assert one_line(applied("check", "ds_x", "--state", str(tmp_path / "typo.csv")))
    assert json.loads(applied("status", "--json")[1])[0]["state"] == "not built"
    if trouble == "gone":
        (tmp_path / "x.csv").unlink()
    else:
        (tmp_path / "x.csv").write_text("")
    code, out, _ = applied("check", "ds_x")
    assert (code, out.startswith("ds_x x.csv: failed: ")) == (1, True)
    (row,) = json.loads(applied("status", "--json")[1])
    assert (row["state"], row["why"] in out) == ("failed", True)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_a_command_does_is_done_whether_or_not_its_output_is_read(run, tmp_path, form):
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(CATALOG.replace("id: ds_x", "id: ds_y"), encoding="utf-8")
    read, written = os.pipe()
    os.close(read)
    with open(written, "w", encoding="utf-8") as nobody, redirect_stdout(nobody):
        assert main(["catalog", "apply", str(catalog), "--home", str(tmp_path / "home"), *form]) == 0
        assert main(["ids", "show", "ds_x", "rec_x", "--home", str(tmp_path / "home"), "--json"]) == 1
    assert [row["dataset"] for row in json.loads(run("datasets", "list", "--json")[1])] == ["ds_y"]
