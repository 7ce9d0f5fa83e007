"""Every sentence of the contract has a row in `docs/promises/`, and every row what holds it: a test of its own."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.docs.contract_sentences import sentences

REPO = Path(__file__).parents[2]
PAGES = {"subscriptions": "000", "versions": "001", "events": "003", "schemas": "004"}
TEST = re.compile(r"`(?P<test>(?P<file>tests/[\w/]+\.py)::(?P<name>\w+(?:::\w+)*))(?:\[(?P<case>[^\]`]+)\])?`")
WITHOUT_TEST = re.compile(r"(?:no promise|superseded): \S.*")
AS = re.compile(rf"as (?:(?P<page>{'|'.join(PAGES)}) )?(?P<place>\S.* \d+)")


class Row(NamedTuple):
    """One row of a page of promises."""

    page: str
    place: str
    promise: str
    held_by: str


def _rows(page):
    lines = (REPO / "docs" / "promises" / f"{page}.md").read_text("utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [Row(page, *row) for row in cells if row[0] not in ("Place", "-")]


ROWS = {page: _rows(page) for page in PAGES}
HELD = [(row, TEST.fullmatch(row.held_by)) for page in PAGES for row in ROWS[page] if row.held_by.startswith("`")]


@cache
def _places(page):
    (file,) = (REPO.parent / "shared" / "contract").glob(f"{PAGES[page]}_*.txt")
    return {f"{found.section} {found.number}": found.text for found in sentences(file.read_text("utf-8"))}


@cache
def _functions(file):
    """Count the definitions of each test in a file, by the name that pytest runs it by."""
    return Counter(_named(ast.parse((REPO / file).read_text("utf-8")).body))


def _named(nodes, ahead=""):
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            yield from _named(node.body, f"{ahead}{node.name}::")
        elif isinstance(node, ast.FunctionDef):
            yield f"{ahead}{node.name}"


@pytest.mark.parametrize("page", PAGES)
def test_every_sentence_has_one_row_and_every_row_its_sentence(page):
    places = [row.place for row in ROWS[page]]
    assert {place: text for place, text in _places(page).items() if place not in places} == {}
    assert [place for place in places if place not in _places(page)] == []
    assert len(places) == len(set(places))


@pytest.mark.parametrize("page", PAGES)
def test_every_row_is_held_by_a_test_or_says_why_by_none(page):
    held = [row for row in ROWS[page] if not any(form.fullmatch(row.held_by) for form in (TEST, WITHOUT_TEST, AS))]
    assert held == []
    assert [row for row in ROWS[page] if row.held_by.startswith("superseded") and page != "schemas"] == []


def test_what_says_the_same_as_another_sentence_points_to_one_that_is_held():
    rows = [row for page in PAGES for row in ROWS[page]]
    held = {(row.page, row.place): row.held_by for row in rows}
    for row in rows:
        if said := AS.fullmatch(row.held_by):
            assert held[said["page"] or row.page, said["place"]].startswith("`"), row


@pytest.mark.parametrize("page", PAGES)
def test_every_test_named_runs_as_printed(page, request):
    """A case of a table is looked for where this run has collected its test, as CI's does."""
    found = {item.nodeid for item in request.session.items}
    tests = {id_.partition("[")[0] for id_ in found}
    held = [named for row, named in HELD if row.page == page]
    assert [named["test"] for named in held if _functions(named["file"])[named["name"]] != 1] == []
    cases = [named[0].strip("`") for named in held if named["case"] and named["test"] in tests]
    assert [case for case in cases if case not in found] == []


def test_no_two_promises_share_a_test():
    named = Counter(row.held_by for row, _ in HELD)
    assert [test for test, times in named.items() if times > 1] == []
    whole = {test["test"] for _, test in HELD if test["case"] is None}
    assert [row for row, test in HELD if test["case"] and test["test"] in whole] == []
