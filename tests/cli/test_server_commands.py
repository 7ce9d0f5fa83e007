"""The operator's commands for catalog, workspaces, members, keys and settings (D13)."""

import json
import re
import subprocess
import sys

import pytest

from ploti_server.cli import main
from ploti_server.cli.printing import CommandRefused
from ploti_server.cli.serve import is_loopback, require_public_address
from ploti_server.domain.settings import Settings

CATALOG = """
topics: [{id: permits, name: Permits}]
datasets:
  - {id: ds_x, title: X, place: fl, topic: permits, source: {kind: file, url: x.csv}}
"""


@pytest.fixture
def home(tmp_path):
    """Make the home folder, as an earlier command has."""
    (tmp_path / "home").mkdir()


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Run a command on a home folder of its own; gives exit code, output and error output."""
    monkeypatch.delenv("PLOTI_SERVER_HOME", raising=False)

    def command(*arguments):
        code = main([*arguments, "--home", str(tmp_path / "home")])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def told(run):
    """Run a command with `--json` that has to be done; gives its answer."""

    def command(*arguments):
        code, out, err = run(*arguments, "--json")
        assert code == 0, err + out
        return json.loads(out)

    return command


@pytest.fixture
def catalog(tmp_path):
    file = tmp_path / "catalog.yaml"
    file.write_text(CATALOG, encoding="utf-8")
    return file


class TestCatalog:
    def test_dry_run_shows_and_changes_nothing(self, run, told, catalog, home):
        code, out, _ = run("catalog", "apply", str(catalog), "--dry-run")
        assert code == 0
        assert out.splitlines() == ["+ topic permits", "+ ds_x", "nothing was changed: leave out --dry-run to apply"]
        assert told("datasets", "list") == []

    def test_applied_twice_changes_nothing_the_second_time(self, told, catalog):
        first, second = (told("catalog", "apply", str(catalog)) for _ in range(2))
        assert (first["applied"], first["added"], first["topics"]["added"]) == (True, ["ds_x"], ["permits"])
        assert (second["added"], second["changed"], second["unchanged"]) == ([], [], ["ds_x"])
        (row,) = told("datasets", "list")
        assert (row["dataset"], row["place"], row["version"], row["retired"]) == ("ds_x", "fl", None, False)

    def test_change_that_breaks_a_consumer_is_shown_as_major(self, run, catalog, tmp_path):
        run("catalog", "apply", str(catalog))
        changed = "title: Y, drop: [A], columns: {b: string}"
        catalog.write_text(CATALOG.replace("title: X", changed), encoding="utf-8")
        _, out, _ = run("catalog", "apply", str(catalog), "--dry-run")
        assert "~ ds_x (title, columns, drop)\n" in out
        (tmp_path / "x.csv").write_text("a,b\n1,2\n", encoding="utf-8")
        assert run("check", "ds_x")[0] == 0
        _, out, _ = run("catalog", "apply", str(catalog), "--dry-run")
        assert "~ ds_x (title, columns, drop): a MAJOR schema change at the next check, held for review" in out
        run("catalog", "apply", str(catalog))
        assert run("check", "ds_x")[1].startswith("ds_x x.csv: held version 2")

    def test_names_that_a_state_lacks_are_told_in_a_line(self, run, catalog, tmp_path):
        named = "key: [nope], drop: [gone], volatile: [v], columns: {w: string}"
        catalog.write_text(CATALOG.replace("title: X", f"title: X, {named}"), encoding="utf-8")
        (tmp_path / "x.csv").write_text("a,b\n1,2\n", encoding="utf-8")
        run("catalog", "apply", str(catalog))
        (told,) = [line for line in run("check", "ds_x", "--dry-run")[1].splitlines() if line.startswith("misnamed: ")]
        assert sorted(told.removeprefix("misnamed: ").split(", ")) == ["gone", "nope", "v", "w"]
        _, line = run("check", "ds_x")[1].splitlines()
        assert line.startswith("ds_x: the catalog names columns that the state lacks: ")
        assert sorted(line.rpartition(": ")[2].split(", ")) == ["gone", "nope", "v", "w"]

    def test_broken_catalog_is_refused_whole_with_every_problem(self, run, told, catalog, home):
        broken = CATALOG.replace("fl, topic: permits", "mars, topic: water").replace("x.csv", "x.csv, crs: EPSG:99")
        catalog.write_text(broken, encoding="utf-8")
        code, out, err = run("catalog", "apply", str(catalog))
        assert (code, out) == (1, "")
        assert [line.partition(": ")[2].partition(":")[0] for line in err.splitlines()] == [
            "datasets[0].place",
            "datasets[0].topic",
            "datasets[0].source.crs[0]",
        ]
        code, out, _ = run("catalog", "apply", str(catalog), "--json")
        assert (code, len(json.loads(out)["error"]["problems"])) == (1, 3)
        assert told("datasets", "list") == []

    def test_file_that_is_not_there_is_one_clear_line(self, run, tmp_path):
        code, _, err = run("catalog", "apply", str(tmp_path / "none.yaml"))
        assert code == 1
        assert len(err.splitlines()) == 1
        assert "none.yaml" in err


class TestWorkspaces:
    def test_workspace_is_created_listed_changed_and_deleted(self, told, catalog):
        told("catalog", "apply", str(catalog))
        made = told("workspace", "create", "acme", "--coverage", "fl-county-orange", "--coverage", "ny-counties")
        assert (made["coverage"], made["topics"]) == (["fl-county-orange", "ny-counties"], None)
        changed = told("workspace", "set", "acme", "--topic", "permits")
        assert (changed["coverage"], changed["topics"]) == (made["coverage"], ["permits"])
        assert told("workspace", "set", "acme", "--all-topics")["topics"] is None
        assert [w["name"] for w in told("workspace", "list")] == ["acme"]
        assert told("workspace", "delete", "acme") == {"deleted": "acme"}
        assert told("workspace", "list") == []

    def test_refusal_is_one_line_and_with_json_an_object(self, run):
        code, out, err = run("workspace", "create", "acme", "--coverage", "florida")
        assert (code, out, len(err.splitlines())) == (1, "", 1)
        assert "fl-counties" in err
        code, out, err = run("workspace", "create", "acme", "--coverage", "florida", "--json")
        assert (code, err) == (1, "")
        assert "fl-counties" in json.loads(out)["error"]["message"]

    def test_key_is_shown_once_and_its_text_is_kept_nowhere(self, run, told, tmp_path):
        told("workspace", "create", "acme", "--coverage", "fl-counties")
        made = told("key", "create", "--workspace", "acme", "--member", "ann")
        assert list(made) == ["key", "id"]
        (row,) = told("key", "list", "--workspace", "acme")
        assert (row["id"], row["member"], row["role"], row["revokedAt"]) == (made["id"], "ann", "admin", None)
        assert row["permissions"] == ["feeds", "webhooks"]
        stored = b"".join(file.read_bytes() for file in (tmp_path / "home").rglob("*") if file.is_file())
        assert made["key"].encode() not in stored
        assert told("key", "revoke", made["id"])["revokedAt"]
        code, out, _ = run("key", "create", "--workspace", "acme", "--member", "bob", "--permission", "feeds")
        assert (code, out.splitlines()[0][:6]) == (0, "ploti_")

    def test_member_is_added_listed_and_removed(self, told):
        told("workspace", "create", "acme", "--coverage", "fl-counties")
        assert told("member", "add", "ann", "--workspace", "acme", "--role", "admin")["role"] == "admin"
        assert told("member", "add", "bob", "--workspace", "acme")["role"] == "member"
        assert told("member", "remove", "ann", "--workspace", "acme")["leftAt"]
        members = told("member", "list", "--workspace", "acme")
        assert [(m["name"], m["leftAt"] is None) for m in members] == [("ann", False), ("bob", True)]


class TestUsage:
    @pytest.mark.parametrize(
        "arguments",
        [
            ["bogus"],
            ["workspace", "create"],
            ["workspace", "bogus"],
            ["catalog", "apply"],
            ["key", "create", "--workspace", "w"],
            ["key", "create", "--workspace", "w", "--member", "m", "--role", "owner"],
            ["datasets", "list", "--bogus"],
            ["serve", "--port", "x"],
            ["check"],
            ["check", "ds_x", "--all-due"],
            ["check", "--all-due", "--at", "2026-01-01"],
            ["check", "ds_x", "--history", "states", "--state", "x.csv"],
            ["check", "ds_x", "--state", "x.csv", "--at", "yesterday"],
            ["check", "ds_x", "--state", "x.csv", "--at", "9999-01-01"],
            ["versions", "release-again", "ds_x", "12345678901234567890"],
            ["judge", "show", "ds_x", "--version", "12345678901234567890"],
            ["holds", "told", "ds_x", "--limit", "-1"],
            ["workspace", "set", "acme", "--topic", "permits", "--all-topics"],
        ],
    )
    def test_wrong_usage_is_exit_code_2_and_one_line_and_with_json_an_object(self, run, arguments, home):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
        assert err.startswith("ploti-server: ")
        code, out, err = run(*arguments, "--json")
        assert (code, err) == (2, "")
        assert json.loads(out)["error"]["message"]

    def test_home_may_come_from_the_environment(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("PLOTI_SERVER_HOME", str(tmp_path / "elsewhere"))
        assert main(["workspace", "create", "mine", "--coverage", "fl-counties", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["name"] == "mine"
        assert (tmp_path / "elsewhere").is_dir()

    @pytest.mark.parametrize("ahead", [["--home", "H"], ["--home=H"]])
    def test_home_may_stand_ahead_of_the_command(self, tmp_path, monkeypatch, ahead):
        monkeypatch.chdir(tmp_path)
        assert main([*ahead, "workspace", "create", "mine", "--coverage", "fl-counties"]) == 0
        assert [path.name for path in tmp_path.iterdir()] == ["H"]
        assert main(ahead) in {0, 2}

    def test_help_names_every_command_and_imports_no_heavy_library(self):
        code = (
            "import sys; from ploti_server.cli import main\n"
            "main(['--help'])\n"
            "heavy = {'sqlalchemy', 'fastapi', 'duckdb', 'pyarrow', 'uvicorn', 'alembic'} & set(sys.modules)\n"
            "sys.exit(str(sorted(heavy)) if heavy else 0)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for name in ("serve", "status", "doctor", "settings", "catalog", "datasets", "workspace", "member", "key"):
            assert name in done.stdout


class TestSettings:
    def test_settings_tell_where_each_value_comes_from(self, told, tmp_path, monkeypatch):
        home = tmp_path / "home"
        home.mkdir()
        (home / "settings.toml").write_text('public_url = "https://feeds.example.org/"\nport = 9000\n')
        monkeypatch.setenv("PLOTI_SERVER_PORT", "9001")
        monkeypatch.setenv("PLOTI_SERVER_DATABASE_URL", "postgresql://u:secret@db/ploti")
        rows = {row["setting"]: (row["value"], row["from"]) for row in told("settings")}
        assert rows["public_url"] == ("https://feeds.example.org", "settings.toml")
        assert rows["port"] == (9001, "environment")
        assert rows["host"] == ("127.0.0.1", "default")
        assert rows["database_url"] == ("postgresql://u:***@db/ploti", "environment")

    def test_setting_that_is_wrong_is_refused(self, run, monkeypatch):
        monkeypatch.setenv("PLOTI_SERVER_PUBLIC_URL", "feeds.example.org")
        code, _, err = run("settings")
        assert (code, len(err.splitlines())) == (1, 1)
        assert "PLOTI_SERVER_PUBLIC_URL" in err

    def test_doctor_asks_the_chat_endpoint_that_a_dataset_needs_and_sends_a_notice(self, run, catalog, monkeypatch):
        catalog.write_text(CATALOG.replace("topic: permits,", "topic: permits, matching: {agent: chat},"))
        run("catalog", "apply", str(catalog))
        monkeypatch.setenv("PLOTI_SERVER_NOTIFY_COMMAND", "/no/such/program")
        code, out, _ = run("doctor", "--notify")
        assert code == 1
        assert re.search(r"chat agent +no +no chat endpoint is set: give chat_url and chat_model", out)
        assert re.search(r"notices +no +notify_command cannot be run", out)

    def test_doctor_finds_a_new_home_well_and_a_bad_store_ill(self, run, told, monkeypatch, home):
        assert all(row["ok"] for row in told("doctor"))
        monkeypatch.setenv("PLOTI_SERVER_DATABASE_URL", "mysql://x/y")
        code, out, _ = run("doctor", "--json")
        rows = {row["check"]: row["ok"] for row in json.loads(out)}
        assert (code, rows["database"], rows["disk"]) == (1, False, True)


class TestServe:
    @pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "localhost", "127.9.9.9"])
    def test_loopback_needs_no_public_address(self, host, tmp_path):
        assert is_loopback(host)
        require_public_address(host, Settings.of(tmp_path))

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "feeds.example.org", ""])
    def test_other_machines_are_served_only_with_one(self, host, tmp_path):
        with pytest.raises(CommandRefused, match="PLOTI_SERVER_PUBLIC_URL"):
            require_public_address(host, Settings.of(tmp_path))
        require_public_address(host, Settings.of(tmp_path, {"PLOTI_SERVER_PUBLIC_URL": "https://feeds.example.org"}))

    def test_command_refuses_before_it_opens_anything(self, run, tmp_path):
        code, _, err = run("serve", "--host", "0.0.0.0")
        assert (code, len(err.splitlines())) == (1, 1)
        assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "command",
    ["holds show DS", "holds told DS", "holds release DS", "holds discard DS", "judge show DS",
     "judge show DS --version 1", "judge answer DS 1 same", "judge finish DS", "judge ask DS", "ids show DS rec_x",
     "ids find DS", "ids replace DS", "versions list DS", "versions release-again DS 1"],
)  # fmt: skip
def test_a_dataset_that_is_not_in_the_catalog_is_told_by_every_command(run, command, home):
    told = "ploti-server: there is no dataset ds_typo: see `ploti-server datasets list`\n"
    assert run(*command.replace("DS", "ds_typo").split()) == (1, "", told)
