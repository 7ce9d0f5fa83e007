"""`ploti webhooks ...`: addresses of yours that get a subscription's events as they happen."""

from operator import itemgetter
from typing import Final

from cyclopts import App

from ploti.cli.connect import connect
from ploti.cli.lists import TABLE, Columns, Cursor, Output, PageSize, show_list
from ploti.cli.show import EVENT_PREFIX, AsJson, Names, event_types, local_time, moment, present, show_facts
from ploti.contract.webhooks import (
    Delivery,
    DeliveryStatus,
    NewWebhook,
    Webhook,
    WebhookSecret,
    WebhookTest,
)

app = App(name="webhooks", help="Addresses of yours that get a subscription's events.")


@app.command(name="create")
def create_webhook(url: str, /, *, subscription_id: str, events: Names = None, json: AsJson = False) -> None:
    """Create a webhook; its secret is shown this once.

    Parameters
    ----------
    url
        An https address of yours.
    subscription_id
        The subscription whose events to send.
    events
        Only these types, like added,updated; every type unless given.
    """
    with connect() as client:
        answer = client.webhooks.create(url, subscription_id=subscription_id, events=event_types(events))
    present(answer, json, _show_new)


def _show_new(answer: NewWebhook) -> None:
    _show_webhook(answer)
    print(f"\nSecret, shown this once: {answer['secret']}")


@app.command(name="list")
def list_webhooks(*, limit: PageSize = None, cursor: Cursor = None, out: Output = TABLE) -> None:
    """List your workspace's webhooks."""
    with connect() as client:
        answer = client.webhooks.list(limit=limit, cursor=cursor)
    show_list(answer, "webhooks", _WEBHOOKS, out)


def _types(webhook: Webhook) -> object:
    return "all" if webhook["events"] is None else [name.removeprefix(EVENT_PREFIX) for name in webhook["events"]]


def _state(webhook: Webhook) -> str:
    if webhook["status"] == "off":
        return f"off: {webhook['offReason']}"
    return "on" if webhook["failingSince"] is None else f"failing since {local_time(webhook['failingSince'])}"


_WEBHOOKS: Final[Columns] = {
    "ID": itemgetter("id"),
    "SUBSCRIPTION": itemgetter("subscriptionId"),
    "URL": itemgetter("url"),
    "EVENTS": _types,
    "STATE": _state,
    "CREATED": lambda webhook: moment(webhook["createdAt"]),
}


@app.command(name="get")
def get_webhook(webhook: str, /, *, json: AsJson = False) -> None:
    """Show one webhook.

    Parameters
    ----------
    webhook
        Id of the webhook.
    """
    with connect() as client:
        answer = client.webhooks.get(webhook)
    present(answer, json, _show_webhook)


def _show_webhook(answer: Webhook) -> None:
    show_facts(
        {
            "id": answer["id"],
            "url": answer["url"],
            "subscription": answer["subscriptionId"],
            "events": _types(answer),
            "member": answer["member"],
            "state": _state(answer),
            "created": moment(answer["createdAt"]),
        }
    )


@app.command(name="delete")
def delete_webhook(webhook: str, /, *, json: AsJson = False) -> None:
    """Delete a webhook: nothing is sent to it any more.

    Parameters
    ----------
    webhook
        Id of the webhook.
    """
    with connect() as client:
        answer = client.webhooks.delete(webhook)
    present(answer, json, lambda _: print(f"Deleted {webhook}."))


@app.command(name="test")
def ping_webhook(webhook: str, /, *, json: AsJson = False) -> int:
    """Send one signed ping now; exit code 1 where it was not accepted.

    Parameters
    ----------
    webhook
        Id of the webhook.
    """
    with connect() as client:
        answer = client.webhooks.test(webhook)
    present(answer, json, _show_test)
    return 0 if answer["delivered"] else 1


def _show_test(answer: WebhookTest) -> None:
    came = _came_back(answer["status"], answer["problem"])
    print(f"Accepted: {came}." if answer["delivered"] else f"Not accepted: {came}.")


def _came_back(status: int | None, problem: str | None) -> str:
    told = [f"status {status}"] if status is not None else []
    return ", ".join([*told, problem] if problem else told)


@app.command(name="rotate")
def rotate_secret(webhook: str, /, *, json: AsJson = False) -> None:
    """Make a new secret, shown this once; the one before it signs too for a day.

    Parameters
    ----------
    webhook
        Id of the webhook.
    """
    with connect() as client:
        answer = client.webhooks.rotate(webhook)
    present(answer, json, _show_secret)


def _show_secret(answer: WebhookSecret) -> None:
    print(f"Secret, shown this once: {answer['secret']}")
    print(f"The one before it signs too until {local_time(answer['previousUntil'])}.")


@app.command(name="deliveries")
def list_deliveries(
    webhook: str,
    /,
    *,
    status: DeliveryStatus | None = None,
    limit: PageSize = None,
    cursor: Cursor = None,
    out: Output = TABLE,
) -> None:
    """List a webhook's deliveries with their last answers, the newest event's first.

    Parameters
    ----------
    webhook
        Id of the webhook.
    status
        Only deliveries in this status.
    """
    with connect() as client:
        answer = client.webhooks.deliveries.list(webhook, status=status, limit=limit, cursor=cursor)
    show_list(answer, "deliveries", _DELIVERIES, out)


def _status(item: Delivery) -> str:
    return item["status"] if item["endReason"] is None else f"{item['status']}: {item['endReason']}"


def _last_answer(item: Delivery) -> str | None:
    last = item["lastAttempt"]
    return _came_back(last["status"], last["problem"]) if last else None


_DELIVERIES: Final[Columns] = {
    "ID": itemgetter("id"),
    "EVENT": itemgetter("eventId"),
    "TYPE": lambda item: item["type"].removeprefix(EVENT_PREFIX),
    "STATUS": _status,
    "ATTEMPTS": itemgetter("attempts"),
    "LAST ANSWER": _last_answer,
    "NEXT": lambda item: moment(item["nextAttemptAt"]),
}


@app.command(name="send")
def send_delivery(webhook: str, delivery: str, /, *, json: AsJson = False) -> None:
    """Send a delivery again, at once and with all its retries.

    Parameters
    ----------
    webhook
        Id of the webhook.
    delivery
        Id of the delivery.
    """
    with connect() as client:
        answer = client.webhooks.deliveries.send(webhook, delivery)
    present(answer, json, lambda _: print(f"Queued {delivery}."))
