"""`ploti feeds subscriptions ...`: subscriptions, their manifests and events."""

import json as json_text
from operator import itemgetter
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

import ploti
from ploti.cli.connect import connect
from ploti.cli.lists import TABLE, Columns, Cursor, Output, PageSize, show_list
from ploti.cli.show import (
    EVENT_PREFIX,
    AsJson,
    Names,
    byte_size,
    cell,
    event_types,
    moment,
    number,
    present,
    printable,
    show_facts,
    show_note,
    show_table,
    split_names,
)
from ploti.contract.events import EventType
from ploti.contract.resources import (
    Subscription,
    SubscriptionManifest,
    SubscriptionPreview,
)

app = App(name="subscriptions", help="The datasets that your workspace follows.")


@app.command(name="create")
def create_subscription(
    name: str, /, *, places: Names = None, topics: Names = None, dataset_ids: Names = None, json: AsJson = False
) -> None:
    """Create a subscription to places, narrowed to topics, and to single datasets.

    Parameters
    ----------
    name
        What to call it.
    places
        Every dataset in these places, with commas between.
    topics
        Within the places, only these topics.
    dataset_ids
        These datasets besides.
    """
    with connect() as client:
        answer = client.feeds.subscriptions.create(
            name, places=split_names(places), topics=split_names(topics), dataset_ids=split_names(dataset_ids)
        )
    present(answer, json, _show_subscription)


@app.command(name="preview")
def preview_subscription(
    *,
    places: Names = None,
    topics: Names = None,
    dataset_ids: Names = None,
    q: str | None = None,
    place: str | None = None,
    topic: str | None = None,
    matched_by: Literal["places", "datasets"] | None = None,
    sort: Literal["place", "title", "updated"] | None = None,
    limit: PageSize = None,
    cursor: Cursor = None,
    out: Output = TABLE,
) -> None:
    """Show what a subscription would deliver now, without creating one.

    Parameters
    ----------
    places
        Every dataset in these places, with commas between.
    topics
        Within the places, only these topics.
    dataset_ids
        These datasets besides.
    q
        List only datasets with these words in the title.
    place
        List only datasets filed under this place.
    topic
        List only datasets of this topic, none for no topic.
    matched_by
        List only what the places name, or what is named on its own.
    sort
        Order of the list; by place unless given.
    """
    with connect() as client:
        answer = client.feeds.subscriptions.preview(
            places=split_names(places),
            topics=split_names(topics),
            dataset_ids=split_names(dataset_ids),
            q=q,
            place=place,
            topic=topic,
            matched_by=matched_by,
            sort=sort,
            limit=limit,
            cursor=cursor,
        )
    if out.for_people:
        _show_totals(answer)
    show_list(answer, "datasets", _PREVIEWED, out)


_PREVIEWED: Final[Columns] = {
    "ID": itemgetter("id"),
    "TITLE": itemgetter("title"),
    "MATCHED BY": itemgetter("matchedBy"),
}


def _show_totals(answer: SubscriptionPreview) -> None:
    matched = answer["matchedBy"]
    show_facts({"datasets": answer["total"], "by place": matched["places"], "by id": matched["datasets"]})
    print()
    show_table(("TOPIC", "DATASETS"), [(item["topic"] or "none", item["count"]) for item in answer["byTopic"]])
    print()
    rows = [(item["id"] or "none", item["name"], item["count"]) for item in answer["byPlace"]]
    show_table(("PLACE", "NAME", "DATASETS"), rows)
    matching = answer["matching"]
    print(f"\n{matching:,} {'dataset matches' if matching == 1 else 'datasets match'}:\n")


@app.command(name="list")
def list_subscriptions(*, limit: PageSize = None, cursor: Cursor = None, out: Output = TABLE) -> None:
    """List your workspace's subscriptions."""
    with connect() as client:
        answer = client.feeds.subscriptions.list(limit=limit, cursor=cursor)
    show_list(answer, "subscriptions", _SUBSCRIPTIONS, out)


_SUBSCRIPTIONS: Final[Columns] = {
    "ID": itemgetter("id"),
    "NAME": itemgetter("name"),
    "PLACES": itemgetter("places"),
    "TOPICS": itemgetter("topics"),
    "DATASETS": itemgetter("datasetIds"),
    "CREATED": lambda subscription: moment(subscription["createdAt"]),
}


@app.command(name="get")
def get_subscription(subscription: str, /, *, json: AsJson = False) -> None:
    """Show one subscription.

    Parameters
    ----------
    subscription
        Id of the subscription.
    """
    with connect() as client:
        answer = client.feeds.subscriptions.get(subscription)
    present(answer, json, _show_subscription)


def _show_subscription(answer: Subscription) -> None:
    show_facts(
        {
            "id": answer["id"],
            "name": answer["name"],
            "places": answer["places"],
            "topics": answer["topics"] or "all",
            "datasets": answer["datasetIds"],
            "revision": answer["revision"],
            "created": moment(answer["createdAt"]),
            "updated": moment(answer["updatedAt"]),
        }
    )


@app.command(name="update")
def update_subscription(
    subscription: str,
    /,
    *,
    name: str | None = None,
    places: Names = None,
    topics: Names = None,
    dataset_ids: Names = None,
    revision: int | None = None,
    json: AsJson = False,
) -> None:
    """Change a subscription: what is given replaces what was, the rest is kept.

    Parameters
    ----------
    subscription
        Id of the subscription.
    name
        What to call it.
    places
        The places, with commas between; "" for none.
    topics
        The topics; "" for all.
    dataset_ids
        The datasets named on their own; "" for none.
    revision
        The revision that you read, so that no edit since is lost; the present one unless given.
    """
    with connect() as client:
        subscriptions = client.feeds.subscriptions
        answer = subscriptions.update(
            subscription,
            revision=subscriptions.get(subscription)["revision"] if revision is None else revision,
            name=name,
            places=None if places is None else split_names(places),
            topics=None if topics is None else split_names(topics),
            dataset_ids=None if dataset_ids is None else split_names(dataset_ids),
        )
    present(answer, json, _show_subscription)


@app.command(name="delete")
def delete_subscription(subscription: str, /, *, json: AsJson = False) -> None:
    """Delete a subscription; files already downloaded stay yours.

    Parameters
    ----------
    subscription
        Id of the subscription.
    """
    with connect() as client:
        answer = client.feeds.subscriptions.delete(subscription)
    present(answer, json, lambda _: print(f"Deleted {subscription}."))


@app.command(name="manifest")
def subscription_manifest(
    subscription: str,
    /,
    *,
    as_of: str | None = None,
    limit: PageSize = None,
    cursor: Cursor = None,
    json: AsJson = False,
) -> None:
    """Show the datasets to load and the event that they reflect.

    Parameters
    ----------
    subscription
        Id of the subscription.
    as_of
        The eventCursor of an earlier manifest, for fresh links to the same versions.
    """
    with connect() as client:
        answer = client.feeds.subscriptions.manifest(subscription, as_of=as_of, limit=limit, cursor=cursor)
    present(answer, json, _show_manifest)


def _show_manifest(answer: SubscriptionManifest) -> None:
    rows: list[tuple[object, ...]] = []
    for item in answer["datasets"]:
        size = sum(part["sizeBytes"] for part in item["files"]["snapshot"])
        rows.append((item["datasetId"], number(item["version"]), item["schemaVersion"], byte_size(size), "to load"))
    for waiting in answer["unavailable"]:
        rows.append((waiting["datasetId"], number(waiting.get("version")), None, None, waiting["reason"]))
    show_table(("DATASET", "VERSION", "SCHEMA", "SIZE", "STATE"), rows)
    print(f"\nEvents after {answer['eventCursor']} are not in it yet.")
    if answer["nextCursor"] is not None:
        print(f"More: add --cursor {printable(answer['nextCursor'])}")


@app.command(name="events")
def subscription_events(
    subscription: str,
    /,
    *,
    cursor: str | None = None,
    limit: int | None = None,
    types: Names = None,
    follow: Annotated[bool, Parameter(negative="")] = False,
    out: Output = TABLE,
) -> None:
    """Read a subscription's events after a cursor.

    Parameters
    ----------
    subscription
        Id of the subscription.
    cursor
        The last event already applied; the oldest kept unless given.
    limit
        Events a page, at most 500.
    types
        Only these types, like updated,removed.
    follow
        Go on until stopped: wait for what comes. An event is a line, with --json an object.
    """
    with connect() as client:
        if follow:
            _follow(client, subscription, cursor, event_types(types), out.json)
        answer = client.feeds.subscriptions.events(subscription, cursor=cursor, limit=limit, types=event_types(types))
    show_list(answer, "events", _EVENTS, out, more="Next: --cursor {}")


def _follow(
    client: ploti.Client, subscription: str, cursor: str | None, types: list[EventType] | None, as_json: bool
) -> None:
    """Print events as they happen, without end."""
    pages = client.feeds.subscriptions.follow(
        subscription, cursor=cursor, types=types, trouble=lambda problem: show_note(f"Waiting: {problem}")
    )
    for page in pages:
        for event in page["events"]:
            print(
                json_text.dumps(event) if as_json else "  ".join(cell(of(event)) for of in _EVENTS.values()), flush=True
            )


_EVENTS: Final[Columns] = {
    "ID": itemgetter("id"),
    "TIME": lambda event: moment(event["timestamp"]),
    "TYPE": lambda event: event["type"].removeprefix(EVENT_PREFIX),
    "DATASET": lambda event: event["data"]["datasetId"],
    "VERSION": lambda event: number(event["data"].get("version")),
    "WHAT": lambda event: event["data"].get("reason") or event["data"].get("counts"),
}
