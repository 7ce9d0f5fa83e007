"""Asks the matching agent about left-over records that may be one (D4.6 to D4.9)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ploti_server.pipeline.find import Found, Search
from ploti_server.ports import Judgement, Pair

Judge = Callable[[Sequence[Pair]], Sequence[Judgement] | None]


@dataclass(frozen=True)
class Waiting:
    """The agent was asked about these pairs and answers later."""

    pairs: tuple[Pair, ...]


def ask(search: Search, found: Found, judge: Judge) -> Found | Waiting:
    """Pair what the agent holds for one record; `Waiting` where it answers later."""
    if search.old is None or not (found.new_count and found.old_count):
        return found
    judgements = judge(())
    return Waiting(()) if judgements is None else found
