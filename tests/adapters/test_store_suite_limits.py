"""What the store promises about Idempotency-Keys and counters of calls, over the fake, SQLite and PostgreSQL."""

import multiprocessing
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.adapters.store_rows import HOUR, NOW, UNKNOWN_PARENT, WORKSPACE, event, numbers

from ploti.contract import events as wire
from ploti_server.adapters.store import open_store
from ploti_server.adapters.store_calls import SharedCalls
from ploti_server.domain.idempotency import Remembered
from ploti_server.domain.limits import WINDOW

FIRST = Remembered("w1", "POST /a", "key-1", "hash", 201, '{"id": "sub_é"}', NOW)
SECOND = timedelta(seconds=1)


class TestIdempotency:
    def test_answer_is_found_by_workspace_route_and_key(self, filled):
        with filled.write() as records:
            records.idempotency.put(FIRST)
            assert records.idempotency.get("w1", "POST /a", "key-1") == FIRST
            for other in (("w2", "POST /a", "key-1"), ("w1", "POST /b", "key-1"), ("w1", "POST /a", "KEY-1")):
                assert records.idempotency.get(*other) is None

    def test_put_again_replaces(self, filled):
        later = replace(FIRST, body_hash="other", answer="{}", created_at=NOW + HOUR)
        with filled.write() as records:
            records.idempotency.put(FIRST)
            records.idempotency.put(later)
            assert records.idempotency.get("w1", "POST /a", "key-1") == later

    def test_forget_takes_what_is_as_old_or_older_of_that_workspace(self, filled):
        with filled.write() as records:
            records.workspaces.put(replace(WORKSPACE, id="w2", name="Other"))
            kept = [replace(FIRST, key="key-2", created_at=NOW + SECOND), replace(FIRST, workspace_id="w2")]
            for one in (FIRST, *kept):
                records.idempotency.put(one)
            records.idempotency.forget("w1", NOW)
            assert records.idempotency.get("w1", "POST /a", "key-1") is None
            assert records.idempotency.get("w1", "POST /a", "key-2") == kept[0]
            assert records.idempotency.get("w2", "POST /a", "key-1") == kept[1]

    def test_removing_a_workspace_takes_its_answers_along(self, filled):
        with filled.write() as records:
            records.idempotency.put(FIRST)
            records.workspaces.remove("w1")
            assert records.idempotency.get("w1", "POST /a", "key-1") is None

    def test_unknown_workspace_is_an_error(self, filled):
        with pytest.raises(UNKNOWN_PARENT), filled.write() as records:
            records.idempotency.put(replace(FIRST, workspace_id="w9"))

    def test_rollback_leaves_nothing(self, filled):
        def break_off():
            with filled.write() as records:
                records.idempotency.put(FIRST)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            break_off()
        with filled.read() as records:
            assert records.idempotency.get("w1", "POST /a", "key-1") is None


class TestLastOfEach:
    def test_last_event_of_the_types_up_to_a_number_for_each_dataset(self, filled):
        sent = [
            (wire.ADDED, "ds_b"),
            (wire.ADDED, "ds_a"),
            (wire.UPDATED, "ds_b"),
            (wire.STALE, "ds_a"),
            (wire.UPDATED, "ds_b"),
            (wire.REMOVED, "ds_a"),
        ]
        with filled.write() as records:
            records.events.append("sub_1", [replace(event(), type=t, dataset_id=d) for t, d in sent], NOW)
        types = (wire.ADDED, wire.UPDATED, wire.REMOVED)
        with filled.read() as records:
            found = [numbers(records.events.last_of_each("sub_1", through, types)) for through in range(7)]
        assert found == [[], [1], [2, 1], [2, 3], [2, 3], [2, 5], [6, 5]]

    def test_unknown_subscription_has_none(self, filled):
        with filled.read() as records:
            assert records.events.last_of_each("sub_9", 10, (wire.ADDED,)) == ()


def counted(store, *names, now=NOW, key="key_1"):
    return [(one.name, one.calls, one.ends - NOW) for one in store.count_calls(key, names, now)]


class TestCallCounts:
    def test_window_opens_with_the_first_call_and_lasts_a_minute(self, store):
        assert counted(store, "calls") == [("calls", 1, WINDOW)]
        assert counted(store, "calls", now=NOW + WINDOW - SECOND) == [("calls", 2, WINDOW)]
        assert counted(store, "calls", now=NOW + WINDOW) == [("calls", 1, 2 * WINDOW)]

    def test_counters_are_by_key_and_name_and_two_may_be_counted_at_once(self, store):
        counted(store, "calls")
        assert sorted(counted(store, "calls", "strict")) == [("calls", 2, WINDOW), ("strict", 1, WINDOW)]
        assert counted(store, "calls", key="key_2") == [("calls", 1, WINDOW)]

    def test_clock_that_another_process_has_a_little_later_does_not_reset(self, store):
        counted(store, "calls", now=NOW + SECOND)
        assert counted(store, "calls", now=NOW) == [("calls", 2, WINDOW + SECOND)]

    def test_clock_set_back_far_opens_a_new_window(self, store):
        counted(store, "calls", now=NOW + HOUR)
        assert counted(store, "calls", now=NOW) == [("calls", 1, WINDOW)]

    def test_counting_waits_for_no_open_transaction(self, store):
        with store.write() as records:
            records.workspaces.put(WORKSPACE)
            assert counted(store, "calls") == [("calls", 1, WINDOW)]

    def test_threads_get_each_number_once(self, store):
        with ThreadPoolExecutor(8) as pool:
            seen = list(pool.map(lambda _: counted(store, "calls", "strict"), range(200)))
        for place in (0, 1):
            assert sorted(one[place][1] for one in seen) == list(range(1, 201))


def count_in_process(url, times):
    store = open_store(url)
    try:
        return [store.count_calls("key_1", ("calls",), NOW)[0].calls for _ in range(times)]
    finally:
        store.close()


def test_processes_get_each_number_once(store_url):
    open_store(store_url).close()
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        seen = pool.starmap(count_in_process, [(store_url, 60)] * 3)
    assert sorted(number for one in seen for number in one) == list(range(1, 181))


class TestCountsBesideSqlite:
    def test_they_lie_in_a_file_beside_the_metadata_and_outlive_a_process(self, tmp_path):
        for calls in (1, 2):
            store = open_store(f"sqlite:///{tmp_path}/ploti.db")
            assert counted(store, "calls") == [("calls", calls, WINDOW)]
            store.close()
        assert (tmp_path / "ploti.calls").stat().st_size == 2**21

    def test_each_of_many_keys_has_its_own_counter(self, tmp_path):
        calls = SharedCalls(tmp_path / "calls")
        for times in (1, 2):
            assert {calls.count(f"key_{number}", ["calls"], NOW)[0].calls for number in range(3_000)} == {times}
        calls.close()

    @pytest.mark.parametrize("ends", [NOW - SECOND, NOW + HOUR], ids=["over", "of a wrong clock"])
    def test_new_counter_takes_the_place_of_one_whose_window_is_not_open(self, tmp_path, ends):
        moment = int(ends.timestamp() * 1000)
        full = b"".join(struct.pack("<16sqq", number.to_bytes(16), moment, 5) for number in range(65_536))
        (tmp_path / "calls").write_bytes(full)
        calls = SharedCalls(tmp_path / "calls")
        for times in (1, 2):
            assert {calls.count(f"key_{number}", ["calls"], NOW)[0].calls for number in range(100)} == {times}
        calls.close()
