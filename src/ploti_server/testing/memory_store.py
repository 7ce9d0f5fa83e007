"""`Store` in memory: a transaction works on a copy of everything."""

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile

from ploti_server.domain.asks import Ask
from ploti_server.domain.checks import Check, CheckStatus, Refresh
from ploti_server.domain.datasets import Dataset, Topic
from ploti_server.domain.deliveries import queued
from ploti_server.domain.events import LoggedEvent, NewEvent, StoredBodies, stored_body
from ploti_server.domain.idempotency import Remembered
from ploti_server.domain.limits import WINDOW, Counted
from ploti_server.domain.log import LogEnds, LogPage
from ploti_server.domain.notices import Notice
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.domain.workspaces import ApiKey, Holder, Member, Workspace
from ploti_server.pipeline.subscriptions import new_id
from ploti_server.ports import NameTaken
from ploti_server.testing.memory_state import State, kept, known
from ploti_server.testing.memory_webhooks import MemoryDeliveries, MemoryWebhooks

_STARTED = (CheckStatus.BUILDING, CheckStatus.WAITING)
_OPEN = (CheckStatus.QUEUED, *_STARTED)


class _Catalog:
    def __init__(self, state: State) -> None:
        self._state = state

    def topics(self) -> tuple[Topic, ...]:
        return tuple(self._state.topics)

    def put_topics(self, topics: Sequence[Topic]) -> None:
        self._state.changing().topics = list(topics)

    def dataset(self, dataset_id: str) -> Dataset | None:
        return self._state.datasets.get(dataset_id)

    def datasets(self) -> tuple[Dataset, ...]:
        return tuple(dataset for _, dataset in sorted(self._state.datasets.items()))

    def put_dataset(self, dataset: Dataset) -> None:
        self._state.changing().datasets[dataset.id] = kept(dataset)

    def lock(self, dataset_ids: Sequence[str]) -> None:  # noqa: ARG002
        self._state.changing()

    def refresh(self, dataset_id: str) -> Refresh:
        return self._state.refreshes.get(dataset_id, Refresh())

    def refreshes(self, dataset_ids: Collection[str] | None = None) -> dict[str, Refresh]:
        return {
            one: refresh
            for one, refresh in sorted(self._state.refreshes.items())
            if dataset_ids is None or one in dataset_ids
        }

    def put_refresh(self, dataset_id: str, refresh: Refresh) -> None:
        known(self._state.datasets, dataset_id, "dataset")
        self._state.changing().refreshes[dataset_id] = kept(refresh)


class _Checks:
    def __init__(self, state: State) -> None:
        self._state = state

    def add(self, check: Check) -> Check:
        known(self._state.datasets, check.dataset_id, "dataset")
        added = kept(replace(check, id=max(self._state.checks, default=0) + 1))
        self._state.changing().checks[added.id] = added
        return added

    def get(self, check_id: int) -> Check | None:
        return self._state.checks.get(check_id)

    def put(self, check: Check) -> None:
        if check.id not in self._state.checks:
            raise LookupError(f"there is no check {check.id}")
        self._state.changing().checks[check.id] = kept(check)

    def open_of(self, dataset_id: str) -> tuple[Check, ...]:
        return tuple(c for c in self._of(dataset_id) if c.status in _OPEN)

    def last_of(self, dataset_id: str, before: int | None = None) -> Check | None:
        return next((c for c in reversed(self._of(dataset_id)) if before is None or c.id < before), None)

    def claim(self, owner: str, now: datetime, until: datetime, check_id: int | None = None) -> Check | None:
        state = self._state.changing()
        for number in sorted(state.checks) if check_id is None else (check_id,):
            check = state.checks.get(number)
            if check is None or not self._free(check, now):
                continue
            if check_id is None and check.due_at is not None and check.due_at > now:
                continue
            status = CheckStatus.BUILDING if check.status is CheckStatus.QUEUED else check.status
            claimed = kept(replace(check, status=status, lease_owner=owner, lease_until=until))
            state.checks[number] = claimed
            return claimed
        return None

    def beat(self, check_id: int, owner: str, until: datetime) -> bool:
        state = self._state.changing()
        check = state.checks.get(check_id)
        if check is None or check.lease_owner != owner or check.status not in _STARTED:
            return False
        state.checks[check_id] = kept(replace(check, lease_until=until))
        return True

    def leased(self) -> tuple[Check, ...]:
        ordered = (c for _, c in sorted(self._state.checks.items()))
        return tuple(c for c in ordered if c.status in _STARTED and c.lease_owner is not None)

    def _free(self, check: Check, now: datetime) -> bool:
        open_checks = self.open_of(check.dataset_id)
        first = bool(open_checks) and open_checks[0].id == check.id
        return first and not any(_leased(c, now) for c in open_checks)

    def _of(self, dataset_id: str) -> list[Check]:
        return [c for _, c in sorted(self._state.checks.items()) if c.dataset_id == dataset_id]


def _leased(check: Check, now: datetime) -> bool:
    return check.status in _STARTED and check.lease_until is not None and check.lease_until > now


class _Asks:
    def __init__(self, state: State) -> None:
        self._state = state

    def get(self, check_id: int) -> Ask | None:
        return self._state.asks.get(check_id)

    def put(self, ask: Ask) -> None:
        known(self._state.datasets, ask.dataset_id, "dataset")
        if ask.check_id not in self._state.checks:
            raise LookupError(f"there is no check {ask.check_id}")
        self._state.changing().asks[ask.check_id] = kept(ask)

    def of_dataset(self, dataset_id: str, limit: int) -> tuple[Ask, ...]:
        own = [ask for _, ask in sorted(self._state.asks.items(), reverse=True) if ask.dataset_id == dataset_id]
        return tuple(own[:limit])

    def waiting(self) -> tuple[Ask, ...]:
        due = [(ask.due_at, number, ask) for number, ask in self._state.asks.items() if ask.due_at is not None]
        return tuple(ask for *_, ask in sorted(due, key=lambda one: one[:2]))


class _Versions:
    def __init__(self, state: State) -> None:
        self._state = state

    def get(self, dataset_id: str, number: int) -> Version | None:
        return self._state.versions.get((dataset_id, number))

    def put(self, version: Version) -> None:
        known(self._state.datasets, version.dataset_id, "dataset")
        self._state.changing().versions[version.dataset_id, version.number] = kept(version)

    def drop(self, dataset_id: str, number: int) -> None:
        found = self.get(dataset_id, number)
        if found is not None and found.status in (VersionStatus.RELEASED, VersionStatus.RELEASED_AGAIN):
            raise ValueError(f"version {number} of {dataset_id} was released and stays")
        self._state.changing().versions.pop((dataset_id, number), None)

    def current(self, dataset_id: str) -> Version | None:
        return next(iter(self.released(dataset_id, newest_first=True, limit=1)), None)

    def currents(self, dataset_ids: Collection[str]) -> dict[str, Version]:
        found = ((one, self.current(one)) for one in dataset_ids)
        return {one: version for one, version in found if version is not None}

    def newest_number(self, dataset_id: str) -> int:
        return max((number for of, number in self._state.versions if of == dataset_id), default=0)

    def released(
        self,
        dataset_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int = 1000,
    ) -> tuple[Version, ...]:
        found = self.in_status(dataset_id, (VersionStatus.RELEASED,))
        between = [v for v in found if after < v.number and (before is None or v.number < before)]
        return tuple(between[::-1] if newest_first else between)[:limit]

    def in_status(self, dataset_id: str | None, statuses: Sequence[VersionStatus]) -> tuple[Version, ...]:
        ordered = sorted(self._state.versions.items())
        return tuple(v for (of, _), v in ordered if dataset_id in (None, of) and v.status in statuses)


class _Workspaces:
    def __init__(self, state: State) -> None:
        self._state = state

    def get(self, workspace_id: str) -> Workspace | None:
        return self._state.workspaces.get(workspace_id)

    def named(self, name: str) -> Workspace | None:
        return next((w for w in self._state.workspaces.values() if w.name == name), None)

    def all(self) -> tuple[Workspace, ...]:
        return tuple(sorted(self._state.workspaces.values(), key=lambda w: w.name))

    def lock(self, workspace_id: str) -> None:  # noqa: ARG002
        self._state.changing()

    def put(self, workspace: Workspace) -> None:
        other = self.named(workspace.name)
        if other is not None and other.id != workspace.id:
            raise NameTaken(workspace.name)
        self._state.changing().workspaces[workspace.id] = kept(workspace)

    def remove(self, workspace_id: str) -> None:
        state = self._state.changing()
        state.workspaces.pop(workspace_id, None)
        state.members = {k: m for k, m in state.members.items() if m.workspace_id != workspace_id}
        state.keys = {k: key for k, key in state.keys.items() if key.workspace_id != workspace_id}
        state.remembered = {k: one for k, one in state.remembered.items() if one.workspace_id != workspace_id}
        for subscription in _Subscriptions(state).of_workspace(workspace_id):
            _Subscriptions(state).remove(subscription.id)

    def member(self, workspace_id: str, name: str) -> Member | None:
        return self._state.members.get((workspace_id, name))

    def members(self, workspace_id: str) -> tuple[Member, ...]:
        return tuple(m for (of, _), m in sorted(self._state.members.items()) if of == workspace_id)

    def put_member(self, member: Member) -> None:
        known(self._state.workspaces, member.workspace_id, "workspace")
        self._state.changing().members[member.workspace_id, member.name] = kept(member)

    def put_key(self, key: ApiKey) -> None:
        known(self._state.workspaces, key.workspace_id, "workspace")
        self._state.changing().keys[key.id] = kept(key)

    def holder(self, key_hash: str) -> Holder | None:
        key = next((key for key in self._state.keys.values() if key.key_hash == key_hash), None)
        if key is None:
            return None
        return Holder(key, self.member(key.workspace_id, key.member), self._state.workspaces[key.workspace_id])

    def keys(self, workspace_id: str) -> tuple[ApiKey, ...]:
        own = (key for key in self._state.keys.values() if key.workspace_id == workspace_id)
        return tuple(sorted(own, key=lambda key: (key.created_at, key.id)))


class _Subscriptions:
    def __init__(self, state: State) -> None:
        self._state = state

    def get(self, subscription_id: str) -> Subscription | None:
        return self._state.subscriptions.get(subscription_id)

    def of_workspace(self, workspace_id: str) -> tuple[Subscription, ...]:
        own = (s for s in self._state.subscriptions.values() if s.workspace_id == workspace_id)
        return tuple(sorted(own, key=lambda s: (s.created_at, s.id)))

    def all(self) -> tuple[Subscription, ...]:
        return tuple(s for _, s in sorted(self._state.subscriptions.items()))

    def put(self, subscription: Subscription) -> None:
        known(self._state.workspaces, subscription.workspace_id, "workspace")
        self._state.changing().subscriptions[subscription.id] = kept(subscription)
        self._state.counters.setdefault(subscription.id, 0)

    def remove(self, subscription_id: str) -> None:
        state = self._state.changing()
        state.subscriptions.pop(subscription_id, None)
        state.counters.pop(subscription_id, None)
        state.joined.pop(subscription_id, None)
        state.events.pop(subscription_id, None)
        for webhook in [w for w in state.webhooks.values() if w.subscription_id == subscription_id]:
            MemoryWebhooks(state).remove(webhook.id)

    def try_lock(self, subscription_id: str) -> bool:
        state = self._state.changing()
        return subscription_id in state.counters and subscription_id not in state.locked_elsewhere

    def joined(self, subscription_id: str) -> tuple[str, ...]:
        return tuple(sorted(self._state.joined.get(subscription_id, ())))

    def join(self, subscription_id: str, dataset_id: str) -> None:
        known(self._state.subscriptions, subscription_id, "subscription")
        known(self._state.datasets, dataset_id, "dataset")
        held = self._state.joined.get(subscription_id, frozenset())
        self._state.changing().joined[subscription_id] = held | {dataset_id}

    def leave(self, subscription_id: str, dataset_id: str) -> None:
        held = self._state.joined.get(subscription_id, frozenset())
        self._state.changing().joined[subscription_id] = held - {dataset_id}

    def holding(self, dataset_id: str) -> tuple[Subscription, ...]:
        return tuple(s for s in self.all() if dataset_id in self._state.joined.get(s.id, ()))


class _Events:
    def __init__(self, state: State) -> None:
        self._state = state

    def append(self, subscription_id: str, events: Sequence[NewEvent], now: datetime) -> tuple[LoggedEvent, ...]:
        if not events:
            return ()
        state = self._state.changing()
        known(state.subscriptions, subscription_id, "subscription")
        first = state.counters[subscription_id] + 1
        logged = tuple(
            kept(LoggedEvent(subscription_id, number, event.type, event.dataset_id, now, event.data))
            for number, event in enumerate(events, first)
        )
        state.counters[subscription_id] = logged[-1].number
        state.events[subscription_id] = state.events.get(subscription_id, ()) + logged
        mine = [w for w in state.webhooks.values() if w.subscription_id == subscription_id]
        for delivery in queued(mine, logged, lambda: new_id("msg_"), now):
            state.deliveries[delivery.id] = kept(delivery)
        return logged

    def after(
        self, subscription_id: str, number: int, limit: int, types: Sequence[str] | None = None
    ) -> tuple[LoggedEvent, ...]:
        log = self._state.events.get(subscription_id, ())
        found = (e for e in log if e.number > number and (types is None or e.type in types))
        return tuple(found)[:limit]

    def at(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], LoggedEvent]:
        logs = {subscription_id: self._state.events.get(subscription_id, ()) for subscription_id, _ in places}
        return {
            (e.subscription_id, e.number): e
            for log in logs.values()
            for e in log
            if (e.subscription_id, e.number) in places
        }

    def page(self, subscription_id: str, number: int, limit: int, types: Sequence[str] | None = None) -> LogPage | None:
        subscription = self._state.subscriptions.get(subscription_id)
        if subscription is None:
            return None
        found = self.after(subscription_id, number, limit, types)
        text = ",".join(stored_body(event) for event in found)
        bodies = StoredBodies(text, len(found), found[-1].number if found else number)
        return LogPage(subscription.workspace_id, self.ends(subscription_id), bodies)

    def last_of_each(self, subscription_id: str, through: int, types: Sequence[str]) -> tuple[LoggedEvent, ...]:
        log = self._state.events.get(subscription_id, ())
        last = {e.dataset_id: e for e in log if e.number <= through and e.type in types}
        return tuple(event for _, event in sorted(last.items()))

    def about(self, subscription_id: str, dataset_id: str, limit: int) -> tuple[LoggedEvent, ...]:
        own = [e for e in self._state.events.get(subscription_id, ()) if e.dataset_id == dataset_id]
        return tuple(own[-limit:])

    def newest(self, subscription_id: str) -> int:
        return self._state.counters.get(subscription_id, 0)

    def ends(self, subscription_id: str) -> LogEnds:
        return LogEnds(self.newest(subscription_id), self.oldest(subscription_id))

    def newest_of(self, subscription_ids: Collection[str]) -> dict[str, int]:
        return {one: newest for one, newest in self._state.counters.items() if one in subscription_ids}

    def oldest(self, subscription_id: str) -> int | None:
        return next((e.number for e in self._state.events.get(subscription_id, ())), None)

    def sent_by(self, subscription_id: str, moment: datetime) -> int | None:
        log = self._state.events.get(subscription_id, ())
        old = tuple(takewhile(lambda event: event.timestamp <= moment, log))
        return old[-1].number if old else None

    def drop_through(self, subscription_id: str, number: int) -> None:
        state = self._state.changing()
        state.events[subscription_id] = tuple(e for e in state.events.get(subscription_id, ()) if e.number > number)
        gone = [d.id for d in state.deliveries.values() if d.subscription_id == subscription_id and d.number <= number]
        for delivery_id in gone:
            del state.deliveries[delivery_id]


class _Idempotency:
    def __init__(self, state: State) -> None:
        self._state = state

    def get(self, workspace_id: str, route: str, key: str) -> Remembered | None:
        return self._state.remembered.get((workspace_id, route, key))

    def put(self, remembered: Remembered) -> None:
        known(self._state.workspaces, remembered.workspace_id, "workspace")
        name = (remembered.workspace_id, remembered.route, remembered.key)
        self._state.changing().remembered[name] = kept(remembered)

    def forget(self, workspace_id: str, before: datetime) -> None:
        state = self._state.changing()
        old = [k for k, one in state.remembered.items() if k[0] == workspace_id and one.created_at <= before]
        for name in old:
            del state.remembered[name]


class _Notices:
    def __init__(self, state: State) -> None:
        self._state = state

    def add(self, notice: Notice) -> Notice:
        added = kept(replace(notice, id=max(self._state.notices, default=0) + 1))
        self._state.changing().notices[added.id] = added
        return added

    def claim(self, now: datetime, until: datetime, limit: int) -> tuple[Notice, ...]:
        notices = self._state.changing().notices
        due = [notice for _, notice in sorted(notices.items()) if notice.due_at <= now][:limit]
        for notice in due:
            notices[notice.id] = kept(replace(notice, due_at=until))
        return tuple(due)

    def put(self, notice: Notice) -> None:
        if notice.id in self._state.changing().notices:
            self._state.notices[notice.id] = kept(notice)

    def remove(self, notice_id: int) -> None:
        self._state.changing().notices.pop(notice_id, None)


class _Secrets:
    def __init__(self, state: State) -> None:
        self._state = state

    def get_or_put(self, name: str, fresh: str) -> str:
        return self._state.changing().secrets.setdefault(name, fresh)


@dataclass(frozen=True)
class MemoryRecords:
    """`Records` of one transaction in memory."""

    catalog: _Catalog
    checks: _Checks
    asks: _Asks
    versions: _Versions
    workspaces: _Workspaces
    subscriptions: _Subscriptions
    events: _Events
    idempotency: _Idempotency
    webhooks: MemoryWebhooks
    deliveries: MemoryDeliveries
    notices: _Notices
    secrets: _Secrets


class MemoryStore:
    """`Store` in memory; writers exclude each other, readers see the last committed state."""

    answers_at_once = True

    def __init__(self) -> None:
        self._state = State()
        self._turn = threading.Lock()
        self._writer: int | None = None
        self._busy: set[str] = set()
        self._calls: dict[tuple[str, str], Counted] = {}
        self._counting = threading.Lock()

    @contextmanager
    def read(self) -> Iterator[MemoryRecords]:
        """Open one consistent view; changing or locking in it raises `RuntimeError`."""
        yield _records(self._state)

    glance = read

    @contextmanager
    def write(self) -> Iterator[MemoryRecords]:
        """Open a transaction; raises `RuntimeError` inside another of this thread, which would wait for itself."""
        if self._writer == threading.get_ident():
            raise RuntimeError("a write transaction is open in this thread already")
        with self._turn:
            self._writer = threading.get_ident()
            try:
                state = replace(self._state.copy(), locked_elsewhere=frozenset(self._busy))
                yield _records(state)
                self._state = replace(state, writable=False)
            finally:
                self._writer = None

    def count_calls(self, key_id: str, names: Sequence[str], now: datetime) -> tuple[Counted, ...]:
        """Add a call to a key's counters and give them."""
        with self._counting:
            for name in names:
                known = self._calls.get((key_id, name), Counted(name, 0, now))
                is_open = now < known.ends <= now + 2 * WINDOW
                before = known if is_open else Counted(name, 0, now + WINDOW)
                self._calls[key_id, name] = replace(before, calls=before.calls + 1)
            return tuple(self._calls[key_id, name] for name in names)

    @contextmanager
    def busy(self, subscription_id: str) -> Iterator[None]:
        """Make `try_lock` find a subscription locked by another, for a while."""
        self._busy.add(subscription_id)
        try:
            yield
        finally:
            self._busy.discard(subscription_id)

    def close(self) -> None:
        """Do nothing; a database closes its connections here."""


def _records(state: State) -> MemoryRecords:
    return MemoryRecords(
        _Catalog(state),
        _Checks(state),
        _Asks(state),
        _Versions(state),
        _Workspaces(state),
        _Subscriptions(state),
        _Events(state),
        _Idempotency(state),
        MemoryWebhooks(state),
        MemoryDeliveries(state),
        _Notices(state),
        _Secrets(state),
    )
