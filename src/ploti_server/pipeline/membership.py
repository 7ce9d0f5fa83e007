"""Brings the datasets that a subscription holds up to date with what it covers, and reports it in its log (D7.3)."""

from collections.abc import Iterable
from datetime import datetime

from ploti_server.domain import events
from ploti_server.domain.access import Refused, access_of
from ploti_server.domain.membership import Moves, due_at_once, moves
from ploti_server.domain.subscriptions import Subscription
from ploti_server.domain.versions import VersionStatus
from ploti_server.domain.workspaces import Workspace
from ploti_server.ports import PlanUnavailable, Ports, Records

PlanTopics = tuple[str, ...] | None
"""Topics that a workspace's plan opens; None for all."""


def busy() -> Refused:
    """Say that a subscription's datasets are changing."""
    return Refused("busy", "The subscription's datasets are changing just now: try again in a moment.")


def pending_moves(records: Records, subscription: Subscription, plan: PlanTopics) -> Moves:
    """Tell what bringing a subscription up to date would change, as the records stand."""
    workspace = records.workspaces.get(subscription.workspace_id)
    if workspace is None:
        raise LookupError(f"{subscription.id} belongs to no workspace")
    held = records.subscriptions.joined(subscription.id)
    return moves(subscription, held, records.catalog.datasets(), access_of(workspace, plan))


def bring_up_to_date(records: Records, subscription: Subscription, plan: PlanTopics, now: datetime) -> Moves:
    """Let datasets join and leave a subscription, with their events, inside one writing transaction.

    The moving datasets are locked in id order, then the subscription's counter, and all is read again under these locks
    (D7.2). Raises `Refused` `busy` where another request is at it.
    """
    locked = _moving(pending_moves(records, subscription, plan))
    records.catalog.lock(sorted(locked))
    if not records.subscriptions.try_lock(subscription.id):
        raise busy()
    decided = pending_moves(records, subscription, plan)
    if not _moving(decided) <= locked:
        raise busy()
    for leaving in decided.leaving:
        records.subscriptions.leave(subscription.id, leaving.dataset_id)
        records.events.append(subscription.id, [events.removed(leaving.dataset_id, leaving.reason)], now)
    for dataset_id in decided.joining:
        _join(records, subscription.id, dataset_id, now)
    return decided


def _moving(decided: Moves) -> set[str]:
    return {*decided.joining, *(leaving.dataset_id for leaving in decided.leaving)}


def _join(records: Records, subscription_id: str, dataset_id: str, now: datetime) -> None:
    if not records.subscriptions.holding(dataset_id):
        records.catalog.put_refresh(dataset_id, due_at_once(records.catalog.refresh(dataset_id), now))
    records.subscriptions.join(subscription_id, dataset_id)
    current = records.versions.current(dataset_id)
    sent = [events.added(dataset_id, current)]
    sent += [
        events.delayed(held, current) for held in records.versions.in_status(dataset_id, [VersionStatus.HELD])[-1:]
    ]
    records.events.append(subscription_id, sent, now)


def bring_all_up_to_date(ports: Ports, workspace_id: str | None = None) -> tuple[str, ...]:
    """Bring every subscription, or a workspace's, up to date, each in a transaction of its own.

    Gives the ids of those left as they were, because they were busy or their plan could not be read: they are to be
    asked again within minutes (D7.3).
    """
    with ports.store.read() as records:
        found = (
            records.subscriptions.all() if workspace_id is None else records.subscriptions.of_workspace(workspace_id)
        )
    waiting: list[str] = []
    for owner in dict.fromkeys(subscription.workspace_id for subscription in found):
        own = [subscription.id for subscription in found if subscription.workspace_id == owner]
        waiting += _bring_up_to_date_of(ports, owner, own)
    return tuple(sorted(waiting))


def _bring_up_to_date_of(ports: Ports, workspace_id: str, subscription_ids: Iterable[str]) -> list[str]:
    with ports.store.read() as records:
        workspace = records.workspaces.get(workspace_id)
    if workspace is None:
        return []
    try:
        plan = ports.plans.topics(workspace)
    except PlanUnavailable:
        return list(subscription_ids)
    return [one for one in _with_moves(ports, workspace, subscription_ids, plan) if not _tried(ports, one, plan)]


def _with_moves(ports: Ports, workspace: Workspace, subscription_ids: Iterable[str], plan: PlanTopics) -> list[str]:
    """List the subscriptions whose datasets are not up to date, reading the catalog once for all of them."""
    access = access_of(workspace, plan)
    with ports.store.read() as records:
        datasets = records.catalog.datasets()
        found = [one for one in map(records.subscriptions.get, subscription_ids) if one is not None]
        held = {one.id: records.subscriptions.joined(one.id) for one in found}
    return [one.id for one in found if _moving(moves(one, held[one.id], datasets, access))]


def _tried(ports: Ports, subscription_id: str, plan: PlanTopics) -> bool:
    """Bring one subscription up to date; False where it was busy."""
    try:
        with ports.store.write() as records:
            subscription = records.subscriptions.get(subscription_id)
            if subscription is not None:
                bring_up_to_date(records, subscription, plan, ports.clock.now())
    except Refused as refused:
        if refused.code != "busy":
            raise
        return False
    return True
