"""Kits of the targets that are files: each opens one, and reads its tables without the product's code."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime

import pyarrow.dataset

from ploti.contract.files import ENVELOPE
from ploti.sync.targets import open_target


class GeoPackageKit:
    def __init__(self, folder):
        self.path = folder / "records.gpkg"

    def open(self, reach):
        return open_target(f"sqlite:///{self.path}", reach=reach)

    def rows(self, dataset_id):
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            told = db.execute("SELECT schema FROM _ploti_datasets WHERE dataset_id = ?", [dataset_id]).fetchone()[0]
            found = db.execute(f'SELECT * FROM "{dataset_id}"')
            names = [column[0] for column in found.description]
            rows = [dict(zip(names, row, strict=True)) for row in found]
        types = {column["name"]: column["type"] for column in json.loads(told)["columns"]}
        assert len({row["fid"] for row in rows}) == len(rows)
        by_id = {
            row["_ploti_record_id"]: {name: value_of(row[name], type_) for name, type_ in types.items()} for row in rows
        }
        assert len(by_id) == len(rows), "a record id is there twice"
        assert set(names) - types.keys() == {"fid", *ENVELOPE}
        return by_id


def value_of(value, type_):
    """Give a stored value as Python's; a shape without the header of 40 bytes."""
    if value is None:
        return None
    match type_:
        case "date":
            return date.fromisoformat(value)
        case "timestamp":
            return datetime.fromisoformat(value).astimezone(UTC)
        case "boolean":
            return {0: False, 1: True}[value]
        case "geometry":
            return value[40:]
        case _:
            return value


class ParquetKit:
    def __init__(self, folder):
        self.path = folder / "records"

    def open(self, reach):
        return open_target(f"parquet:///{self.path}", reach=reach)

    def rows(self, dataset_id):
        table = pyarrow.dataset.dataset(self.path / dataset_id / "current").to_table()
        rows = table.to_pylist()
        own = [name for name in table.column_names if not name.startswith("_ploti_")]
        by_id = {row["_ploti_record_id"]: {name: _utc(row[name]) for name in own} for row in rows}
        assert len(by_id) == len(rows), "a record id is there twice"
        return by_id


def _utc(value):
    return value.astimezone(UTC) if isinstance(value, datetime) else value
