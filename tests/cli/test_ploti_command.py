"""The `ploti` command against the fake: tables for people, the API's JSON, exit codes, signals and start-up."""

import csv
import fcntl
import io
import itertools
import json
import os
import pty
import re
import resource
import shlex
import signal
import stat
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from ploti.cli.command import app, run
from ploti.cli.progress import Bar, bar_columns
from ploti.cli.show import byte_size, cell, local_time, printable
from ploti.contract.files import CHANGE, ENVELOPE, RECORD_ID
from ploti.testing import FakeApi
from ploti.testing.feed import changes_part, parquet, record_id

DOCS = Path(__file__).parents[2] / "docs"
SNAPSHOT, CHANGES = "snapshot/part-0000.parquet", "changes/part-0000.parquet"
PERMITS, SUB = "ds_orange_permits", "sub_orange"

RECORD = json.loads((DOCS / "examples" / "record-replaced.json").read_text()) | {"datasetId": PERMITS}
SCHEMA = {"datasetId": PERMITS, "columns": [{"name": "id", "type": "string", "nullable": False}]}


def snapshot(*ids):
    rows = [{RECORD_ID: record_id(number + 1), "id": id_} for number, id_ in enumerate(ids)]
    return parquet({**ENVELOPE, "id": "string"}, rows)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    fake = FakeApi()
    fake.add_dataset(PERMITS, title="Building permits", geometry="Point")
    fake.add_dataset("ds_orange_zoning", title="Zoning", topic=None)
    fake.subscribe(SUB, places=["fl-county-orange"])
    fake.add_webhook("wh_acme", subscription_id=SUB)
    fake.publish(PERMITS, files={SNAPSHOT: snapshot("P-1")}, row_count=184220)
    changed = [{RECORD_ID: record_id(2), CHANGE: "added", "id": "P-2"}]
    fake.publish(
        PERMITS,
        files={SNAPSHOT: snapshot("P-1", "P-2"), CHANGES: changes_part(SCHEMA, changed)},
        row_count=184429,
        counts={"added": 212, "changed": 38, "removed": 3},
        attachments={"document:ab12": b"%PDF"},
    )
    fake.add_record(RECORD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("APPDATA", str(tmp_path))
    monkeypatch.setenv("PLOTI_API_KEY", fake.api_key)
    with fake.serve() as url:
        monkeypatch.setenv("PLOTI_API_URL", url)
        yield fake


def ploti(line):
    return run(shlex.split(line))


def words(text):
    """A table's lines as lists of cells."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


COMMANDS = {
    "places --kind county": "/v1/places?kind=county",
    "places list --state fl --deliverable": "/v1/places?state=fl&deliverable=true",
    "topics": "/v1/topics",
    "topics list": "/v1/topics",
    "feeds datasets list --limit 1 --place fl-county-orange": "/v1/feeds/datasets?place=fl-county-orange&limit=1",
    f"feeds datasets list --subscription {SUB}": f"/v1/feeds/datasets?subscription={SUB}",
    f"feeds datasets get {PERMITS}": f"/v1/feeds/datasets/{PERMITS}",
    f"feeds datasets schema {PERMITS} --version 1": f"/v1/feeds/datasets/{PERMITS}/schema?version=1",
    f"feeds datasets record {PERMITS} {RECORD['recordId']}": (
        f"/v1/feeds/datasets/{PERMITS}/records/{RECORD['recordId']}"
    ),
    f"feeds datasets versions list {PERMITS} --after 1 --order desc": (
        f"/v1/feeds/datasets/{PERMITS}/versions?after=1&order=desc"
    ),
    f"feeds datasets versions get {PERMITS} 2": f"/v1/feeds/datasets/{PERMITS}/versions/2",
    "feeds subscriptions list": "/v1/feeds/subscriptions",
    f"feeds subscriptions get {SUB}": f"/v1/feeds/subscriptions/{SUB}",
    f"feeds subscriptions manifest {SUB} --as-of evt_000000000003": (
        f"/v1/feeds/subscriptions/{SUB}/manifest?asOf=evt_000000000003"
    ),
    f"feeds subscriptions events {SUB} --cursor evt_000000000002 --limit 1 --types updated,removed": (
        f"/v1/feeds/subscriptions/{SUB}/events?cursor=evt_000000000002&limit=1"
        "&types=feed.dataset.updated,feed.dataset.removed"
    ),
}


@pytest.mark.parametrize(("line", "target"), COMMANDS.items())
def test_each_read_is_one_call_and_prints_the_apis_answer(fake, capsys, line, target):
    assert ploti(line + " --json") == 0
    assert [request.target for request in fake.requests] == [target]
    shown = json.loads(capsys.readouterr().out)
    answer = json.loads(fake.answer(fake.requests[0]).body)
    for page in (shown, answer):
        page.pop("files", None)  # links are signed anew for each call
    assert shown == answer or line.startswith("feeds subscriptions manifest")


@pytest.mark.parametrize("line", COMMANDS)
def test_each_read_prints_a_table_for_people(fake, capsys, line):
    assert ploti(line) == 0
    out = capsys.readouterr().out
    assert out.strip()
    assert "{" not in out
    assert not any(text.endswith(" ") for text in out.splitlines())


LISTS = {
    "places": "id,name,kind,datasets",
    "topics": "id,name",
    "feeds datasets list": "id,title,place,topic,status,version,rows,released",
    f"feeds datasets versions list {PERMITS}": "version,after,schema,rows,changes,released",
    "feeds subscriptions list": "id,name,places,topics,datasets,created",
    f"feeds subscriptions events {SUB}": "id,time,type,dataset,version,what",
    "feeds subscriptions preview --places fl-county-orange": "id,title,matched_by",
    "webhooks list": "id,subscription,url,events,state,created",
    "webhooks deliveries wh_acme": "id,event,type,status,attempts,last_answer,next",
}


@pytest.mark.parametrize(("line", "header"), LISTS.items())
def test_each_list_is_csv_for_programs(fake, capsys, line, header):
    """F080: whole numbers and times of the wire, nothing shortened."""
    assert ploti(f"{line} --csv") == 0
    first, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert ",".join(first) == header
    assert rows
    assert {len(row) for row in rows} == {len(first)}


def test_csv_keeps_values_as_the_wire_has_them(fake, capsys):
    fake.add_dataset("ds_odd", title="=1+1", topic=None)
    assert ploti("feeds datasets list --csv --limit 2") == 0
    shown = capsys.readouterr()
    odd, permits = csv.DictReader(io.StringIO(shown.out))
    assert (odd["title"], odd["topic"], permits["rows"]) == ("'=1+1", "", "184429")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", permits["released"])
    assert shown.err.startswith("More: add --cursor ")
    assert ploti("feeds datasets list --csv --raw") == 0
    assert ",=1+1," in capsys.readouterr().out


def test_datasets_are_a_table(fake, capsys):
    ploti("feeds datasets list")
    header, first, second = words(capsys.readouterr().out)
    assert header == ["ID", "TITLE", "PLACE", "TOPIC", "STATUS", "VERSION", "ROWS", "RELEASED"]
    assert first[:7] == [
        PERMITS,
        "Building permits",
        "fl-county-orange",
        "development-activity",
        "available",
        "2",
        "184,429",
    ]
    assert second == ["ds_orange_zoning", "Zoning", "fl-county-orange", "-", "building", "-", "-", "-"]


def test_a_page_names_the_next_cursor(fake, capsys):
    ploti("feeds datasets list --limit 1")
    more = capsys.readouterr().out.splitlines()[-1]
    assert ploti("feeds datasets list --limit 1 " + more.removeprefix("More: add ")) == 0
    assert "ds_orange_zoning" in capsys.readouterr().out


def test_versions_tell_their_changes(fake, capsys):
    ploti(f"feeds datasets versions list {PERMITS}")
    assert [row[4] for row in words(capsys.readouterr().out)] == ["CHANGES", "reload", "+212 ~38 -3"]


def test_a_version_lists_its_files(fake, capsys):
    ploti(f"feeds datasets versions get {PERMITS} 2")
    out = capsys.readouterr().out
    for name in (SNAPSHOT, CHANGES, "schema.json", "manifest.json", "document:ab12 (ab12.pdf)"):
        assert name in out
    assert "signature" not in out


def test_a_subscription_is_created_and_deleted(fake, capsys):
    assert ploti("feeds subscriptions create 'My trees' --dataset-ids ds_orange_zoning --json") == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["name"], made["datasetIds"]) == ("My trees", ["ds_orange_zoning"])
    assert ploti(f"feeds subscriptions delete {made['id']}") == 0
    assert capsys.readouterr().out == f"Deleted {made['id']}.\n"


def test_a_subscription_is_changed_from_the_revision_that_was_read(fake, capsys):
    """D8.1."""
    assert ploti(f"feeds subscriptions update {SUB} --name 'My trees' --topics '' --json") == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["name"], made["topics"], made["revision"]) == ("My trees", [], 2)
    assert ploti(f"feeds subscriptions update {SUB} --name Other --revision 1") == 1
    assert "revision 2" in capsys.readouterr().err
    assert ploti(f"feeds subscriptions update {SUB} --dataset-ids {PERMITS} --revision 2") == 0
    assert "My trees" in capsys.readouterr().out


def test_a_preview_counts_and_lists(fake, capsys):
    line = "feeds subscriptions preview --places fl-county-orange --sort title --limit 1"
    assert ploti(f"{line} --json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["total"], len(answer["datasets"])) == (2, 1)
    assert ploti(line) == 0
    out = capsys.readouterr().out
    for shown in ("development-activity", "Orange County", answer["datasets"][0]["id"], "2 datasets match", "--cursor"):
        assert shown in out
    assert ploti(f"feeds subscriptions preview --dataset-ids {PERMITS}") == 0
    assert "1 dataset matches:" in capsys.readouterr().out
    assert ploti(f"feeds subscriptions preview --dataset-ids {PERMITS} --matched-by nonsense") == 2


@pytest.mark.parametrize(
    ("line", "json_has", "csv_has", "table_has"),
    [
        (f"feeds datasets head {PERMITS} --rows 1", '"rows": [', f"{record_id(1)},", "P-1"),
        (f"feeds datasets versions diff {PERMITS} 1 2", '"added": 1', f"{record_id(2)},added,id,,P-2", "P-2     added"),
        (f"changes {SUB} --since 1d", '"recordId": "rec_', ",added,rec_", "added   P-2"),
    ],
)
def test_rows_are_shown_without_a_pipeline(fake, capsys, line, json_has, csv_has, table_has):
    for more, wanted in (("--json", json_has), ("--csv", csv_has), ("", table_has)):
        assert ploti(f"{line} {more}") == 0
        shown = capsys.readouterr()
        assert wanted in shown.out
        assert shown.err == ""
        if more == "--json":
            json.loads(shown.out)


def test_changes_as_csv_and_json_say_how_many_rows_and_since_when(fake, capsys):
    assert ploti(f"changes {SUB} --since 2026-01-01 --csv") == 0
    first = next(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert (first["change"], first["rows"], first["record_id"], first["previous_record_id"]) == (
        "first",
        "184220",
        "",
        "",
    )
    assert ploti(f"changes {SUB} --since 2026-01-01 --json") == 0
    assert json.loads(capsys.readouterr().out)["since"].endswith("Z")


SHAPE = {
    **SCHEMA,
    "schemaVersion": "2.0",
    "firstVersion": 3,
    "keyColumns": ["id", "year"],
    "changeFromPrevious": {
        "kind": "breaking",
        "previousSchemaVersion": "1.0",
        "added": [{"name": "year", "type": "integer", "nullable": True}],
        "removed": ["old"],
        "retyped": [{"name": "units", "from": "integer", "to": "string"}],
        "nullabilityChanged": [{"name": "zone", "from": False, "to": True}],
        "keyColumnsChanged": True,
    },
}


def test_changes_tell_the_version_that_each_dataset_has_now_and_what_its_schema_changed(fake, capsys):
    """Also where a later version changed no row."""
    fake.publish(PERMITS, files={SNAPSHOT: snapshot("P-1", "P-2")}, schema=SHAPE, reason="schema_changed", row_count=2)
    fake.publish(PERMITS, files={SNAPSHOT: snapshot("P-1", "P-2"), CHANGES: changes_part(SCHEMA, [])}, row_count=2)
    told = "schema 2.0 after 1.0: year added, old removed, units from integer to string, zone may be empty, key id year"
    assert ploti(f"changes {SUB} --since 1d") == 0
    shown = words(capsys.readouterr().out)
    assert shown[1] == [PERMITS, "Building permits", "4", "2.0", "1", "0", "0", "first version"]
    assert [line[2:] for line in shown if "schema changed" in line] == [["schema changed", "-", told]]
    assert ploti(f"changes {SUB} --since 1d --json") == 0
    answer = json.loads(capsys.readouterr().out)
    (dataset,) = answer["datasets"]
    assert (dataset["version"], dataset["schemaVersion"], dataset["schemaChanges"]) == (4, "2.0", 1)
    (change,) = [each for each in answer["changes"] if each["change"] == "schema_changed"]
    assert (change["version"], change["schemaVersion"]) == (3, "2.0")
    assert change["schemaChange"] == SHAPE["changeFromPrevious"]
    assert ploti(f"changes {SUB} --since 1d --csv") == 0
    (line,) = [
        each for each in csv.DictReader(io.StringIO(capsys.readouterr().out)) if each["change"] == "schema_changed"
    ]
    assert (line["version"], line["schema_version"], json.loads(line["schema_change"])) == (
        "3",
        "2.0",
        SHAPE["changeFromPrevious"],
    )


def test_a_schema_change_of_many_columns_stays_one_line(fake, capsys):
    change = SHAPE["changeFromPrevious"]
    many = [{"name": f"{at}_{'x' * 30}", "type": "string", "nullable": True} for at in range(300)]
    shape = {**SHAPE, "changeFromPrevious": {**change, "added": many}}
    fake.publish(PERMITS, files={SNAPSHOT: snapshot("P-1")}, schema=shape, reason="schema_changed", row_count=1)
    assert ploti(f"changes {SUB} --since 1d") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(" ")] == []
    assert [line.rsplit(", ", 1)[1] for line in lines if "schema changed" in line] == ["292 more"]


def test_nothing_that_changed_is_told(fake, capsys):
    assert ploti(f"changes {SUB} --since 2099-01-01") == 0
    assert capsys.readouterr().out == "Nothing changed.\n"


def test_a_bar_whose_end_is_not_known_tells_the_bytes_that_arrived():
    told = io.StringIO()
    console = Console(file=told, force_terminal=True, width=100)
    with Progress(*bar_columns(), console=console, auto_refresh=False) as shown:
        bar = Bar(shown)
        for total in (0, 3_000_000):
            bar.began(PERMITS, "rows", total)
            bar.moved(1_500_000)
            shown.refresh()
            bar.ended()
    assert "1.5 MB" in told.getvalue()
    assert "1.5/3.0 MB" in told.getvalue()
    assert "?" not in told.getvalue().replace("\x1b[?", "")


@pytest.mark.parametrize(
    "line",
    [f"feeds datasets get {PERMITS}", f"feeds datasets versions get {PERMITS} 2", f"feeds subscriptions get {SUB}"],
)
def test_the_facts_of_one_thing_have_names_like_a_lists_columns(fake, capsys, line):
    assert ploti(line) == 0
    names = [cells[0] for cells in words(capsys.readouterr().out) if len(cells) == 2]
    assert names
    assert [name for name in names if name != name.upper()] == []


def test_a_dataset_goes_to_standard_output_whole(fake, tmp_path):
    """As CSV unless another format is asked for."""
    done = shell(f"feeds datasets export {PERMITS} --to - --columns id")
    assert done.stdout.splitlines() == [f"{RECORD_ID},id", f"{record_id(1)},P-1", f"{record_id(2)},P-2"]
    parquet_ = shell(f"feeds datasets export {PERMITS} --to - --format parquet", text=False).stdout
    assert (parquet_[:4], parquet_[-4:]) == (b"PAR1", b"PAR1")
    assert shell(f"feeds datasets export {PERMITS} --to - --json").returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_is_exported(fake, capsys, tmp_path):
    assert ploti(f"feeds datasets export {PERMITS} --to x.csv --columns id") == 0
    assert capsys.readouterr().out == f"Wrote 2 rows of {PERMITS}, version 2, to x.csv.\n"
    assert (tmp_path / "x.csv").read_text().splitlines()[1:] == [f"{record_id(1)},P-1", f"{record_id(2)},P-2"]
    assert ploti(f"feeds datasets export {PERMITS} --to x.geojson") == 1
    assert ploti(f"feeds datasets export {PERMITS} --to nowhere/x.csv") == 1
    assert "Error: " in capsys.readouterr().err


@pytest.mark.parametrize("places", ["--places a,b", "--places a --places b"])
def test_ids_go_with_commas_or_in_several_options(fake, capsys, places):
    fake.add_place("a", "A", "county", "fl")
    fake.add_place("b", "B", "county", "fl")
    assert ploti(f"feeds subscriptions create X {places} --json") == 0
    assert json.loads(capsys.readouterr().out)["places"] == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        ("feeds datasets get ds_none", 1, "not_found"),
        ("feeds datasets list --limit 900", 1, "invalid_input"),
        ("feeds datasets list --limit many", 2, "wrong_usage"),
        ("feeds datasets", 0, None),
        ("feeds datasets none", 2, "wrong_usage"),
        ("feeds datasets get", 2, "wrong_usage"),
        ("feeds datasets get a b", 2, "wrong_usage"),
        ("nothing", 2, "wrong_usage"),
        ("topics --nothing", 2, "wrong_usage"),
        ("places --kind village", 2, "wrong_usage"),
    ],
)
def test_what_fails_is_one_line_or_one_object(fake, capsys, line, code, error):
    assert ploti(line) == code
    shown = capsys.readouterr()
    assert shown.err.count("\n") == (0 if error is None else 1)
    if error is not None:
        assert shown.out == ""
        assert shown.err.startswith("Error: ")
        assert ploti(line + " --json") == code
        shown = capsys.readouterr()
        assert json.loads(shown.out)["error"]["code"] == error
        assert shown.err == ""


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("more", ["", " --json"])
def test_a_server_that_is_not_the_api_is_told_in_one_line(fake, capsys, line, more):
    fake.answer_next("/v1", {"up": True}, times=9)
    assert ploti(line + more) == 1
    shown = capsys.readouterr()
    assert "no answer of the API: check the address" in (shown.out if more else shown.err)


def test_login_stores_no_key_for_a_server_that_is_not_the_api(fake, tmp_path):
    fake.answer_next("/v1", {"up": True}, times=9)
    assert shell("login", input=fake.api_key + "\n").returncode == 1
    assert list(tmp_path.rglob("login.json")) == []


def test_without_a_key_the_way_to_one_is_told(fake, capsys, monkeypatch):
    monkeypatch.delenv("PLOTI_API_KEY")
    assert ploti("topics") == 1
    assert "ploti login" in capsys.readouterr().err
    assert fake.requests == []


def shell(line, **kwargs):
    return subprocess.run(  # noqa: PLW1510  # a test looks at the code
        [sys.executable, "-m", "ploti.cli", *shlex.split(line)], **{"capture_output": True, "text": True} | kwargs
    )


def test_login_tries_the_key_then_stores_it(fake, tmp_path, monkeypatch):
    monkeypatch.delenv("PLOTI_API_KEY")
    refused = shell("login", input="ploti_wrong\n")
    assert (refused.returncode, list(tmp_path.rglob("login.json"))) == (1, [])
    assert shell("login", input="\n").returncode == 1
    done = shell("login", input=fake.api_key + "\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert fake.api_key not in done.stdout
    stored = tmp_path / "ploti" / "login.json"
    if os.name == "posix":
        assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    monkeypatch.delenv("PLOTI_API_URL")
    assert "development-activity" in shell("topics").stdout


@pytest.mark.parametrize("more", ["", " --url {url}"])
def test_login_replaces_a_stored_login_that_is_broken(fake, tmp_path, monkeypatch, more):
    monkeypatch.delenv("PLOTI_API_KEY")
    stored = tmp_path / "ploti" / "login.json"
    stored.parent.mkdir()
    stored.write_text("{")
    assert "run `ploti login` again" in shell("topics").stderr
    if more:
        more = more.format(url=os.environ["PLOTI_API_URL"])
        monkeypatch.delenv("PLOTI_API_URL")
    assert shell(f"login{more}", input=fake.api_key + "\n").returncode == 0
    assert "development-activity" in shell("topics").stdout


@pytest.mark.parametrize("there", ["ploti", "ploti/login.json/"])
def test_a_login_that_cannot_be_stored_is_one_line_and_leaves_no_key_behind(fake, tmp_path, there):
    if there.endswith("/"):
        (tmp_path / there).mkdir(parents=True)
    else:
        (tmp_path / there).write_text("a file where the folder would be")
    done = shell("login", input=fake.api_key + "\n")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert [path for path in tmp_path.rglob("login.json*") if path.is_file()] == []


@pytest.mark.parametrize("line", ["topics", f"feeds attachments list {PERMITS}", "login"])
def test_a_server_that_is_not_there_is_told_soon(fake, capsys, monkeypatch, line):
    monkeypatch.setattr("sys.stdin", io.StringIO(fake.api_key))
    monkeypatch.setenv("PLOTI_API_URL", "http://127.0.0.1:9")
    started = time.monotonic()
    assert ploti(line) == 1
    assert "http://127.0.0.1:9" in capsys.readouterr().err
    assert time.monotonic() - started < 5


@pytest.fixture
def hang_ups_heard():
    """Let commands hear that the terminal went, also where the tests themselves run without one."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def stopped_at(fake, path, number, line, more=None):
    """Send a signal to a command that waits for an answer: what it said, and its exit code."""
    command = [sys.executable, "-m", "ploti.cli", *line.split()]
    running = subprocess.Popen(command, env=os.environ | (more or {}), stdout=-1, stderr=-1, text=True)
    deadline = time.monotonic() + 20
    while not any(path in request.path for request in fake.requests) and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(number)
    return *running.communicate(timeout=10), running.returncode


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP), (signal.SIGINT, 130)]
)
@pytest.mark.usefixtures("hang_ups_heard")
def test_an_export_that_is_stopped_leaves_nothing_behind(fake, tmp_path, number, code):
    fake.delay_next("part-0000", 20)
    (tmp_path / "tmp").mkdir()
    line = f"feeds datasets export {PERMITS} --to x.csv"
    out, err, came = stopped_at(fake, "part-0000", number, line, {"TMPDIR": str(tmp_path / "tmp")})
    assert (out, "Traceback" in err, came) == ("", False, code)
    assert list(tmp_path.rglob("*")) == [tmp_path / "tmp"]


def test_ctrl_c_is_heard_while_the_command_is_loaded():
    stopping = (
        "import sys\nclass Stop:\n    def find_spec(self, name, *more):\n        if name == 'cyclopts':\n"
        "            raise KeyboardInterrupt\nsys.meta_path.insert(0, Stop())\nfrom ploti.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", stopping], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "Stopped.\n")


@pytest.mark.parametrize(
    ("number", "code", "told"),
    [(signal.SIGTERM, -signal.SIGTERM, ""), (signal.SIGHUP, -signal.SIGHUP, ""), (signal.SIGINT, 130, "Stopped.\n")],
)
@pytest.mark.usefixtures("hang_ups_heard")
def test_a_signal_ends_a_command_while_duckdb_carries_out_a_query(number, code, told):
    """As the load of a large version: DuckDB makes an error of its own of what a signal raises."""
    querying = (
        "import os, sys, threading, time\nfrom ploti.cli import main\nfrom ploti.cli.command import app\n"
        f"@app.command\ndef query():\n    threading.Timer(0.3, os.kill, (os.getpid(), {int(number)})).start()\n"
        "    try:\n        time.sleep(30)\n    except BaseException:\n"
        "        raise RuntimeError('Query interrupted') from None\n"
        "sys.argv = ['ploti', 'query']\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", querying], capture_output=True, text=True, timeout=60)  # noqa: PLW1510
    assert (done.returncode, done.stderr) == (code, told)


def test_ctrl_c_stops_without_a_traceback(fake):
    fake.delay_next("/v1/topics", 20)
    assert stopped_at(fake, "topics", signal.SIGINT, "topics") == ("", "Stopped.\n", 130)


def test_a_reader_that_goes_away_is_no_error(fake):
    for number in range(300):
        fake.add_dataset(f"ds_many_{number}", title="x" * 900)
    line = f"{sys.executable} -m ploti.cli feeds datasets list --limit 200 --json | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


def exit_code(line, after):
    """The exit code of a command in a shell, with what the shell says after it, buffered as it is for users."""
    whole = f"{sys.executable} -m ploti.cli {line} {after}; exit ${{PIPESTATUS[0]}}"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(["bash", "-c", whole], capture_output=True, text=True, env=env)  # noqa: PLW1510  # its code
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.returncode, done.stderr.count("\n")


@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        ("topics", "| true", (0, 0)),
        ("topics --json", "| true", (0, 0)),
        ("--help", "| true", (0, 0)),
        ("topics", ">&-", (0, 0)),
        ("topics --json", ">&- 2>&- <&-", (0, 0)),
        ("feeds datasets get ds_none", ">&-", (1, 1)),
        ("feeds datasets get ds_none", "2>&1 | true", (1, 0)),
        ("feeds datasets get ds_none --json", "| true", (1, 1)),
        ("login", "<&-", (1, 1)),
        ("topics", ">/dev/full", (1, 1)),
        ("topics --json", ">/dev/full 2>&1", (1, 0)),
    ],
)
def test_output_that_cannot_go_anywhere_is_no_traceback(fake, line, after, expected):
    """A reader that goes away is no error; a full disk is one, and what failed keeps its exit code."""
    assert exit_code(line, after) == expected


def on_a_terminal(width, line):
    """What a terminal of a width shows, line by line, without styles."""
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    command = [sys.executable, "-m", "ploti.cli", *line.split()]
    env = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}} | {"TERM": "xterm"}
    with subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=env) as running:
        os.close(inside)
        shown = b"".join(iter(lambda: _read_terminal(terminal), b""))
        os.close(terminal)
    assert running.returncode == 0, shown
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines()


def _read_terminal(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so once the program behind the terminal has ended
        return b""


@pytest.mark.parametrize(("width", "first"), [(30, "ID"), (60, "ID"), (100, "ID"), (160, "ID")])
def test_a_table_fits_the_terminal(fake, width, first):
    lines = on_a_terminal(width, "feeds datasets list")
    assert lines[0].startswith(first)
    assert max(len(line) for line in lines) <= width
    assert any(PERMITS in line for line in lines)


def test_a_terminal_too_narrow_for_a_table_gets_facts(fake):
    lines = on_a_terminal(60, "feeds datasets list")
    assert lines[0].split() == ["ID", PERMITS]
    assert lines[1].split() == ["TITLE", "Building", "permits"]
    assert on_a_terminal(160, "feeds datasets list")[0].split()[:2] == ["ID", "TITLE"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_programs_get_utf_8_whatever_the_locale(fake, encoding):
    fake.add_dataset("ds_trees", title="Bäume 🌳")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for more in ("", "--csv"):
        done = shell(f"feeds datasets list {more}", env=environment, text=False)
        assert (done.returncode, "Bäume 🌳".encode() in done.stdout) == (0, True)


def test_a_terminal_that_lacks_a_letter_gets_another(fake, monkeypatch):
    fake.add_dataset("ds_trees", title="Bäume 🌳")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert any("B?ume ?" in line for line in on_a_terminal(120, "feeds datasets list"))


def test_times_are_in_the_users_zone(fake):
    env = {**os.environ, "TZ": "Asia/Kathmandu"}
    code = "from ploti.cli.show import local_time; print(local_time('2026-10-18T06:12:40.000Z'))"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "2026-10-18 11:57\n"
    assert local_time(None) is None


def commands(app, *path):
    """Name a command and all below it."""
    yield path
    for name in app:
        if not name.startswith("-"):
            yield from commands(app[name], *path, name)


def test_no_help_shows_what_only_programs_would_write_or_breaks_its_lines_twice():
    for path in commands(app):
        out = io.StringIO()
        app.help_print(path, console=Console(file=out, width=80))
        told = out.getvalue()
        assert not re.search(r"default: \(\)| --no-", told), path
        said = [line.rstrip() for line in told.split("╭")[0].splitlines()]
        for line, below in itertools.pairwise(said):
            early = line and below and not line.endswith(".") and len(line) + len(below.split()[0]) < 80
            assert not early, (path, line)


def test_help_costs_at_most_300_ms_of_cpu():
    """In one of seven runs: on a busy machine the same work is told to take longer."""

    def cost():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert shell("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)

    assert any(cost() <= 0.3 for _ in range(7))


def test_help_loads_no_http_and_no_command():
    code = (
        "import sys\nfrom ploti.cli.command import run\nrun(['--help'])\nprint({'httpx2', 'duckdb'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        ("", "-"),
        ([], "-"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (["a", "b"], "a, b"),
        ("two\nlines", "two lines"),
        ("\x1b[31mred\u202e", "\ufffd[31mred\ufffd"),
        ("\ud800", "\ufffd"),
        ("Zoë 👩‍🚒", "Zoë 👩‍🚒"),
    ],
)
def test_a_cell_is_safe_and_short(value, shown):
    assert cell(value) == shown


def test_a_hostile_title_does_not_steer_the_terminal(fake, capsys):
    """Security check 64."""
    fake.add_dataset("ds_bad", title="\x1b]0;owned\x07[bold]markup[/]")
    ploti("feeds datasets list")
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "[bold]markup[/]" in out
    assert printable("\x9b2J") == "\ufffd2J"


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (256_000_000, "256.0 MB"), (10**16, "10000.0 TB")],
)
def test_sizes_are_short(count, shown):
    assert byte_size(count) == shown


def documented_commands():
    text = (DOCS / "command.md").read_text("utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("line", documented_commands())
def test_each_documented_command_works(fake, capsys, line):
    program, rest = line.split(" ", 1)
    assert program == "ploti"
    assert ploti(rest) == 0
    assert capsys.readouterr().out


def all_commands(group, path):
    """Every command below a group, by its words."""
    for name in group:
        if name.startswith("-") or name == "sync":
            continue
        inner = group[name]
        below = list(all_commands(inner, [*path, name]))
        yield from below or [" ".join([*path, name])]


def test_every_command_is_documented():
    text = (DOCS / "command.md").read_text("utf-8")
    found = list(all_commands(app, ["ploti"]))
    assert len(found) >= 13
    for command in found:
        assert command.removesuffix(" list") in text
