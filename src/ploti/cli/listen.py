"""`ploti listen`: posts a subscription's events to an address of yours, signed as a webhook's deliveries are."""

import json as json_text
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from cyclopts import Parameter

import ploti
from ploti._signing import check_secret, new_secret, signed
from ploti.cli.connect import connect
from ploti.cli.show import EVENT_PREFIX, AsJson, Names, event_types, printable, show_note
from ploti.contract.events import EVENTS_PER_PAGE_MOST, Event

_ANSWER_SECONDS: Final = 15.0
_FIRST_PAUSE: Final = 0.25
_PAUSE_MOST: Final = 30.0


def listen(
    subscription: str,
    /,
    *,
    forward_to: str,
    cursor: str | None = None,
    events: Names = None,
    secret: str | None = None,
    once: Annotated[bool, Parameter(negative="")] = False,
    retry: Annotated[bool, Parameter(negative="")] = False,
    json: AsJson = False,
) -> int:
    """Post a subscription's events to an address of yours as they happen, signed as a webhook's deliveries are.

    For a receiver on your own machine: it reads the log, so that no address has to be reachable from outside. An event
    that is not accepted is told, and the next one is sent, unless --retry is given. In the end the cursor is told to go
    on with: that before the first event that was not accepted.

    Parameters
    ----------
    subscription
        Id of the subscription.
    forward_to
        The receiver's address, like http://localhost:8080/hooks.
    cursor
        Send what came after this event; only new events unless given.
    events
        Only these types, like added,updated.
    secret
        The secret to sign with; PLOTI_WEBHOOK_SECRET unless given, else a new one that is shown.
    once
        Send what there is, then end; exit code 1 where something was not accepted.
    retry
        Send an event again and again until it is accepted, with its id, before the next one.
    """
    _check_address(forward_to)
    key = secret or os.environ.get("PLOTI_WEBHOOK_SECRET")
    if key:
        check_secret(key)
    else:
        key = new_secret()
        show_note(f"Signing secret for this run: {key}")
    with connect() as client, Forward(forward_to, key) as forward:
        start = cursor if cursor is not None else newest_cursor(client, subscription)
        reached = _Reached(start)
        show_note(f"Sending events after {start} to {forward_to}; stop with ctrl-C.")
        try:
            for event in _events(client, subscription, start, event_types(events), once):
                for sent in forward.until_accepted(event) if retry else (forward.send(event),):
                    print(json_text.dumps(sent) if json else _line(event, sent), flush=True)
                reached.take(sent)
        finally:
            show_note(f"Go on with --cursor {reached.cursor}")
    return 0 if reached.all_accepted else 1


@dataclass
class _Reached:
    """How far events were accepted without a gap."""

    cursor: str
    all_accepted: bool = True

    def take(self, sent: dict[str, Any]) -> None:
        self.all_accepted = self.all_accepted and sent["accepted"]
        if self.all_accepted:
            self.cursor = sent["event"]


def _check_address(address: str) -> None:
    from ploti._http import is_address

    if not is_address(address):
        raise ploti.FixRequest("Give an address like http://localhost:8080/hooks.", code="invalid_input")


def newest_cursor(client: ploti.Client, subscription: str) -> str:
    """Find the end of a subscription's log."""
    cursor = None
    try:
        while True:
            page = client.feeds.subscriptions.events(subscription, cursor=cursor, limit=EVENTS_PER_PAGE_MOST)
            if page["nextCursor"] == cursor:
                return page["nextCursor"]
            cursor = page["nextCursor"]
    except ploti.Reload:
        return client.feeds.subscriptions.manifest(subscription)["eventCursor"]


def _events(
    client: ploti.Client, subscription: str, cursor: str, types: Sequence[str] | None, once: bool
) -> Iterator[Event]:
    if once:
        yield from client.feeds.subscriptions.iter_events(subscription, cursor=cursor, types=types)
        return
    for page in client.feeds.subscriptions.follow(
        subscription, cursor=cursor, types=types, trouble=lambda problem: show_note(f"Waiting: {problem}")
    ):
        yield from page["events"]


@dataclass
class Forward:
    """Posts events to one address, signed with one secret."""

    address: str
    secret: str

    def __enter__(self) -> "Forward":
        from ploti._http import connections

        self._client = connections(self.address, _ANSWER_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def until_accepted(self, event: Event) -> Iterator[dict[str, Any]]:
        """Post one event with growing pauses until it is accepted; gives what became of each attempt."""
        pause = _FIRST_PAUSE
        while True:
            sent = self.send(event)
            yield sent
            if sent["accepted"]:
                return
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_MOST)

    def send(self, event: Event) -> dict[str, Any]:
        """Post one event; tells whether it was accepted, the status, and what went wrong."""
        import httpx2

        body = json_text.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()
        headers = signed(body, f"msg_{event['subscriptionId']}_{event['id']}", [self.secret], time.time())
        status, problem = None, None
        try:
            status = self._client.post(self.address, content=body, headers=headers).status_code
        except httpx2.HTTPError as error:
            problem = str(error) or type(error).__name__
        accepted = status is not None and 200 <= status < 300
        return {
            "event": event["id"],
            "type": event["type"],
            "status": status,
            "accepted": accepted,
            "problem": problem,
        }


def _line(event: Event, sent: dict[str, Any]) -> str:
    data = event["data"]
    version = "" if data.get("version") is None else f" {data['version']}"
    came = sent["problem"] or str(sent["status"])
    verdict = came if sent["accepted"] else f"not accepted: {came}"
    told = f"{event['id']}  {event['type'].removeprefix(EVENT_PREFIX)}  {data['datasetId']}{version}  {verdict}"
    return printable(told)
