"""Makes, tests, turns and deletes webhooks, and sends single deliveries again (page 003, D9.3, D9.4)."""

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from ploti_server.domain.access import Refused
from ploti_server.domain.deliveries import GONE, Answer, Delivery, sent_again
from ploti_server.domain.webhooks import (
    SecretRef,
    Webhook,
    WebhookRequest,
    check_webhook_room,
    key_id,
    require_on,
    rotated,
    secret_text,
    turned_off,
)
from ploti_server.domain.wire import wire_time
from ploti_server.pipeline.deliver import hooks_of, post
from ploti_server.pipeline.membership import busy
from ploti_server.pipeline.subscriptions import new_id, owned_subscription
from ploti_server.ports import Ports, Records

_SALT_BYTES: Final = 16


@dataclass(frozen=True)
class NewSecret:
    """A webhook whose secret was just made: its text is shown this once (D9.4)."""

    webhook: Webhook
    text: str


def no_webhook(webhook_id: str) -> Refused:
    """Say that a workspace has no such webhook."""
    return Refused("not_found", f"There is no webhook {webhook_id}: list the webhooks for their ids.")


def owned_webhook(records: Records, workspace_id: str, webhook_id: str) -> Webhook:
    """Find a workspace's webhook; another workspace's is refused like an unknown one (I8)."""
    found = records.webhooks.get(webhook_id)
    if found is None or found.workspace_id != workspace_id:
        raise no_webhook(webhook_id)
    return found


def _locked(records: Records, workspace_id: str, webhook_id: str) -> Webhook:
    owned_webhook(records, workspace_id, webhook_id)
    found = records.webhooks.lock(webhook_id)
    if found is None:
        raise no_webhook(webhook_id)
    return found


def _fresh(ports: Ports) -> SecretRef:
    return SecretRef(secrets.token_hex(_SALT_BYTES), key_id(hooks_of(ports).key))


def create_webhook(ports: Ports, workspace_id: str, member: str, request: WebhookRequest) -> NewSecret:
    """Create a webhook: it gets every event that is logged from then on. Raises `Refused`, `busy` for a moment."""
    hooks, fresh = hooks_of(ports), _fresh(ports)
    with ports.store.write() as records:
        records.workspaces.lock(workspace_id)
        present = records.workspaces.member(workspace_id, member)
        if present is None or present.left_at is not None:
            raise Refused("unauthenticated", "The member of this key has left the workspace: use another key.")
        owned_subscription(records, workspace_id, request.subscription_id)
        check_webhook_room(len(records.webhooks.of_workspace(workspace_id)))
        if not records.subscriptions.try_lock(request.subscription_id):
            raise busy()
        made = Webhook(
            id=new_id("wh_"),
            workspace_id=workspace_id,
            subscription_id=request.subscription_id,
            member=member,
            url=request.url,
            types=request.types,
            secrets=(fresh,),
            created_at=ports.clock.now(),
        )
        records.webhooks.put(made)
        ports.reach("webhook.before_commit")
    return NewSecret(made, secret_text(hooks.key, made.id, fresh))


def delete_webhook(ports: Ports, workspace_id: str, webhook_id: str) -> None:
    """Delete a webhook with its deliveries; nothing is sent to it any more. Raises `Refused` `not_found`."""
    with ports.store.write() as records:
        _locked(records, workspace_id, webhook_id)
        records.webhooks.remove(webhook_id)


def rotate_secret(ports: Ports, workspace_id: str, webhook_id: str) -> NewSecret:
    """Give a webhook a new secret; the one before it signs too for a day (D9.4). Raises `Refused`."""
    hooks, fresh = hooks_of(ports), _fresh(ports)
    with ports.store.write() as records:
        found = _locked(records, workspace_id, webhook_id)
        require_on(found)
        turned = rotated(found, fresh, ports.clock.now())
        records.webhooks.put(turned)
    return NewSecret(turned, secret_text(hooks.key, webhook_id, fresh))


def test_webhook(ports: Ports, workspace_id: str, webhook_id: str) -> Answer:
    """Send one signed ping now, as a delivery is sent; a 410 turns the webhook off. Raises `Refused`."""
    with ports.store.read() as records:
        found = owned_webhook(records, workspace_id, webhook_id)
    require_on(found)
    now = ports.clock.now()
    ping = {"id": new_id("ping_"), "type": "ping", "timestamp": wire_time(now), "data": {}}
    answer = post(hooks_of(ports), found, new_id("msg_"), msgspec.json.encode(ping), now)
    if answer.status == GONE:
        with ports.store.write() as records:
            locked = records.webhooks.lock(webhook_id)
            if locked is not None:
                records.webhooks.put(turned_off(locked, "gone", ports.clock.now()))
    return answer


def send_again(ports: Ports, workspace_id: str, webhook_id: str, delivery_id: str) -> Delivery:
    """Queue a delivery anew, at once and with all its retries (D9.4). Raises `Refused`, `busy` while it is sent."""
    now = ports.clock.now()
    with ports.store.write() as records:
        require_on(_locked(records, workspace_id, webhook_id))
        found = records.deliveries.get(delivery_id)
        if found is None or found.webhook_id != webhook_id:
            raise Refused("not_found", f"There is no delivery {delivery_id}: list the webhook's deliveries.")
        if found.lease_until is not None and found.lease_until > now:
            raise Refused("busy", "This delivery is being sent just now: try again in a moment.")
        again = sent_again(found, now)
        records.deliveries.put(again)
    return again


def stop_webhooks_of(records: Records, workspace_id: str, member: str, now: datetime) -> None:
    """Turn off the webhooks of a member who leaves, inside the transaction of the leaving (D9.3)."""
    own = [found for found in records.webhooks.of_workspace(workspace_id) if found.member == member]
    for one in sorted(own, key=lambda found: (found.subscription_id, found.id)):
        locked = records.webhooks.lock(one.id)
        if locked is not None:
            records.webhooks.put(turned_off(locked, "member_left", now))
