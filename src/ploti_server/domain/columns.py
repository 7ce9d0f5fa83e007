"""Names and order of delivered columns, and how the catalog's own spelling finds them (D2.1, D2.8, D2.9)."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ploti.contract.files import GEOMETRY, RESERVED_PREFIX
from ploti_server.domain.schema import KnownColumn

NAME_BYTES: Final = 63
DIGIT_PREFIX: Final = "c_"
"""What stands before a name that would begin with a digit."""
SOURCE_PREFIX: Final = "source_"

_LETTERS: Final = str.maketrans(
    {
        "ß": "ss", "æ": "ae", "Æ": "ae", "œ": "oe", "Œ": "oe", "ø": "o", "Ø": "o", "đ": "d", "Đ": "d",
        "ð": "d", "Ð": "d", "þ": "th", "Þ": "th", "ł": "l", "Ł": "l", "ı": "i", "ħ": "h", "Ħ": "h",
        "ŧ": "t", "Ŧ": "t", "ŋ": "n", "Ŋ": "n",
    }
)  # fmt: skip
"""Latin letters that no decomposition turns into ASCII."""


@dataclass(frozen=True)
class SourceColumn:
    """A column as the source has it.

    `id` is unique in the state, `name` the source's spelling (empty where it gave none), `position` counts from 1.
    `optional` tells that some record left it out.
    """

    id: str
    name: str
    position: int
    optional: bool = False

    @property
    def source_name(self) -> str:
        """The spelling that schemas carry: a nameless header goes by its position."""
        return self.name or f"column_{self.position}"


def base_name(source_name: str, position: int) -> str:
    """Give the delivered name that a source column would have if it stood alone (D2.1)."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFC", source_name).translate(_LETTERS))
    ascii_only = "".join(c for c in plain if not unicodedata.combining(c))
    kept = re.sub(r"[^a-z0-9]+", "_", ascii_only.lower())
    words = kept.strip("_")
    if not words:
        return f"column_{position}"
    name = re.match("_*", source_name.strip())[0] + words  # type: ignore[index]  # the pattern matches always
    if name[0].isdigit():
        name = DIGIT_PREFIX + name
    if name == GEOMETRY or name.startswith(RESERVED_PREFIX):
        name = SOURCE_PREFIX + name
    return name[:NAME_BYTES].rstrip("_")


def delivered_names(columns: Sequence[SourceColumn], known: Sequence[KnownColumn]) -> dict[str, str]:
    """Name every column of a state: source column id -> delivered name (D2.1).

    A name once given stays with its source column; a source column that the dataset has not had takes the name that it
    would have alone, also where another spelling had it before and is gone now; what clashes gets `_2`, `_3`.
    """
    free: dict[str, list[str]] = {}
    for had in known:
        if had.name != GEOMETRY:
            free.setdefault(had.source_name, []).append(had.name)
    names: dict[str, str] = {}
    for column in columns:
        if free.get(column.source_name):
            names[column.id] = free[column.source_name].pop(0)
    taken = set(names.values())
    for column in columns:
        if column.id not in names:
            names[column.id] = _unused(base_name(column.name, column.position), taken)
            taken.add(names[column.id])
    return names


def _unused(name: str, taken: set[str]) -> str:
    """Give the name itself, else with the first number that makes it unique."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        suffix = f"_{number}"
        candidate = name[: NAME_BYTES - len(suffix)].rstrip("_") + suffix
    return candidate


def find_column(columns: Sequence[SourceColumn], spelling: str) -> SourceColumn | None:
    """Find the column that the catalog means: by exact spelling, else by the same delivered name (D2.1, D2.9)."""
    exact = next((column for column in columns if column.source_name == spelling), None)
    if exact is not None:
        return exact
    wanted = base_name(spelling, 0)
    return next((column for column in columns if column.name and base_name(column.name, 0) == wanted), None)


def known_after(known: Sequence[KnownColumn], delivered: Iterable[tuple[str, str]]) -> tuple[KnownColumn, ...]:
    """Give every column that the dataset has had, in order of first appearance, with its newest spelling (D2.8).

    `delivered` are name and source name, in the state's order.
    """
    spelling: dict[str, str] = {column.name: column.source_name for column in known}
    spelling.update(delivered)
    return tuple(KnownColumn(name, source_name) for name, source_name in spelling.items())


def in_order(names: Iterable[str], known: Sequence[KnownColumn]) -> list[str]:
    """Put delivered names into the order in which the dataset first had them (D2.8)."""
    place: Mapping[str, int] = {column.name: index for index, column in enumerate(known)}
    return sorted(names, key=lambda name: place[name])
