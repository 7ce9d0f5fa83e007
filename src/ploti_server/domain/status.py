"""Where a dataset stands for subscribers (page 000 `status`, D7.9)."""

from dataclasses import dataclass

from ploti.contract.resources import DatasetStatus
from ploti_server.domain.checks import Check, CheckStatus, Refresh
from ploti_server.domain.versions import Version


@dataclass(frozen=True)
class Standing:
    """What stands beside a dataset's definition. The grounds of a status matter only while nothing is released."""

    current: Version | None
    refresh: Refresh
    is_subscribed: bool = False
    is_held: bool = False
    last_check: Check | None = None


def status_of(standing: Standing, has_source: bool) -> DatasetStatus:
    """Give a dataset's status; `has_source` tells whether its source is there to be read at all.

    Nothing of a version that was not released shows before a subscription includes the dataset (I4).
    """
    if standing.current is not None:
        return "available"
    if not standing.is_subscribed:
        return "not_built"
    if standing.is_held:
        return "held"
    check = standing.last_check
    has_state = check is not None and check.state_sha256 is not None
    if not has_state and not has_source:
        return "awaiting_release"
    return "failed" if check is not None and check.status is CheckStatus.FAILED else "building"
