"""Which of a dataset's columns the user wants here (D11.8): said once, kept in the target beside what is held.

A choice is text, as the target stores it: `{"only": [...]}` or `{"without": [...]}`; None where all columns are wanted.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ploti.sync.target import Delivery, StepRefused, SyncError

ALL: Final = "*"


def choices_of(only: Iterable[str], without: Iterable[str]) -> dict[str, str | None]:
    """Read choices as a user writes them, like `ds_permits=number,value`, by dataset; `*` is every column."""
    found: dict[str, str | None] = {}
    for kind, told in (("only", only), ("without", without)):
        for text in told:
            dataset_id, _, listed = text.partition("=")
            names = sorted({name.strip() for name in listed.split(",")} - {""})
            if not dataset_id or not names or (ALL in names and (kind == "without" or len(names) > 1)):
                raise SyncError(f"{text!r} names no columns: write it like ds_permits=number,value.")
            if dataset_id in found:
                raise SyncError(f"The columns of {dataset_id} are named twice: name those wanted, or those not wanted.")
            found[dataset_id] = None if names == [ALL] else json.dumps({kind: names}, ensure_ascii=False)
    return found


def narrowed(delivery: Delivery, choice: str | None, *, is_new: bool = False) -> Delivery:
    """Leave the columns out of a delivery that are not wanted.

    Raises StepRefused where the version lacks a column that a new choice names; an older choice may outlive a column.
    """
    if choice is None:
        return delivery
    told = _told(choice)
    names = [column["name"] for column in delivery.schema["columns"]]
    named = {name for listed in told.values() for name in listed}
    if is_new and (unknown := sorted(named - set(names))):
        raise StepRefused(f"it has no column {unknown[0]!r} to choose: it has {', '.join(names)}")
    wanted = [column for column in delivery.schema["columns"] if (column["name"] in named) == ("only" in told)]
    kept = {column["name"] for column in wanted}
    return replace(
        delivery,
        schema={**delivery.schema, "columns": wanted},
        constants={name: value for name, value in delivery.constants.items() if name in kept},
        left_out=frozenset(names) - kept,
    )


def _told(choice: str) -> Mapping[str, list[str]]:
    """Read a stored choice; raises StepRefused for one that a user changed by hand into none."""
    try:
        told = json.loads(choice)
    except ValueError:
        told = None
    if not isinstance(told, dict) or told.keys() not in ({"only"}, {"without"}):
        raise StepRefused("the choice of its columns was changed by hand: choose again with --columns or --without")
    return told
