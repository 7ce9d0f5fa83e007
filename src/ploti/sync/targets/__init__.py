"""Where a subscription can go: one module per kind of target, imported only when it is asked for (D11.1)."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from ploti.sync.target import Reach, Say, Target, TargetUnusable, reach_nothing, say_nothing

__all__ = ["TARGETS", "open_target"]


@dataclass(frozen=True)
class _Kind:
    module: str
    extra: str
    example: str


TARGETS: Final[dict[str, _Kind]] = {
    "duckdb": _Kind("ploti.sync.targets.duckdb", "sync", "duckdb:///records.duckdb"),
    "postgresql": _Kind("ploti.sync.targets.postgresql", "postgres", "postgresql://user@host/database"),
    "sqlite": _Kind("ploti.sync.targets.geopackage", "sync", "sqlite:///records.gpkg"),
    "parquet": _Kind("ploti.sync.targets.geoparquet", "sync", "parquet:///records"),
}
"""By scheme of the target's address; a target is one module with `open_target(url, reach, say)` and one line here."""


def open_target(
    url: str,
    *,
    reach: Reach = reach_nothing,
    say: Say = say_nothing,
    history: bool = False,
    table_name: str | None = None,
) -> Target:
    """Give the target of an address such as `duckdb:///records.duckdb`, without touching it yet.

    With `history` every row's past is kept beside its table, from then on (D11.5). `table_name` says how a new
    target names its tables, `{dataset}` standing for a dataset's id; a target keeps its names.
    Raises TargetUnusable for an unknown kind, or where the kind's own package is missing.
    """
    scheme, _, rest = url.partition("://")
    kind = TARGETS.get(scheme)
    if kind is None or not rest:
        known = ", ".join(each.example for each in TARGETS.values())
        raise TargetUnusable(f"{url!r} is no target that sync knows. Use one like: {known}")
    try:
        opened: Callable[..., Target] = import_module(kind.module).open_target
    except ModuleNotFoundError as missing:
        raise TargetUnusable(f'{scheme} needs a package more: pip install "ploti[{kind.extra}]"') from missing
    return opened(url, reach, say, history=history, table_name=table_name)
