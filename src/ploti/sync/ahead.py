"""Snapshots of the datasets to come, fetched side by side while one is loaded."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ploti.contract.resources import ManifestDataset
from ploti.sync.download import Downloads
from ploti.sync.target import Delivery, Progress


class _Stopped(Exception):
    """The run is over: what is still on its way is not wanted."""


class _Quiet(Progress):
    """Shows nothing, and ends a download once the run is over."""

    over = False

    def moved(self, count: int) -> None:
        """Take bytes that arrived."""
        del count
        if self.over:
            raise _Stopped


@dataclass
class Ahead:
    """Downloads under way, at most `workers` of them; what they give or raise comes out where it is taken."""

    downloads: Downloads
    pool: ThreadPoolExecutor
    workers: int
    waiting: deque[ManifestDataset]
    under_way: dict[str, Future[Delivery]] = field(default_factory=dict)

    def has(self, dataset_id: str) -> bool:
        """Tell whether a dataset's snapshot is on its way; begins those that may."""
        self._begin()
        return dataset_id in self.under_way

    def take(self, dataset_id: str, version: int) -> Delivery | None:
        """Wait for a dataset's snapshot, once; None where it is one of another version. Raises what fetching raised."""
        try:
            delivery = self.under_way[dataset_id].result()
        finally:
            del self.under_way[dataset_id]
            self._begin()
        return delivery if delivery.version == version else None

    def _begin(self) -> None:
        while self.waiting and len(self.under_way) < self.workers:
            given = self.waiting.popleft()
            name, version, files = given["datasetId"], given["version"], given["files"]
            self.under_way[name] = self.pool.submit(self.downloads.delivery, name, version, files, "snapshot")


@contextmanager
def fetching_ahead(downloads: Downloads, wanted: Iterable[ManifestDataset], workers: int) -> Iterator[Ahead | None]:
    """Fetch the snapshots of datasets in their order, some at a time; None with one worker, which is none beside."""
    if workers < 2:
        yield None
        return
    quiet = _Quiet()
    with ThreadPoolExecutor(workers, thread_name_prefix="ploti-sync") as pool:
        try:
            yield Ahead(replace(downloads, progress=quiet), pool, workers, deque(wanted))
        finally:
            quiet.over = True
            pool.shutdown(wait=False, cancel_futures=True)
