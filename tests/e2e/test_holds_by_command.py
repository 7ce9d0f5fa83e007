"""A person follows a hold of every kind by the command alone: why, which rows, its end, what subscribers were told."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from tests.empty_store import put_empty_home

from ploti_server.app import build_ports
from ploti_server.cli import main
from ploti_server.cli.holds import WHY
from ploti_server.domain.holds import HOLD_RULES
from ploti_server.domain.settings import Settings
from ploti_server.domain.subscriptions import Selection
from ploti_server.pipeline.subscriptions import create_subscription
from ploti_server.pipeline.workspaces import create_workspace
from ploti_server.testing import FixedClock
from ploti_server.worker import new_owner, work_one

ROWS = [
    {"permit": f"P-{n:02}", "address": f"{n} Oak Lane", "fee": str(n), "zone": f"R-{n % 3}"} for n in range(30)
]  # fmt: skip


def changed(rows=range(30), **cells):
    """The rows of some numbers; `cells` name a column and what it holds in the row 7."""
    return [ROWS[n] | (cells if n == 7 else {}) for n in rows]


def written(rows, columns=tuple(ROWS[0])):
    return "".join(f"{','.join(cells)}\n" for cells in [columns, *([row[c] for c in columns] for row in rows)])


@dataclass(frozen=True)
class Case:
    """A state that is held, what is shown of it, how a person ends it, and what subscribers hear then.

    `shows` tells whether the sample rows are the right ones.
    """

    name: str
    state: str
    reason: str
    rule: str
    why: str
    shows: Callable
    end: str = "release"
    then: tuple | None = ("updated", None)
    column: tuple = ()


CASES = (
    Case("removed", written(ROWS, ("permit", "address", "fee")), "schema_review", "breaking_schema", "removed zone",
         lambda rows: {row["zone before"] for row in rows} <= {"R-0", "R-1", "R-2"},
         then=("resync_required", "schema_changed"), column=("zone", "removed", "-", "-")),
    Case("retyped", written(changed(fee="n/a")), "schema_review", "breaking_schema", "retyped fee: integer -> string",
         lambda rows: [(row["permit"], row["fee"], row["fee before"]) for row in rows] == [("P-07", "n/a", 7)],
         then=("resync_required", "schema_changed"), column=("fee", "retyped", "integer", "string")),
    Case("rekeyed", written(ROWS).replace("permit", "number"), "schema_review", "breaking_schema",
         "removed permit, key columns changed",
         lambda rows: all(row["number"] == row["permit before"] for row in rows),
         then=("resync_required", "key_columns_changed"), column=("(the", "key)", "changed", "permit", "-")),
    Case("fewer", written(changed(range(15))), "data_check", "row_drop",
         "rows down by 50 %, from 30 to 15; the limit is 20 %", lambda rows: all(row["fee"] >= 15 for row in rows)),
    Case("doubled", written([*ROWS, ROWS[7] | {"fee": "8"}]), "data_check", "duplicate_key",
         "rows that share their key: 2", lambda rows: [row["permit"] for row in rows] == ["P-07", "P-07"]),
    Case("nulled", written(changed(permit="")), "data_check", "null_key", "rows with a null in their key: 1",
         lambda rows: [(row["permit"], row["address"]) for row in rows] == [(None, "7 Oak Lane")],
         column=("permit", "has", "nulls", "now", "-", "-")),
    Case("turned", written([{"permit": f"X-{n}", "address": f"{n} Elm", "fee": f"1{n}", "zone": "C"}
         for n in range(30)]), "data_check", "turnover",
         "100 % of the records would have another id; the limit is 50 %",
         lambda rows: all(row["permit"].startswith("P-") for row in rows), end="discard", then=None),
    Case("silent", written(changed(address="7 Oak Ln", fee="70")), "processing", "agent_silent",
         "the matching agent was asked twice and did not answer", bool),
)  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A publisher with a dataset for each case, whose first version is out, and one subscription to all."""
    folder = tmp_path_factory.mktemp("holds")
    judged = {case.name: "matching: {agent: staff}" if case.name == "silent" else "key: [permit]" for case in CASES}
    datasets = [
        f"  - {{id: ds_{name}, title: X, place: fl, topic: t, source: {{kind: file, url: {name}.csv}}, {how}}}"
        for name, how in judged.items()
    ]
    (folder / "catalog.yaml").write_text("\n".join(["topics: [{id: t, name: T}]", "datasets:", *datasets]))
    home = put_empty_home(folder / "home")
    assert main(["catalog", "apply", str(folder / "catalog.yaml"), "--home", str(home)]) == 0
    ports = build_ports(Settings.of(home=home))
    workspace = create_workspace(ports, "acme", ["fl-counties"], None)
    create_subscription(ports, workspace, Selection("fl", ("fl",), (), ()))
    for case in CASES:
        (folder / f"{case.name}.csv").write_text(written(ROWS))
        assert main(["check", f"ds_{case.name}", "--home", str(home)]) == 0
    return home


def let_pass(home, hours):
    """Do what is due so many hours later."""
    ports = build_ports(Settings.of(home=home), clock=FixedClock(datetime.now(UTC) + timedelta(hours=hours)))
    while work_one(ports, new_owner()) is not None:
        pass


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hold_is_followed_by_command(case, home, capsys):
    dataset = f"ds_{case.name}"

    def run(*command):
        code = main([*command, "--home", str(home)])
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if "--json" in command else captured.out + captured.err

    (home.parent / f"{case.name}.csv").write_text(case.state)
    code, told = run("check", dataset)
    assert code == 0
    if case.name == "silent":
        code, refused = run("holds", "show", dataset)
        assert (code, f"see `ploti-server judge show {dataset}`" in refused) == (1, True)
        let_pass(home, 25)
        let_pass(home, 50)
    else:
        assert f"see `ploti-server holds show {dataset}`" in told
    (listed,) = [row for row in run("holds", "list", "--json")[1] if row["dataset"] == dataset]
    assert (listed["version"], listed["reason"], listed["current"]) == (2, case.reason, 1)
    _check_shown(case, *run("holds", "show", dataset, "--json"), run("holds", "show", dataset)[1])
    if case.name == "fewer":
        assert (
            f"the same as version 2, which is held; see `ploti-server holds show {dataset}`" in run("check", dataset)[1]
        )
    assert run("holds", case.end, dataset, "--note", "seen")[0] == 0
    if case.end == "discard":
        assert "the same as version 2, which was discarded" in run("check", dataset)[1]
    told = sorted(run("holds", "told", dataset, "--json")[1], key=lambda row: row["event"])
    told = [(row["type"].removeprefix("feed.dataset."), row["version"], row["reason"]) for row in told]
    assert told[:3] == [("added", None, None), ("resync_required", 1, "first_version"), ("delayed", 1, case.reason)]
    assert [(name, reason) for name, _, reason in told[3:] if name != "schema_changed"] == (
        [case.then] if case.then else []
    )
    assert (run("holds", "show", dataset)[0], dataset in str(run("holds", "list", "--json")[1])) == (1, False)


def _check_shown(case, code, shown, text):
    assert code == 0
    assert shown["holds"][0]["rule"] == case.rule
    assert shown["sampleRows"]
    assert case.shows(shown["sampleRows"])
    assert [one["reason"] for one in shown["told"]] == [case.reason]
    lines = {tuple(line.split()) for line in text.splitlines()}
    assert (case.reason, case.rule, *case.why.split()) in lines
    assert not case.column or case.column in lines
    for part in ("sample rows", "told to subscribers", f"ploti-server holds release ds_{case.name}"):
        assert part in text


def test_every_rule_is_told_in_words():
    assert WHY.keys() == {rule.__name__ for rule in HOLD_RULES}
