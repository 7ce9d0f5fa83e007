"""Deliveries of one dataset, made out of rows."""

from datetime import UTC, datetime

from ploti.contract.files import CHANGE, ENVELOPE, OP, RECORD_ID
from ploti.sync.plan import Held
from ploti.sync.target import Delivery
from ploti.testing.feed import changes_part, parquet, record_id

D = "ds_a"
COLUMNS = {"name": "string", "value": "number"}
READ = datetime(2026, 1, 2, tzinfo=UTC)


def schema(columns=None, dataset_id=D):
    listed = [{"name": name, "type": type_, "nullable": True} for name, type_ in (columns or COLUMNS).items()]
    return {"datasetId": dataset_id, "schemaVersion": "1.0", "firstVersion": 1, "keyColumns": [], "columns": listed}


def held(version, dataset_id=D):
    return Held(dataset_id, version, "1.0", 1, "ok", None, 0, version)


def rows_of(count, name="n"):
    return [(at, {"name": f"{name}{at}", "value": at / 3}) for at in range(count)]


class Files:
    """Makes deliveries out of rows; a row is a number and its values."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def write(self, content):
        self.count += 1
        path = self.folder / f"part-{self.count}"
        path.write_bytes(content)
        return path

    def snapshot(self, version, rows, columns=None, announced=None, dataset_id=D):
        types = {**ENVELOPE, **(columns or COLUMNS)}
        lines = [{RECORD_ID: record_id(at), "_ploti_version": version, **row} for at, row in rows]
        count = len(rows) if announced is None else announced
        part = self.write(parquet(types, lines))
        return Delivery(dataset_id, version, schema(columns, dataset_id), count, {}, snapshot=(part,))

    def changes(self, version, put, drop=(), rows=0, columns=None, constants=None):
        told = {"_ploti_version": version, "_ploti_fetched_at": READ}
        lines = [{RECORD_ID: record_id(at), **told, OP: "upsert", CHANGE: "changed", **row} for at, row in put]
        lines += [{RECORD_ID: record_id(at), **told, OP: "delete", CHANGE: "removed"} for at in drop]
        part = self.write(changes_part(schema(columns), lines))
        return Delivery(D, version, schema(columns), rows, constants or {}, changes=(part,))
