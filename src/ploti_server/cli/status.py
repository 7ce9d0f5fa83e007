"""`ploti-server status`: every dataset's last and next check, what is held or failed and why (D13.2)."""

from datetime import datetime
from typing import Any, Final

from ploti_server.cli.home import ports_of
from ploti_server.cli.printing import COMMON, Common, counted, show
from ploti_server.domain.checks import STALE_AFTER, Check, CheckKind, CheckStatus
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.domain.wire import wire_time
from ploti_server.pipeline.follow import last_sent
from ploti_server.pipeline.restore import lost_files
from ploti_server.ports import Ports, Records

NEEDS_A_LOOK: Final = ("files lost", "held", "failed", "stale", "released again")


def status(*, common: Common = COMMON) -> int:
    """Tell where every dataset stands; exit code 1 where one is held, failed, a day overdue or has lost files."""
    ports = ports_of(common)
    now = ports.clock.now()
    with ports.store.read() as records:
        datasets = [dataset.id for dataset in records.catalog.datasets() if not dataset.retired]
        rows = {one: _row(records, one, now) for one in datasets}
        currents = records.versions.currents(datasets)
    for dataset_id, version in currents.items():
        rows[dataset_id] |= _lost(ports, version)
    show(common, list(rows.values()), "datasets")
    return 1 if any(row["state"] in NEEDS_A_LOOK for row in rows.values()) else 0


def _row(records: Records, dataset_id: str, now: datetime) -> dict[str, Any]:
    current = records.versions.current(dataset_id)
    refresh = records.catalog.refresh(dataset_id)
    state, why = _state(records, dataset_id, now)
    return {
        "dataset": dataset_id,
        "state": state,
        "why": why,
        "version": current and current.number,
        "lastCheckedAt": refresh.last_checked_at and wire_time(refresh.last_checked_at),
        "nextCheckBy": refresh.next_check_by and wire_time(refresh.next_check_by),
    }


def _lost(ports: Ports, version: Version) -> dict[str, str]:
    """Tell of lost files of a current version, which subscribers cannot load until they are made again (D5.10)."""
    lost = lost_files(ports, version)
    if not lost:
        return {}
    what = f"{counted(len(lost), 'file')} of version {version.number}, like {lost[0]}"
    why = f"{what}: `ploti-server doctor --files` makes them again, or says why not"
    return {"state": "files lost", "why": why}


def _waits_for(records: Records, check: Check) -> str | None:
    """Tell how far the judging of a version is that waits for it."""
    ask = records.asks.get(check.id)
    if check.status is not CheckStatus.WAITING or ask is None or ask.due_at is None:
        return None
    trouble = f" ({ask.trouble})" if ask.trouble else ""
    return f"for {len(ask.open_pairs)} of {len(ask.pairs)} pairs to be judged until {wire_time(ask.due_at)}{trouble}"


def _broke_down(check: Check) -> str | None:
    """Tell why a build is to be tried again."""
    if check.status is not CheckStatus.QUEUED or check.reason is None or check.due_at is None:
        return None
    return f"{check.reason}; tried again at {wire_time(check.due_at)}"


def _act(check: Check) -> str | None:
    """Tell what staff asked for."""
    if check.kind is CheckKind.RELEASE_AGAIN:
        return f"to rebuild version {check.again}, which was released again"
    return "to replace record ids" if check.kind is CheckKind.REPLACE_IDS else None


def _state(records: Records, dataset_id: str, now: datetime) -> tuple[str, str | None]:
    held = records.versions.in_status(dataset_id, [VersionStatus.HELD])
    if held:
        return "held", f"version {held[-1].number}: {', '.join(held[-1].reasons)}"
    last = records.checks.last_of(dataset_id)
    if last is not None and last.status is CheckStatus.FAILED:
        return "failed", last.reason
    opened = records.checks.open_of(dataset_id)
    if opened:
        return str(opened[0].status), _waits_for(records, opened[0]) or _broke_down(opened[0]) or _act(opened[0])
    base = last_sent(records, dataset_id)
    if base is not None and base.status is VersionStatus.RELEASED_AGAIN:
        return "released again", f"nothing was sent in place of version {base.number} yet: check the source"
    due = records.catalog.refresh(dataset_id).next_check_by
    if due is not None and now - due > STALE_AFTER and records.subscriptions.holding(dataset_id):
        return "stale", f"its check was due at {wire_time(due)}"
    return ("current" if records.versions.current(dataset_id) else "not built"), None
