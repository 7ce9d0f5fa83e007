"""What became of record ids, one or many (page 001, D4.3)."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ploti_server.domain.versions import StoredFile, VersionStatus
from ploti_server.rows.ledger import LEDGER_SCHEMA

PATH = "/v1/feeds/datasets/ds_orange/records"
COLUMNS = ("_ploti_record_id", "version", "what", "replaced_by", "key_text", "content_hash", "ordinal", "first_version")


def put(served, number, *entries, **other):
    """Put a version whose ledger part has entries of an id, what became of it, and what replaced it."""
    version = served.version("ds_orange", number, base=number - 1 or None, **other)
    rows = [(id_, number, what, by, None, None, 0, first) for id_, what, by, first in entries]
    part = served.ports.home / "part"
    pq.write_table(pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows], LEDGER_SCHEMA), part)
    file = StoredFile("ledger/part-0000.parquet", "application/vnd.apache.parquet", part.stat().st_size, "0" * 64)
    served.ports.files.put(f"{version.folder}/ledger/part-0000.parquet", part)
    with served.ports.store.write() as records:
        records.versions.put(replace(version, staff_files=(file,)))


@pytest.fixture
def subscribed(served):
    served.subscribe(datasetIds=["ds_orange"])
    return served


def test_record_is_told_by_any_id_that_it_ever_had(subscribed):
    put(subscribed, 1, ("rec_a", "current", None, 1), ("rec_b", "current", None, 1), ("rec_c", "current", None, 1))
    put(
        subscribed,
        2,
        ("rec_a", "replaced_by", "rec_d", 1),
        ("rec_d", "current", None, 2),
        ("rec_c", "removed", None, 1),
    )
    put(subscribed, 3, ("rec_d", "replaced_by", "rec_e", 2), ("rec_e", "current", None, 3))
    told = {id_: list(subscribed.get(f"{PATH}/{id_}").json().values()) for id_ in ("rec_a", "rec_b", "rec_c", "rec_e")}
    assert told == {
        "rec_a": ["ds_orange", "rec_a", "replaced", 1, 1, "rec_d", "rec_e"],
        "rec_b": ["ds_orange", "rec_b", "current", 1, 3, None, "rec_b"],
        "rec_c": ["ds_orange", "rec_c", "removed", 1, 1, None, None],
        "rec_e": ["ds_orange", "rec_e", "current", 3, 3, None, "rec_e"],
    }
    asked = ["rec_e", "rec_nobody", "rec_a", "rec_b", "rec_c", "rec_a"]
    many = subscribed.post(PATH, {"records": asked}).json()
    assert {each["recordId"]: list(each.values()) for each in many["records"]} == told
    assert [each["recordId"] for each in many["records"]] == ["rec_e", "rec_a", "rec_b", "rec_c"]
    assert many["missing"] == ["rec_nobody"]


def test_ids_of_versions_that_were_never_sent_are_unknown_and_those_of_one_released_again_are_not(subscribed):
    put(subscribed, 1, ("rec_a", "current", None, 1))
    put(subscribed, 2, ("rec_b", "current", None, 2), status=VersionStatus.RELEASED_AGAIN, previous_version=1)
    put(subscribed, 3, ("rec_c", "current", None, 3), status=VersionStatus.HELD, previous_version=2)
    assert subscribed.get(f"{PATH}/rec_b").json()["status"] == "current"
    hidden, unknown = subscribed.get(f"{PATH}/rec_c"), subscribed.get(f"{PATH}/rec_nobody")
    assert (hidden.status_code, hidden.text) == (404, unknown.text)


@pytest.mark.parametrize(
    ("dataset", "status", "code"),
    [
        ("ds_unknown", 404, "not_found"),
        ("ds_kings", 409, "outside_coverage"),
        ("ds_withheld", 409, "not_deliverable"),
        ("ds_florida", 409, "not_subscribed"),
    ],
)
def test_it_is_refused_as_a_version_is(subscribed, dataset, status, code):
    path = f"/v1/feeds/datasets/{dataset}/records"
    for answer in (subscribed.get(f"{path}/rec_a"), subscribed.post(path, {"records": ["rec_a"]})):
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    "body", [[], {}, {"records": []}, {"records": [""]}, {"records": [1]}, {"records": ["rec_a"] * 1_001},
             {"records": ["rec_a"], "more": 1}, {"records": ["r" * 101]}],
)  # fmt: skip
def test_a_body_that_names_no_records_is_refused(subscribed, body):
    answer = subscribed.post(PATH, body)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, "records")


def test_while_a_part_of_the_ledger_is_lost_nothing_false_is_told(subscribed):
    put(subscribed, 1, ("rec_a", "current", None, 1))
    put(subscribed, 2, ("rec_a", "removed", None, 1))
    (part,) = (p for p in subscribed.ports.files.paths("ds_orange/versions/2/") if "/ledger/" in p)
    subscribed.ports.files.remove(part)
    for told in (subscribed.get(f"{PATH}/rec_a"), subscribed.post(PATH, {"records": ["rec_a"]})):
        assert (told.status_code, told.json()["error"]["code"]) == (410, "expired")
        assert "next check" in told.json()["error"]["message"]
