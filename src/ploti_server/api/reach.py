"""What a caller may reach, refused in one order: unknown, outside, not deliverable, not subscribed, version (D1.5)."""

from dataclasses import dataclass

from ploti_server.api.links import Context
from ploti_server.api.queries import Caller
from ploti_server.domain.access import OUTSIDE_COVERAGE, Access, Refused, access_of, refusal_of
from ploti_server.domain.coverage import is_covered
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.places import Place, place_named
from ploti_server.domain.retention import offered
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.pipeline.subscriptions import plan_of
from ploti_server.ports import Records


def access_for(context: Context, caller: Caller) -> Access:
    """Read what the caller's coverage and plan open; raises `Refused` `plan_unavailable`."""
    return access_of(caller.workspace, plan_of(context.ports, caller.workspace))


def covered_place(place_id: str | None, access: Access) -> Place | None:
    """Find the place that a filter names; raises `Refused` `outside_coverage`."""
    place = place_named(place_id)
    if place_id is not None and (place is None or not is_covered(place, access.counties)):
        message = f"'{place_id}' is not in your workspace's coverage: use the ids that GET /v1/places lists."
        raise Refused(OUTSIDE_COVERAGE, message, "place")
    return place


def require_topic(records: Records, topic: str | None) -> None:
    """Refuse a filter by a topic that is none."""
    if topic is not None and topic not in {known.id for known in records.catalog.topics()}:
        raise Refused("invalid_input", f"'{topic}' is not a topic: use the ids that GET /v1/topics lists.", "topic")


def reach_dataset(records: Records, access: Access, dataset_id: str) -> Dataset:
    """Find a dataset that can be delivered to the workspace, or refuse."""
    dataset = records.catalog.dataset(dataset_id)
    refused = refusal_of(dataset_id, dataset, access)
    if refused is not None or dataset is None:
        raise refused or LookupError(dataset_id)
    return dataset


def require_subscribed(records: Records, workspace_id: str, dataset_id: str) -> None:
    """Refuse a dataset that none of the workspace's subscriptions delivers."""
    if all(subscription.workspace_id != workspace_id for subscription in records.subscriptions.holding(dataset_id)):
        message = f"None of your subscriptions delivers {dataset_id}: subscribe to it or to its place first."
        raise Refused("not_subscribed", message)


def no_version(dataset_id: str, number: int) -> Refused:
    """Say that a dataset has no such version; one that was never released is refused in the same words (I4)."""
    return Refused("not_found", f"{dataset_id} has no version {number}: list its versions for those released.")


def reach_version(records: Records, dataset_id: str, number: int) -> Version:
    """Find a released version; raises `Refused` `not_found`, or `expired` for one that was released again."""
    version = records.versions.get(dataset_id, number)
    sent = version is not None and version.released_at is not None
    if version is not None and sent and version.status is VersionStatus.RELEASED_AGAIN:
        message = (
            f"Version {number} of {dataset_id} was released again under a new number: "
            "load the dataset's current version instead."
        )
        raise Refused("expired", message)
    if version is None or version.status is not VersionStatus.RELEASED:
        raise no_version(dataset_id, number)
    return version


@dataclass(frozen=True)
class Reached:
    """A version with those of its files whose links may be signed."""

    dataset: Dataset
    version: Version
    is_current: bool


def reach_files(context: Context, caller: Caller, dataset_id: str, number: int) -> Reached:
    """Find a version of a dataset that one of the workspace's subscriptions delivers, or refuse."""
    access = access_for(context, caller)
    with context.ports.store.read() as records:
        dataset = reach_dataset(records, access, dataset_id)
        require_subscribed(records, caller.workspace.id, dataset_id)
        version = reach_version(records, dataset_id, number)
        current = records.versions.current(dataset_id)
        is_current = current is not None and current.number == number
        return Reached(dataset, offered(version, is_current=is_current), is_current)
