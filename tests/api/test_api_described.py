"""What is generated from the OpenAPI description meets no fault and no answer outside it (G10)."""

import pytest
from tests.api.described import Driver


def drive(served, examples, start):
    served.version("ds_orange", 1)
    driver = Driver(served)
    driver.drive(examples, start)
    return driver.answered


def test_some_generated_requests_to_every_operation_are_answered_as_described(served):
    answered = drive(served, 2, start=1)
    assert sum(answered.values()) > 40
    assert {200, 400, 403, 404} <= set(answered)


@pytest.mark.goals
@pytest.mark.parametrize("start", range(4))
def test_thousands_of_generated_requests_are_answered_as_described(served, start):
    """A quarter of 10,000."""
    assert sum(drive(served, 100, start).values()) >= 2_500
