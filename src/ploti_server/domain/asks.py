"""Asks: the pairs that a build puts to its matching agent, and the judgements given, kept for good (D4.2, D4.9)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

ASKS: Final = 2
"""How often an agent is asked at most."""

ASK_TIME: Final = timedelta(hours=24)
STAFF: Final = "staff"
CARRIED: Final = frozenset({STAFF, "chat"})
"""Who judges a pair by its two records alone, so that the judgement holds for other states beside the same version."""

FIRST_TRY_AFTER: Final = timedelta(minutes=5)
LONGEST_TRY_AFTER: Final = timedelta(hours=4)

FINISHED: Final = "finished"
"""Fact of a check whose build goes on with the answers that there are, by a person's order."""

Shown = Mapping[str, Any]
"""A record's values as a person sees them, by delivered column name."""


class AnswerRefused(Exception):
    """A judgement by hand that cannot be taken; the message says why."""


@dataclass(frozen=True)
class AskedPair:
    """A pair of an old and a new record, by their names in the ask; `differs` are compared columns that differ."""

    pair_id: str
    old: str
    new: str
    differs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Given:
    """A judgement as it is kept: `by` names the agent, or is `staff`."""

    pair_id: str
    same: bool
    confidence: float
    by: str
    at: datetime
    explanation: str | None = None


@dataclass(frozen=True)
class Ask:
    """What one check's build asked, beside the version `base`; `number` counts the asks, `tries` within the last one.

    `due_at` is the end of the open ask, None where nothing is waited for. `pairs`, and `olds` and `news` with their
    records' values, are there while the version waits or is held.
    """

    check_id: int
    dataset_id: str
    base: int
    version: int
    agent: str
    asked_at: datetime
    due_at: datetime | None = None
    number: int = 0
    tries: int = 0
    trouble: str | None = None
    pairs: tuple[AskedPair, ...] = ()
    olds: dict[str, Shown] = field(default_factory=dict)
    news: dict[str, Shown] = field(default_factory=dict)
    given: tuple[Given, ...] = ()

    @property
    def answers(self) -> dict[str, Given]:
        """The judgements by pair."""
        return {given.pair_id: given for given in self.given}

    @property
    def settled(self) -> frozenset[str]:
        """Pairs that need no answer any more: judged ones, and others of a record that staff matched."""
        answers = self.answers
        matched = [p for p in self.pairs if (g := answers.get(p.pair_id)) and g.same and g.by == STAFF]
        olds, news = {p.old for p in matched}, {p.new for p in matched}
        return frozenset(p.pair_id for p in self.pairs if p.pair_id in answers or p.old in olds or p.new in news)

    @property
    def open_pairs(self) -> tuple[AskedPair, ...]:
        """Pairs that wait for an answer."""
        settled = self.settled
        return tuple(pair for pair in self.pairs if pair.pair_id not in settled)

    @property
    def decided(self) -> tuple[Given, ...]:
        """The judgements that count: an agent's about a record that staff matched otherwise does not."""
        answers = self.answers
        by_staff = {id_ for id_, given in answers.items() if given.by == STAFF}
        settled = replace(self, given=tuple(given for given in self.given if given.by == STAFF)).settled
        return tuple(g for g in self.given if g.pair_id in by_staff or g.pair_id not in settled)


def with_given(ask: Ask, given: Iterable[Given]) -> Ask:
    """Take judgements in; a later one about the same pair wins, but never an agent's over a person's."""
    kept = ask.answers
    for one in given:
        before = kept.get(one.pair_id)
        if before is None or before.by != STAFF or one.by == STAFF:
            kept[one.pair_id] = one
    return replace(ask, given=tuple(kept[id_] for id_ in sorted(kept)))


def carried_over(ask: Ask, earlier: Iterable[Ask]) -> Ask:
    """Take in what was judged of the same pairs for other states beside the same version, oldest first."""
    own = {pair.pair_id for pair in ask.pairs}
    for other in earlier:
        if other.base == ask.base and other.check_id != ask.check_id:
            ask = with_given(ask, (g for g in other.given if g.by in CARRIED and g.pair_id in own))
    return ask


def is_over(ask: Ask, now: datetime) -> bool:
    """Tell whether the last ask has ended without a whole answer (D4.9)."""
    return ask.number >= ASKS and ask.due_at is not None and ask.due_at <= now


def asked_again(ask: Ask, now: datetime) -> Ask:
    """Begin the first ask, or the second once the first has run out; a further try of an open ask changes nothing."""
    if ask.number and ask.due_at is not None and now < ask.due_at:
        return ask
    return replace(ask, number=ask.number + 1, tries=0, due_at=now + ASK_TIME)


def tried(ask: Ask, trouble: str) -> Ask:
    """Note that an agent that answers by itself could not."""
    return replace(ask, tries=ask.tries + 1, trouble=trouble)


def look_again_at(ask: Ask, now: datetime) -> datetime | None:
    """Tell when the build goes on: at the end of the ask, sooner where the agent has to be tried again."""
    if ask.due_at is None or not ask.tries:
        return ask.due_at
    return min(ask.due_at, now + min(FIRST_TRY_AFTER * (1 << min(ask.tries - 1, 8)), LONGEST_TRY_AFTER))


def closed(ask: Ask, *, keeps_values: bool) -> Ask:
    """End an ask with its check: the judgements that count stay, the rest only as long as a person may have to see it.

    Why two records are different is let go of too: most judgements are of that kind.
    """
    ended = replace(ask, due_at=None)
    if keeps_values:
        return ended
    given = tuple(one if one.same else replace(one, explanation=None) for one in ended.decided)
    return replace(ended, pairs=(), olds={}, news={}, given=given)


def pairs_named(ask: Ask, names: str) -> tuple[AskedPair, ...]:
    """Find pairs by their numbers in the list, from 1, or ids, like `3`, `1,4` or `7-9`; raises `AnswerRefused`."""
    found: dict[str, AskedPair] = {}
    for name in names.split(","):
        first, dash, last = name.partition("-")
        few = dash and first.isdecimal() and last.isdecimal() and int(last) - int(first) <= len(ask.pairs)
        for one in map(str, range(int(first), int(last) + 1)) if few else (name,):
            pair = _pair_named(ask, one)
            found[pair.pair_id] = pair
    return tuple(found.values())


def _pair_named(ask: Ask, name: str) -> AskedPair:
    if name.isdecimal() and 0 < int(name) <= len(ask.pairs):
        return ask.pairs[int(name) - 1]
    for pair in ask.pairs:
        if pair.pair_id == name:
            return pair
    raise AnswerRefused(f"there is no pair {name}: the ask has pairs 1 to {len(ask.pairs)}, see `judge show`")


def answered(ask: Ask, pairs: Sequence[AskedPair], same: bool, now: datetime, note: str | None) -> Ask:
    """Take a person's judgement of pairs in; raises `AnswerRefused` where it would match a record twice."""
    for pair in pairs:
        if same:
            _refuse_second(ask, pair)
        ask = with_given(ask, [Given(pair.pair_id, same, 1.0, STAFF, now, note)])
    return ask


def _refuse_second(ask: Ask, pair: AskedPair) -> None:
    answers = ask.answers
    for number, other in enumerate(ask.pairs, 1):
        given = answers.get(other.pair_id)
        taken = given is not None and given.same and given.by == STAFF and other != pair
        if taken and (other.old == pair.old or other.new == pair.new):
            raise AnswerRefused(
                f"a record of this pair is the same as another already, by pair {number}: judge that `different` first"
            )
