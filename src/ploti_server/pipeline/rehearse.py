"""Rehearses a check: the real build on copies of a dataset's records, so that nothing of it is written (D13.2)."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from ploti_server.domain.checks import Check
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.pipeline.build import build
from ploti_server.pipeline.check import CheckRefused, GivenState, take_state
from ploti_server.ports import Ports, Records

ASKS_COPIED: Final = 50
OWNER: Final = "rehearsal"
LEASE: Final = timedelta(days=1)
MAKE: Final = ("released", "held")
"""Outcomes with a version."""


@dataclass(frozen=True)
class Rehearsed:
    """What a state would come to; `version` is the one that it would make or release."""

    check: Check
    version: Version | None
    current: Version | None


def rehearse(ports: Ports, spare: Ports, dataset_id: str, state: GivenState) -> Rehearsed:
    """Build a state on the empty stores of `spare`, beside what the dataset's records are now.

    Raises `CheckRefused` like a check.
    """
    with ports.store.read() as records, spare.store.write() as copies:
        current = _copy(records, copies, dataset_id)
    queued = take_state(spare, dataset_id, state)
    now = spare.clock.now()
    with spare.store.write() as copies:
        claimed = copies.checks.claim(OWNER, now, now + LEASE, queued.id)
    if claimed is None:
        raise CheckRefused(f"{dataset_id} cannot be rehearsed")
    done = build(spare, claimed)
    with spare.store.read() as copies:
        made = copies.versions.get(dataset_id, done.version) if done.outcome in MAKE and done.version else None
    return Rehearsed(done, made, current)


def _copy(records: Records, copies: Records, dataset_id: str) -> Version | None:
    """Copy a dataset with its versions, the checks and asks that they came from, and no open check."""
    dataset = records.catalog.dataset(dataset_id)
    if dataset is None:
        raise CheckRefused(f"there is no dataset {dataset_id}: apply a catalog that has it, or see `datasets list`")
    copies.catalog.put_dataset(dataset)
    copies.catalog.put_refresh(dataset_id, records.catalog.refresh(dataset_id))
    ended = [status for status in VersionStatus if status not in (VersionStatus.BUILDING, VersionStatus.WAITING)]
    copied: dict[int, int] = {}
    for version in records.versions.in_status(dataset_id, ended):
        check = records.checks.get(version.check_id)
        if check is not None and check.id not in copied:
            copied[check.id] = copies.checks.add(check).id
        copies.versions.put(replace(version, check_id=copied.get(version.check_id, version.check_id)))
    for ask in records.asks.of_dataset(dataset_id, ASKS_COPIED):
        if ask.check_id in copied:
            copies.asks.put(replace(ask, check_id=copied[ask.check_id], due_at=None))
    return records.versions.current(dataset_id)
