"""Matching agents (D4.8)."""

from collections.abc import Sequence

from ploti_server.domain.datasets import Dataset
from ploti_server.domain.evidence import Evidence
from ploti_server.ports import Judgement, Pair


class NobodyJudges:
    """`MatchingAgent` that judges no pair, so that records match by key and content alone."""

    def judge(
        self,
        dataset: Dataset,  # noqa: ARG002
        pairs: Sequence[Pair],  # noqa: ARG002
        evidence: Evidence,  # noqa: ARG002
    ) -> tuple[Judgement, ...] | None:
        """Answer at once, about nothing."""
        return ()
