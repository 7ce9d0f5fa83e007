"""Shapes of webhooks, their deliveries and the ping that tests one (page 003, D9)."""

from typing import Any, Final, Literal, NotRequired

from ploti.contract._typed import TypedDict
from ploti.contract.events import EventType

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"
"""Headers of Standard Webhooks; `webhook-id` names the delivery and stays through its retries."""
TOLERANCE_SECONDS: Final = 300
"""How far the timestamp may be from the receiver's clock, either way."""
PING: Final = "ping"

WebhookStatus = Literal["on", "off"]
OffReason = Literal["gone", "failing", "member_left"]
DeliveryStatus = Literal["pending", "delivered", "ended"]
EndReason = Literal["too_large", "gone", "gave_up", "webhook_off"]


class Webhook(TypedDict):
    """An address that gets a subscription's events; `events` null: every type.

    `failingSince` is the first failure since the last success.
    """

    id: str
    url: str
    subscriptionId: str
    events: list[EventType] | None
    member: str
    status: WebhookStatus
    offReason: OffReason | None
    offAt: str | None
    failingSince: str | None
    createdAt: str


class NewWebhook(Webhook):
    """A webhook just made: its secret is shown this once."""

    secret: str


class WebhookPage(TypedDict):
    """A page of webhooks."""

    webhooks: list[Webhook]
    nextCursor: str | None


class WebhookSecret(TypedDict):
    """A new secret, shown this once; the one before it signs too until `previousUntil`."""

    id: str
    secret: str
    previousUntil: str


class Ping(TypedDict):
    """What a test sends; it is no feed event."""

    id: str
    type: Literal["ping"]
    timestamp: str
    data: dict[str, Any]


class WebhookTest(TypedDict):
    """What came of a ping: the receiver's status, or null with the problem."""

    delivered: bool
    status: int | None
    problem: str | None


class LastAttempt(TypedDict):
    """The last attempt of a delivery: the receiver's status, or null with the problem."""

    at: str
    status: int | None
    problem: str | None


class Delivery(TypedDict):
    """One event to one webhook. `attempts` counts since it was queued or sent again."""

    id: str
    webhookId: str
    eventId: str
    type: EventType
    datasetId: str
    status: DeliveryStatus
    endReason: EndReason | None
    attempts: int
    lastAttempt: LastAttempt | None
    nextAttemptAt: str | None
    createdAt: str


class DeliveryPage(TypedDict):
    """A page of a webhook's deliveries, the newest event's first."""

    deliveries: list[Delivery]
    nextCursor: str | None


class WebhookCreate(TypedDict):
    """What a create takes; without `events`, every type is sent."""

    url: str
    subscriptionId: str
    events: NotRequired[list[EventType]]
