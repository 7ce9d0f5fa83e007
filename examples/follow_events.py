"""Follow a subscription with the SDK alone: a Parquet file per dataset, and the rules that a consumer keeps.

    pip install "ploti[arrow]"
    python follow_events.py sub_... records

`ploti sync` does this for databases, with more care. Take this one where your store is another; `load` and `apply` are
what you would write anew. It passes the suite of `ploti.testing.consumers`, and so should yours.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import ploti

ID = "_ploti_record_id"
GONE = (ploti.NotDelivered, ploti.NotFound)
"""Refusals that say that a dataset has left: its `removed` is still to come."""


class Follower:
    """Brings a folder up to date; a file carries its version, so that rows and version change together."""

    def __init__(self, client: ploti.Client, subscription: str, folder: Path) -> None:
        self.client, self.subscription, self.folder = client, subscription, folder
        self.versions = client.feeds.datasets.versions
        folder.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        """Read the log to its end; the cursor is stored last, for everything before it can be done twice."""
        state = self.state()
        for dataset in state["behind"]:
            self.attempt(dataset, lambda dataset=dataset: self.load(dataset, self.current(dataset)))
        if state["cursor"] is None:
            self.start()
        try:
            for event in self.client.feeds.subscriptions.iter_events(self.subscription, cursor=self.state()["cursor"]):
                self.handle(event["type"], event["data"])
                self.store(cursor=event["id"])
        except ploti.Reload:  # the events after the cursor are gone
            self.start()
            self.run()

    def start(self) -> None:
        """Load what the manifest lists and is not here yet, and go on after it."""
        manifest = self.client.feeds.subscriptions.manifest(self.subscription)
        for listed in manifest["datasets"]:
            dataset, version = listed["datasetId"], listed["version"]
            if self.held(dataset) != version:
                self.attempt(dataset, lambda dataset=dataset, version=version: self.load(dataset, version))
        for missing in manifest["unavailable"]:
            if missing["reason"] == "rebuilding":
                self.store(behind={missing["datasetId"]: True})
        self.store(cursor=manifest["eventCursor"])

    def handle(self, type_: str, data: dict[str, Any]) -> None:
        """Act on one event; those of versions that are held already change nothing."""
        dataset, version, held = data["datasetId"], data.get("version"), self.held(data["datasetId"])
        newer = version is not None and (held is None or version > held)
        if newer and type_ in {"feed.dataset.added", "feed.dataset.resync_required"}:
            self.attempt(dataset, lambda: self.load(dataset, version))
        elif newer and type_ == "feed.dataset.updated":
            self.attempt(dataset, lambda: self.update(dataset, version, follows=data["previousVersion"] == held))

    def attempt(self, dataset: str, step: Callable[[], None]) -> None:
        """Take one dataset's step; its trouble never stops the others, and is made good by a later run."""
        try:
            try:
                step()
            except ploti.Reload:  # the version is past retention or was released again
                self.load(dataset, self.current(dataset))
            self.store(behind={dataset: False})
        except GONE:
            self.store(behind={dataset: False})
        except (ploti.Reload, ploti.RetryLater, ploti.LinkExpired, ploti.BadAnswer):
            self.store(behind={dataset: True})

    def current(self, dataset: str) -> int:
        """Give the dataset's current version."""
        current = self.client.feeds.datasets.get(dataset)["current"]
        if current is None:
            raise ploti.RetryLater("no released version yet", code="no_version")
        return current["version"]

    def update(self, dataset: str, version: int, *, follows: bool) -> None:
        """Apply a version's changes where they follow from what is held; else load the current version."""
        if not follows:
            self.load(dataset, self.current(dataset))
            return
        files = self.versions.get(dataset, version)["files"]
        if files["backfill"] or self.constants(dataset, version):
            self.load(dataset, version)  # a new column, or a value that moves in every row
        elif files["changes"]:
            self.apply(dataset, version, self.versions.read(dataset, version, what="changes"))
        else:
            self.write(dataset, version, self.table(dataset))

    def constants(self, dataset: str, version: int) -> dict[str, Any]:
        """Read the values that moved in every row."""
        with TemporaryDirectory() as folder:
            path = self.versions.download(dataset, version, "manifest.json", folder)
            found: dict[str, Any] = json.loads(path.read_bytes())["constants"]
        return found

    # your store

    def load(self, dataset: str, version: int) -> None:
        """Replace a dataset's rows by a version's snapshot."""
        self.write(dataset, version, self.versions.read(dataset, version))

    def apply(self, dataset: str, version: int, changes: pa.Table) -> None:
        """Put and delete records by their id."""
        table = self.table(dataset)
        kept = table.filter(pc.invert(pc.is_in(table[ID], changes[ID])))
        put = changes.filter(pc.equal(changes["_ploti_op"], "upsert")).select(table.column_names)
        self.write(dataset, version, pa.concat_tables([kept, put.cast(table.schema)]))

    def table(self, dataset: str) -> pa.Table:
        """Read what is held of a dataset."""
        return pq.ParquetFile(self.folder / f"{dataset}.parquet").read()

    def held(self, dataset: str) -> int | None:
        """Give the version that is held of a dataset."""
        path = self.folder / f"{dataset}.parquet"
        return int(pq.ParquetFile(path).schema_arrow.metadata[b"held"]) if path.exists() else None

    def write(self, dataset: str, version: int, table: pa.Table) -> None:
        """Replace a dataset's file whole."""
        fresh = self.folder / f".{dataset}"
        columns = pa.schema([field.with_nullable(True) for field in table.schema], {"held": str(version)})
        pq.write_table(table.cast(columns), fresh)
        fresh.replace(self.folder / f"{dataset}.parquet")

    def state(self) -> dict[str, Any]:
        """Read the cursor and the datasets that could not be brought up to date."""
        path = self.folder / "state.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"cursor": None, "behind": []}
        return found

    def store(self, *, cursor: str | None = None, behind: dict[str, bool] | None = None) -> None:
        """Store the cursor, or which datasets are behind."""
        state = self.state()
        late = {*state["behind"], *(behind or {})} - {name for name, is_late in (behind or {}).items() if not is_late}
        fresh = self.folder / ".state.json"
        fresh.write_text(json.dumps({"cursor": cursor or state["cursor"], "behind": sorted(late)}))
        fresh.replace(self.folder / "state.json")


if __name__ == "__main__":
    with ploti.Client() as client:
        Follower(client, sys.argv[1], Path(sys.argv[2])).run()
