"""The contract's examples over plain HTTP, as they are written there, against the server."""

import pytest
from tests.api.conftest import dataset

from ploti_server.domain.datasets import Topic

ORANGE, SEMINOLE = "fl-county-orange", "fl-county-seminole"
TOPICS = ("development-activity", "zoning-land-use")


@pytest.fixture
def curl(served):
    """Ask as the examples do: the key in its header, the body as text with its type."""
    with served.ports.store.write() as records:
        records.catalog.put_topics([Topic(one, one) for one in (*TOPICS, "permits", "zoning")])
    served.put_catalog(dataset("ds_plans", ORANGE, TOPICS[0]), dataset("ds_zones", SEMINOLE, TOPICS[1]))

    def ask(method, path, body=None):
        headers = {"Authorization": f"Bearer {served.keys['admin']}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        return served.client.request(method, path, headers=headers, content=body)

    return ask


def test_a_preview(curl):
    body = """{
    "places": ["fl-county-orange", "fl-county-seminole"],
    "topics": ["development-activity", "zoning-land-use"]
  }"""
    answer = curl("POST", "/v1/feeds/subscriptions/preview", body)
    assert answer.status_code == 200
    assert [one["id"] for one in answer.json()["datasets"]] == ["ds_plans", "ds_zones"]


def test_a_subscription(curl, served):
    body = """{
  "name": "Central Florida",
  "places": ["fl-county-orange", "fl-county-seminole"],
  "topics": ["development-activity", "zoning-land-use"],
  "datasetIds": ["ds_florida"]
}"""
    answer = curl("POST", "/v1/feeds/subscriptions", body)
    made = answer.json()
    assert answer.status_code == 201
    assert (made["name"], made["places"], made["topics"]) == ("Central Florida", [ORANGE, SEMINOLE], list(TOPICS))
    held = served.get("/v1/feeds/datasets", params={"subscription": made["id"]}).json()["datasets"]
    assert [one["id"] for one in held] == ["ds_florida", "ds_plans", "ds_zones"]


def test_a_page_of_events(curl, served):
    made = served.subscribe(places=[ORANGE])
    answer = curl("GET", f"/v1/feeds/subscriptions/{made}/events?cursor=evt_000000000002&limit=100")
    assert answer.status_code == 200
    assert [event["id"] for event in answer.json()["events"]] == ["evt_000000000003", "evt_000000000004"]


def test_a_webhook(curl, served):
    made = served.subscribe(places=[ORANGE])
    body = """{
    "url": "https://acme.example/hooks/ploti",
    "subscriptionId": "%s"
  }"""
    answer = curl("POST", "/v1/webhooks", body % made)
    hook = answer.json()
    assert (answer.status_code, hook["url"], hook["events"]) == (201, "https://acme.example/hooks/ploti", None)
    assert (hook["subscriptionId"], hook["secret"][:6]) == (made, "whsec_")
