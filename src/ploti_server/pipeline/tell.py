"""Tells the operator what needs a person: notices are queued with the fact that they report, then sent (D13.2)."""

import logging
from dataclasses import replace
from typing import Final

from ploti_server.domain.checks import Check
from ploti_server.domain.notices import SENT_WITHIN, again_at, notice_of
from ploti_server.ports import Ports, Records

LOG: Final = logging.getLogger(__name__)
AT_ONCE: Final = 20


def queue_notice(ports: Ports, records: Records, check: Check, asked_before: int = 0) -> None:
    """Queue word of how a check ended, inside the transaction that writes it down, where the operator wants any."""
    if ports.notifier is None:
        return
    before = records.checks.last_of(check.dataset_id, before=check.id)
    notice = notice_of(check, before, asked_before, ports.clock.now())
    if notice is not None:
        records.notices.add(notice)


def tell_operator(ports: Ports) -> None:
    """Send the notices that are due, each at least once; one that does not arrive is tried again for a day."""
    if ports.notifier is None:
        return
    now = ports.clock.now()
    with ports.store.write() as records:
        due = records.notices.claim(now, now + SENT_WITHIN, AT_ONCE)
    for notice in due:
        trouble = ports.notifier.send(notice.told)
        again = again_at(notice, ports.clock.now()) if trouble else None
        if trouble:
            LOG.error("a notice did not arrive (%s): %s", trouble, notice.told["text"])
        with ports.store.write() as records:
            if again is None:
                records.notices.remove(notice.id)
            else:
                records.notices.put(replace(notice, tries=notice.tries + 1, due_at=again))
