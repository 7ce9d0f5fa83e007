"""`ploti-server ids`: what became of record ids, and replacing them (D4.12)."""

import csv
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from ploti_server.cli.acts import Later, work_acts
from ploti_server.cli.home import ports_for
from ploti_server.cli.printing import COMMON, CommandRefused, Common, WrongUsage, say, show
from ploti_server.domain.identity import key_values
from ploti_server.domain.replacements import Replacement
from ploti_server.pipeline.act import replace_ids
from ploti_server.pipeline.revisit import Find, revisit
from ploti_server.pipeline.trace import Entry, Traced, trace

ids = App(name="ids", help="Show what became of record ids, and replace them.")
PREFIX = "rec_"

Key = Annotated[
    list[str],
    Parameter(negative="", help="A column that new ids are made from, instead of key or content; once for each."),
]
MapFile = Annotated[
    Path | None,
    Parameter(name="--map", help="A CSV file of ids: the one that a record has, the one that it gets, empty for new."),
]


@ids.command(name="show")
def show_id(dataset: str, record_id: str, *, common: Common = COMMON) -> int:
    """Show what became of a record id, and every version that touched it."""
    ports = ports_for(common, dataset)
    traced = trace(ports, dataset, record_id)
    if traced is None:
        raise CommandRefused(f"no record of {dataset} ever carried {record_id}")
    shown = _shown(dataset, traced)
    if common.as_json:
        show(common, shown | {"history": [_entry(entry) for entry in traced.history]})
        return 0
    show(common, shown)
    say("")
    show(common, [_entry(entry) for entry in traced.history], "history")
    return 0


@ids.command
def replace(
    dataset: str,
    *,
    key: Key | None = None,
    map_file: MapFile = None,
    note: Annotated[str | None, Parameter(help="Why, kept with a held version that gives way.")] = None,
    later: Later = False,
    common: Common = COMMON,
) -> int:
    """Replace all record ids of a dataset, or those that a map names; subscribers reload and get an id map."""
    if key and map_file:
        raise WrongUsage("--key makes all ids anew, --map names some: give one of them")
    ports = ports_for(common, dataset)
    named = None if map_file is None else read_map(map_file)
    queued = replace_ids(ports, dataset, Replacement(named, tuple(key or ())), note)
    return work_acts(ports, queued, common, later=later)


@ids.command
def find(
    dataset: str,
    *,
    dry_run: Annotated[
        bool, Parameter(name="--dry-run", negative="", help="Show what was found and change nothing.")
    ] = False,
    note: Annotated[str | None, Parameter(help="Why, kept with a held version that gives way.")] = None,
    later: Later = False,
    common: Common = COMMON,
) -> int:
    """Ask the matching agent about records that went while others came, and join what is one record after all.

    Such a record takes its first id back; subscribers reload and get an id map.
    """
    ports = ports_for(common, dataset)
    finds = revisit(ports, dataset)
    found = [_find(one) for one in finds]
    if not finds or dry_run:
        show(common, {"dataset": dataset, "found": found} if common.as_json else found, "late finds")
        return 0
    named: dict[str, str | None] = {one.record_id: one.old_id for one in finds}
    queued = replace_ids(ports, dataset, Replacement(named, by="agent"), note)
    if not common.as_json:
        show(common, found)
        say("")
    return work_acts(ports, queued, common, later=later, told={"found": found})


def _find(one: Find) -> dict[str, Any]:
    return {
        "version": one.version,
        "recordId": one.record_id,
        "becomes": one.old_id,
        "confidence": round(one.confidence, 4),
        "explanation": one.explanation,
    }


def read_map(file: Path) -> dict[str, str | None]:
    """Read a map of ids from CSV: a first line that names the columns is passed over; raises `CommandRefused`."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            lines = [(number, [cell.strip() for cell in row]) for number, row in enumerate(csv.reader(text), 1)]
    except OSError as error:
        raise CommandRefused(f"cannot read the map {file}: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise CommandRefused(f"{file} is no CSV file in UTF-8: {error}") from error
    named: dict[str, str | None] = {}
    for number, cells in lines:
        if not any(cells) or (number == 1 and not cells[0].startswith(PREFIX)):
            continue
        if len(cells) != 2:
            raise CommandRefused(f"{file}, line {number}: two cells are needed, the old id and the new one or nothing")
        if cells[0] in named:
            raise CommandRefused(f"{file}, line {number}: {cells[0]} is named twice")
        named[cells[0]] = cells[1] or None
    return named


def _shown(dataset: str, traced: Traced) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "recordId": traced.record_id,
        "status": traced.wire_status,
        "firstVersion": traced.first_version,
        "lastVersion": traced.last_version,
        "replacedBy": traced.replaced_by,
        "currentId": traced.current_id,
    }


def _entry(entry: Entry) -> dict[str, Any]:
    key = None if entry.key_text is None else list(key_values(entry.key_text))
    return {"version": entry.version, "what": entry.what, "replacedBy": entry.replaced_by, "key": key}
