"""Proves that tables equal their loaded versions by digest, and puts right the buckets where they do not (D5.6, D11.5).

Named step for `reach`: sync.repaired, after a table was put right and before it is compared again.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ploti._client import Client
from ploti.contract.digest import Digest
from ploti.contract.resources import FileLink, VersionManifest
from ploti.errors import PlotiError, Reload
from ploti.sync.columns import narrowed
from ploti.sync.download import BuildChanged, Downloads, files_by_name
from ploti.sync.perform import in_words, stops_all
from ploti.sync.plan import Held
from ploti.sync.target import (
    Delivery,
    Moved,
    Progress,
    Reach,
    SyncError,
    TableSpoilt,
    Target,
    TargetState,
    command,
    reach_nothing,
)

_MOVES_MOST: Final = 5
_UNDONE: Final = (
    f"rows that were put right are wrong again: look for triggers or rules of yours on the table, then run "
    f"{command('repair')} again"
)


@dataclass(frozen=True)
class Verified:
    """Whether a table equals its loaded version; `buckets` are those that differ, `problem` why none was compared.

    `spoilt` tells that the table is not as sync made it, so that a repair loads it again.
    """

    dataset_id: str
    version: int | None
    records: int = 0
    buckets: tuple[str, ...] = ()
    problem: str | None = None
    spoilt: bool = False

    @property
    def equal(self) -> bool:
        """Whether every bucket agrees."""
        return self.problem is None and not self.buckets


@dataclass(frozen=True)
class Repaired:
    """A table before and after; `moved` counts the rows put right: lost ones added, extra ones removed."""

    before: Verified
    after: Verified
    moved: Moved | None = None


def verify(client: Client, target: Target, *, progress: Progress | None = None) -> list[Verified]:
    """Compare each table with the digest of its loaded version, by bucket of record id (D5.6, D11.5).

    Nothing is written to the target or beside it, where a sync may be at work; what is fetched has a folder of its own.
    Raises SyncError for a target that follows no subscription: nothing was compared then.
    """
    with TemporaryDirectory(prefix="ploti-") as folder:
        fetching = Downloads(client, Path(folder), progress or Progress())
        return [_compared(fetching, target, held) for held in _loaded(target, ())]


def _compared(fetching: Downloads, target: Target, held: Held) -> Verified:
    """Compare a table; where a sync beside this moved it on meanwhile, once more with what it holds then."""
    found = _Check(fetching, target, held).verified()
    for _ in range(_MOVES_MOST):
        now = target.state().datasets.get(held.dataset_id)
        if found.equal or now is None or (now.version, now.columns) == (held.version, held.columns):
            break
        held, found = now, _Check(fetching, target, now).verified()
    return found


def repair(
    client: Client,
    target: Target,
    datasets: Collection[str] = (),
    *,
    progress: Progress | None = None,
    reach: Reach = reach_nothing,
) -> list[Repaired]:
    """Put tables right where they differ from their loaded versions, and compare them again (D11.5).

    Only the buckets that differ are read from the version's snapshot and written; a table that lost a column, or is
    gone, is loaded again. Without `datasets`, every table. One that cannot be put right has its `problem` in `after`.
    Raises SyncError for a dataset that is not held, or a target that follows no subscription.
    """
    fetching = Downloads(client, target.downloads, progress or Progress(), reach)
    with target.lock():
        done = [_Check(fetching, target, held).repaired() for held in _loaded(target, datasets)]
    fetching.drop_all()
    return done


def following(target: Target) -> TargetState:
    """Give what a target holds; raises SyncError where it follows no subscription yet."""
    state = target.state()
    if state.subscription_id is None:
        raise SyncError(f"This target follows no subscription yet: run {command('SUBSCRIPTION')} on it first.")
    return state


def _loaded(target: Target, datasets: Collection[str]) -> list[Held]:
    held = {name: each for name, each in following(target).datasets.items() if each.version is not None}
    unknown = sorted(set(datasets) - held.keys())
    if unknown:
        raise SyncError(f"{unknown[0]} has no rows here: {command('status')} lists what has.")
    return [held[name] for name in sorted(datasets or held)]


@dataclass
class _Check:
    """One table beside its loaded version; the version manifest is read once."""

    fetching: Downloads
    target: Target
    held: Held
    _manifest: VersionManifest | None = None

    def verified(self) -> Verified:
        """Compare the table; trouble with this dataset is a `problem`."""
        try:
            manifest = self._read_manifest()
            own = self.target.digest(self.held.dataset_id, manifest["volatileColumns"])
            wanted = self._digest(manifest)
        except PlotiError as problem:
            spoilt = isinstance(problem, TableSpoilt)
            return Verified(self.held.dataset_id, self.held.version, problem=str(problem), spoilt=spoilt)
        buckets = own.differing(wanted)
        return Verified(self.held.dataset_id, self.held.version, own.records, tuple(buckets))

    def _digest(self, manifest: VersionManifest) -> Digest:
        """Give the digest that the table should have: the published one, or that of the chosen columns (D11.8)."""
        if self.held.columns is None:
            return Digest.from_wire(manifest["digest"])
        return self.target.snapshot_digest(self._snapshot(), manifest["volatileColumns"])

    def repaired(self) -> Repaired:
        """Compare the table, put right what differs, and compare it again."""
        before = self.verified()
        if before.equal or not (before.buckets or before.spoilt):
            return Repaired(before, before)
        try:
            delivery = self._snapshot()
            moved = self._mend(delivery, before)
        except (PlotiError, OSError) as problem:
            if stops_all(problem):
                raise
            return Repaired(before, replace(before, problem=in_words(problem)))
        self.fetching.reach("sync.repaired")
        after = self.verified()
        return Repaired(before, replace(after, problem=_UNDONE) if after.buckets else after, moved)

    def _mend(self, delivery: Delivery, before: Verified) -> Moved:
        """Put the rows of the differing buckets right, or load the version again where more than rows is wrong."""
        try:
            if before.buckets:
                return self.target.mend(delivery, before.buckets, self._read_manifest()["volatileColumns"])
        except TableSpoilt:
            pass
        return self.target.load(delivery, self.held, None)

    def _read_manifest(self) -> VersionManifest:
        if self._manifest is None:
            name, version = self.held.dataset_id, self._version()
            signed = self.fetching.client.feeds.datasets.versions.links(name, version, files=["manifest.json"])
            if not signed["files"]:
                raise SyncError("the version's manifest is not to be had any more")
            link: FileLink = {**signed["files"][0], "path": "manifest.json"}  # type: ignore[typeddict-unknown-key]
            self._manifest = self.fetching.manifest(name, version, link)
        return self._manifest

    def _snapshot(self) -> Delivery:
        """Fetch the loaded version's snapshot; raises SyncError where it is past retention."""
        try:
            try:
                return self._delivery()
            except BuildChanged:
                return self._delivery()
        except Reload as gone:
            raise SyncError(
                f"the snapshot of version {self.held.version} is not kept any more: "
                f"{command('resync', self.held.dataset_id)} loads the current one"
            ) from gone

    def _delivery(self) -> Delivery:
        name, version = self.held.dataset_id, self._version()
        try:
            files = self.fetching.client.feeds.datasets.versions.get(name, version)["files"]
        except Reload:
            files = files_by_name(self.fetching, name, version)
        return narrowed(self.fetching.delivery(name, version, files, "snapshot"), self.held.columns)

    def _version(self) -> int:
        assert self.held.version is not None
        return self.held.version
