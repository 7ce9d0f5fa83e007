"""`ploti-server catalog apply FILE [--dry-run]`."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from ploti_server.cli.home import ports_of, ports_of_any, settings_of
from ploti_server.cli.printing import COMMON, CommandRefused, Common, say
from ploti_server.cli.printing import show as print_answer
from ploti_server.domain.catalog import Catalog, parse_catalog
from ploti_server.domain.catalog_plan import CatalogPlan
from ploti_server.domain.settings import Settings
from ploti_server.pipeline.catalog import Applied, apply_catalog, plan_applying
from ploti_server.rows.projection import knows_crs

catalog = App(name="catalog", help="Apply a catalog of topics and datasets.")


@catalog.command
def apply(
    file: Path,
    *,
    dry_run: Annotated[bool, Parameter(negative="", help="Show what would change and change nothing.")] = False,
    common: Common = COMMON,
) -> int:
    """Apply a catalog file: shows what changes, is safe to repeat, and reads no source.

    A dataset that the file leaves out stays as it is; `retired: true` retires one.
    """
    settings = settings_of(common)
    read = _read(file, settings)
    with ports_of_any(common) if dry_run else nullcontext(ports_of(common, starts=True)) as ports:
        done = Applied(plan_applying(ports, read)) if dry_run else apply_catalog(ports, read)
    if common.as_json:
        print_answer(common, {"applied": not dry_run, **_shape(done.plan), "waiting": done.waiting})
        return 0
    _tell(done.plan, dry_run)
    if done.waiting:
        say(f"waiting to be brought up to date: {', '.join(done.waiting)} (apply again in a moment)")
    return 0


def _read(file: Path, settings: Settings) -> Catalog:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandRefused(f"cannot read the catalog {file}: {error}") from error
    return parse_catalog(text, file, settings.review, settings.matching, knows_crs)


def _tell(plan: CatalogPlan, dry_run: bool) -> None:
    for line in _lines(plan):
        say(line)
    unchanged = len(plan.unchanged)
    if plan.is_empty:
        say(f"nothing to change: {unchanged} dataset{'' if unchanged == 1 else 's'} as before")
    elif dry_run:
        say("nothing was changed: leave out --dry-run to apply")


def _shape(plan: CatalogPlan) -> dict[str, Any]:
    return {
        "added": plan.added,
        "changed": [{"dataset": a.dataset_id, "fields": a.fields, "effect": a.effect} for a in plan.changed],
        "retired": plan.retired,
        "returned": plan.returned,
        "unchanged": plan.unchanged,
        "notNamed": plan.not_named,
        "topics": {"added": plan.topics_added, "changed": plan.topics_changed, "removed": plan.topics_removed},
    }


def _lines(plan: CatalogPlan) -> list[str]:
    effects: dict[Any, str] = {
        None: "",
        "MINOR": ": a MINOR schema change at the next check",
        "MAJOR": ": a MAJOR schema change at the next check, held for review",
    }
    return [
        *(f"+ topic {topic}" for topic in plan.topics_added),
        *(f"~ topic {topic}" for topic in plan.topics_changed),
        *(f"- topic {topic}" for topic in plan.topics_removed),
        *(f"+ {dataset}" for dataset in plan.added),
        *(f"~ {a.dataset_id} ({', '.join(a.fields)}){effects[a.effect]}" for a in plan.changed),
        *(f"- {dataset} retired: it leaves every subscription, its history stays" for dataset in plan.retired),
        *(f"+ {dataset} offered again" for dataset in plan.returned),
        *(f"  {dataset} is not in this file and stays as it is" for dataset in plan.not_named),
    ]
