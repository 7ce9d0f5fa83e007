"""Webhooks: what a request may ask for, their secrets, and when they are off (page 003, D9.3 to D9.5)."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from ploti.contract.events import EVENT_TYPES, EventType
from ploti_server.domain.access import Refused
from ploti_server.domain.addresses import AddressRefused, read_target

WEBHOOKS_MOST: Final = 100
OLD_SECRET_FOR: Final = timedelta(days=1)
FAILING_FOR: Final = timedelta(days=5)
OffReason = Literal["gone", "failing", "member_left"]
_FIELDS: Final = ("url", "subscriptionId", "events")


@dataclass(frozen=True)
class SecretRef:
    """What a secret is derived from, besides the server's key; `key_id` tells which key, `until` when it ends."""

    salt: str
    key_id: str
    until: datetime | None = None


@dataclass(frozen=True)
class Webhook:
    """An address that gets a subscription's events; `types` None: all. It belongs to the member who made it.

    `failing_since` is the first failure since the last success. `secrets` are newest first.
    """

    id: str
    workspace_id: str
    subscription_id: str
    member: str
    url: str
    types: tuple[EventType, ...] | None
    secrets: tuple[SecretRef, ...]
    created_at: datetime
    failing_since: datetime | None = None
    off_at: datetime | None = None
    off_reason: OffReason | None = None

    def wants(self, type_: str) -> bool:
        """Tell whether it gets events of a type."""
        return self.types is None or type_ in self.types


@dataclass(frozen=True)
class WebhookRequest:
    """The fields of a create."""

    url: str
    subscription_id: str
    types: tuple[EventType, ...] | None


def _refuse(field: str | None, message: str) -> Refused:
    return Refused("invalid_input", message, field)


def read_webhook(body: Any, allow_loopback: bool = False) -> WebhookRequest:
    """Read the fields of a create; raises `Refused` `invalid_input` for a wrong shape or address (D9.1, D9.3)."""
    if not isinstance(body, Mapping):
        raise _refuse(None, "Send a JSON object with url and subscriptionId.")
    for field in body:
        if field not in _FIELDS:
            raise _refuse(str(field), f"'{field}' is not a field of a webhook: use {', '.join(_FIELDS)}.")
    subscription_id = body.get("subscriptionId")
    if not isinstance(subscription_id, str) or not subscription_id or not subscription_id.isprintable():
        raise _refuse("subscriptionId", "Name the subscription whose events to send as 'subscriptionId'.")
    return WebhookRequest(_read_url(body.get("url"), allow_loopback), subscription_id, _read_types(body))


def _read_url(value: Any, allow_loopback: bool) -> str:
    if not isinstance(value, str):
        raise _refuse("url", "Give 'url' as an https address of yours.")
    try:
        read_target(value, allow_loopback)
    except AddressRefused as refused:
        raise _refuse("url", f"This address cannot be used: {refused}.") from None
    return value


def _read_types(body: Mapping[str, Any]) -> tuple[EventType, ...] | None:
    if "events" not in body:
        return None
    named = body["events"]
    if not isinstance(named, list) or not named:
        raise _refuse("events", "Give 'events' as a list of event types, or leave it out for all of them.")
    for one in named:
        if one not in EVENT_TYPES:
            raise _refuse("events", f"'{str(one)[:60]}' is no event type: use {', '.join(EVENT_TYPES)}.")
    return tuple(type_ for type_ in EVENT_TYPES if type_ in named)


def check_webhook_room(existing: int) -> None:
    """Refuse one more webhook where the workspace has the most it may have."""
    if existing >= WEBHOOKS_MOST:
        raise Refused("limit_reached", f"Your workspace has {WEBHOOKS_MOST} webhooks already: delete one first.")


def require_on(webhook: Webhook) -> None:
    """Refuse to do more with a webhook that was turned off."""
    if webhook.off_at is not None:
        why = {
            "gone": "its receiver answered 410",
            "failing": "every delivery failed for five days",
            "member_left": "the member who made it has left",
        }[webhook.off_reason or "gone"]
        raise _refuse(None, f"This webhook is off, for {why}: make a new one, and read the log for what it missed.")


def turned_off(webhook: Webhook, reason: OffReason, now: datetime) -> Webhook:
    """Turn a webhook off; one that is off already keeps its reason."""
    return webhook if webhook.off_at is not None else replace(webhook, off_at=now, off_reason=reason)


def key_id(key: bytes) -> str:
    """Name a server's key without giving it away."""
    return hashlib.sha256(b"webhooks key id:" + key).hexdigest()[:16]


def secret_text(key: bytes, webhook_id: str, ref: SecretRef) -> str:
    """Derive a webhook's secret in the form of Standard Webhooks; the store alone does not hold it (D9.4)."""
    derived = hmac.new(key, f"webhook secret\n{webhook_id}\n{ref.salt}".encode(), hashlib.sha256).digest()
    return "whsec_" + base64.b64encode(derived).decode()


def rotated(webhook: Webhook, fresh: SecretRef, now: datetime) -> Webhook:
    """Put a new secret first; the one before it goes on signing for a day, older ones end (D9.4)."""
    before = replace(webhook.secrets[0], until=now + OLD_SECRET_FOR)
    return replace(webhook, secrets=(fresh, before))


def signing_secrets(webhook: Webhook, now: datetime) -> tuple[SecretRef, ...]:
    """Give the secrets that sign now, newest first."""
    return tuple(ref for ref in webhook.secrets if ref.until is None or now < ref.until)
