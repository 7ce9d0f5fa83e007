"""What the store promises about checks and versions, over the fake, SQLite and PostgreSQL."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.adapters.store_rows import FULL_VERSION, HOUR, NOW, UNKNOWN_PARENT, check, ids, numbers, version

from ploti_server.domain.checks import CheckStatus
from ploti_server.domain.schema import (
    Column,
    Schema,
)
from ploti_server.domain.versions import VersionStatus


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

    def test_leased_ones_have_an_owner_and_have_not_ended(self, filled):
        owned = {"lease_owner": "w1", "lease_until": NOW - HOUR}
        _, waiting, building, *_ = self.add(
            filled,
            check("ds_a", CheckStatus.DONE, **owned),
            check("ds_a", CheckStatus.WAITING, **owned),
            check("ds_b", CheckStatus.BUILDING, **owned),
            check("ds_b", CheckStatus.BUILDING),
            check("ds_b", CheckStatus.QUEUED, **owned),
        )
        with filled.read() as records:
            assert records.checks.leased() == (waiting, building)


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
