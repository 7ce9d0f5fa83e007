"""Routes of the fake API: what the service answers and refuses, over `FakeState`."""

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar, cast

from ploti.contract.events import (
    EVENT_TYPES,
    EVENTS_PER_PAGE,
    EVENTS_PER_PAGE_MOST,
    WAIT_SECONDS_MOST,
    event_id,
    event_number,
)
from ploti.contract.files import LINKS_PER_CALL, RECORDS_PER_CALL
from ploti.contract.resources import ManifestDataset, Schema, UnavailableDataset, Version
from ploti.testing.fake_http import FakeAnswer, FakeRequest, Refusal, json_answer
from ploti.testing.fake_links import FakeLinks
from ploti.testing.fake_preview import NARROWING, listed, matches_of, narrowed, totals_of
from ploti.testing.fake_state import FakeDataset, FakeKey, FakeState, FakeSubscription, FakeVersion
from ploti.testing.fake_webhooks import FakeWebhooks

Item = TypeVar("Item")

_LISTED, _LISTED_MOST = 100, 200
_SUBSCRIPTIONS_MOST = 25
_PLACES_MOST = 500
_FIELDS = ("name", "places", "topics", "datasetIds")
_LEFT_OUT = object()
_PLACE_KINDS = ("county", "state", "state_counties", "us")


@dataclass(frozen=True)
class Call:
    """A request whose route, key and query names were found right."""

    request: FakeRequest
    key: FakeKey
    query: Mapping[str, str]
    named: Mapping[str, str]

    def number(self, name: str, default: int, most: int, least: int = 1) -> int:
        """Read a count between `least` and `most`; raises Refusal."""
        text = self.query.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise Refusal("invalid_input", f"Give {name} as a whole number from {least} to {most}.", name)
        return int(text)

    def flag(self, name: str) -> bool:
        """Read `true` or `false`; raises Refusal."""
        if self.query.get(name, "false") not in {"true", "false"}:
            raise Refusal("invalid_input", f"Give {name} as true or false.", name)
        return self.query.get(name) == "true"

    def body(self, allowed: Sequence[str]) -> dict[str, Any]:
        """Read a JSON object of known members; raises Refusal."""
        try:
            value = json.loads(self.request.body)
        except ValueError:
            raise Refusal("invalid_input", "Send a JSON object as the body.") from None
        if not isinstance(value, dict):
            raise Refusal("invalid_input", "Send a JSON object as the body.")
        for name in value:
            if name not in allowed:
                raise Refusal("invalid_input", f"Leave out {name}: it is not known here.", name)
        return value


@dataclass(frozen=True)
class FakeRoutes:
    """Finds the route of a request and answers it as the service would."""

    state: FakeState
    links: FakeLinks
    clock: Callable[[], datetime]
    bring_up: Callable[[FakeSubscription], None]
    webhooks: FakeWebhooks

    def answer(self, request: FakeRequest) -> FakeAnswer:
        """Answer a request, a refusal included."""
        try:
            if self.links.handles(request):
                return self.links.serve(request)
            if self.webhooks.handles(request):
                return self.webhooks.answer(request, self._known_key(request))
            return self._route(request)
        except Refusal as refusal:
            return refusal.answer()

    def _route(self, request: FakeRequest) -> FakeAnswer:
        found = [(route, match) for route in ROUTES if (match := re.fullmatch(route.pattern, request.path)) is not None]
        if not found:
            raise Refusal("not_found", "There is nothing at this address: check the path.")
        key = self._key(request)
        for route, match in found:
            if route.method == request.method:
                query = _query(request, route.query)
                return route.answer(self, Call(request, key, query, match.groupdict()))
        raise Refusal("method_not_allowed", "This address does not take that method.")

    def _key(self, request: FakeRequest) -> FakeKey:
        key = self._known_key(request)
        if "feeds" not in key.permissions:
            raise Refusal("not_allowed", "Use a key with the feeds permission.")
        return key

    def _known_key(self, request: FakeRequest) -> FakeKey:
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        key = self.state.keys.get(secret) if scheme == "Bearer" else None
        if key is None:
            raise Refusal("unauthenticated", "Send an API key that is not revoked.")
        return key

    # places, topics, datasets

    def places(self, call: Call) -> FakeAnswer:
        """List the places, filtered by state and kind."""
        deliverable, kind = call.flag("deliverable"), call.query.get("kind")
        if kind is not None and kind not in _PLACE_KINDS:
            raise Refusal("invalid_input", f"Give kind as one of {', '.join(_PLACE_KINDS)}.", "kind")
        shown = []
        for place in self.state.places.values():
            if kind in {None, place["kind"]} and call.query.get("state") in {None, place["state"]}:
                here = [dataset for dataset in self._covered(deliverable) if dataset.place["id"] == place["id"]]
                topics = [dataset.topic for dataset in here if dataset.topic is not None]
                counts = {topic: topics.count(topic) for topic in sorted(set(topics))}
                shown.append({**place, "datasetCount": len(here), "datasetCounts": counts})
        return json_answer({"places": shown})

    def _covered(self, deliverable: bool) -> list[FakeDataset]:
        found = [dataset for dataset in self.state.datasets.values() if dataset.covered]
        return [dataset for dataset in found if dataset.deliverable or not deliverable]

    def topics(self, _: Call) -> FakeAnswer:
        """List the topics."""
        return json_answer({"topics": list(self.state.topics.values())})

    def datasets(self, call: Call) -> FakeAnswer:
        """List deliverable datasets by id, narrowed by the filters."""
        limit = call.number("limit", _LISTED, _LISTED_MOST)
        topic, since = call.query.get("topic"), _moment(call, "updatedSince")
        if topic is not None and topic not in self.state.topics:
            raise Refusal("invalid_input", "Give a topic that GET /v1/topics lists.", "topic")
        shown = sorted(self._covered(True), key=lambda dataset: dataset.id)
        if "place" in call.query:
            shown = [dataset for dataset in shown if dataset.place["id"] == call.query["place"]]
        if topic is not None:
            shown = [dataset for dataset in shown if dataset.topic == topic]
        if "subscription" in call.query:
            members = self._subscription(call.query["subscription"]).members()
            shown = [dataset for dataset in shown if dataset.id in members]
        if since is not None:
            shown = [item for item in shown if item.current is not None and item.current.published_at >= since]
        page, cursor = _page(call, shown, limit, lambda dataset: dataset.id)
        return json_answer({"datasets": [dataset.wire() for dataset in page], "nextCursor": cursor})

    def dataset(self, call: Call) -> FakeAnswer:
        """Show one dataset."""
        return json_answer(self._dataset(call).wire())

    def _dataset(self, call: Call, *, subscribed: bool = False) -> FakeDataset:
        """Find a dataset; refusals in the order of D1.5."""
        dataset = self.state.datasets.get(call.named["dataset"])
        if dataset is None:
            raise Refusal("not_found", "There is no such dataset: list the datasets for their ids.")
        if not dataset.covered:
            raise Refusal("outside_coverage", "Ask for your coverage to be widened to have this dataset.")
        if not dataset.deliverable:
            raise Refusal("not_deliverable", "This dataset is not delivered to your workspace: leave it out.")
        if subscribed and not self.state.delivered(dataset.id):
            raise Refusal("not_subscribed", "Subscribe to this dataset first.")
        return dataset

    def schema(self, call: Call) -> FakeAnswer:
        """Show the schema of the current version, or of the one asked for; it outlives retention."""
        dataset = self._dataset(call)
        if "version" in call.query:
            version = dataset.versions.get(call.number("version", 1, 10**9))
        else:
            version = dataset.current
        if version is None:
            raise Refusal("not_found", "No such version was released: list the versions.")
        return json_answer(version.schema)

    def schemas(self, call: Call) -> FakeAnswer:
        """List every schema version, oldest first."""
        dataset = self._dataset(call)
        found: dict[str, Schema] = {}
        for number in sorted(dataset.versions):
            schema = dataset.versions[number].schema
            found.setdefault(schema["schemaVersion"], schema)
        return json_answer({"datasetId": dataset.id, "schemas": list(found.values())})

    def record(self, call: Call) -> FakeAnswer:
        """Tell what became of a record id."""
        traced = self._dataset(call, subscribed=True).records.get(call.named["record"])
        if traced is None:
            raise Refusal("not_found", "No record of this dataset ever carried this id: check it.")
        return json_answer(traced)

    def records(self, call: Call) -> FakeAnswer:
        """Tell what became of the record ids named in the body."""
        known = self._dataset(call, subscribed=True).records
        names: list[str] = call.body(["records"]).get("records", [])
        if not _texts(names) or not 1 <= len(names) <= RECORDS_PER_CALL:
            raise Refusal("invalid_input", f"Name 1 to {RECORDS_PER_CALL} records.", "records")
        asked = dict.fromkeys(names)
        found = [known[name] for name in asked if name in known]
        return json_answer({"records": found, "missing": [name for name in asked if name not in known]})

    def file(self, call: Call) -> FakeAnswer:
        """Sign a link to an attachment of the current version."""
        current = self._dataset(call, subscribed=True).current
        file = current.attachments.get(call.named["file"]) if current is not None else None
        if current is None or file is None:
            raise Refusal("not_found", "This dataset has no file of this name now: list those of its current version.")
        signed = self.links.signed(current, file)
        return _no_store(
            {"datasetId": current.dataset_id, "version": current.number, **signed, "expiresAt": self.links.expires_at}
        )

    def provenance(self, call: Call) -> FakeAnswer:
        """List the dataset's own source, and those that its current version has archived."""
        dataset = self._dataset(call)
        archived = [name for name in (dataset.current.attachments if dataset.current else ()) if name[:7] == "source:"]
        sources = [{"id": "main", "url": None, "file": None}]
        sources += [{"id": name[7:], "url": None, "file": name} for name in archived]
        return json_answer({"datasetId": dataset.id, "sources": sources})

    # versions

    def versions(self, call: Call) -> FakeAnswer:
        """List released versions, without those released again (D8.8)."""
        dataset, limit = self._dataset(call), call.number("limit", _LISTED, _LISTED_MOST)
        order = call.query.get("order", "asc")
        if order not in {"asc", "desc"}:
            raise Refusal("invalid_input", "Give order as asc or desc.", "order")
        after = call.number("after", 1, 10**9) if call.query.get("after", "0") != "0" else 0
        shown = [item for item in dataset.versions.values() if item.kept != "released_again" and item.number > after]
        shown.sort(key=lambda item: item.number, reverse=order == "desc")
        page, cursor = _page(call, shown, limit, lambda item: str(item.number))
        return json_answer({"versions": [item.wire() for item in page], "nextCursor": cursor})

    def version(self, call: Call) -> FakeAnswer:
        """Show a version with links to its files."""
        version = self._version(call)
        shown: Version = {**version.wire(), "files": self.links.files(version)}
        return _no_store(shown)

    def _version(self, call: Call) -> FakeVersion:
        dataset = self._dataset(call, subscribed=True)
        number = call.named["version"]
        version = dataset.versions.get(int(number)) if re.fullmatch("[1-9][0-9]{0,9}", number) else None
        if version is None:
            raise Refusal("not_found", "No such version was released: list the versions.")
        if version.kept != "kept":
            raise Refusal("expired", EXPIRED[version.kept])
        return version

    def sign(self, call: Call) -> FakeAnswer:
        """Sign links to the files named in the body."""
        version = self._version(call)
        names: list[str] = call.body(["files"]).get("files", [])
        if not _texts(names) or not 1 <= len(names) <= LINKS_PER_CALL:
            raise Refusal("invalid_input", f"Name 1 to {LINKS_PER_CALL} files.", "files")
        found = {name: file for name in names if (file := version.named(name)) is not None}
        return _no_store(
            {
                "files": [self.links.signed(version, file) for file in found.values()],
                "missing": [name for name in dict.fromkeys(names) if name not in found],
                "expiresAt": self.links.expires_at,
            }
        )

    # subscriptions

    def subscriptions(self, call: Call) -> FakeAnswer:
        """List the subscriptions by id."""
        limit = call.number("limit", _LISTED, _LISTED_MOST)
        shown = sorted(self.state.subscriptions.values(), key=lambda item: item.id)
        page, cursor = _page(call, shown, limit, lambda item: item.id)
        return json_answer({"subscriptions": [item.wire() for item in page], "nextCursor": cursor})

    def create(self, call: Call) -> FakeAnswer:
        """Create a subscription, once for each Idempotency-Key (D8.2)."""
        if not call.key.admin:
            raise Refusal("not_allowed", "Use the key of a workspace admin.")
        once = call.request.headers.get("idempotency-key")
        if once is not None and once in self.state.replays:
            return self._replayed(once, call)
        made = self._made(call.body(_FIELDS))
        self._require_room()
        self.state.subscriptions[made.id] = made
        self.bring_up(made)
        if once is not None:
            self.state.replays[once] = (call.request.body, made.wire())
        return json_answer(made.wire(), 201, {"etag": f'"{made.revision}"'})

    def _replayed(self, once: str, call: Call) -> FakeAnswer:
        body, first = self.state.replays[once]
        if json.loads(body) != call.body(["name", "places", "topics", "datasetIds"]):
            raise Refusal("idempotency_conflict", "Use a new Idempotency-Key for another body.")
        return json_answer(first, 201, {"idempotent-replayed": "true"})

    def _made(self, body: Mapping[str, Any], checked: Mapping[str, Any] | None = None) -> FakeSubscription:
        """Make a subscription of a body; with `checked`, only its fields are held against what there is (D8.8)."""
        lists = {name: body.get(name, []) for name in ("places", "topics", "datasetIds")}
        for name, value in lists.items():
            if not _texts(value) or len(value) > _PLACES_MOST:
                raise Refusal("invalid_input", f"Give {name} as a list of at most {_PLACES_MOST} ids.", name)
        title = body.get("name", next((id_ for ids in lists.values() for id_ in ids), "Subscription"))
        if not isinstance(title, str) or not title.strip():
            raise Refusal("invalid_input", "Give the subscription a name.", "name")
        if not lists["places"] and not lists["datasetIds"]:
            raise Refusal("invalid_input", "Name a place or a dataset.", "places")
        self._check_included({name: ids for name, ids in lists.items() if checked is None or name in checked})
        id_ = "sub_" + secrets.token_hex(8)
        return FakeSubscription(id_, title, lists["places"], lists["topics"], lists["datasetIds"], self.clock())

    def _require_room(self) -> None:
        if len(self.state.subscriptions) >= _SUBSCRIPTIONS_MOST:
            raise Refusal("limit_reached", f"Delete one of the {_SUBSCRIPTIONS_MOST} subscriptions first.")

    def preview(self, call: Call) -> FakeAnswer:
        """Count and list what a subscription would deliver; what narrows the page comes in the body or the query."""
        body = call.body(["name", "places", "topics", "datasetIds", *NARROWING])
        given = {**{name: body.pop(name) for name in NARROWING if name in body}, **call.query}
        wanted = self._made(body)
        matches = matches_of(wanted, self._covered(True))
        shown = narrowed(wanted, matches, given)
        texts = {name: str(value) for name, value in given.items()}
        asked = replace(call, query=texts, request=replace(call.request, query=tuple(sorted(texts.items()))))
        page, cursor = _page(asked, shown, asked.number("limit", _LISTED, _LISTED_MOST), lambda dataset: dataset.id)
        counted = {**totals_of(wanted, matches), "matching": len(shown)}
        return _no_store({**counted, "datasets": [listed(wanted, one) for one in page], "nextCursor": cursor})

    def change(self, call: Call) -> FakeAnswer:
        """Replace the fields sent, from the revision that was read (D8.1)."""
        if not call.key.admin:
            raise Refusal("not_allowed", "Use the key of a workspace admin.")
        body = call.body(["name", "places", "topics", "datasetIds", "revision"])
        found = self._subscription(call.named["subscription"])
        _check_revision(call, found, body.pop("revision", _LEFT_OUT))
        kept = {name: value for name, value in found.wire().items() if name in _FIELDS}
        after = self._made(kept | body, checked=body)
        self._change(found, after)
        return json_answer(found.wire(), headers={"etag": f'"{found.revision}"'})

    def _change(self, found: FakeSubscription, after: FakeSubscription) -> None:
        before = (found.name, found.places, found.topics, found.dataset_ids)
        found.name, found.places = after.name, after.places
        found.topics, found.dataset_ids = after.topics, after.dataset_ids
        if before != (found.name, found.places, found.topics, found.dataset_ids):
            found.revision, found.updated_at = found.revision + 1, self.clock()
        self.bring_up(found)

    def _check_included(self, lists: Mapping[str, Sequence[str]]) -> None:
        for topic in lists.get("topics", ()):
            if topic not in self.state.topics:
                raise Refusal("invalid_input", f"Give topics that GET /v1/topics lists, not {topic}.", "topics")
        for place in lists.get("places", ()):
            if place not in self.state.places:
                raise Refusal("outside_coverage", f"Leave out {place}: it is outside your coverage.", "places")
        for id_ in lists.get("datasetIds", ()):
            dataset = self.state.datasets.get(id_)
            if dataset is None or not dataset.covered or not dataset.deliverable:
                raise Refusal("not_deliverable", f"Leave out {id_}: it cannot be delivered to you.", "datasetIds")

    def subscription(self, call: Call) -> FakeAnswer:
        """Show a subscription with its revision as ETag."""
        found = self._subscription(call.named["subscription"])
        return json_answer(found.wire(), headers={"etag": f'"{found.revision}"'})

    def delete(self, call: Call) -> FakeAnswer:
        """Delete a subscription."""
        if not call.key.admin:
            raise Refusal("not_allowed", "Use the key of a workspace admin.")
        del self.state.subscriptions[self._subscription(call.named["subscription"]).id]
        self.webhooks.drop_of(call.named["subscription"])
        return json_answer({"deleted": True})

    def _subscription(self, id_: str) -> FakeSubscription:
        found = self.state.subscriptions.get(id_)
        if found is None:
            raise Refusal("not_found", "There is no such subscription: list the subscriptions.")
        return found

    def events(self, call: Call) -> FakeAnswer:
        """Read the log after a cursor (D7.4, D7.5)."""
        subscription = self._subscription(call.named["subscription"])
        limit = call.number("limit", EVENTS_PER_PAGE, EVENTS_PER_PAGE_MOST)
        types = call.query["types"].split(",") if "types" in call.query else list(EVENT_TYPES)
        if not set(types) <= set(EVENT_TYPES):
            raise Refusal("invalid_input", "Give types as event types with commas between.", "types")
        after = _event_cursor(call, "cursor", subscription)
        page = subscription.events[after : after + limit]
        shown = [event for event in page if event["type"] in types]
        answer = json_answer({"events": shown, "nextCursor": event_id(after + len(page))})
        wait = call.number("wait", 0, WAIT_SECONDS_MOST, least=0)
        return answer if shown else replace(answer, wait_seconds=wait)

    def manifest(self, call: Call) -> FakeAnswer:
        """Show the datasets to load and the last event in them (D1.6, D8.4)."""
        subscription = self._subscription(call.named["subscription"])
        limit = call.number("limit", 10**6, _LISTED_MOST)
        newest = self._manifest_event(call, subscription)
        members = subscription.members(newest)
        if "asOf" in call.query:
            members = {id_: number for id_, number in members.items() if id_ in subscription.members()}
        page, cursor = _page(call, sorted(members), limit, lambda id_: f"{newest} {id_}")
        entries = [self._entry(id_, members[id_], "asOf" in call.query) for id_ in page]
        loads = [entry for entry in entries if "files" in entry]
        waits = [entry for entry in entries if "files" not in entry]
        shown = {"subscriptionId": subscription.id, "eventCursor": event_id(newest), "datasets": loads}
        return _no_store({**shown, "unavailable": waits, "nextCursor": cursor})

    def _manifest_event(self, call: Call, subscription: FakeSubscription) -> int:
        """Find the event that a manifest reflects; later pages keep the first page's (D8.4)."""
        if "asOf" in call.query:
            return _event_cursor(call, "asOf", subscription, pruned_counts=True)
        if "cursor" in call.query:
            return int(_cursor_key(call.query["cursor"], _bound(call)).partition(" ")[0])
        self.bring_up(subscription)
        return subscription.newest

    def _entry(self, id_: str, number: int | None, as_of: bool) -> ManifestDataset | UnavailableDataset:
        dataset = self.state.datasets[id_]
        if number is None:
            return cast(UnavailableDataset, {"datasetId": id_, "reason": dataset.waiting_status})
        version = dataset.versions[number]
        if version.kept != "kept" and as_of:
            raise Refusal("expired", "That cursor is too old: ask for the manifest without asOf.")
        if version.kept == "released_again":
            current = dataset.current
            if current is None:
                return {"datasetId": id_, "reason": "building"}
            version = current
        if version.kept != "kept":
            return {"datasetId": id_, "version": version.number, "reason": "rebuilding"}
        return {
            "datasetId": id_,
            "keyed": bool(version.schema["keyColumns"]),
            "version": version.number,
            "schemaVersion": version.schema["schemaVersion"],
            "files": self.links.files(version, snapshot_only=True),
        }


EXPIRED = {
    "pruned": "This version is past retention: reload the dataset from its current version.",
    "rebuilding": "This version's files are being built again: try again in a few minutes.",
    "released_again": "This version was released again under a new number: reload from the current version.",
}


@dataclass(frozen=True)
class Route:
    """A method and path with the query parameters that it takes."""

    method: str
    pattern: str
    answer: Callable[[FakeRoutes, Call], FakeAnswer]
    query: tuple[str, ...] = ()


_FEEDS = "/v1/feeds"
_DATASET = _FEEDS + "/datasets/(?P<dataset>[^/]+)"
_OLDER = "/v1/datasets/(?P<dataset>[^/]+)"
_SUBSCRIPTION = _FEEDS + "/subscriptions/(?P<subscription>[^/]+)"
ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/places", FakeRoutes.places, ("state", "kind", "deliverable")),
    Route("GET", "/v1/topics", FakeRoutes.topics),
    Route(
        "GET",
        _FEEDS + "/datasets",
        FakeRoutes.datasets,
        ("place", "topic", "subscription", "updatedSince", "limit", "cursor"),
    ),
    Route("GET", _DATASET, FakeRoutes.dataset),
    Route("GET", _DATASET + "/schema", FakeRoutes.schema, ("version",)),
    Route("GET", _DATASET + "/schemas", FakeRoutes.schemas),
    Route("GET", _OLDER + "/schema", FakeRoutes.schema, ("version",)),
    Route("GET", _OLDER + "/schemas", FakeRoutes.schemas),
    Route("GET", _OLDER + "/files/(?P<file>[^/]+)", FakeRoutes.file),
    Route("GET", _OLDER + "/provenance", FakeRoutes.provenance),
    Route("GET", _DATASET + "/records/(?P<record>[^/]+)", FakeRoutes.record),
    Route("POST", _DATASET + "/records", FakeRoutes.records),
    Route("GET", _DATASET + "/versions", FakeRoutes.versions, ("after", "order", "limit", "cursor")),
    Route("GET", _DATASET + "/versions/(?P<version>[^/]+)", FakeRoutes.version),
    Route("POST", _DATASET + "/versions/(?P<version>[^/]+)/links", FakeRoutes.sign),
    Route("GET", _FEEDS + "/subscriptions", FakeRoutes.subscriptions, ("limit", "cursor")),
    Route("POST", _FEEDS + "/subscriptions", FakeRoutes.create),
    Route("POST", _FEEDS + "/subscriptions/preview", FakeRoutes.preview, NARROWING),
    Route("GET", _SUBSCRIPTION, FakeRoutes.subscription),
    Route("PATCH", _SUBSCRIPTION, FakeRoutes.change),
    Route("DELETE", _SUBSCRIPTION, FakeRoutes.delete),
    Route("GET", _SUBSCRIPTION + "/events", FakeRoutes.events, ("cursor", "limit", "types", "wait")),
    Route("GET", _SUBSCRIPTION + "/manifest", FakeRoutes.manifest, ("asOf", "limit", "cursor")),
)


def _check_revision(call: Call, found: FakeSubscription, sent: object) -> None:
    """Refuse a change without a revision or from a stale one; the body's wins over If-Match (D8.1)."""
    tags = call.request.headers.get("if-match")
    if sent is _LEFT_OUT and tags is None:
        raise Refusal("invalid_input", "Send the revision that you read, or its ETag as If-Match.", "revision")
    if sent is not _LEFT_OUT and (not isinstance(sent, int) or isinstance(sent, bool)):
        raise Refusal("invalid_input", "Give revision as a number.", "revision")
    if sent is _LEFT_OUT and tags is not None and not re.fullmatch(r'(W/)?"[^"]*"(\s*,\s*(W/)?"[^"]*")*', tags):
        raise Refusal("invalid_input", "Send If-Match as the ETag was given.", "If-Match")
    given = re.split(r"\s*,\s*", tags or "")
    same = f'"{found.revision}"' in given if sent is _LEFT_OUT else sent == found.revision
    if not same:
        raise Refusal("precondition_failed", f"It is at revision {found.revision}: read it again and resend.")


def _query(request: FakeRequest, allowed: Sequence[str]) -> dict[str, str]:
    """Read the query; an unknown or repeated parameter is refused (D1.5)."""
    found: dict[str, str] = {}
    for name, value in request.query:
        if name not in allowed:
            raise Refusal("invalid_input", f"Leave out {name}: it is not a parameter of this address.", name)
        if name in found:
            raise Refusal("invalid_input", f"Give {name} once.", name)
        found[name] = value
    return found


def _page(
    call: Call, items: Sequence[Item], limit: int, key: Callable[[Item], str]
) -> tuple[Sequence[Item], str | None]:
    """Cut a page out of ordered items; its cursor is bound to path and filters (D8.3)."""
    bound, start = _bound(call), 0
    if "cursor" in call.query:
        last = _cursor_key(call.query["cursor"], bound)
        start = next((i + 1 for i, item in enumerate(items) if key(item) == last), len(items))
    page = items[start : start + limit]
    if start + limit >= len(items):
        return page, None
    return page, base64.urlsafe_b64encode(f"{bound}:{key(page[-1])}".encode()).decode()


def _bound(call: Call) -> str:
    filters = [pair for pair in call.request.query if pair[0] not in {"cursor", "limit"}]
    return hashlib.sha256(repr((call.request.path, filters)).encode()).hexdigest()[:12]


def _cursor_key(cursor: str, bound: str) -> str:
    try:
        found, _, last = base64.urlsafe_b64decode(cursor).decode().partition(":")
    except ValueError:
        found, last = "", ""
    if found != bound:
        raise Refusal("invalid_input", "Give a cursor as an answer to this same call gave it.", "cursor")
    return last


def _event_cursor(call: Call, name: str, subscription: FakeSubscription, *, pruned_counts: bool = False) -> int:
    """Read an event cursor, or the start of the log; refuses a malformed, future or pruned one."""
    text = call.query.get(name)
    number = 0 if text is None else event_number(text)
    if number is None or number > subscription.newest:
        raise Refusal("invalid_input", "Give a cursor that this subscription gave.", name)
    if number < subscription.pruned or (pruned_counts and subscription.pruned):
        raise Refusal("expired", "Those events are gone: start from the subscription's manifest.")
    return number


def _moment(call: Call, name: str) -> datetime | None:
    text = call.query.get(name)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise Refusal("invalid_input", f"Give {name} as a time with its zone.", name)
    return found


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def _no_store(value: object) -> FakeAnswer:
    return json_answer(value, headers={"cache-control": "no-store"})
