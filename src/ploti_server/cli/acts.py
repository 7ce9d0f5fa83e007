"""What the commands that act on sent versions share: build what was queued, or leave it to the next worker."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from ploti_server import worker
from ploti_server.cli.checks import say_check, told_check
from ploti_server.cli.printing import Common, say, show
from ploti_server.domain.checks import Check
from ploti_server.ports import Ports

Later = Annotated[
    bool, Parameter(name="--later", negative="", help="Leave it to the next worker instead of building it now.")
]


def work_acts(
    ports: Ports, queued: Sequence[Check], common: Common, *, later: bool, told: Mapping[str, Any] | None = None
) -> int:
    """Build queued checks and tell what became of each: of the act, and of a held state after it; gives the exit code.

    As JSON it is the act's answer with what was `told` besides, and with the held state's under `then`.
    """
    if later:
        answers = [_queued(check) for check in queued]
    else:
        done = [worker.work_through(ports, worker.new_owner(), check.id) for check in queued]
        answers = [told_check(check) for check in done]
    if common.as_json:
        show(common, answers[0] | {"then": answers[1:]} | dict(told or {}))
    elif later:
        say(f"{queued[0].dataset_id}: queued, the next worker builds it")
    else:
        for check in done:
            say_check(check, None)
    return 1 if any(one["outcome"] == "failed" for one in answers) else 0


def _queued(check: Check) -> dict[str, Any]:
    return told_check(check) | {"outcome": "queued", "reason": "the next worker builds it"}
