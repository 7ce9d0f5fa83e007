"""Ends a check and releases versions: one transaction each, with the events that report it (D7.1, D7.2)."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ploti_server.domain import events
from ploti_server.domain.asks import FINISHED, closed
from ploti_server.domain.checks import STAFF_ACTS, Check, CheckKind, CheckStatus, Refresh
from ploti_server.domain.datasets import CheckOutcome
from ploti_server.domain.holds import agree
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.pipeline.follow import last_sent
from ploti_server.pipeline.tell import queue_notice
from ploti_server.ports import Ports, Records


class LeaseLost(Exception):
    """Another worker took the check over: nothing of this attempt is written down."""


class ReleaseRefused(Exception):
    """A hold that cannot be ended as asked; the message says why."""


@dataclass(frozen=True)
class Ended:
    """How a build ended, before it is written down."""

    version: Version
    outcome: CheckOutcome
    reason: str | None
    facts: dict[str, Any] = field(default_factory=dict)
    due_at: datetime | None = None


def end_check(ports: Ports, check: Check, ended: Ended) -> Check | None:
    """Write down how a build ended; None where the released version moved and it has to be built again (D5.2)."""
    now = ports.clock.now()
    with ports.store.write() as records:
        records.catalog.lock([check.dataset_id])
        stored = records.checks.get(check.id)
        if stored is None or stored.lease_owner != check.lease_owner:
            raise LeaseLost(f"check {check.id} of {check.dataset_id} went on elsewhere: see its outcome there")
        base = last_sent(records, check.dataset_id)
        if (base and base.number) != ended.version.base or _lacks_resync(check, ended, base):
            return None
        finished = _put_outcome(records, check, ended, records.versions.current(check.dataset_id), now)
        queue_owed_rebuild(records, check.dataset_id, now)
        queue_notice(ports, records, finished, check.facts.get("asks", 0))
        if ended.outcome != "failed" and _is_look(check) and stored.status is not CheckStatus.WAITING:
            _move_refresh(records, check, now)
        ports.reach("release.before_commit")
    ports.reach("release.committed")
    return finished


def _lacks_resync(check: Check, ended: Ended, base: Version | None) -> bool:
    """Tell whether the version that was followed was released again while this one was built as its changes."""
    gone = base is not None and base.status is VersionStatus.RELEASED_AGAIN
    ends = ended.outcome in ("released", "held", "unchanged") and check.kind not in STAFF_ACTS
    return gone and ends and ended.version.resync_reason is None


def _put_outcome(records: Records, check: Check, ended: Ended, current: Version | None, now: datetime) -> Check:
    ended = _confirmed(records, check, ended)
    version = ended.version
    number: int | None = version.number
    match ended.outcome:
        case "released":
            supersede_held(records, check.dataset_id, f"replaced by version {version.number}", but=version.number)
            _release(records, version, now)
            _close_ask(records, version.check_id, "released")
        case "held":
            supersede_held(records, check.dataset_id, f"replaced by version {version.number}")
            _hold(records, version, current, now)
        case "waiting":
            records.versions.put(replace(version, status=VersionStatus.WAITING))
        case "unchanged" | "failed":
            records.versions.drop(check.dataset_id, version.number)
            number = current.number if current else None
            if ended.outcome == "unchanged" and "open" not in ended.facts and check.kind not in STAFF_ACTS:
                supersede_held(records, check.dataset_id, "the source equals the released version again")
    _close_ask(records, check.id, ended.outcome)
    finished = replace(
        check,
        status=_ended_status(ended.outcome),
        outcome=ended.outcome,
        version=number,
        reason=ended.reason or (version.reasons[0] if ended.outcome == "held" else None),
        facts=ended.facts,
        finished_at=None if ended.outcome == "waiting" else now,
        due_at=_due_at(records, check, ended, now),
        lease_owner=None,
        lease_until=None,
    )
    records.checks.put(finished)
    return finished


def _close_ask(records: Records, check_id: int, outcome: CheckOutcome) -> None:
    """End a check's ask; a person may still judge the records of a held version, which stay to be seen."""
    ask = records.asks.get(check_id)
    if ask is not None and outcome != "waiting":
        records.asks.put(closed(ask, keeps_values=outcome == "held"))


def _due_at(records: Records, check: Check, ended: Ended, now: datetime) -> datetime | None:
    """Tell when a waiting check is built again: at once where a person has judged the last pair meanwhile (D4.9)."""
    if ended.due_at is None:
        return None
    ask = records.asks.get(check.id)
    return now if ask is not None and not ask.open_pairs else ended.due_at


def _ended_status(outcome: CheckOutcome) -> CheckStatus:
    return {"waiting": CheckStatus.WAITING, "failed": CheckStatus.FAILED}.get(outcome, CheckStatus.DONE)


def _is_look(check: Check) -> bool:
    """Tell whether a check looked at the source, and is not a person's act on a state that was read before."""
    return check.kind is CheckKind.LOOK and FINISHED not in check.facts


def _confirmed(records: Records, check: Check, ended: Ended) -> Ended:
    """Count the checks that agree with a hold, and release it by itself where the catalog asks for it (D6.3)."""
    dataset = records.catalog.dataset(check.dataset_id)
    held = next(iter(records.versions.in_status(check.dataset_id, (VersionStatus.HELD,))), None)
    if dataset is None or held is None or held.base != ended.version.base or not _is_look(check):
        return ended
    wanted = dataset.review.release_after_agreeing_checks
    agreeing = held.agreeing_checks + 1
    note = f"released by itself: {agreeing} further checks found the same"
    if ended.outcome == "held" and agree(held.facts["holds"], ended.version.facts["holds"]):
        version = replace(ended.version, agreeing_checks=agreeing)
        if wanted is None or agreeing < wanted:
            return replace(ended, version=version)
        return replace(ended, version=replace(version, note=note), outcome="released")
    if ended.outcome == "unchanged" and ended.facts.get("open", {}).get("version") == held.number:
        counted = replace(held, agreeing_checks=agreeing)
        records.versions.put(counted)
        if wanted is not None and agreeing >= wanted:
            records.versions.drop(check.dataset_id, ended.version.number)
            return replace(ended, version=replace(counted, note=note), outcome="released")
    return ended


def supersede_held(records: Records, dataset_id: str, note: str, but: int | None = None) -> None:
    """End an open hold: a newer version takes its place, or the source equals the released version again (D5.1)."""
    for held in records.versions.in_status(dataset_id, (VersionStatus.HELD,)):
        if held.number == but:
            continue
        records.versions.put(replace(held, status=VersionStatus.SUPERSEDED, note=note))
        _close_ask(records, held.check_id, "unchanged")


def _release(records: Records, version: Version, now: datetime) -> Version:
    released = replace(version, status=VersionStatus.RELEASED, released_at=now)
    records.versions.put(released)
    for subscription in records.subscriptions.holding(version.dataset_id):
        records.events.append(subscription.id, events.released(released), now)
    return released


def _hold(records: Records, version: Version, current: Version | None, now: datetime) -> None:
    held = replace(version, status=VersionStatus.HELD)
    records.versions.put(held)
    for subscription in records.subscriptions.holding(version.dataset_id):
        records.events.append(subscription.id, [events.delayed(held, current)], now)


def _move_refresh(records: Records, check: Check, now: datetime) -> None:
    """Count the next due time from the clock, also after a state of long ago; one that waited moves nothing (D13.4)."""
    dataset = records.catalog.dataset(check.dataset_id)
    last = records.catalog.refresh(check.dataset_id).last_checked_at
    if dataset is not None and (last is None or last <= check.fetched_at):
        records.catalog.put_refresh(check.dataset_id, Refresh(check.fetched_at, now + dataset.check_every))


def release_held(ports: Ports, dataset_id: str, note: str | None = None) -> Version:
    """Release a dataset's held version: it becomes current and its events go out (D6.3)."""
    now = ports.clock.now()
    with ports.store.write() as records:
        records.catalog.lock([dataset_id])
        held = _held(records, dataset_id)
        base = last_sent(records, dataset_id)
        if (base and base.number) != held.base:
            raise ReleaseRefused(
                f"version {held.number} of {dataset_id} was built on version {held.base}, which is no longer current: "
                f"check the source again"
            )
        released = _release(records, replace(held, note=note), now)
        _close_ask(records, held.check_id, "released")
        ports.reach("release.before_commit")
    ports.reach("release.committed")
    return released


def discard_held(ports: Ports, dataset_id: str, note: str | None = None) -> Version:
    """Discard a dataset's held version; the next one follows from the one that is current (D6.3)."""
    now = ports.clock.now()
    with ports.store.write() as records:
        records.catalog.lock([dataset_id])
        discarded = replace(_held(records, dataset_id), status=VersionStatus.DISCARDED, note=note)
        records.versions.put(discarded)
        _close_ask(records, discarded.check_id, "unchanged")
        queue_owed_rebuild(records, dataset_id, now)
    return discarded


def queue_owed_rebuild(records: Records, dataset_id: str, now: datetime) -> None:
    """Queue the rebuild of a version released again once more, where the state that took its place came to nothing.

    That state failed, was discarded, or would only have repeated what was discarded; subscribers still hold the
    version and wait for the next one (D5.2).
    """
    sent = last_sent(records, dataset_id)
    if sent is None or sent.status is not VersionStatus.RELEASED_AGAIN or records.checks.open_of(dataset_id):
        return
    act = _rebuild_of(records, sent)
    gave_way = act is not None and (act.status is CheckStatus.REPLACED or act.outcome == "unchanged")
    if gave_way and not records.versions.in_status(dataset_id, (VersionStatus.HELD,)):
        queued = Check(0, dataset_id, CheckStatus.QUEUED, fetched_at=now, created_at=now, again=sent.number)
        records.checks.add(replace(queued, kind=CheckKind.RELEASE_AGAIN))


def _rebuild_of(records: Records, version: Version) -> Check | None:
    """Find the last act that was to rebuild a version: it stands behind the check that the version came from."""
    check = records.checks.last_of(version.dataset_id)
    while check is not None and check.id > version.check_id:
        if check.kind is CheckKind.RELEASE_AGAIN and check.again == version.number:
            return check
        check = records.checks.last_of(version.dataset_id, before=check.id)
    return None


def _held(records: Records, dataset_id: str) -> Version:
    held = records.versions.in_status(dataset_id, (VersionStatus.HELD,))
    if not held:
        raise ReleaseRefused(f"no version of {dataset_id} is held: see `ploti-server holds list`")
    return held[-1]
