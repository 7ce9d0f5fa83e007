"""`ploti-server holds`: the versions that wait for a person, why, and how the waiting ends (D6.3)."""

import heapq
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import dropwhile
from typing import Annotated, Any

from cyclopts import App, Parameter

from ploti.contract.events import event_id
from ploti_server.cli.home import ports_for, ports_of
from ploti_server.cli.printing import COMMON, CommandRefused, Common, Limit, say, show
from ploti_server.domain.versions import Version, VersionStatus
from ploti_server.domain.wire import wire_schema_change, wire_time
from ploti_server.pipeline.release import discard_held, release_held
from ploti_server.pipeline.samples import sample_rows, shown_rules
from ploti_server.ports import Ports

holds = App(name="holds", help="List, show, release and discard held versions; see what subscribers were told.")
Note = Annotated[str | None, Parameter(help="Why, kept with the version.")]
WHY = {
    "breaking_schema": "{measured}",
    "zero_rows": "no row, where there were {previous_rows}",
    "row_drop": "rows down by {measured}, from {previous_rows} to {rows}; the limit is {limit}",
    "turnover": "{measured} of the records would have another id; the limit is {limit}",
    "duplicate_key": "rows that share their key: {measured}",
    "null_key": "rows with a null in their key: {measured}",
    "rejects": "{measured} of the rows lost a cell or shape, were short, or could not be decoded; the limit is {limit}",
    "missing_rows": "rows that could not be decoded: {measured}, and records would be removed",
    "null_rise": "nulls in {column} up by {measured} of the rows; the limit is {limit}",
    "geometry_loss": "rows without a shape up by {measured} of all; the limit is {limit}",
    "none_compared": "the version before was released again or is lost, and nothing could be compared with its"
    " {measured} records: every record would get a new id; if files are lost, put them back from a backup and check"
    " again",
    "ledger_lost": "the part of the id ledger that came with version {measured} is lost: records removed up to then"
    " that return, and all whose last version is lost too, would get new ids; put its folder back from a backup and"
    " check again",
    "agent_silent": "the matching agent was asked twice and did not answer",
}
"""What each rule found, in words."""

SAMPLES = {
    "breaking_schema": "with what changed columns held before",
    "zero_rows": "that are gone",
    "row_drop": "that are gone",
    "turnover": "that are gone",
    "duplicate_key": "that share their key",
    "null_key": "without a whole key",
    "rejects": "that were broken",
    "missing_rows": "that could not be decoded",
    "null_rise": "with a null there",
    "geometry_loss": "without a shape",
}
"""Which rows are shown for each rule; of the others any."""

SHARES = ("row_drop", "turnover", "rejects", "null_rise", "geometry_loss")
MEASURED = (
    "rows",
    "previous_rows",
    "added",
    "changed",
    "removed",
    "duplicate_keys",
    "null_keys",
    "rejected_rows",
    "missing_rows",
)


@holds.command(name="list")
def list_holds(*, common: Common = COMMON) -> int:
    """List the held versions of all datasets."""
    with ports_of(common).store.read() as records:
        held = records.versions.in_status(None, [VersionStatus.HELD])
    show(common, [_row(version) for version in held], "holds")
    return 0


@holds.command(name="show")
def show_hold(dataset: str, *, common: Common = COMMON) -> int:
    """Show why a dataset's version is held: facts, limits, the columns that changed, sample rows."""
    ports = ports_for(common, dataset)
    version = _held(ports, dataset)
    key_before = _key_of(ports, dataset, version.base)
    samples, lost = _samples(ports, version)
    shown = _row(version) | {
        "facts": {name: version.facts[name] for name in MEASURED if name in version.facts},
        "holds": version.facts["holds"],
        "schemaChange": version.schema_change and wire_schema_change(version.schema_change),
        "sampleRows": samples[0] if samples else [],
        "schemaSampleRows": samples[1] if len(samples) > 1 else [],
        "noSampleRows": lost,
        "agreeingChecks": version.agreeing_checks,
        "releasedAfterAgreeingChecks": _wanted(ports, dataset),
        "told": told_about(ports, dataset, version.built_at),
    }
    if common.as_json:
        show(common, shown)
        return 0
    change = shown.pop("schemaChange")
    del shown["sampleRows"], shown["schemaSampleRows"], shown["noSampleRows"]
    rules, facts, told = shown.pop("holds"), shown.pop("facts"), shown.pop("told")
    show(common, shown | facts)
    say("")
    show(common, [why_held(rule, version.facts) for rule in rules], "rules")
    if change:
        say("")
        show(common, changed_columns(change, key_before, version.schema.key_columns), "changed columns")
    if lost:
        say(f"\n{lost}")
    for rule, rows in zip(shown_rules(version.facts["holds"]), samples, strict=False):
        say(f"\nsample rows {SAMPLES.get(rule['rule'], '')}".rstrip())
        show(common, rows, "sample rows", whole=True)
    say("\ntold to subscribers; while it is delayed, `version` is the one that they have")
    show(common, told, "events")
    if version.facts.get("pairs"):
        say(f"\njudge its records by hand: ploti-server judge show {dataset} --all")
    say(f"\nrelease it: ploti-server holds release {dataset}    drop it: ploti-server holds discard {dataset}")
    return 0


def _samples(ports: Ports, version: Version) -> tuple[list[list[dict[str, Any]]], str | None]:
    """Give a hold's sample rows for each rule shown, or why there are none: files that they need may be lost."""
    try:
        found = [sample_rows(ports, version, about=rule) for rule in shown_rules(version.facts["holds"])]
        return [[_printable(row) for row in rows] for rows in found], None
    except FileNotFoundError as lost:
        return [], f"no sample rows: files that they are read from are lost ({lost})"


@holds.command(name="told")
def show_told(
    dataset: str,
    *,
    limit: Annotated[Limit, Parameter(help="Of each subscription, its newest events.")] = 20,
    common: Common = COMMON,
) -> int:
    """Show what every subscription was told about a dataset."""
    show(common, told_about(ports_for(common, dataset), dataset, None, limit), "events")
    return 0


@holds.command
def release(dataset: str, *, note: Note = None, common: Common = COMMON) -> int:
    """Release a dataset's held version to its subscribers."""
    version = release_held(ports_for(common, dataset), dataset, note)
    show(common, {"dataset": dataset, "version": version.number, "outcome": "released"})
    return 0


@holds.command
def discard(dataset: str, *, note: Note = None, common: Common = COMMON) -> int:
    """Discard a dataset's held version; subscribers keep the one they have."""
    version = discard_held(ports_for(common, dataset), dataset, note)
    show(common, {"dataset": dataset, "version": version.number, "outcome": "discarded"})
    return 0


def told_about(ports: Ports, dataset: str, since: datetime | None, limit: int = 20) -> list[dict[str, Any]]:
    """List the events about a dataset in all logs: each log in its own order, between them by time."""
    with ports.store.read() as records:
        logs = [records.events.about(one.id, dataset, limit) for one in records.subscriptions.all()]
    late = [dropwhile(lambda event: since is not None and event.timestamp < since, log) for log in logs]
    return [
        {
            "at": wire_time(event.timestamp),
            "subscription": event.subscription_id,
            "event": event_id(event.number),
            "type": event.type,
            "version": event.data.get("version"),
            "reason": event.data.get("reason"),
        }
        for event in heapq.merge(*late, key=lambda one: one.timestamp)
    ]


def _wanted(ports: Ports, dataset: str) -> int | None:
    with ports.store.read() as records:
        found = records.catalog.dataset(dataset)
    return found.review.release_after_agreeing_checks if found else None


def _key_of(ports: Ports, dataset: str, number: int | None) -> tuple[str, ...]:
    if number is None:
        return ()
    with ports.store.read() as records:
        version = records.versions.get(dataset, number)
    return version.schema.key_columns if version else ()


def _held(ports: Ports, dataset: str) -> Version:
    with ports.store.read() as records:
        held = records.versions.in_status(dataset, [VersionStatus.HELD])
        waiting = records.versions.in_status(dataset, [VersionStatus.WAITING])
    if waiting and not held:
        raise CommandRefused(
            f"version {waiting[0].number} of {dataset} is not held, it waits for its records to be judged: "
            f"see `ploti-server judge show {dataset}`"
        )
    if not held:
        raise CommandRefused(f"no version of {dataset} is held: see `ploti-server holds list`")
    return held[-1]


def _row(version: Version) -> dict[str, Any]:
    return {
        "dataset": version.dataset_id,
        "version": version.number,
        "reason": version.reasons[0],
        "reasons": list(version.reasons),
        "since": version.built_at and wire_time(version.built_at),
        "current": version.base,
    }


def why_held(rule: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Tell in words what a rule measured, beside its name."""
    numbers = {name: _share(rule[name]) if rule["rule"] in SHARES else rule[name] for name in ("measured", "limit")}
    why = WHY[rule["rule"]].format(**{**facts, **rule, **numbers})
    return {"reason": rule["reason"], "rule": rule["rule"], "why": why}


def _share(number: float) -> str:
    return f"{number * 100:.3g} %"


def changed_columns(change: Any, key_before: Sequence[str], key_now: Sequence[str]) -> list[dict[str, Any]]:
    """Give a schema change on the wire as a row for each column, and one for the key."""
    rows = [{"column": c["name"], "change": "added", "from": None, "to": c["type"]} for c in change["added"]]
    rows += [{"column": name, "change": "removed", "from": None, "to": None} for name in change["removed"]]
    rows += [{"column": r["name"], "change": "retyped", "from": r["from"], "to": r["to"]} for r in change["retyped"]]
    rows += [
        {"column": n["name"], "change": "has nulls now", "from": None, "to": None} for n in change["nullabilityChanged"]
    ]
    if change["keyColumnsChanged"]:
        rows.append({"column": "(the key)", "change": "changed", "from": list(key_before), "to": list(key_now)})
    return rows


def _printable(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
        for name, value in row.items()
    }
