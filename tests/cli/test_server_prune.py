"""`ploti-server prune` on a home folder with two versions of one dataset (D12, D13)."""

import json

import pytest

from ploti_server.cli import main
from ploti_server.cli.printing import counted

CATALOG = """
topics: [{id: permits, name: Permits}]
datasets: [{id: ds_x, title: X, place: fl, topic: permits, source: {kind: file, url: x.csv}}]
"""


@pytest.fixture
def told(tmp_path, capsys):
    """Run a command that has to be done on a home with two released versions; gives its answer."""

    def command(*arguments):
        code = main([*arguments, "--home", str(tmp_path / "home")])
        captured = capsys.readouterr()
        assert code == 0, captured.err + captured.out
        return json.loads(captured.out) if "--json" in arguments else captured.out

    (tmp_path / "catalog.yaml").write_text(CATALOG)
    command("catalog", "apply", str(tmp_path / "catalog.yaml"))
    for number in (1, 2):
        (tmp_path / "x.csv").write_text("k,v\n" + "".join(f"{n},{number}\n" for n in range(5)))
        command("check", "ds_x")
    return command


def test_prune_tells_what_it_lets_go_and_doctor_makes_whole_again(told, tmp_path):
    assert told("prune", "--json") == {
        "dryRun": False, "events": 0, "versions": [], "filesRemoved": 0, "bytesRemoved": 0,
    }  # fmt: skip
    dry = told("prune", "--at", "2999-01-01", "--dry-run", "--json")
    (gone,) = dry["versions"]
    assert (gone["version"], gone["kinds"], dry["dryRun"]) == (1, ["snapshot"], True)
    assert gone["bytes"] > 0
    says = told("prune", "--at", "2999-01-01", "--dry-run")
    assert f"past retention now: 1, with {gone['bytes']} bytes to go later" in says
    assert told("prune", "--at", "2020-01-01", "--json")["versions"] == []
    _doctor_finds_a_file_with_other_bytes_and_makes_it_again(told, tmp_path)


def _doctor_finds_a_file_with_other_bytes_and_makes_it_again(told, tmp_path):
    (file,) = (tmp_path / "home" / "files").glob("ds_x/versions/2/1/snapshot/*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:99] + bytes([content[99] ^ 1]) + content[100:])
    says = [{row["check"]: row["says"] for row in told("doctor", "--files", "--json")} for _ in range(2)]
    assert [one["current versions"] for one in says] == ["made again: version 2 of ds_x", "every file has its bytes"]
    (again,) = (tmp_path / "home" / "files").glob("ds_x/versions/2/2/snapshot/*.parquet")
    assert again.read_bytes() == content


def test_status_tells_of_lost_files_until_they_are_made_again(told, tmp_path, capsys):
    (file,) = (tmp_path / "home" / "files").glob("ds_x/versions/2/1/snapshot/*.parquet")
    file.unlink()
    assert main(["status", "--json", "--home", str(tmp_path / "home")]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["state"], row["version"]) == ("files lost", 2)
    assert "1 file of version 2, like snapshot/part-0000.parquet: `ploti-server doctor --files`" in row["why"]
    told("doctor", "--files")
    assert told("status", "--json")[0]["state"] == "current"


def test_nothing_is_let_go_for_a_time_to_come(told, tmp_path, capsys):
    assert main(["prune", "--at", "2999-01-01", "--home", str(tmp_path / "home")]) == 2
    assert "--at: 2999-01-01 is in the future" in capsys.readouterr().err
    assert len(told("prune", "--at", "2999-01-01", "--dry-run", "--json")["versions"]) == 1


def test_a_moment_that_cannot_be_read_is_wrong_usage(tmp_path, capsys):
    assert main(["prune", "--at", "tomorrow", "--home", str(tmp_path)]) == 2
    assert "--at: 'tomorrow' is not a time" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "told"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows")])
def test_one_is_no_plural(count, told):
    assert counted(count, "row") == told
