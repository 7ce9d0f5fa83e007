"""Webhooks of the fake API: made, listed, tested, rotated; their deliveries queue up for `posts` to take."""

import itertools
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ploti._signing import new_secret, signed
from ploti.contract.events import EVENT_TYPES, Event, EventType
from ploti.contract.webhooks import Delivery, Webhook
from ploti.testing.fake_http import FakeAnswer, FakeRequest, Refusal, json_answer
from ploti.testing.fake_state import FakeKey, FakeState, wire_time

_WEBHOOKS = re.compile("/v1/webhooks(?:/(?P<webhook>[^/]+)(?P<rest>/.*)?)?")
_DELIVERY = re.compile("/deliveries/(?P<delivery>[^/]+)/send")
_FIELDS = ("url", "subscriptionId", "events")


@dataclass(frozen=True)
class FakePost:
    """One signed POST: feed its body and headers to the receiver under test."""

    body: bytes
    headers: Mapping[str, str]


@dataclass
class FakeWebhook:
    """A webhook with its secrets, newest first, and its deliveries with their events, oldest first."""

    wire: Webhook
    secrets: list[str]
    deliveries: list[tuple[Delivery, Event]] = field(default_factory=list)

    def queue(self, event: Event, delivery_id: str, now: datetime) -> None:
        """Queue an event where it is wanted."""
        if self.wire["subscriptionId"] != event["subscriptionId"] or event["type"] not in (
            self.wire["events"] or EVENT_TYPES
        ):
            return
        made: Delivery = {
            "id": delivery_id,
            "webhookId": self.wire["id"],
            "eventId": event["id"],
            "type": event["type"],
            "datasetId": event["data"]["datasetId"],
            "status": "pending",
            "endReason": None,
            "attempts": 0,
            "lastAttempt": None,
            "nextAttemptAt": wire_time(now),
            "createdAt": wire_time(now),
        }
        self.deliveries.append((made, event))

    def signed(self, message_id: str, value: object, now: datetime) -> FakePost:
        """Sign a value with each secret, after Standard Webhooks."""
        body = json.dumps(value).encode()
        return FakePost(body, signed(body, message_id, self.secrets, now.timestamp()))


class FakeWebhooks:
    """The fake's webhooks; nothing is sent over a network."""

    def __init__(self, state: FakeState, clock: Callable[[], datetime]) -> None:
        self._state, self._clock = state, clock
        self._numbers = itertools.count(1)
        self.made: dict[str, FakeWebhook] = {}

    def add(self, id_: str, subscription_id: str, url: str, events: Sequence[EventType] | None) -> FakeWebhook:
        """Add a webhook with a fresh secret."""
        wire = self._wire(id_, url, subscription_id, None if events is None else list(events))
        self.made[id_] = FakeWebhook(wire, [new_secret()])
        return self.made[id_]

    def queue(self, event: Event) -> None:
        """Queue a logged event for the webhooks that want it; deliveries are numbered `msg_1`, `msg_2`..."""
        for hook in self.made.values():
            hook.queue(event, f"msg_{next(self._numbers)}", self._clock())

    def posts(self, webhook_id: str) -> Iterator[FakePost]:
        """Take what waits for a webhook as signed POSTs, oldest first; each counts as delivered when it is taken."""
        hook = self.made[webhook_id]
        for delivery, event in hook.deliveries:
            if delivery["status"] == "pending":
                at = wire_time(self._clock())
                delivery["lastAttempt"] = {"at": at, "status": 204, "problem": None}
                delivery["status"], delivery["nextAttemptAt"] = "delivered", None
                delivery["attempts"] += 1
                yield hook.signed(delivery["id"], event, self._clock())

    def drop_of(self, subscription_id: str) -> None:
        """Stop the webhooks of a subscription that was deleted."""
        self.made = {k: hook for k, hook in self.made.items() if hook.wire["subscriptionId"] != subscription_id}

    def handles(self, request: FakeRequest) -> bool:
        """Tell whether a request is about webhooks."""
        return _WEBHOOKS.fullmatch(request.path) is not None

    def answer(self, request: FakeRequest, key: FakeKey) -> FakeAnswer:
        """Answer a request about webhooks; raises Refusal."""
        if "webhooks" not in key.permissions:
            raise Refusal("not_allowed", "Use a key with the webhooks permission.")
        found = _WEBHOOKS.fullmatch(request.path)
        webhook, rest = (found["webhook"], found["rest"] or "") if found else (None, "")
        sees = "feeds" in key.permissions
        if webhook is None:
            if request.method == "POST" and not sees:
                raise Refusal("not_allowed", "Use a key with the feeds permission too.")
            return self._create(request) if request.method == "POST" else self._list(sees)
        if webhook not in self.made or not sees:
            raise Refusal("not_found", f"There is no webhook {webhook}.")
        return self._one(request.method, self.made[webhook], rest)

    def _list(self, sees: bool) -> FakeAnswer:
        shown = [hook.wire for hook in self.made.values() if sees]
        return json_answer({"webhooks": shown, "nextCursor": None})

    def _create(self, request: FakeRequest) -> FakeAnswer:
        body = _object(request)
        for name in body:
            if name not in _FIELDS:
                raise Refusal("invalid_input", f"Leave out {name}: it is not known here.", name)
        if not isinstance(body.get("url"), str) or not body["url"].startswith("https://"):
            raise Refusal("invalid_input", "Give url as an https address.", "url")
        if not isinstance(body.get("subscriptionId"), str):
            raise Refusal("invalid_input", "Name the subscription.", "subscriptionId")
        if body["subscriptionId"] not in self._state.subscriptions:
            raise Refusal("not_found", f"There is no subscription {body['subscriptionId']}.")
        hook = self.add(f"wh_{secrets.token_hex(8)}", body["subscriptionId"], body["url"], _types(body))
        return json_answer({**hook.wire, "secret": hook.secrets[0]}, 201)

    def _wire(self, id_: str, url: str, subscription_id: str, events: list[EventType] | None) -> Webhook:
        return {
            "id": id_,
            "url": url,
            "subscriptionId": subscription_id,
            "events": events,
            "member": "fake",
            "status": "on",
            "offReason": None,
            "offAt": None,
            "failingSince": None,
            "createdAt": wire_time(self._clock()),
        }

    def _one(self, method: str, hook: FakeWebhook, rest: str) -> FakeAnswer:
        match method, rest:
            case "GET", "":
                return json_answer(hook.wire)
            case "DELETE", "":
                del self.made[hook.wire["id"]]
                return json_answer({"deleted": True})
            case "POST", "/test":
                return json_answer({"delivered": True, "status": 204, "problem": None})
            case "POST", "/rotate":
                hook.secrets = [new_secret(), hook.secrets[0]]
                until = wire_time(self._clock() + timedelta(days=1))
                return json_answer({"id": hook.wire["id"], "secret": hook.secrets[0], "previousUntil": until})
            case "GET", "/deliveries":
                shown = [delivery for delivery, _ in reversed(hook.deliveries)]
                return json_answer({"deliveries": shown, "nextCursor": None})
            case "POST", _ if (found := _DELIVERY.fullmatch(rest)) is not None:
                return json_answer(_sent_again(hook, found["delivery"]))
        raise Refusal("not_found", "There is nothing at this address: check the path.")


def _sent_again(hook: FakeWebhook, delivery_id: str) -> Delivery:
    for delivery, _ in hook.deliveries:
        if delivery["id"] == delivery_id:
            delivery["status"], delivery["attempts"], delivery["endReason"] = "pending", 0, None
            return delivery
    raise Refusal("not_found", f"There is no delivery {delivery_id}.")


def _object(request: FakeRequest) -> dict[str, Any]:
    try:
        value = json.loads(request.body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Refusal("invalid_input", "Send a JSON object as the body.")
    return value


def _types(body: Mapping[str, Any]) -> list[EventType] | None:
    if "events" not in body:
        return None
    named = body["events"]
    if not isinstance(named, list) or not named or any(one not in EVENT_TYPES for one in named):
        raise Refusal("invalid_input", f"Give events as a list among {', '.join(EVENT_TYPES)}.", "events")
    return [type_ for type_ in EVENT_TYPES if type_ in named]
