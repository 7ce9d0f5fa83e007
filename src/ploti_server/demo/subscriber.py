"""The demo's reader: the `ploti` command and plain HTTP with an API key, as a subscriber would use them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb


class DemoFailed(Exception):
    """A step of the demo that did not do what it should; the message says which."""


def command(name: str) -> str:
    """Find an installed command, first beside the running Python."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise DemoFailed(f"the command `{name}` is not installed beside {sys.executable}")
    return found


@dataclass(frozen=True)
class Subscriber:
    """A workspace's key, the server it belongs to, and the DuckDB file that follows the subscription."""

    url: str
    key: str
    database: Path

    def ploti(self, *arguments: str) -> str:
        """Run the `ploti` command; gives what it printed, raises `DemoFailed` where it fails."""
        environment = os.environ | {"PLOTI_API_KEY": self.key, "PLOTI_API_URL": self.url}
        done = subprocess.run(
            [command("ploti"), *arguments], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise DemoFailed(f"`ploti {' '.join(arguments)}` failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def subscribe(self, name: str, place: str) -> str:
        """Subscribe to a place; gives the subscription's id."""
        answer = self.ploti("feeds", "subscriptions", "create", name, "--places", place, "--json")
        return str(json.loads(answer)["id"])

    def sync(self, subscription: str) -> dict[str, Any]:
        """Bring the DuckDB file up to date; gives the report."""
        done = self.ploti("sync", subscription, "--to", self.target, "--on-major", "apply", "--json")
        report: dict[str, Any] = json.loads(done)
        return report

    def verify(self) -> list[dict[str, Any]]:
        """Compare every table with its version's digest."""
        datasets: list[dict[str, Any]] = json.loads(self.ploti("sync", "verify", "--to", self.target, "--json"))
        return datasets

    @property
    def target(self) -> str:
        """The DuckDB file as `--to` takes it."""
        return f"duckdb:///{self.database}"

    def get(self, path: str) -> Any:
        """Read one resource of the API."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.key}"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.load(answer)

    def changes_since(self, day: str) -> list[tuple[str, str, int]]:
        """Count what changed since a day over all datasets, from the changes files alone: dataset, change, rows."""
        with tempfile.TemporaryDirectory() as scratch:
            files = [str(file) for file in self._changes_files(Path(scratch), day)]
            rows = duckdb.execute(
                "SELECT _ploti_dataset_id, _ploti_change, count(*) FROM read_parquet($files, union_by_name = true) "
                "WHERE _ploti_fetched_at >= $day::DATE GROUP BY ALL ORDER BY ALL",
                {"files": files, "day": day},
            ).fetchall()
        return [(str(dataset), str(change), int(count)) for dataset, change, count in rows]

    def _changes_files(self, folder: Path, day: str) -> Iterator[Path]:
        for dataset in self.get("/v1/feeds/datasets")["datasets"]:
            path = f"/v1/feeds/datasets/{dataset['id']}/versions"
            for listed in self.get(path)["versions"]:
                if listed["resyncRequired"] or (listed["fetchedAt"] or "") < day:
                    continue
                for part in self.get(f"{path}/{listed['version']}")["files"]["changes"]:
                    target = folder / f"{dataset['id']}-{listed['version']}-{part['filename']}"
                    with urllib.request.urlopen(part["url"], timeout=30) as answer, target.open("wb") as file:  # noqa: S310
                        shutil.copyfileobj(answer, file)
                    yield target
