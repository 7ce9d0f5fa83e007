"""Two thousand random histories through the real builder: `python -m pytest -n 2 -m goals tests/goals/<this file>`."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from tests.pipeline.random_source import histories
from tests.pipeline.test_random_histories import check

pytestmark = pytest.mark.goals
HISTORIES = 500
KINDS = pytest.mark.parametrize(
    ("keyed", "shapes"),
    [(True, False), (False, False), (True, True), (False, True)],
    ids=["keyed", "unkeyed", "keyed with shapes", "unkeyed with shapes"],
)
MANY = settings(max_examples=HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))


@KINDS
def test_random_histories_keep_every_rule(keyed, shapes, record_property):
    tally = Counter()

    @MANY
    @given(history=histories(keyed, shapes))
    def tell(history):
        check(history, tally)

    tell()
    assert tally["histories"] >= HISTORIES
    told = ", ".join(f"{number:,} {what}" for what, number in tally.items())
    record_property("figure", f"{'keyed' if keyed else 'unkeyed'}{' with shapes' if shapes else ''}: {told}")
