"""Performs the steps of one dataset and turns its trouble into a state, so that the others go on (D11.4)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ploti._client import Client
from ploti.contract.resources import Dataset, ManifestDataset, Version, VersionFiles
from ploti.errors import BadAnswer, NoAnswer, NotAllowed, NotDelivered, NotFound, PlotiError, Reload
from ploti.sync.ahead import Ahead
from ploti.sync.answers import named_well, whole
from ploti.sync.columns import narrowed
from ploti.sync.download import BuildChanged, Downloads, Wanted, files_by_name
from ploti.sync.plan import (
    Apply,
    Held,
    Leave,
    Load,
    OnMajor,
    Pass,
    Pause,
    Step,
    Wait,
    accepts,
    after,
    catch_up,
    major_of,
)
from ploti.sync.replaced import leads, with_maps, with_told
from ploti.sync.target import (
    DatasetInfo,
    Delivery,
    Moved,
    RowsDiffer,
    StepBlocked,
    StepRefused,
    TableSpoilt,
    Target,
    TargetBusy,
    TargetUnusable,
    brought_back,
)

_STOPPING_CODES: Final = frozenset({"rate_limited", "plan_unavailable"})
Choose = Callable[[Held], Step | None]
"""Gives the next step from what is held now; None where there is none."""


@dataclass(frozen=True)
class DatasetReport:
    """What a run did for one dataset; `moved` is None where no rows moved."""

    dataset_id: str
    from_version: int | None
    held: Held
    reloaded: bool = False
    moved: Moved | None = None
    notices: tuple[str, ...] = ()


@dataclass
class Run:
    """One run's tools, what is held, and what became of each dataset so far.

    `asks_for_ids` has the API asked of every lost id in the columns to be `rewritten`, not only where a map is gone.
    `lost` are datasets whose table is gone, and what is to be told of them, until it is loaded. `last_event` tells
    which event the stored cursor stands at.
    """

    client: Client
    subscription_id: str
    target: Target
    downloads: Downloads
    on_major: OnMajor
    held: dict[str, Held]
    chosen: Collection[str] = ()
    rewritten: tuple[tuple[str, str], ...] = ()
    workers: int = 1
    asks_for_ids: bool = False
    choices: Mapping[str, str | None] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    last_event: str | None = None
    ahead: Ahead | None = None
    stored: dict[str, Held] = field(default_factory=dict)
    infos: dict[str, DatasetInfo] = field(default_factory=dict)
    reports: dict[str, DatasetReport] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stored.update(self.held)

    def chooses(self, dataset_id: str) -> bool:
        """Tell whether the user wants a dataset here; all of them where none is named."""
        return not self.chosen or dataset_id in self.chosen

    def of(self, dataset_id: str) -> Held:
        """Give what is held of a dataset."""
        return self.held.get(dataset_id, Held(dataset_id))

    def columns_of(self, held: Held) -> str | None:
        """Give the choice of columns that a dataset is to have: this run's, else the one that it has."""
        return self.choices.get(held.dataset_id, held.columns)

    def rechooses(self, held: Held) -> bool:
        """Tell whether a table is there and is to have other columns."""
        return held.version is not None and self.columns_of(held) != held.columns

    def is_to_load(self, held: Held) -> bool:
        """Tell whether a dataset at its version is to be loaded: its table is gone, or is to have other columns."""
        return held.state != "left" and (held.dataset_id in self.lost or (held.state == "ok" and self.rechooses(held)))

    def tell(self, held: Held, moved: Moved | None = None, *, reloaded: bool = False) -> Held:
        """Take in what became of a dataset; with `moved`, the target has it already."""
        name = held.dataset_id
        before = self.reports.get(name) or DatasetReport(name, self.of(name).version, held)
        self.held[name] = held
        if moved is not None:
            self.stored[name] = held
            self.lost.pop(name, None)
        self.reports[name] = replace(
            before, held=held, reloaded=before.reloaded or reloaded, moved=_sum(before.moved, moved)
        )
        return held

    def unstored(self) -> list[Held]:
        """List what the target does not know yet; a position that went on is no news."""
        return [held for name, held in self.held.items() if not _tells(self.stored.get(name), held)]


def _tells(stored: Held | None, held: Held) -> bool:
    """Tell whether what is stored says of a dataset what it is, or all but that nothing of it came since."""
    return stored is not None and stored.position <= held.position and replace(stored, position=held.position) == held


def _sum(before: Moved | None, moved: Moved | None) -> Moved | None:
    if before is None or moved is None:
        return moved or before
    return Moved(moved.rows, before.added + moved.added, before.changed + moved.changed, before.removed + moved.removed)


def bring(run: Run, held: Held, choose: Choose, given: ManifestDataset | None = None) -> Held:
    """Perform a dataset's steps until none is left or one fails; `given` has links that a manifest brought.

    Raises what concerns every dataset alike: the API out of reach or refusing the key, a target that cannot be used.
    """
    while True:
        step: Step | None = None
        try:
            if not named_well(held.dataset_id):
                raise StepRefused("its id is not one that a table can have: tell the publisher of the feed")
            step = choose(held)
            if step is None:
                return held
            held = _perform(run, held, step, given)
        except (NotDelivered, NotFound) as refusal:
            through = held.position if step is None else step.through
            held = run.tell(replace(held, state="leaving", reason=refusal.message, position=through))
            if step is None:
                return held
        except StepBlocked as blocked:
            return run.tell(replace(held, state="blocked", reason=str(blocked)))
        except (PlotiError, OSError) as trouble:
            if stops_all(trouble):
                raise
            return run.tell(replace(held, state="behind", reason=in_words(trouble)))
        finally:
            run.downloads.progress.ended()


def in_words(trouble: PlotiError | OSError) -> str:
    """Say what was in the way of one dataset."""
    if isinstance(trouble, PlotiError):
        return str(trouble)
    place = f"{trouble.filename}: " if trouble.filename else ""
    return f"{place}{trouble.strerror or trouble}: see to it, then run sync again"


def stops_all(trouble: PlotiError | OSError) -> bool:
    """Tell whether every other dataset would meet the same trouble."""
    if isinstance(trouble, NotAllowed | NoAnswer | TargetBusy | TargetUnusable):
        return True
    return isinstance(trouble, PlotiError) and trouble.code in _STOPPING_CODES


def _perform(run: Run, held: Held, step: Step, given: ManifestDataset | None) -> Held:
    match step:
        case Load():
            return load(run, held, step, given)
        case Apply():
            return _apply(run, held, step)
        case Pause() | Leave() | Wait():
            return run.tell(after(held, step))
        case Pass():
            run.held[held.dataset_id] = after(held, step)
            return run.held[held.dataset_id]


def load(run: Run, held: Held, step: Load, given: ManifestDataset | None = None) -> Held:
    """Load a snapshot: the step's version, or the current one where it names none or that one is gone (`410`)."""
    if step.version is not None:
        try:
            if given is not None and given["version"] == step.version:
                return _load_files(run, held, step, given["files"])
            return _load_version(run, held, step)
        except Reload:
            pass
    return _load_current(run, held, replace(step, version=None))


def _load_version(run: Run, held: Held, step: Load) -> Held:
    assert step.version is not None
    return _load_files(run, held, step, _files(run, held.dataset_id, step.version))


def _load_current(run: Run, held: Held, step: Load) -> Held:
    """Load the current version, or the last one of the MAJOR that the table accepts (D11.4)."""
    dataset = _dataset(run, held.dataset_id)
    run.infos[held.dataset_id] = DatasetInfo.of(dataset)
    current = dataset["current"]
    if current is None:
        raise StepRefused("it has no current version now: the next run tries again")
    if not accepts(held, current["schemaVersion"], run.on_major):
        return _load_last_accepted(run, held, step)
    if held.followed and held.version is not None and current["version"] < held.version:
        return run.tell(replace(held, position=step.through))
    try:
        return _load_version(run, held, replace(step, version=current["version"]))
    except Reload as gone:
        raise StepRefused(f"version {current['version']} is being rebuilt: the next run tries again") from gone


def _load_last_accepted(run: Run, held: Held, step: Load) -> Held:
    listed = _versions(run, held)
    newer = [version for version in listed if accepts(held, version["schemaVersion"], run.on_major)]
    if not newer:
        reason = f"its current version has another MAJOR schema than {held.accepted_major}.x"
        return run.tell(after(held, Pause(held.dataset_id, reason, step.through)))
    last = newer[-1]["version"]
    try:
        return _load_version(run, held, replace(step, version=last))
    except Reload:
        files = files_by_name(run.downloads, held.dataset_id, last)
        return _load_files(run, held, replace(step, version=last), files)


def _load_files(run: Run, held: Held, step: Load, files: VersionFiles) -> Held:
    assert step.version is not None
    choice = run.columns_of(held)
    delivery = _fetched(run, held.dataset_id, step.version, files, "snapshot")
    delivery = narrowed(delivery, choice, is_new=choice != held.columns)
    delivery = _with_ids_replaced(run, delivery)
    info = run.infos.get(held.dataset_id) or DatasetInfo.of(_dataset(run, held.dataset_id))
    loaded = replace(_holding(run, held, after(held, step), delivery), columns=choice)
    moved = _into(run, delivery, lambda: run.target.load(delivery, loaded, info))
    return run.tell(replace(loaded, rows=moved.rows), moved, reloaded=True)


def _with_ids_replaced(run: Run, delivery: Delivery) -> Delivery:
    """Add what became of ids between the rows that are here and a version, where the user keeps ids of records.

    Where a version on the way is listed no more, as after it was released again, or its map is gone, the API is asked.
    """
    here = run.of(delivery.dataset_id)
    if not run.rewritten or here.version is None:
        return delivery
    passed = [each for each in _versions(run, here) if each["version"] <= delivery.version]
    mapped, all_there = with_maps(run.downloads, delivery, run.rewritten, passed)
    if run.asks_for_ids or not all_there or not leads(passed, here.version, delivery.version):
        return with_told(run.downloads, run.target, mapped)
    return mapped if mapped.ids_replaced and mapped.ids_replaced.maps else delivery


def _apply(run: Run, held: Held, step: Apply) -> Held:
    """Apply a version's changes; a version that does not follow from the held one is loaded instead."""
    fallback = Load(held.dataset_id, step.version, "changes do not apply", step.through)
    if run.rechooses(held):
        return load(run, held, fallback)
    try:
        version = _version(run, held.dataset_id, step.version)
        if version["resyncRequired"] or version["previousVersion"] != held.version:
            return load(run, held, fallback)
        delivery = _fetched(run, held.dataset_id, step.version, version["files"], "changes")
        delivery = narrowed(delivery, held.columns)
    except Reload:
        return _load_current(run, held, replace(fallback, version=None))
    applied = _holding(run, held, after(held, step), delivery)
    try:
        moved = _into(run, delivery, lambda: run.target.apply(delivery, applied))
    except RowsDiffer:
        return load(run, held, fallback)
    return run.tell(replace(applied, rows=moved.rows), moved)


def _holding(run: Run, held: Held, reached: Held, delivery: Delivery) -> Held:
    """Give what is held once a delivery is in the table; raises StepBlocked for a MAJOR that is not accepted."""
    schema_version = delivery.schema["schemaVersion"]
    if not accepts(held, schema_version, run.on_major):
        raise StepBlocked(f"version {delivery.version} has schema {schema_version}, which is not accepted yet")
    return replace(reached, schema_version=schema_version, accepted_major=major_of(schema_version))


def _fetched(run: Run, dataset_id: str, version: int, files: VersionFiles, wanted: Wanted) -> Delivery:
    try:
        if run.ahead is not None and wanted == "snapshot":
            ready = _taken(run, run.ahead, dataset_id, version, files)
            if ready is not None:
                return ready
        return run.downloads.delivery(dataset_id, version, files, wanted)
    except BuildChanged:
        return run.downloads.delivery(dataset_id, version, _files(run, dataset_id, version), wanted)


def _taken(run: Run, ahead: Ahead, dataset_id: str, version: int, files: VersionFiles) -> Delivery | None:
    """Wait for what is fetched ahead, and show it as one step."""
    size = sum(file["sizeBytes"] for file in files["snapshot"])
    if not ahead.has(dataset_id):
        return None
    run.downloads.progress.began(dataset_id, "snapshot", size)
    delivery = ahead.take(dataset_id, version)
    run.downloads.progress.moved(size)
    return delivery


def _files(run: Run, dataset_id: str, version: int) -> VersionFiles:
    return _version(run, dataset_id, version)["files"]


def _version(run: Run, dataset_id: str, version: int) -> Version:
    answer = run.client.feeds.datasets.versions.get(dataset_id, version)
    if "files" not in whole(answer, Version, "the version"):
        raise BadAnswer("The version from the API has no files: report it.", code="bad_answer")
    return answer


def _versions(run: Run, held: Held) -> list[Version]:
    """List the released versions after the held one."""
    listed = run.client.feeds.datasets.versions.iter(held.dataset_id, after=held.version)
    return [whole(version, Version, "the list of versions") for version in listed]


def _dataset(run: Run, dataset_id: str) -> Dataset:
    return whole(run.client.feeds.datasets.get(dataset_id), Dataset, "the dataset")


def _into(run: Run, delivery: Delivery, step: Callable[[], Moved]) -> Moved:
    """Bring a delivery into the target; its parts are not kept, whether it went well or was refused."""
    try:
        moved = step()
    except StepRefused:
        run.downloads.drop(delivery)
        raise
    run.downloads.drop(delivery)
    return moved


@dataclass
class CatchUp:
    """Chooses the steps that bring a dataset to its current version, reading the version list once."""

    run: Run
    versions: list[Version] | None = None
    begun: bool = False

    def __call__(self, held: Held) -> Step | None:
        """Give the next step; None once there is nothing more to do.

        A table that was lost is loaded first; raises TableSpoilt where that brought nothing.
        """
        begun, self.begun = self.begun, True
        if lost := self.run.lost.get(held.dataset_id):
            if begun:
                raise TableSpoilt(brought_back(lost))
            return Load(held.dataset_id, held.version, lost, held.position)
        if begun and held.state in {"leaving", "paused", "waiting"}:
            return None
        if self.run.rechooses(held):
            return Load(held.dataset_id, held.version, "other columns are wanted", held.position)
        dataset = _dataset(self.run, held.dataset_id)
        if self.versions is None:
            self.versions = [] if dataset["current"] is None else _versions(self.run, held)
        step = catch_up(held, dataset["current"], self.versions, self.run.on_major)
        if not isinstance(step, Pass):
            return step
        if held.state != "ok":
            self.run.tell(replace(held, state="ok", reason=None))
        return None
