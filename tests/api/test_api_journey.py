"""One subscriber's way through the API, over the fake, SQLite and PostgreSQL."""

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def test_subscriber_finds_follows_and_loads_on_every_store(served_on_each):
    served = served_on_each
    served.version("ds_orange", 1)
    assert served.get("/v1/places?deliverable=true").json()["places"][0]["datasetCount"] == 3
    subscription = served.subscribe(name="Orange", places=["fl-counties"], topics=["permits"])
    manifest = served.get(f"/v1/feeds/subscriptions/{subscription}/manifest").json()
    assert [d["datasetId"] for d in manifest["datasets"]] == ["ds_orange"]
    assert [d["datasetId"] for d in manifest["unavailable"]] == ["ds_both"]
    served.clock.advance(minutes=1)
    served.release("ds_orange", 2, previous_version=1)
    served.release("ds_both", 1)
    events = served.events(subscription, cursor=manifest["eventCursor"])
    assert [(e["type"], e["data"]["datasetId"]) for e in events] == [
        ("feed.dataset.updated", "ds_orange"),
        ("feed.dataset.resync_required", "ds_both"),
    ]
    version = served.get(events[0]["data"]["links"]["version"]).json()
    changes = version["files"]["changes"][0]
    assert len(served.client.get(changes["url"]).content) == changes["sizeBytes"]
    assert [v["version"] for v in served.get("/v1/feeds/datasets/ds_orange/versions?after=1").json()["versions"]] == [2]
    since = served.get("/v1/feeds/datasets?updatedSince=2026-01-01T00:01:00Z").json()["datasets"]
    assert [d["id"] for d in since] == ["ds_both", "ds_orange"]
    assert served.delete(f"/v1/feeds/subscriptions/{subscription}").json() == {"deleted": True}
    assert served.get("/v1/feeds/datasets/ds_orange/versions/2").json()["error"]["code"] == "not_subscribed"


@pytest.mark.parametrize(
    ("example", "path"),
    [
        ("place-list", "/v1/places"),
        ("topic-list", "/v1/topics"),
        ("dataset-page", "/v1/feeds/datasets"),
        ("dataset", "/v1/feeds/datasets/ds_orange"),
        ("version-page", "/v1/feeds/datasets/ds_orange/versions"),
        ("version", "/v1/feeds/datasets/ds_orange/versions/2"),
        ("subscription-page", "/v1/feeds/subscriptions"),
        ("subscription-manifest", "/v1/feeds/subscriptions/{subscription}/manifest"),
        ("event-page", "/v1/feeds/subscriptions/{subscription}/events"),
        ("error", "/v1/feeds/datasets/ds_unknown"),
    ],
)
def test_answer_has_the_names_of_the_docs_example(served, example, path):
    served.version("ds_orange", 1)
    served.version("ds_orange", 2, previous_version=1)
    subscription = served.subscribe(datasetIds=["ds_orange"])
    served.subscribe(places=["us"])
    written = json.loads((EXAMPLES / f"{example}.json").read_text(encoding="utf-8"))
    answer = served.get(path.format(subscription=subscription)).json()
    assert names(answer) == names(written)


def names(value):
    """Give the names of an answer and of the members that are objects always there."""
    return {name: names(member) if name in ("error", "files") else None for name, member in value.items()}
