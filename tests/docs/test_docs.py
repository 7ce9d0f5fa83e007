"""The docs name what there is: commands, outcomes, reasons, types, errors, events; and their links lead somewhere."""

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from ploti.contract.errors import ERROR_STATUS
from ploti.contract.events import EVENT_TYPES, HOLD_REASONS
from ploti.contract.values import STORAGE_TYPES
from ploti_server.cli.main import COMMANDS
from ploti_server.domain.datasets import CheckOutcome, ReviewLimits
from ploti_server.domain.holds import HOLD_RULES

REPO = Path(__file__).parents[2]
DOCS = {page.name: page.read_text() for page in (REPO / "docs").glob("*.md")}
ALL = "\n".join(DOCS.values())
PAGES = [REPO / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]


@pytest.mark.parametrize("name", [name for name, *_ in COMMANDS])
def test_every_server_command_stands_in_its_page(name):
    assert f"`{name}" in DOCS["server.md"]


@pytest.mark.parametrize("word", [*get_args(CheckOutcome), *HOLD_REASONS])
def test_every_outcome_and_hold_reason_stands_in_the_page(word):
    assert f"`{word}`" in DOCS["server.md"]


@pytest.mark.parametrize("word", [*(rule.__name__ for rule in HOLD_RULES), *(f.name for f in fields(ReviewLimits))])
def test_every_hold_rule_and_limit_stands_in_the_page(word):
    assert f"`{word}" in DOCS["server.md"] or f"{word}:" in DOCS["server.md"]


@pytest.mark.parametrize("type_", STORAGE_TYPES)
def test_the_type_table_says_what_the_code_says(type_):
    stored = STORAGE_TYPES[type_]
    row = [type_, stored.arrow, stored.duckdb, stored.postgresql, stored.sqlite, stored.spark]
    assert f"| {' | '.join(f'`{cell}`' for cell in row)} |" in DOCS["values.md"]


@pytest.mark.parametrize("word", [*ERROR_STATUS, *EVENT_TYPES])
def test_every_error_code_and_event_type_stands_in_the_docs(word):
    assert word in ALL


@pytest.mark.parametrize("page", [*PAGES, *sorted((REPO / "docs").rglob("*.md"))], ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("step", re.findall(r"`([a-z_/]+(?:\.py|/))`", (REPO / "ARCHITECTURE.md").read_text()))
def test_files_that_the_architecture_names_are_there(step):
    places = (REPO / step, REPO / "src" / step, REPO / "src" / "ploti_server" / step, REPO / "src" / "ploti" / step)
    assert any(place.exists() for place in places), step


def test_each_dependency_has_its_reason():
    described = (REPO / "CONTRIBUTING.md").read_text()
    text = (REPO / "pyproject.toml").read_text()
    listed = re.findall(r'^\s+"([a-z][a-z0-9-]+)(?:\[[a-z,]+\])?[><=;"]', text, re.MULTILINE)
    missing = [name for name in listed if name != "ploti" and name not in described]
    assert listed
    assert missing == []
