"""A fake of the whole API for tests: scripted with datasets, versions, events and files, strict, with faults on demand.

It answers in the same process (`client_options`) or on a loopback port (`serve`), and notes every request.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

from ploti.contract.errors import ERROR_STATUS
from ploti.contract.events import (
    ADDED,
    DELAYED,
    REMOVED,
    RESYNC_REQUIRED,
    SCHEMA_CHANGED,
    UPDATED,
    Event,
    EventLinks,
    EventType,
    HoldReason,
    RemovedReason,
    ResyncReason,
    event_id,
)
from ploti.contract.resources import (
    Counts,
    DatasetPlace,
    DatasetStatus,
    License,
    Place,
    PlaceKind,
    RecordTrace,
    Schema,
    Subscription,
    Version,
)
from ploti.contract.webhooks import Webhook
from ploti.testing.fake_http import Answering, FakeAnswer, FakeRequest, FakeTransport, Refusal, loopback
from ploti.testing.fake_links import FakeLinks
from ploti.testing.fake_routes import FakeRoutes
from ploti.testing.fake_state import (
    FakeDataset,
    FakeKey,
    FakeState,
    FakeSubscription,
    FakeVersion,
    StoredFile,
    stored,
    wire_time,
    with_documents,
)
from ploti.testing.fake_webhooks import FakePost, FakeWebhooks

API_KEY = "ploti_fakeFakeFakeFakeFakeFakeFakeFake"
_FILES = "^/files/"
_LOOK_SECONDS = 0.03


@dataclass
class _Fault:
    """Changes what the next `times` matching requests get."""

    pattern: str
    method: str | None
    times: int
    change: Callable[[FakeRequest, Answering], FakeAnswer]

    def meets(self, request: FakeRequest) -> bool:
        """Tell whether it applies to a request."""
        return (
            self.times > 0 and self.method in {None, request.method} and bool(re.search(self.pattern, request.target))
        )


class FakeApi:
    """A scripted service; `requests` holds every call that came in, in order."""

    def __init__(
        self,
        *,
        api_key: str = API_KEY,
        base_url: str = "http://fake.ploti.test",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.api_key, self.clock = api_key, clock
        self.state = FakeState(base_url, {api_key: FakeKey()})
        self.requests: list[FakeRequest] = []
        self.links = FakeLinks(self.state, clock)
        self._webhooks = FakeWebhooks(self.state, clock)
        self._routes = FakeRoutes(self.state, self.links, clock, self._bring_up, self._webhooks)
        self._faults: list[_Fault] = []
        self._extras: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._lock = threading.RLock()
        self.add_place("fl-county-orange", "Orange County", "county", "fl")
        self.add_topic("development-activity", "Development activity")

    # reaching it

    @property
    def base_url(self) -> str:
        """Address that clients use and that links and events begin with."""
        return self.state.base_url

    @property
    def client_options(self) -> dict[str, Any]:
        """Arguments of `ploti.Client` that reach this fake in the same process."""
        return {"api_key": self.api_key, "base_url": self.base_url, "transport": self.transport}

    @property
    def transport(self) -> FakeTransport:
        """An httpx2 transport that answers without a socket."""
        return FakeTransport(self.answer)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Answer on a free loopback port until the block ends; gives the base address, which new links carry too."""
        with loopback(self.answer) as address:
            before, self.state.base_url = self.state.base_url, address
            try:
                yield address
            finally:
                self.state.base_url = before

    def answer(self, request: FakeRequest) -> FakeAnswer:
        """Answer one request, with the first fault that meets it; one that may wait is looked at again and again."""
        with self._lock:
            self.requests.append(request)
            fault = next((fault for fault in self._faults if fault.meets(request)), None)
            if fault is not None:
                fault.times -= 1
                return fault.change(request, self._routes.answer)
        started = time.monotonic()
        while True:
            with self._lock:
                answer = self._routes.answer(request)
            if time.monotonic() - started >= answer.wait_seconds:
                return answer
            time.sleep(_LOOK_SECONDS)  # another thread may publish meanwhile; the lock is free

    # what there is

    def add_key(self, key: str, *, permissions: Sequence[str] = ("feeds", "webhooks"), admin: bool = True) -> None:
        """Add an API key with its permissions."""
        self.state.keys[key] = FakeKey(frozenset(permissions), admin)

    def revoke_key(self, key: str) -> None:
        """Make a key answer `401` from now on."""
        del self.state.keys[key]

    def add_place(self, id_: str, name: str, kind: PlaceKind, state: str | None) -> None:
        """Add a place to the workspace's coverage."""
        place: dict[str, Any] = {"id": id_, "name": name, "kind": kind, "state": state}
        self.state.places[id_] = cast(Place, {**place, "datasetCount": 0, "datasetCounts": {}})

    def add_topic(self, id_: str, name: str) -> None:
        """Add a topic."""
        self.state.topics[id_] = {"id": id_, "name": name}

    def add_dataset(
        self,
        id_: str,
        *,
        title: str | None = None,
        place: str | None = "fl-county-orange",
        topic: str | None = "development-activity",
        key_columns: Sequence[str] = ("id",),
        geometry: str | None = None,
        license_: License | None = None,
        status: DatasetStatus = "building",
        covered: bool = True,
        deliverable: bool = True,
    ) -> None:
        """Add a dataset without a version; it joins the subscriptions that want it.

        `status` shows until the first release; `geometry` is a kind such as `Point`.
        """
        found = self.state.places[place] if place is not None else None
        now = self.clock()
        self.state.datasets[id_] = FakeDataset(
            id=id_,
            title=title or id_,
            place=cast(
                DatasetPlace, {"id": place, "name": found and found["name"], "kind": found["kind"] if found else "us"}
            ),
            topic=topic,
            source={"publisher": "Orange County", "url": f"https://records.example/{id_}"},
            license=license_,
            key_columns=list(key_columns),
            geometry=None if geometry is None else {"type": geometry, "srid": 4326},
            waiting_status=status,
            last_checked_at=now,
            next_check_by=now + timedelta(days=1),
            covered=covered,
            deliverable=deliverable,
        )
        self.bring_up_to_date()

    def change_dataset(self, id_: str, *, covered: bool | None = None, deliverable: bool | None = None) -> None:
        """Move a dataset in or out of coverage or delivery, with the `added` and `removed` that follow."""
        dataset = self.state.datasets[id_]
        dataset.covered = dataset.covered if covered is None else covered
        dataset.deliverable = dataset.deliverable if deliverable is None else deliverable
        self.bring_up_to_date()

    def subscribe(
        self,
        id_: str = "sub_fake",
        *,
        name: str = "Fake",
        places: Sequence[str] = (),
        topics: Sequence[str] = (),
        dataset_ids: Sequence[str] = (),
    ) -> Subscription:
        """Make a subscription and append `added` for each dataset that it includes."""
        made = FakeSubscription(id_, name, list(places), list(topics), list(dataset_ids), self.clock())
        self.state.subscriptions[id_] = made
        self._bring_up(made)
        return made.wire()

    def add_webhook(
        self,
        id_: str,
        *,
        subscription_id: str,
        url: str = "https://receiver.example/hooks",
        events: Sequence[EventType] | None = None,
    ) -> str:
        """Add a webhook for what is logged from now on, and give its secret."""
        return self._webhooks.add(id_, subscription_id, url, events).secrets[0]

    # what happens

    def publish(
        self,
        dataset_id: str,
        *,
        files: Mapping[str, bytes],
        version: int | None = None,
        previous: int | None = None,
        schema: Schema | None = None,
        row_count: int = 0,
        counts: Counts | None = None,
        reason: ResyncReason | None = None,
        attachments: Mapping[str, bytes] | None = None,
        manifest: Mapping[str, Any] | None = None,
        announce: bool = True,
    ) -> Version:
        """Release a version with its files by path (`snapshot/part-0000.parquet`) and append its events.

        `version` is the next number and `previous` the current one unless given. A `reason`, or being the first, makes
        it a resync; otherwise it is an `updated` with `counts`. `schema` stays as it was unless given; `manifest` adds
        members such as `digest` and `constants` to `manifest.json`; `schema.json` and `manifest.json` may be given too.
        """
        dataset = self.state.datasets[dataset_id]
        before = dataset.current
        previous = before.number if previous is None and before is not None else previous
        reason = "first_version" if reason is None and previous is None else reason
        number = version if version is not None else max(dataset.versions, default=0) + 1
        shape = schema or (before.schema if before else _first_schema(dataset, number))
        made = FakeVersion(
            dataset_id=dataset_id,
            number=number,
            previous=previous,
            schema=shape,
            published_at=self.clock(),
            row_count=row_count,
            counts=None if reason is not None else counts or {"added": 0, "changed": 0, "removed": 0},
            record_ids_changed=reason == "record_ids_changed",
            files={path: stored(path, content) for path, content in files.items()},
            attachments={name: _attachment(name, content) for name, content in (attachments or {}).items()},
        )
        self._extras[dataset_id, number] = manifest or {}
        made = with_documents(made, manifest or {})
        dataset.versions[number] = made
        if announce:
            self._announce(made, before, reason)
        return made.wire()

    def _announce(self, made: FakeVersion, before: FakeVersion | None, reason: ResyncReason | None) -> None:
        shape = made.schema
        data: dict[str, Any] = {
            "datasetId": made.dataset_id,
            "version": made.number,
            "schemaVersion": shape["schemaVersion"],
        }
        moved = before is not None and before.schema["schemaVersion"] != shape["schemaVersion"]
        links = self._event_links(made.dataset_id, made.number)
        for subscription in self._delivering(made.dataset_id):
            if moved:
                change = {**data, "schemaChange": shape["changeFromPrevious"]}
                self.append_event(subscription.id, SCHEMA_CHANGED, change)
            if reason is not None:
                self.append_event(subscription.id, RESYNC_REQUIRED, {**data, "reason": reason, "links": links})
            else:
                rest = {"previousVersion": made.previous, "counts": made.counts, "links": links}
                self.append_event(subscription.id, UPDATED, {**data, **rest})

    def hold(self, dataset_id: str, reason: HoldReason = "data_check") -> None:
        """Say that the dataset's next version is held."""
        current = self.state.datasets[dataset_id].current
        held = {"version": current and current.number, "reason": reason, "since": wire_time(self.clock())}
        for subscription in self._delivering(dataset_id):
            self.append_event(subscription.id, DELAYED, {"datasetId": dataset_id, **held})

    def append_event(self, subscription_id: str, type_: EventType, data: Mapping[str, Any]) -> Event:
        """Append one event to a subscription's log, whatever it says."""
        log = self.state.subscriptions[subscription_id].events
        event: Event = {
            "id": event_id(len(log) + 1),
            "type": type_,
            "timestamp": wire_time(self.clock()),
            "subscriptionId": subscription_id,
            "data": dict(data),
        }
        log.append(event)
        self._webhooks.queue(event)
        return event

    def webhook(self, webhook_id: str) -> Webhook:
        """Give a webhook as the API shows it."""
        return self._webhooks.made[webhook_id].wire

    def webhook_posts(self, webhook_id: str) -> Iterator[FakePost]:
        """Take the deliveries that wait for a webhook as signed POSTs, to hand to the receiver under test."""
        return self._webhooks.posts(webhook_id)

    def prune_events(self, subscription_id: str, through: int) -> None:
        """Forget a subscription's events up to a number."""
        self.state.subscriptions[subscription_id].pruned = through

    def keep(
        self, dataset_id: str, version: int, kept: Literal["kept", "pruned", "rebuilding", "released_again"]
    ) -> None:
        """Say whether a version's files can be had; all but `kept` answer `410`."""
        versions = self.state.datasets[dataset_id].versions
        versions[version] = replace(versions[version], kept=kept)

    def add_record(self, traced: RecordTrace) -> None:
        """Say what became of a record id."""
        self.state.datasets[traced["datasetId"]].records[traced["recordId"]] = traced

    def rebuild(self, dataset_id: str, version: int, files: Mapping[str, bytes] | None = None) -> None:
        """Have a version's files again from another build, at other paths; `files` replaces parts by path."""
        versions = self.state.datasets[dataset_id].versions
        old = versions[version]
        parts = {path: file for path, file in old.files.items() if path != "manifest.json"}
        parts |= {path: stored(path, content) for path, content in (files or {}).items()}
        made = replace(old, kept="kept", attempt=old.attempt + 1, files=parts)
        versions[version] = with_documents(made, self._extras[dataset_id, version])

    def bring_up_to_date(self) -> None:
        """Append `added` and `removed` for every subscription whose datasets changed."""
        for subscription in self.state.subscriptions.values():
            self._bring_up(subscription)

    def _bring_up(self, subscription: FakeSubscription) -> None:
        members = subscription.members()
        for id_, dataset in sorted(self.state.datasets.items()):
            if id_ in members and not subscription.wants(dataset):
                self.append_event(subscription.id, REMOVED, {"datasetId": id_, "reason": _leaving(dataset)})
            elif id_ not in members and subscription.wants(dataset):
                self.append_event(subscription.id, ADDED, self._added(dataset))

    def _added(self, dataset: FakeDataset) -> dict[str, Any]:
        current = dataset.current
        if current is None:
            return {"datasetId": dataset.id, "version": None, "schemaVersion": None}
        shown = {"version": current.number, "schemaVersion": current.schema["schemaVersion"]}
        return {"datasetId": dataset.id, **shown, "links": self._event_links(dataset.id, current.number)}

    def _event_links(self, dataset_id: str, number: int) -> EventLinks:
        dataset = f"{self.base_url}/v1/feeds/datasets/{dataset_id}"
        return {"version": f"{dataset}/versions/{number}", "schema": f"{dataset}/schema?version={number}"}

    def _delivering(self, dataset_id: str) -> list[FakeSubscription]:
        return [item for item in self.state.subscriptions.values() if dataset_id in item.members()]

    # what goes wrong

    def fail_next(
        self,
        pattern: str,
        status: int,
        code: str | None = None,
        *,
        times: int = 1,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> None:
        """Answer the next `times` requests whose path and query match with an error, or with a raw `body`."""
        named = code or next((code for code, known in ERROR_STATUS.items() if known == status), "internal_error")
        error = {"error": {"code": named, "message": "Refused by the script of the test."}}
        content = json.dumps(error).encode() if body is None else body
        answer = FakeAnswer(status, content, {"content-type": "application/json", **(headers or {})})
        self._fault(pattern, method, times, lambda _, __: answer)

    def answer_next(self, pattern: str, value: object, *, times: int = 1) -> None:
        """Answer the next `times` requests that match with a JSON value."""
        self.fail_next(pattern, 200, times=times, body=json.dumps(value).encode())

    def drop_next(self, pattern: str, *, times: int = 1, after_acting: bool = False) -> None:
        """Break the connection without an answer, after the call was carried out if `after_acting`."""

        def drop(request: FakeRequest, answering: Answering) -> FakeAnswer:
            return replace(answering(request), dropped=True) if after_acting else FakeAnswer(dropped=True)

        self._fault(pattern, None, times, drop)

    def delay_next(self, pattern: str, seconds: float, *, times: int = 1) -> None:
        """Answer the next `times` requests that match only after a while."""
        self._fault(pattern, None, times, lambda request, answering: replace(answering(request), delay_seconds=seconds))

    def cut_next_download(self, after_bytes: int, *, pattern: str = "", times: int = 1) -> None:
        """Break the next download's connection after so many bytes of its answer."""
        self._fault(
            _FILES + ".*" + pattern,
            "GET",
            times,
            lambda request, answering: replace(answering(request), cut_after=after_bytes),
        )

    def corrupt_next_download(self, *, pattern: str = "", times: int = 1) -> None:
        """Flip one bit in the middle of the next download."""

        def corrupt(request: FakeRequest, answering: Answering) -> FakeAnswer:
            answer = answering(request)
            body = bytearray(answer.body)
            body[len(body) // 2] ^= 1
            return replace(answer, body=bytes(body))

        self._fault(_FILES + ".*" + pattern, "GET", times, corrupt)

    def refuse_next_link(self, *, times: int = 1) -> None:
        """Answer the next downloads as if their links were past their hour."""
        refusal = Refusal("not_allowed", "This link is not valid any more: ask for a fresh one.").answer()
        self._fault(_FILES, None, times, lambda _, __: refusal)

    def expire_links(self) -> None:
        """Make every link that was given so far answer as one past its hour."""
        self.links.expire()

    def _fault(
        self, pattern: str, method: str | None, times: int, change: Callable[[FakeRequest, Answering], FakeAnswer]
    ) -> None:
        self._faults.append(_Fault(pattern, method, times, change))


def _first_schema(dataset: FakeDataset, number: int) -> Schema:
    """Give a schema of the key columns alone, for scripts that do not care."""
    return {
        "datasetId": dataset.id,
        "schemaVersion": "1.0",
        "firstVersion": number,
        "keyColumns": dataset.key_columns,
        "columns": [{"name": name, "type": "string", "nullable": False} for name in dataset.key_columns],
        "changeFromPrevious": None,
    }


def _attachment(name: str, content: bytes) -> StoredFile:
    return StoredFile(name, content, name.rpartition(":")[2] + ".pdf", "application/pdf")


def _leaving(dataset: FakeDataset) -> RemovedReason:
    """Give the reason of leaving, the first that holds (D7.3)."""
    if not dataset.deliverable:
        return "no_longer_deliverable"
    return "left_coverage" if not dataset.covered else "subscription_changed"
