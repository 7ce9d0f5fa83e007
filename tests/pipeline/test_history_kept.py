"""What an operator does to a dataset's entry leaves its history as it is (D10.2)."""

import pytest
from tests.pipeline.publishing import Publisher

from ploti_server.domain.datasets import SourceSpec
from ploti_server.pipeline.check import CheckRefused
from ploti_server.pipeline.membership import bring_all_up_to_date


def test_a_dataset_that_is_renamed_moved_retired_and_taken_up_again_goes_on_where_it_was(tmp_path):
    publisher = Publisher(tmp_path, key=("k",))
    subscription = publisher.subscribe()
    assert publisher.outcome("k,v\n1,a\n2,b\n3,c\n") == ("released", 1)
    publisher.define(title="Y", publisher="Another office", source=SourceSpec("file", "elsewhere/y.csv"))
    assert publisher.outcome("k,v\n1,a\n2,b\n3,d\n") == ("released", 2)
    publisher.define(retired=True)
    bring_all_up_to_date(publisher.ports)
    with pytest.raises(CheckRefused, match="is retired and no longer checked"):
        publisher.check("k,v\n1,a\n2,e\n3,d\n")
    assert publisher.chain() == [(1, None), (2, 1)]
    publisher.define(retired=False)
    bring_all_up_to_date(publisher.ports)
    assert publisher.outcome("k,v\n1,a\n2,e\n3,d\n") == ("released", 3)
    assert publisher.chain() == [(1, None), (2, 1), (3, 2)]
    assert publisher.ids(1, "k") == publisher.ids(2, "k") == publisher.ids(3, "k")
    assert publisher.log(subscription, "version", "reason")[2:] == [
        ("updated", 2, None), ("removed", None, "no_longer_deliverable"), ("added", 2, None), ("updated", 3, None),
    ]  # fmt: skip
