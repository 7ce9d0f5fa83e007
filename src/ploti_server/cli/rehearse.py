"""`ploti-server check --dry-run`: what a state would come to, without anything being written."""

from typing import Any, Final

from ploti_server.app import rehearsal_of
from ploti_server.cli.holds import changed_columns, why_held
from ploti_server.cli.printing import Common, say, show
from ploti_server.domain.wire import wire_schema_change
from ploti_server.pipeline.check import GivenState
from ploti_server.pipeline.rehearse import Rehearsed, rehearse
from ploti_server.ports import Ports

COUNTED: Final = ("added", "changed", "removed", "returned")


def rehearse_check(ports: Ports, dataset: str, state: GivenState, common: Common) -> int:
    """Show what a check of a state would change; exit code 1 where the state could not be read."""
    with rehearsal_of(ports) as (spare, agent):
        rehearsed = rehearse(ports, spare, dataset, state)
        told = _told(rehearsed, agent.left)
    if common.as_json:
        show(common, told)
        return 1 if told["outcome"] == "failed" else 0
    change, rules = told.pop("schemaChange"), told.pop("holds")
    show(common, told)
    if change:
        say("\nschema change")
        keys = (version.schema.key_columns if version else () for version in (rehearsed.current, rehearsed.version))
        show(common, changed_columns(change, *keys), "changed columns")
    if rules:
        say("\nholds that would apply")
        show(common, [why_held(rule, rehearsed.check.facts) for rule in rules], "rules")
    say("\nnothing was written: leave out --dry-run to do it")
    return 1 if told["outcome"] == "failed" else 0


def _told(rehearsed: Rehearsed, left: int) -> dict[str, Any]:
    check, version, current = rehearsed.check, rehearsed.version, rehearsed.current
    facts = check.facts
    change = version.schema_change if version else None
    told: dict[str, Any] = {
        "dataset": check.dataset_id,
        "outcome": check.outcome,
        "reason": check.reason,
        "version": version and version.number,
        "current": current and current.number,
        "schemaVersion": version and version.schema_version,
        "resyncReason": version and version.resync_reason,
        "rows": facts.get("rows"),
        "previousRows": facts.get("previous_rows"),
        **{name: facts[name] for name in COUNTED if name in facts},
        **{f"by{how.title()}": found for how, found in facts.get("matched", {}).items()},
        "rejectedRows": facts.get("rejected_rows"),
        "misnamed": facts.get("misnamed") or None,
        "openHold": facts.get("open", {}).get("version"),
        "pairsToAsk": left,
        "schemaChange": change and wire_schema_change(change),
        "holds": facts.get("holds", []),
    }
    return {name: value for name, value in told.items() if value is not None or name in ("schemaChange", "reason")}
