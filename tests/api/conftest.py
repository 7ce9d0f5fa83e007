"""A served publisher over each store: a catalog of two states, versions put straight into the store, and keys."""

import functools
import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ploti_server.adapters.engine import DuckDBEngine
from ploti_server.adapters.links import LinkSigner
from ploti_server.adapters.store import open_store
from ploti_server.api import make_api
from ploti_server.domain.checks import Check, CheckStatus
from ploti_server.domain.datasets import Dataset, SourceSpec, Topic
from ploti_server.domain.events import released
from ploti_server.domain.schema import Column, Schema
from ploti_server.domain.settings import Settings
from ploti_server.domain.versions import Counts, StoredFile, Version, VersionStatus
from ploti_server.pipeline.membership import bring_all_up_to_date
from ploti_server.pipeline.workspaces import create_key, create_workspace
from ploti_server.ports import Hooks, Ports
from ploti_server.testing import FakeAgent, FakePlans, FakeSender, FixedClock, MemoryFiles, MemoryStore

TOPICS = (Topic("permits", "Permits"), Topic("zoning", "Zoning"))


def dataset(dataset_id: str, place: str | None = None, topic: str | None = "permits", **other: Any) -> Dataset:
    """Make a dataset of the catalog."""
    spec = other.pop("source", SourceSpec("file", "https://gis.example.org/data.csv"))
    return Dataset(id=dataset_id, title=dataset_id[3:].title(), source=spec, place=place, topic=topic, **other)


DATASETS = (
    dataset("ds_orange", "fl-county-orange", key=("id",)),
    dataset("ds_orange_zoning", "fl-county-orange", "zoning"),
    dataset("ds_both", None, covers=("fl-county-orange", "fl-county-seminole")),
    dataset("ds_florida", "fl"),
    dataset("ds_nation", "us"),
    dataset("ds_nowhere", None, None),
    dataset("ds_kings", "ny-county-kings"),
    dataset("ds_withheld", "fl-county-orange", deliverable=False),
    dataset("ds_retired", "fl-county-orange", retired=True),
)
SCHEMA = Schema((Column("id", "string", False, "ID"), Column("name", "string", True, "name")), ("id",))


def error(answer: Any) -> tuple[int, str, str | None]:
    """Give an answer's status with its error's code and the field at fault."""
    found = answer.json()["error"]
    return answer.status_code, found["code"], found.get("field")


def told(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Give the type's last word and the dataset of each event."""
    return [(e["type"].removeprefix("feed.dataset."), e["data"]["datasetId"]) for e in events]


def stored(served: Any, dataset_id: str) -> Dataset:
    """Give a dataset as the catalog has it."""
    with served.ports.store.read() as records:
        return records.catalog.dataset(dataset_id)


@dataclass
class Served:
    """A publisher with its API in the same process."""

    ports: Ports
    client: TestClient
    clock: FixedClock
    plans: FakePlans
    keys: dict[str, str] = field(default_factory=dict)
    steps: dict[str, Any] = field(default_factory=dict)

    def at(self, step: str, act: Any) -> None:
        """Do something at each arrival at a step that a crash must survive."""
        self.steps[step] = act

    def headers(self, who: str = "admin") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[who]}"} if who else {}

    def get(self, path: str, who: str = "admin", **other: Any) -> Any:
        return self.client.get(path, headers=self.headers(who) | other.pop("headers", {}), **other)

    def post(self, path: str, body: Any, who: str = "admin", **other: Any) -> Any:
        return self.client.post(path, json=body, headers=self.headers(who) | other.pop("headers", {}), **other)

    def patch(self, path: str, body: Any, who: str = "admin", **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.patch(path, json=body, headers=self.headers(who) | named)

    def delete(self, path: str, who: str = "admin") -> Any:
        return self.client.delete(path, headers=self.headers(who))

    def subscribe(self, who: str = "admin", **body: Any) -> str:
        answer = self.post("/v1/feeds/subscriptions", body, who)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def events(self, subscription: str, **query: Any) -> list[dict[str, Any]]:
        answer = self.get(f"/v1/feeds/subscriptions/{subscription}/events", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()["events"]

    def put_catalog(self, *changed: Dataset) -> None:
        with self.ports.store.write() as records:
            for one in changed:
                records.catalog.put_dataset(one)
        bring_all_up_to_date(self.ports)

    def check(self, dataset_id: str, **other: Any) -> Check:
        now = self.clock.now()
        values = {"status": CheckStatus.DONE, "fetched_at": now, "created_at": now, "state_sha256": "0" * 64} | other
        with self.ports.store.write() as records:
            return records.checks.add(Check(id=0, dataset_id=dataset_id, **values))

    def version(self, dataset_id: str, number: int, **other: Any) -> Version:
        """Put a version with small files into the store, released unless told otherwise, with no events."""
        now = self.clock.now()
        made = Version(
            dataset_id=dataset_id,
            number=number,
            attempt=1,
            status=other.pop("status", VersionStatus.RELEASED),
            check_id=self.check(dataset_id).id,
            schema=SCHEMA,
            row_count=number * 10,
            source_url="https://gis.example.org/data.csv",
            fetched_at=now,
            built_at=now,
        )
        shown = made.status in (VersionStatus.RELEASED, VersionStatus.RELEASED_AGAIN)
        first = {"resync_reason": "first_version"} if "previous_version" not in other else {}
        made = replace(made, **({"released_at": now if shown else None} | first | other))
        files = ["snapshot/part-0000.parquet", "schema.json", "manifest.json"]
        if made.resync_reason is None:
            made = replace(made, counts=made.counts or Counts(1, 2, 3))
            files.append("changes/part-0000.parquet")
        made = replace(made, files=tuple(self._file(made, path) for path in files))
        with self.ports.store.write() as records:
            records.versions.put(made)
        return made

    def release(self, dataset_id: str, number: int, **other: Any) -> Version:
        """Put a released version and send its events."""
        made = self.version(dataset_id, number, **other)
        with self.ports.store.write() as records:
            for subscription in records.subscriptions.holding(dataset_id):
                records.events.append(subscription.id, released(made), self.clock.now())
        return made

    def _file(self, version: Version, path: str) -> StoredFile:
        content = json.dumps([version.dataset_id, version.number, path]).encode() * 50
        self.ports.files.put_bytes(f"{version.folder}/{path}", content)
        kind = "application/json" if path.endswith(".json") else "application/vnd.apache.parquet"
        return StoredFile(path, kind, len(content), hashlib.sha256(content).hexdigest())


class CurrentStore:
    """The store of the test that runs."""

    def __init__(self, current: "Current", answers_at_once: bool) -> None:
        self._current, self.answers_at_once = current, answers_at_once

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current.ports.store, name)


class Current:
    """The ports of the test that runs, for an API that serves one test after the other."""

    def __init__(self, answers_at_once: bool) -> None:
        self.store = CurrentStore(self, answers_at_once)
        self.ports: Ports | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ports, name)


OWN_API = ("test_api_operating", "test_api_waiting")
"""Modules of tests that count an API's requests or stop its waiting."""


def _own_api(ports: Any):
    settings = replace(Settings.of(Path()), requests_per_minute=1_000_000, strict_requests_per_minute=1_000_000)
    return make_api(ports, settings, LinkSigner(b"s" * 32))


@functools.cache
def _shared(answers_at_once: bool):
    current = Current(answers_at_once)
    return current, _own_api(current)


def _shared_api(ports: Ports):
    """Give the API that serves all tests but a few, as putting one together takes a tenth of a second."""
    current, api = _shared(ports.store.answers_at_once)
    current.ports = ports
    return api


@pytest.fixture
def own_api(request):
    return request.module.__name__.rpartition(".")[2] in OWN_API


@pytest.fixture
def served(tmp_path: Path, own_api: bool):
    """A served publisher over the store in memory, which the store's own suite holds to the real ones."""
    yield from _serve(MemoryStore(), tmp_path, own_api)


@pytest.fixture
def served_on_each(store, tmp_path: Path):
    """A served publisher over the fake, SQLite and PostgreSQL."""
    yield from _serve(store, tmp_path)


@pytest.fixture
def served_on_each_database(store_url, tmp_path: Path):
    """A served publisher over SQLite and PostgreSQL, with the database's address for more processes."""
    store = open_store(store_url)
    for served in _serve(store, tmp_path):
        yield served, store_url
    store.close()


@pytest.fixture
def served_on_sqlite(tmp_path: Path):
    """A served publisher over SQLite, for tests that reach into its tables."""
    store = open_store(f"sqlite:///{tmp_path}/store.sqlite")
    yield from _serve(store, tmp_path)
    store.close()


def _serve(store: Any, tmp_path: Path, own_api: bool = False):
    """Serve a Florida workspace (keys `admin`, `member`, `hooks`) and one in New York (`other`)."""
    clock, plans = FixedClock(), FakePlans()
    steps: dict[str, Any] = {}
    ports = Ports(
        store=store,
        files=MemoryFiles(),
        engine=DuckDBEngine(256, 1),
        open_state=None,
        agent=FakeAgent(),
        plans=plans,
        clock=clock,
        home=tmp_path,
        hooks=Hooks(FakeSender(), b"k" * 32, "http://feeds.test"),
        reach=lambda step: steps.get(step, lambda: None)(),
    )
    with store.write() as records:
        records.catalog.put_topics(TOPICS)
        for one in DATASETS:
            records.catalog.put_dataset(one)
    create_workspace(ports, "florida", ["fl-county-orange", "fl-county-seminole"], None)
    create_workspace(ports, "new-york", ["ny-counties"], None)
    keys = {
        "admin": create_key(ports, "florida", "ann", "admin").text,
        "member": create_key(ports, "florida", "bob", "member").text,
        "hooks": create_key(ports, "florida", "ann", permissions=["webhooks"]).text,
        "other": create_key(ports, "new-york", "cem", "admin").text,
    }
    api = _own_api(ports) if own_api else _shared_api(ports)
    with TestClient(api, base_url="http://feeds.test", raise_server_exceptions=False) as client:
        yield Served(ports, client, clock, plans, keys, steps)
