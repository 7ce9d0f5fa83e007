"""What a version delivers, read from its files: one test for each sentence of page 001 on files, envelope and changes.

The story: a keyed dataset whose second state edits a record, renumbers one, edits and renumbers one, drops one, adds
one, and moves the year that every row has.
"""

import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.publishing import DATASET, Publisher

from ploti.contract.digest import Digest
from ploti_server.api.shapes import filed_place
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.schema import Column, Schema
from ploti_server.domain.states import StateRead
from ploti_server.pipeline.begin import begin
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.pipeline.write import Built
from ploti_server.ports import Judgement
from ploti_server.rows.envelope import Envelope, arrow_schema, with_envelope
from ploti_server.rows.geoparquet import write_parts
from ploti_server.testing import FakeAgent

URL = "https://gis.example.org/permits.csv"
NAMES = ("permit", "owner", "street")


def state(year, *, edited=(), without=(), more=()):
    """Write a CSV of permits by the number of their record, some told otherwise."""
    rows = {n: (f"P-{n}", f"owner {n}", f"{n} Oak St") for n in range(40)} | dict(edited) | dict(more)
    lines = [",".join((*row, year)) for n, row in rows.items() if n not in without]
    return "\n".join(["permit,owner,street,year", *lines]) + "\n"


EDITED, RENUMBERED, BOTH, GONE, NEW = "P-1", "Q-2", "Q-3", "P-4", "P-40"
FIRST = state("2025")
SECOND = state(
    "2026",
    edited={
        1: (EDITED, "owner 1", "1 Elm Ave"),
        2: (RENUMBERED, "owner 2", "2 Oak St"),
        3: (BOTH, "owner 3", "3 Elm Ave"),
    },
    without=(4,),
    more={40: (NEW, "owner 40", "40 Oak St")},
)


def same_owner(pair):
    return Judgement(pair.pair_id, pair.old["owner"] == pair.new["owner"], 0.9)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A publisher of two versions, filed under Orange County, and of a third that replaces the ids."""
    folder = tmp_path_factory.mktemp("told")
    publisher = Publisher(folder, key=("permit",), place="fl-county-orange", source=SourceSpec("file", URL))
    publisher.ports = replace(publisher.ports, agent=FakeAgent(same_owner))
    assert publisher.outcome(FIRST) == ("released", 1)
    later = publisher.clock.advance(hours=1)
    publisher.clock.advance(minutes=20)
    (folder / "second.csv").write_text(SECOND)
    assert publisher.work([take_state(publisher.ports, DATASET, GivenState(folder / "second.csv", later))]) == [
        ("released", 2)
    ]
    publisher.same = publisher.outcome(SECOND)
    assert publisher.replace_ids() == [("released", 3)]
    return publisher


def parts(publisher, number, kind):
    version = publisher.version(number)
    return [publisher.ports.files.local(f"{version.folder}/{file.path}") for file in version.files_of(kind)]


def schema(publisher, number, kind):
    return pq.read_schema(parts(publisher, number, kind)[0])


def changes(publisher, name=None):
    """Give the second version's changes, or one column of them, by the owner's number; `GONE` for the deleted one."""
    found = {row["permit"] or GONE: row for row in publisher.rows(2, "changes")}
    return {permit: row[name] for permit, row in found.items()} if name else found


def own(row):
    return tuple(row[name] for name in NAMES)


def by_permit(publisher, number):
    return {row["permit"]: row for row in publisher.rows(number)}


def test_the_snapshot_is_the_whole_dataset_as_of_the_version(told):
    for number, text in ((1, FIRST), (2, SECOND)):
        rows = sorted(",".join((*own(row), str(row["year"]))) for row in told.rows(number))
        assert rows == sorted(text.splitlines()[1:])


def test_the_changes_are_what_differs_from_the_previous_version_and_a_reload_has_none(told):
    before, after = ({row["_ploti_record_id"]: own(row) for row in told.rows(number)} for number in (1, 2))
    differs = {id_ for id_ in before.keys() | after.keys() if before.get(id_) != after.get(id_)}
    assert {row["_ploti_record_id"] for row in changes(told).values()} == differs
    assert len(differs) == 5
    assert parts(told, 1, "changes") == []


def manifest(publisher, number):
    return json.loads(b"".join(publisher.ports.files.read(f"{publisher.version(number).folder}/manifest.json")))


def test_a_schema_and_a_manifest_with_every_files_size_and_checksum_come_along(told):
    for number, kinds in ((1, ["snapshot"]), (2, ["snapshot", "changes"])):
        folder = told.version(number).folder
        listed = {file["path"]: (file["sizeBytes"], file["sha256"]) for file in manifest(told, number)["files"]}
        assert listed.keys() == {*(f"{kind}/part-0000.parquet" for kind in kinds), "schema.json"}
        for path, facts in listed.items():
            content = b"".join(told.ports.files.read(f"{folder}/{path}"))
            assert (len(content), hashlib.sha256(content).hexdigest()) == facts
        assert {"schema.json", "manifest.json", *listed} == {file.path for file in told.version(number).files}


def test_an_id_map_comes_only_with_a_version_that_replaced_ids(told):
    maps = {n: (told.version(n).record_ids_changed, len(parts(told, n, "id-map"))) for n in (1, 2, 3)}
    assert maps == {1: (False, 0), 2: (False, 0), 3: (True, 1)}


def test_versions_are_numbered(told):
    assert [number for number, _ in told.chain()] == [1, 2, 3]
    assert [manifest(told, number)["version"] for number in (1, 2, 3)] == [1, 2, 3]


def test_each_new_state_of_the_source_is_a_new_version_and_the_same_state_is_none(told):
    assert told.version(2).fetched_at > told.version(1).fetched_at
    assert told.same == ("unchanged", 2)


def test_a_version_to_reload_has_no_changes_files(told):
    for number, more in ((1, []), (3, ["id-map/part-0000.parquet"])):
        assert manifest(told, number)["resyncRequired"]
        paths = [file["path"] for file in manifest(told, number)["files"]]
        assert paths == ["snapshot/part-0000.parquet", *more, "schema.json"]


class TestEnvelope:
    @pytest.mark.parametrize("kind", ["snapshot", "changes"])
    def test_it_stands_ahead_of_the_datasets_own_columns(self, told, kind):
        names = schema(told, 2, kind).names
        ahead = [name for name in names if name.startswith("_ploti_")]
        assert names == [*ahead, *NAMES, "year"]
        assert ahead[:6] == [
            "_ploti_record_id",
            "_ploti_dataset_id",
            "_ploti_place_id",
            "_ploti_version",
            "_ploti_source_url",
            "_ploti_fetched_at",
        ]

    def test_changes_files_alone_add_columns_to_it(self, told):
        added = [name for name in schema(told, 2, "changes").names if name not in schema(told, 2, "snapshot").names]
        assert added == [
            "_ploti_op",
            "_ploti_change",
            "_ploti_delete_reason",
            "_ploti_changed_columns",
            "_ploti_match",
            "_ploti_match_score",
        ]

    def check(self, told, name, type_, of_version):
        """A column has one type, and one value in the rows of a version."""
        for number, kind in ((1, "snapshot"), (2, "snapshot"), (2, "changes")):
            assert schema(told, number, kind).field(name).type == type_
            assert {row[name] for row in told.rows(number, kind)} == {of_version(told.version(number))}

    def test_record_id_is_a_text_of_its_own_for_each_record(self, told):
        assert schema(told, 2, "changes").field("_ploti_record_id").type == pa.string()
        for number in (1, 2):
            ids = [row["_ploti_record_id"] for row in told.rows(number)]
            assert len(set(ids)) == len(ids) == 40
            assert all(re.fullmatch(r"rec_\w+", id_) for id_ in ids)

    def test_dataset_id_names_the_dataset(self, told):
        self.check(told, "_ploti_dataset_id", pa.string(), lambda _: DATASET)

    def test_place_id_is_where_the_dataset_is_filed_be_it_a_county_or_us(self, told, tmp_path):
        self.check(told, "_ploti_place_id", pa.string(), lambda _: "fl-county-orange")
        assert begun(tmp_path, place="us")["_ploti_place_id"] == "us"

    def test_place_id_is_the_datasets_place_id_one_county_for_one_that_covers_several(self, tmp_path):
        covers = ("fl-county-seminole", "fl-county-orange")
        place = begun(tmp_path, place=None, covers=covers)["_ploti_place_id"]
        dataset = Dataset(DATASET, "X", SourceSpec("file", URL), covers=covers)
        assert place == filed_place(dataset.filed_place)["id"] == "fl-county-seminole"

    def test_place_id_is_null_for_a_dataset_with_no_place(self, tmp_path):
        assert begun(tmp_path, place=None)["_ploti_place_id"] is None

    def test_version_is_the_one_that_the_row_is_as_of(self, told):
        self.check(told, "_ploti_version", pa.int64(), lambda version: version.number)

    def test_source_url_is_where_the_version_was_read(self, told):
        self.check(told, "_ploti_source_url", pa.string(), lambda _: URL)

    def test_source_url_is_null_where_the_source_has_no_web_address(self, tmp_path):
        assert begun(tmp_path, source=SourceSpec("file", "/srv/permits.csv"))["_ploti_source_url"] is None

    def test_fetched_at_is_when_the_version_was_read_in_utc(self, told):
        read = {number: told.version(number).fetched_at for number in (1, 2)}
        assert (read[2] - read[1]).total_seconds() == 3600
        self.check(told, "_ploti_fetched_at", pa.timestamp("us", tz="UTC"), lambda v: read[v.number].astimezone(UTC))

    def test_one_question_about_what_changed_since_a_day_is_asked_of_any_datasets_together(self, told, tmp_path):
        wells = arrow_schema(Schema((Column("depth", "number", True, "DEPTH"),)), "changes")
        read = told.version(2).fetched_at
        other = Envelope("ds_wells", "us", 9, None, read)
        row = {"_ploti_record_id": ["rec_a"], "_ploti_op": ["upsert"], "_ploti_change": ["added"], "depth": [3.5]}
        (part,) = write_parts(
            with_envelope(iter([pa.RecordBatch.from_pydict(row)]), other, wells),
            kind="changes", schema=wells, folder=tmp_path, geometry_type=None, metadata={},
        )  # fmt: skip
        files = [str(file) for file in (*parts(told, 2, "changes"), part.local)]
        found = duckdb.sql(
            "SELECT _ploti_dataset_id, _ploti_place_id, _ploti_change, count(*)"
            f" FROM read_parquet({files}, union_by_name = true)"
            f" WHERE _ploti_fetched_at >= '{read.isoformat()}' GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        assert found == [
            ("ds_wells", "us", "added", 1),
            (DATASET, "fl-county-orange", "added", 1),
            (DATASET, "fl-county-orange", "changed", 3),
            (DATASET, "fl-county-orange", "removed", 1),
        ]


def begun(folder, **fields):
    """Begin to build a version; give what a row of it carries ahead of its own columns."""
    publisher = Publisher(folder, **fields)
    state = folder / "state.csv"
    state.write_text(FIRST)
    version = begin(publisher.ports, take_state(publisher.ports, DATASET, GivenState(state))).version
    envelope = Built(version, StateRead(Schema(()), (), 1), Digest()).envelope
    rows = iter([pa.RecordBatch.from_pydict({"_ploti_record_id": ["rec_a"]})])
    return next(with_envelope(rows, envelope, arrow_schema(Schema(()), "snapshot"))).to_pylist()[0]


class TestChanges:
    def test_op_is_upsert_or_delete(self, told):
        upserts = dict.fromkeys((EDITED, RENUMBERED, BOTH, NEW), "upsert")
        assert changes(told, "_ploti_op") == {**upserts, GONE: "delete"}

    def test_change_is_added_changed_or_removed(self, told):
        changed = dict.fromkeys((EDITED, RENUMBERED, BOTH), "changed")
        assert changes(told, "_ploti_change") == {**changed, NEW: "added", GONE: "removed"}

    def test_delete_reason_is_removed_at_source_on_deletes_and_null_on_the_others(self, told):
        others = dict.fromkeys((EDITED, RENUMBERED, BOTH, NEW))
        assert changes(told, "_ploti_delete_reason") == {**others, GONE: "removed_at_source"}

    def test_changed_columns_are_named_on_changed_rows(self, told):
        assert changes(told, "_ploti_changed_columns") == {
            EDITED: ["street"],
            RENUMBERED: ["permit"],
            BOTH: ["permit", "street"],
            NEW: None,
            GONE: None,
        }

    def test_match_is_told_on_changed_rows(self, told):
        told_of = {EDITED: "key", RENUMBERED: "content", BOTH: "agent"}
        assert changes(told, "_ploti_match") == {**told_of, NEW: None, GONE: None}

    def test_match_score_is_the_agents_confidence_on_its_matches(self, told):
        others = dict.fromkeys((EDITED, RENUMBERED, NEW, GONE))
        assert changes(told, "_ploti_match_score") == {**others, BOTH: 0.9}

    def test_a_file_holds_one_row_per_change_with_the_record_as_of_this_version(self, told):
        rows = {row["_ploti_record_id"]: row for row in told.rows(2, "changes")}
        assert len(rows) == len(told.rows(2, "changes")) == 5
        now = {row["_ploti_record_id"]: row for row in told.rows(2) if row["_ploti_record_id"] in rows}
        assert len(now) == 4
        assert {id_: {name: rows[id_][name] for name in row} for id_, row in now.items()} == now

    def test_a_delete_carries_the_envelope_alone(self, told):
        row = changes(told)[GONE]
        assert [row[name] for name in (*NAMES, "year")] == [None] * 4
        was = by_permit(told, 1)[GONE]
        assert row["_ploti_record_id"] == was["_ploti_record_id"]
        assert (row["_ploti_dataset_id"], row["_ploti_version"], row["_ploti_source_url"]) == (DATASET, 2, URL)

    def test_match_is_key_for_the_same_key_content_for_the_rest_alike_agent_for_a_judgement(self, told):
        before = {row["_ploti_record_id"]: own(row) for row in told.rows(1)}
        same = {"key": lambda o, n: o[0] == n[0], "content": lambda o, n: o[1:] == n[1:], "agent": lambda o, n: False}
        for row in told.rows(2, "changes"):
            if row["_ploti_change"] == "changed":
                old, new = before[row["_ploti_record_id"]], own(row)
                assert row["_ploti_match"] == next((way for way in same if same[way](old, new)), "agent")

    def test_a_deleted_record_is_none_of_this_version_and_its_reason_is_removed_at_source(self, told):
        (deleted,) = [row for row in told.rows(2, "changes") if row["_ploti_op"] == "delete"]
        assert deleted["_ploti_record_id"] in {row["_ploti_record_id"] for row in told.rows(1)}
        assert deleted["_ploti_record_id"] not in {row["_ploti_record_id"] for row in told.rows(2)}
        assert deleted["_ploti_delete_reason"] == "removed_at_source"

    def test_record_ids_carry_across_versions(self, told):
        before, after = told.ids(1, "owner"), told.ids(2, "owner")
        assert {owner: after[owner] for owner in after if owner in before} == {
            owner: before[owner] for owner in before if owner in after
        }
