"""`ploti sync`: make a database follow a subscription, and look at what it holds (D11.1, D11.9, D11.10)."""

import json as json_text
import os
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from shlex import quote as quoted
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn
from urllib.parse import quote

from cyclopts import App, Parameter

import ploti
from ploti.cli.attachments import attachments_line, attachments_wire
from ploti.cli.connect import told
from ploti.cli.progress import watching
from ploti.cli.show import AsJson, cell, counted, local_time, present, show_table, wire_time
from ploti.sync.target import TO, DatasetStatus, Say, Target, command, say_nothing
from ploti.sync.targets import open_target

if TYPE_CHECKING:
    from ploti.sync.attachments import AttachmentsReport
    from ploti.sync.loop import Repaired, SyncReport, Verified
    from ploti.sync.perform import DatasetReport

_SECRET: Final = re.compile(r"://[^/@]*:[^/@]+@|password=")
"""How a password stands in an address."""
_WORKERS = 4
"""Datasets that a first load fetches at once."""
BEHIND = 1
"""Exit code where a dataset is not up to date or a table differs from its version."""
app = App(name="sync", help="Make a database follow a subscription.")


def _several(text: str) -> Parameter:
    """Make an option that may be repeated."""
    return Parameter(negative="", show_default=False, help=text)


To = Annotated[
    str,
    Parameter(
        name="--to",
        help="The database: duckdb:///FILE, sqlite:///FILE.gpkg, parquet:///FOLDER or postgresql://USER@HOST/DATABASE.",
    ),
]
RewriteIds = Annotated[
    tuple[str, ...],
    _several(
        "A column of a table of yours that holds ids of records, like orders.permit_id: where a version replaces "
        "ids, they are rewritten together with its rows. May be repeated."
    ),
]
Wanted = Annotated[
    tuple[str, ...],
    _several("A dataset to bring, all of them unless given; may be repeated, and is to be given again at each run."),
]
Columns = Annotated[
    tuple[str, ...],
    _several(
        "The columns of a dataset that are wanted, like ds_permits=number,value; kept for later runs. May be "
        "repeated, once a dataset; ds_permits=* is all of them again."
    ),
]
Without = Annotated[
    tuple[str, ...],
    _several("The columns of a dataset that are not wanted, like ds_permits=owner; new ones come."),
]
Schema = Annotated[str | None, Parameter(name="--schema", help="The schema in a PostgreSQL database.")]


@app.default
def sync_subscription(
    subscription: str | None = None,
    *,
    to: To,
    schema: Schema = None,
    dataset: Wanted = (),
    history: Annotated[bool, Parameter(negative="")] = False,
    table_name: str | None = None,
    columns: Columns = (),
    without: Without = (),
    rewrite_ids: RewriteIds = (),
    on_major: Literal["pause", "apply"] = "pause",
    follow: Annotated[bool, Parameter(negative="")] = False,
    attachments: Path | None = None,
    json: AsJson = False,
) -> int:
    """Bring a database up to date with a subscription: one table per dataset.

    Run it as often as you like; it goes on where it was. The exit code is 1 where a dataset is not up to date.

    Parameters
    ----------
    subscription
        The subscription, like sub_8f3k2m; PLOTI_SUBSCRIPTION unless given.
    table_name
        How a new database names its tables, like county_{dataset}; {dataset}, their ids, unless given. Kept for good.
    history
        Keep every row's past from now on: in the table DATASET_history, or _history in a dataset's folder.
    on_major
        What to do with a MAJOR schema change: keep that dataset at its version, or follow it.
    follow
        Go on until stopped: wait for the next event and bring it in. With --json, a report is a line.
    attachments
        A folder that gets the attachments of the versions in the database, in a folder for each dataset.
    """
    from ploti.sync.attachments import follow_attachments
    from ploti.sync.loop import sync

    followed = _named(subscription)
    with watching(json) as progress, ploti.Client(waiting=told(progress.line)) as client:
        target = _target(to, schema, progress.line, history=history, table_name=table_name)
        files: list[AttachmentsReport] = []

        def run() -> "SyncReport":
            report = sync(
                client, followed, target, on_major=on_major, datasets=dataset, rewrite_ids=rewrite_ids,
                columns=columns, without=without, workers=_WORKERS, progress=progress,
            )  # fmt: skip
            if attachments is not None:
                files[:] = follow_attachments(client, target.state().datasets.values(), attachments, progress)
            for each in files if follow else ():
                progress.line(attachments_line(attachments_wire(each)))
            return report

        address = _address(to, schema)
        if follow:
            _follow(client, followed, run, progress.line, address, as_json=json)
        report = run()
    more = {} if attachments is None else {"attachments": [attachments_wire(each) for each in files]}
    present(_report_wire(report) | more, json, lambda wire: _show_report(wire, address))
    return BEHIND if report.behind or any(each.problem for each in files) else 0


def _named(subscription: str | None) -> str:
    """Give the subscription to follow; raises FixRequest where none is named."""
    followed = subscription or os.environ.get("PLOTI_SUBSCRIPTION")
    if followed is None or not followed.startswith("sub_"):
        raise ploti.FixRequest(
            "Name a subscription, like sub_8f3k2m, or one of status, verify, repair, resync.", code="invalid_input"
        )
    return followed


def _follow(
    client: ploti.Client, subscription: str, run: "Callable[[], SyncReport]", say: Say, address: str, *, as_json: bool
) -> NoReturn:
    """Run again and again until stopped, telling of each run that did something, and of the first."""
    from ploti.sync.follow import follow

    quiet = False
    for report in follow(client, subscription, run, say=say):
        if report.datasets or not quiet:
            if as_json:
                print(json_text.dumps(_report_wire(report)), flush=True)
            else:
                _show_report(_report_wire(report), address)
                sys.stdout.flush()
        quiet = True
    raise AssertionError("following has no end")


@app.command
def status(*, to: To, schema: Schema = None, json: AsJson = False) -> int:
    """Show what a database holds of each dataset; the exit code is 1 where one is behind.

    Parameters
    ----------
    to
        The database.
    """
    from ploti.sync.loop import following

    target = _target(to, schema)
    following(target)
    held = target.status()
    present([_status_wire(each) for each in held], json, lambda wire: _show_status(wire, _address(to, schema)))
    return BEHIND if any(each.held.behind for each in held) else 0


@app.command
def verify(*, to: To, schema: Schema = None, json: AsJson = False) -> int:
    """Compare every table with its loaded version, record by record; the exit code is 1 where one differs."""
    from ploti.sync.loop import verify as compare

    with watching(json) as progress, ploti.Client(waiting=told(progress.line)) as client:
        found = compare(client, _target(to, schema, progress.line), progress=progress)
    present([_verified_wire(each) for each in found], json, lambda wire: _show_verified(wire, _address(to, schema)))
    return 0 if all(each.equal for each in found) else BEHIND


@app.command
def repair(*datasets: str, to: To, schema: Schema = None, json: AsJson = False) -> int:
    """Put tables right where they differ from their loaded versions; the exit code is 1 where one still differs.

    Only the parts of a table that differ are read and written; equal ones stay.
    A table that is gone, or lost a column, is loaded again.

    Parameters
    ----------
    datasets
        The datasets; all of them unless given.
    """
    from ploti.sync.loop import repair as mend

    with watching(json) as progress, ploti.Client(waiting=told(progress.line)) as client:
        done = mend(client, _target(to, schema, progress.line), datasets, progress=progress)
    present([_repaired_wire(each) for each in done], json, lambda wire: _show_repaired(wire, _address(to, schema)))
    return 0 if all(each.after.equal for each in done) else BEHIND


@app.command
def resync(dataset: str, *, to: To, schema: Schema = None, rewrite_ids: RewriteIds = (), json: AsJson = False) -> None:
    """Load a dataset's current version anew, and accept its schema from now on.

    Parameters
    ----------
    dataset
        The dataset, as its table is named.
    """
    from ploti.sync.loop import resync as reload

    with watching(json) as progress, ploti.Client(waiting=told(progress.line)) as client:
        report = reload(client, _target(to, schema, progress.line), dataset, rewrite_ids=rewrite_ids, progress=progress)
    present(_dataset_wire(report), json, lambda wire: _show_datasets([wire], _address(to, schema)))


def _target(to: str, schema: str | None, say: Say = say_nothing, **more: Any) -> Target:
    """Open the target; raises FixRequest for a schema where there are none."""
    if schema is None:
        return open_target(to, say=say, **more)
    if not to.startswith("postgresql://"):
        raise ploti.FixRequest("--schema is for PostgreSQL: leave it out for this database.", code="invalid_input")
    return open_target(f"{to}{'&' if '?' in to else '?'}schema={quote(schema, safe='')}", say=say, **more)


# what is printed


def _address(to: str, schema: str | None) -> str:
    """Give the options that name a target, as they go into a shell; a password is not repeated."""
    if _SECRET.search(to):
        return TO
    return f"--to {quoted(to)}" + (f" --schema {quoted(schema)}" if schema is not None else "")


def _show_table(columns: Sequence[str], rows: list[tuple[Any, ...]], address: str) -> None:
    """Print a table; commands in it name the target."""
    full = [tuple(each.replace(TO, address) if isinstance(each, str) else each for each in row) for row in rows]
    show_table(columns, full)


def _dataset_wire(report: "DatasetReport") -> dict[str, Any]:
    moved = report.moved
    return {
        "datasetId": report.dataset_id,
        "fromVersion": report.from_version,
        "version": report.held.version,
        "schemaVersion": report.held.schema_version,
        "state": report.held.state,
        "reason": report.held.reason,
        "reloaded": report.reloaded,
        "rows": report.held.rows,
        "added": None if moved is None or report.reloaded else moved.added,
        "changed": None if moved is None or report.reloaded else moved.changed,
        "removed": None if moved is None or report.reloaded else moved.removed,
        "notices": list(report.notices),
    }


def _report_wire(report: "SyncReport") -> dict[str, Any]:
    datasets = [_dataset_wire(each) for each in report.datasets]
    return {"subscriptionId": report.subscription_id, "cursor": report.cursor, "datasets": datasets}


def _status_wire(status: DatasetStatus) -> dict[str, Any]:
    held = status.held
    return {
        "datasetId": held.dataset_id,
        "title": status.title,
        "placeId": status.place_id,
        "version": held.version,
        "schemaVersion": held.schema_version,
        "rows": held.rows,
        "loadedAt": status.loaded_at and wire_time(datetime.fromisoformat(status.loaded_at)),
        "state": held.state,
        "reason": held.reason,
        "columns": None if held.columns is None else json_text.loads(held.columns),
    }


def _verified_wire(verified: "Verified") -> dict[str, Any]:
    return {
        "datasetId": verified.dataset_id,
        "version": verified.version,
        "equal": verified.equal,
        "records": verified.records,
        "differingBuckets": list(verified.buckets),
        "problem": verified.problem,
    }


def _repaired_wire(repaired: "Repaired") -> dict[str, Any]:
    moved = repaired.moved
    return {
        **_verified_wire(repaired.after),
        "repairedBuckets": list(repaired.before.buckets) if moved is not None else [],
        "reloaded": moved is not None and repaired.before.spoilt,
        "added": None if moved is None else moved.added,
        "changed": None if moved is None else moved.changed,
        "removed": None if moved is None else moved.removed,
    }


def _show_report(report: dict[str, Any], address: str) -> None:
    if report["datasets"]:
        _show_datasets(report["datasets"], address)
    else:
        print("Everything is up to date.")
    for each in report.get("attachments", ()):
        print(attachments_line(each))


def _show_datasets(datasets: list[dict[str, Any]], address: str) -> None:
    rows = [
        (each["datasetId"], _number(each["fromVersion"]), _number(each["version"]), _moved(each), _state(each))
        for each in datasets
    ]
    _show_table(("DATASET", "FROM", "TO", "ROWS", "STATE"), rows, address)


def _number(version: int | None) -> str | None:
    return None if version is None else str(version)


def _moved(each: dict[str, Any]) -> str:
    how = "loaded" if each["fromVersion"] is None else "reloaded"
    return f"{how}, {counted(each['rows'], 'row')}" if each["reloaded"] else _counts(each)


def _counts(each: dict[str, Any]) -> str:
    if each["added"] is None:
        return "-"
    return f"+{cell(each['added'])} ~{cell(each['changed'])} -{cell(each['removed'])}"


def _state(each: dict[str, Any]) -> str:
    told = each["state"] if each["reason"] is None else f"{each['state']}: {each['reason']}"
    return "; ".join([told, *each.get("notices", ())])


def _show_status(held: list[dict[str, Any]], address: str) -> None:
    rows = [
        (
            each["datasetId"],
            each["title"],
            _number(each["version"]),
            each["schemaVersion"],
            each["rows"],
            local_time(each["loadedAt"]),
            _state(each),
        )
        for each in held
    ]
    _show_table(("DATASET", "TITLE", "VERSION", "SCHEMA", "ROWS", "LOADED", "STATE"), rows, address)


def _show_verified(found: list[dict[str, Any]], address: str) -> None:
    rows = [(each["datasetId"], _number(each["version"]), each["records"], _verdict(each)) for each in found]
    _show_table(("DATASET", "VERSION", "RECORDS", "RESULT"), rows, address)


def _show_repaired(done: list[dict[str, Any]], address: str) -> None:
    rows = [
        (
            each["datasetId"],
            _number(each["version"]),
            each["records"],
            "reloaded" if each["reloaded"] else _counts(each),
            _verdict(each),
        )
        for each in done
    ]
    _show_table(("DATASET", "VERSION", "RECORDS", "REPAIRED", "RESULT"), rows, address)


def _verdict(each: dict[str, Any]) -> str:
    if each["problem"] is not None:
        return f"not {'repaired' if each['differingBuckets'] else 'compared'}: {each['problem']}"
    if each["equal"]:
        return "equal"
    count = len(each["differingBuckets"])
    return f"differs in {count} of 1,024 parts: {command('repair', each['datasetId'])} puts it right"
