"""`python -m bench.matching [--left-over N] [--kind K] [--no-real] [--no-peer]`: matching's quality as JSON lines.

Generated edits with known truth are matched by content alone, by the built-in agent, and by peers (Splink,
recordlinkage, Jaro-Winkler in DuckDB), on the same rows in the same run; then real histories with their keys hidden,
every wrong match listed with both rows; then each goal with its figure. Limits of the contract are lifted.
"""

import argparse
import importlib
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import edits, hidden, linked, splinked
from bench.matched import Outcome, match
from bench.measure import judge, judge_least, provenance
from ploti_server.adapters.agents import NobodyJudges
from ploti_server.adapters.judge import BuiltInJudge

SEED = 20261130
SHARES = {"permits": 0.4, "licences": 0.4, "districts": 0.2}
"""The mix of kinds among the left-over records."""

PRECISION, RECALL = hidden.PRECISION, 0.90
SECONDS = 60.0
"""Goals on the mix; seconds are for all left-over records, and mean CPU where other work shares the cores."""

TIMES_THE_LIMIT = 6.0
"""Aim for the CPU of finding records again that content alone does not find."""

PEERS = {"splink": "link", "recordlinkage": "recordlinkage", "duckdb jaro-winkler": "jaro_winkler"}
SUMMED = ("left_over", "edited", "survivors", "matched", "right", "kept", "cpu", "wall", "linking_cpu", "limit_cpu",
          "pairs_judged", "agent_cpu", "agent_wall", "right_at_best")  # fmt: skip
JOB = "matching, generated edits"
OURS, ALONE = "built-in agent", "content alone"


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.matching")
    parser.add_argument("--left-over", type=int, default=20_000)
    parser.add_argument("--kind", action="append", choices=list(SHARES))
    parser.add_argument("--no-real", action="store_true")
    parser.add_argument("--no-peer", action="store_true", help="leave the peers out")
    asked = parser.parse_args()
    figures = []
    for kind in asked.kind or SHARES:
        figures += _show(generated(kind, round(asked.left_over * SHARES[kind]), peer=not asked.no_peer))
    mix = {line["way"]: line for line in _show(mixed(figures))}
    if not asked.no_real:
        for dataset_id in hidden.HIDDEN:
            with tempfile.TemporaryDirectory() as folder:
                _show(hidden.told(dataset_id, hidden.follow(dataset_id, BuiltInJudge(), Path(folder))))
    _judge(mix)


def _judge(mix: dict[str, dict[str, Any]]) -> None:
    """Print each goal of the mix: quality, quality beside each peer's, seconds, CPU beside the limit's."""
    ours = mix[OURS]
    told = {"left_over": ours["left_over"]}
    judge_least("matching, precision on the mix", told, ours["precision"], PRECISION)
    judge_least("matching, recall on the mix", told, ours["recall"], RECALL)
    for way in (way for way in PEERS if way in mix):
        peer = mix[way]
        judge_least(f"matching, precision on the mix beside {way}", told, ours["precision"], peer["precision"])
        better = max(peer["recall"], peer["recall_at_best"])
        judge_least(f"matching, recall on the mix beside {way}, by its own threshold or the best one",
                    told, ours["recall"], better)  # fmt: skip
        judge(f"matching, CPU beside {way}", told, ours["linking_cpu"], peer["linking_cpu"])
    pairs = told | {"pairs_judged": ours["pairs_judged"]}
    judge("matching, seconds for judging all pairs", pairs, ours["agent_wall"], SECONDS)
    judge("matching, CPU seconds for judging all pairs", pairs, ours["agent_cpu"], SECONDS)
    judge("matching, CPU seconds with all steps before", pairs, ours["cpu"], SECONDS)
    judge("matching, CPU in times the limit (aim)", told, ours["linking_cpu"] / ours["limit_cpu"], TIMES_THE_LIMIT)


def _show(lines: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    shown = []
    for line in lines:
        print(json.dumps(line if "wrong_match_of" in line else {**line, **provenance()}), flush=True)
        shown.append(line)
    return shown


def generated(kind: str, left_over: int, *, peer: bool) -> Iterator[dict[str, Any]]:
    """Give the figures of each way to match one kind of records."""
    tables = edits.make(kind, left_over, SEED)
    with tempfile.TemporaryDirectory() as folder:
        alone = match(tables, NobodyJudges(), Path(folder))
    left = _left_over(tables, alone.found)
    limit = {"limit_cpu": round(linked.limit(*left.rows, tables.types), 3)}
    yield _figures(ALONE, tables, alone.found, {}, _cost(alone, 0.0) | limit)
    with tempfile.TemporaryDirectory() as folder:
        judged = match(tables, BuiltInJudge(), Path(folder))
    found = {old: new for old, new in judged.found.items() if old not in alone.found}
    asked = judged.matched.asked
    seconds = {"agent_cpu": round(asked.cpu, 2), "agent_wall": round(asked.wall, 2)}
    cost = _cost(judged, judged.matched.cpu - alone.matched.cpu)
    yield _figures(OURS, tables, judged.found, found, cost | limit | {"pairs_judged": len(asked.pairs)} | seconds)
    if peer:
        for way in PEERS:
            if importlib.util.find_spec(_module(way)) is None:
                missing = f"{_module(way)} is not installed: pip install 'ploti[bench]'"
                yield {"job": JOB, "kind": kind, "way": way, "left_out": missing}
            else:
                yield _peer(way, tables, alone.found, left) | limit


def _cost(outcome: Outcome, linking: float) -> dict[str, Any]:
    """What matching took as a whole, and what of it went to what content alone did not find."""
    cost = {"cpu": outcome.matched.cpu, "wall": outcome.matched.wall, "linking_cpu": linking}
    return {name: round(seconds, 2) for name, seconds in cost.items()}


@dataclass(frozen=True)
class LeftOver:
    """The rows that content alone did not find, with their places: old ones, new ones."""

    places: tuple[list[int], list[int]]
    rows: tuple[list[edits.Row], list[edits.Row]]


def _left_over(tables: edits.Tables, alone: dict[int, int]) -> LeftOver:
    taken = set(alone.values())
    old = [place for place in range(len(tables.old)) if place not in alone]
    new = [place for place in range(len(tables.new)) if place not in taken]
    return LeftOver((old, new), ([tables.old[place] for place in old], [tables.new[place] for place in new]))


def _module(way: str) -> str:
    return way.partition(" ")[0]


def _peer(way: str, tables: edits.Tables, alone: dict[int, int], left: LeftOver) -> dict[str, Any]:
    """A peer on the rows that content left over; also with the threshold that the truth says would be right."""
    link: Callable[..., linked.Linked] = getattr(splinked if way == "splink" else linked, PEERS[way])
    importlib.import_module(_module(way))
    cpu, wall = time.process_time(), time.perf_counter()
    answer = link(*left.rows, tables.types)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    cost = {"cpu": round(cpu, 2), "wall": round(wall, 2), "linking_cpu": round(cpu, 2)}
    old, new = left.places
    found = {old[one]: new[other] for one, (other, _) in answer.items()}
    right = [tables.truth.get(old[one]) == new[other] for one, (other, _) in answer.items()]
    best = _right_at_best(right, [weight for _, weight in answer.values()])
    return _figures(way, tables, alone | found, found, cost) | {"right_at_best": best}


def _right_at_best(right: list[bool], weights: list[float]) -> int:
    """Count what the best of all thresholds with the precision asked for would have found."""
    best, hits = 0, 0
    for place, (hit, weight) in enumerate(zip(right, weights, strict=True), 1):
        hits += hit
        more = place < len(weights) and weights[place] == weight
        if not more and hits / place >= PRECISION:
            best = hits
    return best


def _figures(
    way: str, tables: edits.Tables, found: dict[int, int], judged: dict[int, int], cost: dict[str, Any]
) -> dict[str, Any]:
    """Precision and recall are over the edited records, whom content alone cannot find; churn over all survivors."""
    right = sum(tables.truth.get(old) == new for old, new in judged.items())
    kept = sum(found.get(old) == new for old, new in tables.truth.items())
    return {
        "job": JOB,
        "kind": tables.kind,
        "way": way,
        "left_over": len(tables.old) - sum(old not in judged for old in found),
        "edited": len(tables.edited),
        "survivors": len(tables.truth),
        "matched": len(judged),
        "right": right,
        "kept": kept,
        **_shares(right, len(judged), len(tables.edited), kept, len(tables.truth)),
        **cost,
    }


def _shares(right: int, matched: int, edited: int, kept: int, survivors: int) -> dict[str, Any]:
    return {
        "precision": round(right / matched, 4) if matched else None,
        "recall": round(right / max(1, edited), 4),
        "ids_that_churn": round(1 - kept / max(1, survivors), 4),
    }


def mixed(figures: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Give the sums over all kinds, by way."""
    for way in dict.fromkeys(line["way"] for line in figures if "left_out" not in line):
        of_way = [line for line in figures if line["way"] == way]
        names = [name for name in SUMMED if name in of_way[0]]
        total = {name: round(sum(line[name] for line in of_way), 3) for name in names}
        shares = _shares(total["right"], total["matched"], total["edited"], total["kept"], total["survivors"])
        times = {"times_the_limit": round(total["linking_cpu"] / total["limit_cpu"], 1)}
        best = (
            {"recall_at_best": round(total["right_at_best"] / total["edited"], 4)} if "right_at_best" in total else {}
        )
        yield {"job": JOB, "kind": "mix", "way": way, **total, **shares, **times, **best}


if __name__ == "__main__":
    main()
