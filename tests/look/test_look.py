"""First rows, one file of a version, what differs between two versions, what changed since: all over the fake API."""

import csv
import json
import os
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import geopandas
import pytest
from pyarrow.parquet import read_metadata

import ploti
from ploti.contract.files import RECORD_ID
from ploti.look.cells import disarmed
from ploti.look.changed import changes_since, since_when
from ploti.look.diff import Columns, Pair, diff
from ploti.look.rows import export, head
from ploti.sync.loop import sync
from ploti.sync.targets import open_target
from ploti.testing.feed import SUBSCRIPTION, Feed, record_id
from ploti.testing.stories import POINT

A, B = "ds_orange_permits", "ds_orange_zoning"
COLUMNS = {"number": "string", "units": "integer", "value": "number", "open": "boolean", "day": "date"}
COLUMNS |= {"seen": "timestamp", "extra": "json", "read_on": "date", "geometry": "geometry"}
LICENSE = {"id": "MIT", "attribution": "Orange County", "url": None}
CORNERS = ((0.0, 0.0), (0.1, 0.0), (40.50203116021486, 1.0), (0.0, 0.0))
POLYGON = struct.pack("<BIII8d", 1, 3, 1, 4, *(number for corner in CORNERS for number in corner))
SEEN = datetime(1, 2, 3, 4, 5, 6, 7, tzinfo=UTC)


def row(number, **more):
    values = {
        "number": f"P-{number}", "units": number, "value": number - 5.5, "open": True, "day": date(2026, 1, 2),
        "seen": SEEN, "extra": '{"a":[1,2]}', "read_on": date(2026, 1, 1), "geometry": POINT,
    }  # fmt: skip
    return values | more


def rows(*numbers):
    return {record_id(number): row(number) for number in numbers}


TEXT = row(1) | {
    "day": "2026-01-02", "seen": "0001-02-03T04:05:06.000007Z", "read_on": "2026-01-01", "geometry": "POINT (1 2)",
}  # fmt: skip
"""Row 1 as values that JSON and people can have."""


@pytest.fixture
def feed():
    return Feed()


@pytest.fixture
def client(feed):
    with ploti.Client(**feed.api.client_options, retries=ploti.Retries(first_wait=0)) as client:
        yield client


# the first rows, one file


def test_first_rows_are_those_of_the_first_part_alone_where_it_has_enough(feed, client):
    feed.add(A, COLUMNS, rows(1))
    feed.reload(A, rows(*range(9)), "previous_unavailable", parts=3)
    found = head(client, A, rows=2)
    assert (found.version, len(found.rows)) == (2, 2)
    assert not [request for request in feed.api.requests if request.path.endswith("part-0001.parquet")]
    assert len(head(client, A, rows=5).rows) == 5
    (only,) = head(client, A, 1).rows
    assert only[RECORD_ID] == record_id(1)
    assert {name: only[name] for name in COLUMNS} == TEXT


def exported(client, tmp_path, name, **options):
    done = export(client, A, tmp_path / name, **options)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    return done


def test_csv_has_every_value_as_text(feed, client, tmp_path):
    feed.add(A, COLUMNS, rows(1) | {record_id(2): dict.fromkeys(COLUMNS)})
    assert exported(client, tmp_path, "x.csv").rows == 2
    first, second = sorted(csv.DictReader((tmp_path / "x.csv").open()), key=lambda line: line["number"], reverse=True)
    text = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in TEXT.items()}
    assert {name: first[name] for name in COLUMNS} == text
    assert {second[name] for name in COLUMNS} == {""}


CELLS = [
    ("=1+1", "'=1+1"),
    ("-5.00", "-5.00"),
    ("+1e5", "+1e5"),
    ("+1 407 555 0100", "'+1 407 555 0100"),
    ("@x", "'@x"),
    ("\t=1", "'\t=1"),
    ("-", "'-"),
    ("-1-1", "'-1-1"),
    ("plain = text", "plain = text"),
    ("\uff1d1+1", "'\uff1d1+1"),
]


def test_text_that_a_spreadsheet_would_run_is_disarmed_and_numbers_stay(feed, client, tmp_path):
    """F080, with one rule in both places that write CSV."""
    assert [disarmed(text) for text, _ in CELLS] == [shown for _, shown in CELLS]
    columns = {"text": "string", "number": "number"}
    feed.add(A, columns, {record_id(at): {"text": text, "number": -at} for at, (text, _) in enumerate(CELLS)})
    for raw in (False, True):
        export(client, A, tmp_path / "x.csv", raw=raw)
        lines = sorted(csv.DictReader((tmp_path / "x.csv").open(newline="")), key=lambda line: -float(line["number"]))
        assert [line["text"] for line in lines] == [pair[0 if raw else 1] for pair in CELLS]
        assert lines[5]["number"] == "-5.0"


def test_geojson_has_shapes_and_nested_values(feed, client, tmp_path):
    feed.add(A, COLUMNS, rows(1) | {record_id(2): row(2, geometry=None)})
    exported(client, tmp_path, "x.geojson")
    found = json.loads((tmp_path / "x.geojson").read_text())
    first, second = sorted(found["features"], key=lambda feature: feature["properties"]["number"])
    assert first["geometry"] == {"type": "Point", "coordinates": [1, 2]}
    assert second["geometry"] is None
    properties = {name: value for name, value in TEXT.items() if name != "geometry"} | {"extra": {"a": [1, 2]}}
    assert {name: first["properties"][name] for name in properties} == properties


def test_geojson_keeps_a_column_of_the_datasets_own_called_id(feed, client, tmp_path):
    """A feature's `id` is the record's; names that GeoJSON knows are properties like all others (RFC 7946)."""
    own = {"id": "12087", "type": "county", "bbox": "x", "geometry": POLYGON}
    feed.add(A, dict.fromkeys(own, "string") | {"geometry": "geometry"}, {record_id(1): own})
    feed.snapshots[A][1].schema["license"] = LICENSE
    exported(client, tmp_path, "x.geojson")
    found = json.loads((tmp_path / "x.geojson").read_text())
    assert found["ploti"] == {"datasetId": A, "schemaVersion": "1.0", "license": LICENSE, "version": 1}
    (only,) = found["features"]
    assert (only["type"], only["id"]) == ("Feature", record_id(1))
    assert only["geometry"] == {"type": "Polygon", "coordinates": [[[0, 0], [0.1, 0], [40.50203116021486, 1], [0, 0]]]}
    assert {name: only["properties"][name] for name in ("id", "type", "bbox")} == {
        "id": "12087",
        "type": "county",
        "bbox": "x",
    }
    assert list(geopandas.read_file(tmp_path / "x.geojson")["id"]) == ["12087"]
    exported(client, tmp_path, "x.geojson", columns=["id"])
    (few,) = json.loads((tmp_path / "x.geojson").read_text())["features"]
    assert (few["geometry"], set(few["properties"])) == (only["geometry"], {RECORD_ID, "id"})


@pytest.mark.parametrize(
    "text", ["00123", "a,b", 'say "x"', "two\nlines", " outer ", "M\u00fcller \U0001f332", "NULL", "1e5"]
)
def test_csv_gives_texts_back_as_they_are(feed, client, tmp_path, text):
    feed.add(A, {"text": "string"}, {record_id(1): {"text": text}, record_id(2): {"text": None}})
    exported(client, tmp_path, "x.csv")
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        assert {line["text"] for line in csv.DictReader(file)} == {text, ""}


@pytest.mark.parametrize("parts", [1, 3])
def test_geoparquet_opens_elsewhere(feed, client, tmp_path, parts):
    feed.add(A, COLUMNS, {})
    feed.reload(A, rows(*range(9)), "previous_unavailable", parts=parts)
    feed.snapshots[A][2].schema["license"] = LICENSE
    exported(client, tmp_path, "x.parquet")
    with duckdb.connect() as db:
        (count,) = db.execute(f"SELECT count(*) FROM '{tmp_path}/x.parquet'").fetchone()
    assert count == 9
    if parts > 1:
        assert set(geopandas.read_parquet(tmp_path / "x.parquet").geometry.to_wkt()) == {"POINT (1 2)"}
        told = {name.decode(): text.decode() for name, text in read_metadata(tmp_path / "x.parquet").metadata.items()}
        assert (told["ploti:dataset_id"], told["ploti:version"], told["ploti:schema_version"]) == (A, "2", "1.0")
        assert json.loads(told["ploti:license"]) == LICENSE


@pytest.mark.parametrize(("columns", "kept"), [([], set(COLUMNS)), (["number", "geometry"], {"number", "geometry"})])
def test_a_geopackage_opens_elsewhere(feed, client, tmp_path, columns, kept):
    feed.add(A, COLUMNS, rows(1) | {record_id(2): row(2, geometry=None)})
    exported(client, tmp_path, "x.gpkg", columns=columns)
    found = geopandas.read_file(tmp_path / "x.gpkg", layer=A)
    assert set(found.columns) & set(COLUMNS) == kept
    assert (list(found["number"]), found.crs.to_epsg()) == (["P-1", "P-2"], 4326)
    assert [shape and shape.wkt for shape in found.geometry] == ["POINT (1 2)", None]
    with closing(sqlite3.connect(tmp_path / "x.gpkg")) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert not {name for name in tables if name.startswith("_ploti")}


@pytest.mark.parametrize(("url", "name", "format_"), [("sqlite", "x.gpkg", None), ("duckdb", "x.duckdb", "csv")])
def test_a_database_that_sync_keeps_is_never_replaced(feed, client, tmp_path, url, name, format_):
    feed.add(A, COLUMNS, rows(1))
    target = open_target(f"{url}:///{tmp_path / name}")
    sync(client, SUBSCRIPTION, target)
    with pytest.raises(ploti.FixRequest, match="name another file"):
        export(client, A, tmp_path / name, format=format_)
    assert target.state().datasets[A].version == 1


def test_files_that_are_none_are_no_traceback(feed, client, tmp_path):
    feed.add(A, COLUMNS, rows(1))
    feed.api.rebuild(A, 1, {"snapshot/part-0000.parquet": b"no parquet"})
    with pytest.raises(ploti.BadAnswer, match="cannot be read"):
        export(client, A, tmp_path / "x.csv")
    feed.reload(A, rows(1), "previous_unavailable")
    with pytest.raises(OSError, match="proc"):
        export(client, A, Path("/proc/x.csv"))
    with pytest.raises(ploti.FixRequest, match="no folder"):
        export(client, A, tmp_path / "nowhere" / "x.csv")
    assert list(tmp_path.iterdir()) == []


def test_columns_can_be_chosen_and_a_file_is_replaced(feed, client, tmp_path):
    feed.add(A, COLUMNS, rows(1))
    (tmp_path / "x.txt").write_text("an earlier one")
    exported(client, tmp_path, "x.txt", format="csv", columns=["number"], version=1)
    assert (tmp_path / "x.txt").read_text() == f"{RECORD_ID},number\n{record_id(1)},P-1\n"


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("x.doc", {}, "--format"),
        ("x.csv", {"columns": ["nothing"]}, "no column 'nothing'"),
        ("x.geojson", {}, "no shapes"),
    ],
)
def test_what_cannot_be_written_leaves_the_file_as_it_was(feed, client, tmp_path, name, options, told):
    feed.add(A, {"number": "string"}, {record_id(1): {"number": "x"}})
    (tmp_path / name).write_text("mine")
    with pytest.raises(ploti.FixRequest, match=told):
        export(client, A, tmp_path / name, **options)
    assert (tmp_path / name).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_an_export_follows_a_link_keeps_permissions_and_sweeps_what_a_killed_one_left(feed, client, tmp_path):
    feed.add(A, {"number": "string"}, {record_id(1): {"number": "x"}})
    (tmp_path / "to").mkdir()
    file, link = tmp_path / "to" / "x.csv", tmp_path / "x.csv"
    file.write_text("an earlier one")
    file.chmod(0o640)
    link.symlink_to(file)
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    (tmp_path / "to" / f".ploti-export-{int(gone.stdout)}-0a").write_text("half")
    under_way = tmp_path / "to" / f".ploti-export-{os.getppid()}-0b"
    under_way.write_text("another process's")
    export(client, A, link)
    assert (link.is_symlink(), file.stat().st_mode & 0o777) == (True, 0o640)
    assert file.read_text().startswith(RECORD_ID)
    assert set((tmp_path / "to").iterdir()) == {file, under_way}


@pytest.mark.parametrize(("make", "told"), [(Path.mkdir, "is a folder"), (os.mkfifo, "is no file")])
def test_what_is_no_file_is_never_replaced_and_nothing_is_fetched(feed, client, tmp_path, make, told):
    feed.add(A, {"number": "string"}, {record_id(1): {"number": "x"}})
    make(tmp_path / "x.csv")
    with pytest.raises(ploti.FixRequest, match=told):
        export(client, A, tmp_path / "x.csv")
    assert feed.api.requests == []
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


# two versions


def values(found):
    """What differs, by number of the record: change and old and new values."""
    numbers = {record_id(number): number for number in range(200)}
    return {
        numbers[each.record_id]: (each.change, {name: (pair.old, pair.new) for name, pair in each.values.items()})
        for each in found.records
    }


def test_old_and_new_values_stand_side_by_side(feed, client):
    feed.add(A, COLUMNS, rows(1, 2, 3))
    feed.update(A, put={record_id(1): row(1, value=None, extra="[]"), **rows(4)}, drop=[record_id(2)])
    found = diff(client, A, 1, 2)
    assert found.counts == {"added": 1, "changed": 1, "removed": 1}
    assert found.columns == Columns([], [], {}, {})
    told = values(found)
    assert told[1] == ("changed", {"value": (-4.5, None), "extra": ('{"a":[1,2]}', "[]")})
    assert told[4][0] == "added"
    assert told[4][1]["number"] == (None, "P-4")
    assert told[2][1]["geometry"] == ("POINT (1 2)", None)
    assert [each.record and each.record["number"] for each in found.records if each.change != "removed"] == [
        {1: "P-1", 4: "P-4"}[number] for number in told if number != 2
    ]
    assert len(diff(client, A, 1, 2, limit=1).records) == 1


def test_a_chain_of_versions_is_told_as_one_change(feed, client):
    feed.add(A, COLUMNS, rows(1, 2, 3))
    feed.update(A, put={record_id(1): row(1, units=7)})
    feed.update(A, put=rows(4), version=5)
    feed.update(A, put={record_id(1): row(1), record_id(2): row(2, units=8)}, drop=[record_id(4)], version=9)
    assert values(diff(client, A, 1, 9)) == {2: ("changed", {"units": (2, 8)})}


def test_a_value_that_moves_in_every_row_is_told_once(feed, client):
    feed.add(A, COLUMNS, rows(1, 2))
    feed.update(A, constants={"read_on": date(2026, 1, 3)})
    found = diff(client, A, 1, 2)
    assert found.columns.moved == {"read_on": Pair("2026-01-01", "2026-01-03")}
    assert (found.records, sum(found.counts.values())) == ([], 0)


def test_in_a_dataset_of_one_row_its_values_are_that_rows(feed, client):
    feed.add(A, COLUMNS, rows(1))
    feed.reload(A, {record_id(1): row(1, units=2)}, "previous_unavailable")
    assert values(diff(client, A, 1, 2)) == {1: ("changed", {"units": (1, 2)})}


def test_columns_that_come_go_and_change_their_type(feed, client):
    feed.add(A, {"number": "string", "gone": "string", "size": "integer"}, {
        record_id(at): {"number": f"P-{at}", "gone": "x", "size": at} for at in (1, 2)
    })  # fmt: skip
    after = {record_id(at): {"number": f"P-{at}", "size": str(at * (at == 1) or "two"), "new": "y"} for at in (1, 2)}
    feed.reload(A, after, "schema_changed", columns={"number": "string", "size": "string", "new": "string"})
    found = diff(client, A, 1, 2)
    assert found.columns == Columns(["new"], ["gone"], {"size": Pair("integer", "string")}, {})
    assert values(found) == {2: ("changed", {"size": (2, "two")})}


def test_records_keep_their_rows_where_ids_were_replaced_twice(feed, client):
    feed.add(A, COLUMNS, rows(1, 2, 3))
    for shift in (100, 50):
        before = feed.current(A).rows
        moved = {id_: record_id(values["units"] + shift) for id_, values in before.items() if values["units"] != 3}
        later = {moved.get(id_, id_): values | {"units": values["units"] + shift} for id_, values in before.items()}
        later[record_id(3)] = row(3)
        feed.reload(A, later, "record_ids_changed", id_map={id_: moved.get(id_, id_) for id_ in before})
    found = diff(client, A, 1, 3)
    assert found.replaced == 2
    assert {(each.previous_id, each.record_id): dict(each.values) for each in found.records} == {
        (record_id(at), record_id(at + 150)): {"units": Pair(at, at + 150)} for at in (1, 2)
    }


@pytest.mark.parametrize("kept", ["released_again", "pruned"])
def test_records_keep_their_rows_where_the_map_of_replaced_ids_is_gone(feed, client, kept):
    """What a version between replaced is asked for, and what a later one replaced once more."""
    feed.add(A, COLUMNS, rows(1, 2, 3))
    for moved in ({1: 101, 2: 102}, {}, {102: 202}):
        ids = {record_id(was): record_id(now) for was, now in moved.items()}
        before = feed.current(A)
        later = {ids.get(id_, id_): values for id_, values in before.rows.items()}
        reason = "record_ids_changed" if moved else "previous_unavailable"
        feed.reload(A, later, reason, id_map=ids or None, previous=before.version)
    feed.update(A, put={record_id(202): row(2, units=9)}, drop=[record_id(101)])
    feed.api.keep(A, 2, kept)
    found = diff(client, A, 1, 5)
    assert found.counts == {"added": 0, "changed": 1, "removed": 1}
    told = {(each.change, each.previous_id, each.record_id) for each in found.records}
    assert told == {("changed", record_id(2), record_id(202)), ("removed", None, record_id(1))}


def test_two_records_that_trade_their_ids_are_followed(feed, client):
    feed.add(A, COLUMNS, rows(1, 2, 3))
    traded = {record_id(1): row(2, units=9), record_id(2): row(1), **rows(3)}
    feed.reload(A, traded, "record_ids_changed", id_map={record_id(1): record_id(2), record_id(2): record_id(1)})
    (only,) = diff(client, A, 1, 2).records
    assert (only.record_id, only.previous_id) == (record_id(1), record_id(2))
    assert only.values == {"units": Pair(2, 9)}


def test_column_names_that_would_break_the_query(feed, client):
    """F070."""
    names = dict.fromkeys(("group", 'a"b', "now_id", "was", "change", "d0", "o0", "%s"), "string")
    feed.add(A, names, {record_id(at): dict.fromkeys(names, str(at)) for at in (1, 2)})
    feed.update(A, put={record_id(1): {**dict.fromkeys(names, "1"), 'a"b': "new"}})
    assert values(diff(client, A, 1, 2)) == {1: ("changed", {'a"b': ("1", "new")})}


def test_volatile_columns_are_not_compared(feed, client):
    feed.add(A, COLUMNS, rows(1, 2))
    feed.snapshots[A][1].schema["columns"][1]["volatile"] = True
    feed.update(A, put={record_id(1): row(1, units=5)})
    assert diff(client, A, 1, 2).records == []


@pytest.mark.parametrize(
    ("versions", "error"), [((2, 1), ploti.FixRequest), ((1, 1), ploti.FixRequest), ((1, 7), ploti.NotFound)]
)
def test_versions_that_cannot_be_compared(feed, client, versions, error):
    feed.add(A, COLUMNS, rows(1))
    feed.update(A, put=rows(2))
    with pytest.raises(error):
        diff(client, A, *versions)


def test_a_version_past_retention_says_so(feed, client):
    feed.add(A, COLUMNS, rows(1))
    feed.update(A, put=rows(2))
    feed.api.keep(A, 1, "pruned")
    with pytest.raises(ploti.Reload):
        diff(client, A, 1, 2)


# since a moment


@pytest.fixture
def clocked():
    """A feed whose clock the test moves."""
    now = [datetime(2026, 10, 1, tzinfo=UTC)]
    feed = Feed()
    feed.api.clock = lambda: now[0]
    feed.pass_days = lambda days: now.__setitem__(0, now[0] + timedelta(days=days))
    return feed


def changed(feed, since, **filters):
    with ploti.Client(**feed.api.client_options, retries=ploti.Retries(first_wait=0)) as client:
        opened = changes_since(client, SUBSCRIPTION, datetime(2026, 10, since, tzinfo=UTC), **filters)
        with opened as changes:
            return [
                (
                    each.dataset["id"],
                    each.version["version"],
                    each.change,
                    each.record_id,
                    list(each.columns),
                    each.rows,
                )
                for each in changes
            ]


def test_changes_of_all_datasets_come_in_the_order_of_release(clocked):
    """Day 1: both datasets; day 2: A changes; day 3: B changes twice; day 4: A changes, B is reloaded."""
    clocked.add(A, COLUMNS, rows(1, 2), topic=None)
    clocked.add(B, {"zone": "string"}, {record_id(1): {"zone": "R-1"}, record_id(2): {"zone": "R-2"}})
    clocked.pass_days(1)
    clocked.update(A, put={record_id(1): row(1, units=3)})
    clocked.pass_days(1)
    clocked.update(B, put={record_id(3): {"zone": "R-3"}})
    clocked.update(B, drop=[record_id(1)])
    clocked.pass_days(1)
    clocked.reload(B, {record_id(3): {"zone": "R-3b"}}, "previous_unavailable")
    told = [
        (A, 1, "first", None, [], 2),
        (B, 1, "first", None, [], 2),
        (A, 2, "changed", record_id(1), ["units"], None),
        (B, 2, "added", record_id(3), [], None),
        (B, 3, "removed", record_id(1), [], None),
        (B, 4, "changed", record_id(3), ["zone"], None),
        (B, 4, "removed", record_id(2), [], None),
    ]
    assert changed(clocked, 1) == told
    assert changed(clocked, 2) == told[2:]
    assert changed(clocked, 3) == told[3:]
    assert changed(clocked, 5) == []
    assert changed(clocked, 1, topic="development-activity") == [each for each in told if each[0] == B]
    clocked.api.keep(B, 3, "pruned")
    assert changed(clocked, 4) == [(B, 4, "reloaded", None, [], 1)]


def test_replaced_ids_are_told_also_where_nothing_else_changed(clocked):
    """Page 001, when record ids are replaced: whoever keeps ids has to hear of it."""
    clocked.add(A, COLUMNS, rows(1, 2, 3))
    clocked.pass_days(1)
    moved = {record_id(number): record_id(number + 10) for number in (1, 2)}
    later = {moved.get(id_, id_): values for id_, values in rows(1, 2, 3).items()}
    clocked.reload(A, later, "record_ids_changed", id_map={id_: moved.get(id_, id_) for id_ in rows(1, 2, 3)})
    assert changed(clocked, 2) == [(A, 2, "ids_replaced", None, [], 2)]


def test_a_record_is_named_by_its_key_and_comes_whole(clocked):
    clocked.add(A, COLUMNS, rows(1, 2))
    clocked.snapshots[A][1].schema["keyColumns"] = ["number", "units"]
    clocked.pass_days(1)
    clocked.update(A, put={record_id(1): row(1, value=0.0)}, drop=[record_id(2)])
    since = datetime(2026, 10, 2, tzinfo=UTC)
    with ploti.Client(**clocked.api.client_options) as client, changes_since(client, SUBSCRIPTION, since) as changes:
        first, second = changes
    assert (first.label, second.label) == ("P-1 1", "P-2 2")
    assert first.record == TEXT | {"value": 0.0}


def test_a_removed_record_is_told_with_what_it_held_last(clocked):
    """Page 001: a delete row has only envelope columns, so the rest comes from the version before."""
    clocked.add(A, COLUMNS, rows(1, 2, 3))
    clocked.pass_days(1)
    clocked.update(A, drop=[record_id(1)])
    clocked.update(A, put={record_id(1): row(1, units=7), record_id(2): row(2, units=8)}, drop=[record_id(3)])
    clocked.update(A, drop=[record_id(1), record_id(2)], columns=COLUMNS | {"late": "string"}, fill=lambda _: {})
    clocked.reload(A, rows(4), "previous_unavailable")
    clocked.reload(A, rows(5), "previous_unavailable")
    clocked.update(A, drop=[record_id(5)])
    since = datetime(2026, 10, 2, tzinfo=UTC)
    asked = len(clocked.api.requests)
    with ploti.Client(**clocked.api.client_options) as client, changes_since(client, SUBSCRIPTION, since) as changes:
        removed = [each for each in changes if each.change == "removed"]
    last = [(each.version["version"], each.record["number"], each.record["units"]) for each in removed]
    assert last == [(2, "P-1", 1), (3, "P-3", 3), (4, "P-1", 7), (4, "P-2", 8), (6, "P-4", 4), (7, "P-5", 5)]
    assert removed[0].record == TEXT
    assert removed[2].record == TEXT | {"units": 7, "late": None}
    read = [request.path.split("/")[3] for request in clocked.api.requests[asked:] if "/snapshot/" in request.path]
    assert read == ["1", "4", "5", "6"], "one snapshot serves a chain of changes"


@pytest.mark.parametrize("how", ["pruned", "not asked for"])
def test_a_removed_record_is_named_by_its_id_where_the_version_before_is_not_read(clocked, how):
    clocked.add(A, COLUMNS, rows(1, 2))
    clocked.pass_days(1)
    clocked.update(A, put={record_id(2): row(2, units=8)}, drop=[record_id(1)])
    if how == "pruned":
        clocked.api.keep(A, 1, "pruned")
    since = datetime(2026, 10, 2, tzinfo=UTC)
    with ploti.Client(**clocked.api.client_options) as client:
        opened = changes_since(client, SUBSCRIPTION, since, last=how == "pruned")
        with opened as changes:
            removed, kept = changes
    assert (removed.label, removed.record, kept.record["units"]) == (record_id(1), None, 8)
    assert not [request for request in clocked.api.requests if "/snapshot/" in request.path]


def test_changes_of_columns_are_told_also_where_no_row_changed(clocked):
    """Page 001: a MAJOR version that drops a column has no changes to apply, and leaves its trace here."""
    clocked.add(A, COLUMNS, rows(1))
    clocked.add(B, {"zone": "string"}, {record_id(1): {"zone": "R-1"}})
    clocked.pass_days(1)
    clocked.update(A, columns=COLUMNS | {"late": "string"}, put=rows(2))
    less = {name: kind for name, kind in COLUMNS.items() if name != "seen"}
    shown = {
        id_: {name: value for name, value in values.items() if name != "seen"} for id_, values in rows(1, 2).items()
    }
    clocked.reload(A, shown, "schema_changed", columns=less)
    clocked.pass_days(1)
    clocked.update(A, put=dict(list(shown.items())[:1]))
    told = [(A, 2, "schema_changed"), (A, 2, "added"), (A, 3, "schema_changed")]
    assert [each[:3] for each in changed(clocked, 2)][:3] == told
    assert [each[:3] for each in changed(clocked, 1)][2:5] == told
    assert "schema_changed" not in [each[2] for each in changed(clocked, 3)]
    since = datetime(2026, 10, 2, tzinfo=UTC)
    with ploti.Client(**clocked.api.client_options) as client, changes_since(client, SUBSCRIPTION, since) as changes:
        dropped = [each.schema for each in changes if each.schema is not None][-1]
        newest = [(dataset["id"], version["version"], version["schemaVersion"]) for dataset, version in changes.newest]
    assert (dropped["schemaVersion"], dropped["changeFromPrevious"]["removed"]) == ("2.0", ["seen", "late"])
    assert newest == [(A, 4, "2.0")]


def test_changes_of_columns_that_a_version_taken_back_made_are_told_with_the_next_one(clocked):
    """Page 001: a version's schema change is measured from the last version released before it, taken back or not."""
    clocked.add(A, {"a": "string"}, {record_id(1): {"a": "1"}})
    clocked.pass_days(1)
    clocked.reload(A, {record_id(1): {"b": "1"}}, "schema_changed", columns={"b": "string"})
    clocked.reload(A, {record_id(1): {"c": "1"}}, "schema_changed", columns={"c": "string"})
    clocked.api.keep(A, 2, "released_again")
    since = datetime(2026, 10, 2, tzinfo=UTC)
    with ploti.Client(**clocked.api.client_options) as client, changes_since(client, SUBSCRIPTION, since) as changes:
        told = [(each.version["version"], each.schema["schemaVersion"]) for each in changes if each.schema is not None]
    assert told == [(3, "2.0"), (3, "3.0")]


def test_a_schema_is_told_once_however_its_number_sorts_as_text(clocked):
    columns = {"a": "string"}
    clocked.add(A, columns, {record_id(1): {"a": "1"}})
    clocked.pass_days(1)
    for number in range(11):
        columns = columns | {f"c{number}": "string"}
        clocked.update(A, columns=columns, put={record_id(1): dict.fromkeys(columns, "1")})
    since = datetime(2026, 10, 2, tzinfo=UTC)
    with ploti.Client(**clocked.api.client_options) as client, changes_since(client, SUBSCRIPTION, since) as changes:
        told = [each.schema["schemaVersion"] for each in changes if each.schema is not None]
    assert told == [f"1.{number}" for number in range(1, 12)]


NOW = datetime(2026, 10, 18, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-10-18T06:00Z", datetime(2026, 10, 18, 6, tzinfo=UTC)),
        ("2026-10-18T06:00:00+02:00", datetime(2026, 10, 18, 4, tzinfo=UTC)),
        ("2026-10-17", datetime(2026, 10, 17).astimezone(UTC)),  # the user's own zone
        ("7d", NOW - timedelta(days=7)),
        ("90 m", NOW - timedelta(minutes=90)),
        ("2w", NOW - timedelta(weeks=2)),
        ("24h", NOW - timedelta(hours=24)),
    ],
)
def test_a_moment_is_a_date_a_time_or_how_long_ago(text, found):
    assert since_when(text, NOW) == found


@pytest.mark.parametrize("text", ["tuesday", "", "7", "99999999d", "2026-13-01"])
def test_what_is_no_moment_is_told(text):
    with pytest.raises(ploti.FixRequest, match="no moment"):
        since_when(text, NOW)
