"""Takes a person's judgements of pairs in, and lets the build go on with them (D4.8, D4.9)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ploti_server.domain.asks import FINISHED, AnswerRefused, Ask, AskedPair, answered, pairs_named
from ploti_server.domain.checks import STAFF_ACTS, Check, CheckKind, CheckStatus
from ploti_server.domain.versions import VersionStatus
from ploti_server.ports import Ports, Records


@dataclass(frozen=True)
class Open:
    """What a person may judge of a dataset: an ask, and whether its version waits for it or is held."""

    ask: Ask
    check: Check
    is_held: bool


def open_ask(records: Records, dataset_id: str) -> Open:
    """Find the pairs of a dataset's waiting version, else of its held one; raises `AnswerRefused` where none are."""
    waiting = [one for one in records.checks.open_of(dataset_id) if records.asks.get(one.id)]
    held = [version.check_id for version in records.versions.in_status(dataset_id, [VersionStatus.HELD])]
    for check_id in (*(one.id for one in waiting), *held):
        ask, check = records.asks.get(check_id), records.checks.get(check_id)
        if ask is not None and check is not None:
            return Open(ask, check, is_held=check.status is CheckStatus.DONE)
    raise AnswerRefused(f"no pairs of {dataset_id} are to be judged: see `ploti-server judge list`")


def answer(ports: Ports, dataset_id: str, names: str | None, same: bool, note: str | None) -> Open:
    """Judge the pairs named, like `3` or `1,4,7-9`; without names all that nobody has judged, as different.

    With the last answer a waiting version's build is due at once. Raises `AnswerRefused`.
    """
    now = ports.clock.now()
    with ports.store.write() as records:
        records.catalog.lock([dataset_id])
        found = open_ask(records, dataset_id)
        ask = answered(found.ask, _named(found.ask, names, same), same, now, note)
        records.asks.put(ask)
        check = found.check
        if not ask.open_pairs and check.status is CheckStatus.WAITING:
            check = replace(check, due_at=now)
            records.checks.put(check)
        ports.reach("answer.before_commit")
    ports.reach("answer.kept")
    return Open(ask, check, found.is_held)


def ask_now(ports: Ports, dataset_id: str) -> Check:
    """Let the agent of a waiting version be asked again at once, as when its endpoint is mended; gives the check.

    Raises `AnswerRefused`.
    """
    with ports.store.write() as records:
        records.catalog.lock([dataset_id])
        found = open_ask(records, dataset_id)
        if found.is_held:
            raise AnswerRefused(f"version {found.ask.version} of {dataset_id} is held and waits for no agent")
        check = replace(found.check, due_at=ports.clock.now())
        records.checks.put(check)
    return check


def _named(ask: Ask, names: str | None, same: bool) -> Sequence[AskedPair]:
    if names is not None:
        return pairs_named(ask, names)
    if same:
        raise AnswerRefused("name the pair that is the same; only `different` can be said of all the rest")
    return ask.open_pairs


def finish(ports: Ports, dataset_id: str) -> Check:
    """Let the build go on with the answers that there are; gives the check to work through.

    A held version's state is built again under a higher number, beside the version that is current now. Raises
    `AnswerRefused`.
    """
    with ports.store.write() as records:
        records.catalog.lock([dataset_id])
        check = _finished(records, open_ask(records, dataset_id), ports.clock.now())
        ports.reach("answer.before_commit")
    ports.reach("answer.kept")
    return check


def _finished(records: Records, found: Open, now: datetime) -> Check:
    """Let a waiting version's build be due, or queue that of a held one."""
    check = replace(found.check, facts=found.check.facts | {FINISHED: True}, due_at=now)
    if not found.is_held:
        records.checks.put(check)
        return check
    if records.checks.open_of(check.dataset_id):
        raise AnswerRefused(f"a newer state of {check.dataset_id} is being built and takes this one's place")
    kind = CheckKind.RESUME if check.kind in STAFF_ACTS else check.kind
    check = replace(check, kind=kind, facts={FINISHED: True})
    queued = replace(check, status=CheckStatus.QUEUED, created_at=now, finished_at=None)
    return records.checks.add(replace(queued, outcome=None, version=None, reason=None, due_at=None, attempts=0))
