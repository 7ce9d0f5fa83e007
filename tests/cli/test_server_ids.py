"""`ploti-server ids` and `versions release-again` (D13)."""

import json

import pyarrow.parquet as pq
import pytest

from ploti_server.cli import main
from ploti_server.cli.ids import read_map
from ploti_server.cli.printing import CommandRefused

CATALOG = """
topics: [{id: permits, name: Permits}]
datasets: [{id: ds_x, title: X, place: fl, topic: permits, key: [k], source: {kind: file, url: x.csv}}]
"""


@pytest.fixture
def run(tmp_path, capsys):
    """Run a command on a home folder with two versions; gives exit code, output and error output."""

    def command(*arguments):
        code = main([*arguments, "--home", str(tmp_path / "home")])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    (tmp_path / "catalog.yaml").write_text(CATALOG)
    assert command("catalog", "apply", str(tmp_path / "catalog.yaml"))[0] == 0
    for rows in ("1,a\n2,b\n", "1,a\n3,c\n"):
        (tmp_path / "x.csv").write_text("k,v\n" + rows)
        assert command("check", "ds_x", "--state", str(tmp_path / "x.csv"))[0] == 0
    return command


def told(run, *arguments):
    code, out, err = run(*arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_an_operator_releases_again_replaces_and_looks_at_ids(run, tmp_path):
    assert run("versions", "release-again", "ds_x", "1")[2].startswith("ploti-server: only the newest version")
    queued = told(run, "versions", "release-again", "ds_x", "2", "--note", "wrong file", "--later")
    assert (queued["outcome"], queued["then"]) == ("queued", [])
    rows = {row["version"]: (row["status"], row["note"]) for row in told(run, "versions", "list", "ds_x")}
    assert rows == {1: ("released", None), 2: ("released_again", "wrong file")}
    (standing,) = told(run, "status")
    assert (standing["state"], standing["version"]) == ("queued", 1)
    assert standing["why"] == "to rebuild version 2, which was released again"
    assert run("work", "--once")[1].startswith("ds_x: released version 3, 2 rows")
    code, out, _ = run("ids", "replace", "ds_x")
    assert (code, out) == (0, "ds_x: released version 4, 2 rows, +0 ~0 -0, 2 ids replaced\n")
    (gone,) = _ids(run, tmp_path, 1) - _ids(run, tmp_path, 2)
    (kept,) = _ids(run, tmp_path, 1) & _ids(run, tmp_path, 3)
    shown = told(run, "ids", "show", "ds_x", kept)
    assert {shown["replacedBy"], shown["currentId"]} < _ids(run, tmp_path, 4)
    assert [(entry["version"], entry["what"]) for entry in shown["history"]] == [(1, "current"), (4, "replaced_by")]
    (tmp_path / "ids.csv").write_text(f"old,new\n{shown['currentId']},{gone}\n")
    replaced = told(run, "ids", "replace", "ds_x", "--map", str(tmp_path / "ids.csv"))
    assert (replaced["version"], replaced["facts"]["replaced"]) == (5, 1)
    assert "status: current" in run("ids", "show", "ds_x", gone)[1]
    assert run("ids", "find", "ds_x", "--dry-run")[:2] == (0, "no late finds\n")


def _ids(run, tmp_path, number):
    (part,) = (tmp_path / "home").glob(f"files/ds_x/versions/{number}/*/snapshot/*.parquet")
    return set(pq.read_table(part, columns=["_ploti_record_id"], partitioning=None).column(0).to_pylist())


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("show", "ds_x", "rec_nobody"), 1, "no record of ds_x ever carried rec_nobody"),
        (("replace", "ds_x", "--key", "k", "--map", "x.csv"), 2, "--key makes all ids anew"),
        (("replace", "ds_x", "--map", "none.csv"), 1, "cannot read the map none.csv: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path, capsys, arguments, code, says):
    (tmp_path / "catalog.yaml").write_text(CATALOG)
    main(["catalog", "apply", str(tmp_path / "catalog.yaml"), "--home", str(tmp_path / "home")])
    assert main(["ids", *arguments, "--home", str(tmp_path / "home")]) == code
    assert capsys.readouterr().err.startswith(f"ploti-server: {says}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rec_a,rec_b\nrec_c,\n", {"rec_a": "rec_b", "rec_c": None}),
        ("\ufeffprevious,new\r\n rec_a , rec_b \r\n\r\n", {"rec_a": "rec_b"}),
        ("rec_a\n", "line 1: two cells are needed"),
        ("old,new\nrec_a,rec_b,rec_c\n", "line 2: two cells are needed"),
        ("rec_a,\nrec_a,rec_b\n", "line 2: rec_a is named twice"),
    ],
)
def test_a_map_is_csv_with_two_cells_a_line(tmp_path, text, expected):
    file = tmp_path / "ids.csv"
    file.write_bytes(text.encode())
    if isinstance(expected, dict):
        assert read_map(file) == expected
    else:
        with pytest.raises(CommandRefused, match=expected):
            read_map(file)
