"""Creates and deletes subscriptions for a workspace's admins (page 000, D7.3)."""

import secrets
from typing import Final

from ploti_server.domain.access import Access, Refused, access_of
from ploti_server.domain.subscriptions import (
    Selection,
    Subscription,
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


def create_subscription(ports: Ports, workspace: Workspace, selection: Selection) -> Subscription:
    """Create a subscription and let its datasets join, in one transaction; raises `Refused` with page 000's codes."""
    plan = plan_of(ports, workspace)
    with ports.store.write() as records:
        current = records.workspaces.get(workspace.id)
        if current is None:
            raise Refused("unauthenticated", "The workspace of this key was deleted: use a key of another workspace.")
        _check(records, selection, access_of(current, plan))
        check_room(records.subscriptions.of_workspace(workspace.id))
        now = ports.clock.now()
        created = new_subscription(new_id("sub_"), workspace.id, selection, now)
        records.subscriptions.put(created)
        bring_up_to_date(records, created, plan, now)
        ports.reach("subscription.before_commit")
    return created


def _check(records: Records, selection: Selection, access: Access) -> None:
    named = {i: dataset for i in selection.dataset_ids if (dataset := records.catalog.dataset(i)) is not None}
    check_selection(selection, {topic.id for topic in records.catalog.topics()}, access, named)


def delete_subscription(ports: Ports, workspace_id: str, subscription_id: str) -> None:
    """Delete a subscription with its log; raises `Refused` `not_found`, or `busy` while its datasets are changing."""
    with ports.store.write() as records:
        owned_subscription(records, workspace_id, subscription_id)
        if not records.subscriptions.try_lock(subscription_id):
            raise busy()
        records.subscriptions.remove(subscription_id)
