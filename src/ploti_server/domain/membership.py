"""Which datasets a subscription holds, who joins, who leaves and why (page 000, D7.3)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from ploti.contract.events import RemovedReason
from ploti_server.domain.access import Access, is_offered
from ploti_server.domain.checks import Refresh
from ploti_server.domain.coverage import reached_places
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.subscriptions import Selection, Subscription


@dataclass(frozen=True)
class Leaving:
    """A dataset that leaves a subscription, and why."""

    dataset_id: str
    reason: RemovedReason


@dataclass(frozen=True)
class Moves:
    """What brings a subscription's datasets up to date; both in id order."""

    joining: tuple[str, ...] = ()
    leaving: tuple[Leaving, ...] = ()


def names(subscription: Subscription, dataset: Dataset, counties: frozenset[str] | None) -> bool:
    """Tell whether a subscription's places, topics or dataset ids name a dataset.

    `<state>-counties` stands for the covered `counties`; with None, for every county of the state.
    """
    return dataset.id in subscription.dataset_ids or names_by_place(subscription, dataset, counties)


def names_by_place(selection: Subscription | Selection, dataset: Dataset, counties: frozenset[str] | None) -> bool:
    """Tell whether the places, narrowed to the topics, name a dataset."""
    if selection.topics and dataset.topic not in selection.topics:
        return False
    return not dataset.places.isdisjoint(reached_places(selection.places, counties))


def covers(subscription: Subscription, dataset: Dataset, access: Access) -> bool:
    """Tell whether a subscription includes a dataset now."""
    return access.delivers(dataset) and names(subscription, dataset, access.counties)


def reason_of_leaving(subscription: Subscription, dataset: Dataset | None, access: Access) -> RemovedReason | None:
    """Tell why a held dataset leaves, the first reason of D7.3 that holds; None where it stays."""
    if dataset is None or not is_offered(dataset):
        return "no_longer_deliverable"
    if access.covers(dataset) and names(subscription, dataset, access.counties):
        return None if access.plan_opens(dataset) else "plan_changed"
    return "left_coverage" if names(subscription, dataset, None) else "subscription_changed"


def moves(subscription: Subscription, held: Collection[str], datasets: Iterable[Dataset], access: Access) -> Moves:
    """Decide who joins and who leaves a subscription, given the ids it holds and every dataset of the catalog."""
    known, has_joined = {dataset.id: dataset for dataset in datasets}, set(held)
    joining = [d.id for d in known.values() if d.id not in has_joined and covers(subscription, d, access)]
    found = [(i, reason_of_leaving(subscription, known.get(i), access)) for i in sorted(held)]
    leaving = [Leaving(dataset_id, reason) for dataset_id, reason in found if reason is not None]
    return Moves(tuple(sorted(joining)), tuple(leaving))


def due_at_once(refresh: Refresh, now: datetime) -> Refresh:
    """Make a dataset's check due now: the first subscription to include it asks for one at once (D7.9)."""
    return replace(refresh, next_check_by=now)
