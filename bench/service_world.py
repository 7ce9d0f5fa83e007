"""What the benches of the service serve: 500 datasets, 50 subscriptions, 200,000 events; and for each other job."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

from bench.jobs import publisher
from bench.service_peers import PART
from ploti_server.domain.datasets import Dataset, SourceSpec, Topic
from ploti_server.domain.events import released
from ploti_server.domain.places import place_named
from ploti_server.domain.schema import Column, Schema
from ploti_server.domain.subscriptions import Selection
from ploti_server.domain.versions import Counts, StoredFile, Version, VersionStatus
from ploti_server.domain.webhooks import WebhookRequest
from ploti_server.pipeline.subscriptions import create_subscription
from ploti_server.pipeline.webhooks import create_webhook
from ploti_server.pipeline.workspaces import create_key, create_workspace
from ploti_server.ports import Ports, Records

COUNTIES = ("orange", "seminole", "lake", "osceola", "polk", "brevard", "volusia", "marion", "lee", "duval")
TOPICS = tuple(Topic(f"topic-{number}", f"Topic {number}") for number in range(10))
SCHEMA = Schema(
    (
        *(Column(f"column_{n}", "string", n > 0, f"COLUMN {n}") for n in range(20)),
        Column("geometry", "geometry", True, "geometry", geometry_type="Point"),
    ),
    ("column_0",),
)
PATHS = ("snapshot/part-0000.parquet", "changes/part-0000.parquet", "schema.json", "manifest.json")
KEPT_VERSIONS = 2
HELD = KEPT_VERSIONS + 1
EVENTS_AT_ONCE = 500
WEBHOOKS = 4


def fill(home: Path, datasets: int, subscriptions: int, events: int) -> None:
    """Fill a home folder; notes key and ids in `access.json`. The last version of each dataset is held."""
    ports = publisher(str(home))
    ids = [f"ds_{number:04d}_fl_records" for number in range(datasets)]
    with ports.store.write() as records:
        records.catalog.put_topics(TOPICS)
        for number, dataset_id in enumerate(ids):
            records.catalog.put_dataset(_dataset(number, dataset_id))
    for dataset_id in ids:
        _put_versions(ports, dataset_id)
    access = [_workspace(ports, f"bench-{n}", min(25, subscriptions - n)) for n in range(0, subscriptions, 25)]
    for workspace in access:
        for subscription_id in workspace["subscriptions"]:
            _append(ports, subscription_id, events // subscriptions)
    (home / "access.json").write_text(json.dumps({"workspaces": access, "datasets": ids}))
    ports.store.close()


def fill_many(home: Path, datasets: int) -> None:
    """Fill a home folder with a subscription to many datasets of one version; notes key and id in `access.json`."""
    ports = publisher(str(home))
    with ports.store.write() as records:
        records.catalog.put_topics(TOPICS)
        for number in range(datasets):
            dataset = _dataset(number, f"ds_{number:04d}_fl_records")
            records.catalog.put_dataset(dataset)
            version = _version(ports, dataset.id, 1)
            records.versions.put(
                replace(version, files=tuple(_file(ports, version, path, put=path == PATHS[0]) for path in PATHS))
            )
    workspace = create_workspace(ports, "bench", ["fl-counties"], None)
    subscription = create_subscription(ports, workspace, Selection("bench", ("fl-counties",), (), ()))
    key = create_key(ports, "bench", "reader", "admin").text
    (home / "access.json").write_text(json.dumps({"key": key, "subscription": subscription.id}))
    ports.store.close()


def fill_part(home: Path, size: int) -> None:
    """Put one large part of random bytes."""
    ports = publisher(str(home))
    ports.files.put_bytes(PART, os.urandom(size))
    ports.store.close()


def fill_for_webhooks(home: Path, url: str, deliveries: int) -> int:
    """Fill a home folder with deliveries to four webhooks that are due; gives how many."""
    ports = publisher(str(home), webhooks_allow_loopback="true")
    ids = [f"ds_{number:04d}_fl_records" for number in range(100)]
    with ports.store.write() as records:
        records.catalog.put_topics(TOPICS)
        for number, dataset_id in enumerate(ids):
            records.catalog.put_dataset(_dataset(number, dataset_id))
            records.versions.put(_version(ports, dataset_id, 1))
    workspace = create_workspace(ports, "bench", ["fl-counties"], None)
    create_key(ports, "bench", "reader", "admin")
    subscription = create_subscription(ports, workspace, Selection("bench", ("fl-county-lee",), (), ())).id
    for _ in range(WEBHOOKS):
        create_webhook(ports, workspace.id, "reader", WebhookRequest(url, subscription, None))
    with ports.store.write() as records:
        logged = [event for one in ids for event in released(_current(records, one))]
        records.events.append(
            subscription, [logged[n % len(logged)] for n in range(deliveries // WEBHOOKS)], ports.clock.now()
        )
        waiting = records.deliveries.backlog(ports.clock.now()).waiting
    ports.store.close()
    return waiting


def _dataset(number: int, dataset_id: str) -> Dataset:
    place = place_named(f"fl-county-{COUNTIES[number % len(COUNTIES)]}")
    if place is None:
        raise LookupError(COUNTIES[number % len(COUNTIES)])
    source = SourceSpec("file", f"https://gis.example.org/{number}.csv")
    return Dataset(
        dataset_id, f"Records {number}", source, place=place.id, topic=TOPICS[number % len(TOPICS)].id,
        publisher="County", description="Records as the county publishes them.", key=("COLUMN 0",),
    )  # fmt: skip


def _put_versions(ports: Ports, dataset_id: str) -> None:
    for number in range(1, HELD + 1):
        version = _version(ports, dataset_id, number)
        if number == HELD:
            version = replace(version, status=VersionStatus.HELD, released_at=None, reasons=("data_check",))
        files = tuple(_file(ports, version, path, put=number == KEPT_VERSIONS) for path in PATHS)
        with ports.store.write() as records:
            records.versions.put(replace(version, files=files))


def _version(ports: Ports, dataset_id: str, number: int) -> Version:
    now = ports.clock.now()
    return Version(
        dataset_id, number, 1, VersionStatus.RELEASED, 1, schema=SCHEMA, row_count=184_220, built_at=now,
        released_at=now, fetched_at=now, base=number - 1 or None, previous_version=number - 1 or None,
        counts=Counts(212, 38, 3) if number > 1 else None,
        resync_reason=None if number > 1 else "first_version",
    )  # fmt: skip


def _file(ports: Ports, version: Version, path: str, *, put: bool) -> StoredFile:
    """Describe a file, and put it where it is of the version that is read."""
    content = f"{version.dataset_id} {version.number} {path}".encode() * 10
    if put:
        ports.files.put_bytes(f"{version.folder}/{path}", content)
    return StoredFile(path, "application/octet-stream", len(content), hashlib.sha256(content).hexdigest())


def _workspace(ports: Ports, name: str, subscriptions: int) -> dict[str, object]:
    workspace = create_workspace(ports, name, ["fl-counties"], None)
    made = []
    for number in range(subscriptions):
        places = tuple(f"fl-county-{COUNTIES[(number + step) % len(COUNTIES)]}" for step in range(3))
        made.append(create_subscription(ports, workspace, Selection(f"{name} {number}", places, (), ())).id)
    return {"key": create_key(ports, name, "reader", "admin").text, "subscriptions": made}


def _append(ports: Ports, subscription_id: str, events: int) -> None:
    with ports.store.read() as records:
        held = records.subscriptions.joined(subscription_id)
        have = records.events.newest(subscription_id)
        logged = [event for one in held for event in released(_current(records, one))]
    while have < events:
        count = min(EVENTS_AT_ONCE, events - have)
        with ports.store.write() as records:
            records.events.append(
                subscription_id, [logged[n % len(logged)] for n in range(have, have + count)], ports.clock.now()
            )
        have += count


def _current(records: Records, dataset_id: str) -> Version:
    found = records.versions.current(dataset_id)
    if found is None:
        raise LookupError(dataset_id)
    return found
