"""What a workspace's coverage and plan open, and the refusals of a request with their order (D1.5, D10.3)."""

from dataclasses import dataclass, field
from typing import Final

from ploti.contract.errors import ERROR_STATUS
from ploti_server.domain.coverage import covered_counties, in_coverage
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.workspaces import ApiKey, Member, Workspace

OUTSIDE_COVERAGE: Final = "outside_coverage"
NOT_DELIVERABLE: Final = "not_deliverable"


class Refused(Exception):
    """A request that is turned down: a code of the contract and a message that says what to do next.

    `field` names the part of the request at fault.
    """

    def __init__(self, code: str, message: str, field: str | None = None) -> None:
        if code not in ERROR_STATUS:
            raise ValueError(f"{code} is no error code of the contract")
        super().__init__(message)
        self.code, self.message, self.field = code, message, field


@dataclass(frozen=True)
class Access:
    """The counties that a workspace's coverage resolves to, and the topics that its plan opens (None: all)."""

    counties: frozenset[str]
    topics: frozenset[str] | None = field(default=None)

    def plan_opens(self, dataset: Dataset) -> bool:
        """Tell whether the plan opens a dataset; one without a topic needs a plan of all topics (D10.3)."""
        return self.topics is None or dataset.topic in self.topics

    def covers(self, dataset: Dataset) -> bool:
        """Tell whether a dataset is in the coverage."""
        return in_coverage(dataset, self.counties)

    def delivers(self, dataset: Dataset) -> bool:
        """Tell whether a dataset can be delivered to the workspace: offered, in coverage, opened by the plan."""
        return is_offered(dataset) and self.covers(dataset) and self.plan_opens(dataset)


def access_of(workspace: Workspace, plan: tuple[str, ...] | None) -> Access:
    """Put together what a workspace's coverage and its plan's topics (None: all) open."""
    return Access(covered_counties(workspace.coverage), None if plan is None else frozenset(plan))


def is_offered(dataset: Dataset) -> bool:
    """Tell whether a dataset is delivered at all: not retired, not withheld."""
    return dataset.deliverable and not dataset.retired


def refusal_of(dataset_id: str, dataset: Dataset | None, access: Access) -> Refused | None:
    """Tell why a workspace cannot have a dataset, the first that holds: unknown, outside, not deliverable (D1.5)."""
    if dataset is None:
        return Refused("not_found", f"There is no dataset {dataset_id}: list the datasets for the ids you can use.")
    if not access.covers(dataset):
        return Refused(
            OUTSIDE_COVERAGE,
            f"{dataset_id} lies outside your workspace's coverage: ask for its place to be added, or leave it out.",
        )
    if not access.delivers(dataset):
        return Refused(
            NOT_DELIVERABLE,
            f"{dataset_id} cannot be delivered to your workspace: list the datasets for those that can.",
        )
    return None


def refusal_of_key(key: ApiKey | None, member: Member | None) -> Refused | None:
    """Tell why a key opens nothing: unknown, revoked, or its member has left (D10.3)."""
    if key is None or key.revoked_at is not None or member is None or member.left_at is not None:
        return Refused(
            "unauthenticated",
            "Send a valid API key as 'Authorization: Bearer ploti_...': this one is missing, unknown or revoked.",
        )
    return None
