"""Matching agents (D4.8)."""

from collections.abc import Sequence

from ploti_server.domain.datasets import Dataset
from ploti_server.ports import Judgement, Pair


class NobodyJudges:
    """`MatchingAgent` that judges no pair, so that records match by key and content alone."""

    def judge(self, dataset: Dataset, pairs: Sequence[Pair]) -> tuple[Judgement, ...] | None:  # noqa: ARG002
        """Answer at once, about nothing."""
        return ()
