"""The SDK reaches every address of the API with every parameter: a route or a parameter more is missed here."""

from contextlib import suppress

import httpx2

import ploti
from ploti.errors import BadAnswer

DATASET, SUB, WH = "/v1/feeds/datasets/{dataset}", "/v1/feeds/subscriptions/{subscription}", "/v1/webhooks/{webhook}"
PAGE = {"limit": 1, "cursor": "c"}
CALLS = {
    ("GET", "/v1/places"): lambda c: c.places.list(state="fl", kind="county", deliverable=True),
    ("GET", "/v1/topics"): lambda c: c.topics.list(),
    ("GET", "/v1/feeds/datasets"): lambda c: c.feeds.datasets.list(
        place="p", topic="t", subscription="s", updated_since="2026-01-01T00:00:00Z", **PAGE
    ),
    ("GET", DATASET): lambda c: c.feeds.datasets.get("d"),
    ("GET", f"{DATASET}/versions"): lambda c: c.feeds.datasets.versions.list("d", after=1, order="asc", **PAGE),
    ("GET", f"{DATASET}/versions/{{version}}"): lambda c: c.feeds.datasets.versions.get("d", 1),
    ("POST", f"{DATASET}/versions/{{version}}/links"): lambda c: c.feeds.datasets.versions.links("d", 1, files=["f"]),
    ("GET", f"{DATASET}/records/{{record}}"): lambda c: c.feeds.datasets.record("d", "r"),
    ("POST", f"{DATASET}/records"): lambda c: c.feeds.datasets.records("d", ["r"]),
    ("GET", "/v1/datasets/{dataset}/files/{file}"): lambda c: c.feeds.datasets.file("d", "f"),
    ("GET", "/v1/datasets/{dataset}/provenance"): lambda c: c.feeds.datasets.provenance("d"),
    ("GET", f"{DATASET}/schema"): lambda c: c.feeds.datasets.schema("d", 1),
    ("GET", f"{DATASET}/schemas"): lambda c: c.feeds.datasets.schemas("d"),
    ("POST", "/v1/feeds/subscriptions/preview"): lambda c: c.feeds.subscriptions.preview(places=["p"]),
    ("POST", "/v1/feeds/subscriptions"): lambda c: c.feeds.subscriptions.create("n", places=["p"]),
    ("GET", "/v1/feeds/subscriptions"): lambda c: c.feeds.subscriptions.list(**PAGE),
    ("GET", SUB): lambda c: c.feeds.subscriptions.get("s"),
    ("PATCH", SUB): lambda c: c.feeds.subscriptions.update("s", revision=1, name="n"),
    ("DELETE", SUB): lambda c: c.feeds.subscriptions.delete("s"),
    ("GET", f"{SUB}/manifest"): lambda c: c.feeds.subscriptions.manifest("s", as_of="e", **PAGE),
    ("GET", f"{SUB}/events"): lambda c: c.feeds.subscriptions.events("s", types=["t"], wait=1, **PAGE),
    ("POST", "/v1/webhooks"): lambda c: c.webhooks.create("https://x.example", subscription_id="s"),
    ("GET", "/v1/webhooks"): lambda c: c.webhooks.list(**PAGE),
    ("GET", WH): lambda c: c.webhooks.get("w"),
    ("DELETE", WH): lambda c: c.webhooks.delete("w"),
    ("POST", f"{WH}/test"): lambda c: c.webhooks.test("w"),
    ("POST", f"{WH}/rotate"): lambda c: c.webhooks.rotate("w"),
    ("GET", f"{WH}/deliveries"): lambda c: c.webhooks.deliveries.list("w", status="pending", **PAGE),
    ("POST", f"{WH}/deliveries/{{delivery}}/send"): lambda c: c.webhooks.deliveries.send("w", "m"),
}
IDS = {"dataset": "d", "version": "1", "record": "r", "file": "f", "subscription": "s", "webhook": "w", "delivery": "m"}
BY_LINK = {("GET", "/v1/files/{path}")}
"""Reached by the links that answers carry."""
IN_BODY = {("POST", "/v1/feeds/subscriptions/preview")}
"""The SDK puts what narrows a preview into the body."""


def test_the_sdk_reaches_every_address_with_every_parameter(served):
    seen = []

    def answer(request):
        seen.append((request.method, request.url.path, set(request.url.params)))
        return httpx2.Response(200, json={})

    described = {
        (method.upper(), path): {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
        for path, operations in served.client.get("/openapi.json").json()["paths"].items()
        for method, operation in operations.items()
        if not operation.get("deprecated")
    }
    assert described.keys() == CALLS.keys() | BY_LINK
    with ploti.Client("ploti_key", "http://api.example", transport=httpx2.MockTransport(answer)) as client:
        for call in CALLS.values():
            with suppress(BadAnswer):
                call(client)
    expected = [
        (method, path.format(**IDS), set() if (method, path) in IN_BODY else described[method, path])
        for method, path in CALLS
    ]
    assert seen == expected
