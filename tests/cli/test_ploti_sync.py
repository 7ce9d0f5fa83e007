"""`ploti sync` as a user runs it: output for people and as JSON, exit codes, one clear line for trouble."""

import json
import re
import shlex
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import duckdb
import psycopg
import pytest

from ploti.cli.command import run
from ploti.testing.fake_state import StoredFile
from ploti.testing.feed import SUBSCRIPTION, Feed, record_id
from ploti.testing.stories import PERMITS, A, B, permit, permits


@pytest.fixture
def feed(monkeypatch):
    feed = Feed()
    feed.add(A, PERMITS, permits(*range(12)), title="Permits")
    with feed.api.serve() as address:
        monkeypatch.setenv("PLOTI_API_URL", address)
        monkeypatch.setenv("PLOTI_API_KEY", feed.api.api_key)
        monkeypatch.delenv("PLOTI_SUBSCRIPTION", raising=False)
        yield feed


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.duckdb"


@pytest.fixture
def to(path):
    return f"--to=duckdb:///{path}"


def ploti(capsys, *tokens):
    code = run(["sync", *tokens])
    out, err = capsys.readouterr()
    return code, out, err


def test_attachments_come_into_a_folder_with_the_rows(feed, to, tmp_path, capsys):
    folder, versions = tmp_path / "files", feed.api.state.datasets[A].versions
    attached = {"original": StoredFile("original", b"a map", "../map.pdf", "application/pdf")}
    versions[1] = replace(versions[1], attachments=attached)
    code, out, _ = ploti(capsys, SUBSCRIPTION, to, f"--attachments={folder}")
    assert (code, out.splitlines()[-1]) == (0, f"{A}: 1 attachments of version 1, 1 fetched, 0 removed")
    assert (folder / A / "_map.pdf").read_bytes() == b"a map"
    code, out, _ = ploti(capsys, SUBSCRIPTION, to, f"--attachments={folder}", "--json")
    assert (code, json.loads(out)["attachments"]) == (0, [])
    (folder / A / "_map.pdf").unlink()
    feed.api.keep(A, 1, "pruned")
    code, out, _ = ploti(capsys, SUBSCRIPTION, to, f"--attachments={folder}", "--json")
    assert code == 1
    assert "past retention" in json.loads(out)["attachments"][0]["problem"]


def test_sync_then_nothing_to_do_then_changes(feed, path, to, capsys):
    code, out, err = ploti(capsys, SUBSCRIPTION, to)
    assert code == 0
    assert f"{A}  -     1   loaded, 12 rows  ok" in out
    assert f"{A}: snapshot," in err
    assert ploti(capsys, SUBSCRIPTION, to)[:2] == (0, "Everything is up to date.\n")
    feed.update(A, put={record_id(1): permit(1, 2.5), **permits(40)}, drop=[record_id(2)])
    code, out, _ = ploti(capsys, SUBSCRIPTION, to)
    assert code == 0
    assert f"{A}  1     2   +1 ~1 -1  ok" in out
    with duckdb.connect(str(path)) as db:
        assert db.execute(f"SELECT count(*), max(_ploti_version) FROM {A}").fetchall() == [(12, 2)]


def test_json(feed, to, capsys):
    code, out, err = ploti(capsys, SUBSCRIPTION, to, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "subscriptionId": SUBSCRIPTION,
        "cursor": "evt_000000000002",
        "datasets": [
            {
                "datasetId": A,
                "fromVersion": None,
                "version": 1,
                "schemaVersion": "1.0",
                "state": "ok",
                "reason": None,
                "reloaded": True,
                "rows": 12,
                "added": None,
                "changed": None,
                "removed": None,
                "notices": [],
            }
        ],
    }


def test_the_subscription_may_come_from_the_environment(feed, to, capsys, monkeypatch):
    monkeypatch.setenv("PLOTI_SUBSCRIPTION", SUBSCRIPTION)
    assert ploti(capsys, to)[0] == 0


def test_a_dataset_that_is_behind_makes_the_exit_code_1(feed, to, capsys):
    ploti(capsys, SUBSCRIPTION, to)
    feed.update(A, put=permits(40))
    feed.api.keep(A, 2, "rebuilding")
    code, out, _ = ploti(capsys, SUBSCRIPTION, to)
    assert code == 1
    assert "behind: version 2 is being rebuilt: the next run tries again" in out
    assert ploti(capsys, "status", to)[0] == 1
    feed.api.rebuild(A, 2)
    assert ploti(capsys, SUBSCRIPTION, to)[0] == 0
    assert ploti(capsys, "status", to)[0] == 0


def test_a_table_in_the_way_makes_the_exit_code_1_until_it_is_gone(feed, path, to, capsys):
    with duckdb.connect(str(path)) as db:
        db.execute(f"CREATE TABLE {A} AS SELECT 1 AS x")
    code, out, _ = ploti(capsys, SUBSCRIPTION, to)
    assert code == 1
    assert "rename or drop it" in out
    assert ploti(capsys, "status", to)[0] == 1
    with duckdb.connect(str(path)) as db:
        db.execute(f"DROP TABLE {A}")
    assert ploti(capsys, SUBSCRIPTION, to)[0] == 0
    assert ploti(capsys, "status", to)[0] == 0


def test_a_major_change_pauses_until_it_is_accepted(feed, to, capsys):
    ploti(capsys, SUBSCRIPTION, to)
    feed.reload(A, {record_id(1): {"number": "P"}}, "schema_changed", columns={"number": "string"})
    code, out, _ = ploti(capsys, SUBSCRIPTION, to)
    assert code == 0
    assert "paused: version 2 has schema 2.0, the table follows 1.x" in out
    assert ploti(capsys, "status", to)[0] == 0
    code, out, _ = ploti(capsys, "resync", A, to)
    assert code == 0
    assert f"{A}  1     2   reloaded, 1 row  ok" in out


def test_a_major_change_is_followed_where_it_is_asked_for(feed, to, capsys):
    ploti(capsys, SUBSCRIPTION, to)
    feed.reload(A, {record_id(1): {"number": "P"}}, "schema_changed", columns={"number": "string"})
    code, out, _ = ploti(capsys, SUBSCRIPTION, to, "--on-major", "apply")
    assert code == 0
    assert "reloaded, 1 row" in out


def test_status(feed, to, capsys):
    ploti(capsys, SUBSCRIPTION, to)
    code, out, _ = ploti(capsys, "status", to)
    assert code == 0
    assert "Permits" in out
    _, out, _ = ploti(capsys, "status", to, "--json")
    held = json.loads(out)
    assert [(each["datasetId"], each["version"], each["rows"], each["state"]) for each in held] == [(A, 1, 12, "ok")]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", held[0]["loadedAt"])


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("kind", ["duckdb:///{}/x.duckdb", "sqlite:///{}/x.gpkg", "parquet:///{}/x"])
def test_the_time_of_a_load_is_the_same_in_every_zone_and_target(feed, tmp_path, monkeypatch, capsys, kind, zone):
    to = f"--to={kind.format(tmp_path)}"
    ploti(capsys, SUBSCRIPTION, to)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        _, out, _ = ploti(capsys, "status", to, "--json")
    finally:
        monkeypatch.undo()
        time.tzset()
    loaded = datetime.fromisoformat(json.loads(out)[0]["loadedAt"])
    assert abs(loaded - datetime.now(UTC)) < timedelta(minutes=5)


def test_verify_tells_equal_from_different(feed, path, to, capsys):
    ploti(capsys, SUBSCRIPTION, to)
    code, out, _ = ploti(capsys, "verify", to)
    assert code == 0
    assert f"{A}  1        12       equal" in out
    with duckdb.connect(str(path)) as db:
        db.execute(f"UPDATE {A} SET value = 7 WHERE number = 'P-0003'")
    code, out, _ = ploti(capsys, "verify", to)
    assert code == 1
    assert "differs in 1 of 1,024 parts" in out
    ploti(capsys, "resync", A, to)
    assert ploti(capsys, "verify", to)[0] == 0


TROUBLE = [
    ("no subscription", (), 1, "Name a subscription"),
    ("not a subscription", ("orders",), 1, "Name a subscription"),
    ("an unknown subscription", ("sub_none",), 1, "no such subscription"),
    ("a dataset that is not followed", ("resync", "ds_none"), 1, "is not followed here"),
    ("a target that nothing was loaded into, looked at", ("status",), 1, "follows no subscription yet"),
    ("a target that nothing was loaded into, compared", ("verify",), 1, "follows no subscription yet"),
    ("a wrong option", (SUBSCRIPTION, "--on-major", "never"), 2, "--on-major"),
]


def test_looking_at_a_target_that_is_not_there_makes_none(feed, path, to, capsys):
    for command in ("status", "verify"):
        assert ploti(capsys, command, to)[0] == 1
    assert not path.exists()


@pytest.mark.parametrize(("tokens", "code", "line"), [row[1:] for row in TROUBLE], ids=[row[0] for row in TROUBLE])
def test_trouble_is_one_line_on_standard_error(feed, to, capsys, tokens, code, line):
    found, out, err = ploti(capsys, *tokens, to)
    assert (found, out) == (code, "")
    assert line in err
    assert err.count("\n") == 1


def test_a_target_that_is_none(feed, capsys):
    code, _, err = ploti(capsys, SUBSCRIPTION, "--to=mysql://h/d")
    assert code == 1
    assert "duckdb:///records.duckdb" in err


def test_a_target_of_another_subscription(feed, to, capsys):
    ploti(capsys, SUBSCRIPTION, to)
    feed.api.subscribe("sub_other", places=["fl-county-orange"])
    code, _, err = ploti(capsys, "sub_other", to)
    assert code == 1
    assert f"follows {SUBSCRIPTION}" in err


def test_a_revoked_key_stops_the_run(feed, to, capsys):
    ploti(capsys, SUBSCRIPTION, to)
    feed.api.revoke_key(feed.api.api_key)
    code, _, err = ploti(capsys, SUBSCRIPTION, to)
    assert code == 1
    assert "API key" in err


def test_repair_puts_right_what_verify_found(feed, path, to, capsys):
    assert ploti(capsys, SUBSCRIPTION, to)[0] == 0
    assert f"{A}  1        12       -         equal" in ploti(capsys, "repair", to)[1]
    with duckdb.connect(str(path)) as db:
        db.execute(f"DELETE FROM {A} WHERE units = 3")
        db.execute(f"UPDATE {A} SET value = -1 WHERE units = 4")
    code, out, _ = ploti(capsys, "verify", to)
    assert code == 1
    told = re.search("`ploti sync (.*?)` puts it right", out)[1]
    code, out, _ = ploti(capsys, *shlex.split(told), "--json")
    assert code == 0
    done = json.loads(out)
    assert [(each["equal"], each["added"], each["changed"], each["removed"]) for each in done] == [(True, 1, 1, 0)]
    assert len(done[0]["repairedBuckets"]) == 2
    assert ploti(capsys, "verify", to)[0] == 0


def test_a_command_that_is_told_goes_into_a_shell(feed, tmp_path, capsys):
    """Whatever the target's name; it names the target, and no password."""
    path = tmp_path / "it's ours $HOME.duckdb"
    ploti(capsys, SUBSCRIPTION, f"--to=duckdb:///{path}")
    with duckdb.connect(str(path)) as db:
        db.execute(f"DROP TABLE {A}")
    for command in ("status", "verify"):
        code, out, _ = ploti(capsys, command, f"--to=duckdb:///{path}")
        told = re.search(f"{A} is gone: `(ploti sync repair --to .*?)` brings it back", out.replace("\n", " "))[1]
        assert (code, shlex.split(told)[-1]) == (1, f"duckdb:///{path}")
        code, out, _ = ploti(capsys, command, f"--to=duckdb:///{path}", "--json")
        assert "`ploti sync repair --to ...` brings it back" in out
    assert ploti(capsys, *shlex.split(told)[2:])[0] == 0


@pytest.mark.parametrize(
    ("more", "told"),
    [("", "--to 'postgresql://{}' --schema 'my feeds'"), (":secret", "--to ..."), ("&password=secret", "--to ...")],
)
def test_a_command_that_is_told_has_no_password(postgres_database, feed, capsys, monkeypatch, tmp_path, more, told):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    address = postgres_database.removeprefix("postgresql://")
    address = address + more if more.startswith("&") else address.replace("@", f"{more}@")
    to = (f"--to=postgresql://{address}", "--schema=my feeds")
    ploti(capsys, SUBSCRIPTION, *to)
    with psycopg.connect(postgres_database) as db:
        db.execute(f'DROP TABLE "my feeds".{A}')
    out = ploti(capsys, "status", *to)[1]
    assert f"`ploti sync repair {told.format(address)}` brings it back" in out
    assert "secret" not in out


def test_repair_of_a_dataset_that_is_not_there(feed, to, capsys):
    assert ploti(capsys, SUBSCRIPTION, to)[0] == 0
    code, _, err = ploti(capsys, "repair", "ds_other", to)
    assert code == 1
    assert "ds_other has no rows here" in err


def test_a_schema_is_for_postgresql_only(feed, to, capsys):
    code, _, err = ploti(capsys, "status", to, "--schema", "feeds")
    assert code != 0
    assert "--schema is for PostgreSQL" in err


def test_a_schema_is_named_on_the_command_line(feed, postgres_database, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    to = f"--to={postgres_database}"
    assert ploti(capsys, SUBSCRIPTION, to, "--schema", "county data")[0] == 0
    assert ploti(capsys, SUBSCRIPTION, f"{to}&schema=county%20data")[1] == "Everything is up to date.\n"
    assert ploti(capsys, "repair", to, "--schema=county data")[0] == 0
    with psycopg.connect(postgres_database) as db:
        assert db.execute(f'SELECT count(*) FROM "county data".{A}').fetchall() == [(12,)]


def test_datasets_history_and_columns_of_ids_are_named_on_the_command_line(feed, path, to, capsys):
    feed.add("ds_other", PERMITS, permits(1))
    flags = (f"--dataset={A}", "--history", "--rewrite-ids", "orders.permit")
    assert ploti(capsys, SUBSCRIPTION, to, *flags)[0] == 0
    with duckdb.connect(str(path)) as db:
        assert db.execute(
            "SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'ds_%' ORDER BY 1"
        ).fetchall() == [
            (A,),
            (f"{A}_history",),
        ]
        db.execute(f"CREATE TABLE orders AS SELECT '{record_id(1)}' AS permit")
    moved = {record_id(number): record_id(number + 100) for number in range(12)}
    rows = {moved[id_]: row for id_, row in feed.current(A).rows.items()}
    feed.reload(A, rows, "record_ids_changed", id_map=moved)
    assert ploti(capsys, SUBSCRIPTION, to, *flags)[0] == 0
    with duckdb.connect(str(path)) as db:
        assert db.execute("SELECT permit FROM orders").fetchall() == [(record_id(101),)]
        assert db.execute(f"SELECT count(*) FROM {A}_history").fetchall() == [(24,)]
    code, _, err = ploti(capsys, SUBSCRIPTION, to, "--dataset=ds_typo")
    assert (code, "no dataset ds_typo" in err) == (1, True)


def test_columns_are_chosen_on_the_command_line_and_kept(feed, path, to, capsys):
    feed.add(B, PERMITS, permits(1))
    assert ploti(capsys, SUBSCRIPTION, to, f"--without={A}=value", f"--columns={B}=number")[0] == 0
    assert ploti(capsys, SUBSCRIPTION, to)[0] == 0
    with duckdb.connect(str(path), read_only=True) as db:
        names = {each: [row[0] for row in db.execute(f"DESCRIBE {each}").fetchall()][6:] for each in (A, B)}
    assert names == {A: ["number", "units"], B: ["number"]}
    told = json.loads(ploti(capsys, "status", to, "--json")[1])
    assert {each["datasetId"]: each["columns"] for each in told} == {A: {"without": ["value"]}, B: {"only": ["number"]}}
    code, _, err = ploti(capsys, SUBSCRIPTION, to, f"--columns={A}")
    assert (code, "names no columns" in err) == (1, True)


def test_tables_are_named_on_the_command_line(feed, path, to, capsys):
    assert ploti(capsys, SUBSCRIPTION, to, "--table-name=county_{dataset}")[0] == 0
    with duckdb.connect(str(path), read_only=True) as db:
        assert db.execute(f"SELECT count(*) FROM county_{A}").fetchall() == [(12,)]
    code, _, err = ploti(capsys, SUBSCRIPTION, to, "--table-name={dataset}")
    assert (code, "leave --table-name out" in err) == (1, True)
    assert ploti(capsys, "verify", to)[0] == 0
