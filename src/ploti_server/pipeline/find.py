"""Finds records again: by key, ledger, content, shape and agent, each step one to one, in this order (D4.4)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from ploti.contract.files import RECORD_ID
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.matching import KeyFacts, MatchPlan, Side, own_types
from ploti_server.domain.schema import Schema
from ploti_server.ports import Tables
from ploti_server.rows import ledger, match, shape_pairs
from ploti_server.rows.match import ROW
from ploti_server.rows.sql import null_of, staged_schema

NO_SCORE = null_of("number")
PAIRS_SCHEMA = staged_schema({ROW: pa.int64(), RECORD_ID: pa.string()})


@dataclass(frozen=True)
class Found:
    """Tables of pairs by how records were found, and the tables of labels left over with their numbers of rows.

    `compared` are queries for the pairs whose values have to be compared, with `_match` and `_score`.
    """

    keys: KeyFacts
    left_new: str
    left_old: str
    new_count: int
    old_count: int
    pairs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    by: dict[str, int] = field(default_factory=lambda: {"key": 0, "ledger": 0, "content": 0, "agent": 0})
    compared: tuple[str, ...] = ()

    @property
    def all_pairs(self) -> tuple[str, ...]:
        """Tables of pairs, in the order of the steps."""
        return tuple(table for tables in self.pairs.values() for table in tables)


@dataclass(frozen=True)
class Lost:
    """What is known of a version before whose files are lost: its key, and the version since which that is the key."""

    key: tuple[str, ...]
    since: int


@dataclass(frozen=True)
class Search:
    """What one matching works on: the new state, the version before it if any, and how they are compared."""

    tables: Tables
    dataset: Dataset
    new: Side
    old: Side | None
    plan: MatchPlan
    lost: Lost | None = None

    def count(self, table: str) -> int:
        """Count a table's rows."""
        return int(self.tables.one(f"SELECT count(*) AS found FROM {table}")["found"])


def find(search: Search) -> Found:
    """Pair the rows of `new` with the records of `old` and the ledger, as far as no agent is needed."""
    tables, old = search.tables, search.old
    labels = _keep_keys(search)
    keys = _key_facts(tables, search.new, labels["new"])
    found = Found(keys, labels["new"], labels["old"], search.new.rows, old.rows if old else 0)
    if old is None:
        tables.define("touched_new", "SELECT * FROM new")
        tables.define("left_new_rows", "SELECT * FROM new")
        make_identities(tables, search.new.schema, keys)
        return _by_lost_key(search, found)
    return _keyed(search, found) if search.plan.keyed else _unkeyed(search, found)


def _by_lost_key(search: Search, found: Found) -> Found:
    """Take the ids of records whose files are lost from the ledger, by key: subscribers hold them (D4.3)."""
    lost = search.lost
    if lost is None or not lost.key or lost.key != search.new.schema.key_columns:
        return found
    search.tables.keep("by_ledger", ledger.pairs_by_ledger_key(found.left_new, "identities", lost.since))
    return take(search, found, "ledger", "by_ledger")


def _keep_keys(search: Search) -> dict[str, str]:
    """Keep key and content hash of every row, so that whole rows are read once; gives each side's table of labels."""
    tables, plan = search.tables, search.plan
    if not plan.key:
        return {"new": "new", "old": "old"}
    for side, label in (("new", ROW), ("old", RECORD_ID)):
        tables.keep(f"keyed_{side}", match.keyed_rows(side, label, plan.key, plan.compared))
    return {"new": "keyed_new", "old": "keyed_old"}


def _key_facts(tables: Tables, state: Side, table: str) -> KeyFacts:
    """Count null and repeated keys of a state; leaves the table `repeated_new` where it has a key (D6.1)."""
    key = state.schema.key_columns
    if not key:
        return KeyFacts()
    tables.keep("repeated_new", match.repeated_keys(table, key))
    duplicate = tables.one(match.repeated_rows("repeated_new"))["found"]
    null = tables.one(match.null_keys(table, key))["found"] if any(state.nulls.get(name) for name in key) else 0
    return KeyFacts(null, duplicate)


def make_identities(
    tables: Tables, schema: Schema, keys: KeyFacts, rows: str = "left_new_rows", name: str = "identities"
) -> None:
    """Work out what identifies each row of a table: the table `identities`, or another name (D4.1, D6.4)."""
    types = own_types(schema)
    key = {column: types[column] for column in schema.key_columns}
    own = own_types(schema, volatile=False)
    by_content: Iterator[pa.RecordBatch] = iter(())
    by_key: Iterator[pa.RecordBatch] = iter(())
    if key:
        by_key = ledger.key_identities(tables.query(ledger.usable_rows(rows, tuple(key))), key)
    if not key or keys.null or keys.duplicate:
        unusable = f"unusable_{name}" if key else None
        if unusable:
            tables.keep(unusable, match.unusable_keys(rows, ROW, "repeated_new", tuple(key)))
        by_content = ledger.content_identities(tables.query(ledger.own_rows(rows, tuple(own), unusable)), own)
    tables.map_batches(name, chain(by_key, by_content), ledger.IDENTITY_SCHEMA)


def _keyed(search: Search, found: Found) -> Found:
    tables, plan = search.tables, search.plan
    if plan.key:
        tables.keep("repeated_old", match.repeated_keys("keyed_old", plan.key))
        tables.keep("by_key", match.pairs_by_key(plan.key))
        differing = (
            f"SELECT p.{ROW}, p.{RECORD_ID}, 'key' AS _match, {NO_SCORE} AS _score FROM by_key p WHERE p._differs"
        )
        found = take(search, found, "key", "by_key", compared=differing)
        if found.by["key"]:
            tables.drop("keyed_new")
            tables.drop("keyed_old")
    _keep_touched(tables, found)
    if plan.key and plan.content and (found.keys.null or found.keys.duplicate or search.count("repeated_old")):
        found = _by_unusable_keys(search, found)
    make_identities(tables, search.new.schema, found.keys)
    if found.new_count:
        tables.keep("by_ledger", ledger.pairs_by_ledger_key(found.left_new, "identities"))
        found = take(search, found, "ledger", "by_ledger")
    return _by_lone_content(search, found)


def _unkeyed(search: Search, found: Found) -> Found:
    tables, plan = search.tables, search.plan
    if plan.content:
        found = _by_content(search, found, "by_content", "old", "new")
    _keep_touched(tables, found)
    if plan.content and plan.compares_shapes and found.new_count and found.old_count:
        found = _by_shape(search, found)
    make_identities(tables, search.new.schema, found.keys)
    if found.new_count:
        volatile = _volatile(search.new.schema)
        tables.keep("turns", ledger.numbered(found.left_new, keyed=False, volatile=volatile))
        tables.keep("by_ledger", ledger.pairs_by_ledger_content("turns"))
        found = take(search, found, "ledger", "by_ledger")
    return found


def take(search: Search, found: Found, how: str, table: str, compared: str | None = None) -> Found:
    """Count a table of pairs in and take its rows and records off the left-overs."""
    tables = search.tables
    count = search.count(table)
    pairs = found.pairs | {how: (*found.pairs.get(how, ()), table)}
    found = replace(found, pairs=pairs, by=found.by | {how: found.by[how] + count})
    if compared:
        found = replace(found, compared=(*found.compared, compared))
    if not count:
        return found
    tables.keep(f"left_new_by_{table}", match.left_over(found.left_new, ROW, table))
    found = replace(found, left_new=f"left_new_by_{table}", new_count=found.new_count - count)
    if how == "ledger":
        return found
    tables.keep(f"left_old_by_{table}", match.left_over(found.left_old, RECORD_ID, table))
    return replace(found, left_old=f"left_old_by_{table}", old_count=found.old_count - count)


def _keep_touched(tables: Tables, found: Found) -> None:
    """Keep the whole rows that are left over or may differ, so that later steps read few rows instead of all.

    Leaves `touched_new` and `touched_old`, and `left_new_rows` and `left_old_rows` as the left-overs among them.
    """
    differing = " UNION ALL ".join(found.compared)
    for side, label, left in (("new", ROW, found.left_new), ("old", RECORD_ID, found.left_old)):
        if left in (side, f"keyed_{side}"):
            tables.define(f"touched_{side}", f"SELECT * FROM {side}")
            tables.define(f"left_{side}_rows", f"SELECT * FROM {side}")
            continue
        chosen = f"SELECT l.{label} FROM {left} l"
        chosen += f" UNION ALL SELECT d.{label} FROM ({differing}) d" if differing else ""
        tables.keep(f"touched_{side}_labels", chosen)
        tables.keep(f"touched_{side}", match.rows_of(side, label, f"touched_{side}_labels"))
        tables.define(f"left_{side}_rows", match.rows_of(f"touched_{side}", label, left))


def _by_unusable_keys(search: Search, found: Found) -> Found:
    """Pair rows whose key is useless in either version, key included: an unchanged one keeps its id (D6.4)."""
    tables, key = search.tables, search.plan.key
    tables.keep("repeated_either", match.repeated_in_either(key))
    tables.keep("loose_new", match.unusable_keys("left_new_rows", ROW, "repeated_either", key))
    tables.keep("loose_old", match.unusable_keys("left_old_rows", RECORD_ID, "repeated_either", key))
    tables.keep("loose_new_rows", match.rows_of("left_new_rows", ROW, "loose_new"))
    tables.keep("loose_old_rows", match.rows_of("left_old_rows", RECORD_ID, "loose_old"))
    return _by_content(search, found, "by_loose", "loose_old_rows", "loose_new_rows")


def _by_content(search: Search, found: Found, name: str, old: str, new: str) -> Found:
    """Pair identical content as a multiset (D4.4); equal pairs need no comparing."""
    tables, plan = search.tables, search.plan
    _hash(search, f"{name}_hash_old", old, RECORD_ID, plan.compared)
    _hash(search, f"{name}_hash_new", new, ROW, plan.compared)
    hashes = (f"{name}_hash_old", f"{name}_hash_new")
    tables.keep(f"{name}_repeated", match.repeated_content(*hashes))
    tables.keep(f"{name}_single", match.pairs_by_single_content(*hashes, f"{name}_repeated"))
    tables.keep(f"{name}_multiple", _repeated_pairs(search, name, old, new))
    tables.keep(name, match.all_pairs([f"{name}_single", f"{name}_multiple"]))
    return take(search, found, "content", name)


def _repeated_pairs(search: Search, name: str, old: str, new: str) -> str:
    repeated, hashes = f"{name}_repeated", (f"{name}_hash_old", f"{name}_hash_new")
    if search.old is None or not search.count(repeated):
        return match.all_pairs(())
    search.tables.keep(f"{name}_entries", ledger.latest(match.records_of_content(hashes[0], repeated)))
    orders = tuple(own_types(search.old.schema)), tuple(own_types(search.new.schema))
    return match.pairs_by_repeated_content((old, hashes[0], f"{name}_entries"), (new, hashes[1]), repeated, orders)


def _by_lone_content(search: Search, found: Found) -> Found:
    """Pair one left-over old with one new record of the same content that share a discriminating value (D4.4)."""
    tables, plan = search.tables, search.plan
    columns = tuple(name for name in plan.compared if name not in search.new.schema.key_columns)
    if not (plan.content and columns and found.new_count and found.old_count):
        return found
    tables.keep("lone_old_rows", match.rows_of("left_old_rows", RECORD_ID, found.left_old))
    tables.keep("lone_new_rows", match.rows_of("left_new_rows", ROW, found.left_new))
    _hash(search, "lone_hash_old", "lone_old_rows", RECORD_ID, columns)
    _hash(search, "lone_hash_new", "lone_new_rows", ROW, columns)
    tables.keep("lone_repeated", match.repeated_content("lone_hash_old", "lone_hash_new"))
    tables.keep("lone_hashed", match.pairs_by_single_content("lone_hash_old", "lone_hash_new", "lone_repeated"))
    tables.keep("lone_equal", match.equal_pairs("lone_hashed", "lone_old_rows", "lone_new_rows", columns))
    tables.keep("by_content", match.minus("lone_equal", _undiscerned(search, columns)))
    compared = f"SELECT p.{ROW}, p.{RECORD_ID}, 'content' AS _match, {NO_SCORE} AS _score FROM by_content p"
    return take(search, found, "content", "by_content", compared=compared)


def _undiscerned(search: Search, columns: Sequence[str]) -> str:
    """Leave column by column the pairs that share no discriminating value so far; most go with the first ones."""
    tables, at_most = search.tables, search.dataset.matching.discriminating_at_most
    pairs = "lone_equal"
    for place, column in enumerate(columns):
        if not search.count(pairs):
            break
        tables.keep(f"lone_open_{place}", match.undiscerned(pairs, "lone_old_rows", "lone_new_rows", column, at_most))
        pairs = f"lone_open_{place}"
    return pairs


def _by_shape(search: Search, found: Found) -> Found:
    """Pair left-overs that agree in all other values and whose shapes are the same within the tolerance (D3.4)."""
    tables, plan = search.tables, search.plan
    for name, label, type_, left, spread in (
        ("old", RECORD_ID, pa.string(), found.left_old, True),
        ("new", ROW, pa.int64(), found.left_new, False),
    ):
        _hash(search, f"shape_values_{name}", f"left_{name}_rows", label, plan.compared_values)
        shapes = tables.query(shape_pairs.shapes_to_place(f"left_{name}_rows", label, left))
        schema = shape_pairs.cells_schema(label, type_)
        tables.map_batches(f"shape_cells_{name}", shape_pairs.corner_cells(shapes, schema, spread=spread), schema)
    near = shape_pairs.near_pairs(
        ("shape_cells_old", "shape_cells_new"),
        ("shape_values_old", "shape_values_new"),
        ("left_old_rows", "left_new_rows"),
    )
    tables.map_batches("shape_same", shape_pairs.same_pairs(tables.query(near), PAIRS_SCHEMA), PAIRS_SCHEMA)
    tables.keep("shape_entries", ledger.latest(f"SELECT DISTINCT s.{RECORD_ID} FROM shape_same s"))
    order = match.columns_in_order("t", tuple(own_types(search.new.schema)))
    assigning = tables.query(shape_pairs.in_assigning_order("shape_same", "shape_entries", "left_new_rows", order))
    tables.map_batches("by_shape", shape_pairs.one_to_one(assigning, PAIRS_SCHEMA), PAIRS_SCHEMA)
    compared = f"SELECT p.{ROW}, p.{RECORD_ID}, 'content' AS _match, {NO_SCORE} AS _score FROM by_shape p"
    return take(search, found, "content", "by_shape", compared=compared)


def _hash(search: Search, name: str, table: str, label: str, columns: Sequence[str]) -> None:
    search.tables.keep(name, match.hashed(table, label, columns, own_types(search.new.schema)))


def _volatile(schema: Schema) -> tuple[str, ...]:
    return tuple(column.name for column in schema.columns if column.volatile)
