"""Begins a build: which version it makes, what it follows, and which state an act of staff is about (D4.12, D5.2)."""

from dataclasses import dataclass, replace
from itertools import takewhile

from ploti_server.domain.checks import STAFF_ACTS, Check, CheckKind
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.replacements import Replacement
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.pipeline.find import Lost
from ploti_server.pipeline.follow import is_kept, last_sent, sent_versions
from ploti_server.pipeline.ledger_parts import LedgerParts, ledger_parts, newly_lost
from ploti_server.ports import Ports, Records

_UNFINISHED = (VersionStatus.BUILDING, VersionStatus.WAITING)
_OWING = (VersionStatus.HELD, VersionStatus.RELEASED_AGAIN)


@dataclass(frozen=True)
class Gathered:
    """What the store knows when a build starts.

    `base` is the version that the new one follows, `check` the check with the state to read. `moot` says why nothing is
    to be built. `is_base_kept` tells whether the files of the base are there to match with. Since version
    `key_since` every version that was sent has the key of the base.
    """

    dataset: Dataset
    check: Check
    version: Version
    base: Version | None
    schema_origin: Version | None
    ledger: LedgerParts
    is_base_kept: bool
    key_since: int = 0
    moot: str | None = None

    @property
    def lost(self) -> Lost | None:
        """What is known of the version to follow where its files are lost; replaced ids follow nothing of it."""
        if self.base is None or self.is_base_kept or self.check.replacement is not None:
            return None
        return Lost(self.base.schema.key_columns, self.key_since)

    @property
    def ledger_newly_lost(self) -> tuple[int, ...]:
        """Versions whose part of the ledger is lost, those aside that a version was released in spite of."""
        return newly_lost(self.ledger.lost, self.base)

    @property
    def is_base_gone(self) -> bool:
        """Whether the version to follow was released again, or is not kept: the next one is a resync (page 001)."""
        return self.base is not None and (self.base.status is VersionStatus.RELEASED_AGAIN or not self.is_base_kept)

    @property
    def is_asked_for(self) -> bool:
        """Whether staff want a version whatever a build before it came to."""
        return self.check.kind in STAFF_ACTS


def begin(ports: Ports, check: Check) -> Gathered:
    """Give the version its number, once, or take up the one that an earlier attempt left (D5.2).

    Where a part of the ledger is lost, new ids are of a new epoch: no record can get one that another ever carried.
    """
    with ports.store.write() as records:
        dataset = records.catalog.dataset(check.dataset_id)
        if dataset is None:
            raise LookupError(f"{check.dataset_id} left the catalog while its check {check.id} was open")
        base = last_sent(records, dataset.id)
        check = _with_state(records, check, base)
        begun = _begun(records, check) or Version(
            dataset.id, records.versions.newest_number(dataset.id) + 1, 0, VersionStatus.BUILDING, 0
        )
        version = replace(
            begun,
            attempt=free_attempt(ports, begun),
            status=VersionStatus.BUILDING,
            check_id=check.id,
            base=base.number if base else None,
            previous_version=base.number if base else None,
            id_epoch=_epoch(base, check.replacement),
            source_url=check.source_url,
            place_id=dataset.filed_place,
            fetched_at=check.fetched_at,
            definition=dataset,
        )
        gathered = gathered_for(ports, records, check, version, dataset)
        if gathered.ledger_newly_lost and version.id_epoch == (base.id_epoch if base else 0):
            version = replace(version, id_epoch=version.id_epoch + 1)
        records.versions.put(version)
        return replace(gathered, version=version, moot=_moot(records, check, base))


def gathered_for(ports: Ports, records: Records, check: Check, version: Version, dataset: Dataset) -> Gathered:
    """Gather what a version is, or was, built from: the version that it follows, and the ledger up to there."""
    base = records.versions.get(dataset.id, version.base) if version.base is not None else None
    sent = [before for before in sent_versions(records, dataset.id) if before.number < version.number]
    same = (before for before in sent if base and before.schema_version == base.schema_version)
    kept = base is None or is_kept(ports, base)
    keyed = takewhile(lambda v: base and v.schema.key_columns == base.schema.key_columns, reversed(sent))
    since = min((before.number for before in keyed), default=0)
    return Gathered(
        dataset, check, version, base, next(same, None), ledger_parts(ports, sent), is_base_kept=kept, key_since=since
    )


def _with_state(records: Records, check: Check, base: Version | None) -> Check:
    """Find the state that an act is about, and the ids that a version which was never sent was to replace.

    Written down with the check, so that a version's check always names the state that it was built from.
    """
    found = records.checks.get(check.id) or check
    wanted = found.replacement or _owed(records, check.dataset_id, base)
    found = replace(found, replacement=wanted if base is not None else None)
    version = base if check.kind is CheckKind.REPLACE_IDS else None
    if check.kind is CheckKind.RELEASE_AGAIN and check.again is not None:
        version = records.versions.get(check.dataset_id, check.again)
    read = records.checks.get(version.check_id) if version is not None else None
    if read is not None:
        found = replace(
            found,
            state_sha256=read.state_sha256,
            file_name=read.file_name,
            source_url=read.source_url,
            fetched_at=read.fetched_at,
        )
    records.checks.put(found)
    return found


def _owed(records: Records, dataset_id: str, base: Version | None) -> Replacement | None:
    """Give the replacement of a version that is held or was released again before it was sent: the next one owes it."""
    statuses = (*_OWING, VersionStatus.DISCARDED, VersionStatus.SUPERSEDED)
    replacing = [
        version
        for version in records.versions.in_status(dataset_id, statuses)
        if version.record_ids_changed and version.released_at is None and base and version.number > base.number
    ]
    if not replacing or replacing[-1].status not in _OWING:
        return None
    check = records.checks.get(replacing[-1].check_id)
    return check.replacement if check else None


def _epoch(base: Version | None, replacement: Replacement | None) -> int:
    """Give the id epoch: a new one where every id is replaced (D4.12)."""
    before = base.id_epoch if base else 0
    return before + 1 if replacement is not None and replacement.named is None else before


def _moot(records: Records, check: Check, base: Version | None) -> str | None:
    """Tell why an act has nothing left to do: a newer state that came first is the resync (D5.2)."""
    if check.kind is CheckKind.REPLACE_IDS and base is None:
        return "no version was sent whose ids could be replaced"
    if check.kind is not CheckKind.RELEASE_AGAIN or check.again is None:
        return None
    later = records.versions.in_status(check.dataset_id, (VersionStatus.RELEASED, VersionStatus.HELD))
    newer = [version.number for version in later if version.number > check.again]
    return f"version {newer[-1]} came first in place of version {check.again}" if newer else None


def free_attempt(ports: Ports, begun: Version) -> int:
    """Give the next attempt whose folder is empty: an abandoned build of this number may have left files (D5.3)."""
    attempt = begun.attempt + 1
    while next(iter(ports.files.paths(f"{replace(begun, attempt=attempt).folder}/")), None) is not None:
        attempt += 1
    return attempt


def _begun(records: Records, check: Check) -> Version | None:
    found = records.versions.in_status(check.dataset_id, _UNFINISHED)
    return next((v for v in found if v.check_id == check.id), None)
