"""What is needed of the store, as small Protocols: `Records` is one open transaction, in parts by subject.

Nothing but records is read or written inside one: no file, network or agent work (stack rule for SQLite).
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from ploti_server.domain.asks import Ask
from ploti_server.domain.checks import Check, Refresh
from ploti_server.domain.datasets import Dataset, Topic
from ploti_server.domain.deliveries import Backlog, Delivery
from ploti_server.domain.events import LoggedEvent, NewEvent
from ploti_server.domain.idempotency import Remembered
from ploti_server.domain.limits import Counted
from ploti_server.domain.log import LogEnds, LogPage
from ploti_server.domain.notices import Notice
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.domain.webhooks import Webhook
from ploti_server.domain.workspaces import ApiKey, Holder, Member, Workspace


class CatalogRecords(Protocol):
    """Topics and datasets as the operator applied them."""

    def topics(self) -> tuple[Topic, ...]:
        """List the topics in catalog order."""

    def put_topics(self, topics: Sequence[Topic]) -> None:
        """Replace all topics."""

    def dataset(self, dataset_id: str) -> Dataset | None:
        """Find a dataset, retired ones too."""

    def datasets(self) -> tuple[Dataset, ...]:
        """List all datasets by id, retired ones too."""

    def put_dataset(self, dataset: Dataset) -> None:
        """Insert a dataset or replace its definition."""

    def lock(self, dataset_ids: Sequence[str]) -> None:
        """Lock dataset rows, in id order, until the transaction ends (D7.2)."""

    def refresh(self, dataset_id: str) -> Refresh:
        """Tell when the source was last read and is due."""

    def refreshes(self, dataset_ids: Collection[str] | None = None) -> dict[str, Refresh]:
        """Tell the same of the datasets named, or of all, where anything is known, by dataset id."""

    def put_refresh(self, dataset_id: str, refresh: Refresh) -> None:
        """Store when the source was last read and is due."""


class CheckRecords(Protocol):
    """Checks and the claiming of their work."""

    def add(self, check: Check) -> Check:
        """Insert a check; its id is given here."""

    def get(self, check_id: int) -> Check | None:
        """Find a check."""

    def put(self, check: Check) -> None:
        """Replace a check."""

    def open_of(self, dataset_id: str) -> tuple[Check, ...]:
        """List checks of a dataset that are queued, building or waiting, oldest first."""

    def last_of(self, dataset_id: str, before: int | None = None) -> Check | None:
        """Find the newest check of a dataset, by id, or the newest with an id below `before`."""

    def claim(self, owner: str, now: datetime, until: datetime, check_id: int | None = None) -> Check | None:
        """Lease the oldest due check (queued, or building or waiting with its lease run out), or the one named.

        At most one check of a dataset is leased at a time, the oldest open one first. None where there is none.
        """

    def beat(self, check_id: int, owner: str, until: datetime) -> bool:
        """Prolong a lease; False where it is no longer the owner's."""

    def leased(self) -> tuple[Check, ...]:
        """List the checks that have an owner and have not ended, by id, those whose lease ran out too."""


class AskRecords(Protocol):
    """Asks of the matching agent, one for each check that asked anything, kept for good (D4.2)."""

    def get(self, check_id: int) -> Ask | None:
        """Find what a check asked."""

    def put(self, ask: Ask) -> None:
        """Insert or replace an ask."""

    def of_dataset(self, dataset_id: str, limit: int) -> tuple[Ask, ...]:
        """List a dataset's asks, newest first."""

    def waiting(self) -> tuple[Ask, ...]:
        """List the asks that wait for an answer, the one due first ahead."""


class VersionRecords(Protocol):
    """Versions of datasets. `current` is the newest released one."""

    def get(self, dataset_id: str, number: int) -> Version | None:
        """Find a version in any status."""

    def put(self, version: Version) -> None:
        """Insert or replace a version."""

    def drop(self, dataset_id: str, number: int) -> None:
        """Remove a version that never became visible."""

    def current(self, dataset_id: str) -> Version | None:
        """Find the newest released version."""

    def currents(self, dataset_ids: Collection[str]) -> dict[str, Version]:
        """Find the same of each dataset named that has one."""

    def newest_number(self, dataset_id: str) -> int:
        """Give the highest number so far, 0 where there is none."""

    def released(
        self,
        dataset_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int = 1000,
    ) -> tuple[Version, ...]:
        """List released versions with after < number < before."""

    def in_status(self, dataset_id: str | None, statuses: Sequence[VersionStatus]) -> tuple[Version, ...]:
        """List versions of one dataset, or of all, in any of the statuses, by dataset and number."""


class NameTaken(Exception):
    """A workspace of that name exists already."""


class WorkspaceRecords(Protocol):
    """Workspaces, members and keys."""

    def get(self, workspace_id: str) -> Workspace | None:
        """Find a workspace by id."""

    def named(self, name: str) -> Workspace | None:
        """Find a workspace by its unique name."""

    def all(self) -> tuple[Workspace, ...]:
        """List workspaces by name."""

    def lock(self, workspace_id: str) -> None:
        """Lock a workspace's row until the transaction ends, waiting for whoever has it.

        Whatever changes its coverage or the set of its subscriptions takes this first.
        """

    def put(self, workspace: Workspace) -> None:
        """Insert or replace a workspace; raises `NameTaken` where another has the name."""

    def remove(self, workspace_id: str) -> None:
        """Delete a workspace with its members, keys, subscriptions and their events."""

    def member(self, workspace_id: str, name: str) -> Member | None:
        """Find a member, one that left too."""

    def members(self, workspace_id: str) -> tuple[Member, ...]:
        """List members by name."""

    def put_member(self, member: Member) -> None:
        """Insert or replace a member."""

    def put_key(self, key: ApiKey) -> None:
        """Insert or replace a key."""

    def holder(self, key_hash: str) -> Holder | None:
        """Find whose the key with a text of this sha256 is, a revoked one too."""

    def keys(self, workspace_id: str) -> tuple[ApiKey, ...]:
        """List keys, oldest first."""


class SubscriptionRecords(Protocol):
    """Subscriptions and which datasets have joined them."""

    def get(self, subscription_id: str) -> Subscription | None:
        """Find a subscription."""

    def of_workspace(self, workspace_id: str) -> tuple[Subscription, ...]:
        """List a workspace's subscriptions, oldest first."""

    def all(self) -> tuple[Subscription, ...]:
        """List every subscription by id."""

    def put(self, subscription: Subscription) -> None:
        """Insert or replace a subscription."""

    def remove(self, subscription_id: str) -> None:
        """Delete a subscription with its membership and events."""

    def try_lock(self, subscription_id: str) -> bool:
        """Lock a subscription's counter until the transaction ends; False at once where another has it (`409 busy`)."""

    def joined(self, subscription_id: str) -> tuple[str, ...]:
        """List the dataset ids that the subscription holds, in id order."""

    def join(self, subscription_id: str, dataset_id: str) -> None:
        """Take a dataset in."""

    def leave(self, subscription_id: str, dataset_id: str) -> None:
        """Let a dataset go."""

    def holding(self, dataset_id: str) -> tuple[Subscription, ...]:
        """List the subscriptions that hold a dataset, in id order."""


class EventRecords(Protocol):
    """The gapless log of each subscription (D7.2)."""

    def append(self, subscription_id: str, events: Sequence[NewEvent], now: datetime) -> tuple[LoggedEvent, ...]:
        """Append events with the next numbers, from the subscription's counter row, locked here.

        Their deliveries to the subscription's webhooks are queued in the same transaction (D7.1).
        """

    def after(
        self, subscription_id: str, number: int, limit: int, types: Sequence[str] | None = None
    ) -> tuple[LoggedEvent, ...]:
        """List events with a higher number, in order."""

    def at(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], LoggedEvent]:
        """Find events by subscription and number; unknown ones are left out."""

    def page(self, subscription_id: str, number: int, limit: int, types: Sequence[str] | None = None) -> LogPage | None:
        """Give the same events' stored bodies, with what they are a page of; None for an unknown subscription."""

    def last_of_each(self, subscription_id: str, through: int, types: Sequence[str]) -> tuple[LoggedEvent, ...]:
        """List each dataset's last event of these types with a number up to `through`, by dataset."""

    def about(self, subscription_id: str, dataset_id: str, limit: int) -> tuple[LoggedEvent, ...]:
        """List the newest events about a dataset, in order."""

    def newest(self, subscription_id: str) -> int:
        """Give the number of the newest event ever, 0 where there was none."""

    def newest_of(self, subscription_ids: Collection[str]) -> dict[str, int]:
        """Give the same of each subscription named; one that there is not is left out."""

    def oldest(self, subscription_id: str) -> int | None:
        """Give the number of the oldest event kept, None where none is."""

    def ends(self, subscription_id: str) -> LogEnds:
        """Give both ends of a log."""

    def sent_by(self, subscription_id: str, moment: datetime) -> int | None:
        """Give the number up to which all kept events were sent at a moment or before, None where no event was."""

    def drop_through(self, subscription_id: str, number: int) -> None:
        """Delete the events up to a number with their deliveries; numbers are never given again (D7.5)."""


class IdempotencyRecords(Protocol):
    """First answers to Idempotency-Keys (D8.2)."""

    def get(self, workspace_id: str, route: str, key: str) -> Remembered | None:
        """Find the first answer to a key, one kept too long as well."""

    def put(self, remembered: Remembered) -> None:
        """Insert or replace the answer to a key."""

    def forget(self, workspace_id: str, before: datetime) -> None:
        """Delete a workspace's answers that were first given before a moment or at it."""


class WebhookRecords(Protocol):
    """Webhooks of workspaces."""

    def get(self, webhook_id: str) -> Webhook | None:
        """Find a webhook."""

    def lock(self, webhook_id: str) -> Webhook | None:
        """Find a webhook and lock it until the transaction ends."""

    def lock_each(self, webhook_ids: Collection[str]) -> Mapping[str, Webhook]:
        """Find webhooks and lock them in order until the transaction ends; unknown ones are left out."""

    def of_workspace(self, workspace_id: str) -> tuple[Webhook, ...]:
        """List a workspace's webhooks, oldest first."""

    def put(self, webhook: Webhook) -> None:
        """Insert or replace a webhook; a webhook that is off lets none of its deliveries wait."""

    def remove(self, webhook_id: str) -> None:
        """Delete a webhook with its deliveries."""


class DeliveryRecords(Protocol):
    """Deliveries of logged events to webhooks; they go with their event or webhook."""

    def get(self, delivery_id: str) -> Delivery | None:
        """Find a delivery."""

    def get_each(self, delivery_ids: Collection[str]) -> Mapping[str, Delivery]:
        """Find deliveries by id; unknown ones are left out."""

    def of_webhook(
        self, webhook_id: str, limit: int, before: int | None = None, status: str | None = None
    ) -> tuple[Delivery, ...]:
        """List a webhook's deliveries of events with a number below `before`, newest event first."""

    def put(self, *deliveries: Delivery) -> None:
        """Replace deliveries; raises `LookupError` where one is not there."""

    def is_any_due(self, now: datetime) -> bool:
        """Tell whether `claim` could find something."""

    def backlog(self, now: datetime) -> Backlog:
        """Count what waits to be sent, and the webhooks that have trouble."""

    def claim(self, owner: str, now: datetime, until: datetime, limit: int, per_webhook: int) -> tuple[Delivery, ...]:
        """Lease due deliveries of webhooks that are on, up to `limit`.

        At most `per_webhook` of one webhook are leased at a time, one where it is failing, and one of each dataset;
        what is due longest goes first, then by event number, and each webhook's first before another's second.
        """


class NoticeRecords(Protocol):
    """Notices to the operator that wait to be sent."""

    def add(self, notice: Notice) -> Notice:
        """Insert a notice; its id is given here."""

    def claim(self, now: datetime, until: datetime, limit: int) -> tuple[Notice, ...]:
        """Give due notices, oldest first, and keep them from others until a moment."""

    def put(self, notice: Notice) -> None:
        """Replace a notice; nothing happens where it was removed."""

    def remove(self, notice_id: int) -> None:
        """Delete a notice."""


class SecretRecords(Protocol):
    """Secrets shared by all processes on one store."""

    def get_or_put(self, name: str, fresh: str) -> str:
        """Give the stored secret, storing `fresh` where there is none."""


class Records(Protocol):
    """One open transaction."""

    @property
    def catalog(self) -> CatalogRecords: ...
    @property
    def checks(self) -> CheckRecords: ...
    @property
    def asks(self) -> AskRecords: ...
    @property
    def versions(self) -> VersionRecords: ...
    @property
    def workspaces(self) -> WorkspaceRecords: ...
    @property
    def subscriptions(self) -> SubscriptionRecords: ...
    @property
    def events(self) -> EventRecords: ...
    @property
    def idempotency(self) -> IdempotencyRecords: ...
    @property
    def webhooks(self) -> WebhookRecords: ...
    @property
    def deliveries(self) -> DeliveryRecords: ...
    @property
    def notices(self) -> NoticeRecords: ...
    @property
    def secrets(self) -> SecretRecords: ...


class Store(Protocol):
    """Metadata, the event log and work, in one transactional database."""

    @property
    def answers_at_once(self) -> bool:
        """Tell whether a short read waits for nothing: neither a network nor whoever writes."""

    def read(self) -> AbstractContextManager[Records]:
        """Open one consistent view; writing in it is an error."""

    def glance(self) -> AbstractContextManager[Records]:
        """Open a view in which each read is of its own moment, which costs less than `read`; writing is an error."""

    def write(self) -> AbstractContextManager[Records]:
        """Open a transaction: committed at the end of the block, rolled back by an exception."""

    def count_calls(self, key_id: str, names: Sequence[str], now: datetime) -> tuple[Counted, ...]:
        """Add a call to a key's counters and give them, exactly, whoever else counts on this store (D8.5).

        A counter's window opens with its first call. Counting is apart from the store's transactions: it waits for
        none, and a crash of the machine may reset it.
        """
