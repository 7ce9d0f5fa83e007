"""Checks that an answer of the API has what the contract says, before anything is decided by it."""

import re
import types
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ploti.contract.events import (
    ADDED,
    DELAYED,
    REMOVED,
    RESYNC_REQUIRED,
    SCHEMA_CHANGED,
    STALE,
    UPDATED,
    AddedData,
    DelayedData,
    Event,
    RemovedData,
    ResyncData,
    SchemaChangedData,
    StaleData,
    UpdatedData,
)
from ploti.errors import BadAnswer

Answer = TypeVar("Answer")
_EVENT_DATA: Final[dict[str, type]] = {
    ADDED: AddedData,
    UPDATED: UpdatedData,
    SCHEMA_CHANGED: SchemaChangedData,
    RESYNC_REQUIRED: ResyncData,
    REMOVED: RemovedData,
    STALE: StaleData,
    DELAYED: DelayedData,
}
_DATASET_ID: Final = re.compile("ds_[a-z0-9_]{1,200}")


def whole(answer: Answer, shape: type, what: str) -> Answer:
    """Give an answer back; raises BadAnswer naming the member that it lacks, or has with another type."""
    wrong = _wrong(answer, shape)
    if wrong is not None:
        raise BadAnswer(
            f"{what} from the API is not what was promised (at {wrong or 'the top'}): report it.", code="bad_answer"
        )
    return answer


def sound(answer: object, shape: type) -> bool:
    """Tell whether an answer has what it should."""
    return _wrong(answer, shape) is None


def event_trouble(event: Event) -> str | None:
    """Tell what is wrong with an event's data; None where nothing is, or where its type is unknown here."""
    shape = _EVENT_DATA.get(event["type"])
    wrong = None if shape is None else _wrong(event["data"], shape)
    return None if wrong is None else f"event {event['id']} is not what was promised (at {wrong}): report it"


def named_well(dataset_id: object) -> bool:
    """Tell whether a dataset's id is one that a table and a folder can be named after."""
    return isinstance(dataset_id, str) and _DATASET_ID.fullmatch(dataset_id) is not None


def _wrong(value: Any, hint: Any) -> str | None:
    """Give the path to what is wrong with a value; None where nothing is."""
    origin = get_origin(hint)
    if hint is Any or origin is Literal:
        return None
    if origin in (Union, types.UnionType):
        kinds = [each for each in get_args(hint) if each is not type(None)]
        return None if value is None and len(kinds) < len(get_args(hint)) else _wrong(value, kinds[0])
    if origin is list:
        return _wrong_item(value, get_args(hint)[0])
    if hasattr(hint, "__required_keys__"):
        return _wrong_member(value, hint)
    kind = origin or hint
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    return None if right else ""


def _wrong_item(value: Any, hint: Any) -> str | None:
    if not isinstance(value, list):
        return ""
    found = ((at, _wrong(item, hint)) for at, item in enumerate(value))
    return next((_joined(str(at), wrong) for at, wrong in found if wrong is not None), None)


def _wrong_member(value: Any, shape: Any) -> str | None:
    if not isinstance(value, dict):
        return ""
    for name, hint in _members(shape).items():
        if name not in value:
            if name in shape.__required_keys__:
                return name
            continue
        wrong = _wrong(value[name], hint)
        if wrong is not None:
            return _joined(name, wrong)
    return None


@lru_cache
def _members(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape)


def _joined(name: str, rest: str) -> str:
    return f"{name}.{rest}" if rest else name
