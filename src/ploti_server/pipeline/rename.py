"""Replaces record ids: all of a dataset's, or those named (D4.12)."""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from ploti.contract.files import RECORD_ID
from ploti_server.domain.columns import SourceColumn, find_column
from ploti_server.domain.matching import own_types
from ploti_server.domain.replacements import Replacement, ReplacementRefused
from ploti_server.domain.schema import Schema
from ploti_server.pipeline.find import Found, Search, make_identities
from ploti_server.ports import Tables
from ploti_server.rows import ledger, match, replacing
from ploti_server.rows.match import ROW
from ploti_server.rows.sql import columns_of


def require_columns(tables: Tables, table: str, schema: Schema, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Find the columns of a table that ids are to be made from.

    Raises `ReplacementRefused` where one is not there, or they do not tell rows apart.
    """
    names = _delivered(schema, wanted)
    tables.keep("repeated_by", match.repeated_keys(table, names))
    repeated = tables.one(match.repeated_rows("repeated_by"))["found"]
    null = tables.one(match.null_keys(table, names))["found"]
    if repeated or null:
        told = ", ".join(wanted)
        raise ReplacementRefused(
            f"{told} cannot make ids: {repeated} rows share a value and {null} have none; name columns that tell apart"
        )
    return names


def prepare(search: Search, found: Found, replacement: Replacement) -> None:
    """Leave `carried`, `named`, and the rows whose ids are new with what identifies them: `rows_again`,
    `identities_again`, `to_number`.

    Raises `ReplacementRefused` where the columns that ids are to be made from do not tell rows apart.
    """
    tables, named = search.tables, replacement.named
    tables.define("carried", match.all_pairs(found.all_pairs))
    tables.map_batches("named", _named_rows(named or {}), replacing.NAMED_SCHEMA)
    if named is None:
        tables.define("rows_again", "SELECT * FROM new")
        tables.define("to_number", f"SELECT n.{ROW} FROM new n")
    else:
        tables.keep("labels_again", replacing.rows_named(found.left_new))
        tables.keep("rows_again", match.rows_of("new", ROW, "labels_again"))
        tables.keep("to_number", replacing.rows_to_number(found.left_new))
    name = "identities_of_key" if replacement.key else "identities_again"
    make_identities(tables, search.new.schema, found.keys, "rows_again", name)
    if replacement.key:
        _identify_by(search, replacement.key)


def rename(search: Search, found: Found) -> int:
    """Leave `renamed`, `added_rows`, `row_ids` and `id_map_rows`; gives the number of ids that were replaced.

    Raises `ReplacementRefused` where an id would be carried by two records.
    """
    tables = search.tables
    tables.keep("renamed", replacing.renamed())
    tables.keep("added_rows", replacing.added_rows())
    tables.keep("row_ids", replacing.final_ids())
    if doubled := tables.one(replacing.repeated_ids())["found"]:
        raise ReplacementRefused(f"{doubled} ids would be carried by two records: make the map anew")
    carried = [table for how, pairs in found.pairs.items() if how != "ledger" for table in pairs]
    tables.define("id_map_rows", replacing.id_map(match.all_pairs(carried)))
    return search.count("renamed")


def _named_rows(named: Mapping[str, str | None]) -> Iterator[pa.RecordBatch]:
    rows = [{RECORD_ID: old, "_ploti_target": new} for old, new in named.items()]
    yield pa.RecordBatch.from_pylist(rows, replacing.NAMED_SCHEMA)


def _identify_by(search: Search, wanted: tuple[str, ...]) -> None:
    """Let chosen columns identify every row in place of key or content."""
    tables, types = search.tables, own_types(search.new.schema)
    names = require_columns(tables, "new", search.new.schema, wanted)
    rows = tables.query(f"SELECT t.{ROW}, {columns_of('t', names)} FROM new t")
    by = ledger.key_identities(rows, {name: types[name] for name in names})
    tables.map_batches("identities_by", by, ledger.IDENTITY_SCHEMA)
    tables.keep("identities_again", replacing.identities_by_key("identities_of_key", "identities_by"))


def _delivered(schema: Schema, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Find columns by their delivered names or the source's spelling, each once."""
    own = [column.name for column in schema.columns]
    columns = [SourceColumn(column.name, column.source_name, 0) for column in schema.columns]
    found: list[str] = []
    for name in wanted:
        column = find_column(columns, name)
        if name not in own and column is None:
            raise ReplacementRefused(f"there is no column {name}: the dataset has {', '.join(own)}")
        found.append(name if name in own or column is None else column.id)
    return tuple(dict.fromkeys(found))
