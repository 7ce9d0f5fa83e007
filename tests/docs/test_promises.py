"""Every promise in `docs/promises.md` names a test that exists, and no test is named for nothing."""

import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (REPO / "docs" / "promises.md").read_text("utf-8"))


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_promise_names_a_test_that_is_there(file, name):
    assert re.search(rf"^    def {name}\(|^def {name}\(", (REPO / file).read_text("utf-8"), re.MULTILINE)


def test_every_row_has_one_test_and_none_is_named_twice():
    rows = [line for line in (REPO / "docs" / "promises.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith(("| Place", "| -"))]
    assert len(promises) == len(NAMED) == len(set(NAMED)) > 40
