"""A source's columns may be called as those that a build itself works with (D2.1, D5.5)."""

from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq
import pytest
from tests.empty_store import put_empty_home

from ploti_server.app import build_ports
from ploti_server.domain.datasets import Dataset, GeometryColumns, SourceSpec, Topic
from ploti_server.domain.settings import Settings
from ploti_server.pipeline.check import GivenState, take_state
from ploti_server.worker import new_owner, work_one

HEADER = "_row,_hilbert,bbox,new,old,_match,_score,_place,x,y\n"
FIRST = HEADER + "r7,a,p,1,1,m,s,q,-81.5,28.5\nr3,b,p,2,2,m,s,q,-81.6,28.6\nr5,c,p,3,3,m,s,q,-81.7,28.7\n"
SECOND = HEADER + "r3,b,p,2,2,m,s,q,-81.6,28.6\nr9,d,p,4,4,m,s,q,-81.9,28.9\nr7,a,other,1,1,m,s,q,-81.5,28.5\n"


@pytest.fixture(params=[("_row",), ()], ids=["keyed", "unkeyed"])
def publish(request, tmp_path):
    """Publish states of a dataset, one a day, and give each version's rows by kind of file."""
    ports = build_ports(Settings.of(home=put_empty_home(tmp_path / "home")))
    source = SourceSpec("file", "odd.csv", geometry=GeometryColumns(x="x", y="y"), crs=("EPSG:4326",))
    dataset = Dataset(
        "ds_odd", "Odd", source, place="fl-county-orange", topic="development-activity", key=request.param
    )
    with ports.store.write() as records:
        records.catalog.put_topics([Topic("development-activity", "Development activity")])
        records.catalog.put_dataset(dataset)
    days = iter(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(9))

    def run(text):
        state = tmp_path / "odd.csv"
        state.write_text(text)
        checked = work_one(ports, new_owner(), take_state(ports, "ds_odd", GivenState(state, next(days))).id)
        assert checked.outcome == "released", checked
        with ports.store.read() as records:
            version = records.versions.get("ds_odd", checked.version)
        return {
            kind: [row for f in version.files_of(kind) for row in read(ports, version, f)]
            for kind in ("snapshot", "changes")
        }

    return run


def read(ports, version, file):
    return pq.read_table(ports.files.local(f"{version.folder}/{file.path}"), partitioning=None).to_pylist()


def own(rows):
    return {(row["_row"], row["_hilbert"], row["bbox"], row["old"]) for row in rows}


def test_rows_of_odd_columns_are_published_and_followed(publish):
    first, second = publish(FIRST), publish(SECOND)
    assert own(first["snapshot"]) == {("r7", "a", "p", 1), ("r3", "b", "p", 2), ("r5", "c", "p", 3)}
    assert own(second["snapshot"]) == {("r3", "b", "p", 2), ("r9", "d", "p", 4), ("r7", "a", "other", 1)}
    ids = {row["_row"]: row["_ploti_record_id"] for row in first["snapshot"]}
    kept = {row["_row"]: row["_ploti_record_id"] for row in second["snapshot"]}
    assert kept["r3"] == ids["r3"]
    assert {row["_ploti_op"] for row in second["changes"]} == {"upsert", "delete"}
    assert len(second["changes"]) == (3 if kept["r7"] == ids["r7"] else 4)
    assert all(row["_ploti_bbox"] is not None for row in second["snapshot"])
