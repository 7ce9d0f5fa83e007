"""A bad machine and bad input at the operator's command: one clear line, exit code 1 or 2, never a trace (D13.6)."""

import errno
import json
import os
import resource
import signal
import socket
import sqlite3
from contextlib import contextmanager, redirect_stdout

import duckdb
import pytest
from sqlalchemy.exc import OperationalError

from ploti_server.app import build_ports
from ploti_server.cli import main
from ploti_server.cli.failures import reason_of
from ploti_server.domain.settings import Settings
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.worker import new_owner, work_one

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
    for state in (tmp_path / "pipe", "/dev/zero"):
        assert "no file that ends" in one_line(applied("check", "ds_x", "--state", state))
    assert "is a folder" in one_line(applied("check", "ds_x", "--state", tmp_path))


def test_a_state_whose_name_is_no_text_or_would_steer_a_terminal(applied, tmp_path):
    state = tmp_path / os.fsdecode(b"na\xffme\x1b[2J\n.csv")
    state.write_text("id,v\n1,b\n", encoding="utf-8")
    code, out, err = applied("check", "ds_x", "--state", state)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert len(out.splitlines()) == 1
    assert "\x1b" not in one_line(applied("check", "ds_x", "--state", tmp_path / os.fsdecode(b"no\xff\x1b[2Jwhere")))


@pytest.mark.parametrize("command", ["check {}", "ids show ds_x {}", "workspace set {}", "key list --workspace {}"])
def test_a_name_that_is_no_text(applied, command):
    odd = os.fsdecode(b"na\xffme")
    said = one_line(applied(*(word.replace("{}", odd) for word in command.split())), code=2)
    assert "'na\\udcffme' is no text" in said


def test_wrong_usage_does_not_steer_a_terminal(applied):
    assert "\x1b" not in one_line(applied("versions", "release-again", "ds_x", "\x1b[2J"), code=2)


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


def test_a_kind_of_source_that_is_not_read_yet_says_how_to_go_on(run, tmp_path):
    file, state = tmp_path / "catalog.yaml", tmp_path / "x.csv"
    file.write_text(CATALOG.replace("kind: file, url: x.csv", "kind: arcgis, url: 'https://x.example.org/0'"))
    state.write_text("id,v\n1,a\n", encoding="utf-8")
    assert run("catalog", "apply", file)[0] == 0
    assert "declare `kind: file`, for 'arcgis' is not read yet" in one_line(run("check", "ds_x"))
    assert "declare `kind: file` in the catalog" in run("check", "ds_x", "--state", state)[1]


def test_files_that_were_not_copied_are_told_with_the_reason(run, tmp_path):
    file = tmp_path / "catalog.yaml"
    attached = "attachments: [{file: original, url: none.pdf}], source"
    file.write_text(CATALOG.replace("source", attached), encoding="utf-8")
    (tmp_path / "x.csv").write_text("id,v\n1,a\n", encoding="utf-8")
    assert run("catalog", "apply", file)[0] == 0
    code, out, _ = run("check", "ds_x")
    assert code == 0
    assert out.splitlines()[1] == "ds_x: not copied: original: it cannot be read: No such file or directory"


def test_the_work_of_one_round_is_one_document_and_tells_what_failed(applied, tmp_path):
    assert applied("work", "--once")[:2] == (0, "no build is due\n")
    assert json.loads(applied("work", "--once", "--json")[1]) == []
    ports = build_ports(Settings.of(tmp_path / "home"))
    take_state(ports, "ds_x", GivenState(tmp_path / "x.csv"))
    code, out, _ = applied("work", "--once", "--json")
    assert (code, [done["outcome"] for done in json.loads(out)]) == (0, ["released"])
    (tmp_path / "x.csv").write_text("<html>", encoding="utf-8")
    take_state(ports, "ds_x", GivenState(tmp_path / "x.csv"))
    code, out, _ = applied("work", "--once", "--json")
    assert (code, [done["outcome"] for done in json.loads(out)]) == (1, ["failed"])


@contextmanager
def little_room(size):
    """Let no file grow beyond a size, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_of_the_home_is_not_said_of_the_source(applied, tmp_path):
    (tmp_path / "x.csv").write_text("id,v\n" + "1,a\n" * 1_000_000)
    with little_room(3_000_000):
        said = one_line(applied("check", "ds_x"))
    assert "the disk or the network refused" in said
    assert "x.csv" not in said
    assert json.loads(applied("status", "--json")[1])[0]["state"] == "not built"


def test_status_tells_why_a_build_is_to_be_tried_again(applied, tmp_path):
    def fail(step):
        if step == "build.part_stored":
            raise OSError(errno.ENOSPC, "No space left on device")

    ports = build_ports(Settings.of(tmp_path / "home"), reach=fail)
    taken = take_state(ports, "ds_x", GivenState(tmp_path / "x.csv"))
    with pytest.raises(OSError, match="No space left"):
        work_one(ports, new_owner(), taken.id)
    (row,) = json.loads(applied("status", "--json")[1])
    assert row["state"] == "queued"
    assert "No space left on device; tried again at" in row["why"]
    assert applied("check", "ds_x")[0] == 0
    assert json.loads(applied("status", "--json")[1])[0]["why"] is None


@pytest.mark.parametrize(
    ("failed", "remedy"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "make room"),
        (OSError(errno.EROFS, "Read-only file system", "/f"), "mount it"),
        (PermissionError(errno.EACCES, "Permission denied", "/f"), "let the user"),
        (OperationalError("", {}, sqlite3.OperationalError("unable to open database file")), "can be written"),
        (OperationalError("", {}, sqlite3.OperationalError("attempt to write a readonly database")), "let the user"),
        (OperationalError("", {}, sqlite3.OperationalError("database or disk is full")), "make room"),
        (duckdb.OutOfMemoryException("Out of Memory Error: x Possible solutions: * SET threads=X"), "`memory_mb`"),
    ],
)
def test_what_disk_database_or_engine_refuse_is_told_with_what_to_do(failed, remedy):
    said, told = reason_of(failed)
    assert remedy in told
    assert "SET" not in said
    assert "sqlalche" not in said


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
