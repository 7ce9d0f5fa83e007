"""Looking at rows without a pipeline: `head` and `export` of a dataset, `diff` of two versions, `ploti changes`."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from cyclopts import Parameter, validators

from ploti.cli.connect import connect
from ploti.cli.lists import TABLE, Output
from ploti.cli.progress import watching
from ploti.cli.show import (
    AsJson,
    Names,
    Raw,
    cell,
    counted,
    moment,
    present,
    show_csv,
    show_facts,
    show_table,
    split_names,
    wire_time,
)
from ploti.contract.files import ENVELOPE, RECORD_ID
from ploti.contract.resources import Dataset, Schema, Version
from ploti.errors import FixRequest
from ploti.look.changed import Changed, changes_since, key_values, since_when
from ploti.look.diff import Columns, Compared, Difference, Pair, diff
from ploti.look.rows import FirstRows, Format, export, head
from ploti.look.view import Record

SHOWN: Final = 100
"""Records that people are shown unless they ask for more."""
_CELL: Final = 60
_COLUMNS: Final = 12
"""Columns that people are told of a schema change; programs get all."""
_COUNT: Final = validators.Number(gte=0)
Limit = Annotated[
    int | None, Parameter(validator=_COUNT, help=f"Records to show; {SHOWN} unless given, all for programs.")
]


def head_of(
    dataset: str,
    /,
    *,
    version: int | None = None,
    rows: Annotated[int, Parameter(validator=_COUNT)] = 10,
    out: Output = TABLE,
) -> None:
    """Show the first rows of a dataset.

    Parameters
    ----------
    dataset
        Id of the dataset.
    version
        As of this version instead of the current one.
    rows
        How many.
    """
    with connect() as client, watching(not out.for_people) as progress:
        progress.began(dataset, "rows", 0)
        found = head(client, dataset, version, rows=rows, progress=progress.moved)
        progress.ended()
    if out.csv:
        names = [*ENVELOPE, *(column["name"] for column in found.schema["columns"])]
        show_csv(names, ([row[name] for name in names] for row in found.rows), out.raw)
        return
    answer = {"datasetId": found.dataset_id, "version": found.version, "rows": found.rows}
    present(answer, out.json, lambda _: _show_head(found))


def _show_head(found: FirstRows) -> None:
    names = [RECORD_ID, *(column["name"] for column in found.schema["columns"])]
    show_table(names, [[_short(row[name]) for name in names] for row in found.rows])


def export_to(
    dataset: str,
    /,
    *,
    to: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    version: int | None = None,
    format: Format | None = None,  # noqa: A002  # the option's name
    columns: Names = None,
    raw: Raw = False,
    json: AsJson = False,
) -> None:
    """Write a dataset into one file: CSV, GeoJSON, GeoPackage or GeoParquet.

    The file appears whole or not at all, in the place of an earlier one. CSV, GeoJSON and Parquet can go to standard
    output as well.

    Parameters
    ----------
    dataset
        Id of the dataset.
    to
        The file, or - for standard output; its ending says the format: .csv, .geojson, .gpkg, .parquet.
    version
        As of this version instead of the current one.
    format
        The format, for a file with another ending; CSV on standard output unless given.
    columns
        Only these columns and the record id, with commas between.
    """
    piped = str(to) == "-"
    if piped and json:
        raise FixRequest("--json tells of a file: leave it out with --to -.", code="invalid_input", field="json")
    with connect() as client, watching(json) as progress, TemporaryDirectory(prefix="ploti-") as folder:
        progress.began(dataset, "rows", 0)
        done = export(
            client, dataset, Path(folder, "out") if piped else to, version,
            format=format or ("csv" if piped else None), columns=split_names(columns), raw=raw, progress=progress.moved,
        )  # fmt: skip
        progress.ended()
        if piped:
            with done.path.open("rb") as made:
                copyfileobj(made, sys.stdout.buffer)
            return
    answer = {
        "datasetId": done.dataset_id,
        "version": done.version,
        "path": str(done.path),
        "format": done.format,
        "rows": done.rows,
    }
    told = f"Wrote {counted(done.rows, 'row')} of {dataset}, version {done.version}, to {done.path}."
    present(answer, json, lambda _: print(told))


def diff_versions(
    dataset: str,
    old: int,
    new: int,
    /,
    *,
    limit: Limit = None,
    out: Output = TABLE,
) -> None:
    """Show what differs between two versions, old and new values side by side.

    Any two versions can be compared, however many lie between; records keep their rows where ids were replaced.

    Parameters
    ----------
    dataset
        Id of the dataset.
    old
        The older version.
    new
        The newer version.
    """
    most = limit if limit is not None or not out.for_people else SHOWN
    with connect() as client, watching(not out.for_people) as progress:
        progress.began(dataset, "rows", 0)
        found = diff(client, dataset, old, new, limit=most, progress=progress.moved)
        progress.ended()
    if out.csv:
        show_csv(("record_id", "change", "column", "old", "new"), _value_rows(found.records), out.raw)
        return
    answer = {
        "datasetId": dataset,
        "oldVersion": old,
        "newVersion": new,
        "counts": found.counts,
        "idsReplaced": found.replaced,
        "columns": _columns_wire(found.columns),
        "records": [_difference_wire(each) for each in found.records],
    }
    present(answer, out.json, lambda _: _show_diff(found))


def _columns_wire(columns: Columns) -> dict[str, Any]:
    return {
        "added": columns.added,
        "removed": columns.removed,
        "retyped": {name: _pair_wire(pair) for name, pair in columns.retyped.items()},
        "movedInEveryRow": {name: _pair_wire(pair) for name, pair in columns.moved.items()},
    }


def _pair_wire(pair: Pair) -> dict[str, Any]:
    return {"old": pair.old, "new": pair.new}


def _difference_wire(each: Difference) -> dict[str, Any]:
    values = {name: _pair_wire(pair) for name, pair in each.values.items()}
    return {"recordId": each.record_id, "previousRecordId": each.previous_id, "change": each.change, "values": values}


def _value_rows(records: Iterable[Difference]) -> Iterator[tuple[object, ...]]:
    for each in records:
        for name, pair in each.values.items():
            yield each.record_id, each.change, name, pair.old, pair.new


def _show_diff(found: Compared) -> None:
    columns = found.columns
    moved = [f"{name} from {_short(pair.old)} to {_short(pair.new)}" for name, pair in columns.moved.items()]
    retyped = [f"{name} from {pair.old} to {pair.new}" for name, pair in columns.retyped.items()]
    told = {"columns added": columns.added, "columns removed": columns.removed, "retyped": retyped}
    facts = {**found.counts, "ids replaced": found.replaced or [], **told, "moved in every row": moved}
    show_facts({name: value for name, value in facts.items() if value != []})
    if found.records:
        print()
        rows = [row for each in found.records for row in _shown_difference(each, found.key_columns)]
        show_table(("RECORD", "CHANGE", "COLUMN", "OLD", "NEW"), rows)
    _show_rest(sum(found.counts.values()), len(found.records))


def _shown_difference(each: Difference, keys: Sequence[str]) -> Iterator[tuple[object, ...]]:
    """Give a line for each value that changed, one line for a record that came or went."""
    label = _short(key_values(each.record, keys) or each.record_id)
    if each.change == "changed":
        for name, pair in each.values.items():
            yield label, each.change, name, _short(pair.old), _short(pair.new)
        return
    whole = _whole_record(each.record)
    yield (label, each.change, None, *((whole, None) if each.change == "removed" else (None, whole)))


def _whole_record(record: Record, without: Sequence[str] = ()) -> object:
    """Tell what a record holds in one cell."""
    told = (str(value) for name, value in record.items() if value is not None and name not in without)
    return _short(", ".join(told))


def show_changes(
    subscription: str,
    /,
    *,
    since: str,
    place: str | None = None,
    topic: str | None = None,
    ids_only: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    limit: Limit = None,
    out: Output = TABLE,
) -> None:
    """Show what changed in all datasets of a subscription since a moment.

    Parameters
    ----------
    subscription
        Id of the subscription.
    since
        A date, a time or how long ago, like 2026-10-18, 2026-10-18T06:00Z or 7d.
    place
        Only datasets in this place.
    topic
        Only datasets of this topic.
    ids_only
        Name removed records by their ids alone, which saves reading a snapshot of each dataset that lost some.
    """
    start = since_when(since, datetime.now(UTC))
    with connect() as client, watching(not out.for_people) as progress:
        progress.began(subscription, "changes", 0)
        opened = changes_since(
            client, subscription, start, place=place, topic=topic, last=not ids_only, progress=progress.moved
        )
        with opened as changes:
            if out.csv:
                show_csv(_CHANGE_COLUMNS, map(_change_row, islice(changes, limit)), out.raw)
                return
            summed = _Summed(changes.newest)
            most = limit if limit is not None or out.json else SHOWN
            kept = [each for at, each in enumerate(map(summed.taken, changes)) if most is None or at < most]
        progress.ended()
    answer = {
        "subscriptionId": subscription,
        "since": wire_time(start),
        "datasets": summed.wire(),
        "changes": [_change_wire(each) for each in kept],
    }
    present(answer, out.json, lambda _: _show_changes(summed, kept))


_CHANGE_COLUMNS: Final = (
    "dataset_id",
    "title",
    "place_id",
    "topic",
    "version",
    "released_at",
    "change",
    "record_id",
    "previous_record_id",
    "changed_columns",
    "rows",
    "record",
    "schema_version",
    "schema_change",
)


_CHANGE_MEMBERS: Final = (
    "datasetId", "title", "placeId", "topic", "version", "publishedAt", "change", "recordId", "previousRecordId",
    "changedColumns", "rows", "record", "schemaVersion", "schemaChange",
)  # fmt: skip
"""The same as members of what is printed as JSON."""


def _change_wire(each: Changed) -> dict[str, Any]:
    return {
        "datasetId": each.dataset["id"],
        "title": each.dataset["title"],
        "placeId": each.dataset["place"]["id"],
        "topic": each.dataset["topic"],
        "version": each.version["version"],
        "publishedAt": each.version["publishedAt"],
        "change": each.change,
        "recordId": each.record_id,
        "previousRecordId": each.previous_id,
        "changedColumns": list(each.columns),
        "record": each.record,
        "rows": each.rows,
        "schemaVersion": (each.schema or each.version)["schemaVersion"],
        "schemaChange": each.schema["changeFromPrevious"] if each.schema is not None else None,
    }


def _change_row(each: Changed) -> tuple[object, ...]:
    wire = _change_wire(each) | {"changedColumns": " ".join(each.columns)}
    return tuple(wire[name] for name in _CHANGE_MEMBERS)


class _Summed:
    """Counts changes by dataset as they pass; a dataset whose newest version changed nothing here counts none."""

    def __init__(self, newest: Iterable[tuple[Dataset, Version]]) -> None:
        self.total = 0
        self._by_dataset: dict[str, dict[str, Any]] = {
            dataset["id"]: {
                "datasetId": dataset["id"],
                "title": dataset["title"],
                "version": version["version"],
                "schemaVersion": version["schemaVersion"],
                "added": 0,
                "changed": 0,
                "removed": 0,
                "first": False,
                "reloaded": False,
                "idsReplaced": 0,
                "schemaChanges": 0,
            }
            for dataset, version in newest
        }

    def taken(self, each: Changed) -> Changed:
        """Count one and pass it on."""
        of = self._by_dataset[each.dataset["id"]]
        match each.change:
            case "ids_replaced":
                of["idsReplaced"] += each.rows
            case "schema_changed":
                of["schemaChanges"] += 1
            case "first" | "reloaded":
                of[each.change] = True
            case _:
                of[each.change] += 1
        self.total += 1
        return each

    def wire(self) -> list[dict[str, Any]]:
        """Give the counts of each dataset."""
        return list(self._by_dataset.values())


def _show_changes(summed: _Summed, kept: list[Changed]) -> None:
    datasets = summed.wire()
    if not datasets:
        print("Nothing changed.")
        return
    names = ("schemaVersion", "added", "changed", "removed")
    rows = [
        (each["datasetId"], each["title"], str(each["version"]), *(each[name] for name in names), _whole(each))
        for each in datasets
    ]
    show_table(("DATASET", "TITLE", "VERSION", "SCHEMA", "ADDED", "CHANGED", "REMOVED", "LOADED"), rows)
    if kept:
        print()
        show_table(("RELEASED", "DATASET", "CHANGE", "RECORD", "WHAT"), map(_shown_change, kept))
    _show_rest(summed.total, len(kept))


def _whole(summed: dict[str, Any]) -> list[str]:
    """Tell of versions that came whole."""
    told = (("first version", summed["first"]), ("whole again", summed["reloaded"]))
    return [words for words, there in told if there]


def _shown_change(each: Changed) -> tuple[object, ...]:
    what: object = list(each.columns)
    if each.schema is not None:
        what = _schema_told(each.schema)
    elif each.rows is not None:
        what = counted(each.rows, "row")
    elif each.record is not None and each.change != "changed":
        what = _whole_record(each.record, each.dataset["keyColumns"])
    released, change = moment(each.version["publishedAt"]), each.change.replace("_", " ")
    return released, each.dataset["id"], change, _short(each.label), what


def _schema_told(schema: Schema) -> str:
    """Tell what a version changed in the schema."""
    change = schema["changeFromPrevious"]
    if change is None:
        return f"schema {schema['schemaVersion']}"
    told = [f"{column['name']} added" for column in change["added"]]
    told += [f"{name} removed" for name in change["removed"]]
    told += [f"{column['name']} from {column['from']} to {column['to']}" for column in change["retyped"]]
    told += [f"{column['name']} may be empty" for column in change["nullabilityChanged"] if column["to"]]
    if change["keyColumnsChanged"]:
        told.append(f"key {' '.join(schema['keyColumns'])}" if schema["keyColumns"] else "no key")
    if len(told) > _COLUMNS:
        told[_COLUMNS:] = [f"{len(told) - _COLUMNS:,} more"]
    return f"schema {schema['schemaVersion']} after {change['previousSchemaVersion']}: {', '.join(told)}"


def _show_rest(total: int, shown: int) -> None:
    if total > shown:
        print(f"\n{cell(total - shown)} more: add --limit, --json or --csv.")


def _short(value: object) -> object:
    """Cut a long text for a table."""
    if isinstance(value, float):
        return f"{value:,.10g}"
    if isinstance(value, str) and len(value) > _CELL:
        return f"{value[: _CELL - 1]}…"
    return value
