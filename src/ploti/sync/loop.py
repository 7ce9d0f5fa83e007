"""One run of sync: reads the manifest or the log, has the datasets' steps performed, stores the cursor last (D11.2).

Named steps for `reach`: sync.manifest_read, sync.events_read, sync.part_downloaded, sync.links_renewed, sync.opened,
sync.staged, sync.rows_written, sync.before_commit, sync.after_commit, sync.cursor_stored.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ploti._client import Client
from ploti.contract._typed import TypedDict
from ploti.contract.events import ADDED, EVENTS_PER_PAGE_MOST, REMOVED, Event, event_id, event_number
from ploti.contract.resources import Dataset, ManifestDataset, SubscriptionManifest
from ploti.errors import BadAnswer, FixRequest, Reload
from ploti.sync.ahead import fetching_ahead
from ploti.sync.answers import event_trouble, named_well, sound, whole
from ploti.sync.columns import choices_of
from ploti.sync.download import Downloads
from ploti.sync.perform import CatchUp, DatasetReport, Run, bring, load
from ploti.sync.plan import Held, Leave, Load, OnMajor, Step, Wait, after, after_manifest, next_step, notices, number_of
from ploti.sync.target import (
    DatasetInfo,
    Progress,
    Reach,
    SyncError,
    Target,
    TargetState,
    command,
    reach_nothing,
    user_column,
)
from ploti.sync.verify import Repaired, Verified, following, repair, verify

__all__ = ["Repaired", "SyncReport", "Verified", "following", "repair", "resync", "sync", "verify"]

_EVENTS_PER_ROUND: Final = 10 * EVENTS_PER_PAGE_MOST
_RELOADS_MOST: Final = 2
NOT_CHOSEN: Final = "not among the datasets asked for"
"""Why a dataset is `left` that the subscription delivers."""


class _Named(TypedDict):
    datasetId: str


class _Unavailable(_Named):
    reason: str


class _ManifestFrame(TypedDict):
    """What a manifest must have before its datasets are looked at one by one."""

    eventCursor: str
    datasets: list[_Named]
    unavailable: list[_Unavailable]
    nextCursor: str | None


class _LoggedEvent(TypedDict):
    id: str
    type: str
    data: _Named


class _EventsFrame(TypedDict):
    """What a page of the log must have before its events are looked at dataset by dataset."""

    events: list[_LoggedEvent]
    nextCursor: str


@dataclass(frozen=True)
class SyncReport:
    """What a run did: datasets by id; those that nothing happened to are left out unless they are kept back."""

    subscription_id: str
    cursor: str
    datasets: tuple[DatasetReport, ...]

    @property
    def behind(self) -> tuple[DatasetReport, ...]:
        """Datasets that could not be brought up to date, those that something of the user's blocks among them."""
        return tuple(each for each in self.datasets if each.held.behind)


def sync(
    client: Client,
    subscription_id: str,
    target: Target,
    *,
    on_major: OnMajor = "pause",
    datasets: Collection[str] = (),
    rewrite_ids: Collection[str] = (),
    columns: Collection[str] = (),
    without: Collection[str] = (),
    workers: int = 1,
    progress: Progress | None = None,
    reach: Reach = reach_nothing,
    downloads: Downloads | None = None,
) -> SyncReport:
    """Bring a target up to date with a subscription and tell what moved; with `datasets`, only these.

    `columns` and `without` choose columns of datasets, like `ds_permits=number,value`; a choice is kept until the next
    one, and a new one loads the dataset's version again.
    `rewrite_ids` names columns of tables of the user's own, like `orders.permit_id`, in which ids of records are
    rewritten where a version replaces them, together with its rows. `workers` is how many datasets are fetched at once.

    One dataset's trouble is in the report (`behind`), not raised. Raises SyncError where the target cannot be used and
    PlotiError where the API cannot be reached or refuses; the cursor stays then, and the next run goes on from there.
    """
    fetching = downloads or Downloads(client, target.downloads, progress or Progress(), reach)
    rewritten = tuple(user_column(name) for name in rewrite_ids)
    choices = choices_of(columns, without)
    with target.lock():
        state = target.state()
        if state.subscription_id not in {None, subscription_id}:
            raise SyncError(f"This target follows {state.subscription_id}: use another one for {subscription_id}.")
        run = Run(
            client, subscription_id, target, fetching, on_major, dict(state.datasets), datasets, rewritten, workers,
            choices=choices, lost=dict(state.lost), last_event=_seen(state),
        )  # fmt: skip
        cursor = _follow(run, state.cursor or _first_load(run))
        _refresh_infos(run, cursor)
        if unknown := sorted({*datasets, *choices} - run.held.keys()):
            raise SyncError(f"The subscription has no dataset {unknown[0]}: {command('status')} lists those it has.")
        report = _report(run, cursor)
        if not report.behind:
            fetching.drop_all()
        return report


def resync(
    client: Client,
    target: Target,
    dataset_id: str,
    *,
    rewrite_ids: Collection[str] = (),
    progress: Progress | None = None,
    reach: Reach = reach_nothing,
) -> DatasetReport:
    """Load a dataset's current version whatever is held, and accept its MAJOR schema from now on (D11.5).

    Raises SyncError for a dataset that the target does not follow or cannot load, PlotiError for the API's refusals.
    """
    fetching = Downloads(client, target.downloads, progress or Progress(), reach)
    columns = tuple(user_column(name) for name in rewrite_ids)
    with target.lock():
        state = target.state()
        held = state.datasets.get(dataset_id)
        if held is None or state.subscription_id is None or not held.followed:
            raise SyncError(f"{dataset_id} is not followed here: {command('status')} lists what is.")
        run = Run(
            client, state.subscription_id, target, fetching, "apply", dict(state.datasets), (), columns,
            asks_for_ids=True,
        )  # fmt: skip
        load(run, replace(held, version=None), Load(dataset_id, None, "asked for", held.position))
        return replace(run.reports[dataset_id], from_version=held.version)


def _report(run: Run, cursor: str) -> SyncReport:
    for held in list(run.held.values()):
        if held.state in {"behind", "blocked", "paused"} and held.dataset_id not in run.reports:
            run.tell(held)
    return SyncReport(run.subscription_id, cursor, tuple(run.reports[name] for name in sorted(run.reports)))


def _store(run: Run, cursor: str) -> None:
    """Store the cursor with the state of every dataset whose rows did not move, as one transaction (D11.4)."""
    moved = run.unstored()
    run.target.record(run.subscription_id, cursor, moved, run.last_event)
    run.stored.update({held.dataset_id: held for held in moved})
    run.downloads.reach("sync.cursor_stored")


def _retry(run: Run, cursor: str) -> None:
    """Take up what an earlier run left behind, kept back, was refused (D11.4), lost, or was not asked for."""
    tried = {name for name, report in run.reports.items() if report.held.state != "paused"}
    for held in [each for name, each in run.held.items() if name not in tried]:
        if not run.chooses(held.dataset_id):
            if held.followed:
                run.tell(replace(held, state="left", reason=NOT_CHOSEN))
        elif held.state == "left" and held.reason == NOT_CHOSEN:
            bring(run, replace(held, state="behind", reason=None), CatchUp(run))
        elif held.state in {"behind", "blocked", "paused", "leaving"} or run.is_to_load(held):
            bring(run, held, CatchUp(run))
    if run.unstored():
        _store(run, cursor)


# the manifest


def _first_load(run: Run) -> str:
    """Load what is listed into a target that follows the subscription from when the API knows it; gives the cursor."""
    manifest = _read_manifest(run)
    run.target.record(run.subscription_id, None, ())
    return _load_listed(run, manifest)


def _load_listed(run: Run, manifest: SubscriptionManifest) -> str:
    """Load what a subscription manifest lists, then store its cursor; gives the cursor."""
    run.last_event = None
    run.downloads.reach("sync.manifest_read")
    cursor = _event_number(manifest["eventCursor"])
    if any(run.of(each["datasetId"]).version is None for each in manifest["datasets"]):
        run.infos.update(_infos(run))
    listed = [each for each in manifest["datasets"] if run.chooses(each["datasetId"])]
    for each in (*manifest["datasets"], *manifest["unavailable"]):
        _leave_out(run, each["datasetId"], cursor)
    with fetching_ahead(run.downloads, _to_load(run, listed, cursor), run.workers) as run.ahead:
        for given in listed:
            held = replace(run.of(given["datasetId"]), position=cursor - 1)
            bring(run, held, _Listed(given, cursor, run.on_major), given)
    run.ahead = None
    for missing in manifest["unavailable"]:
        if run.chooses(missing["datasetId"]):
            _unavailable(run, run.of(missing["datasetId"]), missing["reason"], cursor)
    named = {each["datasetId"] for each in [*manifest["datasets"], *manifest["unavailable"]]}
    for held in list(run.held.values()):
        if held.dataset_id not in named and (held.state != "left" or held.reason == NOT_CHOSEN):
            run.tell(after(held, Leave(held.dataset_id, "not in the subscription any more", cursor)))
    _store(run, manifest["eventCursor"])
    return manifest["eventCursor"]


def _to_load(run: Run, listed: Sequence[ManifestDataset], cursor: int) -> list[ManifestDataset]:
    """Choose the datasets of a manifest that will be loaded from the links in it."""
    chosen = []
    for given in listed:
        if sound(given, ManifestDataset) and named_well(given["datasetId"]):
            choose = _Listed(given, cursor, run.on_major)
            if isinstance(choose(replace(run.of(given["datasetId"]), position=cursor - 1)), Load):
                chosen.append(given)
    return chosen


def _leave_out(run: Run, dataset_id: str, through: int, events: Sequence[Event] = ()) -> None:
    """Note a dataset that the user does not want here, so that it is known once it is wanted."""
    if run.chooses(dataset_id):
        return
    held = run.of(dataset_id)
    reason = held.reason if held.state == "left" and held.reason else NOT_CHOSEN
    for event in events:
        if event["type"] in {ADDED, REMOVED}:
            reason = event["data"].get("reason") or NOT_CHOSEN
    run.held[dataset_id] = replace(held, state="left", reason=reason, position=max(held.position, through))


def _read_manifest(run: Run) -> SubscriptionManifest:
    manifest = whole(run.client.feeds.subscriptions.manifest(run.subscription_id), _ManifestFrame, "the manifest")
    if manifest["nextCursor"] is not None:
        raise BadAnswer("The manifest is not whole: report it.", code="bad_answer")
    return manifest


def _unavailable(run: Run, held: Held, reason: str, cursor: int) -> None:
    """Take in a dataset that cannot be loaded now; rows that it has already go on being followed."""
    if held.followed and held.version is not None:
        run.held[held.dataset_id] = replace(held, position=cursor)
    elif reason == "rebuilding":
        run.tell(replace(held, state="behind", reason="its files are being rebuilt", position=cursor))
    else:
        run.tell(after(held, Wait(held.dataset_id, f"no released version yet ({reason})", cursor)))


def _infos(run: Run) -> dict[str, DatasetInfo]:
    """Read titles, sources and licences of every dataset in a few calls."""
    pages = run.client.feeds.datasets.iter(subscription=run.subscription_id)
    return {dataset["id"]: DatasetInfo.of(dataset) for dataset in pages if sound(dataset, Dataset)}


def _refresh_infos(run: Run, cursor: str) -> None:
    """Store titles, sources and licences that are others than the target has: no event tells of them (D11.7)."""
    told = {name: run.infos.get(name) for name, held in run.held.items() if held.followed}
    if None in told.values() or not told:
        told = {**told, **_infos(run)}
        _bring_forgotten(run, told, cursor)
    stored = run.target.infos()
    changed = {name: info for name, info in told.items() if info and name in stored and stored[name] != info}
    if changed:
        run.target.note(changed)


def _bring_forgotten(run: Run, listed: Collection[str], cursor: str) -> None:
    """Bring datasets of the subscription that the target does not know at the log's end: their books were lost."""
    for name in [each for each in listed if each not in run.held and run.chooses(each)]:
        bring(run, Held(name, state="behind", position=_event_number(cursor)), CatchUp(run))
    if run.unstored():
        _store(run, cursor)


@dataclass(frozen=True)
class _Listed:
    """Chooses the step that a manifest asks for, until it was done or refused."""

    given: ManifestDataset
    cursor: int
    on_major: OnMajor

    def __call__(self, held: Held) -> Step | None:
        given = whole(self.given, ManifestDataset, "the dataset's entry in the manifest")
        step = after_manifest(held, given["version"], given["schemaVersion"], self.cursor, self.on_major)
        return step if held.position < step.through else None


# the log


class _LogSetBack(BadAnswer):
    """The log has not the event any more that the target stands at: its publisher went on from a backup."""

    def __init__(self) -> None:
        super().__init__("The log lacks the event that the manifest names: report it.", code="bad_answer")


def _follow(run: Run, cursor: str) -> str:
    """Go through the log to its end, round by round; gives the cursor that was stored last."""
    reloads, retried = 0, False
    while True:
        try:
            events, following = _read_events(run, cursor)
        except (Reload, _LogSetBack) as trouble:
            reloads += 1
            if reloads > _RELOADS_MOST:
                raise
            if isinstance(trouble, _LogSetBack):
                _forget(run)
            cursor = _load_listed(run, _read_manifest(run))
            continue
        run.downloads.reach("sync.events_read")
        if not retried:
            _retry(run, cursor)
            retried = True
        if following == cursor:
            return cursor
        _go_through(run, events)
        run.last_event = _name(events[-1]) if events else None
        _store(run, following)
        cursor = following


def _forget(run: Run) -> None:
    """Trust no version or position here: the log's new ones may have the numbers of others that were handled."""
    run.downloads.progress.line("The publisher went on from a backup: every dataset is loaded again.")
    run.held = {name: replace(held, version=None, position=0) for name, held in run.held.items()}


def _read_events(run: Run, cursor: str) -> tuple[list[Event], str]:
    """Read up to a round of events and the cursor after them; raises _LogSetBack where the log is another one."""
    events, following = _read_on(run, cursor)
    at = cursor
    while following != at and len(events) < _EVENTS_PER_ROUND:
        at = following
        more, following = _read_page(run, at)
        events += more
    return events, following


def _read_on(run: Run, cursor: str) -> tuple[list[Event], str]:
    """Read the page after a cursor together with the event at it, which has to be the one that was seen there."""
    number = _event_number(cursor)
    if number == 0:
        return _read_page(run, cursor)
    try:
        events, following = _read_page(run, event_id(number - 1))
    except Reload:  # the event at the cursor is past retention
        return _read_page(run, cursor)
    except FixRequest as refused:
        if refused.field != "cursor":
            raise
        raise _LogSetBack() from refused
    seen = _name(events.pop(0)) if events and number_of(events[0]) == number else None
    if _event_number(following) < number or run.last_event not in {None, seen}:
        raise _LogSetBack()
    if run.last_event != seen:
        run.last_event = seen
        _store(run, cursor)
    return events, following


def _seen(state: TargetState) -> str | None:
    """Tell which event a target stands at; None where its cursor was moved by hand."""
    last = state.last_event
    return last if last is not None and last.startswith(f"{state.cursor} ") else None


def _name(event: Event) -> str:
    """Name an event so that another one with its number has another name."""
    return f"{event['id']} {event.get('timestamp')} {event['type']} {event['data']['datasetId']}"


def _read_page(run: Run, cursor: str) -> tuple[list[Event], str]:
    """Read a page of the log; raises BadAnswer for a cursor that does not go on."""
    page = run.client.feeds.subscriptions.events(run.subscription_id, cursor=cursor, limit=EVENTS_PER_PAGE_MOST)
    page = whole(page, _EventsFrame, "a page of the log")
    events, following = page["events"], page["nextCursor"]
    least = _event_number(events[-1]["id"]) if events else _event_number(cursor)
    if _event_number(following) < least or (events and following == cursor):
        raise BadAnswer("The log's cursor does not go on: report it.", code="bad_answer")
    return events, following


def _event_number(cursor: str) -> int:
    number = event_number(cursor)
    if number is None:
        raise BadAnswer(f"The API gave the cursor {cursor!r}: report it.", code="bad_answer")
    return number


def _go_through(run: Run, events: Sequence[Event]) -> None:
    """Perform what a round of events asks for, dataset by dataset in the order of their first event."""
    by_dataset: dict[str, list[Event]] = {}
    for event in events:
        by_dataset.setdefault(event["data"]["datasetId"], []).append(event)
    for dataset_id, own in by_dataset.items():
        if not run.chooses(dataset_id):
            _leave_out(run, dataset_id, number_of(own[-1]), own)
            continue
        bring(run, run.of(dataset_id), _Log(own, run.on_major))
        if told := notices([event for event in own if event_trouble(event) is None]):
            run.tell(run.of(dataset_id))
            run.reports[dataset_id] = replace(run.reports[dataset_id], notices=told)


@dataclass(frozen=True)
class _Log:
    """Chooses the steps that a dataset's events ask for."""

    events: Sequence[Event]
    on_major: OnMajor

    def __call__(self, held: Held) -> Step | None:
        """Give the next step; raises BadAnswer for an event that is not what was promised."""
        troubles = (event_trouble(event) for event in self.events)
        if trouble := next((each for each in troubles if each is not None), None):
            raise BadAnswer(trouble, code="bad_answer")
        return next_step(held, self.events, self.on_major)
