"""What the store promises in `ports.py`, over the fake, SQLite and PostgreSQL: transactions, catalog, secrets."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from tests.adapters.store_rows import (
    FULL_DATASET,
    HOUR,
    NOW,
    WORKSPACE,
    check,
    dataset,
    event,
    ids,
    key,
    subscription,
    version,
)

from ploti_server.domain.checks import Refresh
from ploti_server.domain.datasets import (
    Topic,
)
from ploti_server.domain.versions import VersionStatus
from ploti_server.domain.workspaces import Member


class TestTransactions:
    def test_block_that_ends_is_committed(self, store):
        with store.write() as records:
            records.catalog.put_dataset(dataset("ds_a"))
        with store.read() as records:
            assert records.catalog.dataset("ds_a") == dataset("ds_a")

    def test_exception_rolls_everything_back(self, filled):
        def write_and_fail():
            with filled.write() as records:
                records.catalog.put_dataset(dataset("ds_c"))
                records.events.append("sub_1", [event()], NOW)
                records.subscriptions.join("sub_1", "ds_a")
                records.secrets.get_or_put("links", "lost")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            write_and_fail()
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

    def test_writing_at_a_glance_is_an_error(self, filled):
        with filled.glance() as records, pytest.raises(RuntimeError, match=r"store\.write\(\)"):
            records.subscriptions.remove("sub_1")

    def test_glance_keeps_no_transaction_open(self, filled):
        with filled.glance() as records:
            assert records.workspaces.get("w1") == WORKSPACE
            with filled.write() as writing:
                writing.workspaces.remove("w1")
        with filled.glance() as records:
            assert records.workspaces.get("w1") is None

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

    def test_currents_are_the_newest_released_of_the_named(self, filled):
        with filled.write() as records:
            for one in (version(1), version(2), version(3, VersionStatus.HELD), version(1, of="ds_b")):
                records.versions.put(one)
            assert records.versions.currents(["ds_a", "ds_c"]) == {"ds_a": version(2)}
            both = {"ds_a": version(2), "ds_b": version(1, of="ds_b")}
            assert records.versions.currents({"ds_a", "ds_b"}) == both
            assert records.versions.currents([]) == {}

    def test_refreshes_are_those_known_of_all_or_of_the_named(self, filled):
        with filled.write() as records:
            assert records.catalog.refreshes() == {}
            records.catalog.put_refresh("ds_b", Refresh(NOW, None, NOW))
            records.catalog.put_refresh("ds_a", Refresh(NOW + HOUR, NOW))
            both = {"ds_a": Refresh(NOW + HOUR, NOW), "ds_b": Refresh(NOW, None, NOW)}
            assert list(records.catalog.refreshes().items()) == list(both.items())
            assert records.catalog.refreshes(["ds_b", "ds_unknown"]) == {"ds_b": both["ds_b"]}
            assert records.catalog.refreshes([]) == {}

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


class TestSecrets:
    def test_first_one_stays(self, store):
        for fresh in ("one", "two"):
            with store.write() as records:
                assert records.secrets.get_or_put("links", fresh) == "one"
                assert records.secrets.get_or_put("other", fresh) == "one"
