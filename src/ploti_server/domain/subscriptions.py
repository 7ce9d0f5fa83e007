"""Subscriptions: what they name and what they cover."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Subscription:
    """The datasets that a workspace follows: places, optionally narrowed to topics, and datasets named alone."""

    id: str
    workspace_id: str
    name: str
    places: tuple[str, ...]
    topics: tuple[str, ...]
    dataset_ids: tuple[str, ...]
    revision: int
    created_at: datetime
    updated_at: datetime
