"""`ploti-server datasets`: the catalog's datasets, and what a state suggests for its catalog entry."""

import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from ploti_server.cli.home import ports_of, ports_of_any
from ploti_server.cli.printing import COMMON, CommandRefused, Common, counted, say, show
from ploti_server.domain.suggestions import ColumnFacts
from ploti_server.domain.wire import wire_time
from ploti_server.pipeline.profile import Profile, profile_dataset, profile_file
from ploti_server.ports import Records

datasets = App(name="datasets", help="List the datasets of the catalog; profile a file or a dataset.")


@datasets.command(name="list")
def list_datasets(*, common: Common = COMMON) -> int:
    """List every dataset of the catalog, retired ones too."""
    with ports_of(common).store.read() as records:
        rows = [_row(records, dataset.id) for dataset in records.catalog.datasets()]
    show(common, rows, "datasets")
    return 0


@datasets.command(name="profile")
def profile(what: Annotated[str, Parameter(name="FILE|DATASET")], /, *, common: Common = COMMON) -> int:
    """Suggest keys, types and coordinates of a file, or of a dataset's last state."""
    with ports_of_any(common) as ports:
        with ports.store.read() as records:
            dataset = records.catalog.dataset(what)
        if dataset is None and not Path(what).is_file():
            raise CommandRefused(f"there is no file and no dataset {what}: see `ploti-server datasets list`")
        found = profile_file(ports, Path(what)) if dataset is None else profile_dataset(ports, dataset)
    if common.as_json:
        show(common, _profiled(found))
        return 0
    say(counted(found.rows, "row") + (f", {counted(found.rejects, 'reject')}" if found.rejects else ""))
    show(common, [_column(column) for column in found.columns], "columns")
    lines = _suggested(found)
    say("\n" + ("suggested for the catalog (names are the source's own):" if lines else "nothing to suggest"))
    for line in lines:
        say(line)
    return 0


def _column(column: ColumnFacts) -> dict[str, Any]:
    told = "a key" if column.is_unique and not column.numbers_rows else "counts rows" if column.numbers_rows else None
    return {
        "column": column.name,
        "source": column.source_name,
        "type": column.type,
        "nulls": column.nulls,
        "values": column.distinct,
        "": told,
    }


def _profiled(found: Profile) -> dict[str, Any]:
    return {
        "rows": found.rows,
        "rejects": found.rejects,
        "columns": [
            {
                "name": column.name,
                "sourceName": column.source_name,
                "type": column.type,
                "nulls": column.nulls,
                "distinct": column.distinct,
                "unique": column.is_unique,
                "countsRows": column.numbers_rows,
            }
            for column in found.columns
        ],
        "keys": [{"columns": list(key.columns), "doubt": key.doubt} for key in found.keys],
        "hasShapes": found.has_shapes,
        "geometry": found.place and vars(found.place),
        "volatile": list(found.volatile),
    }


def _suggested(found: Profile) -> list[str]:
    """Write the suggestions as lines of the catalog; all but the first key, and doubtful ones, as comments."""
    source = {column.name: json.dumps(column.source_name, ensure_ascii=False) for column in found.columns}
    lines = []
    first = next((key for key in found.keys if key.doubt is None), None)
    for key in found.keys:
        comment = "" if key is first else "# or: "
        why = f"  # {key.doubt}" if key.doubt else ""
        lines.append(f"{comment}key: [{', '.join(source[name] for name in key.columns)}]{why}")
    if found.place is not None:
        parts = {"x": found.place.x, "y": found.place.y, "wkt": found.place.wkt}
        given = ", ".join(f"{part}: {source[name]}" for part, name in parts.items() if name)
        crs = f"crs: {found.place.crs}" if found.place.crs else "crs: ...  # these are no degrees: name their CRS"
        lines.append(f"source: geometry: {{{given}}}" + ("" if found.place.wkt else f", {crs}"))
    if found.volatile:
        lines.append(f"volatile: [{', '.join(source[name] for name in found.volatile)}]")
    return lines


def _row(records: Records, dataset_id: str) -> dict[str, Any]:
    dataset = records.catalog.dataset(dataset_id)
    if dataset is None:
        raise LookupError(dataset_id)
    current = records.versions.current(dataset_id)
    last = records.catalog.refresh(dataset_id).last_checked_at
    return {
        "dataset": dataset_id,
        "title": dataset.title,
        "place": dataset.filed_place,
        "topic": dataset.topic,
        "version": current and current.number,
        "schemaVersion": current and current.schema_version,
        "rows": current and current.row_count,
        "lastCheckedAt": last and wire_time(last),
        "subscriptions": len(records.subscriptions.holding(dataset_id)),
        "retired": dataset.retired,
    }
