"""A store with something in it, for the tests of adapters."""

import pytest
from tests.adapters.store_rows import WORKSPACE, dataset, subscription


@pytest.fixture
def filled(store):
    """A store with two datasets, a workspace and one subscription."""
    with store.write() as records:
        for name in ("ds_b", "ds_a"):
            records.catalog.put_dataset(dataset(name))
        records.workspaces.put(WORKSPACE)
        records.subscriptions.put(subscription("sub_1"))
    return store
