"""Row queries stay in the subset that Spark speaks too, but for the named row hash (stack.md, "Row queries")."""

import pytest
import sqlglot
from sqlglot import exp

from ploti_server.domain.datasets import MatchingLimits
from ploti_server.domain.schema import Column, Schema
from ploti_server.rows import candidates, changes, late, ledger, match, replacing, shape_pairs, spread
from ploti_server.rows.facts import REJECTED_ROWS

NAMES = ("key", "a", 'odd "name"', "geometry")
TYPES = {"key": "string", "a": "number", 'odd "name"': "integer", "geometry": "geometry"}
SCHEMA = Schema(tuple(Column(n, t, True, n) for n, t in TYPES.items()), ("key",))

QUERIES = {
    "distinct_values": spread.distinct_values(NAMES[:3]),
    "distinct_values of nothing": spread.distinct_values(()),
    "bounds": spread.bounds(NAMES[1:3]),
    "bounds of nothing": spread.bounds(()),
    "distinct_pairs": spread.distinct_pairs("key", "a"),
    "some_values": spread.some_values("key", 5),
    "repeated_keys": match.repeated_keys("new", NAMES[:2]),
    "repeated_rows": match.repeated_rows("repeated_new"),
    "null_keys": match.null_keys("new", NAMES[:2]),
    "pairs_by_key": match.pairs_by_key(NAMES[:2]),
    "keyed_rows": match.keyed_rows("new", "_ploti_row", NAMES[:1], NAMES),
    "left_over": match.left_over("new", "_ploti_row", "by_key"),
    "rows_of": match.rows_of("new", "_ploti_row", "chosen"),
    "repeated_in_either": match.repeated_in_either(NAMES[:2]),
    "unusable_keys": match.unusable_keys("new", "_ploti_row", "repeated_new", NAMES[:2]),
    "hashed": match.hashed("new", "_ploti_row", NAMES, TYPES),
    "repeated_content": match.repeated_content("a", "b"),
    "pairs_by_single_content": match.pairs_by_single_content("a", "b", "c"),
    "records_of_content": match.records_of_content("a", "b"),
    "pairs_by_repeated_content": match.pairs_by_repeated_content(("a", "b", "c"), ("d", "e"), "f", (NAMES, NAMES)),
    "equal_pairs": match.equal_pairs("p", "o", "n", NAMES),
    "equal_pairs of nothing": match.equal_pairs("p", "o", "n", ()),
    "undiscerned": match.undiscerned("p", "o", "n", "a", 50),
    "minus": match.minus("p", "q"),
    "all_pairs": match.all_pairs(["p", "q"]),
    "no pairs": match.all_pairs([]),
    "moved_shapes": changes.moved_shapes("p", "o", "n"),
    "changed_pairs": changes.changed_pairs("p", "o", "n", NAMES),
    "snapshot": changes.snapshot(SCHEMA, kept=True, chosen="added"),
    "changes": changes.changes(SCHEMA, kept=True),
    "backfill": changes.backfill(NAMES),
    "no backfill": changes.backfill(()),
    "old_rows": changes.old_rows("removed"),
    "latest": ledger.latest("SELECT 1"),
    "entries_of": ledger.entries_of("w"),
    "pairs_by_ledger_key": ledger.pairs_by_ledger_key("l", "i"),
    "pairs_by_ledger_key of lost records": ledger.pairs_by_ledger_key("l", "i", 3),
    "lost_identities": ledger.lost_identities("SELECT 1"),
    "pairs_by_ledger_content": ledger.pairs_by_ledger_content("t"),
    "known_ids": ledger.known_ids("t"),
    "usable_rows": ledger.usable_rows("t", NAMES[:2]),
    "own_rows": ledger.own_rows("t", NAMES, "c"),
    "removed_rows": ledger.removed_rows("r", NAMES, NAMES[:1]),
    "numbered": ledger.numbered("l", keyed=True, volatile=NAMES[:1]),
    "contested": ledger.contested("t", "k"),
    "entries": ledger.entries(7),
    "shapes_to_place": shape_pairs.shapes_to_place("r", "_ploti_row", "l"),
    "near_pairs": shape_pairs.near_pairs(("a", "b"), ("c", "d"), ("e", "f")),
    "in_assigning_order": shape_pairs.in_assigning_order("p", "e", "r", ['t."a"']),
    "places": candidates.places("h", "r", "_ploti_row", NAMES[:1], 20_000),
    "values": candidates.values("r", "_ploti_row", NAMES),
    "sharing_pairs": candidates.sharing_pairs(("old", "new"), ("_ploti_record_id", "_ploti_row"), 50),
    "placed_shapes": candidates.placed_shapes("r", "p", "_ploti_row"),
    "best_pairs": candidates.best_pairs("s", "n", MatchingLimits()),
    "chosen_rows": candidates.chosen_rows("r", "p", "_ploti_row", "_new"),
    "rows_named": replacing.rows_named("l"),
    "rows_to_number": replacing.rows_to_number("l"),
    "identities_by_key": replacing.identities_by_key("i", "k"),
    "renamed": replacing.renamed(),
    "added_rows": replacing.added_rows(),
    "final_ids": replacing.final_ids(),
    "repeated_ids": replacing.repeated_ids(),
    "not_renamed": replacing.not_renamed("p"),
    "entries of renamed": replacing.entries(7),
    "id_map": replacing.id_map("SELECT 1"),
    "gone_since": late.gone_since(7),
    "come_with": late.come_with(7),
    "numbered_rows": late.numbered_rows(NAMES),
    "rows_of_ids": late.rows_of_ids("SELECT 1"),
    "found late": late.found(),
    "kept_records": late.kept_records("CAST(NULL AS DOUBLE)"),
    "rejected rows": REJECTED_ROWS,
}

SHARED_FUNCTIONS = {
    "AND", "OR", "CASE", "IF", "CAST", "COALESCE", "COUNT", "SUM", "MAX", "MIN", "ROW_NUMBER", "ARRAY", "ARRAY_FILTER",
    "TRY_CAST",
    "UNNEST", "EXPLODE", "STRUCT", "HEX", "FILTER",
}  # fmt: skip
ROW_HASH = {"HASH"}


@pytest.mark.parametrize("sql", QUERIES.values(), ids=QUERIES)
def test_each_query_is_spark_sql_too(sql):
    (spark,) = sqlglot.transpile(sql, read="duckdb", write="spark", unsupported_level=sqlglot.ErrorLevel.RAISE)
    tree = sqlglot.parse_one(spark, read="spark")
    functions = {_name(node) for node in tree.find_all(exp.Func)}
    assert functions <= SHARED_FUNCTIONS | ROW_HASH, functions - SHARED_FUNCTIONS


@pytest.mark.parametrize("sql", QUERIES.values(), ids=QUERIES)
def test_each_query_keeps_the_rules(sql):
    tree = sqlglot.parse_one(sql, read="duckdb")
    for join in tree.find_all(exp.Join):
        assert not join.args.get("using")
        assert join.args.get("on") is not None
        if join.side == "LEFT":
            assert all(len({c.table for c in test.find_all(exp.Column)}) > 1 for test in _tests(join.args["on"]))
    for ordered in tree.find_all(exp.Ordered):
        assert ordered.args.get("nulls_first") is not None
    for kind in (exp.Div, exp.Lower, exp.Upper, exp.Trim, exp.RegexpLike, exp.First, exp.AnyValue):
        assert tree.find(kind) is None
    for cast in tree.find_all(exp.Cast):
        assert isinstance(cast.this, exp.Null | exp.Sum | exp.Coalesce) or cast.this.is_int
    for window in tree.find_all(exp.Window):
        assert isinstance(window.this, exp.RowNumber)
        columns = {column.name for column in window.args["order"].find_all(exp.Column)}
        assert "_ploti_row" not in columns
        assert not any(name in columns for name in ("_h1", "_h2", "_value"))


def _tests(condition):
    return [condition] if not isinstance(condition, exp.And) else [*_tests(condition.left), *_tests(condition.right)]


def _name(node):
    return (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).upper()
