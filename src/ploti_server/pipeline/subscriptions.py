"""Creates, changes and deletes subscriptions for a workspace's admins (page 000, D7.3, D8.1, D8.2).

Each takes the workspace's lock first, so that its coverage and the set of its subscriptions stand still meanwhile.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ploti_server.domain.access import Access, Refused, access_of
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.idempotency import KEPT, Remembered, answer_again
from ploti_server.domain.subscriptions import (
    Change,
    Selection,
    Subscription,
    changed,
    check_change,
    check_revision,
    check_room,
    check_selection,
    new_subscription,
)
from ploti_server.domain.workspaces import Workspace
from ploti_server.pipeline.membership import PlanTopics, bring_up_to_date, busy
from ploti_server.ports import PlanUnavailable, Ports, Records

_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567"
_ID_CHARACTERS: Final = 16


def new_id(prefix: str) -> str:
    """Make an id of a prefix and random base32 (D10.4)."""
    return prefix + "".join(secrets.choice(_BASE32) for _ in range(_ID_CHARACTERS))


def plan_of(ports: Ports, workspace: Workspace) -> PlanTopics:
    """Read a workspace's plan; raises `Refused` `plan_unavailable`."""
    try:
        return ports.plans.topics(workspace)
    except PlanUnavailable:
        raise Refused(
            "plan_unavailable", "Your workspace's plan cannot be read just now: try again in a minute."
        ) from None


def no_subscription(subscription_id: str) -> Refused:
    """Say that a workspace has no such subscription."""
    return Refused("not_found", f"There is no subscription {subscription_id}: list the subscriptions for their ids.")


def owned_subscription(records: Records, workspace_id: str, subscription_id: str) -> Subscription:
    """Find a workspace's subscription; another workspace's is refused like an unknown one (I8)."""
    found = records.subscriptions.get(subscription_id)
    if found is None or found.workspace_id != workspace_id:
        raise no_subscription(subscription_id)
    return found


@dataclass(frozen=True)
class Once:
    """An Idempotency-Key that came with a create; `answer` writes the JSON that is remembered of it."""

    route: str
    key: str
    body_hash: str
    status: int
    answer: Callable[[Subscription], str]


def create_subscription(ports: Ports, workspace: Workspace, selection: Selection) -> Subscription:
    """Create a subscription and let its datasets join, in one transaction; raises `Refused` with page 000's codes."""
    plan = plan_of(ports, workspace)
    with ports.store.write() as records:
        created = _create(ports, records, workspace, selection, plan)
        ports.reach("subscription.before_commit")
    return created


def create_once(ports: Ports, workspace: Workspace, selection: Selection, once: Once) -> Subscription | Remembered:
    """Create a subscription and remember the answer in the same transaction, or give the answer of before (D8.2).

    A refusal or a crash leaves the key unused. Raises `Refused`, also for another body than the key's first.
    """
    plan = plan_of(ports, workspace)
    with ports.store.write() as records:
        records.workspaces.lock(workspace.id)
        now = ports.clock.now()
        before = _earlier(records, workspace.id, once, now)
        if before is not None:
            return before
        created = _create(ports, records, workspace, selection, plan)
        records.idempotency.forget(workspace.id, now - KEPT)
        answer = once.answer(created)
        records.idempotency.put(
            Remembered(workspace.id, once.route, once.key, once.body_hash, once.status, answer, now)
        )
        ports.reach("subscription.before_commit")
    return created


def earlier_answer(ports: Ports, workspace_id: str, once: Once) -> Remembered | None:
    """Find the answer that a key has been given already; raises `Refused` for another body than its first."""
    with ports.store.read() as records:
        return _earlier(records, workspace_id, once, ports.clock.now())


def _earlier(records: Records, workspace_id: str, once: Once, now: datetime) -> Remembered | None:
    return answer_again(records.idempotency.get(workspace_id, once.route, once.key), once.body_hash, now)


def _create(
    ports: Ports, records: Records, workspace: Workspace, selection: Selection, plan: PlanTopics
) -> Subscription:
    access = _locked_access(records, workspace.id, plan)
    check_selection(selection, _topics(records), access, _known(records, selection.dataset_ids))
    check_room(records.subscriptions.of_workspace(workspace.id))
    now = ports.clock.now()
    created = new_subscription(new_id("sub_"), workspace.id, selection, now)
    records.subscriptions.put(created)
    bring_up_to_date(records, created, plan, now)
    return created


def _locked_access(records: Records, workspace_id: str, plan: PlanTopics) -> Access:
    """Lock a workspace and read what it opens, so that no coverage of before is used."""
    records.workspaces.lock(workspace_id)
    current = records.workspaces.get(workspace_id)
    if current is None:
        raise Refused("unauthenticated", "The workspace of this key was deleted: use a key of another workspace.")
    return access_of(current, plan)


def _topics(records: Records) -> set[str]:
    return {topic.id for topic in records.catalog.topics()}


def _known(records: Records, dataset_ids: Sequence[str]) -> dict[str, Dataset]:
    return {one: dataset for one in dataset_ids if (dataset := records.catalog.dataset(one)) is not None}


def check_preview(records: Records, selection: Selection, access: Access) -> None:
    """Refuse to preview what could not be subscribed to, by the rules of a create."""
    check_selection(selection, _topics(records), access, _known(records, selection.dataset_ids))


def change_subscription(
    ports: Ports, workspace: Workspace, subscription_id: str, change: Change, tags: tuple[str, ...] | None
) -> Subscription:
    """Change a subscription from the revision it was read at, and let datasets join and leave, in one transaction.

    `tags` are those of If-Match. Raises `Refused`: `not_found`, `precondition_failed`, `busy`, and as a create does.
    """
    plan = plan_of(ports, workspace)
    with ports.store.write() as records:
        access = _locked_access(records, workspace.id, plan)
        before = owned_subscription(records, workspace.id, subscription_id)
        check_revision(before, change, tags)
        now = ports.clock.now()
        after = changed(before, change, now)
        check_change(after, change, _topics(records), access, _known(records, change.dataset_ids or ()))
        if after != before:
            records.subscriptions.put(after)
        bring_up_to_date(records, after, plan, now)
        ports.reach("subscription.before_commit")
    return after


def delete_subscription(ports: Ports, workspace_id: str, subscription_id: str) -> None:
    """Delete a subscription with its log; raises `Refused` `not_found`, or `busy` while its datasets are changing."""
    with ports.store.write() as records:
        records.workspaces.lock(workspace_id)
        owned_subscription(records, workspace_id, subscription_id)
        if not records.subscriptions.try_lock(subscription_id):
            raise busy()
        records.subscriptions.remove(subscription_id)
