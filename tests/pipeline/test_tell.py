"""Notices from the fact that they report to the operator, each at least once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ploti_server.domain.checks import Check, CheckStatus
from ploti_server.domain.datasets import Dataset, SourceSpec
from ploti_server.domain.notices import TRIES
from ploti_server.pipeline.check import fail_check
from ploti_server.pipeline.tell import queue_notice, tell_operator
from ploti_server.ports import Ports
from ploti_server.testing import FakeAgent, FakePlans, FixedClock, MemoryFiles, MemoryStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Told:
    """Keeps what it is told, and answers with a trouble where there is one."""

    def __init__(self):
        self.texts, self.trouble = [], None

    def send(self, told):
        self.texts.append(told["text"])
        return self.trouble


@pytest.fixture
def ports():
    made = Ports(MemoryStore(), MemoryFiles(), None, FakeAgent(), FakePlans(), FixedClock(NOW), Path(), lambda *_: None)
    with made.store.write() as records:
        records.catalog.put_dataset(Dataset("ds_x", "X", SourceSpec("file", "x")))
    return replace(made, notifier=Told())


def held(ports):
    with ports.store.write() as records:
        check = Check(0, "ds_x", CheckStatus.DONE, NOW, NOW, outcome="held", version=2, reason="data_check")
        queue_notice(ports, records, records.checks.add(check))


def test_a_notice_is_sent_once(ports):
    held(ports)
    for _ in range(2):
        tell_operator(ports)
    assert [text.partition(";")[0] for text in ports.notifier.texts] == ["ds_x: version 2 is held (data_check)"]


def test_a_source_that_fails_again_and_again_is_told_once(ports):
    for _ in range(3):
        fail_check(ports, "ds_x", "there is no such file")
    tell_operator(ports)
    assert len(ports.notifier.texts) == 1


def test_a_notice_that_does_not_arrive_is_tried_again_for_a_day_and_then_given_up(ports, caplog):
    ports.notifier.trouble = "notify_url answered 500"
    held(ports)
    for _ in range(60 * 25):
        tell_operator(ports)
        ports.clock.advance(minutes=1)
    assert len(ports.notifier.texts) == len(caplog.messages) == TRIES
    with ports.store.write() as records:
        assert records.notices.claim(ports.clock.now() + timedelta(days=99), NOW, 9) == ()


def test_a_notice_whose_sender_was_killed_is_sent_by_another(ports):
    held(ports)

    def killed(told):
        raise SystemExit

    with pytest.raises(SystemExit):
        tell_operator(replace(ports, notifier=type("Killed", (), {"send": staticmethod(killed)})))
    tell_operator(ports)
    assert ports.notifier.texts == []
    ports.clock.advance(minutes=5)
    tell_operator(ports)
    assert len(ports.notifier.texts) == 1


def test_without_an_operator_to_tell_nothing_is_kept(ports):
    held(replace(ports, notifier=None))
    tell_operator(replace(ports, notifier=None))
    tell_operator(ports)
    assert ports.notifier.texts == []
