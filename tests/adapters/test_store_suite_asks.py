"""What the store promises about asks, over the fake, SQLite and PostgreSQL (D4.2)."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.adapters.store_rows import HOUR, NOW, UNKNOWN_PARENT

from ploti_server.domain.asks import Ask, AskedPair, Given
from ploti_server.domain.checks import Check, CheckStatus

ASK = Ask(
    check_id=1,
    dataset_id="ds_a",
    base=3,
    version=4,
    agent="chat",
    asked_at=NOW,
    due_at=NOW + HOUR,
    number=1,
    tries=2,
    trouble="the endpoint gave 500 ☂",
    pairs=(AskedPair("rec_a-0f-1", "rec_a", "0f-1", ("name", "größe")),),
    olds={"rec_a": {"name": "Oak", "größe": 0.1, "n": None}},
    news={"0f-1": {"name": "Oak 1", "größe": 12, "n": True}},
    given=(Given("rec_a-0f-1", True, 0.9, "chat", NOW + timedelta(milliseconds=1), "same street"),),
)


@pytest.fixture
def checked(filled):
    """A store with three checks of `ds_a` and one of `ds_b`."""
    with filled.write() as records:
        for name in ("ds_a", "ds_a", "ds_a", "ds_b"):
            records.checks.add(Check(0, name, CheckStatus.WAITING, NOW, NOW))
    return filled


def test_an_ask_comes_back_as_it_was_put_and_is_replaced_whole(checked):
    with checked.write() as records:
        assert records.asks.get(1) is None
        records.asks.put(ASK)
        records.asks.put(replace(ASK, check_id=2, due_at=None))
    with checked.read() as records:
        assert records.asks.get(1) == ASK
    with checked.write() as records:
        records.asks.put(replace(ASK, given=()))
        assert records.asks.get(1) == replace(ASK, given=())
        assert records.asks.get(2).given == ASK.given


def test_asks_of_a_dataset_come_newest_first(checked):
    with checked.write() as records:
        for number in (2, 1, 3):
            records.asks.put(replace(ASK, check_id=number))
        records.asks.put(replace(ASK, check_id=4, dataset_id="ds_b"))
        assert [ask.check_id for ask in records.asks.of_dataset("ds_a", 2)] == [3, 2]
        assert records.asks.of_dataset("ds_c", 2) == ()


def test_waiting_asks_come_by_the_end_of_their_time(checked):
    with checked.write() as records:
        for number, due in enumerate((NOW + HOUR, None, NOW, NOW + HOUR), 1):
            records.asks.put(replace(ASK, check_id=number, due_at=due))
        assert [ask.check_id for ask in records.asks.waiting()] == [3, 1, 4]


@pytest.mark.parametrize("other", [{"check_id": 9}, {"dataset_id": "ds_none"}])
def test_an_ask_of_an_unknown_check_or_dataset_is_an_error(checked, other):
    with pytest.raises(UNKNOWN_PARENT), checked.write() as records:
        records.asks.put(replace(ASK, **other))
