"""`python -m bench.matching [--left-over N] [--kind K] [--no-real] [--no-peer]`: matching's quality as JSON lines.

Generated edits with known truth are matched by content alone, by the built-in agent, and by Splink, on the same rows in
the same run; then real histories with their keys hidden, every wrong match listed. Limits of the contract are lifted.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import edits, hidden
from bench.matched import Outcome, match
from bench.measure import provenance
from ploti_server.adapters.agents import NobodyJudges
from ploti_server.adapters.judge import BuiltInJudge

SEED = 20261130
SHARES = {"permits": 0.4, "licences": 0.4, "districts": 0.2}
"""The mix of kinds among the left-over records."""

PRECISION = 0.995


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.matching")
    parser.add_argument("--left-over", type=int, default=20_000)
    parser.add_argument("--kind", action="append", choices=list(SHARES))
    parser.add_argument("--no-real", action="store_true")
    parser.add_argument("--no-peer", action="store_true", help="leave Splink out")
    asked = parser.parse_args()
    figures = []
    for kind in asked.kind or SHARES:
        figures += _show(generated(kind, round(asked.left_over * SHARES[kind]), peer=not asked.no_peer))
    _show(mixed(figures))
    if not asked.no_real:
        for dataset_id in hidden.HIDDEN:
            with tempfile.TemporaryDirectory() as folder:
                _show(hidden.told(dataset_id, hidden.follow(dataset_id, BuiltInJudge(), Path(folder))))


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
    yield _figures("content alone", tables, alone.found, {}, _cost(alone))
    with tempfile.TemporaryDirectory() as folder:
        judged = match(tables, BuiltInJudge(), Path(folder))
    found = {old: new for old, new in judged.found.items() if old not in alone.found}
    asked = {"pairs_judged": len(judged.matched.asked.pairs), "agent_cpu": round(judged.matched.asked.cpu, 2)}
    yield _figures("built-in agent", tables, judged.found, found, _cost(judged) | asked)
    if peer:
        yield _peer(tables, alone.found)


def _cost(outcome: Outcome) -> dict[str, Any]:
    return {"cpu": round(outcome.matched.cpu, 2), "wall": round(outcome.matched.wall, 2)}


def _peer(tables: edits.Tables, alone: dict[int, int]) -> dict[str, Any]:
    """Splink on the rows that content left over; also with the threshold that the truth says would be right."""
    from bench import splinked

    old = [place for place in range(len(tables.old)) if place not in alone]
    taken = set(alone.values())
    new = [place for place in range(len(tables.new)) if place not in taken]
    cpu, wall = time.process_time(), time.perf_counter()
    linked = splinked.link([tables.old[place] for place in old], [tables.new[place] for place in new], tables.types)
    cost = {"cpu": round(time.process_time() - cpu, 2), "wall": round(time.perf_counter() - wall, 2)}
    found = {old[left]: new[right] for left, (right, _) in linked.items()}
    right = [tables.truth.get(old[left]) == new[place] for left, (place, _) in linked.items()]
    weights = [weight for _, weight in linked.values()]
    best = _recall_at(right, weights, len(tables.edited))
    return _figures("splink", tables, alone | found, found, cost) | {"recall_at_precision_0.995": best}


def _recall_at(right: list[bool], weights: list[float], edited: int) -> float:
    """Give the highest recall of any threshold that would have had the precision asked for."""
    best, hits = 0, 0
    for place, (hit, weight) in enumerate(zip(right, weights, strict=True), 1):
        hits += hit
        more = place < len(weights) and weights[place] == weight
        if not more and hits / place >= PRECISION:
            best = hits
    return round(best / max(1, edited), 4)


def _figures(
    way: str, tables: edits.Tables, found: dict[int, int], judged: dict[int, int], cost: dict[str, Any]
) -> dict[str, Any]:
    """Precision and recall are over the edited records, whom content alone cannot find; churn over all survivors."""
    right = sum(tables.truth.get(old) == new for old, new in judged.items())
    kept = sum(found.get(old) == new for old, new in tables.truth.items())
    return {
        "job": "matching, generated edits",
        "kind": tables.kind,
        "way": way,
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
    for way in dict.fromkeys(line["way"] for line in figures):
        of_way = [line for line in figures if line["way"] == way]
        names = ("edited", "survivors", "matched", "right", "kept", "cpu", "wall")
        total = {name: round(sum(line[name] for line in of_way), 2) for name in names}
        shares = _shares(total["right"], total["matched"], total["edited"], total["kept"], total["survivors"])
        yield {"job": "matching, generated edits", "kind": "mix", "way": way, **total, **shares}


if __name__ == "__main__":
    main()
