"""Tables in two states with known truth: records edited, removed and added as publishers and clerks do it.

Fixed before the judge was written; the judge never imports it. `make(kind, left_over, seed)` gives the same tables for
the same arguments. Every kind has families of records that resemble each other: permits of one house or of one
builder's street, businesses of one building, owner or chain, districts of one name side by side.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from bench import edit_kinds as kinds
from bench import edit_worlds as worlds

Row = dict[str, Any]

EDITS = ((1, 35), (2, 30), (3, 20), (4, 10), (6, 5))
"""How many columns of an edited record are touched, with weights."""

REMOVED = ADDED = 0.2
"""Share of the left-over records that truly went, and truly came."""

RESEMBLING = 0.5
"""Share of the records that came which resemble one that went or stayed."""

MIGRATED = 0.25
"""Share of edited records that a new system of the publisher restyled, before any other edit."""

NUMBERS = (("kept", 35), ("reformatted", 15), ("renumbered", 50))


@dataclass(frozen=True)
class Tables:
    """Two states; `truth` maps the place of an old row to the place of the same record's new row.

    `edited` are the old places of records whose content changed: who is to be found by judging.
    """

    kind: str
    types: dict[str, str]
    old: list[Row]
    new: list[Row]
    truth: dict[int, int]
    edited: frozenset[int] = field(default_factory=frozenset)


def make(kind: str, left_over: int, seed: int) -> Tables:
    """Make as many left-over old records as asked for, and as many unchanged ones around them."""
    chance = random.Random(f"{kind}-{left_over}-{seed}")
    world = worlds.WORLDS[kind](chance)
    records = world.records(2 * left_over)
    chance.shuffle(records)
    went = round(left_over * REMOVED)
    edited, removed, kept = records[went:left_over], records[:went], records[left_over:]
    came = [_newcomer(world, records, removed, chance) for _ in range(round(left_over * ADDED))]
    old = [(place, row) for place, row in enumerate([*removed, *edited, *kept])]
    new = [(went + place, _edited(world, row, chance)) for place, row in enumerate(edited)]
    new += [(left_over + place, dict(row)) for place, row in enumerate(kept)]
    new += [(-1, row) for row in came]
    chance.shuffle(old)
    chance.shuffle(new)
    at = {place: here for here, (place, _) in enumerate(new) if place >= 0}
    truth = {here: at[place] for here, (place, _) in enumerate(old) if place in at}
    old_rows, new_rows = [row for _, row in old], [row for _, row in new]
    changed = frozenset(here for here, there in truth.items() if old_rows[here] != new_rows[there])
    return Tables(kind, world.types, old_rows, new_rows, truth, changed)


def _newcomer(world: Any, records: list[Row], removed: list[Row], chance: random.Random) -> Row:
    if chance.random() >= RESEMBLING:
        return world.fresh()
    return world.sibling(chance.choice(removed if chance.random() < 0.5 else records))


def _edited(world: Any, row: Row, chance: random.Random) -> Row:
    """Edit a record until something differs."""
    while True:
        edited = _renumbered(world, _migrated(world, row, chance) if chance.random() < MIGRATED else dict(row), chance)
        counts, weights = zip(*EDITS, strict=True)
        names, name_weights = zip(*world.edited.items(), strict=True)
        for _ in range(chance.choices(counts, weights)[0]):
            name = chance.choices(names, name_weights)[0]
            edited[name] = _touched(world, name, edited, chance)
        if edited != row:
            return edited


def _renumbered(world: Any, row: Row, chance: random.Random) -> Row:
    ways, weights = zip(*NUMBERS, strict=True)
    way = chance.choices(ways, weights)[0]
    if world.number is None or way == "kept":
        return row
    number = world.next_number() if way == "renumbered" else kinds.reformatted(row[world.number], chance)
    return row | {world.number: number}


def _migrated(world: Any, row: Row, chance: random.Random) -> Row:
    """Restyle all text and geocode anew: what moving to another system does to every row at once."""
    style = chance.choice([str.upper, str.title, kinds.abbreviated, kinds.unpunctuated])
    moved = {n: style(v) if isinstance(v, str) and n != world.number else v for n, v in row.items()}
    if moved.get("geometry") is not None and world.points:
        moved["geometry"] = kinds.moved_point(moved["geometry"], chance.uniform(0.5, 25), chance)
    return moved


def _touched(world: Any, name: str, row: Row, chance: random.Random) -> Any:
    value, type_ = row[name], world.types[name]
    if name in world.choices:
        return chance.choice([v for v in world.choices[name] if v != value])
    if value is None:
        return world.filled(name)
    if name in world.retold and chance.random() < 0.3:
        return world.filled(name)
    if chance.random() < 0.04 and (world.points or name != "geometry"):
        return None
    return TOUCHES[type_](value, chance)


def _shape(value: bytes, chance: random.Random) -> bytes:
    if len(value) == 21:
        return kinds.moved_point(value, chance.choice([2, 10, 30, 80]) * chance.uniform(0.3, 1.5), chance)
    return kinds.reshaped(value, chance)


def _day(value: date, chance: random.Random) -> date:
    return value + timedelta(chance.choice([-30, -7, -1, 1, 2, 7, 14, 30, 90, 365]))


def _amount(value: float, chance: random.Random) -> float:
    return round(value * chance.choice([0.5, 0.9, 1.02, 1.1, 1.25, 2]) + chance.choice([0, 0, 50, 100]), 2)


def _count(value: int, chance: random.Random) -> int:
    return max(0, value + chance.choice([-20, -3, -1, 1, 2, 5, 30]))


TOUCHES: dict[str, Callable[[Any, random.Random], Any]] = {
    "string": kinds.edited_text,
    "number": _amount,
    "integer": _count,
    "date": _day,
    "geometry": _shape,
}
