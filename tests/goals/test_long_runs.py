"""Long proofs for `make goals`: the properties of the suite, over many more histories."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipeline.test_match_properties import check_history, histories
from tests.pipeline.test_match_replaced import check_replaced

pytestmark = pytest.mark.goals
LONG = settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("key", [["k"], []], ids=["keyed", "unkeyed"])
@LONG
@given(history=histories(), seed=st.integers(0, 9))
def test_changes_lead_from_version_to_version_and_ids_stay(key, history, seed):
    check_history(key, history, seed)


row = st.fixed_dictionaries(
    {"k": st.sampled_from([None, *"abcde"]), "v": st.sampled_from([None, "r", "s"]), "n": st.sampled_from([1, 2])}
)


@pytest.mark.parametrize("key", [("k",), ()], ids=["keyed", "unkeyed"])
@LONG
@given(states=st.lists(st.lists(row, max_size=6), min_size=3, max_size=3), named=st.booleans(), seed=st.integers(0, 9))
def test_the_id_map_covers_what_is_carried_and_row_order_decides_nothing(key, states, named, seed):
    check_replaced(states, key, named, seed)
