"""Consults a dataset's matching agent for a build: what was judged before is reused, what is new is kept (D4.2, D4.9).

A build that has to wait leaves an ask with its end; the next build of the same check goes on from there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from ploti_server.domain.asks import (
    FINISHED,
    Ask,
    AskedPair,
    Given,
    Shown,
    asked_again,
    carried_over,
    is_over,
    look_again_at,
    tried,
    with_given,
)
from ploti_server.domain.checks import Check
from ploti_server.domain.datasets import Dataset
from ploti_server.domain.evidence import Evidence, Values
from ploti_server.domain.versions import Version
from ploti_server.ports import Judgement, Pair, Ports, Unanswered
from ploti_server.rows.shown import shown

EARLIER: Final = 10
"""Asks of a dataset that are looked through for judgements of the same pairs."""


@dataclass
class Consultation:
    """The `Judge` of one build. Afterwards `ask` tells how the ask stands, and `is_silent` whether it ended unanswered.

    Without an agent that judges the dataset, nobody is asked.
    """

    ports: Ports
    dataset: Dataset
    version: Version
    check: Check
    ask: Ask | None = None
    is_silent: bool = False

    def __call__(self, pairs: Sequence[Pair], evidence: Evidence) -> Sequence[Judgement] | None:
        """Give the judgements that there are; None where the build has to wait for more."""
        stored = self._recalled(pairs, evidence)
        finished = bool(self.check.facts.get(FINISHED))
        if stored.open_pairs and not is_over(stored, self.ports.clock.now()):
            stored = self._asked(stored, pairs, evidence, finished=finished)
        self.ask = stored = self._kept(stored)
        waits = bool(stored.open_pairs) and stored.due_at is not None and not finished
        self.is_silent = waits and is_over(stored, self.ports.clock.now())
        if waits and not self.is_silent:
            return None
        return [Judgement(g.pair_id, g.same, g.confidence, g.explanation) for g in stored.decided]

    @property
    def facts(self) -> dict[str, Any]:
        """What the check and the version tell of the ask."""
        if self.ask is None:
            return {}
        told = {"asks": max(self.ask.number, 1), "pairs": len(self.ask.pairs), "judged": len(self.ask.given)}
        trouble = {"agent_trouble": self.ask.trouble} if self.ask.trouble else {}
        return told | trouble

    def look_again_at(self) -> datetime | None:
        """Tell when the build of a waiting check goes on."""
        return look_again_at(self.ask, self.ports.clock.now()) if self.ask else None

    def _recalled(self, pairs: Sequence[Pair], evidence: Evidence) -> Ask:
        """Take up this check's ask, with all that was judged of its pairs beside the same version."""
        with self.ports.store.read() as records:
            earlier = records.asks.of_dataset(self.dataset.id, EARLIER)[::-1]
        own = next((ask for ask in earlier if ask.check_id == self.check.id), None)
        base = self.version.base or 0
        fresh = Ask(
            self.check.id,
            self.dataset.id,
            base,
            self.version.number,
            self.dataset.matching.agent,
            self.ports.clock.now(),
            pairs=tuple(_asked_pair(pair, evidence) for pair in pairs),
            olds=_shown({_old(pair): pair.old for pair in pairs}),
            news=_shown({_new(pair): pair.new for pair in pairs}),
        )
        if own is not None:
            fresh = replace(fresh, asked_at=own.asked_at, due_at=own.due_at, number=own.number, tries=own.tries)
            fresh = with_given(fresh, own.given) if own.base == base else fresh
        return carried_over(fresh, earlier)

    def _asked(self, ask: Ask, pairs: Sequence[Pair], evidence: Evidence, *, finished: bool) -> Ask:
        """Ask the agent about the pairs that nobody has judged, outside of any transaction."""
        open_ids = {pair.pair_id for pair in ask.open_pairs}
        asked = [pair for pair in pairs if pair.pair_id in open_ids]
        begun = ask if finished else asked_again(ask, self.ports.clock.now())
        try:
            judgements = self.ports.agent.judge(self.dataset, asked, evidence)
        except Unanswered as trouble:
            return tried(self._with(begun, trouble.answered), str(trouble))
        if judgements is None:
            return begun
        self.ports.reach("consult.answered")
        return replace(self._with(ask, judgements), due_at=None, trouble=None)

    def _with(self, ask: Ask, judgements: Sequence[Judgement]) -> Ask:
        now, own = self.ports.clock.now(), {pair.pair_id for pair in ask.pairs}
        by = self.dataset.matching.agent
        sound = [j for j in judgements if j.pair_id in own and 0 <= j.confidence <= 1]
        return with_given(ask, (Given(j.pair_id, j.same, j.confidence, by, now, j.explanation) for j in sound))

    def _kept(self, ask: Ask) -> Ask:
        """Store the ask, with what a person judged meanwhile."""
        with self.ports.store.write() as records:
            records.catalog.lock([ask.dataset_id])
            stored = records.asks.get(ask.check_id)
            if stored is not None and stored.base == ask.base:
                ask = with_given(ask, stored.given)
            records.asks.put(ask)
        self.ports.reach("consult.kept")
        return ask


def _shown(records: Mapping[str, Values]) -> dict[str, Shown]:
    """Write each record's values for a person, once."""
    return {name: shown(values) for name, values in records.items()}


def _old(pair: Pair) -> str:
    return pair.pair_id.partition("-")[0]


def _new(pair: Pair) -> str:
    return pair.pair_id.partition("-")[2]


def _asked_pair(pair: Pair, evidence: Evidence) -> AskedPair:
    """Name a pair's records and the compared columns in which they differ."""
    differs = tuple(name for name in evidence.columns if pair.old[name] != pair.new[name])
    return AskedPair(pair.pair_id, _old(pair), _new(pair), differs)
