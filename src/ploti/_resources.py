"""Resources of the SDK: each method is one call, its answer the plain JSON object that the API gave.

Arguments are in snake_case, answers keep the wire's names. `iter...` methods go over all pages.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeVar, cast
from urllib.parse import quote

from ploti._download import download_file, ignore_bytes
from ploti._frames import As, require, table
from ploti._http import Http
from ploti._signing import verified
from ploti.contract.events import WAIT_SECONDS_MOST, Event, EventPage, EventType, event_number
from ploti.contract.resources import (
    Dataset,
    DatasetFile,
    DatasetPage,
    PlaceKind,
    PlaceList,
    Provenance,
    RecordTrace,
    RecordTraces,
    Schema,
    SchemaList,
    SignedFile,
    SignedFiles,
    Subscription,
    SubscriptionManifest,
    SubscriptionPage,
    SubscriptionPreview,
    TopicList,
    Version,
    VersionPage,
)
from ploti.contract.webhooks import (
    Delivery,
    DeliveryPage,
    DeliveryStatus,
    NewWebhook,
    Webhook,
    WebhookPage,
    WebhookSecret,
    WebhookTest,
)
from ploti.errors import BadAnswer, FixRequest, NotFound, Reload, RetryLater

_FEEDS = "/v1/feeds"
_POLL_SECONDS: Final = 5.0
_POLL_SECONDS_MOST: Final = 60.0
WISHED_SECONDS_MOST: Final = 3_600.0
"""Who follows without end waits no longer than this at a time, whatever `Retry-After` says."""
Page = TypeVar("Page")
Shape = TypeVar("Shape")
Parts = Literal["snapshot", "changes", "backfill", "id_map"]


class Places:
    """Places in the workspace's coverage."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(
        self, *, state: str | None = None, kind: PlaceKind | None = None, deliverable: bool | None = None
    ) -> PlaceList:
        """List every place, with how many datasets it holds; `deliverable` counts only what is delivered."""
        query = {"state": state, "kind": kind, "deliverable": deliverable}
        return _as(PlaceList, self._http.get("/v1/places", query))


class Topics:
    """Subjects that datasets are filed under."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> TopicList:
        """List every topic."""
        return _as(TopicList, self._http.get("/v1/topics"))


class Versions:
    """Released versions of datasets."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(
        self,
        dataset: str,
        *,
        after: int | None = None,
        order: Literal["asc", "desc"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> VersionPage:
        """List a page of versions, those with a higher number than `after`."""
        query = {"after": after, "order": order, "limit": limit, "cursor": cursor}
        return _as(VersionPage, self._http.get(f"{_dataset(dataset)}/versions", query))

    def iter(
        self, dataset: str, *, after: int | None = None, order: Literal["asc", "desc"] | None = None
    ) -> Iterator[Version]:
        """Go over all versions, those with a higher number than `after`."""
        pages = _pages(lambda cursor: self.list(dataset, after=after, order=order, cursor=cursor))
        return (version for page in pages for version in page["versions"])

    def get(self, dataset: str, version: int) -> Version:
        """Read a version with links to its files, good for an hour.

        Raises Reload past retention, NotDelivered where no subscription delivers the dataset.
        """
        return _as(Version, self._http.get(_version(dataset, version)))

    def links(self, dataset: str, version: int, *, files: Sequence[str]) -> SignedFiles:
        """Sign fresh links to the files named, by path or attachment name, at most 200."""
        answer = self._http.post(f"{_version(dataset, version)}/links", {"files": _several(files, "files")}, again=True)
        return _as(SignedFiles, answer)

    def download(
        self,
        dataset: str,
        version: int,
        file: str,
        to: Path | str,
        *,
        progress: Callable[[int], object] = ignore_bytes,
    ) -> Path:
        """Download one file of a version, by path or attachment name, and give where it is.

        `to` is a folder, where the file gets its own name, or a path that does not exist or is replaced. A download
        that broke goes on where it stopped, also in a later call; links are renewed; only bytes with the announced
        checksum get the name. `progress` is called with the number of bytes of each piece. Raises NotFound for a file
        that the version does not have, ReadAgain where the version was built again meanwhile, NoAnswer, RetryLater,
        LinkExpired or BadAnswer where the bytes cannot be had.
        """
        return download_file(self._http, partial(self._sign, dataset, version, file), None, Path(to), progress)

    def read(
        self,
        dataset: str,
        version: int | None = None,
        *,
        as_: As = "arrow",
        what: Parts = "snapshot",
        progress: Callable[[int], object] = ignore_bytes,
    ) -> Any:
        """Read a version into memory: a pyarrow Table, a pandas or Polars DataFrame, or a DuckDB relation.

        The current version unless one is given. Shapes are WKB, or DuckDB's GEOMETRY. Raises FixRequest where the
        library is not installed or the version has no such parts, Reload where there is no version yet, and what
        `download` raises.
        """
        require(as_)
        number = self._current(dataset) if version is None else version
        with TemporaryDirectory(prefix="ploti-") as folder:
            paths = self.download_parts(dataset, number, folder, what=what, progress=progress)
            if not paths:
                told = f"Version {number} has no {what} parts: its snapshot has every row."
                raise FixRequest(told, code="invalid_input", field="what")
            return table(paths, as_)

    def download_parts(
        self,
        dataset: str,
        version: int,
        to: Path | str,
        *,
        what: Parts = "snapshot",
        progress: Callable[[int], object] = ignore_bytes,
    ) -> Sequence[Path]:
        """Download all Parquet parts of one kind into a folder and give where they are, in order; maybe none.

        They keep their paths (`snapshot/part-0000.parquet`). Otherwise as `download`.
        """
        files = self.get(dataset, version)["files"]
        paths = []
        for part in files["idMap"] if what == "id_map" else files[what]:
            sign = partial(self._sign, dataset, version, part["path"])
            path = Path(to) / part["path"]
            if not path.resolve().is_relative_to(Path(to).resolve()):
                raise BadAnswer(f"The API named a part {part['path']!r}: report it.", code="bad_answer")
            paths.append(download_file(self._http, sign, part, path, progress))
        return paths

    def _sign(self, dataset: str, version: int, file: str) -> SignedFile:
        """Sign a fresh link to one file."""
        answer = self.links(dataset, version, files=[file])
        if not answer["files"]:
            raise NotFound(f"Version {version} of {dataset} has no file {file!r}.", code="not_found", field="file")
        return answer["files"][0]

    def _current(self, dataset: str) -> int:
        current = _as(Dataset, self._http.get(_dataset(dataset)))["current"]
        if current is None:
            raise Reload(f"{dataset} has no released version yet: try again later.", code="no_version")
        return current["version"]


class Datasets:
    """Datasets that subscriptions could deliver."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self.versions = Versions(http)

    def list(
        self,
        *,
        place: str | None = None,
        topic: str | None = None,
        subscription: str | None = None,
        updated_since: datetime | str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> DatasetPage:
        """List a page of datasets; `updated_since` compares with the current version's release, inclusive."""
        query = {
            "place": place,
            "topic": topic,
            "subscription": subscription,
            "updatedSince": _moment(updated_since),
            "limit": limit,
            "cursor": cursor,
        }
        return _as(DatasetPage, self._http.get(f"{_FEEDS}/datasets", query))

    def iter(
        self,
        *,
        place: str | None = None,
        topic: str | None = None,
        subscription: str | None = None,
        updated_since: datetime | str | None = None,
        limit: int | None = None,
    ) -> Iterator[Dataset]:
        """Go over all datasets that the filters leave, `limit` of them a call."""
        pages = _pages(
            lambda cursor: self.list(
                place=place,
                topic=topic,
                subscription=subscription,
                updated_since=updated_since,
                limit=limit,
                cursor=cursor,
            )
        )
        return (dataset for page in pages for dataset in page["datasets"])

    def get(self, dataset: str) -> Dataset:
        """Read one dataset."""
        return _as(Dataset, self._http.get(_dataset(dataset)))

    def schema(self, dataset: str, version: int | None = None) -> Schema:
        """Read the schema of the current version, or of the version given."""
        return _as(Schema, self._http.get(f"{_dataset(dataset)}/schema", {"version": version}))

    def schemas(self, dataset: str) -> SchemaList:
        """Read every schema version that the dataset has had."""
        return _as(SchemaList, self._http.get(f"{_dataset(dataset)}/schemas"))

    def record(self, dataset: str, record_id: str) -> RecordTrace:
        """Tell what became of a record id: removed, replaced by another one, or carried by a record now.

        Raises NotFound where no record ever carried it, NotDelivered where no subscription delivers the dataset.
        """
        return _as(RecordTrace, self._http.get(f"{_dataset(dataset)}/records/{_segment(record_id, 'record')}"))

    def records(self, dataset: str, record_ids: Sequence[str]) -> RecordTraces:
        """Tell what became of record ids, at most 1,000; those that no record ever carried are `missing`."""
        answer = self._http.post(
            f"{_dataset(dataset)}/records", {"records": _several(record_ids, "record_ids")}, again=True
        )
        return _as(RecordTraces, answer)

    def file(self, dataset: str, file: str) -> DatasetFile:
        """Find a stored file of the current version by its name: `source:<id>`, `original` or `document:<sha256>`.

        Raises NotFound where it has none of this name, NotDelivered where no subscription delivers the dataset.
        """
        path = f"/v1/datasets/{_segment(dataset, 'dataset')}/files/{_segment(file, 'file')}"
        return _as(DatasetFile, self._http.get(path))

    def provenance(self, dataset: str) -> Provenance:
        """List the sources that the dataset comes from."""
        return _as(Provenance, self._http.get(f"/v1/datasets/{_segment(dataset, 'dataset')}/provenance"))


class Subscriptions:
    """The workspace's subscriptions."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
        self,
        name: str,
        *,
        places: Sequence[str] = (),
        topics: Sequence[str] = (),
        dataset_ids: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> Subscription:
        """Create a subscription, once however often the call has to be repeated.

        A key is made where none is given; give one to make the same call again after a crash.
        """
        body = {"name": name, **_filters(places, topics, dataset_ids)}
        once = idempotency_key or str(uuid.uuid4())
        return _as(Subscription, self._http.post(f"{_FEEDS}/subscriptions", body, once=once))

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> SubscriptionPage:
        """List a page of subscriptions."""
        return _as(SubscriptionPage, self._http.get(f"{_FEEDS}/subscriptions", {"limit": limit, "cursor": cursor}))

    def iter(self) -> Iterator[Subscription]:
        """Go over all subscriptions."""
        pages = _pages(lambda cursor: self.list(cursor=cursor))
        return (subscription for page in pages for subscription in page["subscriptions"])

    def get(self, subscription: str) -> Subscription:
        """Read one subscription."""
        return _as(Subscription, self._http.get(_subscription(subscription)))

    def preview(
        self,
        *,
        places: Sequence[str] = (),
        topics: Sequence[str] = (),
        dataset_ids: Sequence[str] = (),
        q: str | None = None,
        place: str | None = None,
        topic: str | None = None,
        matched_by: Literal["places", "datasets"] | None = None,
        sort: Literal["place", "title", "updated"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> SubscriptionPreview:
        """Count what a subscription would deliver and list a page of it, without creating one.

        `q` searches titles, `topic` is `none` for no topic; the totals stay those of all that would be delivered.
        """
        named = _filters(places, topics, dataset_ids)
        narrowing = {"q": q, "place": place, "topic": topic, "matchedBy": matched_by, "sort": sort, "limit": limit}
        body = named | _given(narrowing | {"cursor": cursor})
        return _as(SubscriptionPreview, self._http.post(f"{_FEEDS}/subscriptions/preview", body, again=True))

    def update(
        self,
        subscription: str,
        *,
        revision: int,
        name: str | None = None,
        places: Sequence[str] | None = None,
        topics: Sequence[str] | None = None,
        dataset_ids: Sequence[str] | None = None,
    ) -> Subscription:
        """Replace what is given and keep the rest; an empty list clears one. `revision` is the one that was read.

        Raises ReadAgain where somebody else changed the subscription since.
        """
        body = _given({"name": name, "revision": revision} | _filters(places, topics, dataset_ids))
        return _as(Subscription, self._http.patch(_subscription(subscription), body))

    def delete(self, subscription: str) -> dict[str, Any]:
        """Delete a subscription; its events stop, files already downloaded stay."""
        return self._http.delete(_subscription(subscription))

    def manifest(
        self, subscription: str, *, as_of: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> SubscriptionManifest:
        """Read the datasets to load, with links, and the event that they reflect.

        `as_of` is an earlier manifest's `eventCursor`, for fresh links to the same versions. Whole unless `limit` asks
        for pages. Raises Reload where `as_of` is too old.
        """
        query = {"asOf": as_of, "limit": limit, "cursor": cursor}
        return _as(SubscriptionManifest, self._http.get(f"{_subscription(subscription)}/manifest", query))

    def events(
        self,
        subscription: str,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        types: Sequence[str] | None = None,
        wait: int | None = None,
    ) -> EventPage:
        """Read the events after a cursor, or from the oldest kept; store `nextCursor` only after applying them.

        Where there is none yet, the answer waits for one up to `wait` seconds, 30 at most. Raises Reload where events
        after the cursor are gone: start from a manifest.
        """
        query = {
            "cursor": cursor,
            "limit": limit,
            "types": ",".join(_several(types, "types")) if types else None,
            "wait": wait,
        }
        return _as(EventPage, self._http.get(f"{_subscription(subscription)}/events", query, wait=wait or 0))

    def iter_events(
        self,
        subscription: str,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        types: Sequence[str] | None = None,
    ) -> Iterator[Event]:
        """Go over the events after a cursor up to the newest, then end; an event's `id` is the cursor after it."""
        while True:
            page = self.events(subscription, cursor=cursor, limit=limit, types=types)
            yield from page["events"]
            if not _moved_on(cursor, page["nextCursor"]):
                return
            cursor = page["nextCursor"]

    def follow(
        self,
        subscription: str,
        *,
        cursor: str | None = None,
        types: Sequence[str] | None = None,
        trouble: Callable[[RetryLater], object] | None = None,
    ) -> Iterator[EventPage]:
        """Go over pages of events as they happen, without end; store a page's `nextCursor` after applying it.

        The server is asked to wait for the next event; one that cannot is asked every few seconds. With `trouble`,
        which is told of it, an API that is away is waited for; without, RetryLater is raised. Raises Reload as
        `events` does.
        """
        wait: int | None = WAIT_SECONDS_MOST
        pause = _POLL_SECONDS
        while True:
            asked = time.monotonic()
            try:
                page = self.events(subscription, cursor=cursor, types=types, wait=wait)
            except FixRequest as problem:
                if wait is None or problem.field != "wait":
                    raise
                wait = None
                continue
            except RetryLater as problem:
                if trouble is None:
                    raise
                trouble(problem)
                self._http.pause(min(max(problem.retry_after or 0, pause), WISHED_SECONDS_MOST))
                pause = min(2 * pause, _POLL_SECONDS_MOST)
                continue
            pause = _POLL_SECONDS
            if _moved_on(cursor, page["nextCursor"]):
                cursor = page["nextCursor"]
                yield page
            elif time.monotonic() - asked < 1:
                self._http.pause(_POLL_SECONDS)


class Feeds:
    """Data feeds: datasets and subscriptions."""

    def __init__(self, http: Http) -> None:
        self.datasets = Datasets(http)
        self.subscriptions = Subscriptions(http)


class Deliveries:
    """Events on their way to webhooks, and those that arrived or were given up."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(
        self, webhook: str, *, status: DeliveryStatus | None = None, limit: int | None = None, cursor: str | None = None
    ) -> DeliveryPage:
        """List a page of a webhook's deliveries with their last answers, the newest event's first."""
        query = {"status": status, "limit": limit, "cursor": cursor}
        return _as(DeliveryPage, self._http.get(f"{_webhook(webhook)}/deliveries", query))

    def iter(self, webhook: str, *, status: DeliveryStatus | None = None) -> Iterator[Delivery]:
        """Go over all deliveries of a webhook, the newest event's first."""
        pages = _pages(lambda cursor: self.list(webhook, status=status, cursor=cursor))
        return (delivery for page in pages for delivery in page["deliveries"])

    def send(self, webhook: str, delivery: str) -> Delivery:
        """Send a delivery again, at once and with all its retries; its id stays."""
        path = f"{_webhook(webhook)}/deliveries/{_segment(delivery, 'delivery')}/send"
        return _as(Delivery, self._http.post(path, {}, again=True))


class Webhooks:
    """Addresses of yours that get a subscription's events as they happen."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self.deliveries = Deliveries(http)

    def create(self, url: str, *, subscription_id: str, events: Sequence[EventType] | None = None) -> NewWebhook:
        """Create a webhook; its `secret` is shown this once. Without `events` it gets every type."""
        body: dict[str, Any] = {"url": url, "subscriptionId": subscription_id}
        if events is not None:
            body["events"] = _several(events, "events")
        return _as(NewWebhook, self._http.post("/v1/webhooks", body))

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> WebhookPage:
        """List a page of webhooks."""
        return _as(WebhookPage, self._http.get("/v1/webhooks", {"limit": limit, "cursor": cursor}))

    def iter(self) -> Iterator[Webhook]:
        """Go over all webhooks."""
        pages = _pages(lambda cursor: self.list(cursor=cursor))
        return (webhook for page in pages for webhook in page["webhooks"])

    def get(self, webhook: str) -> Webhook:
        """Read one webhook; `status` and `offReason` tell whether and why it is off."""
        return _as(Webhook, self._http.get(_webhook(webhook)))

    def delete(self, webhook: str) -> dict[str, Any]:
        """Delete a webhook: nothing is sent to it any more."""
        return self._http.delete(_webhook(webhook))

    def test(self, webhook: str) -> WebhookTest:
        """Send one signed ping now and tell what came back."""
        return _as(WebhookTest, self._http.post(f"{_webhook(webhook)}/test", {}))

    def rotate(self, webhook: str) -> WebhookSecret:
        """Make a new secret, shown this once; the one before it signs too for a day."""
        return _as(WebhookSecret, self._http.post(f"{_webhook(webhook)}/rotate", {}))

    def verify(self, body: bytes | str, headers: Mapping[str, str], secret: str) -> dict[str, Any]:
        """Check that a delivery is signed with the webhook's secret, and give its event, or ping, as an object.

        `body` is the request's, unchanged. Raises BadSignature where the delivery is to be refused. Needs no network.
        """
        return verified(body, headers, secret, time.time())


def _as(shape: type[Shape], answer: Mapping[str, Any]) -> Shape:
    """Take an answer as what it should be; raises BadAnswer for one with no member of it."""
    if cast(Any, shape).__required_keys__.isdisjoint(answer):
        raise BadAnswer("What came is no answer of the API: check the address.", code="bad_answer")
    return cast(Shape, answer)


def _pages(read: Callable[[str | None], Page]) -> Iterator[Page]:
    """Go over the pages of a list; raises BadAnswer where a cursor comes a second time (F082)."""
    cursor: str | None = None
    seen: set[str] = set()
    while True:
        page = read(cursor)
        yield page
        cursor = cast(dict[str, str | None], page)["nextCursor"]
        if cursor is None:
            return
        if cursor in seen:
            raise BadAnswer("The API gave the same page cursor twice: try again later.", code="bad_answer")
        seen.add(cursor)


def _moved_on(cursor: str | None, following: str) -> bool:
    """Tell whether the log went on after a cursor; raises BadAnswer where it went back (F082)."""
    before = -1 if cursor is None else event_number(cursor)
    after = event_number(following)
    if after is None or before is None or after < before:
        raise BadAnswer(f"The API gave {following!r} as the cursor after {cursor!r}.", code="bad_answer")
    return after > before


def _filters(
    places: Sequence[str] | None, topics: Sequence[str] | None, dataset_ids: Sequence[str] | None
) -> dict[str, Any]:
    """Write a subscription's filters as the wire has them, None for those not given."""
    named = {"places": places, "topics": topics, "dataset_ids": dataset_ids}
    lists = {name: None if ids is None else _several(ids, name) for name, ids in named.items()}
    return {"datasetIds": lists.pop("dataset_ids"), **lists}


def _several(names: Sequence[str], argument: str) -> list[str]:
    """Take names as a list; raises FixRequest for one text, of which they would be the letters."""
    if isinstance(names, str):
        told = f"Give {argument} as a list, like [{names!r}]."
        raise FixRequest(told, code="invalid_input", field=argument)
    return [*names]


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _dataset(dataset: str) -> str:
    return f"{_FEEDS}/datasets/{_segment(dataset, 'dataset')}"


def _version(dataset: str, version: int) -> str:
    if not re.fullmatch("[0-9]+", str(version)):
        raise FixRequest(f"{version!r} is not the number of a version.", code="invalid_input", field="version")
    return f"{_dataset(dataset)}/versions/{version}"


def _subscription(subscription: str) -> str:
    return f"{_FEEDS}/subscriptions/{_segment(subscription, 'subscription')}"


def _webhook(webhook: str) -> str:
    return f"/v1/webhooks/{_segment(webhook, 'webhook')}"


def _segment(text: str, what: str) -> str:
    """Write an id as one path segment; raises FixRequest for one that would change the path."""
    if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*", text):
        raise FixRequest(f"{text!r} is not the id of a {what}.", code="invalid_input", field=what)
    return quote(text, safe="")


def _moment(moment: datetime | str | None) -> str | None:
    """Write a time for a query; raises FixRequest for one without a zone."""
    if not isinstance(moment, datetime):
        return moment
    if moment.tzinfo is None:
        raise FixRequest("Give updated_since a time zone.", code="invalid_input", field="updatedSince")
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
