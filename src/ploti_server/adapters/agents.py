"""Which matching agent judges a dataset's records (D4.8)."""

from collections.abc import Mapping, Sequence
from typing import Final

from ploti_server.domain.datasets import Dataset
from ploti_server.domain.evidence import Evidence
from ploti_server.ports import Judgement, MatchingAgent, Pair


class NobodyJudges:
    """`MatchingAgent` that judges no pair, so that records match by key and content alone."""

    def judges(self, dataset: Dataset) -> bool:  # noqa: ARG002  # the port's
        """Tell that nobody judges."""
        return False

    def judge(
        self,
        dataset: Dataset,  # noqa: ARG002  # the port's
        pairs: Sequence[Pair],  # noqa: ARG002  # the port's
        evidence: Evidence,  # noqa: ARG002  # the port's
    ) -> tuple[Judgement, ...] | None:
        """Answer at once, about nothing."""
        return ()


class StaffJudge:
    """`MatchingAgent` whose answers people give, by `ploti-server judge`."""

    def judges(self, dataset: Dataset) -> bool:  # noqa: ARG002  # the port's
        """Tell that pairs are judged."""
        return True

    def judge(
        self,
        dataset: Dataset,  # noqa: ARG002  # the port's
        pairs: Sequence[Pair],  # noqa: ARG002  # the port's
        evidence: Evidence,  # noqa: ARG002  # the port's
    ) -> tuple[Judgement, ...] | None:
        """Let the build wait for a person."""
        return None


class AsksNobodyElse:
    """`MatchingAgent` of a rehearsal: an agent of this machine judges, no other is asked.

    `left` counts the pairs that another agent would have been asked about.
    """

    AT_ONCE: Final = ("built-in", "nobody")

    def __init__(self, agent: MatchingAgent) -> None:
        self._agent = agent
        self.left = 0

    def judges(self, dataset: Dataset) -> bool:
        """Ask the agent."""
        return self._agent.judges(dataset)

    def judge(self, dataset: Dataset, pairs: Sequence[Pair], evidence: Evidence) -> tuple[Judgement, ...] | None:
        """Give the agent's answer where it answers at once, else none about these pairs."""
        if dataset.matching.agent in self.AT_ONCE:
            return self._agent.judge(dataset, pairs, evidence)
        self.left = len(pairs)
        return ()


class AgentsByName:
    """`MatchingAgent` that lets the agent judge that the dataset names; raises `KeyError` where none has the name."""

    def __init__(self, agents: Mapping[str, MatchingAgent]) -> None:
        self._agents = agents

    def judges(self, dataset: Dataset) -> bool:
        """Ask the named agent."""
        return self._agents[dataset.matching.agent].judges(dataset)

    def judge(self, dataset: Dataset, pairs: Sequence[Pair], evidence: Evidence) -> tuple[Judgement, ...] | None:
        """Give the named agent's answer."""
        return self._agents[dataset.matching.agent].judge(dataset, pairs, evidence)
