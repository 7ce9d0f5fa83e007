"""`ploti-server holds`: a person follows a hold by the command alone, from its facts to what subscribers were told."""

import json
import sqlite3

import pytest
from tests.pipeline.publishing import DATASET, Publisher, table

from ploti_server.cli import main
from ploti_server.cli.holds import told_about
from ploti_server.cli.home import ports_of
from ploti_server.cli.printing import Common
from ploti_server.domain.subscriptions import Selection
from ploti_server.pipeline.subscriptions import create_subscription
from ploti_server.pipeline.workspaces import create_workspace

CATALOG = """
topics: [{id: permits, name: Permits}]
datasets:
  - id: ds_x
    title: X
    place: fl
    topic: permits
    key: [k]
    source: {kind: file, url: x.csv}
    review: {release_after_agreeing_checks: 2}
"""
FULL = "k,v\n" + "".join(f"{n},v{n}\n" for n in range(40))
HALF = "k,v\n" + "".join(f"{n},v{n}\n" for n in range(20))


@pytest.fixture
def run(tmp_path, capsys):
    """Run a command on a home folder whose dataset has a held version and a subscription; gives code and output."""
    home = tmp_path / "home"

    def command(*arguments):
        code = main([*arguments, "--home", str(home)])
        captured = capsys.readouterr()
        out = captured.out + captured.err
        return code, json.loads(out) if "--json" in arguments else out

    (tmp_path / "catalog.yaml").write_text(CATALOG)
    assert command("catalog", "apply", str(tmp_path / "catalog.yaml"))[0] == 0
    ports = ports_of(Common(home))
    workspace = create_workspace(ports, "acme", ["fl-counties"], None)
    command.subscription = create_subscription(ports, workspace, Selection("fl", ("fl",), (), ())).id
    for content in (FULL, HALF, HALF):
        (tmp_path / "x.csv").write_text(content)
        command("check", "ds_x")
    return command


def everything_in(home):
    """List the files of a home folder with their bytes, and the rows of its database."""
    files = {
        path.relative_to(home): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and path.suffix not in (".db-wal", ".db-shm", ".db")
    }
    with sqlite3.connect(home / "ploti.db") as database:
        return files, list(database.iterdump())


def rehearse(run, tmp_path):
    """See what states would change, beside the held version, and that nothing was written."""
    before = everything_in(tmp_path / "home")
    state = tmp_path / "x.csv"
    state.write_text(FULL.replace("\n7,v7\n", "\n7,edited\n") + "40,v40\n")
    code, told = run("check", "ds_x", "--dry-run", "--json")
    counted = {name: told[name] for name in ("rows", "previousRows", "added", "changed", "removed", "byKey")}
    assert (code, told["outcome"], told["version"], told["current"]) == (0, "released", 3, 1)
    assert counted == {"rows": 41, "previousRows": 40, "added": 1, "changed": 1, "removed": 0, "byKey": 40}
    assert (told["schemaChange"], told["holds"]) == (None, [])
    state.write_text(FULL.replace("k,v", "k,w"))
    out = run("check", "ds_x", "--dry-run")[1]
    for line in (
        "outcome: held",
        "schemaVersion: 2.0",
        "schema change",
        "holds that would apply",
        "nothing was written",
    ):
        assert line in out
    state.write_text(HALF)
    told = run("check", "ds_x", "--dry-run", "--json")[1]
    assert (told["outcome"], told["openHold"], told["holds"][0]["rule"]) == ("released", 2, "row_drop")
    code, told = run("check", "ds_x", "--dry-run", "--json", "--state", str(tmp_path / "home"))
    assert (code, "is a folder" in told["error"]["message"]) == (1, True)
    state.write_text("")
    assert run("check", "ds_x", "--dry-run", "--json")[0] == 1
    assert run("check", "ds_x", "--dry-run", "--history", str(tmp_path))[0] == 2
    assert run("check", "--all-due", "--dry-run")[0] == 2
    assert everything_in(tmp_path / "home") == before


def test_a_hold_is_rehearsed_and_followed_from_its_facts_to_what_subscribers_were_told(run, tmp_path):
    rehearse(run, tmp_path)
    (listed,) = run("holds", "list", "--json")[1]
    assert (listed["dataset"], listed["version"], listed["reason"]) == ("ds_x", 2, "data_check")
    code, shown = run("holds", "show", "ds_x", "--json")
    assert (code, shown["facts"]["removed"], len(shown["sampleRows"])) == (0, 20, 5)
    assert [hold["rule"] for hold in shown["holds"]] == ["row_drop"]
    assert (shown["agreeingChecks"], shown["releasedAfterAgreeingChecks"]) == (1, 2)
    assert [(one["type"], one["version"], one["reason"]) for one in shown["told"]] == [
        ("feed.dataset.delayed", 1, "data_check")
    ]
    out = run("holds", "show", "ds_x")[1]
    assert "told to subscribers" in out
    assert "agreeingChecks: 1" in out
    assert run("holds", "release", "ds_x", "--note", "it is so")[0] == 0
    assert run("holds", "list") == (0, "no holds\n")
    code, told = run("holds", "told", "ds_x", "--json")
    assert code == 0
    assert [(one["event"], one["type"], one["version"]) for one in told] == [
        ("evt_000000000001", "feed.dataset.added", None),
        ("evt_000000000002", "feed.dataset.resync_required", 1),
        ("evt_000000000003", "feed.dataset.delayed", 1),
        ("evt_000000000004", "feed.dataset.updated", 2),
    ]
    assert {one["subscription"] for one in told} == {run.subscription}
    assert len(run("holds", "told", "ds_x", "--limit", "1", "--json")[1]) == 1


def test_a_hold_after_a_version_whose_files_are_lost_is_shown_without_sample_rows(run, tmp_path):
    for file in (tmp_path / "home").rglob("versions/1/**/snapshot/*.parquet"):
        file.unlink()
    code, shown = run("holds", "show", "ds_x", "--json")
    assert (code, shown["facts"]["removed"], shown["sampleRows"]) == (0, 20, [])
    assert "are lost" in shown["noSampleRows"]
    assert "no sample rows: files that they are read from are lost" in run("holds", "show", "ds_x")[1]


def test_schema_and_rows_that_are_in_trouble_at_once_are_both_shown(run, tmp_path):
    run("holds", "release", "ds_x")
    (tmp_path / "x.csv").write_text("k,w\n" + "".join(f"{number},w{number}\n" for number in range(5)))
    assert run("check", "ds_x", "--json")[1]["outcome"] == "held"
    shown = run("holds", "show", "ds_x", "--json")[1]
    assert [hold["rule"] for hold in shown["holds"]] == ["breaking_schema", "row_drop"]
    assert [row["v"][0] for row in shown["sampleRows"]] == ["v"] * 5, "rows that are gone"
    assert {(row["w"], row["v before"]) for row in shown["schemaSampleRows"]} == {(f"w{n}", f"v{n}") for n in range(5)}
    out = run("holds", "show", "ds_x")[1]
    assert "sample rows that are gone" in out
    assert "sample rows with what changed columns held before" in out


def test_what_was_told_keeps_the_order_of_the_log_when_the_clock_was_set_back(tmp_path):
    publisher = Publisher(tmp_path, key=("k",))
    publisher.subscribe()
    for number in range(1, 4):
        publisher.check(table(range(number)))
        publisher.clock.advance(hours=-2)
    told = told_about(publisher.ports, DATASET, None)
    assert [one["event"][-1] for one in told] == ["1", "2", "3", "4"]
