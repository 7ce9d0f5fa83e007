"""Tables whose rows are large: files are read a row group at a time, whatever one holds."""

import pytest
from tests.sync.kits import ParquetKit
from tests.sync.test_sync_repair import Duck, GeoPackage, Postgres

from ploti import Client
from ploti.sync.loop import verify
from ploti.sync.target import reach_nothing
from ploti.testing.feed import Feed, record_id
from ploti.testing.stories import A
from ploti.testing.targets import sync_feed

KITS = {"duckdb": Duck, "geopackage": GeoPackage, "parquet": ParquetKit, "postgresql": Postgres}


@pytest.mark.parametrize("kind", KITS)
def test_a_row_group_of_a_hundred_and_thirty_megabytes_is_loaded_changed_and_verified(
    kind, request, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kit = KITS[kind](request.getfixturevalue("postgres_database") if kind == "postgresql" else tmp_path)
    texts = {record_id(at): {"note": f"{at} " * 1_000_000} for at in range(48)}
    feed = Feed()
    feed.add(A, {"note": "string"}, texts)
    assert not sync_feed(feed, kit).behind
    feed.update(A, put={record_id(3): {"note": "short"}})
    assert not sync_feed(feed, kit).behind
    with Client(**feed.api.client_options) as client:
        (found,) = verify(client, kit.open(reach_nothing))
    assert (found.equal, found.records) == (True, 48)
