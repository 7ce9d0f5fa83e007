"""The contract's own examples of the command and of Python, letter by letter, and what they send."""

import json
import shlex

import pytest

from ploti.cli.command import run

SUBSCRIPTION = "sub_8f3k2m"
PREVIEW = """feeds subscriptions preview --places fl-county-orange,fl-county-seminole \\
  --topics development-activity,zoning-land-use"""
COMMANDS = {
    "subscriptions": [PREVIEW, f"feeds subscriptions manifest {SUBSCRIPTION}"],
    "events": [
        f"feeds subscriptions events {SUBSCRIPTION} --cursor evt_000000000002",
        f"webhooks create https://acme.example/hooks/ploti --subscription-id {SUBSCRIPTION}",
    ],
}
CODE = {
    "subscriptions": """
import ploti

ploti.feeds.subscriptions.preview(
    places=["fl-county-orange", "fl-county-seminole"],
    topics=["development-activity", "zoning-land-use"],
)
ploti.feeds.subscriptions.manifest("sub_8f3k2m")
""",
    "events": """
import ploti

page = ploti.feeds.subscriptions.events("sub_8f3k2m", cursor="evt_000000000002")
ploti.webhooks.create("https://acme.example/hooks/ploti", subscription_id="sub_8f3k2m")
""",
}
FIELDS = {
    "places": ["fl-county-orange", "fl-county-seminole"],
    "topics": ["development-activity", "zoning-land-use"],
    "datasetIds": [],
}
HOOK = {"url": "https://acme.example/hooks/ploti", "subscriptionId": SUBSCRIPTION}
ONE = f"/v1/feeds/subscriptions/{SUBSCRIPTION}"
SENT = {
    "subscriptions": [("POST", "/v1/feeds/subscriptions/preview", FIELDS), ("GET", f"{ONE}/manifest", None)],
    "events": [("GET", f"{ONE}/events?cursor=evt_000000000002", None), ("POST", "/v1/webhooks", HOOK)],
}


@pytest.fixture
def served(fake, monkeypatch, tmp_path):
    """The fake on a loopback port, with the places, topics and subscription of the examples."""
    for place in ("orange", "seminole"):
        fake.add_place(f"fl-county-{place}", place.title(), "county", "fl")
    for topic in ("development-activity", "zoning-land-use"):
        fake.add_topic(topic, topic)
    fake.subscribe(SUBSCRIPTION, places=["fl-county-orange"])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PLOTI_API_KEY", fake.api_key)
    with fake.serve() as url:
        monkeypatch.setenv("PLOTI_API_URL", url)
        yield fake


def sent(fake):
    return [(each.method, each.target, json.loads(each.body) if each.body else None) for each in fake.requests]


@pytest.mark.parametrize("page", COMMANDS)
def test_the_commands_of_a_page_work(served, capsys, page):
    for line in COMMANDS[page]:
        assert run(shlex.split(line.replace("\\\n", ""))) == 0
        assert capsys.readouterr().out
    assert sent(served) == SENT[page]


@pytest.mark.parametrize("page", CODE)
def test_the_python_of_a_page_works(served, run_python, page):
    run_python(CODE[page])
    assert sent(served) == SENT[page]
