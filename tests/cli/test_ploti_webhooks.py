"""`ploti webhooks` against the fake: what it prints, what it sends, its exit codes."""

import json
import re
import shlex

import pytest

from ploti.cli.command import run
from ploti.testing import FakeApi

SUB, HOOK, PERMITS = "sub_orange", "wh_acme", "ds_orange_permits"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    fake = FakeApi()
    fake.add_dataset(PERMITS)
    fake.subscribe(SUB, places=["fl-county-orange"])
    fake.add_webhook(HOOK, subscription_id=SUB)
    fake.publish(PERMITS, files={"snapshot/part-0000.parquet": b"one"}, row_count=1)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PLOTI_API_KEY", fake.api_key)
    with fake.serve() as url:
        monkeypatch.setenv("PLOTI_API_URL", url)
        fake.requests.clear()
        yield fake


def ploti(line):
    return run(shlex.split(line))


@pytest.mark.parametrize(
    ("line", "method", "target"),
    [
        (f"webhooks create https://a.example --subscription-id {SUB}", "POST", "/v1/webhooks"),
        ("webhooks list --limit 5", "GET", "/v1/webhooks?limit=5"),
        (f"webhooks get {HOOK}", "GET", f"/v1/webhooks/{HOOK}"),
        (f"webhooks delete {HOOK}", "DELETE", f"/v1/webhooks/{HOOK}"),
        (f"webhooks test {HOOK}", "POST", f"/v1/webhooks/{HOOK}/test"),
        (f"webhooks rotate {HOOK}", "POST", f"/v1/webhooks/{HOOK}/rotate"),
        (
            f"webhooks deliveries {HOOK} --status pending --limit 3",
            "GET",
            f"/v1/webhooks/{HOOK}/deliveries?status=pending&limit=3",
        ),
        (f"webhooks send {HOOK} msg_1", "POST", f"/v1/webhooks/{HOOK}/deliveries/msg_1/send"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_each_command_is_one_call_and_prints_the_answer(fake, capsys, line, method, target, as_json):
    assert ploti(line + (" --json" if as_json else "")) == 0
    (request,) = fake.requests
    assert (request.method, request.target) == (method, target)
    shown = capsys.readouterr().out
    assert shown
    if as_json:
        assert isinstance(json.loads(shown), dict)


@pytest.mark.parametrize(
    ("options", "events"),
    [
        ("", None),
        ("--events added,updated", ["feed.dataset.added", "feed.dataset.updated"]),
        ("--events feed.dataset.stale --events removed", ["feed.dataset.removed", "feed.dataset.stale"]),
    ],
)
def test_create_shows_the_secret_and_sends_the_filter(fake, capsys, options, events):
    assert ploti(f"webhooks create https://a.example --subscription-id {SUB} {options}") == 0
    assert re.search(r"Secret, shown this once: whsec_\S{44}", capsys.readouterr().out)
    sent = json.loads(fake.requests[0].body)
    assert sorted(sent.get("events") or []) == sorted(events or [])
    assert ("events" in sent) == (events is not None)


def test_create_needs_a_subscription(fake, capsys):
    assert ploti("webhooks create https://a.example") == 2
    assert "subscription" in capsys.readouterr().err


def test_a_ping_that_is_not_accepted_ends_with_1_and_says_why(fake, capsys):
    fake.answer_next("/test", {"delivered": False, "status": 308, "problem": "redirects are not followed"})
    assert ploti(f"webhooks test {HOOK}") == 1
    assert capsys.readouterr().out == "Not accepted: status 308, redirects are not followed.\n"


def test_the_list_says_which_is_off_and_which_fails(fake, capsys):
    hook = {**fake.webhook(HOOK), "events": ["feed.dataset.added"]}
    off = {**hook, "id": "wh_off", "status": "off", "offReason": "gone"}
    failing = {**hook, "id": "wh_fails", "failingSince": "2026-03-01T00:00:00.000Z"}
    fake.answer_next("/v1/webhooks", {"webhooks": [hook, off, failing], "nextCursor": "c"})
    assert ploti("webhooks list") == 0
    shown = capsys.readouterr().out
    assert re.search(r"wh_acme .* added +on ", shown)
    assert re.search(r"wh_off .* off: gone ", shown)
    assert re.search(r"wh_fails .* failing since 2026-0[23]-\d\d \d\d:\d\d ", shown)
    assert "add --cursor c" in shown


def test_deliveries_show_their_last_answer_and_end(fake, capsys):
    list(fake.webhook_posts(HOOK))
    assert ploti(f"webhooks deliveries {HOOK}") == 0
    assert re.search(r"msg_1 +evt_0+2 +resync_required +delivered +1 +status 204 +-", capsys.readouterr().out)


def test_an_unknown_webhook_is_one_line_and_1(fake, capsys):
    assert ploti("webhooks get wh_0") == 1
    assert capsys.readouterr().err.startswith("Error: There is no webhook wh_0")
