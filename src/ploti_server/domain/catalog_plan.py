"""What applying a catalog would change, and what a changed definition will do at the next check (D10.2).

A dataset that the file does not name stays as it is: only `retired: true` retires one, so that a cut or partial file
takes nothing from subscribers. A topic that the file does not name stays while a dataset is filed under it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from ploti.contract.files import GEOMETRY
from ploti.contract.values import ColumnType
from ploti_server.domain.catalog import Catalog
from ploti_server.domain.columns import SourceColumn, find_column
from ploti_server.domain.datasets import Dataset, Topic
from ploti_server.domain.schema import Schema

Effect = Literal["MINOR", "MAJOR"]


@dataclass(frozen=True)
class Altered:
    """A dataset whose definition changes, the changed fields, and what the next check will make of them.

    `effect` is None where the schema stays; a MAJOR change is held for review like any other (D10.2).
    """

    dataset_id: str
    fields: tuple[str, ...]
    effect: Effect | None


@dataclass(frozen=True)
class CatalogPlan:
    """What applying would do, by dataset id; `not_named` are stored datasets that the file leaves out."""

    added: tuple[str, ...]
    changed: tuple[Altered, ...]
    retired: tuple[str, ...]
    returned: tuple[str, ...]
    unchanged: tuple[str, ...]
    not_named: tuple[str, ...]
    topics_added: tuple[str, ...]
    topics_changed: tuple[str, ...]
    topics_removed: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Tell whether applying would change nothing."""
        moved = (self.added, self.changed, self.retired, self.returned)
        return not any((*moved, self.topics_added, self.topics_changed, self.topics_removed))


def kept_topics(catalog: Catalog, topics: Iterable[Topic], datasets: Iterable[Dataset]) -> tuple[Topic, ...]:
    """Give the topics after applying: the file's, then earlier ones that a dataset left alone is filed under."""
    named = {topic.id for topic in catalog.topics}
    moved = {dataset.id for dataset in catalog.datasets}
    in_use = {dataset.topic for dataset in datasets if dataset.id not in moved}
    return catalog.topics + tuple(topic for topic in topics if topic.id not in named and topic.id in in_use)


def effect_of(before: Dataset, after: Dataset, schema: Schema | None) -> Effect | None:
    """Tell what a changed key, type, list of dropped columns or place of shapes makes of the current schema.

    Names that the schema lacks have no effect; nor has anything where no version is released yet.
    """
    if schema is None:
        return None
    columns = [SourceColumn(column.name, column.source_name, 0) for column in schema.columns]

    def delivered(spelling: str) -> str | None:
        found = find_column(columns, spelling)
        return found.id if found is not None else None

    key_changed = before.key != after.key and schema.key_columns != tuple(map(delivered, after.key))
    shaped, shapes = schema.column(GEOMETRY) is not None, after.source.geometry
    major = (
        any(delivered(name) for name in set(after.drop) - set(before.drop)),
        key_changed and bool(schema.key_columns),
        before.columns != after.columns and _retypes(schema, {delivered(n): t for n, t in after.columns.items()}),
        shaped and shapes is None and before.source.geometry is not None,
    )
    minor = (bool(set(before.drop) - set(after.drop)), key_changed, not shaped and shapes is not None)
    if any(major):
        return "MAJOR"
    return "MINOR" if any(minor) else None


def _retypes(schema: Schema, declared: Mapping[str | None, ColumnType]) -> bool:
    return any(declared.get(column.name, column.type) != column.type for column in schema.columns)


def _altered(before: Dataset, after: Dataset, schema: Schema | None) -> Altered:
    changed = (f.name for f in fields(Dataset) if getattr(before, f.name) != getattr(after, f.name))
    return Altered(after.id, tuple(changed), effect_of(before, after, schema))


def plan_catalog(
    catalog: Catalog, topics: Sequence[Topic], datasets: Iterable[Dataset], schemas: Mapping[str, Schema]
) -> CatalogPlan:
    """Compare a catalog with what is stored; `schemas` are those of the datasets' current versions, by id."""
    before = {dataset.id: dataset for dataset in datasets}
    after = {dataset.id: dataset for dataset in catalog.datasets}
    both = sorted(before.keys() & after.keys())
    changed = [i for i in both if before[i] != after[i]]
    retired = [i for i in changed if after[i].retired and not before[i].retired]
    returned = [i for i in changed if before[i].retired and not after[i].retired]
    moved = {*retired, *returned}
    known = {topic.id: topic for topic in topics}
    kept = {topic.id: topic for topic in kept_topics(catalog, topics, before.values())}
    return CatalogPlan(
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(_altered(before[i], after[i], schemas.get(i)) for i in changed if i not in moved),
        retired=tuple(retired),
        returned=tuple(returned),
        unchanged=tuple(i for i in both if before[i] == after[i]),
        not_named=tuple(sorted(before.keys() - after.keys())),
        topics_added=tuple(sorted(kept.keys() - known.keys())),
        topics_changed=tuple(i for i in sorted(kept.keys() & known.keys()) if kept[i] != known[i]),
        topics_removed=tuple(sorted(known.keys() - kept.keys())),
    )
