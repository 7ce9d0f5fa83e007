"""What the store promises about workspaces, subscriptions and their logs, over the fake, SQLite and PostgreSQL."""

import json
from dataclasses import replace

import pytest
from tests.adapters.store_rows import (
    HOUR,
    NOW,
    UNKNOWN_PARENT,
    WORKSPACE,
    event,
    ids,
    key,
    numbers,
    subscription,
)

from ploti.contract import events as wire
from ploti_server.domain.events import StoredBodies, stored_body
from ploti_server.domain.log import LogEnds, LogPage
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.workspaces import Holder, Member, Workspace
from ploti_server.ports import NameTaken


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
            assert records.workspaces.holder("hash-k-w1") is None
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

    def test_holder_of_a_key_by_its_hash_of_a_revoked_one_too(self, filled):
        with filled.write() as records:
            records.workspaces.put_key(key("k1"))
            assert records.workspaces.holder("hash-k1") == Holder(key("k1"), None, WORKSPACE)
            records.workspaces.put_member(Member("w1", key("k1").member, "member"))
            records.workspaces.put_key(key("k1", revoked_at=NOW + HOUR))
            kept = Holder(key("k1", revoked_at=NOW + HOUR), Member("w1", key("k1").member, "member"), WORKSPACE)
            assert records.workspaces.holder("hash-k1") == kept
            assert records.workspaces.holder("hash-k") is None

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
            found = records.events.after("sub_1", number, limit, types)
            assert numbers(found) == want
            text = ",".join(stored_body(one) for one in found)
            last = want[-1] if want else number
            bodies = StoredBodies(text, len(want), last)
            assert records.events.page("sub_1", number, limit, types) == LogPage("w1", LogEnds(4, 1), bodies)

    def test_at_some_places_of_several_logs(self, filled):
        with filled.write() as records:
            records.subscriptions.put(subscription("sub_2", "w1"))
            first, second = (records.events.append(log, [event()] * 3, NOW) for log in ("sub_1", "sub_2"))
            places = {("sub_1", 1), ("sub_1", 3), ("sub_2", 2), ("sub_2", 4), ("sub_9", 1)}
            want = {("sub_1", 1): first[0], ("sub_1", 3): first[2], ("sub_2", 2): second[1]}
            assert records.events.at(places) == want
            assert records.events.at(set()) == {}

    def test_page_of_an_empty_log_and_of_none(self, filled):
        with filled.glance() as records:
            assert records.events.page("sub_1", 0, 10) == LogPage("w1", LogEnds(0, None), StoredBodies("", 0, 0))
            assert records.events.page("sub_x", 0, 10) is records.events.page("sub_x", 0, 10, [wire.ADDED]) is None

    def test_newest_and_oldest(self, filled):
        with filled.write() as records:
            assert records.events.newest("sub_1") == records.events.newest("sub_x") == 0
            assert records.events.oldest("sub_1") is None
            assert records.events.ends("sub_1") == records.events.ends("sub_x") == LogEnds(0, None)
            assert records.events.newest_of(["sub_1", "sub_x"]) == {"sub_1": 0}
            records.events.append("sub_1", [event(), event(), event()], NOW)
            assert (records.events.oldest("sub_1"), records.events.newest("sub_1")) == (1, 3)
            assert records.events.ends("sub_1") == LogEnds(3, 1)
            assert records.events.newest_of(["sub_1"]) == {"sub_1": 3}

    @pytest.mark.parametrize(
        ("sent", "by", "through"),
        [
            ([], 0, None),
            ([0, 1, 2], -1, None),
            ([0, 1, 2], 0, 1),
            ([0, 1, 2], 1, 2),
            ([0, 1, 2], 9, 3),
            ([5, 1, 2], 2, None),
            ([0, 5, 1], 2, 1),
        ],
    )
    def test_sent_by_tells_how_far_the_log_is_old_throughout(self, filled, sent, by, through):
        with filled.write() as records:
            for hours in sent:
                records.events.append("sub_1", [event()], NOW + hours * HOUR)
            assert records.events.sent_by("sub_1", NOW + by * HOUR) == through

    def test_dropped_events_are_gone_and_their_numbers_never_given_again(self, filled):
        with filled.write() as records:
            records.events.append("sub_1", [event(), event(), event()], NOW)
            records.events.drop_through("sub_1", 2)
            assert numbers(records.events.after("sub_1", 0, 10)) == [3]
            assert (records.events.oldest("sub_1"), records.events.newest("sub_1")) == (3, 3)
            records.events.drop_through("sub_1", 3)
            assert (records.events.oldest("sub_1"), records.events.newest("sub_1")) == (None, 3)
            assert records.events.sent_by("sub_1", NOW) is None
            assert numbers(records.events.append("sub_1", [event()], NOW)) == [4]

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
        def append_and_fail():
            with filled.write() as records:
                records.events.append("sub_1", [event()], NOW)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            append_and_fail()
        with filled.write() as records:
            assert numbers(records.events.append("sub_1", [event()], NOW)) == [1]

    def test_unknown_subscription_is_an_error(self, filled):
        with pytest.raises(UNKNOWN_PARENT), filled.write() as records:
            records.events.append("sub_x", [event()], NOW)
