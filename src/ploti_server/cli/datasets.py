"""`ploti-server datasets list`."""

from typing import Any

from cyclopts import App

from ploti_server.cli.home import ports_of
from ploti_server.cli.printing import COMMON, Common, show
from ploti_server.domain.wire import wire_time
from ploti_server.ports import Records

datasets = App(name="datasets", help="List the datasets of the catalog.")


@datasets.command(name="list")
def list_datasets(*, common: Common = COMMON) -> int:
    """List every dataset of the catalog, retired ones too."""
    with ports_of(common).store.read() as records:
        rows = [_row(records, dataset.id) for dataset in records.catalog.datasets()]
    show(common, rows, "datasets")
    return 0


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
