"""Which checks are worth word to the operator, and when it is tried again."""

from datetime import UTC, datetime, timedelta

import pytest

from ploti_server.domain.checks import Check, CheckStatus
from ploti_server.domain.notices import TRIES, Notice, again_at, notice_of

NOW = datetime(2026, 1, 1, 6, tzinfo=UTC)


def check(outcome, reason=None, **facts):
    return Check(7, "ds_x", CheckStatus.DONE, NOW, NOW, outcome=outcome, version=3, reason=reason, facts=facts)


@pytest.mark.parametrize(
    ("ended", "before", "asked_before", "text"),
    [
        (check("released"), None, 0, None),
        (check("unchanged"), check("failed"), 0, None),
        (
            check("held", "data_check"),
            None,
            0,
            "ds_x: version 3 is held (data_check); see `ploti-server holds show ds_x`",
        ),
        (check("held", "data_check"), check("held"), 0, "ds_x: version 3 is held (data_check); see"),
        (check("failed", "it is empty"), None, 0, "ds_x: the check failed: it is empty; see `ploti-server status`"),
        (check("failed", "it is empty"), check("released"), 0, "ds_x: the check failed"),
        (check("failed", "it is empty"), check("failed"), 0, None),
        (check("waiting", asks=1), None, 0, "ds_x: version 3 waits for its matching agent (no answer yet); see"),
        (check("waiting", "it is down", asks=1), None, 0, "ds_x: version 3 waits for its matching agent (it is down)"),
        (check("waiting", asks=1), None, 1, None),
        (check("waiting", asks=2), None, 1, "ds_x: version 3 waits for its matching agent"),
    ],
)
def test_what_is_worth_a_notice(ended, before, asked_before, text):
    notice = notice_of(ended, before, asked_before, NOW)
    assert (notice and notice.told["text"][: len(text)]) == text
    if notice is not None:
        assert (notice.due_at, notice.told["at"], notice.told["dataset"]) == (NOW, "2026-01-01T06:00:00.000Z", "ds_x")
        assert (notice.told["kind"], notice.told["version"]) == (ended.outcome, 3)


def test_a_notice_is_tried_for_a_day():
    waits = []
    for tries in range(TRIES):
        again = again_at(Notice(1, NOW, tries=tries), NOW)
        waits.append(again and again - NOW)
    assert waits[:2] == [timedelta(minutes=1), timedelta(minutes=4)]
    assert waits[-1] is None
    assert timedelta(hours=22) < sum(waits[:-1], timedelta()) < timedelta(hours=24)
