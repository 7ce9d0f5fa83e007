"""What became of record ids between two versions: by id maps, and by asking where the map of one is gone (page 001).

A version that was released again takes its id map with it; the API still tells of every id that it ever sent.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from ploti._client import Client
from ploti.contract.files import RECORDS_PER_CALL
from ploti.contract.resources import RecordTraces, Version
from ploti.errors import Reload
from ploti.sync.answers import whole
from ploti.sync.download import Downloads
from ploti.sync.target import Delivery, IdsReplaced, Target


def leads(versions: Iterable[Version], start: int, end: int) -> bool:
    """Tell whether the listed versions lead from one version to a later one, each on the one before, none missing."""
    previous = {each["version"]: each["previousVersion"] for each in versions}
    at: int | None = end
    while at is not None and at > start:
        at = previous.get(at)
    return at == start


def replacements(client: Client, dataset_id: str, ids: Collection[str]) -> dict[str, str]:
    """Ask by which ids these were replaced; those that were not, or that no record ever carried, are left out."""
    asked, found = sorted(ids), {}
    for start in range(0, len(asked), RECORDS_PER_CALL):
        answer = client.feeds.datasets.records(dataset_id, asked[start : start + RECORDS_PER_CALL])
        for told in whole(answer, RecordTraces, "what became of records")["records"]:
            if told["replacedBy"] is not None:
                found[told["recordId"]] = told["replacedBy"]
    return found


def with_maps(
    downloads: Downloads, delivery: Delivery, columns: tuple[tuple[str, str], ...], passed: Iterable[Version]
) -> tuple[Delivery, bool]:
    """Add the id maps of the versions on the way to a delivery's; tells too whether all of them could be had."""
    maps, all_there = [], True
    for version in passed:
        if version["recordIdsChanged"]:
            try:
                maps.append(downloads.id_map(delivery.dataset_id, version["version"]))
            except Reload:
                all_there = False
    return replace(delivery, ids_replaced=IdsReplaced(columns, tuple(maps))), all_there


def with_told(downloads: Downloads, target: Target, delivery: Delivery) -> Delivery:
    """Ask what became of the ids that the user keeps and no record of the delivery carries, until none is new."""
    assert delivery.ids_replaced is not None
    by_maps = delivery.ids_replaced
    hops: dict[str, str] = {}
    asked: set[str] = set()
    while lost := target.lost_ids(delivery) - asked:
        downloads.progress.line(f"{delivery.dataset_id}: asking what became of {len(lost):,} record ids")
        hops |= replacements(downloads.client, delivery.dataset_id, lost)
        asked |= lost
        delivery = replace(delivery, ids_replaced=replace(by_maps, told={id_: _end(id_, hops) for id_ in hops}))
    return delivery


def _end(id_: str, hops: dict[str, str]) -> str:
    seen = {id_}
    while id_ in hops and hops[id_] not in seen:
        id_ = hops[id_]
        seen.add(id_)
    return id_
