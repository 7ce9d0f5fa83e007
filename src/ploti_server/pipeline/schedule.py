"""Tells which datasets are due for a check, and takes their sources' states in by schedule (D7.9, D13.4)."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from ploti_server.domain.checks import Check, CheckStatus
from ploti_server.domain.datasets import Dataset
from ploti_server.pipeline.check import CheckRefused, fail_check, public_source, take_own_state
from ploti_server.ports import Ports, Records

FAILED_AGAIN_AFTER: Final = timedelta(hours=1)
"""How long a dataset whose last check failed waits for the next one by schedule."""
COMMITTED_WITHIN: Final = timedelta(seconds=2)
"""How long after a due time was set it may have been stored."""


def due_datasets(ports: Ports) -> tuple[str, ...]:
    """List the datasets that a subscription includes and whose check is due, by id (D13.4)."""
    now = ports.clock.now()
    with ports.store.read() as records:
        return tuple(dataset.id for dataset in records.catalog.datasets() if _is_due(records, dataset, now))


def queue_due(ports: Ports) -> tuple[Check, ...]:
    """Queue a check of each due dataset whose source can be read from here: a file that is there.

    A dataset whose check is open already is left alone, but for one that waits for its agent (D4.9), and one whose last
    check failed for a while. Without a file nothing is tried: its states are given by hand, or it becomes stale.
    """
    now = ports.clock.now()
    with ports.store.read() as records:
        due = [d for d in records.catalog.datasets() if _is_due(records, d, now) and _is_free(records, d, now)]
    readable = [d.id for d in due if public_source(d) is None and Path(d.source.url).is_file()]
    return tuple(take_due(ports, dataset_id) for dataset_id in readable)


def came_due(ports: Ports, since: datetime) -> bool:
    """Tell whether any dataset has come due after a moment, by one look at the times alone.

    So that a dataset that somebody includes for the first time need not wait for the next round (D7.9).
    """
    now = ports.clock.now()
    with ports.store.read() as records:
        refreshes = records.catalog.refreshes().values()
    dues = (refresh.next_check_by for refresh in refreshes)
    return any(due is not None and since - COMMITTED_WITHIN < due <= now for due in dues)


def take_due(ports: Ports, dataset_id: str) -> Check:
    """Take in the state that a due dataset's source has now; a source that cannot be read is a failed check."""
    try:
        return take_own_state(ports, dataset_id, None)
    except CheckRefused as refused:
        return fail_check(ports, dataset_id, str(refused))


def _is_due(records: Records, dataset: Dataset, now: datetime) -> bool:
    due = records.catalog.refresh(dataset.id).next_check_by
    return not dataset.retired and (due is None or due <= now) and bool(records.subscriptions.holding(dataset.id))


def _is_free(records: Records, dataset: Dataset, now: datetime) -> bool:
    last = records.checks.last_of(dataset.id)
    if last is None or last.finished_at is None:
        opened = records.checks.open_of(dataset.id)
        return not opened or opened[0].status is CheckStatus.WAITING
    return last.status is not CheckStatus.FAILED or last.finished_at + FAILED_AGAIN_AFTER <= now
