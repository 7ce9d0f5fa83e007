"""The wire examples agree with the contract's shapes, and every shape, event type and variant has one (D1.6)."""

import json
import re
import typing
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict, is_typeddict

from ploti.contract import errors, events, resources, webhooks
from ploti.contract.errors import ERROR_STATUS

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


class LinksRequest(TypedDict):
    files: list[str]


class SubscriptionCreate(TypedDict):
    name: str
    places: list[str]
    topics: list[str]
    datasetIds: list[str]


class SubscriptionChange(TypedDict):
    topics: list[str]
    datasetIds: list[str]
    revision: int


class PreviewRequest(TypedDict):
    places: list[str]
    topics: list[str]
    datasetIds: list[str]
    q: str
    sort: str
    limit: int


class RecordsRequest(TypedDict):
    records: list[str]


class Deleted(TypedDict):
    deleted: bool


SHAPES = {
    "place-list": resources.PlaceList,
    "topic-list": resources.TopicList,
    "dataset": resources.Dataset,
    "dataset-not-built": resources.Dataset,
    "dataset-page": resources.DatasetPage,
    "version-page": resources.VersionPage,
    "version": resources.Version,
    "version-with-backfill": resources.Version,
    "version-record-ids-changed": resources.Version,
    "version-manifest": resources.VersionManifest,
    "record-replaced": resources.RecordTrace,
    "records-request": RecordsRequest,
    "records": resources.RecordTraces,
    "dataset-file": resources.DatasetFile,
    "provenance": resources.Provenance,
    "links-request": LinksRequest,
    "links": resources.SignedFiles,
    "schema": resources.Schema,
    "schema-first": resources.Schema,
    "schema-list": resources.SchemaList,
    "subscription-create": SubscriptionCreate,
    "subscription-change": SubscriptionChange,
    "subscription-preview-request": PreviewRequest,
    "subscription-preview": resources.SubscriptionPreview,
    "subscription": resources.Subscription,
    "subscription-page": resources.SubscriptionPage,
    "subscription-deleted": Deleted,
    "subscription-manifest": resources.SubscriptionManifest,
    "event-page": events.EventPage,
    "webhook-create": webhooks.WebhookCreate,
    "webhook-create-filtered": webhooks.WebhookCreate,
    "webhook-new": webhooks.NewWebhook,
    "webhook": webhooks.Webhook,
    "webhook-page": webhooks.WebhookPage,
    "webhook-secret": webhooks.WebhookSecret,
    "webhook-test": webhooks.WebhookTest,
    "webhook-test-failed": webhooks.WebhookTest,
    "webhook-ping": webhooks.Ping,
    "delivery": webhooks.Delivery,
    "delivery-page": webhooks.DeliveryPage,
    "error": errors.ErrorBody,
    "error-field": errors.ErrorBody,
}
EVENT_DATA = {
    "feed.dataset.added": events.AddedData,
    "feed.dataset.updated": events.UpdatedData,
    "feed.dataset.schema_changed": events.SchemaChangedData,
    "feed.dataset.resync_required": events.ResyncData,
    "feed.dataset.removed": events.RemovedData,
    "feed.dataset.stale": events.StaleData,
    "feed.dataset.delayed": events.DelayedData,
}
EVENT_FILES = sorted(path.stem for path in EXAMPLES.glob("event-*.json") if path.stem != "event-page")


def read(name):
    return json.loads((EXAMPLES / f"{name}.json").read_text("utf-8"))


def check(shape, value):
    """A value is of a shape, strictly, and has no member that the shape lacks."""
    assert TypeAdapter(shape).validate_python(value, strict=True) == value


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_an_example_has_its_shape(name):
    check(SHAPES[name], read(name))


@pytest.mark.parametrize("name", EVENT_FILES)
def test_an_event_and_its_data_have_their_shapes(name):
    event = read(name)
    check(events.Event, event)
    check(EVENT_DATA[event["type"]], event["data"])
    assert name.startswith("event-" + event["type"].removeprefix("feed.dataset.").replace("_", "-"))


def test_the_check_sees_a_member_too_many_and_a_wrong_type():
    with pytest.raises(AssertionError):
        check(resources.Topic, {"id": "a", "name": "A", "count": 1})
    with pytest.raises(ValidationError):
        check(resources.Topic, {"id": "a", "name": 1})


def test_every_file_is_checked():
    assert {path.stem for path in EXAMPLES.glob("*.json")} == {*SHAPES, *EVENT_FILES}


def shapes_within(shape):
    """A shape and all shapes that it is made of."""
    if is_typeddict(shape):
        inner = [part for hint in typing.get_type_hints(shape).values() for part in shapes_within(hint)]
        return [shape, *inner]
    return [part for argument in typing.get_args(shape) for part in shapes_within(argument)]


def test_every_shape_of_the_contract_is_in_an_example():
    shown = {part for shape in [*SHAPES.values(), *EVENT_DATA.values(), events.Event] for part in shapes_within(shape)}
    defined = {
        value
        for module in (resources, events, errors, webhooks)
        for value in vars(module).values()
        if is_typeddict(value) and value.__module__ == module.__name__
    }
    assert defined <= shown


def test_every_event_type_and_its_variants_have_an_example():
    found = [read(name) for name in EVENT_FILES]
    assert {event["type"] for event in found} == set(events.EVENT_TYPES) == EVENT_DATA.keys()
    for type_ in ("feed.dataset.added", "feed.dataset.delayed"):
        versions = {event["data"]["version"] is None for event in found if event["type"] == type_}
        assert versions == {True, False}


def test_an_added_event_has_links_only_with_a_version():
    for event in (read(name) for name in EVENT_FILES):
        if event["type"] == "feed.dataset.added":
            assert ("links" in event["data"]) == (event["data"]["version"] is not None)


def test_the_manifest_shows_every_way_of_being_unavailable():
    shown = {item["reason"] for item in read("subscription-manifest")["unavailable"]}
    assert shown == {"rebuilding", "building", "held", "failed", "awaiting_release"}


def texts(value):
    if isinstance(value, dict):
        return [text for part in value.values() for text in texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in texts(part)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("name", sorted([*SHAPES, *EVENT_FILES]))
def test_times_checksums_and_event_ids_are_well_formed(name):
    """D1.1, D1.4."""
    for text in texts(read(name)):
        if re.match(r"\d{4}-\d\d-\d\dT", text):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
        if text.startswith("evt_"):
            assert events.event_number(text) is not None


@pytest.mark.parametrize("name", ["error", "error-field"])
def test_an_error_has_a_code_of_the_table(name):
    assert read(name)["error"]["code"] in ERROR_STATUS
