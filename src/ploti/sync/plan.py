"""What to do next for one dataset, from what is held and what the log or API says (D11).

Pure: no I/O and no clock. `next_step` reads the log (page 003), `after_manifest` a subscription manifest, `catch_up`
the version list (page 001); each gives one step, so that the loop decides again from what really happened.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from ploti.contract.events import (
    DELAYED,
    REMOVED,
    RESYNC_REQUIRED,
    SCHEMA_CHANGED,
    STALE,
    UPDATED,
    Event,
    event_number,
)
from ploti.contract.resources import CurrentVersion, Version

State = Literal["ok", "paused", "blocked", "behind", "waiting", "leaving", "left"]
"""`paused`: before a MAJOR schema change; `blocked`: by something of the user's own; `waiting`: nothing released yet;
`leaving`: refused by the API, its `removed` event is still to come; `left`: no longer followed, rows stay."""
OnMajor = Literal["pause", "apply"]


@dataclass(frozen=True)
class Held:
    """What a target holds of one dataset; `position` is the number of the last event handled for it.

    `columns` is the user's choice of columns that the rows have (`ploti.sync.columns`), None for all.
    """

    dataset_id: str
    version: int | None = None
    schema_version: str | None = None
    accepted_major: int | None = None
    state: State = "waiting"
    reason: str | None = None
    rows: int = 0
    position: int = 0
    columns: str | None = None

    @property
    def followed(self) -> bool:
        """Whether the subscription delivers the dataset, as far as the target knows."""
        return self.state not in {"leaving", "left"}

    @property
    def behind(self) -> bool:
        """Whether the rows are not where the user wants them: all but a pause before a MAJOR schema change (D11.4)."""
        return self.state in {"behind", "blocked"}


@dataclass(frozen=True)
class Load:
    """Replace the table's rows by a version's snapshot; `version` None is the current one."""

    dataset_id: str
    version: int | None
    reason: str
    through: int


@dataclass(frozen=True)
class Apply:
    """Apply the changes of a version whose previous version is the held one, new columns included."""

    dataset_id: str
    version: int
    previous_version: int
    through: int


@dataclass(frozen=True)
class Pause:
    """Keep the dataset at its version until someone accepts the new MAJOR schema (D11.4)."""

    dataset_id: str
    reason: str
    through: int


@dataclass(frozen=True)
class Leave:
    """Stop following the dataset; its rows stay."""

    dataset_id: str
    reason: str
    through: int


@dataclass(frozen=True)
class Wait:
    """Follow a dataset that has no released version yet."""

    dataset_id: str
    reason: str
    through: int


@dataclass(frozen=True)
class Pass:
    """Nothing to do for these events."""

    dataset_id: str
    reason: str
    through: int


Step = Load | Apply | Pause | Leave | Wait | Pass


def major_of(schema_version: str) -> int:
    """Give MAJOR of a `MAJOR.MINOR` schema version."""
    return int(schema_version.partition(".")[0])


def accepts(held: Held, schema_version: str | None, on_major: OnMajor) -> bool:
    """Tell whether a table may take a schema version: the same MAJOR, or any with `on_major="apply"` (D11.4)."""
    if on_major == "apply" or held.accepted_major is None or schema_version is None:
        return True
    return major_of(schema_version) == held.accepted_major


def number_of(event: Event) -> int:
    """Give an event's number; raises ValueError for a malformed id."""
    number = event_number(event["id"])
    if number is None:
        raise ValueError(f"The log gave an event with the id {event['id']!r}.")
    return number


def decide(held: Held, event: Event, on_major: OnMajor) -> Step:
    """Give the step for one event, by page 003's rules; the rules that look further ahead are `next_step`'s."""
    data, through = event["data"], number_of(event)
    dataset_id = held.dataset_id
    if through <= held.position:
        return Pass(dataset_id, "handled before", through)
    match event["type"]:
        case "feed.dataset.removed":
            return Leave(dataset_id, data["reason"], through)
        case "feed.dataset.added":
            return _join(held, data["version"], data["schemaVersion"], through, on_major)
        case "feed.dataset.updated" | "feed.dataset.resync_required" | "feed.dataset.schema_changed":
            if not held.followed:
                return Pass(dataset_id, "left the subscription", through)
            if held.version is not None and data["version"] <= held.version:
                return Pass(dataset_id, "at or below the held version", through)
            if not accepts(held, data["schemaVersion"], on_major):
                return _pause(held, data["version"], data["schemaVersion"], through)
            return _advance(held, event, through)
        case "feed.dataset.stale" | "feed.dataset.delayed":
            return Pass(dataset_id, "says nothing about rows", through)
        case unknown:
            assert_never(unknown)


def _join(held: Held, version: int | None, schema_version: str | None, through: int, on_major: OnMajor) -> Step:
    if held.followed and held.version is not None and (version is None or version <= held.version):
        return Pass(held.dataset_id, "at or below the held version", through)
    if version is None:
        return Wait(held.dataset_id, "no released version yet", through)
    if not accepts(held, schema_version, on_major):
        return _pause(held, version, schema_version or "", through)
    return Load(held.dataset_id, version, "joined the subscription", through)


def _advance(held: Held, event: Event, through: int) -> Step:
    data = event["data"]
    if event["type"] == SCHEMA_CHANGED:
        return Pass(held.dataset_id, "its version's own event brings the columns", through)
    if event["type"] == RESYNC_REQUIRED:
        return Load(held.dataset_id, data["version"], data["reason"], through)
    if data["previousVersion"] == held.version:
        return Apply(held.dataset_id, data["version"], data["previousVersion"], through)
    return Load(held.dataset_id, None, "another previous version than the held one", through)


def _pause(held: Held, version: int, schema_version: str, through: int) -> Pause:
    reason = f"version {version} has schema {schema_version}, the table follows {held.accepted_major}.x"
    return Pause(held.dataset_id, reason, through)


def next_step(held: Held, events: Sequence[Event], on_major: OnMajor) -> Step | None:
    """Give the next step for a dataset's events, oldest first; None where none is left.

    The step handles every event up to its `through`. What a later `removed` or snapshot makes moot is passed over, and
    a reload goes straight to the newest version that the events name.
    """
    events = [event for event in events if number_of(event) > held.position]
    if not events:
        return None
    left = [event for event in events if event["type"] == REMOVED]
    if left:
        return decide(held, left[-1], on_major)
    steps = _walk(held, events, on_major)
    loads = [at for at, step in enumerate(steps) if isinstance(step, Load)]
    if loads:
        return _onward(steps[loads[-1] :])
    first = next((step for step in steps if not isinstance(step, Pass)), steps[-1])
    return _cheaper(held, first, steps, events) if isinstance(first, Apply) else first


def _walk(held: Held, events: Sequence[Event], on_major: OnMajor) -> list[Step]:
    """Give the step of each event as if each before it went well, up to the first pause."""
    steps: list[Step] = []
    for event in events:
        step = decide(held, event, on_major)
        steps.append(step)
        if isinstance(step, Pause):
            break
        held = after(held, step)
    return steps


def _onward(steps: Sequence[Step]) -> Step:
    """Give the load that the steps begin with, moved on to the newest version that changes would bring it to."""
    load = steps[0]
    assert isinstance(load, Load)
    for step in steps[1:]:
        if isinstance(step, Apply):
            load = replace(load, version=step.version, through=step.through)
    return load


def _cheaper(held: Held, first: Apply, steps: Sequence[Step], events: Sequence[Event]) -> Step:
    """Give a load of the newest version where a chain of two or more brings more changes than the table has rows."""
    chain = [step for step in steps if isinstance(step, Apply)]
    brought = {number_of(event): event["data"]["counts"] for event in events if event["type"] == UPDATED}
    changes = sum(sum(brought[step.through].values()) for step in chain)
    if len(chain) > 1 and changes > held.rows:
        return Load(held.dataset_id, chain[-1].version, "cheaper than its changes", chain[-1].through)
    return first


def after(held: Held, step: Step, current: int | None = None) -> Held:
    """Give what is held once a step went well; `current` is the version that a load of the current one brought."""
    match step:
        case Load():
            version = current if step.version is None else step.version
            return replace(held, version=version, state="ok", reason=None, position=step.through)
        case Apply():
            return replace(held, version=step.version, state="ok", reason=None, position=step.through)
        case Pause():
            return replace(held, state="paused", reason=step.reason, position=step.through)
        case Leave():
            return replace(held, state="left", reason=step.reason, position=step.through)
        case Wait():
            return replace(held, state="waiting", reason=step.reason, position=step.through)
        case Pass():
            return replace(held, position=step.through)
        case unknown:
            assert_never(unknown)


def plan(held: Held, events: Sequence[Event], on_major: OnMajor = "pause", current: int | None = None) -> list[Step]:
    """Give every step for a dataset's events if each goes well; `current` as in `after`."""
    steps = []
    while (step := next_step(held, events, on_major)) is not None:
        steps.append(step)
        held = after(held, step, current)
    return steps


def after_manifest(held: Held, version: int, schema_version: str, cursor: int, on_major: OnMajor) -> Step:
    """Give the step for a dataset that a subscription manifest lists; `cursor` is the manifest's event number.

    A held version at or above the listed one stays, so that a load which was cut short goes on where it was.
    """
    if held.version is not None and held.followed and version <= held.version:
        return Pass(held.dataset_id, "at or below the held version", cursor)
    if not accepts(held, schema_version, on_major):
        return _pause(held, version, schema_version, cursor)
    return Load(held.dataset_id, version, "listed in the manifest", cursor)


def catch_up(held: Held, current: CurrentVersion | None, versions: Iterable[Version], on_major: OnMajor) -> Step:
    """Give the step for a dataset that fell behind or is paused, from its current version and those after its own.

    The chain is followed where it leads on from the held version; otherwise the newest version that the table accepts
    is loaded, which for a paused dataset is the last of its MAJOR (D11.4).
    """
    at = held.position
    if current is None:
        return Wait(held.dataset_id, "no released version yet", at)
    if held.version is not None and current["version"] <= held.version:
        return Pass(held.dataset_id, "at the current version", at)
    newer = [version for version in versions if held.version is None or version["version"] > held.version]
    taken = [version for version in newer if accepts(held, version["schemaVersion"], on_major)]
    following = next((version for version in taken if version["previousVersion"] == held.version), None)
    if held.version is not None and following is not None and not following["resyncRequired"]:
        return Apply(held.dataset_id, following["version"], held.version, at)
    if accepts(held, current["schemaVersion"], on_major):
        return Load(held.dataset_id, current["version"], "catching up with the current version", at)
    if taken:
        return Load(held.dataset_id, taken[-1]["version"], "the last version of the accepted MAJOR schema", at)
    return _pause(held, current["version"], current["schemaVersion"], at)


def notices(events: Iterable[Event]) -> tuple[str, ...]:
    """Give the lines that a person should see for a dataset's events beside its rows, oldest first.

    A hold or an overdue check that a later event ended is no news any more, nor is a hold that another one replaced.
    Replaced ids are, whatever came after.
    """
    told: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    for event in events:
        data = event["data"]
        if event["type"] == STALE:
            told += (f"the source is overdue, last read {data['lastCheckedAt'] or 'never'}",)
        elif event["type"] == DELAYED:
            told = (f"the next version is held for review ({data['reason']})",)
        else:
            told = ()
        if event["type"] == RESYNC_REQUIRED and data["reason"] == "record_ids_changed":
            replaced += (f"version {data['version']} replaced record ids; see its map, or `datasets record` for one",)
    return tuple(dict.fromkeys((*replaced, *told)))
