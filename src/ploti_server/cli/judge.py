"""`ploti-server judge`: pairs of records that may be one, side by side, and a person's word on them (D4.8)."""

from typing import Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from ploti_server import worker
from ploti_server.cli.checks import tell_check
from ploti_server.cli.home import ports_for, ports_of
from ploti_server.cli.printing import COMMON, CommandRefused, Common, Limit, VersionNumber, as_text, say, show
from ploti_server.domain.asks import Ask, AskedPair
from ploti_server.domain.versions import VersionStatus
from ploti_server.domain.wire import wire_time
from ploti_server.pipeline.answer import Open, answer, ask_now, finish, open_ask
from ploti_server.ports import Ports

judge = App(name="judge", help="Judge by hand which records are the same.")
Answer = Literal["same", "different"]
REST: Final = "rest"
"""Names all pairs that nobody has judged."""


@judge.command(name="list")
def list_asks(*, common: Common = COMMON) -> int:
    """List the versions whose pairs can be judged: those that wait for it, then held ones."""
    with ports_of(common).store.read() as records:
        waiting = records.asks.waiting()
        held = [
            records.asks.get(version.check_id) for version in records.versions.in_status(None, [VersionStatus.HELD])
        ]
    show(common, [_row(ask) for ask in (*waiting, *(ask for ask in held if ask is not None))], "pairs to judge")
    return 0


@judge.command(name="show")
def show_pairs(
    dataset: str,
    *,
    pair: Annotated[str | None, Parameter(help="Only this pair, by its number or id.")] = None,
    every: Annotated[bool, Parameter(name="--all", negative="", help="Also pairs that are judged already.")] = False,
    limit: Annotated[Limit, Parameter(help="Pairs that are printed; with --json all are.")] = 20,
    version: Annotated[
        VersionNumber | None, Parameter(help="What was judged for this version, released or not.")
    ] = None,
    common: Common = COMMON,
) -> int:
    """Show the pairs that wait for an answer, both records side by side, with what differs marked."""
    ports = ports_for(common, dataset)
    if version is not None:
        show(common, _judged(ports, dataset, version), "judgements")
        return 0
    with ports.store.read() as records:
        ask = open_ask(records, dataset).ask
    settled = ask.settled
    rows = [
        _shown(ask, number, one)
        for number, one in enumerate(ask.pairs, 1)
        if pair in (str(number), one.pair_id) or (pair is None and (every or one.pair_id not in settled))
    ]
    if common.as_json:
        show(common, _row(ask) | {"judge": rows})
        return 0
    show(common, _row(ask))
    for row in rows[:limit]:
        say(f"\npair {row['pair']}: {_verdict(row)}")
        show(common, [_marked(name, row) for name in row["old"]], "columns", whole=True)
    if len(rows) > limit:
        say(f"\n{len(rows) - limit} more pairs: give --limit or --json")
    say(f"\nanswer: ploti-server judge answer {dataset} PAIR same|different")
    say(f"go on with what is judged: ploti-server judge finish {dataset}")
    return 0


@judge.command(name="answer")
def answer_pair(
    dataset: str,
    pair: Annotated[str, Parameter(help="Pairs like 3 or 1,4 or 7-9, or `rest` for all that nobody has judged.")],
    says: Answer,
    *,
    note: Annotated[str | None, Parameter(help="Why, kept with the judgement.")] = None,
    common: Common = COMMON,
) -> int:
    """Say whether the records of some pairs are the same; with the last answer a waiting version is built."""
    ports = ports_for(common, dataset)
    given = answer(ports, dataset, None if pair == REST else pair, says == "same", note)
    left = len(given.ask.open_pairs)
    if not given.is_held and not left:
        return _go_on(ports, given.check.id, common)
    told = {"dataset": dataset, "pair": pair, "answer": says, "left": left}
    show(common, told)
    if not common.as_json:
        say(_next(dataset, given))
    return 0


@judge.command(name="ask")
def ask_again(dataset: str, *, common: Common = COMMON) -> int:
    """Ask a waiting version's agent again at once, as when its endpoint is mended."""
    ports = ports_for(common, dataset)
    return _go_on(ports, ask_now(ports, dataset).id, common)


@judge.command(name="finish")
def finish_judging(dataset: str, *, common: Common = COMMON) -> int:
    """Build on with the answers given so far; pairs without one are not matched. A held version is built again."""
    ports = ports_for(common, dataset)
    return _go_on(ports, finish(ports, dataset).id, common)


def _go_on(ports: Ports, check_id: int, common: Common) -> int:
    return tell_check(worker.work_through(ports, worker.new_owner(), check_id), common)


def _next(dataset: str, given: Open) -> str:
    if given.is_held:
        return f"build the held version again with it: ploti-server judge finish {dataset}"
    return f"see what is left: ploti-server judge show {dataset}"


def _row(ask: Ask) -> dict[str, Any]:
    return {
        "dataset": ask.dataset_id,
        "version": ask.version,
        "agent": ask.agent,
        "pairs": len(ask.pairs),
        "open": len(ask.open_pairs),
        "asked": ask.number or 1,
        "until": ask.due_at and wire_time(ask.due_at),
        "trouble": ask.trouble,
    }


def _judged(ports: Ports, dataset: str, number: int) -> list[dict[str, Any]]:
    """List the judgements kept with a version, the same ones first."""
    with ports.store.read() as records:
        version = records.versions.get(dataset, number)
        ask = records.asks.get(version.check_id) if version else None
    if version is None:
        raise CommandRefused(f"there is no version {number} of {dataset}: see `ploti-server versions list {dataset}`")
    given = sorted(ask.given if ask else (), key=lambda one: (not one.same, -one.confidence, one.pair_id))
    return [
        {
            "recordId": one.pair_id.partition("-")[0],
            "answer": "same" if one.same else "different",
            "confidence": one.confidence,
            "by": one.by,
            "at": wire_time(one.at),
            "explanation": one.explanation,
        }
        for one in given
    ]


def _shown(ask: Ask, number: int, pair: AskedPair) -> dict[str, Any]:
    given = ask.answers.get(pair.pair_id)
    return {
        "pair": number,
        "id": pair.pair_id,
        "recordId": pair.old,
        "old": ask.olds.get(pair.old, {}),
        "new": ask.news.get(pair.new, {}),
        "differs": list(pair.differs),
        "answer": given and ("same" if given.same else "different"),
        "confidence": given and given.confidence,
        "by": given and given.by,
        "explanation": given and given.explanation,
    }


def _verdict(row: dict[str, Any]) -> str:
    if row["answer"] is None:
        return "not judged"
    why = f" ({as_text(row['explanation'])})" if row["explanation"] else ""
    return f"{row['answer']} at {row['confidence']:.2f} by {row['by']}{why}"


def _marked(name: str, row: dict[str, Any]) -> dict[str, Any]:
    mark = "≠" if name in row["differs"] else ""
    return {"column": name, "before": row["old"][name], "": mark, "now": row["new"].get(name)}
