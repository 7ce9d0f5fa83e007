"""Record ids that are replaced: all of a dataset's, or those named by staff or by what the agent found late (D4.12)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

NAMED_SHOWN: Final = 5
"""Problems of a map that are told one by one."""

Standing = Literal["current", "removed", "replaced_by"]
"""What an id's last ledger entry says became of its record (D4.3)."""


@dataclass(frozen=True)
class Replacement:
    """Which ids a version replaces.

    `named` maps an id that a record carries to the one that it carries from then on, None for a new one; without
    `named` every id is replaced in a new id epoch. `key` names the columns that new ids are then made from, in place of
    the dataset's key or the records' content.
    """

    named: dict[str, str | None] | None = None
    key: tuple[str, ...] = ()
    by: Literal["staff", "agent"] = "staff"


class ReplacementRefused(Exception):
    """Ids that cannot be replaced as asked; the message says why."""


def require_named(named: Mapping[str, str | None], standing: Mapping[str, Standing]) -> None:
    """Refuse a map that the ledger does not allow; `standing` has every id that it names and some record ever carried.

    An id moves to one that a record of the same dataset carried before and none carries now, or to a new one: an id
    never names two records at once.
    """
    problems = [problem for old, new in named.items() if (problem := _problem(old, new, standing))]
    given = Counter(new for new in named.values() if new is not None)
    problems += [f"{new} is given to {times} records" for new, times in given.items() if times > 1]
    if not named:
        problems = ["it names no id"]
    if problems:
        more = f"; and {len(problems) - NAMED_SHOWN} more" if len(problems) > NAMED_SHOWN else ""
        raise ReplacementRefused(f"the map cannot be applied: {'; '.join(problems[:NAMED_SHOWN])}{more}")


def _problem(old: str, new: str | None, standing: Mapping[str, Standing]) -> str | None:
    if standing.get(old) != "current":
        return f"no record carries {old} now"
    if new is not None and new not in standing:
        return f"no record ever carried {new}: leave the cell empty for a new id"
    if new is not None and standing[new] == "current":
        return f"{new} is carried by a record now"
    return None
