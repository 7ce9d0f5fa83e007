"""`ploti-server check` and `work`: states in, versions out."""

import signal
import tempfile
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from ploti_server import worker
from ploti_server.cli.home import ports_of
from ploti_server.cli.printing import COMMON, Common, WrongUsage, as_text, counted, read_moment, say, show
from ploti_server.cli.rehearse import rehearse_check
from ploti_server.domain.checks import Check
from ploti_server.pipeline.check import GivenState, own_state, take_own_state, take_state
from ploti_server.pipeline.deliver import deliver_due
from ploti_server.pipeline.history import history_states
from ploti_server.pipeline.schedule import due_datasets, take_due
from ploti_server.pipeline.tell import tell_operator
from ploti_server.ports import Ports

BEHIND: Final = "an earlier version waits for its matching agent; this state is built next"


def check(
    dataset: str | None = None,
    *,
    state: Annotated[Path | None, Parameter(help="A file with the state, instead of the source itself.")] = None,
    history: Annotated[
        str | None, Parameter(help="A folder of numbered states, or REPO:PATH of a file in a git repository.")
    ] = None,
    at: Annotated[str | None, Parameter(help="When the state was read, like 2026-10-18T06:00:00Z.")] = None,
    all_due: Annotated[bool, Parameter(name="--all-due", negative="", help="Check every dataset that is due.")] = False,
    dry_run: Annotated[
        bool, Parameter(name="--dry-run", negative="", help="Show what the state would change; write nothing.")
    ] = False,
    common: Common = COMMON,
) -> int:
    """Read a state of a dataset's source and build its next version; exit code 1 where one could not be read."""
    _require_one_way(dataset, state, history, at, all_due=all_due)
    ports = ports_of(common)
    if dry_run:
        if history:
            raise WrongUsage("--dry-run shows one state: leave out --history")
        return _rehearse(ports, dataset, state, at, common)
    told, stopped = [], False
    with tempfile.TemporaryDirectory() as scratch:
        taken: Iterator[tuple[Check, GivenState | None]]
        if dataset is None:
            taken = ((take_due(ports, due), None) for due in due_datasets(ports))
        elif history is not None:
            taken = ((take_state(ports, dataset, past), past) for past in _past(ports, dataset, history, Path(scratch)))
        elif state is None:
            taken = iter([(take_own_state(ports, dataset, _moment(ports, at)), own_state(ports, dataset, None))])
        else:
            given_one = GivenState(state, _moment(ports, at))
            taken = iter([(take_state(ports, dataset, given_one), given_one)])
        for queued, given in taken:
            done = worker.work_through(ports, worker.new_owner(), queued.id)
            told.append(told_check(done))
            if not common.as_json:
                say_check(done, given)
            stopped = history is not None and done.outcome in ("waiting", None)
            if stopped:  # the next states would take each other's place (D4.9)
                break
    tell_operator(ports)
    if common.as_json:
        show(common, told if history or all_due else told[0])
    elif not told:
        say("nothing is due")
    if stopped and not common.as_json:
        say("the history stops here: give the states after this one when its version is judged")
    return 1 if stopped or any(one["outcome"] == "failed" for one in told) else 0


def work(
    *,
    once: Annotated[
        bool, Parameter(name="--once", negative="", help="Build, send and tell only what is queued now, then stop.")
    ] = False,
    common: Common = COMMON,
) -> int:
    """Do the due work until stopped; exit code 1 where `--once` a build failed."""
    ports = ports_of(common)
    if once:
        return _work_once(ports, common)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    worker.run(ports, stop)
    return 0


def _work_once(ports: Ports, common: Common) -> int:
    owner = worker.new_owner()
    told = []
    while (done := worker.work_one(ports, owner)) is not None:
        told.append(told_check(done))
        if not common.as_json:
            say_check(done, None)
    deliver_due(ports, owner)
    tell_operator(ports)
    if common.as_json:
        show(common, told)
    elif not told:
        say("no build is due")
    return 1 if any(one["outcome"] == "failed" for one in told) else 0


def tell_check(done: Check, common: Common) -> int:
    """Print what became of a check; gives the exit code."""
    show(common, told_check(done)) if common.as_json else say_check(done, None)
    return 1 if done.outcome == "failed" else 0


def _rehearse(ports: Ports, dataset: str | None, state: Path | None, at: str | None, common: Common) -> int:
    if dataset is None:
        raise WrongUsage("--dry-run shows one state: name a dataset")
    when = _moment(ports, at)
    given = own_state(ports, dataset, when) if state is None else GivenState(state, when)
    return rehearse_check(ports, dataset, given, common)


def _moment(ports: Ports, at: str | None) -> datetime | None:
    when = read_moment(at)
    if when is not None and when > ports.clock.now():
        raise WrongUsage(f"--at: {at} is in the future: give the time when the state was read, or leave it out")
    return when


def _require_one_way(
    dataset: str | None, state: Path | None, history: str | None, at: str | None, *, all_due: bool
) -> None:
    if all_due == (dataset is not None):
        raise WrongUsage("name one dataset, or give --all-due")
    if all_due and (state or history or at):
        raise WrongUsage("--all-due reads the sources themselves: leave out --state, --history and --at")
    if history and (state or at):
        raise WrongUsage("--history brings its own states and times: leave out --state and --at")


def _past(ports: Ports, dataset: str, history: str, scratch: Path) -> Iterator[GivenState]:
    with ports.store.read() as records:
        last = records.catalog.refresh(dataset).last_checked_at
    yield from history_states(history, last, scratch, ports.clock.now())


def told_check(done: Check) -> dict[str, Any]:
    """Give the JSON form of what became of a check (D13.3)."""
    return {
        "dataset": done.dataset_id,
        "outcome": done.outcome or "waiting",
        "version": done.version,
        "reason": done.reason if done.outcome else BEHIND,
        "facts": done.facts,
    }


def say_check(done: Check, given: GivenState | None) -> None:
    """Print what became of a check; below it the catalog's names that the state lacks (D2.9), and files not copied."""
    say(as_text(check_line(done, given)))
    if names := done.facts.get("misnamed"):
        say(f"{done.dataset_id}: the catalog names columns that the state lacks: {as_text(names)}")
    if done.outcome in ("released", "held"):
        for name, why in done.facts.get("left_out_because", {}).items():
            say(f"{done.dataset_id}: not copied: {as_text(name)}: {as_text(why)}")


def check_line(done: Check, given: GivenState | None) -> str:
    """Write what became of a check as a line for a person."""
    named = f"{done.dataset_id} {given.file.name}: " if given else f"{done.dataset_id}: "
    facts = done.facts
    match done.outcome:
        case "released" | "held":
            rows = f"{counted(facts['rows'], 'row')}, +{facts['added']} ~{facts['changed']} -{facts['removed']}"
            held = (
                f" ({done.reason}; see `ploti-server holds show {done.dataset_id}`)" if done.outcome == "held" else ""
            )
            replaced = f", {counted(facts['replaced'], 'id')} replaced" if facts.get("replaced") else ""
            left_out = f", {counted(facts['left_out'], 'file')} not copied" if facts.get("left_out") else ""
            return f"{named}{done.outcome} version {done.version}, {rows}{replaced}{left_out}{held}"
        case "failed":
            return f"{named}failed: {done.reason}"
        case "waiting":
            judged = f"{facts['judged']} of {facts['pairs']} pairs judged"
            return f"{named}waiting for its matching agent, {judged} (see `ploti-server judge show {done.dataset_id}`)"
        case None:
            return f"{named}waiting: {BEHIND}"
        case _:
            why = done.reason or _same_as(done)
            return f"{named}{done.outcome}{f': {why}' if why else ''}"


def _same_as(done: Check) -> str | None:
    """Tell which version that was never sent a state would only build again (D5.1)."""
    if "open" not in done.facts:
        return None
    number, status = done.facts["open"]["version"], done.facts["open"]["status"]
    see = f"see `ploti-server holds show {done.dataset_id}`" if status == "held" else "a state that differs is built"
    return f"the same as version {number}, which {'is' if status == 'held' else 'was'} {status}; {see}"
