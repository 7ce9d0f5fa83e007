"""What applying a catalog would change, and what a changed definition will do at the next check (D10.2).

A dataset that the file does not name stays as it is: only `retired: true` retires one, so that a cut or partial file
takes nothing from subscribers. A topic that the file does not name stays while a dataset is filed under it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from ploti_server.domain.catalog import Catalog
from ploti_server.domain.datasets import Dataset, Topic

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


def effect_of(before: Dataset, after: Dataset) -> Effect | None:
    """Tell what a changed key, type or list of dropped columns makes of the schema at the next check."""
    major = (
        bool(set(after.drop) - set(before.drop)),
        bool(before.key) and after.key != before.key,
        any(before.columns.get(name, kind) != kind for name, kind in after.columns.items()),
    )
    minor = (bool(set(before.drop) - set(after.drop)), not before.key and bool(after.key))
    if any(major):
        return "MAJOR"
    return "MINOR" if any(minor) else None


def _altered(before: Dataset, after: Dataset) -> Altered:
    changed = (f.name for f in fields(Dataset) if getattr(before, f.name) != getattr(after, f.name))
    return Altered(after.id, tuple(changed), effect_of(before, after))


def plan_catalog(catalog: Catalog, topics: Sequence[Topic], datasets: Iterable[Dataset]) -> CatalogPlan:
    """Compare a catalog with what is stored."""
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
        changed=tuple(_altered(before[i], after[i]) for i in changed if i not in moved),
        retired=tuple(retired),
        returned=tuple(returned),
        unchanged=tuple(i for i in both if before[i] == after[i]),
        not_named=tuple(sorted(before.keys() - after.keys())),
        topics_added=tuple(sorted(kept.keys() - known.keys())),
        topics_changed=tuple(i for i in sorted(kept.keys() & known.keys()) if kept[i] != known[i]),
        topics_removed=tuple(sorted(known.keys() - kept.keys())),
    )
