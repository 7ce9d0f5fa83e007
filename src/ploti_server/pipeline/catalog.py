"""Applies a catalog: stores its topics and datasets at once, then brings memberships up to date; reads no source."""

from dataclasses import dataclass

from ploti_server.domain.catalog import Catalog
from ploti_server.domain.catalog_plan import CatalogPlan, kept_topics, plan_catalog
from ploti_server.pipeline.membership import bring_all_up_to_date
from ploti_server.ports import Ports, Records


@dataclass(frozen=True)
class Applied:
    """What applying a catalog changed; `waiting` are subscriptions that could not be brought up to date yet."""

    plan: CatalogPlan
    waiting: tuple[str, ...] = ()


def plan_applying(ports: Ports, catalog: Catalog) -> CatalogPlan:
    """Tell what applying a catalog would change, changing nothing (D10.2)."""
    with ports.store.read() as records:
        return _plan(records, catalog)


def apply_catalog(ports: Ports, catalog: Catalog) -> Applied:
    """Apply a catalog; the same one again changes nothing (D10.2).

    Memberships are brought up to date even where nothing changed, so that a repeat after a crash finishes the work.
    """
    with ports.store.write() as records:
        records.catalog.lock(sorted(dataset.id for dataset in catalog.datasets))
        plan = _plan(records, catalog)
        if not plan.is_empty:
            _store(records, catalog)
        ports.reach("catalog.before_commit")
    ports.reach("catalog.applied")
    return Applied(plan, bring_all_up_to_date(ports))


def _plan(records: Records, catalog: Catalog) -> CatalogPlan:
    current = {dataset.id: records.versions.current(dataset.id) for dataset in catalog.datasets}
    schemas = {dataset_id: version.schema for dataset_id, version in current.items() if version is not None}
    return plan_catalog(catalog, records.catalog.topics(), records.catalog.datasets(), schemas)


def _store(records: Records, catalog: Catalog) -> None:
    stored = {dataset.id: dataset for dataset in records.catalog.datasets()}
    records.catalog.put_topics(kept_topics(catalog, records.catalog.topics(), stored.values()))
    for dataset in catalog.datasets:
        if stored.get(dataset.id) != dataset:
            records.catalog.put_dataset(dataset)
