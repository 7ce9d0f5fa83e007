"""Long proofs for `make goals`: the properties of the suite, over many more histories."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipeline.test_match_properties import check_history, histories

pytestmark = pytest.mark.goals
LONG = settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("key", [["k"], []], ids=["keyed", "unkeyed"])
@LONG
@given(history=histories(), seed=st.integers(0, 9))
def test_changes_lead_from_version_to_version_and_ids_stay(key, history, seed):
    check_history(key, history, seed)
