"""Random histories through the real builder: I3, I4, I5, I7 and I10 hold, and a shuffled twin has the same bytes.

`tests/goals/test_many_random_histories.py` tells two thousand of them.
"""

import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from tests.pipeline.random_source import histories
from tests.pipeline.told_history import Telling

FEW = settings(max_examples=4, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def check(history, tally):
    """Tell a history, one in four twice; the rules are checked while it is told."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        told = Telling(history, Path(one))
        if history.twice:
            twin = Telling(history, Path(other), seed=history.seed)
            assert (twin.outcomes, twin.log) == (told.outcomes, told.log)
            assert twin.files() == told.files()
            tally["twins with the same bytes"] += 1
        tally["histories"] += 1
        tally["sent versions"] += len(told.chain.sent)
        for seen in told.chain.sent:
            manifest = seen.published.manifest
            tally["versions of changes"] += not manifest["resyncRequired"]
            tally["id maps"] += manifest["recordIdsChanged"]
        tally["holds"] += len(told.chain.delayed)
        tally["versions released again"] += len(told.chain.again)


@FEW
@given(history=histories())
def test_a_random_history_keeps_every_rule(history):
    check(history, Counter())
