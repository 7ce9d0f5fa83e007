"""SIGKILL at each named step round asks and holds that end by themselves, at its first hit and its last (G2)."""

import pytest
from tests.e2e.test_kills_asks import STORIES, publishers  # noqa: F401  # a fixture

pytestmark = pytest.mark.goals


@pytest.mark.parametrize("story", STORIES)
def test_after_a_kill_the_next_worker_ends_as_if_nothing_had_happened(story, publishers, tmp_path, record_property):  # noqa: F811  # the fixture
    record_property("figure", f"{story}: {publishers.check_kills(story, tmp_path)} kills")
