"""Bringing memberships up to date, applying catalogs, opening workspaces: over each store (D7.2, D7.3, D10)."""

import re
from dataclasses import replace

import pytest

from ploti_server.domain.access import Refused
from ploti_server.domain.catalog import Catalog
from ploti_server.domain.checks import Refresh
from ploti_server.domain.datasets import Dataset, SourceSpec, Topic
from ploti_server.domain.subscriptions import Selection
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.pipeline.catalog import apply_catalog, plan_applying
from ploti_server.pipeline.membership import bring_all_up_to_date, bring_up_to_date
from ploti_server.pipeline.subscriptions import create_subscription, delete_subscription
from ploti_server.pipeline.workspaces import (
    WorkspaceRefused,
    add_member,
    create_key,
    create_workspace,
    delete_workspace,
    hash_key,
    remove_member,
    revoke_key,
    set_workspace,
)
from ploti_server.ports import Ports
from ploti_server.testing import FakeAgent, FakePlans, FixedClock, MemoryFiles, MemoryStore

TOPICS = (Topic("permits", "Permits"), Topic("zoning", "Zoning"))


def dataset(dataset_id, place="fl", topic="permits", **fields):
    return Dataset(id=dataset_id, title="X", source=SourceSpec("file", "x"), place=place, topic=topic, **fields)


BOTH = (dataset("ds_a"), dataset("ds_b", topic="zoning"))


def make_ports(store, tmp_path):
    return Ports(
        store=store,
        files=MemoryFiles(),
        engine=None,
        open_state=None,
        agent=FakeAgent(),
        plans=FakePlans(),
        clock=FixedClock(),
        home=tmp_path,
    )


@pytest.fixture
def ports(store, tmp_path):
    """Ports over each store, with two datasets and a workspace that covers Florida."""
    made = make_ports(store, tmp_path)
    apply_catalog(made, Catalog(TOPICS, BOTH))
    create_workspace(made, "w", ["fl-counties"], None)
    return made


@pytest.fixture
def memory(tmp_path):
    """The same over the store in memory."""
    made = make_ports(MemoryStore(), tmp_path)
    apply_catalog(made, Catalog(TOPICS, BOTH))
    create_workspace(made, "w", ["fl-counties"], None)
    return made


def subscribe(ports, *places, topics=(), ids=()):
    with ports.store.read() as records:
        workspace = records.workspaces.named("w")
    return create_subscription(ports, workspace, Selection(None, places, tuple(topics), tuple(ids))).id


def log(ports, subscription_id):
    with ports.store.read() as records:
        events = records.events.after(subscription_id, 0, 100)
    return [
        (e.number, e.type.removeprefix("feed.dataset."), e.dataset_id, e.data.get("reason", e.data.get("version")))
        for e in events
    ]


def joined(ports, subscription_id):
    with ports.store.read() as records:
        return records.subscriptions.joined(subscription_id)


def put_version(ports, dataset_id, number, status=VersionStatus.RELEASED, **fields):
    now = ports.clock.now()
    with ports.store.write() as records:
        records.versions.put(
            Version(dataset_id, number, 1, status, 1, built_at=now, released_at=now, schema_version="1.0", **fields)
        )


class TestOnEachStore:
    def test_datasets_join_and_leave_with_their_events_numbered_without_gaps(self, ports):
        put_version(ports, "ds_b", 1)
        subscription = subscribe(ports, "fl")
        apply_catalog(ports, Catalog(TOPICS, (replace(BOTH[0], retired=True), BOTH[1], dataset("ds_c"))))
        set_workspace(ports, "w", topics=["permits"])
        set_workspace(ports, "w", ["ny-counties"])
        assert log(ports, subscription) == [
            (1, "added", "ds_a", None),
            (2, "added", "ds_b", 1),
            (3, "removed", "ds_a", "no_longer_deliverable"),
            (4, "added", "ds_c", None),
            (5, "removed", "ds_b", "plan_changed"),
            (6, "removed", "ds_c", "left_coverage"),
        ]
        assert joined(ports, subscription) == ()

    def test_dataset_filed_elsewhere_leaves_as_the_subscription_changed(self, ports):
        subscription = subscribe(ports, "fl", topics=["permits"])
        apply_catalog(ports, Catalog(TOPICS, (replace(BOTH[0], topic="zoning"),)))
        assert log(ports, subscription)[1:] == [(2, "removed", "ds_a", "subscription_changed")]

    def test_held_version_is_told_after_added(self, ports):
        put_version(ports, "ds_a", 1)
        put_version(ports, "ds_a", 2, VersionStatus.HELD, reasons=("data_check",))
        assert log(ports, subscribe(ports, ids=["ds_a"])) == [
            (1, "added", "ds_a", 1),
            (2, "delayed", "ds_a", "data_check"),
        ]

    def test_catalog_is_planned_without_and_applied_with_effect_and_safe_to_repeat(self, ports):
        new = Catalog(
            (*TOPICS, Topic("water", "Water")), (replace(BOTH[0], title="New"), dataset("ds_c", topic="water"))
        )
        planned = plan_applying(ports, new)
        assert (planned.added, planned.not_named, planned.topics_added) == (("ds_c",), ("ds_b",), ("water",))
        assert plan_applying(ports, new) == planned
        assert apply_catalog(ports, new).plan == planned
        assert apply_catalog(ports, new).plan.is_empty
        with ports.store.read() as records:
            assert [d.title for d in records.catalog.datasets()] == ["New", "X", "X"]
            assert [t.id for t in records.catalog.topics()] == ["permits", "zoning", "water"]

    def test_deleted_workspace_takes_everything_of_it_along(self, ports):
        subscription = subscribe(ports, "fl")
        key = create_key(ports, "w", "ann").key
        delete_workspace(ports, "w")
        with ports.store.read() as records:
            assert records.workspaces.all() == ()
            assert records.subscriptions.get(subscription) is None
            assert records.workspaces.holder(key.key_hash) is None
            assert records.subscriptions.holding("ds_a") == ()

    def test_first_dataset_of_a_subscription_is_due_at_once(self, ports):
        subscribe(ports, "fl")
        with ports.store.read() as records:
            assert records.catalog.refresh("ds_a") == Refresh(None, ports.clock.now())


class TestBringingUpToDate:
    def test_repeat_changes_nothing(self, memory):
        subscription = subscribe(memory, "fl")
        before = log(memory, subscription)
        assert bring_all_up_to_date(memory) == ()
        assert log(memory, subscription) == before

    def test_plan_that_cannot_be_read_removes_nothing_and_is_asked_again(self, memory):
        subscription = subscribe(memory, "fl")
        memory.plans.available = False
        _, waiting = set_workspace(memory, "w", ["ny-counties"])
        assert waiting == (subscription,)
        assert len(log(memory, subscription)) == 2
        memory.plans.available = True
        assert bring_all_up_to_date(memory) == ()
        assert [reason for *_, reason in log(memory, subscription)[2:]] == ["left_coverage", "left_coverage"]

    def test_busy_subscription_is_left_for_later_and_the_others_go_on(self, memory):
        first, second = subscribe(memory, "fl"), subscribe(memory, "fl")
        with memory.store.busy(first):
            applied = apply_catalog(memory, Catalog(TOPICS, (dataset("ds_c"),)))
        assert applied.waiting == (first,)
        assert (len(joined(memory, first)), len(joined(memory, second))) == (2, 3)
        assert apply_catalog(memory, Catalog(TOPICS, (dataset("ds_c"),))).waiting == ()
        assert len(joined(memory, first)) == 3

    def test_busy_subscription_refuses_and_changes_nothing(self, memory):
        subscription = subscribe(memory, "fl")
        with memory.store.read() as records:
            found = records.subscriptions.get(subscription)
        with memory.store.busy(subscription):
            with pytest.raises(Refused, match="try again"), memory.store.write() as records:
                bring_up_to_date(records, found, (), memory.clock.now())
            with pytest.raises(Refused, match="try again"):
                delete_subscription(memory, found.workspace_id, subscription)
        assert len(joined(memory, subscription)) == 2

    def test_crash_before_the_commit_of_a_create_leaves_nothing(self, memory):
        def stop(step):
            if step == "subscription.before_commit":
                raise KeyboardInterrupt

        stopping = replace(memory, reach=stop)
        with pytest.raises(KeyboardInterrupt):
            subscribe(stopping, "fl")
        with memory.store.read() as records:
            assert records.subscriptions.all() == ()
            assert records.catalog.refresh("ds_a") == Refresh()

    def test_crash_after_a_catalog_was_stored_is_mended_by_applying_it_again(self, memory):
        subscription = subscribe(memory, "fl")

        def stop(step):
            if step == "catalog.applied":
                raise KeyboardInterrupt

        new = Catalog(TOPICS, (dataset("ds_c"),))
        with pytest.raises(KeyboardInterrupt):
            apply_catalog(replace(memory, reach=stop), new)
        assert joined(memory, subscription) == ("ds_a", "ds_b")
        assert apply_catalog(memory, new).plan.is_empty
        assert joined(memory, subscription) == ("ds_a", "ds_b", "ds_c")


class TestWorkspaces:
    @pytest.mark.parametrize(
        ("name", "coverage", "topics", "told"),
        [
            ("w", ["fl-counties"], None, "there is a workspace w already"),
            ("", ["fl-counties"], None, "name the workspace"),
            ("a\nb", ["fl-counties"], None, "name the workspace"),
            (" a", ["fl-counties"], None, "name the workspace"),
            ("x" * 101, ["fl-counties"], None, "name the workspace"),
            ("new", [], None, "at least one place"),
            ("new", ["fl"], None, "'fl' is not a county or a state's counties"),
            ("new", ["fl-counties"], ["nope"], "'nope' is not a topic"),
        ],
    )
    def test_workspace_that_cannot_be_is_refused(self, memory, name, coverage, topics, told):
        with pytest.raises(WorkspaceRefused, match=re.escape(told)):
            create_workspace(memory, name, coverage, topics)

    def test_workspace_keeps_what_is_not_set(self, memory):
        changed, _ = set_workspace(memory, "w", topics=["permits"])
        assert (changed.coverage, changed.topics) == (("fl-counties",), ("permits",))
        changed, _ = set_workspace(memory, "w", ["ny-counties"])
        assert (changed.coverage, changed.topics) == (("ny-counties",), ("permits",))
        changed, _ = set_workspace(memory, "w", all_topics=True)
        assert changed.topics is None

    def test_unknown_workspace_is_refused_everywhere(self, memory):
        for call in (
            lambda: set_workspace(memory, "x"),
            lambda: delete_workspace(memory, "x"),
            lambda: add_member(memory, "x", "ann", "admin"),
            lambda: remove_member(memory, "x", "ann"),
            lambda: create_key(memory, "x", "ann"),
        ):
            with pytest.raises(WorkspaceRefused, match="there is no workspace x"):
                call()


class TestKeys:
    def test_key_is_ploti_and_32_characters_of_which_only_the_hash_is_stored(self, memory):
        made = create_key(memory, "w", "ann")
        assert re.fullmatch(r"ploti_[A-Za-z0-9]{32}", made.text)
        assert made.key.key_hash == hash_key(made.text)
        assert made.text not in repr(made.key)
        assert made.key.permissions == ("feeds", "webhooks")
        assert create_key(memory, "w", "ann").text != made.text

    def test_first_member_is_an_admin_and_later_ones_are_members_unless_told(self, memory):
        assert create_key(memory, "w", "ann").key.role == "admin"
        assert create_key(memory, "w", "bob").key.role == "member"
        assert create_key(memory, "w", "cem", "admin").key.role == "admin"
        assert create_key(memory, "w", "ann", "member").key.role == "member"

    def test_key_never_has_more_than_its_member(self, memory):
        add_member(memory, "w", "bob", "member")
        with pytest.raises(WorkspaceRefused, match="bob is no admin of w"):
            create_key(memory, "w", "bob", "admin")

    @pytest.mark.parametrize("permissions", [[], ["feed"], ["feeds", "admin"]])
    def test_unknown_permission_is_refused(self, memory, permissions):
        with pytest.raises(WorkspaceRefused, match="feeds, webhooks"):
            create_key(memory, "w", "ann", permissions=permissions)

    def test_member_who_left_comes_back_without_the_old_keys(self, memory):
        old = create_key(memory, "w", "ann").key
        remove_member(memory, "w", "ann")
        with pytest.raises(WorkspaceRefused, match="has no member ann"):
            remove_member(memory, "w", "ann")
        new = create_key(memory, "w", "ann").key
        with memory.store.read() as records:
            assert records.workspaces.member(new.workspace_id, "ann").left_at is None
            assert {k.id: k.revoked_at is None for k in records.workspaces.keys(new.workspace_id)} == {
                old.id: False,
                new.id: True,
            }

    def test_revoking_twice_keeps_the_first_time(self, memory):
        made = create_key(memory, "w", "ann").key
        first = revoke_key(memory, made.id)
        memory.clock.advance(hours=1)
        assert revoke_key(memory, made.id) == first
        with pytest.raises(WorkspaceRefused, match="there is no key key_x"):
            revoke_key(memory, "key_x")
