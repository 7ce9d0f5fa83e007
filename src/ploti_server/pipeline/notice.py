"""Notices sources that are a day past their due check, and says so once to whoever holds their datasets (D7.8)."""

from dataclasses import replace
from datetime import datetime

from ploti_server.domain import events
from ploti_server.domain.checks import newly_stale
from ploti_server.domain.versions import VersionStatus
from ploti_server.ports import Ports, Records


def notice_stale(ports: Ports) -> tuple[str, ...]:
    """Report each source that has become stale, in a transaction of its own; gives the ids of their datasets.

    A dataset of which a version is held is left until the hold ends, as nothing is sent of it before (D6.5).
    """
    now = ports.clock.now()
    with ports.store.read() as records:
        late = [one for one, refresh in records.catalog.refreshes().items() if newly_stale(refresh, now)]
        found = [one for one in late if _is_told(records, one, now)]
    return tuple(dataset_id for dataset_id in found if _report(ports, dataset_id, now))


def _is_told(records: Records, dataset_id: str, now: datetime) -> bool:
    dataset = records.catalog.dataset(dataset_id)
    return (
        dataset is not None
        and not dataset.retired
        and newly_stale(records.catalog.refresh(dataset_id), now)
        and not records.versions.in_status(dataset_id, [VersionStatus.HELD])
        and bool(records.subscriptions.holding(dataset_id))
    )


def _report(ports: Ports, dataset_id: str, now: datetime) -> bool:
    """Report one source, looked at again under the dataset's lock; False where it is not stale any more."""
    with ports.store.write() as records:
        records.catalog.lock([dataset_id])
        if not _is_told(records, dataset_id, now):
            return False
        refresh = records.catalog.refresh(dataset_id)
        records.catalog.put_refresh(dataset_id, replace(refresh, stale_for=refresh.next_check_by))
        for subscription in records.subscriptions.holding(dataset_id):
            records.events.append(subscription.id, [events.stale(dataset_id, refresh.last_checked_at)], now)
    return True
