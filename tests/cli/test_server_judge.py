"""`ploti-server judge`: a person follows a version that waits for it, by the command alone (D4.8)."""

import json

import pytest

from ploti_server.cli import main

CATALOG = """
topics: [{id: permits, name: Permits}]
datasets:
  - id: ds_x
    title: X
    place: fl
    topic: permits
    source: {kind: file, url: x.csv}
    matching: {agent: staff}
"""
BEFORE = "name,street\n" + "".join(f"name {n},street {n}\n" for n in range(4))
EDITED = BEFORE.replace("street 1", "avenue 1").replace("street 2", "avenue 2")


@pytest.fixture
def run(tmp_path, capsys):
    """Run a command on a home folder of its own; gives exit code and output, JSON where it is asked for."""

    def command(*arguments):
        code = main([*arguments, "--home", str(tmp_path / "home")])
        captured = capsys.readouterr()
        out = captured.out + captured.err
        return code, json.loads(out) if "--json" in arguments else out

    (tmp_path / "catalog.yaml").write_text(CATALOG)
    assert command("catalog", "apply", str(tmp_path / "catalog.yaml"))[0] == 0
    for content in (BEFORE, EDITED):
        (tmp_path / "x.csv").write_text(content)
        code, told = command("check", "ds_x")
        assert code == 0
    assert told == (
        "ds_x x.csv: waiting for its matching agent, 0 of 2 pairs judged (see `ploti-server judge show ds_x`)\n"
    )
    return command


def test_a_person_sees_both_records_side_by_side_answers_and_the_build_goes_on(run, tmp_path):
    code, listed = run("judge", "list", "--json")
    assert (code, [(row["dataset"], row["version"], row["open"], row["asked"]) for row in listed]) == (
        0,
        [("ds_x", 2, 2, 1)],
    )
    (tmp_path / "x.csv").write_text(EDITED.replace("name 3", "NAME 3"))
    assert run("check", "ds_x", "--json")[1] | {"facts": {}} == {
        "dataset": "ds_x",
        "outcome": "waiting",
        "version": None,
        "reason": "an earlier version waits for its matching agent; this state is built next",
        "facts": {},
    }
    shown = run("judge", "show", "ds_x", "--json")[1]["judge"]
    for row in shown:
        number = row["old"]["name"][-1]
        assert (row["old"]["street"], row["new"]["street"]) == (f"street {number}", f"avenue {number}")
        assert (row["differs"], row["answer"]) == (["street"], None)
    code, out = run("judge", "show", "ds_x")
    assert "pair 2: not judged" in out
    assert any(line.split()[:1] == ["street"] and "≠" in line for line in out.splitlines())
    out = run("judge", "show", "ds_x", "--limit", "1")[1]
    assert "pair 2" not in out
    assert "1 more pairs" in out
    assert run("judge", "answer", "ds_x", "3", "same") == (
        1,
        "ploti-server: there is no pair 3: the ask has pairs 1 to 2, see `judge show`\n",
    )
    assert run("judge", "answer", "ds_x", "rest", "same")[0] == 1
    assert run("judge", "answer", "ds_x", "1", "same", "--note", "same owner", "--json")[1]["left"] == 1
    assert "pair 1: same at 1.00 by staff (same owner)" in run("judge", "show", "ds_x", "--all")[1]
    assert run("judge", "answer", "ds_x", shown[1]["id"], "different") == (
        0,
        "ds_x: released version 2, 4 rows, +1 ~1 -1\n",
    )
    judged = run("judge", "show", "ds_x", "--version", "2", "--json")[1]
    assert [(row["answer"], row["by"], row["explanation"]) for row in judged] == [
        ("same", "staff", "same owner"),
        ("different", "staff", None),
    ]
    assert run("judge", "show", "ds_x", "--version", "9")[0] == 1
    assert run("work", "--once")[1].startswith("ds_x: waiting for its matching agent, 0 of 1 pairs judged")
    (row,) = run("status", "--json")[1]
    assert (row["state"], row["why"][:38]) == ("waiting", "for 1 of 1 pairs to be judged until 20")
    for number in (1, 2):
        (tmp_path / f"{number}.csv").write_text(BEFORE.replace("name 3", f"name 3{number}"))
    code, out = run("check", "ds_x", "--history", str(tmp_path))
    assert (code, out.splitlines()) == (
        1,
        [
            "ds_x 1.csv: waiting: an earlier version waits for its matching agent; this state is built next",
            "the history stops here: give the states after this one when its version is judged",
        ],
    )
    assert run("judge", "ask", "ds_x", "--json")[1]["outcome"] == "waiting"
    assert run("judge", "finish", "ds_x", "--json")[1]["outcome"] == "released"
    assert run("judge", "list") == (0, "no pairs to judge\n")
