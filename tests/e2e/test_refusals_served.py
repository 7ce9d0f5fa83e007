"""Refusals of a moment, and what webhooks get back, over real sockets: a server on PostgreSQL and two more processes'
worth of connections beside it (page 000, page 003, D7.3, D8.2, D9.2)."""

import json
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
from tests.adapters.receiver import Receiver
from tests.e2e.serving import Publisher, serving

from ploti_server.adapters.sender import HttpSender
from ploti_server.adapters.store import open_store
from ploti_server.app import build_ports
from ploti_server.domain.catalog import parse_catalog
from ploti_server.domain.events import NewEvent
from ploti_server.domain.settings import Settings
from ploti_server.pipeline.catalog import apply_catalog
from ploti_server.pipeline.deliver import deliver_due
from ploti_server.testing import FakePlans

CATALOG = """
topics: [{id: permits, name: Permits}]
datasets:
  - {id: ds_x, title: X, place: fl-county-orange, topic: permits, source: {kind: file, url: x.csv}}
  - {id: ds_y, title: Y, place: fl-county-orange, topic: permits, source: {kind: file, url: y.csv}}
"""
SUBSCRIPTIONS = "/v1/feeds/subscriptions"
SECONDS = 0.4


class Served:
    """A publisher's server, asked over HTTP."""

    def __init__(self, publisher, url):
        self.publisher, self.ports, self.url = publisher, publisher.ports, url

    def ask(self, method, path, body=None, **headers):
        """Ask; gives the status and the JSON of the answer, of an error its code."""
        content = None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"Authorization": f"Bearer {self.publisher.key}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, content, named, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["error"]["code"]

    def subscribe(self):
        status, made = self.ask("POST", SUBSCRIPTIONS, {"places": ["fl-county-orange"]})
        assert status == 201
        return f"{SUBSCRIPTIONS}/{made['id']}"


@pytest.fixture
def steps():
    """What is done when the server reaches a step, by the step's name."""
    return {}


@pytest.fixture
def served(tmp_path, postgres_store_url, steps):
    (tmp_path / "catalog.yaml").write_text(CATALOG)
    opened = build_ports(replace(Settings.of(tmp_path / "home"), database_url=postgres_store_url))
    hooks = replace(opened.hooks, sender=HttpSender(allow_loopback=True, seconds=SECONDS), allow_loopback=True)
    ports = replace(opened, plans=FakePlans(), hooks=hooks, reach=lambda step: steps.get(step, lambda: None)())
    publisher = Publisher(tmp_path / "home", ("x",), tmp_path / "catalog.yaml", ports)
    with serving(publisher) as url:
        yield Served(publisher, url)
    ports.store.close()


def test_a_dataset_that_the_catalog_withdraws_leaves_as_no_longer_deliverable(served, tmp_path):
    one = served.subscribe()
    changed = CATALOG.replace("id: ds_x,", "id: ds_x, deliverable: false,")
    apply_catalog(served.ports, parse_catalog(changed, tmp_path / "catalog.yaml"))
    _, page = served.ask("GET", f"{one}/events?cursor=evt_000000000002")
    (left,) = page["events"]
    assert (left["type"], left["data"]) == (
        "feed.dataset.removed",
        {"datasetId": "ds_x", "reason": "no_longer_deliverable"},
    )
    assert served.ask("GET", "/v1/feeds/datasets/ds_x") == (409, "not_deliverable")


def test_while_the_plan_cannot_be_read_it_is_unavailable_and_nothing_changes(served):
    one = served.subscribe()
    served.ports.plans.available = False
    for method, path, body in (
        ("GET", f"{one}/manifest", None),
        ("POST", f"{SUBSCRIPTIONS}/preview", {"places": ["fl"]}),
        ("POST", SUBSCRIPTIONS, {"places": ["fl"]}),
        ("PATCH", one, {"places": ["fl"], "revision": 1}),
        ("GET", "/v1/feeds/datasets", None),
    ):
        assert served.ask(method, path, body) == (503, "plan_unavailable"), path
    served.ports.plans.available = True
    assert served.ask("GET", one)[1]["revision"] == 1
    assert len(served.ask("GET", f"{one}/events")[1]["events"]) == 2
    assert served.ask("GET", f"{one}/manifest")[0] == 200


def test_a_subscription_whose_datasets_another_process_changes_is_busy_at_once(served, postgres_store_url):
    one = served.subscribe()
    other = open_store(postgres_store_url)
    with other.write() as records:
        assert records.subscriptions.try_lock(one.rpartition("/")[2])
        assert served.ask("DELETE", one) == (409, "busy")
        assert served.ask("PATCH", one, {"places": ["us"], "revision": 1}) == (409, "busy")
        assert served.ask("GET", one)[1]["revision"] == 1
    other.close()
    assert served.ask("DELETE", one) == (200, {"deleted": True})


def test_a_key_whose_first_request_is_still_being_served_is_in_progress(served, steps):
    reached, go_on = threading.Event(), threading.Event()

    def wait():
        reached.set()
        assert go_on.wait(30)

    def create():
        return served.ask("POST", SUBSCRIPTIONS, {"places": ["fl"]}, Idempotency_Key="a-key")

    steps["subscription.before_commit"] = wait
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(create)
        assert reached.wait(30)
        assert create() == (409, "idempotency_in_progress")
        go_on.set()
        status, made = first.result()
    assert (status, create()) == (201, (201, made))
    assert [each["id"] for each in served.ask("GET", SUBSCRIPTIONS)[1]["subscriptions"]] == [made["id"]]


def then_silent(content):
    def answer(connection, stopped):
        connection.sendall(content)
        stopped.wait(10)

    return answer


LATE = f"no whole answer within {SECONDS:g} seconds"
ANSWERED = {
    "200": (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", ("delivered", 200, None, None)),
    "200 without a reason": (b"HTTP/1.1 200\r\n\r\n", ("delivered", 200, None, None)),
    "200 of HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\n", ("delivered", 200, None, None)),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", ("delivered", 204, None, None)),
    "308": (b"HTTP/1.1 308 X\r\nlocation: /x\r\n\r\n", ("pending", 308, "redirects are not followed", None)),
    "413": (b"HTTP/1.1 413 X\r\n\r\n", ("ended", 413, None, "too_large")),
    "410": (b"HTTP/1.1 410 Gone\r\n\r\n", ("ended", 410, None, "gone")),
    "500": (b"HTTP/1.1 500 X\r\n\r\n", ("pending", 500, None, None)),
    "no status line": (b"hello\r\n\r\n", ("pending", None, "the answer is not HTTP", None)),
    "no answer in time": (then_silent(b""), ("pending", None, LATE, None)),
    "no end of the head in time": (then_silent(b"HTTP/1.1 200 OK\r\n"), ("pending", None, LATE, None)),
    "no end of the body in time": (
        then_silent(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel"),
        ("pending", None, LATE, None),
    ),
}


def test_what_each_receiver_answers_is_what_becomes_of_its_delivery(served):
    one = served.subscribe().rpartition("/")[2]
    with ExitStack() as running:
        receivers = {name: running.enter_context(Receiver(answer).running()) for name, (answer, _) in ANSWERED.items()}
        made = {
            name: served.ask(
                "POST", "/v1/webhooks", {"url": f"http://127.0.0.1:{receiver.port}/hooks", "subscriptionId": one}
            )[1]["id"]
            for name, receiver in receivers.items()
        }
        with served.ports.store.write() as records:
            event = NewEvent("feed.dataset.removed", "ds_x", {"datasetId": "ds_x", "reason": "plan_changed"})
            records.events.append(one, [event], served.ports.clock.now())
        assert deliver_due(served.ports, "test") == len(ANSWERED)
    shown = {}
    for name, webhook in made.items():
        (told,) = served.ask("GET", f"/v1/webhooks/{webhook}/deliveries")[1]["deliveries"]
        last = told["lastAttempt"]
        shown[name] = (told["status"], last["status"], last["problem"], told["endReason"])
    assert shown == {name: expected for name, (_, expected) in ANSWERED.items()}
    off = [name for name, webhook in made.items() if served.ask("GET", f"/v1/webhooks/{webhook}")[1]["status"] == "off"]
    assert off == ["410"]
