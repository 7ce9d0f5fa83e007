"""Reads what was published without the product's code: pyarrow, hashlib and json alone."""

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq

ENVELOPE = [
    "_ploti_record_id", "_ploti_dataset_id", "_ploti_place_id", "_ploti_version", "_ploti_source_url",
    "_ploti_fetched_at",
]  # fmt: skip
CHANGES = [
    "_ploti_op", "_ploti_change", "_ploti_delete_reason", "_ploti_changed_columns", "_ploti_match",
    "_ploti_match_score",
]  # fmt: skip
ARROW = {
    "string": "string", "json": "string", "integer": "int64", "number": "double", "boolean": "bool",
    "date": "date32[day]", "timestamp": "timestamp[us, tz=UTC]", "geometry": "binary",
}  # fmt: skip


class PublishedVersion:
    """One version's folder in the file store, as its `manifest.json` lists it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.manifest = json.loads((folder / "manifest.json").read_bytes())
        self.schema = json.loads((folder / "schema.json").read_bytes())

    def paths(self, kind):
        return [self.folder / f["path"] for f in self.manifest["files"] if f["path"].startswith(f"{kind}/")]

    def table(self, kind):
        import pyarrow as pa

        return pa.concat_tables([pq.read_table(path, pre_buffer=False) for path in self.paths(kind)])

    @property
    def own(self):
        volatile = set(self.manifest["volatileColumns"])
        return [c["name"] for c in self.schema["columns"] if c["name"] not in volatile]

    def rows(self):
        """Rows of the snapshot by record id, own non-volatile columns only."""
        table = self.table("snapshot")
        ids = table.column("_ploti_record_id").to_pylist()
        own = table.select(self.own).to_pylist()
        assert len(set(ids)) == len(ids), "record ids are unique"
        return dict(zip(ids, own, strict=True))

    def check_files(self):
        """Sizes, checksums, row numbers, and the schema of every part."""
        for file in self.manifest["files"]:
            content = (self.folder / file["path"]).read_bytes()
            assert len(content) == file["sizeBytes"]
            assert hashlib.sha256(content).hexdigest() == file["sha256"]
            if file["path"].endswith(".parquet"):
                assert pq.ParquetFile(self.folder / file["path"]).metadata.num_rows == file["rows"]
        self._check_part_schema("snapshot", ENVELOPE)
        self._check_part_schema("changes", ENVELOPE + CHANGES)
        assert (
            sum(f["rows"] for f in self.manifest["files"] if f["path"].startswith("snapshot/"))
            == (self.manifest["rowCount"])
        )
        assert sum(sums[0] for sums in self.manifest["digest"].values()) == self.manifest["rowCount"]

    def _check_part_schema(self, kind, ahead):
        expected = {c["name"]: ARROW[c["type"]] for c in self.schema["columns"]}
        for path in self.paths(kind):
            schema = pq.read_schema(path)
            assert schema.names[: len(ahead)] == ahead
            own = {f.name: str(f.type) for f in schema if not f.name.startswith("_ploti_")}
            assert own == expected
            assert list(own) == list(expected)

    def check_follows(self, previous: "PublishedVersion"):
        """Previous snapshot, changes, backfill and constants, applied, give this snapshot; counts equal rows (I3)."""
        assert self.manifest["previousVersion"] == previous.manifest["version"]
        expected = self.rows()
        names = self.own
        rows = {id_: {name: row.get(name) for name in names} for id_, row in previous.rows().items()}
        counts = {"added": 0, "changed": 0, "removed": 0}
        for change in self.table("changes").to_pylist():
            counts[change["_ploti_change"]] += 1
            id_ = change["_ploti_record_id"]
            if change["_ploti_op"] == "delete":
                assert change["_ploti_delete_reason"] == "removed_at_source"
                assert all(change[name] is None for name in names)
                del rows[id_]
            else:
                assert (id_ in rows) == (change["_ploti_change"] == "changed")
                rows[id_] = {name: change[name] for name in names}
        if self.paths("backfill"):
            for row in self.table("backfill").to_pylist():
                id_ = row.pop("_ploti_record_id")
                rows[id_] |= row
        for name, value in self.manifest["constants"].items():
            type_ = next(c["type"] for c in self.schema["columns"] if c["name"] == name)
            assert type_ in ("string", "integer", "number", "boolean", "json") or value is None, type_
            for row in rows.values():
                row[name] = value
        assert counts == self.manifest["counts"]
        assert rows == expected
        return counts


class SyncedTable:
    """A dataset's table in a subscriber's DuckDB file, read with SQL and pyarrow alone."""

    def __init__(self, database: Path, dataset_id: str):
        import duckdb

        with duckdb.connect(str(database), read_only=True) as db:
            db.execute("SET TimeZone = 'UTC'")
            books = "SELECT loaded_version, schema_version, state FROM _ploti_datasets WHERE dataset_id = ?"
            found = db.execute(books, [dataset_id]).fetchall()
            self.version, self.schema_version, self.state = found[0] if found else (None, None, None)
            self.rows = None
            if self.version is not None:
                self.rows = db.sql(f'SELECT * FROM "{dataset_id}" ORDER BY _ploti_record_id').to_arrow_table()

    def check_equals(self, published: "PublishedVersion", arrived=None):
        """Record ids and own non-volatile columns, value by value; with `arrived`, each row's `_ploti_version`."""
        assert (self.version, self.schema_version) == (
            published.manifest["version"], published.manifest["schemaVersion"],
        )  # fmt: skip
        expected = published.table("snapshot").sort_by("_ploti_record_id")
        assert self.rows.num_rows == expected.num_rows == published.manifest["rowCount"]
        names = ["_ploti_record_id", "_ploti_dataset_id", *published.own]
        for name in names:
            have, due = self.rows.column(name), expected.column(name)
            have = have.combine_chunks().cast(due.type)
            assert have.equals(due.combine_chunks()), _first_difference(name, have, due)
        own = {name for name in self.rows.column_names if not name.startswith("_ploti_")}
        assert own == {column["name"] for column in published.schema["columns"]}
        if arrived is not None:
            ids = self.rows.column("_ploti_record_id").to_pylist()
            versions = self.rows.column("_ploti_version").to_pylist()
            assert dict(zip(ids, versions, strict=True)) == arrived


def _first_difference(name, have, due):
    pairs = enumerate(zip(have.to_pylist(), due.to_pylist(), strict=True))
    return next((f"{name}, row {at}: {a!r} is not {b!r}" for at, (a, b) in pairs if a != b), f"{name}: types")


def arrived_by(published: "PublishedVersion", before: dict[str, int], *, reloaded: bool) -> dict[str, int]:
    """The version in which each record last came to a target that held `before` (D11.8)."""
    number = published.manifest["version"]
    if reloaded:
        return dict.fromkeys(published.table("snapshot").column("_ploti_record_id").to_pylist(), number)
    arrived = dict(before)
    for change in published.table("changes").select(["_ploti_record_id", "_ploti_op"]).to_pylist():
        arrived.pop(change["_ploti_record_id"], None)
        if change["_ploti_op"] == "upsert":
            arrived[change["_ploti_record_id"]] = number
    return arrived


def folders(files_root: Path, dataset_id: str) -> dict[int, Path]:
    """The newest attempt of every version in the file store that has a manifest."""
    found = {}
    for manifest in sorted(files_root.glob(f"{dataset_id}/versions/*/*/manifest.json")):
        number, attempt = int(manifest.parts[-3]), int(manifest.parts[-2])
        if number not in found or attempt > int(found[number].name):
            found[number] = manifest.parent
    return found
