"""Subscriptions: what they name, and the rules for what a request may put in them (page 000, D8.1, D8.8)."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from ploti_server.domain.access import NOT_DELIVERABLE, OUTSIDE_COVERAGE, Access, Refused
from ploti_server.domain.coverage import is_covered
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.places import place_named

SUBSCRIPTIONS_MOST: Final = 25
PLACES_MOST: Final = 500
TOPICS_MOST: Final = 100
DATASETS_MOST: Final = 500
NAME_LONGEST: Final = 200
ID_LONGEST: Final = 200

_LISTS: Final = {"places": PLACES_MOST, "topics": TOPICS_MOST, "datasetIds": DATASETS_MOST}
_FIELDS: Final = ("name", *_LISTS)
_TAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


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


@dataclass(frozen=True)
class Selection:
    """What a request names: the fields that it sent, the others empty. `name` is None where it was left out."""

    name: str | None = None
    places: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    dataset_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """What a request replaces, None where it left a field out, and the revision that it was made from."""

    name: str | None = None
    places: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    dataset_ids: tuple[str, ...] | None = None
    revision: int | None = None


def _refuse(field: str | None, message: str) -> Refused:
    return Refused("invalid_input", message, field)


def _read_name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value.strip()) <= NAME_LONGEST or not value.isprintable():
        raise _refuse("name", f"Give 'name' as one line of 1 to {NAME_LONGEST} characters.")
    return value.strip()


def _read_list(field: str, value: Any) -> tuple[str, ...]:
    most = _LISTS[field]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _refuse(field, f"Give '{field}' as a list of ids; send [] for none.")
    if len(value) > most:
        raise _refuse(field, f"Name at most {most} in '{field}': {len(value)} were sent.")
    if any(not 0 < len(item) <= ID_LONGEST or not item.isprintable() for item in value):
        raise _refuse(field, f"Every id in '{field}' is one line of 1 to {ID_LONGEST} characters.")
    return tuple(dict.fromkeys(value))


def read_selection(body: Any) -> Selection:
    """Read the fields of a create or preview; raises `Refused` for a wrong shape, an unknown field or a broken limit.

    Repeated ids count toward the limit and are kept once, in the order they were sent.
    """
    sent = _read_fields(body, _FIELDS)
    return Selection(sent.name, sent.places or (), sent.topics or (), sent.dataset_ids or ())


def read_change(body: Any) -> Change:
    """Read the fields of a change; raises `Refused` as for a create. `null` is refused, `[]` clears a list."""
    sent = _read_fields(body, (*_FIELDS, "revision"))
    if "revision" not in body:
        return sent
    revision = body["revision"]
    if not isinstance(revision, int) or isinstance(revision, bool) or revision < 1:
        raise _refuse("revision", "Give 'revision' as the number that the subscription was read with.")
    return replace(sent, revision=revision)


def _read_fields(body: Any, known: Sequence[str]) -> Change:
    if not isinstance(body, Mapping):
        raise _refuse(None, "Send a JSON object with places, topics, datasetIds and a name.")
    for field in body:
        if field not in known:
            raise _refuse(str(field), f"'{field}' is not a field here: use {', '.join(known)}.")
    lists = {field: _read_list(field, body[field]) for field in _LISTS if field in body}
    name = _read_name(body["name"]) if "name" in body else None
    return Change(name, lists.get("places"), lists.get("topics"), lists.get("datasetIds"))


def read_tags(if_match: str | None) -> tuple[str, ...] | None:
    """Read an `If-Match` header's tags, None without one; raises `Refused` for `*` or what is no list of tags."""
    if if_match is None:
        return None
    tags = tuple(tag.strip() for tag in if_match.split(","))
    if not all(_TAG.fullmatch(tag) for tag in tags):
        message = 'Send the subscription\'s ETag as If-Match, with its quotes, like "3"; * is not accepted.'
        raise _refuse("If-Match", message)
    return tags


def require_revision(change: Change, tags: tuple[str, ...] | None) -> None:
    """Refuse a change that names no revision at all (D8.1)."""
    if change.revision is None and tags is None:
        message = "Send the subscription's ETag as If-Match, or its 'revision' in the body, so that no edit is lost."
        raise _refuse("revision", message)


def check_revision(subscription: Subscription, change: Change, tags: tuple[str, ...] | None) -> None:
    """Refuse a change made from another revision; the body's `revision` wins, a weak tag never matches (D8.1)."""
    if change.revision is None:
        same = etag_of(subscription) in (tags or ())
    else:
        same = change.revision == subscription.revision
    if not same:
        message = f"The subscription is at revision {subscription.revision}: read it again and resend the change."
        raise Refused("precondition_failed", message)


def etag_of(subscription: Subscription) -> str:
    """Give a subscription's ETag: its quoted revision (D8.5)."""
    return f'"{subscription.revision}"'


def changed(subscription: Subscription, change: Change, now: datetime) -> Subscription:
    """Apply a change: fields that were sent replace those; what makes no difference makes no revision."""
    after = replace(
        subscription,
        name=subscription.name if change.name is None else change.name,
        places=subscription.places if change.places is None else change.places,
        topics=subscription.topics if change.topics is None else change.topics,
        dataset_ids=subscription.dataset_ids if change.dataset_ids is None else change.dataset_ids,
    )
    return after if after == subscription else replace(after, revision=subscription.revision + 1, updated_at=now)


def check_selection(
    selection: Selection, topics: Collection[str], access: Access, named: Mapping[str, Dataset]
) -> None:
    """Refuse what a subscription may not name, in the order of page 000; `named` holds the datasets known by id.

    A dataset that is unknown or out of reach is refused in one and the same way, so that nothing shows what exists.
    """
    if not selection.places and not selection.dataset_ids:
        raise _refuse("places", "Name at least one place or dataset.")
    _check_named(selection, topics, access, named)


def check_change(
    after: Subscription, change: Change, topics: Collection[str], access: Access, named: Mapping[str, Dataset]
) -> None:
    """Refuse a change that would leave nothing, or a field of it as for a create; others are not looked at (D8.8)."""
    if not after.places and not after.dataset_ids:
        raise _refuse("places", "This would leave no place and no dataset: delete the subscription to stop receiving.")
    sent = Selection(None, change.places or (), change.topics or (), change.dataset_ids or ())
    _check_named(sent, topics, access, named)


def _check_named(selection: Selection, topics: Collection[str], access: Access, named: Mapping[str, Dataset]) -> None:
    for topic in selection.topics:
        if topic not in topics:
            raise _refuse("topics", f"'{topic}' is not a topic: use the ids that GET /v1/topics lists.")
    for place_id in selection.places:
        place = place_named(place_id)
        if place is None or not is_covered(place, access.counties):
            message = f"'{place_id}' is not in your workspace's coverage: use the ids that GET /v1/places lists."
            raise Refused(OUTSIDE_COVERAGE, message, "places")
    for dataset_id in selection.dataset_ids:
        dataset = named.get(dataset_id)
        if dataset is None or not access.delivers(dataset):
            message = f"'{dataset_id}' cannot be delivered to your workspace: list the datasets for those that can."
            raise Refused(NOT_DELIVERABLE, message, "datasetIds")


def check_room(existing: Sequence[Subscription]) -> None:
    """Refuse one more subscription where the workspace has the most it may have."""
    if len(existing) >= SUBSCRIPTIONS_MOST:
        raise Refused(
            "limit_reached",
            f"Your workspace has {SUBSCRIPTIONS_MOST} subscriptions already: widen one with more places or topics, "
            "or delete one first.",
        )


def new_subscription(subscription_id: str, workspace_id: str, selection: Selection, now: datetime) -> Subscription:
    """Make the first revision of a subscription; without a name it is called after what it names first."""
    fallback = next(iter((*selection.places, *selection.dataset_ids)), "Subscription")
    return Subscription(
        id=subscription_id,
        workspace_id=workspace_id,
        name=selection.name or fallback,
        places=selection.places,
        topics=selection.topics,
        dataset_ids=selection.dataset_ids,
        revision=1,
        created_at=now,
        updated_at=now,
    )
