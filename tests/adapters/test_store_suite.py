"""What the store promises in `ports.py`, sentence by sentence, over the fake, SQLite and PostgreSQL."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy.exc import IntegrityError

from ploti.contract import events as wire
from ploti_server.domain.checks import Check, CheckStatus, Refresh
from ploti_server.domain.datasets import (
    Dataset,
    GeometryColumns,
    License,
    MatchingLimits,
    ReviewLimits,
    SourceSpec,
    Topic,
)
from ploti_server.domain.events import NewEvent
from ploti_server.domain.schema import (
    Column,
    KnownColumn,
    NullabilityChange,
    Retype,
    Schema,
    SchemaChange,
    SchemaVersion,
)
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.versions import Counts, StoredFile, Version, VersionStatus
from ploti_server.domain.workspaces import ApiKey, Member, Workspace
from ploti_server.ports import NameTaken

NOW = datetime(2026, 3, 1, 12, 30, 15, 123000, tzinfo=UTC)
HOUR = timedelta(hours=1)
UNKNOWN_PARENT = (IntegrityError, LookupError)

FULL_DATASET = Dataset(
    "ds_full",
    "Wohnungen – Zürich ☂",
    SourceSpec("arcgis", "https://example.org/0", "a.b", GeometryColumns("x", "y"), ("EPSG:2263", "EPSG:4326"), False),
    description='Text with "quotes"\nand lines',
    place="fl-county-lee",
    covers=("fl-county-lee", "fl-county-polk"),
    topic="zoning",
    publisher="County",
    license=License("CC-BY-4.0", "County", "https://example.org/l"),
    data_atlas_id="atlas-1",
    key=("PARCEL", "Unit"),
    columns={"PARCEL": "string", "Area": "number"},
    volatile=("row",),
    drop=("secret",),
    documents=("pdf",),
    timezone="America/New_York",
    check_every=timedelta(hours=6, microseconds=1),
    review=ReviewLimits(max_row_drop=0.1 + 0.2, release_after_agreeing_checks=3),
    matching=MatchingLimits(max_judged=7),
    deliverable=False,
    retired=True,
)
FULL_VERSION = Version(
    "ds_a",
    7,
    2,
    VersionStatus.HELD,
    check_id=3,
    base=5,
    previous_version=4,
    schema_version="2.10",
    schema=Schema((Column("id", "string", False, "ID"), Column("geometry", "geometry", True, "g", True, "Point", "d"))),
    schema_change=SchemaChange(
        "breaking",
        SchemaVersion(1, 12),
        (Column("n", "integer", True, "N"),),
        ("old",),
        (Retype("t", "integer", "number"),),
        (NullabilityChange("u", False, True),),
        True,
    ),
    known_columns=(KnownColumn("id", "ID"),),
    row_count=3_000_000_000,
    counts=Counts(1, 2, 3),
    resync_reason="schema_changed",
    record_ids_changed=True,
    id_epoch=1,
    source_url="https://example.org",
    place_id="fl-county-lee",
    fetched_at=NOW,
    built_at=NOW + HOUR,
    released_at=None,
    facts={"share": 0.1, "nested": {"list": [1, None, True, "x"]}},
    reasons=("schema_review", "data_check"),
    fingerprint="ab" * 32,
    files=(StoredFile("snapshot/part-0000.parquet", "application/x", 10, "00" * 32, 5),),
    staff_files=(StoredFile("rejects/part-0000.parquet", "application/x", 1, "11" * 32),),
    note="why",
)
WORKSPACE = Workspace("w1", "Lee", ("fl-county-lee",), None, NOW)


def dataset(name):
    return Dataset(name, name.upper(), SourceSpec("csv", f"https://example.org/{name}"))


def check(of, status=CheckStatus.QUEUED, **parts):
    return Check(0, of, status, NOW, NOW, **parts)


def version(number, status=VersionStatus.RELEASED, of="ds_a"):
    return Version(of, number, 1, status, 1)


def subscription(name, workspace="w1", at=NOW):
    return Subscription(name, workspace, "N", ("fl",), (), (), 1, at, at)


def event(of="ds_a", kind=wire.ADDED, **data):
    return NewEvent(kind, of, {"datasetId": of, **data})


def key(name, workspace="w1", at=NOW, **parts):
    return ApiKey(name, workspace, "kim", "admin", ("feeds",), f"hash-{name}", at, **parts)


def numbers(rows):
    return [row.number for row in rows]


def ids(rows):
    return [row.id for row in rows]


@pytest.fixture
def filled(store):
    """A store with two datasets, a workspace and one subscription."""
    with store.write() as records:
        for name in ("ds_b", "ds_a"):
            records.catalog.put_dataset(dataset(name))
        records.workspaces.put(WORKSPACE)
        records.subscriptions.put(subscription("sub_1"))
    return store


class TestTransactions:
    def test_block_that_ends_is_committed(self, store):
        with store.write() as records:
            records.catalog.put_dataset(dataset("ds_a"))
        with store.read() as records:
            assert records.catalog.dataset("ds_a") == dataset("ds_a")

    def test_exception_rolls_everything_back(self, filled):
        with pytest.raises(ZeroDivisionError), filled.write() as records:
            records.catalog.put_dataset(dataset("ds_c"))
            records.events.append("sub_1", [event()], NOW)
            records.subscriptions.join("sub_1", "ds_a")
            records.secrets.get_or_put("links", "lost")
            raise ZeroDivisionError
        with filled.write() as records:
            assert records.catalog.dataset("ds_c") is None
            assert records.events.newest("sub_1") == 0
            assert records.events.after("sub_1", 0, 10) == ()
            assert records.subscriptions.joined("sub_1") == ()
            assert records.secrets.get_or_put("links", "kept") == "kept"

    def test_transaction_sees_what_it_wrote(self, filled):
        with filled.write() as records:
            records.versions.put(version(1))
            assert records.versions.current("ds_a") == version(1)

    def test_reader_does_not_see_an_open_transaction(self, filled):
        with filled.write() as writer:
            writer.versions.put(version(1))
            with filled.read() as reader:
                assert reader.versions.current("ds_a") is None
        with filled.read() as reader:
            assert reader.versions.current("ds_a") == version(1)

    def test_one_view_stays_as_it_was(self, filled):
        with filled.read() as reader:
            before = reader.events.newest("sub_1")
            with filled.write() as writer:
                writer.events.append("sub_1", [event()], NOW)
                writer.versions.put(version(1))
            assert reader.events.newest("sub_1") == before == 0
            assert reader.events.after("sub_1", 0, 10) == ()
            assert reader.versions.current("ds_a") is None

    @pytest.mark.parametrize(
        "writing",
        [
            lambda r: r.catalog.put_dataset(dataset("ds_a")),
            lambda r: r.catalog.put_topics([Topic("t", "T")]),
            lambda r: r.catalog.put_refresh("ds_a", Refresh()),
            lambda r: r.catalog.lock(["ds_a"]),
            lambda r: r.checks.add(check("ds_a")),
            lambda r: r.checks.claim("w", NOW, NOW + HOUR),
            lambda r: r.checks.beat(1, "w", NOW),
            lambda r: r.versions.put(version(1)),
            lambda r: r.versions.drop("ds_a", 1),
            lambda r: r.workspaces.put(WORKSPACE),
            lambda r: r.workspaces.remove("w1"),
            lambda r: r.workspaces.put_member(Member("w1", "kim", "admin")),
            lambda r: r.workspaces.put_key(key("k1")),
            lambda r: r.subscriptions.put(subscription("sub_1")),
            lambda r: r.subscriptions.remove("sub_1"),
            lambda r: r.subscriptions.try_lock("sub_1"),
            lambda r: r.subscriptions.join("sub_1", "ds_a"),
            lambda r: r.subscriptions.leave("sub_1", "ds_a"),
            lambda r: r.events.append("sub_1", [event()], NOW),
            lambda r: r.secrets.get_or_put("n", "v"),
        ],
    )
    def test_writing_in_a_view_is_an_error(self, filled, writing):
        with filled.read() as records, pytest.raises(RuntimeError, match=r"store\.write\(\)"):
            writing(records)

    def test_writing_goes_on_after_a_refused_write(self, filled):
        with filled.read() as records, pytest.raises(RuntimeError):
            records.secrets.get_or_put("n", "v")
        with filled.write() as records:
            assert records.secrets.get_or_put("n", "w") == "w"


class TestCatalog:
    def test_topics_keep_catalog_order_and_are_replaced_whole(self, store):
        with store.write() as records:
            records.catalog.put_topics([Topic("z", "Zoning"), Topic("a", "Air"), Topic("m", "Mines")])
            records.catalog.put_topics([Topic("m", "Mines"), Topic("b", "Birds")])
            assert records.catalog.topics() == (Topic("m", "Mines"), Topic("b", "Birds"))
            records.catalog.put_topics([])
            assert records.catalog.topics() == ()

    def test_every_field_of_a_dataset_comes_back(self, store):
        with store.write() as records:
            records.catalog.put_dataset(FULL_DATASET)
        with store.read() as records:
            assert records.catalog.dataset("ds_full") == FULL_DATASET

    def test_unknown_dataset_is_none(self, store):
        with store.read() as records:
            assert records.catalog.dataset("ds_x") is None

    def test_datasets_come_by_id_in_code_point_order_retired_ones_too(self, store):
        names = ["ds_b", "ds-a", "ds_a", "DS_C", "ds_é", "ds_a1", "ds_Z"]
        with store.write() as records:
            for name in names:
                records.catalog.put_dataset(replace(dataset(name), retired=name == "ds_a"))
            assert ids(records.catalog.datasets()) == sorted(names)

    def test_putting_again_replaces_the_definition(self, filled):
        with filled.write() as records:
            records.catalog.put_dataset(replace(FULL_DATASET, id="ds_a"))
            assert records.catalog.dataset("ds_a") == replace(FULL_DATASET, id="ds_a")
            assert ids(records.catalog.datasets()) == ["ds_a", "ds_b"]

    def test_locking_any_ids_goes_on(self, filled):
        with filled.write() as records:
            records.catalog.lock(["ds_b", "ds_a", "ds_unknown"])
            records.catalog.lock([])
            records.catalog.put_dataset(dataset("ds_a"))

    def test_refresh_is_empty_before_the_first_check(self, filled):
        with filled.read() as records:
            assert records.catalog.refresh("ds_a") == Refresh()

    def test_refresh_is_stored_and_replaced(self, filled):
        with filled.write() as records:
            records.catalog.put_refresh("ds_a", Refresh(NOW, NOW + HOUR, NOW))
            records.catalog.put_refresh("ds_a", Refresh(NOW + HOUR, None))
            assert records.catalog.refresh("ds_a") == Refresh(NOW + HOUR, None, None)
            assert records.catalog.refresh("ds_b") == Refresh()

    def test_refresh_outlives_a_new_definition(self, filled):
        with filled.write() as records:
            records.catalog.put_refresh("ds_a", Refresh(NOW))
            records.catalog.put_dataset(replace(dataset("ds_a"), title="New"))
            assert records.catalog.refresh("ds_a") == Refresh(NOW)


class TestMoments:
    @pytest.mark.parametrize(
        "moment",
        [
            NOW,
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
            datetime(2026, 3, 29, 1, 30, tzinfo=timezone(timedelta(hours=-5, minutes=-30))),
        ],
    )
    def test_comes_back_exact_aware_and_in_utc(self, filled, moment):
        with filled.write() as records:
            records.catalog.put_refresh("ds_a", Refresh(moment))
            records.versions.put(replace(version(1), fetched_at=moment))
            for read in (records.catalog.refresh("ds_a").last_checked_at, records.versions.get("ds_a", 1).fetched_at):
                assert read == moment
                assert read.utcoffset() == timedelta(0)

    def test_one_without_a_zone_is_refused(self, filled):
        naive = datetime(2026, 1, 1)  # noqa: DTZ001
        with filled.write() as records:
            for writing in (
                lambda: records.catalog.put_refresh("ds_a", Refresh(naive)),
                lambda: records.versions.put(replace(version(1), built_at=naive)),
            ):
                with pytest.raises(ValueError, match="time zone"):
                    writing()


class TestChecks:
    def test_ids_are_given_and_rise(self, filled):
        with filled.write() as records:
            first, second = records.checks.add(check("ds_a")), records.checks.add(check("ds_b"))
            assert 0 < first.id < second.id
            assert records.checks.get(first.id) == replace(check("ds_a"), id=first.id) == first
            assert records.checks.get(second.id + 1) is None

    def test_every_field_comes_back(self, filled):
        full = check(
            "ds_a",
            CheckStatus.FAILED,
            state_sha256="aa",
            file_name="a b.csv",
            source_url="https://example.org",
            outcome="failed",
            version=4,
            reason="HTTP 500",
            facts={"rows": 3, "share": 0.25},
            finished_at=NOW + HOUR,
            attempts=2,
            due_at=NOW,
            lease_owner="host:1",
            lease_until=NOW + HOUR,
        )
        with filled.write() as records:
            added = records.checks.add(full)
            assert records.checks.get(added.id) == replace(full, id=added.id)

    def test_put_replaces(self, filled):
        with filled.write() as records:
            added = records.checks.add(check("ds_a"))
            done = replace(added, status=CheckStatus.DONE, outcome="released", version=1)
            records.checks.put(done)
            assert records.checks.get(added.id) == done

    def test_put_of_an_unknown_check_is_an_error(self, filled):
        with filled.write() as records, pytest.raises(LookupError, match="99"):
            records.checks.put(replace(check("ds_a"), id=99))

    def test_unknown_dataset_is_an_error(self, filled):
        with pytest.raises(UNKNOWN_PARENT), filled.write() as records:
            records.checks.add(check("ds_x"))

    def test_open_ones_come_oldest_first(self, filled):
        with filled.write() as records:
            added = {status: records.checks.add(check("ds_a", status)) for status in reversed(CheckStatus)}
            records.checks.add(check("ds_b"))
            want = [CheckStatus.WAITING, CheckStatus.BUILDING, CheckStatus.QUEUED]
            assert records.checks.open_of("ds_a") == tuple(added[status] for status in want)

    def test_last_is_the_newest_by_id(self, filled):
        with filled.write() as records:
            assert records.checks.last_of("ds_a") is None
            records.checks.add(check("ds_a"))
            newest = records.checks.add(replace(check("ds_a", CheckStatus.DONE), created_at=NOW - HOUR))
            records.checks.add(check("ds_b"))
            assert records.checks.last_of("ds_a") == newest


class TestClaims:
    """`claim` and `beat`: which check is leased, to whom."""

    def claim(self, store, owner="w1", at=NOW, check_id=None):
        with store.write() as records:
            return records.checks.claim(owner, at, at + HOUR, check_id)

    def add(self, store, *checks):
        with store.write() as records:
            return [records.checks.add(c) for c in checks]

    def test_nothing_to_do_is_none(self, filled):
        assert self.claim(filled) is None

    def test_oldest_queued_is_leased_and_building(self, filled):
        first, _ = self.add(filled, check("ds_b"), check("ds_a"))
        leased = replace(first, status=CheckStatus.BUILDING, lease_owner="w1", lease_until=NOW + HOUR)
        assert self.claim(filled) == leased
        with filled.read() as records:
            assert records.checks.get(first.id) == leased

    def test_each_is_claimed_once(self, filled):
        added = self.add(filled, check("ds_a"), check("ds_b"))
        assert [self.claim(filled, owner).id for owner in ("w1", "w2")] == ids(added)
        assert self.claim(filled, "w3") is None

    @pytest.mark.parametrize(
        ("parts", "due"),
        [
            ({"status": CheckStatus.QUEUED}, True),
            ({"status": CheckStatus.QUEUED, "due_at": NOW}, True),
            ({"status": CheckStatus.QUEUED, "due_at": NOW + timedelta(milliseconds=1)}, False),
            ({"status": CheckStatus.QUEUED, "lease_owner": "old", "lease_until": NOW + HOUR}, True),
            ({"status": CheckStatus.BUILDING, "lease_owner": "old", "lease_until": NOW}, True),
            (
                {"status": CheckStatus.BUILDING, "lease_owner": "old", "lease_until": NOW + timedelta(milliseconds=1)},
                False,
            ),
            ({"status": CheckStatus.BUILDING}, True),
            ({"status": CheckStatus.WAITING}, True),
            ({"status": CheckStatus.WAITING, "due_at": NOW + HOUR}, False),
            ({"status": CheckStatus.WAITING, "due_at": NOW - HOUR}, True),
            ({"status": CheckStatus.WAITING, "lease_owner": "old", "lease_until": NOW + HOUR}, False),
            ({"status": CheckStatus.WAITING, "lease_owner": "old", "lease_until": NOW - HOUR}, True),
            ({"status": CheckStatus.DONE}, False),
            ({"status": CheckStatus.FAILED}, False),
            ({"status": CheckStatus.REPLACED}, False),
        ],
    )
    def test_what_is_due(self, filled, parts, due):
        self.add(filled, check("ds_a", **parts))
        assert (self.claim(filled) is not None) == due

    def test_waiting_check_stays_waiting(self, filled):
        self.add(filled, check("ds_a", CheckStatus.WAITING))
        assert self.claim(filled).status is CheckStatus.WAITING

    def test_lease_that_ran_out_is_taken_over(self, filled):
        self.add(filled, check("ds_a"))
        self.claim(filled, "dead")
        assert self.claim(filled, "w2", NOW + HOUR - timedelta(milliseconds=1)) is None
        assert self.claim(filled, "w2", NOW + HOUR).lease_owner == "w2"

    def test_datasets_oldest_open_check_goes_first(self, filled):
        first, second, other = self.add(filled, check("ds_a"), check("ds_a"), check("ds_b"))
        assert self.claim(filled).id == first.id
        assert self.claim(filled).id == other.id
        assert self.claim(filled) is None
        with filled.write() as records:
            records.checks.put(replace(first, status=CheckStatus.DONE))
        assert self.claim(filled).id == second.id

    def test_later_check_waits_for_one_that_is_not_due(self, filled):
        self.add(filled, check("ds_a", due_at=NOW + HOUR), check("ds_a"))
        assert self.claim(filled) is None

    def test_named_check_is_leased_before_it_is_due(self, filled):
        first, named = self.add(filled, check("ds_a"), check("ds_b", due_at=NOW + HOUR))
        assert self.claim(filled, check_id=named.id).id == named.id
        assert self.claim(filled).id == first.id

    @pytest.mark.parametrize("status", [CheckStatus.DONE, CheckStatus.FAILED, CheckStatus.REPLACED])
    def test_named_check_that_ended_is_none(self, filled, status):
        (ended,) = self.add(filled, check("ds_a", status))
        assert self.claim(filled, check_id=ended.id) is None

    def test_named_check_behind_another_or_leased_is_none(self, filled):
        first, second = self.add(filled, check("ds_a"), check("ds_a"))
        assert self.claim(filled, check_id=second.id) is None
        self.claim(filled, "w1", check_id=first.id)
        assert self.claim(filled, "w2", check_id=first.id) is None
        assert self.claim(filled, "w2", check_id=second.id) is None
        assert self.claim(filled, "w2", check_id=12345) is None

    def test_beat_prolongs_the_owners_lease(self, filled):
        (added,) = self.add(filled, check("ds_a"))
        self.claim(filled)
        with filled.write() as records:
            assert records.checks.beat(added.id, "w1", NOW + 3 * HOUR)
        assert self.claim(filled, "w2", NOW + 2 * HOUR) is None
        assert self.claim(filled, "w2", NOW + 3 * HOUR).lease_owner == "w2"

    def test_beat_is_false_where_the_lease_is_no_longer_the_owners(self, filled):
        (added,) = self.add(filled, check("ds_a"))
        self.claim(filled, "slow")
        self.claim(filled, "w2", NOW + HOUR)
        with filled.write() as records:
            assert not records.checks.beat(added.id, "slow", NOW + 9 * HOUR)
            assert records.checks.beat(added.id, "w2", NOW + 2 * HOUR)
            records.checks.put(replace(records.checks.get(added.id), status=CheckStatus.DONE))
            assert not records.checks.beat(added.id, "w2", NOW + 9 * HOUR)
            assert not records.checks.beat(added.id + 1, "w2", NOW + 9 * HOUR)


class TestVersions:
    def test_every_field_comes_back(self, filled):
        with filled.write() as records:
            records.versions.put(FULL_VERSION)
        with filled.read() as records:
            assert records.versions.get("ds_a", 7) == FULL_VERSION

    def test_hundreds_of_columns_come_back_in_order(self, filled):
        wide = Schema(tuple(Column(f"c{n}", "string", True, f"C {n} \u0000☂") for n in range(700)), ("c1", "c0"))
        with filled.write() as records:
            records.versions.put(replace(version(1), schema=wide))
            assert records.versions.get("ds_a", 1).schema == wide

    @pytest.mark.parametrize("status", VersionStatus)
    def test_is_found_in_any_status(self, filled, status):
        with filled.write() as records:
            records.versions.put(version(3, status))
            assert records.versions.get("ds_a", 3) == version(3, status)
            assert records.versions.get("ds_b", 3) is None
            assert records.versions.get("ds_a", 2) is None

    def test_put_replaces(self, filled):
        with filled.write() as records:
            records.versions.put(version(1, VersionStatus.HELD))
            records.versions.put(replace(version(1), released_at=NOW))
            assert records.versions.get("ds_a", 1) == replace(version(1), released_at=NOW)

    def test_unknown_dataset_is_an_error(self, filled):
        with pytest.raises(UNKNOWN_PARENT), filled.write() as records:
            records.versions.put(version(1, of="ds_x"))

    def test_current_is_the_newest_released(self, filled):
        with filled.write() as records:
            assert records.versions.current("ds_a") is None
            for number, status in [(2, "released"), (10, "released"), (9, "released"), (11, "held"), (12, "building")]:
                records.versions.put(version(number, VersionStatus(status)))
            records.versions.put(version(13, VersionStatus.RELEASED_AGAIN))
            records.versions.put(version(20, of="ds_b"))
            assert records.versions.current("ds_a").number == 10

    def test_newest_number_counts_every_status(self, filled):
        with filled.write() as records:
            assert records.versions.newest_number("ds_a") == 0
            records.versions.put(version(9))
            records.versions.put(version(10, VersionStatus.DISCARDED))
            assert records.versions.newest_number("ds_a") == 10
            assert records.versions.newest_number("ds_b") == 0

    @pytest.mark.parametrize(
        ("bounds", "want"),
        [
            ({}, [2, 3, 5, 8, 13]),
            ({"after": 2}, [3, 5, 8, 13]),
            ({"before": 8}, [2, 3, 5]),
            ({"after": 2, "before": 13}, [3, 5, 8]),
            ({"limit": 2}, [2, 3]),
            ({"newest_first": True}, [13, 8, 5, 3, 2]),
            ({"newest_first": True, "before": 13, "limit": 2}, [8, 5]),
            ({"newest_first": True, "after": 5}, [13, 8]),
            ({"after": 13}, []),
        ],
    )
    def test_released_between(self, filled, bounds, want):
        with filled.write() as records:
            for number in (8, 3, 13, 2, 5):
                records.versions.put(version(number))
            records.versions.put(version(4, VersionStatus.RELEASED_AGAIN))
            records.versions.put(version(6, VersionStatus.HELD))
            records.versions.put(version(7, of="ds_b"))
            assert numbers(records.versions.released("ds_a", **bounds)) == want

    @pytest.mark.parametrize(
        ("of", "statuses", "want"),
        [
            ("ds_a", [VersionStatus.HELD], [("ds_a", 2), ("ds_a", 10)]),
            (None, [VersionStatus.HELD], [("ds_a", 2), ("ds_a", 10), ("ds_b", 1)]),
            (None, [VersionStatus.HELD, VersionStatus.WAITING], [("ds_a", 2), ("ds_a", 3), ("ds_a", 10), ("ds_b", 1)]),
            ("ds_b", [VersionStatus.RELEASED], []),
            (None, [], []),
        ],
    )
    def test_in_status(self, filled, of, statuses, want):
        with filled.write() as records:
            records.versions.put(version(10, VersionStatus.HELD))
            records.versions.put(version(2, VersionStatus.HELD))
            records.versions.put(version(3, VersionStatus.WAITING))
            records.versions.put(version(1, VersionStatus.HELD, "ds_b"))
            records.versions.put(version(4))
            assert [(v.dataset_id, v.number) for v in records.versions.in_status(of, statuses)] == want

    def test_dropped_one_is_gone(self, filled):
        with filled.write() as records:
            records.versions.put(version(1))
            records.versions.put(version(2, VersionStatus.BUILDING))
            records.versions.drop("ds_a", 2)
            records.versions.drop("ds_a", 3)
            assert records.versions.get("ds_a", 2) is None
            assert records.versions.newest_number("ds_a") == 1

    @pytest.mark.parametrize("status", [VersionStatus.RELEASED, VersionStatus.RELEASED_AGAIN])
    def test_one_that_was_visible_is_not_dropped(self, filled, status):
        with filled.write() as records:
            records.versions.put(version(1, status))
            with pytest.raises(ValueError, match="was released"):
                records.versions.drop("ds_a", 1)
            assert records.versions.get("ds_a", 1) == version(1, status)


class TestWorkspaces:
    def test_found_by_id_and_name(self, store):
        plain = replace(WORKSPACE, topics=("zoning", "air"))
        with store.write() as records:
            records.workspaces.put(plain)
            assert records.workspaces.get("w1") == records.workspaces.named("Lee") == plain
            assert records.workspaces.get("w2") is None
            assert records.workspaces.named("lee") is None

    def test_all_by_name(self, store):
        names = ["b", "a", "É", "Z", "a b"]
        with store.write() as records:
            for name in names:
                records.workspaces.put(Workspace(f"w-{name}", name, (), (), NOW))
            assert [w.name for w in records.workspaces.all()] == sorted(names)

    def test_put_replaces(self, filled):
        changed = replace(WORKSPACE, name="Polk", coverage=(), topics=())
        with filled.write() as records:
            records.workspaces.put(changed)
            assert records.workspaces.all() == (changed,)
            assert ids(records.subscriptions.of_workspace("w1")) == ["sub_1"]

    @pytest.mark.parametrize("known", [None, "w2"])
    def test_name_of_another_is_an_error(self, filled, known):
        with filled.write() as records:
            if known:
                records.workspaces.put(Workspace(known, "Other", (), None, NOW))
        with pytest.raises(NameTaken, match="Lee"), filled.write() as records:
            records.workspaces.put(Workspace("w2", "Lee", (), None, NOW))

    def test_remove_takes_members_keys_subscriptions_and_events_along(self, filled):
        with filled.write() as records:
            records.workspaces.put(Workspace("w2", "Other", (), None, NOW))
            for name in ("w1", "w2"):
                records.workspaces.put_member(Member(name, "kim", "admin"))
                records.workspaces.put_key(key(f"k-{name}", name))
            records.subscriptions.put(subscription("sub_2", "w2"))
            for name in ("sub_1", "sub_2"):
                records.subscriptions.join(name, "ds_a")
                records.events.append(name, [event()], NOW)
            records.workspaces.remove("w1")
            records.workspaces.remove("w1")
        with filled.read() as records:
            assert ids(records.workspaces.all()) == ["w2"]
            assert records.workspaces.members("w1") == records.workspaces.keys("w1") == ()
            assert records.workspaces.key_by_hash("hash-k-w1") is None
            assert ids(records.subscriptions.all()) == ids(records.subscriptions.holding("ds_a")) == ["sub_2"]
            assert records.events.after("sub_1", 0, 10) == ()
            assert records.events.newest("sub_1") == 0
            assert records.workspaces.member("w2", "kim") == Member("w2", "kim", "admin")
            assert ids(records.workspaces.keys("w2")) == ["k-w2"]
            assert numbers(records.events.after("sub_2", 0, 10)) == [1]

    def test_members_by_name_those_that_left_too(self, filled):
        left = Member("w1", "ana", "member", NOW)
        with filled.write() as records:
            records.workspaces.put_member(Member("w1", "kim", "member"))
            records.workspaces.put_member(left)
            records.workspaces.put_member(Member("w1", "kim", "admin"))
            assert records.workspaces.members("w1") == (left, Member("w1", "kim", "admin"))
            assert records.workspaces.member("w1", "ana") == left
            assert records.workspaces.member("w1", "bo") is None
            assert records.workspaces.member("w2", "ana") is None

    def test_keys_by_hash_revoked_ones_too(self, filled):
        with filled.write() as records:
            records.workspaces.put_key(key("k1"))
            records.workspaces.put_key(key("k1", revoked_at=NOW + HOUR))
            assert records.workspaces.key_by_hash("hash-k1") == key("k1", revoked_at=NOW + HOUR)
            assert records.workspaces.key_by_hash("hash-k") is None

    def test_keys_oldest_first(self, filled):
        with filled.write() as records:
            records.workspaces.put_key(key("k1", at=NOW + HOUR))
            records.workspaces.put_key(key("k2", at=NOW))
            records.workspaces.put_key(key("k0", at=NOW + HOUR))
            assert ids(records.workspaces.keys("w1")) == ["k2", "k0", "k1"]

    @pytest.mark.parametrize(
        "writing", [lambda w: w.put_member(Member("w9", "a", "admin")), lambda w: w.put_key(key("k", "w9"))]
    )
    def test_unknown_workspace_is_an_error(self, filled, writing):
        with pytest.raises(UNKNOWN_PARENT), filled.write() as records:
            writing(records.workspaces)


class TestSubscriptions:
    def test_every_field_comes_back_and_put_replaces(self, filled):
        full = Subscription("sub_1", "w1", "Ünï", ("fl", "us"), ("t",), ("ds_a",), 4, NOW, NOW + HOUR)
        with filled.write() as records:
            records.subscriptions.put(full)
            assert records.subscriptions.get("sub_1") == full
            assert records.subscriptions.get("sub_x") is None

    def test_of_workspace_oldest_first(self, filled):
        with filled.write() as records:
            records.workspaces.put(Workspace("w2", "Other", (), None, NOW))
            records.subscriptions.put(subscription("sub_0", at=NOW + HOUR))
            records.subscriptions.put(subscription("sub_2", at=NOW - HOUR))
            records.subscriptions.put(subscription("sub_3", "w2"))
            assert ids(records.subscriptions.of_workspace("w1")) == ["sub_2", "sub_1", "sub_0"]

    def test_all_by_id(self, filled):
        with filled.write() as records:
            for name in ("sub_z", "sub_a", "sub_B"):
                records.subscriptions.put(subscription(name))
            assert ids(records.subscriptions.all()) == ["sub_1", "sub_B", "sub_a", "sub_z"]

    def test_unknown_workspace_is_an_error(self, filled):
        with pytest.raises(UNKNOWN_PARENT), filled.write() as records:
            records.subscriptions.put(subscription("sub_9", "w9"))

    def test_remove_takes_membership_and_events_along(self, filled):
        with filled.write() as records:
            records.subscriptions.join("sub_1", "ds_a")
            records.events.append("sub_1", [event()], NOW)
            records.subscriptions.remove("sub_1")
            records.subscriptions.remove("sub_1")
            assert records.subscriptions.get("sub_1") is None
            assert records.subscriptions.joined("sub_1") == ()
            assert records.subscriptions.holding("ds_a") == ()
            assert records.events.after("sub_1", 0, 10) == ()

    def test_joined_in_id_order_each_once(self, filled):
        with filled.write() as records:
            for name in ("ds_b", "ds_a", "ds_b"):
                records.subscriptions.join("sub_1", name)
            assert records.subscriptions.joined("sub_1") == ("ds_a", "ds_b")
            assert records.subscriptions.joined("sub_2") == ()

    def test_leave_lets_go_once_and_again(self, filled):
        with filled.write() as records:
            records.subscriptions.join("sub_1", "ds_a")
            records.subscriptions.join("sub_1", "ds_b")
            records.subscriptions.leave("sub_1", "ds_a")
            records.subscriptions.leave("sub_1", "ds_a")
            assert records.subscriptions.joined("sub_1") == ("ds_b",)

    def test_holding_in_id_order(self, filled):
        with filled.write() as records:
            for name in ("sub_3", "sub_2"):
                records.subscriptions.put(subscription(name))
                records.subscriptions.join(name, "ds_a")
            assert ids(records.subscriptions.holding("ds_a")) == ["sub_2", "sub_3"]
            assert records.subscriptions.holding("ds_b") == ()

    @pytest.mark.parametrize(("name", "of"), [("sub_1", "ds_x"), ("sub_x", "ds_a")])
    def test_joining_what_is_unknown_is_an_error(self, filled, name, of):
        with pytest.raises(UNKNOWN_PARENT), filled.write() as records:
            records.subscriptions.join(name, of)

    def test_lock_is_got_again_in_one_transaction_and_after_it(self, filled):
        for _ in range(2):
            with filled.write() as records:
                assert records.subscriptions.try_lock("sub_1")
                assert records.subscriptions.try_lock("sub_1")

    def test_unknown_subscription_cannot_be_locked(self, filled):
        with filled.write() as records:
            assert not records.subscriptions.try_lock("sub_x")


class TestEvents:
    def test_numbers_follow_from_one(self, filled):
        with filled.write() as records:
            first = records.events.append("sub_1", [event("ds_a"), event("ds_b")], NOW)
            second = records.events.append("sub_1", [event("ds_a")], NOW + HOUR)
            assert numbers(first + second) == [1, 2, 3]
            assert records.events.after("sub_1", 0, 10) == first + second
        assert [(e.subscription_id, e.dataset_id, e.timestamp) for e in first + second] == [
            ("sub_1", "ds_a", NOW),
            ("sub_1", "ds_b", NOW),
            ("sub_1", "ds_a", NOW + HOUR),
        ]

    def test_each_subscription_counts_alone(self, filled):
        with filled.write() as records:
            records.subscriptions.put(subscription("sub_2"))
            records.events.append("sub_1", [event(), event()], NOW)
            assert numbers(records.events.append("sub_2", [event()], NOW)) == [1]

    def test_data_comes_back_with_its_order(self, filled):
        data = {"z": 1, "a": [None, True, 1.5, "ü\u2028\u0000"], "m": {"y": {}, "x": []}, "big": 2**53 + 1}
        with filled.write() as records:
            (logged,) = records.events.append("sub_1", [event(kind=wire.UPDATED, **data)], NOW)
        with filled.read() as records:
            (read,) = records.events.after("sub_1", 0, 10)
        assert read == logged
        assert json.dumps(read.data) == json.dumps({"datasetId": "ds_a", **data})

    @pytest.mark.parametrize(
        ("number", "limit", "types", "want"),
        [
            (0, 10, None, [1, 2, 3, 4]),
            (2, 10, None, [3, 4]),
            (4, 10, None, []),
            (99, 10, None, []),
            (1, 2, None, [2, 3]),
            (0, 10, [wire.ADDED], [1, 3]),
            (1, 1, [wire.ADDED, wire.STALE], [2]),
            (0, 10, [], []),
        ],
    )
    def test_after(self, filled, number, limit, types, want):
        kinds = [wire.ADDED, wire.STALE, wire.ADDED, wire.REMOVED]
        with filled.write() as records:
            records.events.append("sub_1", [event(kind=kind) for kind in kinds], NOW)
            assert numbers(records.events.after("sub_1", number, limit, types)) == want

    def test_newest_and_oldest(self, filled):
        with filled.write() as records:
            assert records.events.newest("sub_1") == records.events.newest("sub_x") == 0
            assert records.events.oldest("sub_1") is None
            records.events.append("sub_1", [event(), event(), event()], NOW)
            assert (records.events.oldest("sub_1"), records.events.newest("sub_1")) == (1, 3)

    def test_nothing_to_append_takes_no_number(self, filled):
        with filled.write() as records:
            assert records.events.append("sub_1", [], NOW) == ()
            assert records.events.newest("sub_1") == 0

    def test_changing_the_subscription_keeps_its_counter(self, filled):
        with filled.write() as records:
            records.events.append("sub_1", [event()], NOW)
            records.subscriptions.put(replace(subscription("sub_1"), revision=2))
            assert numbers(records.events.append("sub_1", [event()], NOW)) == [2]

    def test_number_of_a_rolled_back_event_is_given_again(self, filled):
        with pytest.raises(ZeroDivisionError), filled.write() as records:
            records.events.append("sub_1", [event()], NOW)
            raise ZeroDivisionError
        with filled.write() as records:
            assert numbers(records.events.append("sub_1", [event()], NOW)) == [1]

    def test_unknown_subscription_is_an_error(self, filled):
        with pytest.raises(UNKNOWN_PARENT), filled.write() as records:
            records.events.append("sub_x", [event()], NOW)


class TestSecrets:
    def test_first_one_stays(self, store):
        for fresh in ("one", "two"):
            with store.write() as records:
                assert records.secrets.get_or_put("links", fresh) == "one"
                assert records.secrets.get_or_put("other", fresh) == "one"
